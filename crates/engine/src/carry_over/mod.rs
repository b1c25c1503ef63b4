//! State of a plan that is gone, carried over into new tables under another plan.
//!
//! Each binding is asked of the new plan: whether there is a service of the same name and kind, the
//! host may still be inside it, the pool still hands out the address and the port, and the
//! subscriber may have it within its allocation and limits. It is then claimed as traffic claims
//! it, so that no two bindings can get the same endpoint, and keeps the time at which it was made.
//! Its sessions follow. What cannot be carried over has ended, and is said.
//!
//! Where not everything has room, configured bindings come first, then those that were used last;
//! and connections that both sides know of come before others.

mod described;

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, BindingId, InsideKey, Origin, flags};
use tombolo_tables::conversation::Conversation;
use tombolo_tables::former::FormerTables;
use tombolo_tables::lease::Lease;
use tombolo_tables::session::{DOUBTED, Session, SessionKey, SessionRef, State, UNANSWERED};
use tombolo_tables::subscriber::{Subscriber, SubscriberId};
use tombolo_tables::tables::{BindError, Candidate, OpenError, Opener};
use tombolo_tables::tick::Tick;

use crate::allowed::{check_host, check_port, check_slice, outside};
use crate::endpoint::Endpoint;
use crate::mapping::allocation::Blocks;
use crate::mapping::pool::{PortSpace, block_ports};
use crate::mechanism::napt::session_state::{
    ESTABLISHED, ICMP, INSIDE_FIN, OUTSIDE_FIN, PERMISSION, PERMISSION_TCP, UDP,
};
use crate::mechanism::napt::{Nat, Policy};
use crate::now::Now;
use crate::plan::Plan;
use crate::static_bindings;

pub use crate::allowed::Ended;
pub use described::{FormerPlan, FormerService, describe};

/// Hears what has ended. Services have the numbers of the old plan.
pub trait Ends {
    /// A binding.
    fn binding(&mut self, binding: &Binding, why: Ended);
    /// A block of ports, with the first port and the last one.
    fn block(&mut self, subscriber: &Subscriber, ports: (u16, u16));
}

/// What was carried over so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Carried {
    /// Bindings.
    pub bindings: u64,
    /// Sessions.
    pub sessions: u64,
    /// Bindings that have ended.
    pub ended: u64,
    /// Live sessions that found no room, or are more than their subscriber may have.
    pub refused: u64,
}

/// What became of a binding of the old tables, which was made at that tick.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// It has this number now.
    Carried(Tick, BindingId),
    /// It has ended.
    Ended(Tick, Ended),
}

/// Carries state over. One value serves for several passes, if programs in the kernel work on the
/// old tables meanwhile: each pass takes what is new.
#[derive(Debug)]
pub struct CarryOver {
    former: FormerTables,
    was: FormerPlan,
    tables: Arc<Tables>,
    plan: Plan,
    /// Numbers of services now, by their numbers of then.
    services: Vec<Option<u8>>,
    /// By inside endpoints of then.
    leases: HashMap<InsideKey, Vec<Lease>>,
    configured: HashMap<InsideKey, Endpoint>,
    /// By whose slots they have.
    reserved: HashSet<(Endpoint, PortSpace)>,
    fates: HashMap<u32, Fate>,
    carried: Carried,
}

impl CarryOver {
    /// From `former`, tables under the plan that `was`, to `tables` under `plan`.
    #[must_use]
    pub fn new(former: FormerTables, was: FormerPlan, tables: Arc<Tables>, plan: &Plan) -> Self {
        let now_called = |service: &FormerService| {
            plan.numbered()
                .find(|(_, now)| now.name == service.name && now.kind.name() == service.kind)
                .map(|(number, _)| number)
        };
        let fixed = || {
            plan.numbered().flat_map(|(number, service)| {
                service.kind.static_bindings().iter().map(move |binding| (number, binding))
            })
        };
        Self {
            services: was.services.iter().map(now_called).collect(),
            leases: by_inside(former.leases()),
            configured: fixed().map(|(number, binding)| (binding.key(number), binding.outside)).collect(),
            reserved: fixed().map(|(_, binding)| (binding.outside, binding.space.slots())).collect(),
            former,
            was,
            tables,
            plan: plan.clone(),
            fates: HashMap::new(),
            carried: Carried::default(),
        }
    }

    /// The plan that was.
    #[must_use]
    pub fn was(&self) -> &FormerPlan {
        &self.was
    }

    /// Carries over what is not yet.
    pub fn pass(&mut self, now: Now) -> Carried {
        let tick = now.tick();
        self.carried.refused = 0;
        self.tables.leases.set_since(self.former.leases_since());
        self.catch_up_bindings();
        for number in self.order(true) {
            self.carry(number, tick);
        }
        // Who has a fixed endpoint gets it before others fill the tables.
        let _ = static_bindings::reconcile(&self.tables, &self.plan, now);
        for number in self.order(false) {
            self.carry(number, tick);
        }
        for settled in [true, false] {
            self.sessions(settled, tick);
        }
        self.kept_back(tick);
        self.conversations();
        self.carried
    }

    /// Connections whose numbers differ on both sides keep their differences.
    fn conversations(&self) {
        for (was, used) in self.former.conversations() {
            let mut ends = was.ends;
            if let Some(number) = self.services.get(usize::from(ends.inside.service)).copied().flatten() {
                ends.inside.service = number;
                self.tables.conversations.begin(&Conversation { ends, ..was }, used, |_, _| false);
            }
        }
    }

    /// Tells `ends` of the bindings that have ended, and of the blocks of ports that their
    /// subscribers do not have any more. After the last pass.
    pub fn tell(&self, now: Now, ends: &mut impl Ends) {
        for (number, fate) in &self.fates {
            if let Fate::Ended(created, why) = *fate
                && let Some((binding, _)) = self.former.binding(*number)
                && binding.created == created
            {
                ends.binding(&binding, why);
            }
        }
        for number in 1..=self.former.last_subscriber() {
            let Some(found) = self.former.subscriber(number) else { continue };
            let was = self.was.services.get(usize::from(found.subscriber.key.service));
            let Some(size) = was.and_then(|service| service.block_size) else { continue };
            for place in found.blocks {
                let ports = block_ports(size, place);
                if !self.has_block(&found.subscriber, size, place) {
                    self.keep_block_back(&found.subscriber, size, place, now.tick());
                    ends.block(&found.subscriber, (*ports.start(), *ports.end()));
                }
            }
        }
    }

    /// Numbers of bindings, those that were used last first: fixed ones, or the others.
    fn order(&self, fixed: bool) -> Vec<u32> {
        let mut used: HashMap<u32, Tick> = HashMap::new();
        let mut bindings = Vec::new();
        for number in 1..=self.former.last_binding() {
            if let Some((binding, touched)) = self.former.binding(number)
                && (binding.flags & flags::STATIC != 0) == fixed
                && !self.is_known(number, &binding)
            {
                bindings.push(number);
                used.insert(number, touched);
            }
        }
        self.former.each_session(|session| {
            if let Some(last) = used.get_mut(&session.key.binding.get()) {
                *last = session.seen.max(*last);
            }
        });
        bindings.sort_by_key(|number| std::cmp::Reverse(used.get(number).copied()));
        bindings
    }

    /// What packets have kept in use since an earlier pass carried it over.
    fn catch_up_bindings(&self) {
        for (&number, fate) in &self.fates {
            if let Fate::Carried(created, id) = *fate
                && let Some((_, touched)) = self.former.binding(number).filter(|(was, _)| was.created == created)
            {
                self.keep_times(number, id, touched);
            }
        }
    }

    /// Binding `id` was used when binding `number` was.
    fn keep_times(&self, number: u32, id: BindingId, touched: Tick) {
        if self.tables.bindings.touch(id, touched)
            && let Some(seen) = self.former.binding_seen(number)
        {
            self.tables.bindings.see(id, seen);
        }
    }

    fn is_known(&self, number: u32, binding: &Binding) -> bool {
        self.fates.get(&number).is_some_and(|fate| match fate {
            Fate::Carried(created, _) | Fate::Ended(created, _) => *created == binding.created,
        })
    }

    fn carry(&mut self, number: u32, now: Tick) {
        let Some((binding, touched)) = self.former.binding(number) else { return };
        let fate = match self.claim(&binding, touched, now) {
            Ok(id) => {
                self.keep_times(number, id, touched);
                self.carried.bindings += 1;
                Fate::Carried(binding.created, id)
            }
            Err(why) => {
                self.carried.ended += 1;
                self.keep_port_back(&binding, now);
                Fate::Ended(binding.created, why)
            }
        };
        self.fates.insert(number, fate);
    }

    /// Makes the binding in the new tables, where it has been touched when it was in the old ones.
    fn claim(&self, was: &Binding, touched: Tick, now: Tick) -> Result<BindingId, Ended> {
        let number = self.services.get(usize::from(was.inside.service)).copied().flatten().ok_or(Ended::Service)?;
        let service = self.plan.service(number).ok_or(Ended::Service)?;
        let nat = service.kind.nat().ok_or(Ended::Service)?;
        let inside = InsideKey { service: number, ..was.inside };
        check_host(service, &inside)?;
        check_slice(&self.plan, nat, &inside)?;
        let (space, outside) = outside(was).ok_or(Ended::Pool)?;
        let slot = nat.pool.slot(outside.address, space, outside.port.0).ok_or(Ended::Pool)?;
        let fixed = self.configured.get(&inside);
        let template = match (fixed, was.origin()) {
            (Some(wanted), _) if *wanted == outside => self.template(was, inside, flags::STATIC, 0),
            (Some(_), _) => return Err(Ended::Taken),
            (None, _) if self.reserved.contains(&(outside, space.slots())) => return Err(Ended::Taken),
            (None, Origin::Configured) => return Err(Ended::Configuration),
            (None, Origin::Dynamic) => {
                let subscriber = self.subscriber(nat, &inside, (space, outside), now)?;
                self.template(was, inside, 0, subscriber.get())
            }
            (None, Origin::Leased) => {
                let subscriber = self.subscriber(nat, &inside, (space, outside), now)?;
                let flags = self.lease(was, &inside, subscriber, now);
                self.template(was, inside, flags, subscriber.get())
            }
            (None, Origin::Operator) => self.template(was, inside, was.flags, 0),
        };
        let candidate = Candidate { slot, ipv4: was.outside_ipv4, port: was.outside_port };
        // What was kept back under the old plan was this binding's own; here nothing is in use.
        let made = self.tables.bind_again(&template, [candidate], 0, touched);
        match made {
            Ok((id, binding)) if binding.outside_slot == slot => Ok(id),
            Ok(_) | Err(BindError::NoneFree) => Err(Ended::Taken),
            Err(BindError::TableFull) => Err(Ended::Full),
        }
    }

    /// Carries the leases of a binding over; the flags that it has with them.
    fn lease(&self, was: &Binding, inside: &InsideKey, subscriber: SubscriberId, now: Tick) -> u16 {
        let mut book = self.tables.leases.open();
        let leases = self.leases.get(&was.inside).into_iter().flatten().filter(|lease| lease.expires > now);
        leases.fold(0, |flags, lease| {
            let here = Lease { inside: *inside, subscriber: subscriber.get(), ..*lease };
            let is_there = book.find(inside, lease.purpose).is_some() || book.add(&here, now).is_some();
            flags | if is_there { lease.purpose.flags() } else { 0 }
        })
    }

    fn template(&self, was: &Binding, inside: InsideKey, flags: u16, subscriber: u32) -> Binding {
        Binding { inside, flags, subscriber, created: was.created, ..Binding::default() }
    }

    /// The subscriber of a dynamic binding, if it may have one more, at this endpoint.
    fn subscriber(
        &self,
        nat: &Nat,
        inside: &InsideKey,
        (space, outside): (PortSpace, Endpoint),
        now: Tick,
    ) -> Result<SubscriberId, Ended> {
        let blocks = check_port(nat, inside, space, outside)?;
        let (address, port) = (outside.address, outside.port.0);
        let key = nat.policy.subscriber.key(inside);
        let (id, subscriber) = match self.tables.find_subscriber(&key) {
            Some(found) => found,
            None => {
                let grant = Subscriber { key, outside_ipv4: address.octets() };
                self.tables.admit(&grant, now).ok_or(Ended::Full)?
            }
        };
        let limit = nat.policy.bindings_per_subscriber;
        if limit.is_some_and(|limit| self.tables.subscribers.bindings(id) >= u64::from(limit)) {
            return Err(Ended::Limit);
        }
        match blocks {
            Some(_) if subscriber.outside_ipv4 != address.octets() => Err(Ended::Allocation),
            Some(blocks) if !self.holds_block(nat, id, address, blocks, port, now) => Err(Ended::Allocation),
            _ => Ok(id),
        }
    }

    /// True if subscriber `id` has the block that `port` is in, or gets it.
    fn holds_block(
        &self,
        nat: &Nat,
        id: SubscriberId,
        address: Ipv4Addr,
        blocks: Blocks,
        port: u16,
        now: Tick,
    ) -> bool {
        let Ok(place) = u16::try_from(u32::from(port) / blocks.size) else { return false };
        if self.tables.subscribers.blocks(id).any(|held| held == place) {
            return true;
        }
        let Some((first, end)) = nat.pool.blocks(address, blocks.size) else { return false };
        place < end && self.tables.grant_block(id, first, place, blocks.most(), 0, now)
    }

    /// Carries the sessions over of bindings that were: those that both sides know of, or the
    /// others.
    fn sessions(&mut self, settled: bool, now: Tick) {
        let (mut made, mut refused) = (0, 0);
        self.former.each_session(|was| match self.session(was, settled, now) {
            Some(true) => made += 1,
            Some(false) => refused += 1,
            None => {}
        });
        self.carried.sessions += made;
        self.carried.refused += refused;
    }

    /// True if the session was made, false if it was refused; nothing if it is not to be made.
    fn session(&self, was: &Session, settled: bool, now: Tick) -> Option<bool> {
        let Fate::Carried(created, binding) = *self.fates.get(&was.key.binding.get())? else { return None };
        let state = self.was.states.get(usize::from(was.state.0)).copied().flatten()?;
        if was.seen < created || is_settled(state, was.flags) != settled {
            return None;
        }
        self.plan.times.effective(state, now.since(was.seen))?;
        let owner = self.tables.bindings.read(binding).map(|(binding, _)| binding)?;
        let policy = &self.plan.service(owner.inside.service)?.kind.nat()?.policy;
        if PortSpace::of_protocol(owner.inside.protocol).is_some_and(|space| !policy.keeps_sessions(space)) {
            self.adopt_time(was, binding);
            return None;
        }
        let key = SessionKey { binding, ..was.key };
        if let Some(there) = self.tables.find_session(&key) {
            self.catch_up(was, state, &there, &owner, policy);
            return None;
        }
        let opener = match state {
            _ if was.flags & UNANSWERED != 0 => {
                Opener::Outside { budget: policy.unanswered, counts: policy.sessions_per_subscriber.is_some() }
            }
            PERMISSION | PERMISSION_TCP => Opener::Inside { limit: None },
            _ => Opener::Inside { limit: policy.sessions_per_subscriber },
        };
        if !self.tables.bindings.touch(binding, now) {
            return None;
        }
        match self.tables.open(&key, &owner, state, opener, self.plan.times.reuse_entry_after(), now) {
            Ok(session) => {
                session.refresh(was.seen);
                // If it goes on meanwhile, it was asked.
                let _ = was.flags & DOUBTED != 0 && session.doubt(state, state);
                Some(true)
            }
            Err(OpenError::Raced) => None,
            Err(OpenError::Limit | OpenError::Budget | OpenError::TableFull) => Some(false),
        }
    }

    /// A session decides nothing any more: its binding was last used when it was.
    fn adopt_time(&self, was: &Session, binding: BindingId) {
        if self.tables.bindings.touch(binding, was.seen) && was.flags & UNANSWERED == 0 {
            self.tables.bindings.see(binding, was.seen);
        }
    }

    /// An earlier pass made the session that is `there`. What happened since then was in the old
    /// tables, or in these.
    fn catch_up(&self, was: &Session, state: State, there: &SessionRef<'_>, owner: &Binding, policy: &Policy) {
        if was.seen < there.seen() {
            return;
        }
        if was.flags & UNANSWERED == 0
            && there.is_unanswered()
            && let Some(from) = there.state()
        {
            // Over its limit the subscriber has one session less that goes on.
            let _ = self.tables.answer(there, owner, (from, state), policy.sessions_per_subscriber);
        } else if let Some(from) = there.state() {
            let _ = match was.flags & DOUBTED {
                0 => from != state && there.transition(from, state),
                _ => there.doubt(from, state),
            };
        }
        if was.seen > there.seen() {
            there.refresh(was.seen);
        }
    }

    /// Ports and blocks that were closed shortly before stay kept back.
    fn kept_back(&self, now: Tick) {
        let is_recent = |at: &Tick| now.since(*at) < self.plan.times.rest();
        for service in &self.was.services {
            for place in 0..service.pool.addresses() {
                let Some(address) = service.pool.address(place) else { continue };
                for (slot, space, port) in service.pool.all_slots(address) {
                    if let Some(at) = self.former.slot_closed(slot).filter(is_recent)
                        && let Some(slot) = self.slot_now(address, space, port)
                    {
                        self.tables.outside.keep_back(slot, at);
                    }
                }
                let Some(size) = service.block_size else { continue };
                let Some((first, end)) = service.pool.blocks(address, size) else { continue };
                for place in 0..end {
                    let word = first.wrapping_add(u32::from(place));
                    if let Some(at) = self.former.block_closed(word).filter(is_recent)
                        && let Some(word) = self.block_now(address, size, place)
                    {
                        self.tables.blocks.keep_back(word, at);
                    }
                }
            }
        }
    }

    fn keep_port_back(&self, was: &Binding, now: Tick) {
        if let Some((space, outside)) = outside(was)
            && let Some(slot) = self.slot_now(outside.address, space, outside.port.0)
        {
            self.tables.outside.keep_back(slot, now);
        }
    }

    fn keep_block_back(&self, subscriber: &Subscriber, size: u32, place: u16, now: Tick) {
        if let Some(word) = self.block_now(subscriber.outside_ipv4.into(), size, place) {
            self.tables.blocks.keep_back(word, now);
        }
    }

    /// The slot of an outside endpoint under the new plan, whoever has it there.
    fn slot_now(&self, address: Ipv4Addr, space: PortSpace, port: u16) -> Option<u32> {
        self.plan.services.iter().find_map(|service| service.kind.pool()?.slot(address, space, port))
    }

    /// The word of a block of ports under the new plan, if it has the same blocks.
    fn block_now(&self, address: Ipv4Addr, size: u32, place: u16) -> Option<u32> {
        let mut pools = self.plan.services.iter().filter_map(|service| service.kind.pool());
        let pool = pools.find(|pool| pool.contains(address) && pool.allocation().block_size() == Some(size))?;
        let (first, end) = pool.blocks(address, size)?;
        (place < end).then(|| first.wrapping_add(u32::from(place)))
    }

    /// True if the subscriber has the same block under the new plan.
    fn has_block(&self, was: &Subscriber, size: u32, place: u16) -> bool {
        let Some(number) = self.services.get(usize::from(was.key.service)).copied().flatten() else { return false };
        let Some(nat) = self.plan.service(number).and_then(|service| service.kind.nat()) else { return false };
        let inside = InsideKey { ipv6: was.key.ipv6, ipv4: was.key.ipv4, service: number, ..InsideKey::default() };
        nat.pool.allocation().block_size() == Some(size)
            && self.tables.find_subscriber(&nat.policy.subscriber.key(&inside)).is_some_and(|(id, now)| {
                now.outside_ipv4 == was.outside_ipv4 && self.tables.subscribers.blocks(id).any(|held| held == place)
            })
    }
}

fn by_inside(leases: Vec<Lease>) -> HashMap<InsideKey, Vec<Lease>> {
    let mut found: HashMap<InsideKey, Vec<Lease>> = HashMap::new();
    for lease in leases {
        found.entry(lease.inside).or_default().push(lease);
    }
    found
}

/// True for sessions that both sides know of, and those without a state of the connection.
fn is_settled(state: State, flags: u8) -> bool {
    flags & UNANSWERED == 0 && [ESTABLISHED, INSIDE_FIN, OUTSIDE_FIN, UDP, ICMP].contains(&state)
}

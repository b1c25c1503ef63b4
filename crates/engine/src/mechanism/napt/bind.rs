//! New bindings: who gets which outside address and port, and who gets none.
//!
//! Read first: RFC 6888 REQ-2, REQ-4 and REQ-11, RFC 6146 section 3.5.1.1, RFC 7857 section 4, RFC
//! 7422 section 2.
//!
//! A subscriber is admitted with its first binding, on an address that has a port left for it, and
//! stays on that address (paired pooling). Nobody is admitted who gets no port, so a flood from
//! invented sources fills no table once the pool is used up. All that a flood of refused packets
//! costs is bounded: what was found to be used up is not searched again in the same tick.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use rand_core::Rng;
use tombolo_tables::binding::{Binding, BindingId, InsideKey};
use tombolo_tables::blocks::Holder;
use tombolo_tables::outside::Slot;
use tombolo_tables::subscriber::{Subscriber, SubscriberId, SubscriberKey};
use tombolo_tables::tables::{BindError, Candidate};
use tombolo_tables::tick::Tick;
use tombolo_wire::Port;

use super::exhausted::Exhausted;
use super::state::Napt;
use super::times::Among;
use crate::cluster::Granting;
use crate::mapping::allocation::{Allocation, Blocks, Deterministic};
use crate::mapping::pool::{Parity, PortSpace, WINDOWS, block_ports};
use crate::verdict::DropReason;

/// How many addresses are tried for a new subscriber before the pool counts as exhausted.
const ADDRESSES_TRIED: u32 = 16;

/// How often a subscriber is looked up again that went just now.
const ATTEMPTS: usize = 4;

/// Ports of an address that may be tried: at most [`WINDOWS`] windows.
type Windows = ([RangeInclusive<u16>; WINDOWS], usize);

impl<R: Rng> Napt<'_, R> {
    /// Makes a binding for `inside`, and admits its subscriber if need be.
    pub(crate) fn bind(&mut self, inside: &InsideKey, space: PortSpace) -> Result<(BindingId, Binding), DropReason> {
        let (id, subscriber) = self.admitted(inside, space)?;
        self.check_limits(id)?;
        let address = Ipv4Addr::from(subscriber.outside_ipv4);
        let binder = Binder { id, address, inside, space, flags: 0, parity: self.policy.parity };
        self.bind_for(&binder, &subscriber.key)
    }

    /// Makes a binding that its host has asked for; `None` if it can only have another one than it wants.
    pub(super) fn bind_asked(
        &mut self,
        (id, subscriber): (SubscriberId, &Subscriber),
        inside: &InsideKey,
        space: PortSpace,
        asked: &Asked,
    ) -> Result<Option<(BindingId, Binding)>, DropReason> {
        self.check_limits(id)?;
        let address = Ipv4Addr::from(subscriber.outside_ipv4);
        let binder = Binder { id, address, inside, space, flags: asked.flags, parity: asked.parity };
        if let Some(port) = asked.port {
            let bound = self.bind_exactly(&binder, &subscriber.key, port.0)?;
            if bound.is_some() || asked.is_strict {
                return Ok(bound);
            }
        }
        self.bind_for(&binder, &subscriber.key).map(Some)
    }

    /// The subscriber of `inside`, admitted if need be.
    pub(super) fn admitted(
        &mut self,
        inside: &InsideKey,
        space: PortSpace,
    ) -> Result<(SubscriberId, Subscriber), DropReason> {
        self.times.check_open()?;
        let key = self.policy.subscriber.key(inside);
        for _ in 0..ATTEMPTS {
            let (id, subscriber) = match self.tables.find_subscriber(&key) {
                Some(found) => found,
                None if self.granting == Granting::Nothing => return Err(DropReason::NotGranting),
                None => self.admit(key, inside, space)?,
            };
            // False if the sweep took it just now, and where the record is another's by then.
            if self.tables.subscribers.touch(id, self.now)
                && self.tables.subscribers.read(id).is_some_and(|(found, _)| found == subscriber)
            {
                return Ok((id, subscriber));
            }
        }
        Err(DropReason::RateLimited)
    }

    /// Whether the subscriber may have one more.
    fn check_limits(&self, id: SubscriberId) -> Result<(), DropReason> {
        let limit = self.policy.bindings_per_subscriber;
        if limit.is_some_and(|limit| self.tables.subscribers.bindings(id) >= u64::from(limit)) {
            return Err(DropReason::SubscriberLimit);
        }
        let rate = self.policy.binding_rate;
        if rate.is_some_and(|rate| !self.tables.subscribers.take_turn(id, rate, rate.saturating_mul(2), self.now)) {
            return Err(DropReason::RateLimited);
        }
        Ok(())
    }

    /// Whether a port of an address may be granted by itself.
    fn check_granting(&self) -> Result<(), DropReason> {
        if self.granting == Granting::Nothing { Err(DropReason::NotGranting) } else { Ok(()) }
    }

    fn bind_for(&mut self, binder: &Binder<'_>, key: &SubscriberKey) -> Result<(BindingId, Binding), DropReason> {
        let pool = self.pool;
        match pool.allocation() {
            // What has no ports is in nobody's block and nobody's share.
            _ if !binder.space.has_ports() => self.bind_anywhere(binder, 0..=u16::MAX),
            Allocation::Ports => self.bind_anywhere(binder, 0..=u16::MAX),
            Allocation::Blocks(blocks) => self.bind_in_blocks(binder, *blocks, 0..=u16::MAX),
            Allocation::Deterministic(shares) => self.bind_in_share(binder, shares, key),
        }
    }

    /// This port, if it is one that the subscriber may have, and free. No block is taken for it.
    fn bind_exactly(
        &mut self,
        binder: &Binder<'_>,
        key: &SubscriberKey,
        port: u16,
    ) -> Result<Option<(BindingId, Binding)>, DropReason> {
        let &Binder { id, address, space, .. } = binder;
        let is_its_own = match self.pool.allocation() {
            Allocation::Ports => self.granting != Granting::Nothing,
            Allocation::Blocks(blocks) => {
                let (windows, count) = self.windows(id, *blocks, &(0..=u16::MAX));
                windows[..count].iter().any(|window| window.contains(&port))
            }
            Allocation::Deterministic(shares) => {
                let own = shares.share(key).filter(|share| share.address == address);
                own.is_some_and(|own| (own.first..=own.last).contains(&port))
            }
        };
        if !is_its_own || !self.pool.hands_out(address, space, port) {
            return Ok(None);
        }
        let Some(slot) = self.pool.slot(address, space, port) else { return Ok(None) };
        let candidate = Candidate { slot, ipv4: address.octets(), port: port.to_be_bytes() };
        let among = if matches!(self.pool.allocation(), Allocation::Ports) { Among::Anybodys } else { Among::Own };
        let (template, reuse_after) = (binder.template(self.now), self.port_rest(space, among));
        match self.tables.bind_as_of(&template, [candidate], reuse_after, self.now, self.counts_as) {
            Ok(bound) => Ok(Some(bound)),
            Err(BindError::TableFull) => Err(DropReason::BindingTableFull),
            Err(BindError::NoneFree) => Ok(None),
        }
    }

    /// Any port of the address that lies in `window`.
    fn bind_anywhere(
        &mut self,
        binder: &Binder<'_>,
        window: RangeInclusive<u16>,
    ) -> Result<(BindingId, Binding), DropReason> {
        self.check_granting()?;
        let key = Exhausted::address(binder.address, binder.space);
        if self.exhausted.contains(key, self.now) {
            return Err(DropReason::PoolExhausted);
        }
        match self.bind_within(binder, &[window], Among::Anybodys)? {
            Some(bound) => Ok(bound),
            None => {
                self.exhausted.note(key, self.now);
                Err(DropReason::PoolExhausted)
            }
        }
    }

    /// A port of a block that the subscriber has, else of a further block. Only ports in `window`
    /// count.
    fn bind_in_blocks(
        &mut self,
        binder: &Binder<'_>,
        blocks: Blocks,
        window: RangeInclusive<u16>,
    ) -> Result<(BindingId, Binding), DropReason> {
        let key = Exhausted::subscriber(binder.id, binder.space);
        if self.exhausted.contains(key, self.now) {
            return Err(DropReason::SubscriberLimit);
        }
        let (mut windows, mut count) = self.windows(binder.id, blocks, &window);
        loop {
            if let Some(bound) = self.bind_within(binder, &windows[..count], Among::Own)? {
                return Ok(bound);
            }
            if self.tables.subscribers.blocks(binder.id).count() >= blocks.most() {
                self.exhausted.note(key, self.now);
                return Err(DropReason::SubscriberLimit);
            }
            self.check_granting()?;
            self.grow(binder, blocks, &window)?;
            (windows, count) = self.windows(binder.id, blocks, &window);
        }
    }

    /// A port of the subscriber's own share, else of the dynamic pool (RFC 7422 section 2).
    fn bind_in_share(
        &mut self,
        binder: &Binder<'_>,
        shares: &Deterministic,
        key: &SubscriberKey,
    ) -> Result<(BindingId, Binding), DropReason> {
        let own = shares.share(key).filter(|share| share.address == binder.address);
        // A plan that was reloaded with another mapping: what the subscriber has lives on, it gets
        // nothing new there.
        let own = own.ok_or(DropReason::PoolExhausted)?;
        let used_up = Exhausted::share(binder.id, binder.space);
        if !self.exhausted.contains(used_up, self.now) {
            if let Some(bound) = self.bind_within(binder, &[own.first..=own.last], Among::Own)? {
                return Ok(bound);
            }
            self.exhausted.note(used_up, self.now);
        }
        match (shares.dynamic_ports(), shares.blocks) {
            (None, _) => Err(DropReason::SubscriberLimit),
            (Some((first, last)), None) => self.bind_anywhere(binder, first..=last),
            (Some((first, last)), Some(blocks)) => self.bind_in_blocks(binder, blocks, first..=last),
        }
    }

    /// A free port of `windows`; nothing if there is none.
    fn bind_within(
        &mut self,
        binder: &Binder<'_>,
        windows: &[RangeInclusive<u16>],
        among: Among,
    ) -> Result<Option<(BindingId, Binding)>, DropReason> {
        let template = binder.template(self.now);
        let port = u16::from_be_bytes(binder.inside.port);
        let random = self.random.next_u64();
        let candidates = self.pool.candidates_in(binder.address, binder.space, port, binder.parity, random, windows);
        let candidates = candidates.take(self.exhausted.depth(self.now));
        let reuse_after = self.port_rest(binder.space, among);
        match self.tables.bind_as_of(&template, candidates, reuse_after, self.now, self.counts_as) {
            Ok(bound) => Ok(Some(bound)),
            Err(BindError::TableFull) => Err(DropReason::BindingTableFull),
            Err(BindError::NoneFree) => self.bind_kept_back(binder, &template, random, (windows, among)),
        }
    }

    /// A port of `windows` that is kept back, where more are than may be.
    fn bind_kept_back(
        &mut self,
        binder: &Binder<'_>,
        template: &Binding,
        random: u64,
        (windows, among): (&[RangeInclusive<u16>], Among),
    ) -> Result<Option<(BindingId, Binding)>, DropReason> {
        let Some(reuse_after) = self.reusable_age(binder.address, binder.space, windows, among) else {
            return Ok(None);
        };
        let port = u16::from_be_bytes(binder.inside.port);
        let candidates = self.pool.candidates_in(binder.address, binder.space, port, binder.parity, random, windows);
        match self.tables.bind_as_of(template, candidates, reuse_after, self.now, self.counts_as) {
            Ok(bound) => Ok(Some(bound)),
            Err(BindError::TableFull) => Err(DropReason::BindingTableFull),
            Err(BindError::NoneFree) => Ok(None),
        }
    }

    /// Ticks since the port of `windows` was closed that was closed first, if more are kept back
    /// than may be. All ports of the address are looked at, but only when none is free, and once a
    /// tick ([`Exhausted`]).
    fn reusable_age(
        &self,
        address: Ipv4Addr,
        space: PortSpace,
        windows: &[RangeInclusive<u16>],
        among: Among,
    ) -> Option<u32> {
        let most = self.times.most_kept_back(among).filter(|_| !self.exhausted.searches_are_short(self.now))?;
        let usual = self.port_rest(space, among);
        let (mut kept_back, mut oldest) = (0, None);
        for (port, slot) in self.pool.slots(address, space) {
            if let Slot::Closed(at) = self.tables.outside.read(slot)
                && self.now.since(at) < usual
            {
                kept_back += 1;
                if windows.iter().any(|window| window.contains(&port)) {
                    oldest = oldest.max(Some(self.now.since(at)));
                }
            }
        }
        oldest.filter(|_| kept_back > most)
    }

    /// The subscriber's blocks, as far as they lie in `window`.
    fn windows(&self, id: SubscriberId, blocks: Blocks, window: &RangeInclusive<u16>) -> Windows {
        let mut windows = [const { 0..=0 }; WINDOWS];
        let mut count = 0;
        for place in self.tables.subscribers.blocks(id) {
            windows[count] = intersection(&block_ports(blocks.size, place), window);
            count += 1;
        }
        (windows, count)
    }

    /// Gives the subscriber one more block of its address, at a place that cannot be guessed.
    ///
    /// # Errors
    /// [`DropReason::PoolExhausted`]; [`DropReason::NotGranting`] if there are free ones, and none that was offered.
    fn grow(&mut self, binder: &Binder<'_>, blocks: Blocks, window: &RangeInclusive<u16>) -> Result<(), DropReason> {
        let key = Exhausted::address(binder.address, binder.space);
        if self.exhausted.contains(key, self.now) {
            return Err(DropReason::PoolExhausted);
        }
        let (random, depth) = (self.random.next_u32(), self.exhausted.depth(self.now));
        let withheld = Cell::new(false);
        let at = (binder.address, binder.space);
        let grant = |(first, place)| match self.granting {
            Granting::ByOffers => self.tables.grant_offered_block(binder.id, first, place, blocks.most()),
            _ => self.tables.grant_block(binder.id, first, place, blocks.most(), self.times.rest(), self.now),
        };
        if self.free_blocks(at, blocks, window, (random, depth), &withheld).any(grant) {
            return Ok(());
        }
        Err(self.note_exhausted(key, withheld.get()))
    }

    /// An address has no block; or has some that are withheld until the backup knows that they are offered, which takes a few
    /// milliseconds and no tick. Why nothing is granted.
    fn note_exhausted(&mut self, key: u64, is_withheld: bool) -> DropReason {
        if is_withheld {
            self.exhausted.note_search(self.now);
            DropReason::NotGranting
        } else {
            self.exhausted.note(key, self.now);
            DropReason::PoolExhausted
        }
    }

    /// Blocks of an address that may be granted: where its blocks begin in the block index, and their places. Those that nobody has
    /// and that were not offered are `withheld` where only offers are granted.
    fn free_blocks<'w>(
        &'w self,
        (address, space): (Ipv4Addr, PortSpace),
        blocks: Blocks,
        window: &'w RangeInclusive<u16>,
        (random, depth): (u32, usize),
        withheld: &'w Cell<bool>,
    ) -> impl Iterator<Item = (u32, u16)> + 'w {
        let (first, end) = self.pool.blocks(address, blocks.size).unwrap_or((0, 0));
        let start = u16::try_from(random % u32::from(end.max(1))).unwrap_or(0);
        let places = (start..end).chain(0..start);
        let may_be_granted = move |place: u16| {
            let word = first.wrapping_add(u32::from(place));
            let is_free = || self.tables.blocks.is_available(word, self.now, self.times.rest());
            if self.granting != Granting::ByOffers {
                return is_free();
            }
            let is_offered = self.tables.blocks.read(word) == Holder::Offered { is_acknowledged: true };
            withheld.set(withheld.get() || !is_offered && is_free());
            is_offered
        };
        let is_meant = move |place: &u16| {
            let ports = block_ports(blocks.size, *place);
            !intersection(&ports, window).is_empty()
                && self.pool.has_block(address, space, blocks.size, *place)
                && may_be_granted(*place)
        };
        places.take(depth).filter(is_meant).map(move |place| (first, place))
    }

    fn admit(
        &mut self,
        key: SubscriberKey,
        inside: &InsideKey,
        space: PortSpace,
    ) -> Result<(SubscriberId, Subscriber), DropReason> {
        if !self.admissions.allow(self.policy.subscriber_rate, self.nanos) {
            return Err(DropReason::RateLimited);
        }
        let address = self.address_for(&key, inside, space)?;
        let grant = Subscriber { key, outside_ipv4: address.octets() };
        self.tables.admit(&grant, self.now).ok_or(DropReason::SubscriberTableFull)
    }

    /// An address that a new subscriber may have, and that has room for it.
    fn address_for(
        &mut self,
        key: &SubscriberKey,
        inside: &InsideKey,
        space: PortSpace,
    ) -> Result<Ipv4Addr, DropReason> {
        let pool = self.pool;
        if let Allocation::Deterministic(shares) = pool.allocation() {
            let share = shares.share(key).ok_or(DropReason::Denied)?;
            return if pool.contains(share.address) { Ok(share.address) } else { Err(DropReason::PoolExhausted) };
        }
        let addresses = pool.addresses_for(key);
        if addresses == 0 && !pool.assigned().is_empty() {
            return Err(DropReason::Denied);
        }
        let (first, most) = (self.random.next_u32(), addresses.min(ADDRESSES_TRIED));
        let withheld = Cell::new(false);
        for tried in 0..most {
            let place = first.wrapping_add(tried) % addresses;
            let Some(address) = pool.address_for(key, place) else { continue };
            let exhausted = Exhausted::address(address, space);
            if self.exhausted.contains(exhausted, self.now) {
                continue;
            }
            let before = withheld.replace(false);
            if self.has_room(address, inside, space, most, &withheld) {
                return Ok(address);
            }
            // What so few ports say of an address is nothing to remember.
            if !self.exhausted.searches_are_short(self.now) {
                self.note_exhausted(exhausted, withheld.get());
            }
            withheld.set(withheld.get() || before);
        }
        Err(if withheld.get() { DropReason::NotGranting } else { DropReason::PoolExhausted })
    }

    /// Whether one of so many addresses that are tried has a port; `withheld` as in [`free_blocks`](Self::free_blocks).
    fn has_room(
        &mut self,
        address: Ipv4Addr,
        inside: &InsideKey,
        space: PortSpace,
        tried: u32,
        withheld: &Cell<bool>,
    ) -> bool {
        let (random, depth) = (self.random.next_u64(), self.exhausted.depth_of_each(tried, self.now));
        if let Allocation::Blocks(blocks) = self.pool.allocation()
            && space.has_ports()
        {
            let random = u32::try_from(random >> 32).unwrap_or(0);
            let at = (address, space);
            return self.free_blocks(at, *blocks, &(0..=u16::MAX), (random, depth), withheld).next().is_some();
        }
        let port = u16::from_be_bytes(inside.port);
        let reuse_after = self.port_rest(space, Among::Anybodys);
        let candidates = self.pool.candidates(address, space, port, self.policy.parity, random);
        let mut candidates = candidates.take(depth);
        candidates.any(|candidate| self.tables.outside.is_available(candidate.slot, self.now, reuse_after))
            || self.reusable_age(address, space, &[0..=u16::MAX], Among::Anybodys).is_some()
    }

    /// Ticks for which a closed port is kept back.
    fn port_rest(&self, space: PortSpace, among: Among) -> u32 {
        self.times.port_rest(among, self.policy.keeps_back(space))
    }
}

/// Whose binding is to be made, and where.
struct Binder<'a> {
    id: SubscriberId,
    address: Ipv4Addr,
    inside: &'a InsideKey,
    space: PortSpace,
    flags: u16,
    parity: Parity,
}

impl Binder<'_> {
    fn template(&self, now: Tick) -> Binding {
        let Self { id, inside, flags, .. } = *self;
        Binding { inside: *inside, subscriber: id.get(), flags, created: now, ..Binding::default() }
    }
}

/// What a host asks for.
pub(super) struct Asked {
    /// This outside port.
    pub(super) port: Option<Port>,
    /// And no other.
    pub(super) is_strict: bool,
    /// Flags of the binding.
    pub(super) flags: u16,
    /// Whether the port is to be odd or even as the one inside.
    pub(super) parity: Parity,
}

fn intersection(a: &RangeInclusive<u16>, b: &RangeInclusive<u16>) -> RangeInclusive<u16> {
    *a.start().max(b.start())..=*a.end().min(b.end())
}

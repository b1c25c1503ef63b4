//! What the tables have that concerns a packet, copied into tables of the rehearsal's own.
//!
//! It concerns a packet if its addresses are in there: bindings of a host inside, or with an outside
//! endpoint, that it names; the subscribers that these belong to, with all that counts towards their
//! limits. Which header they stand in does not matter: more is copied than is looked at, and so no service
//! has to be known here.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

use tombolo_engine::mapping::allocation::Allocation;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::mechanism::napt::Nat;
use tombolo_engine::{Now, Plan};
use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, BindingId};
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_tables::outside::Slot;
use tombolo_tables::session::{Session, SessionKey};
use tombolo_tables::subscriber::{Subscriber, SubscriberId};
use tombolo_tables::tables::{Candidate, Capacity, Opener};

use crate::table_rows::{BindingRow, Endpoints, SessionRow};

/// Bytes of a packet that addresses and ports are looked for in: headers, and a header within.
const HEADERS: usize = 128;
/// Bindings that the packet may be of, at most, whose sessions are copied.
const MOST: usize = 64;
/// Room for what the packet makes.
const MORE: u32 = 64;

/// Tables with what concerns a packet.
pub(super) struct Copy {
    pub(super) tables: Tables,
    /// What that is, in words.
    pub(super) known: Vec<String>,
}

/// Words of a packet's headers, wherever they stand.
struct Words {
    addresses: HashSet<[u8; 16]>,
    /// By number of the service: what of them tells its subscribers apart.
    networks: HashMap<u8, HashSet<[u8; 16]>>,
    ipv4: HashSet<[u8; 4]>,
    ports: HashSet<[u8; 2]>,
}

impl Words {
    fn of(packet: &[u8], plan: &Plan) -> Self {
        let headers = &packet[..packet.len().min(HEADERS)];
        fn each<const N: usize>(headers: &[u8]) -> HashSet<[u8; N]> {
            headers.windows(N).filter_map(|window| window.try_into().ok()).collect()
        }
        let mut ports: HashSet<[u8; 2]> = each(headers);
        // Sessions of ICMP have no remote port.
        ports.insert([0; 2]);
        let addresses: HashSet<[u8; 16]> = each(headers);
        let networks = plan.numbered().filter_map(|(number, service)| {
            let length = service.kind.nat()?.policy.subscriber.prefix_length();
            let hidden = u128::MAX.checked_shr(length.into()).unwrap_or(0);
            let network = |address: &[u8; 16]| (u128::from_be_bytes(*address) & !hidden).to_be_bytes();
            Some((number, addresses.iter().map(network).collect()))
        });
        let networks = networks.collect();
        Self { addresses, networks, ipv4: each(headers), ports }
    }

    fn has_host(&self, ipv6: [u8; 16], ipv4: [u8; 4]) -> bool {
        match (ipv6 == [0; 16], ipv4 == [0; 4]) {
            (true, _) => self.ipv4.contains(&ipv4),
            (false, true) => self.addresses.contains(&ipv6),
            (false, false) => self.addresses.contains(&ipv6) && self.ipv4.contains(&ipv4),
        }
    }

    fn has_subscriber(&self, subscriber: &Subscriber) -> bool {
        let key = &subscriber.key;
        match self.networks.get(&key.service) {
            Some(networks) if key.ipv6 != [0; 16] => networks.contains(&key.ipv6),
            _ => self.ipv4.contains(&key.ipv4),
        }
    }

    fn has_binding(&self, binding: &Binding) -> bool {
        self.has_host(binding.inside.ipv6, binding.inside.ipv4)
            || self.ipv4.contains(&binding.outside_ipv4) && self.ports.contains(&binding.outside_port)
    }

    /// It may be the packet's own.
    fn has_ends_of(&self, binding: &Binding) -> bool {
        self.ports.contains(&binding.inside.port) && self.has_host(binding.inside.ipv6, binding.inside.ipv4)
            || self.ports.contains(&binding.outside_port) && self.ipv4.contains(&binding.outside_ipv4)
    }
}

/// What is to be copied.
struct Concerned {
    subscribers: HashMap<SubscriberId, Subscriber>,
    bindings: Vec<(BindingId, Binding)>,
}

impl Concerned {
    fn of(tables: &Tables, words: &Words) -> Self {
        let each = || tables.bindings.iter().filter_map(|id| Some((id, tables.bindings.read(id)?.0)));
        let read = |id| Some((id, tables.subscribers.read(id)?.0));
        let owners = each().filter(|(_, binding)| words.has_binding(binding));
        let owners = owners.filter_map(|(_, binding)| read(SubscriberId::new(binding.subscriber)?));
        let named = tables.subscribers.iter().filter_map(read).filter(|(_, found)| words.has_subscriber(found));
        let subscribers: HashMap<_, _> = owners.chain(named).collect();
        let is_concerned = |binding: &Binding| {
            words.has_binding(binding)
                || SubscriberId::new(binding.subscriber).is_some_and(|id| subscribers.contains_key(&id))
        };
        let bindings = each().filter(|(_, binding)| is_concerned(binding)).collect();
        Self { subscribers, bindings }
    }
}

impl Copy {
    pub(super) fn of(from: &Tables, plan: &Plan, packet: &[u8], now: Now) -> Result<Self, String> {
        let words = Words::of(packet, plan);
        let concerned = Concerned::of(from, &words);
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).saturating_add(MORE);
        let capacity = Capacity {
            subscribers: count(concerned.subscribers.len()),
            bindings: count(concerned.bindings.len()).saturating_mul(2),
            sessions: u64::from(count(MOST * MOST)),
            outside_slots: u32::try_from(from.outside.len()).unwrap_or(u32::MAX),
            leases: 0,
        };
        let tables = Tables::new(&mut Heap, capacity, HashKey::new([1, 2, 3, 4]));
        let tables = tables.map_err(|error| format!("no memory for a rehearsal: {error}"))?;
        let mut copying = Copying { from, plan, now, to: tables, known: Vec::new(), subscribers: HashMap::new() };
        copying.subscribers(&concerned);
        copying.bindings(&concerned, &words);
        if copying.known.is_empty() {
            copying.known.push("the tables have nothing about it".to_owned());
        }
        Ok(Self { tables: copying.to, known: copying.known })
    }
}

struct Copying<'t> {
    from: &'t Tables,
    plan: &'t Plan,
    now: Now,
    to: Tables,
    known: Vec<String>,
    /// From the numbers there to those here.
    subscribers: HashMap<SubscriberId, SubscriberId>,
}

impl Copying<'_> {
    fn nat(&self, service: u8) -> Option<&Nat> {
        self.plan.service(service)?.kind.nat()
    }

    fn subscribers(&mut self, concerned: &Concerned) {
        for (&was, subscriber) in &concerned.subscribers {
            let Some((id, _)) = self.to.admit(subscriber, self.now.tick()) else { continue };
            self.subscribers.insert(was, id);
            let Some(nat) = self.nat(subscriber.key.service) else { continue };
            let address = Ipv4Addr::from(subscriber.outside_ipv4);
            let blocks = match nat.pool.allocation() {
                Allocation::Blocks(blocks) => Some(*blocks),
                Allocation::Deterministic(shares) => shares.blocks,
                Allocation::Ports => None,
            };
            if let Some(blocks) = blocks
                && let Some((first, _)) = nat.pool.blocks(address, blocks.size)
            {
                for place in self.from.subscribers.blocks(was) {
                    self.to.grant_block(id, first, place, blocks.most(), 0, self.now.tick());
                }
            }
            if let Some(limit) = nat.policy.sessions_per_subscriber {
                let open = self.from.subscribers.sessions(was).min(limit.into());
                for _ in 0..open {
                    let _ = self.to.subscribers.count_session(id, limit);
                }
            }
            self.ports_of_others(nat, address, concerned);
        }
    }

    /// What others have of an address, or had until just now, is not free here either.
    fn ports_of_others(&self, nat: &Nat, address: Ipv4Addr, concerned: &Concerned) {
        let own: HashSet<u32> = concerned.bindings.iter().map(|(_, binding)| binding.outside_slot).collect();
        for space in PortSpace::WITH_SLOTS {
            for (_, slot) in nat.pool.slots(address, space).filter(|(_, slot)| !own.contains(slot)) {
                match self.from.outside.read(slot) {
                    Slot::Free => {}
                    Slot::Closed(at) => self.to.outside.keep_back(slot, at),
                    Slot::Taken(_) => self.to.outside.keep_back(slot, self.now.tick()),
                }
            }
        }
    }

    fn bindings(&mut self, concerned: &Concerned, words: &Words) {
        let mut own = 0;
        for (was, binding) in &concerned.bindings {
            let Some((_, touched)) = self.from.bindings.read(*was) else { continue };
            let owner = SubscriberId::new(binding.subscriber).and_then(|id| self.subscribers.get(&id));
            let template = Binding { subscriber: owner.map_or(0, |id| id.get()), ..*binding };
            let Binding { outside_slot: slot, outside_ipv4: ipv4, outside_port: port, .. } = *binding;
            let made = self.to.bind_again(&template, [Candidate { slot, ipv4, port }], 0, touched);
            let Ok((id, made)) = made else { continue };
            self.to.bindings.see(id, self.from.bindings.seen(*was));
            if words.has_ends_of(binding) && own < MOST {
                own += 1;
                self.tell(binding, touched);
                self.sessions(*was, (id, &made), words);
            }
        }
    }

    fn tell(&mut self, binding: &Binding, touched: tombolo_tables::tick::Tick) {
        let row = BindingRow::of(self.plan, binding, touched, self.now);
        let Endpoints { service, protocol, inside, inside_port, outside, outside_port, .. } = row.endpoints;
        self.known.push(format!(
            "{service}: {protocol} {inside} port {inside_port} is bound to {outside} port {outside_port}, {} s old, idle for {} s ({})",
            row.age, row.idle, row.origin
        ));
    }

    /// The sessions of a binding with whom the packet names.
    fn sessions(&mut self, was: BindingId, (id, binding): (BindingId, &Binding), words: &Words) {
        let keys = words.ipv4.iter().flat_map(|&remote_ipv4| {
            words.ports.iter().map(move |&remote_port| SessionKey { binding: was, remote_ipv4, remote_port })
        });
        for key in keys {
            let Some(session) = self.from.find_session(&key) else { continue };
            let Some(state) = session.state() else { continue };
            let seen = session.seen();
            let idle = self.now.tick().since(seen);
            if self.plan.times.effective(state, idle).is_none() {
                continue;
            }
            let found = Session { key, state, seen, flags: 0 };
            if let Some(row) = SessionRow::of(self.plan, binding, &found, self.now) {
                let SessionRow { remote, remote_port, state, idle, expires, .. } = row;
                self.known.push(format!(
                    "its session with {remote} port {remote_port}: {state}, idle for {idle} s, {expires} s left"
                ));
            }
            let Some(policy) = self.nat(binding.inside.service).map(|nat| &nat.policy) else { continue };
            let opener = if session.is_unanswered() {
                Opener::Outside { budget: policy.unanswered, counts: policy.sessions_per_subscriber.is_some() }
            } else {
                // What the subscriber has open was counted already.
                Opener::Inside { limit: None }
            };
            let key = SessionKey { binding: id, ..key };
            let lifetimes = self.plan.times.reuse_entry_after();
            if let Ok(copied) = self.to.open(&key, binding, state, opener, lifetimes, self.now.tick()) {
                copied.refresh(seen);
            }
        }
    }
}

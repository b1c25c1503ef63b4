//! Tables in BPF arrays, with the programs and an engine on them.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use tombolo_engine::mapping::allocation::Allocation;
use tombolo_engine::mapping::pool::{Parity, PortSpace, block_ports};
use tombolo_engine::mechanism::napt::{Among, Nat};
use tombolo_engine::mechanism::session_state::{PERMISSION, PERMISSION_TCP};
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::{DropReason, Engine, Now, Plan, Verdict};
use tombolo_fastpath::trial::Trials;
use tombolo_fastpath::{PinnedMemory, Settings, Slices};
use tombolo_tables::binding::{Binding, BindingId, BindingRecord};
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::{Backing, MemoryError, MemorySource};
use tombolo_tables::shortcut;
use tombolo_tables::subscriber::SubscriberId;
use tombolo_tables::tables::Removal;
use tombolo_tables::tick::Tick;
use tombolo_tables::{Tables, audit};

use crate::packets::Numbers;
use crate::{cluster, softwires};

/// Where in a binding's record is when its first session was seen.
const SEEN: usize = std::mem::offset_of!(BindingRecord, seen);

/// The bytes of all tables.
pub(crate) type Copy = Vec<Vec<u8>>;

pub(crate) struct World {
    pub(crate) trials: Trials,
    pub(crate) tables: Arc<Tables>,
    pub(crate) plan: Plan,
    /// In a cluster.
    pub(crate) slices: Option<Slices>,
    engine: Engine,
    spans: Vec<(&'static str, Arc<dyn Backing>, usize)>,
    directory: PathBuf,
    empty: Copy,
    _memory: PinnedMemory,
}

/// Hands out spans and remembers them.
struct Recorder<'m> {
    memory: &'m mut PinnedMemory,
    spans: Vec<(&'static str, Arc<dyn Backing>, usize)>,
}

impl MemorySource for Recorder<'_> {
    fn take(&mut self, name: &'static str, bytes: usize) -> Result<Arc<dyn Backing>, MemoryError> {
        let span = self.memory.take(name, bytes)?;
        self.spans.push((name, Arc::clone(&span), bytes));
        Ok(span)
    }
}

impl World {
    pub(crate) fn new(plan: &Plan, name: &str) -> Self {
        Self::with_programs_of(plan, plan, name)
    }

    /// A world whose engine goes by `plan`, and whose programs by `theirs`.
    pub(crate) fn with_programs_of(plan: &Plan, theirs: &Plan, name: &str) -> Self {
        let directory = PathBuf::from(format!("/sys/fs/bpf/tombolo-test-{name}"));
        let mut memory = PinnedMemory::open(&directory, "test").unwrap();
        let mut recorder = Recorder { memory: &mut memory, spans: Vec::new() };
        let tables = Tables::new(&mut recorder, plan.capacity, HashKey::new([5, 6, 7, 8])).unwrap();
        // Programs that note changes, and programs from which that is cut out.
        let tables = if name.len().is_multiple_of(2) { tables.noting_changes() } else { tables };
        let spans = recorder.spans;
        let tables = Arc::new(tables);
        let now = Now(u64::from(tick()) << 30);
        assert_eq!(tombolo_engine::static_bindings::reconcile(&tables, plan, now), Vec::new());
        let slices = plan.cluster.as_deref().map(|cluster| Slices::open(&memory, cluster, Now::default()).unwrap());
        let settings = if slices.is_some() { cluster::settings() } else { Settings::default() };
        let trials = Trials::new(&memory, &tables, theirs, settings).unwrap();
        let engine = Engine::new(Arc::clone(&tables), [7; 32], 0, 1);
        let mut world = Self {
            trials,
            tables,
            plan: plan.clone(),
            slices,
            engine,
            spans,
            directory,
            empty: Vec::new(),
            _memory: memory,
        };
        world.empty = world.copy();
        world
    }

    pub(crate) fn copy(&self) -> Copy {
        let copy = |(_, span, bytes): &(&str, Arc<dyn Backing>, usize)| {
            // SAFETY: the span is that long, and no program and no other thread runs now.
            unsafe { std::slice::from_raw_parts(span.base().as_ptr(), *bytes) }.to_vec()
        };
        self.spans.iter().map(copy).collect()
    }

    /// A program has made a binding, and has noted that.
    pub(crate) fn check_noted(&self, before: &Copy, context: &dyn Fn() -> String) {
        if !self.tables.changed_bindings.are_noted() {
            return;
        }
        let mut noted = Vec::new();
        self.tables.changed_bindings.take(&mut |number| noted.push(number));
        let place = self.spans.iter().position(|(name, ..)| *name == "bindings-used").unwrap();
        let was_used = |number: u32| before[place][number as usize / 8] >> (number % 8) & 1 != 0;
        let mut made = self.tables.bindings.iter().map(BindingId::get).filter(|number| !was_used(*number));
        assert!(made.all(|number| noted.contains(&number)), "{}: noted {noted:?}", context());
    }

    pub(crate) fn put_back(&self, copy: &Copy) {
        for ((_, span, bytes), copy) in self.spans.iter().zip(copy) {
            // SAFETY: as above; the tables make no references into the span that live across calls.
            unsafe { std::ptr::copy_nonoverlapping(copy.as_ptr(), span.base().as_ptr(), *bytes) };
        }
    }

    /// What the engine makes of an IP packet that arrives, and the kernel before and after it, where that stands there
    /// ([`cluster`]); without the kernel's last hop, which TC leaves to it. Nothing if the kernel lets it not come so far.
    pub(crate) fn engine_way(&mut self, packet: &[u8], tick: u32) -> Option<(Verdict, Vec<Vec<u8>>)> {
        if self.slices.is_none() {
            return Some(self.engine(packet, tick));
        }
        Some(self.engine(&cluster::forwarded(packet)?, tick))
    }

    /// What the engine makes of an IP packet.
    pub(crate) fn engine(&mut self, packet: &[u8], tick: u32) -> (Verdict, Vec<Vec<u8>>) {
        let result = self.run_engine(packet, tick);
        if let Verdict::Drop(reason) | Verdict::Reply(reason) = result.0
            && matches!(reason, DropReason::PoolExhausted | DropReason::SubscriberLimit | DropReason::NotGranting)
        {
            // It remembers for a tick that an address, or a subscriber, had no port left; the tables
            // were put back since.
            self.engine = Engine::new(Arc::clone(&self.tables), [7; 32], 0, 1);
            return self.run_engine(packet, tick);
        }
        result
    }

    fn run_engine(&mut self, packet: &[u8], tick: u32) -> (Verdict, Vec<Vec<u8>>) {
        let mut buffer = vec![0; HEADROOM + packet.len() + 64];
        buffer[HEADROOM..HEADROOM + packet.len()].copy_from_slice(packet);
        let mut packet = Packet::new(&mut buffer, HEADROOM, packet.len(), Offload::default()).unwrap();
        let mut sent = Vec::new();
        let mut outbox = |packet: &mut Packet<'_>| sent.push(packet.bytes().to_vec());
        let now = Now(u64::from(tick) << 30);
        let verdict = self.engine.process(&self.plan, &mut packet, now, &mut outbox);
        (verdict, sent)
    }

    /// Now and then: sessions get older, the tables are emptied, a router says how small a path is.
    pub(crate) fn disturb(&mut self, numbers: &mut Numbers) {
        cluster::disturb(self, numbers);
        if numbers.one_in(700) {
            self.put_back(&self.empty);
            self.end_shortcuts();
        }
        if self.has_shortcuts() && numbers.one_in(100) {
            let ids: Vec<BindingId> = self.tables.bindings.iter().collect();
            ids.get(numbers.below(ids.len().max(1))).iter().for_each(|id| self.remove(**id));
        }
        if numbers.one_in(20) {
            let far_end = if numbers.one_in(2) { softwires::LOCAL } else { softwires::REMOTE };
            let mtu = 1280 + u32::try_from(numbers.below(260)).unwrap();
            self.tables.paths.learn(far_end.octets(), mtu, Tick(tick()));
        }
        if numbers.one_in(8) {
            let age = u32::try_from(numbers.below(90)).unwrap();
            self.age_a_session(numbers, age);
            self.age_a_binding(numbers, age);
        }
    }

    /// Whether the programs have shortcuts, unless changes are noted.
    fn has_shortcuts(&self) -> bool {
        shortcut::lead_of(self.plan.times.of_binding(17)) > 0
    }

    /// No outside endpoint has an owner, until the tables are put back.
    pub(crate) fn forget_slots(&self) {
        let (base, bytes) = self.table("outside-index");
        // SAFETY: the span is that long; nobody else runs.
        unsafe { std::ptr::write_bytes(base, 0, bytes) };
    }

    /// What the programs have seen of bindings is over, as these were put back.
    pub(crate) fn end_shortcuts(&self) {
        let (base, _) = self.table("bindings");
        // SAFETY: the first word of a record that is nobody's; nobody else runs.
        unsafe { base.cast::<u64>().write(tick().into()) };
    }

    /// A binding goes, whoever uses it.
    pub(crate) fn remove(&self, id: BindingId) {
        let mut removal = Removal::new(&self.tables);
        removal.unbind_if(id, |_| true, Tick(tick())).unwrap();
        removal.finish();
    }

    /// Where a table lies, and how many bytes of it there are.
    fn table(&self, wanted: &str) -> (*mut u8, usize) {
        let (_, span, bytes) = self.spans.iter().find(|(name, ..)| *name == wanted).unwrap();
        (span.base().as_ptr(), *bytes)
    }

    /// Its first session was seen, or the inside in it, so many ticks ago.
    fn age_a_binding(&mut self, numbers: &mut Numbers, age: u32) {
        let (base, bytes) = self.table("bindings");
        let record = numbers.below(bytes / 64);
        // SAFETY: inside the span; nobody else runs.
        let seen = unsafe { base.add(record * 64 + SEEN) }.cast::<u32>();
        // SAFETY: records are aligned to 64 bytes, and the field to 4.
        unsafe {
            if *seen != 0 {
                *seen = tick().saturating_sub(age).max(1);
            }
        }
    }

    fn age_a_session(&mut self, numbers: &mut Numbers, age: u32) {
        let (base, bytes) = self.table("sessions");
        let entry = numbers.below(bytes / 16);
        // SAFETY: inside the span; nobody else runs.
        let seen = unsafe { base.add(entry * 16 + 12) }.cast::<u32>();
        // SAFETY: entries are aligned to 16 bytes.
        unsafe {
            if *seen != 0 {
                *seen = tick().saturating_sub(age).max(1);
            }
        }
    }

    pub(crate) fn check(&self) {
        assert_eq!(audit::check(&self.tables), Vec::<String>::new());
    }

    fn span<'c>(&self, copy: &'c Copy, wanted: &str) -> &'c [u8] {
        let place = self.spans.iter().position(|(name, ..)| *name == wanted).unwrap();
        &copy[place]
    }

    /// The bitmap of bindings in use.
    pub(crate) fn bindings_in<'c>(&self, copy: &'c Copy) -> &'c [u8] {
        self.span(copy, "bindings-used")
    }

    /// True if two copies say the same.
    pub(crate) fn same(&self, one: &Copy, other: &Copy) -> bool {
        self.meaning(one, true) == self.meaning(other, true)
    }

    /// Where two copies differ: the array, the place in bytes, and what stands there in each.
    pub(crate) fn differences(&self, one: &Copy, other: &Copy) -> Vec<String> {
        let (one, other) = (self.meaning(one, true), self.meaning(other, true));
        let both = self.spans.iter().zip(one.iter().zip(&other));
        let lines = both.flat_map(|((name, ..), (one, other))| {
            let lines = one.chunks(16).zip(other.chunks(16)).enumerate().filter(|(_, (one, other))| one != other);
            lines.map(move |(at, (one, other))| format!("{name} {}: {one:02x?}, {other:02x?}", at * 16))
        });
        lines.collect()
    }

    /// True if nothing happened between two copies but that records were touched.
    pub(crate) fn untouched(&self, one: &Copy, other: &Copy) -> bool {
        self.meaning(one, false) == self.meaning(other, false)
    }

    /// True if two copies have the same sessions.
    pub(crate) fn same_sessions(&self, one: &Copy, other: &Copy) -> bool {
        let (one, other) = (self.meaning(one, false), self.meaning(other, false));
        let sessions = |(name, ..): &(&str, _, _)| *name == "sessions";
        self.spans.iter().position(sessions).is_some_and(|at| one[at] == other[at])
    }

    /// Records without what means nothing: what stands in free ones, and how often they were used.
    fn meaning(&self, copy: &Copy, with_touched: bool) -> Copy {
        let mut copy = copy.clone();
        for ((name, ..), bytes) in self.spans.iter().zip(&mut copy) {
            if *name == "sessions" && !with_touched {
                // A line is marked when it was found full, whatever came of it.
                bytes.chunks_mut(64).for_each(|line| line[48] &= !0x40);
            }
            if matches!(*name, "sessions" | "sessions-overflow") && !with_touched {
                // A permission is renewed before the session is made that it is for.
                let is_permission = |entry: &&mut [u8]| [PERMISSION.0, PERMISSION_TCP.0].contains(&(entry[1] & 15));
                bytes.chunks_mut(16).filter(is_permission).for_each(|entry| entry[12..].fill(0));
            }
            if *name == "sessions" {
                let is_free = |entry: &&mut [u8]| entry[0] & !0x40 == 0 && entry[1..8].iter().all(|byte| *byte == 0);
                bytes.chunks_mut(16).filter(is_free).for_each(|entry| entry[8..].fill(0));
            }
            if !matches!(*name, "bindings" | "subscribers") {
                continue;
            }
            for record in bytes.chunks_mut(64) {
                if record[32..34] == [0, 0] {
                    record.fill(0);
                }
                record[34..36].fill(0);
                // By a shortcut the outside leaves nothing: how far ahead the binding is kept is another matter.
                let touched = u32::from_ne_bytes(record[36..40].try_into().unwrap());
                if *name == "bindings" && record[28] == 17 && self.has_shortcuts() && touched + 1 >= tick() {
                    record[36..40].fill(0xff);
                }
                // Nor does the engine touch a subscriber for whom a shortcut is made.
                let may_be_known = *name == "subscribers" && self.has_shortcuts();
                if !with_touched || may_be_known {
                    record[36..40].fill(0);
                }
            }
        }
        copy
    }

    /// The binding that only `after` has equals the one that only `by_engine` has, but for its
    /// outside port.
    pub(crate) fn check_new_binding(
        &self,
        before: &Copy,
        after: &Copy,
        by_engine: &Copy,
        context: &dyn Fn() -> String,
    ) {
        let read = |copy: &Copy| {
            self.put_back(copy);
            let new: Vec<_> =
                self.tables.bindings.iter().filter(|id| !is_used(self.bindings_in(before), *id)).collect();
            assert_eq!(new.len(), 1, "{}: one new binding", context());
            let (binding, _) = self.tables.bindings.read(new[0]).unwrap();
            let sessions = self.tables.each_session().filter(|session| session.key.binding == new[0]).count();
            (binding, sessions)
        };
        let (theirs, their_sessions) = read(by_engine);
        let (ours, our_sessions) = read(after);
        let nat = self.plan.service(ours.inside.service).and_then(|service| service.kind.nat()).unwrap();
        assert!(self.may_have_its_port(nat, &ours), "{}: {ours:?}", context());
        assert_eq!((ours.inside, ours.outside_ipv4, ours.flags), (theirs.inside, theirs.outside_ipv4, theirs.flags));
        assert_eq!((ours.subscriber, ours.created, our_sessions), (theirs.subscriber, theirs.created, their_sessions));
        let (port, theirs) = (u16::from_be_bytes(ours.outside_port), u16::from_be_bytes(theirs.outside_port));
        assert!(ours.inside.protocol == 1 || (port < 1024) == (theirs < 1024), "{}: {theirs}", context());
        let inside = u16::from_be_bytes(ours.inside.port);
        let keeps_parity = nat.policy.parity == Parity::Preserve;
        if keeps_parity && ours.inside.protocol == 17 && (theirs ^ inside) & 1 == 0 {
            assert_eq!((port ^ inside) & 1, 0, "{}: the engine kept the parity", context());
        }
        self.put_back(before);
        assert!(self.had_rested(nat, &ours), "{}: its port was another's just now: {ours:?}", context());
        self.put_back(after);
    }

    /// Whether the port of a new binding was free, or kept back for as long as it must be.
    fn had_rested(&self, nat: &Nat, binding: &Binding) -> bool {
        let space = PortSpace::of_protocol(binding.inside.protocol).unwrap();
        let among = if matches!(nat.pool.allocation(), Allocation::Ports) { Among::Anybodys } else { Among::Own };
        let rest = self.plan.times.port_rest(among, nat.policy.keeps_back(space));
        self.tables.outside.is_available(binding.outside_slot, binding.created, rest)
    }

    /// Whether the port of a binding that a program has made is one of those that its subscriber was granted.
    fn may_have_its_port(&self, nat: &Nat, binding: &Binding) -> bool {
        let (address, port) = (Ipv4Addr::from(binding.outside_ipv4), u16::from_be_bytes(binding.outside_port));
        let space = PortSpace::of_protocol(binding.inside.protocol).unwrap();
        let is_granted = match nat.pool.allocation() {
            Allocation::Ports => true,
            Allocation::Blocks(blocks) => {
                let mut held = self.tables.subscribers.blocks(SubscriberId::new(binding.subscriber).unwrap());
                held.any(|place| block_ports(blocks.size, place).contains(&port))
            }
            Allocation::Deterministic(shares) => {
                let own = shares.share(&nat.policy.subscriber.key(&binding.inside)).unwrap();
                own.address == address && (own.first..=own.last).contains(&port)
            }
        };
        is_granted && nat.pool.hands_out(address, space, port)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = PinnedMemory::remove(&self.directory);
    }
}

fn is_used(bitmap: &[u8], id: BindingId) -> bool {
    let id = id.get() as usize;
    bitmap[id / 8] >> (id % 8) & 1 != 0
}

/// The tick that a program sees now.
pub(crate) fn tick() -> u32 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC_COARSE).unwrap();
    let nanos = now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs();
    u32::try_from(nanos >> 30).unwrap()
}

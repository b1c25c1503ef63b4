//! Our fast path alone: tables, programs, one subscriber that was admitted, no engine behind it.
//! What it does not take is lost, and shows.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::allocation::{Allocation, Blocks};
use tombolo_engine::mapping::eam::{Eam, EamTable};
use tombolo_engine::mapping::error_sources::ErrorSources;
use tombolo_engine::mapping::exemptions::Exemptions;
use tombolo_engine::mapping::networks::Networks;
use tombolo_engine::mapping::pool::{Owner, Pool, PoolRange, PortRanges};
use tombolo_engine::mapping::stateless::{DenyList, StatelessMap};
use tombolo_engine::mechanism::napt::{Nat, Policy, SubscriberIs, Times};
use tombolo_engine::mechanism::session_state;
use tombolo_engine::mechanism::{SoftwireSettings, TranslateSettings};
use tombolo_engine::plan::{OwnAddresses, Service, ServiceKind};
use tombolo_engine::service::aftr::{Aftr, Untranslated};
use tombolo_engine::service::nat44::Nat44;
use tombolo_engine::service::nat64::Nat64;
use tombolo_engine::service::siit::{Hairpinning, Role, Siit};
use tombolo_engine::{Now, Plan};
use tombolo_fastpath::{FastPath, Mode, PinnedMemory, Routes, Settings, Slices};
use tombolo_io::netfilter::{Entrance, Entrances};
use tombolo_lab::Lab;
use tombolo_tables::Tables;
use tombolo_tables::binding::BindingId;
use tombolo_tables::hash::HashKey;
use tombolo_tables::lpm::Prefix;
use tombolo_tables::memory::{Backing, MemoryError, MemorySource};
use tombolo_tables::session::{Inserted, Lifetimes, SessionKey};
use tombolo_tables::subscriber::Subscriber;
use tombolo_tables::tables::Capacity;
use tombolo_tables::tick::Tick;
use tombolo_tester::gateway::Addresses;
use tombolo_wire::Prefix64;

use crate::cluster;
use crate::contender::Kind;
use crate::population::Population;

/// As many ports as each home has if all are given away: half of them are used, as of all the others.
const BLOCKS: Blocks = Blocks { size: 100, most: 1 };

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

pub(crate) struct Gateway {
    subscribers: Vec<Subscriber>,
    /// A block of ports for each of them, where they have blocks: where those of its address begin, and its
    /// place there.
    blocks: Vec<(u32, u16)>,
    fast_path: FastPath,
    tables: Tables,
    spans: Vec<Arc<dyn Backing>>,
    directory: PathBuf,
    _follower: Follower,
    _memory: PinnedMemory,
}

/// Keeps the mirror of the routes going.
struct Follower {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    fn start(mut routes: Routes) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let given = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !given.load(Ordering::Relaxed) {
                routes.follow(Duration::from_millis(300)).unwrap();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

struct Recorder<'m>(&'m mut PinnedMemory, Vec<Arc<dyn Backing>>);

impl MemorySource for Recorder<'_> {
    fn take(&mut self, name: &'static str, bytes: usize) -> std::result::Result<Arc<dyn Backing>, MemoryError> {
        let span = self.0.take(name, bytes)?;
        self.1.push(Arc::clone(&span));
        Ok(span)
    }
}

impl Gateway {
    /// For a population, with room for so many bindings (and as many again) and sessions; with
    /// `service` in place of the usual one of its kind, if there is one.
    pub(crate) fn start(
        lab: &Lab,
        kind: Kind,
        population: Population,
        room: (u32, u64),
        service: Option<ServiceKind>,
    ) -> Result<Self> {
        let directory = PathBuf::from(format!("/sys/fs/bpf/{}", lab.id()));
        let mut memory = PinnedMemory::open(&directory, "bench")?;
        let mut plan = plan(service.unwrap_or_else(|| usual(kind, population.pool())), room, population.hosts());
        plan.cluster = cluster::cluster(kind);
        let mut recorder = Recorder(&mut memory, Vec::new());
        let tables = Tables::new(&mut recorder, plan.capacity, HashKey::new([11, 22, 33, 44]))?;
        let spans = recorder.1;
        let routes = lab.node("gateway")?.run(|| Routes::open(&memory))??;
        let _slices =
            plan.cluster.as_deref().map(|cluster| Slices::open(&memory, cluster, Now::default())).transpose()?;
        // As the daemon has it by default.
        let settings = Settings {
            entrances: Entrances { others: Some(Entrance::ByRoute), ..Entrances::default() },
            ..Settings::default()
        };
        let mut fast_path = FastPath::load(&memory, &tables, &plan, settings)?;
        lab.node("gateway")?.run(|| -> std::result::Result<(), tombolo_fastpath::FastPathError> {
            fast_path.attach("inside0", Mode::Xdp)?;
            fast_path.attach("outside0", Mode::Xdp)?;
            Ok(())
        })??;
        let subscribers = population.subscribers(kind);
        let blocks = plan.services[0].kind.pool().map_or_else(Vec::new, |pool| blocks(pool, &subscribers));
        let _follower = Follower::start(routes);
        Ok(Self { subscribers, blocks, fast_path, tables, spans, directory, _follower, _memory: memory })
    }

    /// Sees whom XDP can send to: a veth takes what is redirected to it while its other end polls,
    /// which the rig's ports do once they are open.
    pub(crate) fn look_at_ports(&mut self, lab: &Lab) -> Result<()> {
        let fast_path = &mut self.fast_path;
        lab.node("gateway")?.run(|| fast_path.refresh())??;
        for interface in ["inside0", "outside0"] {
            if fast_path.xdp_sends(interface) != Some(true) {
                return Err(format!("XDP cannot send through {interface}").into());
            }
        }
        Ok(())
    }

    /// Forgets everything but the subscribers and what they were granted.
    pub(crate) fn clear(&mut self) {
        for span in &self.spans {
            // SAFETY: the span is that long; no packet is under way, and the tables keep no
            // references into it.
            unsafe { std::ptr::write_bytes(span.base().as_ptr(), 0, span.len()) };
        }
        let mut blocks = self.blocks.iter();
        for subscriber in &self.subscribers {
            let (id, _) = self.tables.admit(subscriber, Tick(1)).unwrap();
            if let Some(&(first, place)) = blocks.next() {
                assert!(self.tables.grant_block(id, first, place, 1, 0, Tick(1)), "the block is another one's");
            }
        }
    }

    /// Makes a session to each of `ports` ports of a remote host, from `first` on, on every
    /// binding.
    pub(crate) fn make_sessions(&self, remote: Ipv4Addr, first: u16, ports: u32) {
        let sessions = &self.tables.sessions;
        let ids: Vec<BindingId> = self.tables.bindings.iter().collect();
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
        let now = Tick::from_nanos(std::time::Duration::from(now).as_nanos().try_into().unwrap());
        let forever = Lifetimes([u32::MAX; 16]);
        for binding in ids {
            for port in 0..ports {
                let remote_port = (first + u16::try_from(port).unwrap()).to_be_bytes();
                let key = SessionKey { binding, remote_ipv4: remote.octets(), remote_port };
                let made = sessions.insert(&key, session_state::UDP, 0, &forever, now);
                assert!(!matches!(made, Inserted::Full), "the table of sessions is full");
            }
        }
    }

    pub(crate) fn remarks(&self) -> String {
        let counters = self.fast_path.counters().unwrap();
        let passed: Vec<String> = counters.passed().map(|(miss, count)| format!("{} {count}", miss.name())).collect();
        let (bindings, memory) = (self.tables.bindings.count(), self.tables.memory());
        let used = bindings as usize * 100 / (self.tables.bindings.capacity() as usize).max(1);
        format!(
            "({bindings} bindings, {used} % of the room, {} MB in all; sessions in the overflow: {}; passed on: {})",
            memory.total() / 1_000_000,
            self.tables.sessions.overflowed(),
            passed.join(", ")
        )
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = PinnedMemory::remove(&self.directory);
    }
}

/// A block for each subscriber, none of which begins below the ports that are handed out; none where the pool
/// has no blocks.
fn blocks(pool: &Pool, subscribers: &[Subscriber]) -> Vec<(u32, u16)> {
    let Some(size) = pool.allocation().block_size() else { return Vec::new() };
    let lowest = u32::from(*pool.ranges()[0].span.start());
    let mut next: HashMap<Ipv4Addr, u16> = HashMap::new();
    let block = |subscriber: &Subscriber| {
        let address = Ipv4Addr::from(subscriber.outside_ipv4);
        let next = next.entry(address).or_insert_with(|| u16::try_from(lowest.div_ceil(size)).unwrap());
        *next += 1;
        (pool.blocks(address, size).unwrap().0, *next - 1)
    };
    subscribers.iter().map(block).collect()
}

/// The client's, and those of ten thousand other hosts, among which it stands.
fn mappings(kind: Kind) -> Vec<Eam> {
    let others = if kind == Kind::Siit10k { 10_000_u32 } else { 0 };
    let other = |n: u32| {
        let (high, low) = (n / 250, n % 250 + 3);
        Eam::parse(&format!("192.{high}.2.{low}"), &format!("2001:db8:{high:x}:{low:x}::2")).unwrap()
    };
    (0..others).map(other).chain([Eam::parse("192.0.2.2", "2001:db8:1::2").unwrap()]).collect()
}

fn usual(kind: Kind, (first, last): (Ipv4Addr, Ipv4Addr)) -> ServiceKind {
    let ports = PortRanges::new([1024..=65535]);
    let range = PoolRange {
        first,
        last,
        ports: [ports.clone(), ports.clone(), ports],
        span: 1024..=65535,
        first_slot: 0,
        owner: Owner::Gateway,
    };
    let allocation = if kind.has_blocks() { Allocation::Blocks(BLOCKS) } else { Allocation::Ports };
    let pool = Pool::new(vec![range]).with_allocation(allocation);
    let pool = if kind.has_slices() { cluster::cut(pool) } else { pool };
    let policy = Policy::default();
    match kind {
        Kind::Nat44 | Kind::Nat44Blocks | Kind::Nat44Slices | Kind::Nat44Elsewhere => ServiceKind::Nat44(Nat44 {
            inside: AddressRanges::new([Ipv4Addr::new(10, 0, 0, 0)..=Ipv4Addr::new(10, 255, 255, 255)]),
            untranslated: AddressRanges::default(),
            exempt: Exemptions::default(),
            nat: Nat { pool, policy, static_bindings: Vec::new() },
            inside_mtu: 1500,
            outside_mtu: 1500,
            largest_segment: None,
        }),
        Kind::Aftr => ServiceKind::Aftr(Aftr {
            address: Addresses::default().softwire_concentrator,
            b4s: Networks::new([Prefix::new(Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 0), 40).unwrap()]),
            inside: AddressRanges::new([Ipv4Addr::new(10, 0, 0, 0)..=Ipv4Addr::new(10, 255, 255, 255)]),
            untranslated: Untranslated::default(),
            nat: Nat {
                pool,
                policy: Policy { subscriber: SubscriberIs::Softwire { prefix_length: 128 }, ..policy },
                static_bindings: Vec::new(),
            },
            softwire: SoftwireSettings::default(),
            outside_mtu: 1500,
            icmp_source: Ipv4Addr::new(192, 0, 0, 1),
            tell_unknown: false,
        }),
        Kind::Siit | Kind::Siit10k => ServiceKind::Siit(Siit {
            role: Role::Siit,
            mapping: StatelessMap {
                explicit: EamTable::new(mappings(kind)).unwrap(),
                prefix: Some(Prefix64::WELL_KNOWN),
                well_known_prefix_strict: false,
                denied: DenyList::default(),
            },
            dynamic: None,
            embedded_hosts: Vec::new(),
            hairpinning: Hairpinning::Intrinsic,
            error_sources: ErrorSources::default(),
            identify_nodes: false,
            translate: TranslateSettings::default(),
        }),
        _ => ServiceKind::Nat64(Nat64 {
            prefix: Prefix64::WELL_KNOWN,
            inside: Networks::default(),
            well_known_prefix_strict: false,
            nat: Nat { pool, policy, static_bindings: Vec::new() },
            translate: TranslateSettings::default(),
        }),
    }
}

fn plan(kind: ServiceKind, (bindings, sessions): (u32, u64), subscribers: u32) -> Plan {
    let mut plan = Plan {
        services: vec![Service::new(0, "bench", kind)],
        retired: Vec::new(),
        cluster: None,
        rows: tombolo_engine::row::Rows::default(),
        times: Times::default(),
        capacity: Capacity {
            subscribers: subscribers.clamp(100, 100_000),
            bindings: bindings * 2,
            sessions,
            outside_slots: 0,
            leases: 16,
        },
        pcp: Default::default(),
        own: OwnAddresses::default(),
    };
    plan.capacity.outside_slots = plan.outside_slots().unwrap().max(16);
    plan
}

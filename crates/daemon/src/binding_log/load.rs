//! A hundred thousand events a second: each is in the log or counted as lost, and packets go on beside it, with the
//! file alone and with a collector as well. `make bench-log` has more rounds, and prints what they cost: the packets,
//! and the ends of bindings, which the sweep reports beside the packets.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tombolo_config::{Collector, CollectorFormat, LogDetail, Transport};
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::{Engine, Now, Plan, Verdict};
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::worker::StopSignal;
use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, BindingId};
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;

use super::file::LogFile;
use super::marks::{StateFound, StateLeft};
use super::removals::Removals;
use super::testing::datagram;
use super::writer::{Ground, LogSettings, Writer};
use crate::table_clock::Clock;
use crate::threads::Guarded;
use crate::utc::Moment;

/// A slice of time: so many bindings begin in it, as many end, and so many packets of others pass.
const SLICE: Duration = Duration::from_millis(10);
const BEGIN: u32 = 500;
const OTHERS: u32 = 2000;
const SLICES: u32 = 100;
/// Rounds, each with and without a log; `TOMBOLO_ROUNDS` in the environment says otherwise.
const ROUNDS: usize = 2;
/// Bindings that live, for two seconds each.
const LIVE: usize = 100_000;
/// Whom all packets are for.
const REMOTE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

struct World {
    plan: Arc<ArcSwap<Plan>>,
    tables: Arc<Tables>,
    engine: Engine,
    /// Bindings that live.
    live: VecDeque<(BindingId, Binding)>,
    made: u32,
}

impl World {
    fn new() -> Self {
        let text = "[capacity]\nsubscribers = 70000\nbindings = 1000000\nsessions = 1000\n[[service]]\nkind = \"nat44\"\n\
                    name = \"cgn\"\ninside = [\"10.0.0.0/16\"]\npool = [{ addresses = \"192.0.2.0/26\" }]\n";
        let plan = tombolo_config::parse("test.toml", text).unwrap().plan;
        let tables = Arc::new(Tables::new(&mut Heap, plan.capacity, HashKey::new([1, 2, 3, 4])).unwrap());
        let engine = Engine::new(Arc::clone(&tables), [7; 32], 0, 1);
        Self { plan: Arc::new(ArcSwap::from_pointee(plan)), tables, engine, live: VecDeque::new(), made: 0 }
    }

    /// A packet of a host inside. The slot of the endpoint that it leaves from.
    fn pass(&mut self, bytes: &[u8]) -> Option<u32> {
        let mut buffer = [0; HEADROOM + 64];
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len(), Offload::default()).unwrap();
        let plan = self.plan.load();
        let mut slot = None;
        let mut outbox = |packet: &mut Packet<'_>| {
            let sent = packet.bytes();
            let address = Ipv4Addr::new(sent[12], sent[13], sent[14], sent[15]);
            let port = u16::from_be_bytes([sent[20], sent[21]]);
            slot = plan.services[0].kind.pool().unwrap().slot(address, PortSpace::Udp, port);
        };
        let verdict = self.engine.process(&plan, &mut packet, Now(monotonic_nanos()), &mut outbox);
        assert_eq!(verdict, Verdict::Forward);
        slot
    }

    /// The packets of a slice, which begin bindings and go on with others. How long they took.
    fn packets(&mut self) -> Duration {
        let began = Instant::now();
        for _ in 0..BEGIN {
            let [high, low] = u16::try_from(self.made % 60_000).unwrap().to_be_bytes();
            let port = 1024 + u16::try_from(self.made / 60_000).unwrap();
            let slot = self.pass(&datagram(Ipv4Addr::new(10, 0, high, low), port, REMOTE)).unwrap();
            self.live.push_back(self.tables.find_outside(slot).unwrap());
            self.made += 1;
        }
        let known = datagram(Ipv4Addr::new(10, 0, 255, 1), 9, REMOTE);
        for _ in 0..OTHERS {
            self.pass(&known);
        }
        began.elapsed()
    }

    /// The ends of as many bindings. How long they took.
    fn ends(&mut self, removals: &Removals) -> Duration {
        let began = Instant::now();
        while self.live.len() > LIVE {
            let (id, binding) = self.live.pop_front().unwrap();
            let (_, seen) = self.tables.bindings.read(id).unwrap();
            assert!(self.tables.unbind(id, &binding, seen, Now(monotonic_nanos()).tick()));
            removals.report(&binding);
        }
        began.elapsed()
    }

    /// Slices at their pace.
    fn round(&mut self, removals: &Removals) -> Round {
        let began = Instant::now();
        let mut round = Round::default();
        for slice in 1..=SLICES {
            round.packets.push(self.packets());
            round.ends.push(self.ends(removals));
            std::thread::sleep((SLICE * slice).saturating_sub(began.elapsed()));
        }
        round.took = began.elapsed();
        round
    }
}

/// How long things took.
#[derive(Default)]
struct Round {
    /// The packets of each slice,
    packets: Vec<Duration>,
    /// the ends of bindings in each,
    ends: Vec<Duration>,
    /// and everything.
    took: Duration,
}

/// A collector that takes everything.
fn collector() -> Collector {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    Collector { format: CollectorFormat::Syslog, transport: Transport::Tcp, address, tls: None }
}

/// A round beside a log at work, and what became of the events: lines of beginnings, of ends, and losses.
fn logged(world: &mut World, path: &Path, collectors: &[Collector]) -> (Round, [u64; 3]) {
    let guarded = Guarded { name: "test", stop: StopSignal::new().unwrap(), health: Arc::default() };
    let (path, collectors) = (path.to_owned(), collectors.to_vec());
    let settings = LogSettings { path: path.clone(), rate: 1_000_000, detail: LogDetail::Bindings, collectors };
    let ground = Ground {
        tables: Arc::clone(&world.tables),
        plan: Arc::clone(&world.plan),
        clock: Clock::take(&mut Heap).unwrap(),
        gateway: "tombolo".to_owned(),
        boot: "1".to_owned(),
        host: String::new(),
        guarded,
    };
    let (file, found) = LogFile::find(&path).unwrap();
    let removals = Removals::default();
    let mut writer = Writer::new(&ground, &settings, file, &removals, Moment::current()).unwrap();
    writer.begin(found, StateFound::Tables, Moment::current());
    let stop = Arc::new(AtomicBool::new(false));
    let is_stopping = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        while !is_stopping.load(Ordering::Acquire) {
            writer.step(200_000, Moment::current());
            std::thread::park_timeout(Duration::from_millis(200));
        }
        writer.stop(StateLeft::Tables, Moment::current());
    });
    let took = world.round(&removals);
    stop.store(true, Ordering::Release);
    thread.thread().unpark();
    thread.join().unwrap();
    let mut lines = BTreeMap::new();
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        *lines.entry(line["event"].as_str().unwrap().to_owned()).or_insert(0_u64) += 1;
    }
    std::fs::remove_file(&path).unwrap();
    let count = |event: &str| lines.get(event).copied().unwrap_or(0);
    (took, [count("created"), count("removed"), removals.lost()])
}

/// What a slice takes where nobody else has the processor meanwhile.
fn undisturbed(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 10].as_secs_f64()
}

fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied().unwrap_or_default()
}

#[test]
fn a_hundred_thousand_events_a_second_are_logged_or_counted() {
    let home = tempfile::tempdir().unwrap();
    let mut world = World::new();
    while world.live.len() < LIVE {
        world.round(&Removals::default());
    }
    let rounds = std::env::var("TOMBOLO_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    let logs = [("a file", vec![]), ("a file and a collector", vec![collector()])];
    let mut ratios = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let without = world.round(&Removals::default());
        let (packets, ends) = (undisturbed(without.packets), undisturbed(without.ends));
        for ((name, collectors), ratios) in logs.iter().zip(&mut ratios) {
            let before = world.made;
            let (with, [created, removed, lost]) = logged(&mut world, &home.path().join("log"), collectors);
            let made = u64::from(world.made - before);
            let rate = f64::from(2 * (world.made - before)) / with.took.as_secs_f64();
            let [packets, ends] = [undisturbed(with.packets) / packets, undisturbed(with.ends) / ends];
            println!(
                "{name}: {rate:.0} events a second: {created} begun, {removed} ended, {lost} lost; \
                 packets take {packets:.3} of the time, ends {ends:.3}"
            );
            ratios.push((packets, ends));
            assert_eq!(removed + lost, made, "round {round}: each end is in the log or counted");
            // They live for longer than a walk takes; those that began last have their lines at the stop.
            assert!(created + lost >= made, "round {round}: {created} of {made}");
        }
    }
    for ((name, _), ratios) in logs.iter().zip(ratios) {
        let (packets, ends) = ratios.into_iter().unzip();
        let [packets, ends] = [packets, ends].map(median);
        println!("{name}: of the time without a log packets take {packets:.3}, ends {ends:.3} (medians of {rounds})");
    }
}

//! `kill -9` at any moment, under load, leaves tables that the next process can use.
//!
//! A child process hammers tables in a run directory: two engines with a NAT64 that gives out
//! blocks of ports and a NAT44 with limits, a sweeper, and a clock that runs as fast as the engines
//! can follow. The parent kills it at a random moment, adopts the tables as the gateway does,
//! checks every invariant, and that what the child had reported before it died is there; then the
//! next child goes on with the same tables.
//!
//! `TOMBOLO_KILL_ROUNDS` sets how often (default 25).

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tombolo_daemon::state::State;
use tombolo_engine::mechanism::session_state::ESTABLISHED;
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::sweep::Expiry;
use tombolo_engine::{Engine, Now, Plan, Verdict};
use tombolo_tables::audit;
use tombolo_tables::binding::InsideKey;
use tombolo_tables::session::SessionKey;
use tombolo_tables::sweep::Sweeper;
use tombolo_tables::tick::Tick;
use tombolo_wire::{Ipv6Header, Protocol};

mod packets;

use packets::{transport, v4};

const CONFIGURATION: &str = r#"
[capacity]
subscribers = 2000
bindings = 20000
sessions = 40000
[timeouts]
udp = 20
tcp_opening = 20
tcp_transitory = 20
port_reuse = 5
[[service]]
kind = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
pool = [{ addresses = "192.0.2.0/29", ports = "1024-9215" }]
allocation = { mode = "blocks", block_size = 64, blocks = 3 }
[[service]]
kind = "nat44"
inside = ["10.0.0.0/16"]
pool = [{ addresses = "192.0.2.16/29", ports = "1024-9215" }]
bindings_per_subscriber = 300
limits = { sessions = 200 }
"#;
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const ACKNOWLEDGED: Ipv4Addr = Ipv4Addr::new(10, 0, 200, 1);
const SYN: u8 = 2;
const ACK: u8 = 16;

fn plan() -> Plan {
    tombolo_config::parse("kill.toml", CONFIGURATION).unwrap().plan
}

/// A random number generator of three shifts.
struct Random(u32);

impl Random {
    fn next(&mut self, below: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % below
    }

    fn port(&mut self, below: u32) -> u16 {
        u16::try_from(self.next(below)).unwrap()
    }
}

fn v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: Protocol, transport: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40 + transport.len()];
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: u16::try_from(transport.len()).unwrap(),
        next_header: protocol,
        hop_limit: 64,
        source,
        destination,
    };
    header.emit(&mut bytes);
    bytes[40..].copy_from_slice(transport);
    bytes
}

/// Sends one packet; the source address and port that it left with.
fn pass(engine: &mut Engine, plan: &Plan, bytes: &[u8], now: Now) -> (Verdict, Option<(Ipv4Addr, u16)>) {
    let mut buffer = [0; HEADROOM + 128];
    buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
    let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len(), Offload::default()).unwrap();
    let mut seen = None;
    let mut outbox = |packet: &mut Packet<'_>| {
        let sent = packet.bytes();
        if sent[0] == 0x45 {
            let address = Ipv4Addr::new(sent[12], sent[13], sent[14], sent[15]);
            seen = Some((address, u16::from_be_bytes([sent[20], sent[21]])));
        }
    };
    let verdict = engine.process(plan, &mut packet, now, &mut outbox);
    (verdict, seen)
}

/// One random packet: mostly new flows, some answers, some closing.
fn hammer_once(engine: &mut Engine, plan: &Plan, random: &mut Random, now: Now) {
    let protocol = if random.next(2) == 0 { Protocol::UDP } else { Protocol::TCP };
    let flags = [SYN, ACK, 1 | ACK, 4][random.next(4) as usize];
    let remote = Ipv4Addr::new(198, 51, 100, u8::try_from(random.next(20)).unwrap());
    let inside_port = 1000 + random.port(400);
    let bytes = match random.next(5) {
        0 | 1 => {
            let host = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, random.port(100));
            let embedded = Ipv6Addr::from_bits(0x64_ff9b << 96 | u128::from(remote.to_bits()));
            v6(host, embedded, protocol, &transport(protocol, inside_port, 53, flags))
        }
        2 | 3 => {
            let host = Ipv4Addr::new(10, 0, 0, u8::try_from(random.next(100)).unwrap());
            v4(host, remote, protocol, &transport(protocol, inside_port, 53, flags))
        }
        _ => {
            let outside = Ipv4Addr::new(192, 0, 2, u8::try_from(random.next(24)).unwrap());
            v4(remote, outside, protocol, &transport(protocol, 53, 1024 + random.port(8192), flags))
        }
    };
    let _ = pass(engine, plan, &bytes, now);
}

/// Opens connection number `n`; says so on standard output only when it is established.
fn open_and_report(engine: &mut Engine, plan: &Plan, n: u32, now: Now, output: &Mutex<std::io::Stdout>) {
    let port = u16::try_from(1 + n % 60_000).unwrap();
    let host = Ipv4Addr::from_bits(ACKNOWLEDGED.to_bits() + n / 150);
    let syn = v4(host, SERVER, Protocol::TCP, &transport(Protocol::TCP, port, 80, SYN));
    let (Verdict::Forward, Some((address, outside))) = pass(engine, plan, &syn, now) else { return };
    let answer = v4(SERVER, address, Protocol::TCP, &transport(Protocol::TCP, 80, outside, SYN | ACK));
    if pass(engine, plan, &answer, now).0 == Verdict::Forward {
        let mut output = output.lock().unwrap();
        writeln!(output, "established {host} {port} {address} {outside} {}", now.tick().0).unwrap();
        output.flush().unwrap();
    }
}

/// The child: goes on until it is killed.
#[test]
#[ignore = "it is the child of the test below"]
fn hammer() {
    let Some(directory) = std::env::var_os("TOMBOLO_KILL_DIRECTORY") else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u32>().unwrap();
    let (start, seed) = (number("TOMBOLO_KILL_TICK"), number("TOMBOLO_KILL_SEED"));
    let plan = plan();
    let state = State::open(Some(Path::new(&directory)), &plan).unwrap();
    // A file that says when to stop, should the parent die.
    let clock = AtomicU64::new(u64::from(start) << Tick::SHIFT);
    let progress = [const { AtomicU32::new(0) }; 2];
    let output = Mutex::new(std::io::stdout());
    writeln!(output.lock().unwrap(), "ready").unwrap();
    std::thread::scope(|scope| {
        for worker in 0..2_u16 {
            let (plan, clock, progress, output) = (&plan, &clock, &progress[usize::from(worker)], &output);
            let mut engine = Engine::new(Arc::clone(&state.tables), state.seed, worker, 2);
            scope.spawn(move || {
                let mut random = Random(seed.wrapping_mul(7919).wrapping_add(u32::from(worker) + 1) | 1);
                for n in 0_u32.. {
                    let now = Now(clock.load(Ordering::Relaxed));
                    hammer_once(&mut engine, plan, &mut random, now);
                    if n % 2000 == 0 && worker == 0 {
                        open_and_report(&mut engine, plan, seed % 100 * 90 + n / 2000 % 90, now, output);
                    }
                    progress.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut sweeper = Sweeper::new(&state.tables, Now(clock.load(Ordering::Relaxed)).tick());
        let mut expiry = Expiry::new(&plan);
        let mut seen = [0; 2];
        loop {
            // A tick is longer than any packet takes: time goes on only when every worker has.
            let reached = [0, 1].map(|worker: usize| progress[worker].load(Ordering::Relaxed));
            if reached.iter().zip(&seen).all(|(now, then)| now != then) {
                seen = reached;
                clock.fetch_add(1 << (Tick::SHIFT - 3), Ordering::Relaxed);
            }
            sweeper.advance(&state.tables, 2000, Now(clock.load(Ordering::Relaxed)).tick(), &mut expiry);
        }
    });
}

#[derive(Debug, Clone, Copy)]
struct Established {
    outside: (Ipv4Addr, u16),
    tick: u32,
}

fn start_child(directory: &Path, tick: u32, seed: u32) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "hammer", "--nocapture", "--test-threads=1"])
        .env("TOMBOLO_KILL_DIRECTORY", directory)
        .env("TOMBOLO_KILL_TICK", tick.to_string())
        .env("TOMBOLO_KILL_SEED", seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.trim_end().ends_with("ready") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the child died before it began");
    }
    (child, output)
}

/// The newest moment in the tables.
fn newest(state: &State) -> u32 {
    let seen = state.tables.each_session().map(|session| session.seen.0);
    let touched = state.tables.bindings.iter().filter_map(|id| state.tables.bindings.read(id)).map(|(_, seen)| seen.0);
    seen.chain(touched).max().unwrap_or(0)
}

fn check(state: &State, established: &HashMap<(Ipv4Addr, u16), Established>) {
    let findings = audit::check(&state.tables);
    assert!(findings.is_empty(), "{findings:#?}");
    for (&(host, port), connection) in established {
        let key = InsideKey { ipv6: [0; 16], ipv4: host.octets(), port: port.to_be_bytes(), protocol: 6, service: 1 };
        let (id, binding) = state.tables.find_inside(&key).unwrap_or_else(|| panic!("{host} {port} is lost"));
        let outside = (binding.outside_ipv4.into(), u16::from_be_bytes(binding.outside_port));
        assert_eq!(outside, connection.outside, "{host} {port} is somewhere else");
        let key = SessionKey { binding: id, remote_ipv4: SERVER.octets(), remote_port: 80_u16.to_be_bytes() };
        let session = state.tables.find_session(&key).unwrap_or_else(|| panic!("{host} {port} lost its session"));
        assert_eq!(session.state(), Some(ESTABLISHED));
    }
}

#[test]
fn kill_9_at_any_moment_leaves_tables_that_the_next_process_can_use() {
    let rounds = std::env::var("TOMBOLO_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(25);
    let directory = std::env::temp_dir().join(format!("tombolo-kill-{}", std::process::id()));
    let plan = plan();
    let seed = u32::from_ne_bytes(State::open(None, &plan).unwrap().seed[..4].try_into().unwrap()) | 1;
    println!("seed {seed}");
    let mut random = Random(seed);
    let mut established: HashMap<(Ipv4Addr, u16), Established> = HashMap::new();
    let (mut tick, mut last, mut reports, mut most) = (1000, 0, 0, 0);
    // Longest life of a child in microseconds: on a busy machine it takes longer to do something
    // worth a kill.
    let mut longest = 120_000;
    for round in 0..rounds {
        let (mut child, output) = start_child(&directory, tick, round + 1);
        std::thread::sleep(Duration::from_micros(u64::from(1000 + random.next(longest))));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "it died before it was killed");
        // A line that was cut off by the kill reports nothing.
        for line in output.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let words: Vec<&str> = line.split(' ').collect();
            if let ["established", host, port, address, outside, tick] = words[..]
                && let Ok(tick) = tick.parse()
            {
                let outside = (address.parse().unwrap(), outside.parse().unwrap());
                established.insert((host.parse().unwrap(), port.parse().unwrap()), Established { outside, tick });
                reports += 1;
            }
        }
        if reports < round {
            longest = (longest * 2).min(8_000_000);
        }
        let state = State::open(Some(&directory), &plan).unwrap();
        let now = newest(&state);
        // Not later than the last run's, if the child died before its first packet.
        assert!(now >= last, "the tables of the last run were not adopted");
        last = now;
        tick = now.max(tick) + 1;
        // Two hours after its last packet a connection may be gone.
        established.retain(|_, connection| tick - connection.tick < 6600);
        check(&state, &established);
        most = most.max(state.tables.bindings.count());
    }
    std::fs::remove_dir_all(&directory).unwrap();
    println!("{rounds} kills, {reports} connections reported, at most {most} bindings in the tables");
    assert!(reports > rounds / 2, "only {reports} connections in {rounds} rounds");
    assert!(most > 500, "never more than {most} bindings");
}

//! Golden cases: `tests/cases/<service>/<case>/case.toml` through the whole engine.
//!
//! A case says what it is about (`what`, `why`, `clause`), names a configuration beside it
//! (`config`), lists packets with what becomes of them, and the counters that change: those that
//! are not listed must stay zero. The bytes expected come from `tests/cases/make.py`, which builds
//! packets from the RFCs and shares nothing with the engine.
//!
//! What the engine sends also goes into a real TUN queue, in a network namespace of its own: the
//! kernel has to take every packet. Without the privilege to make one the test says so. And each case
//! runs once more with a device that takes nothing, and with one that refuses later what it took.
//!
//! Set `CASE` to a part of a name to run some only.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a case that cannot be read fails")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sched::{CloneFlags, unshare};
use tombolo_engine::counters::{Totals, Whose};
use tombolo_engine::packet::{HEADROOM, Offload, Outbox, Packet};
use tombolo_engine::{DropReason, Engine, Now, Plan, Verdict};
use tombolo_io::host::Host;
use tombolo_io::queue::TunQueue;
use tombolo_io::tun::{ExistingDevice, KernelEntry, Tun, TunConfig};
use tombolo_tables::Tables;
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use toml::{Table, Value};

/// Fewer means that cases got lost.
const AT_LEAST: usize = 150;
/// The clock when a case begins, in nanoseconds.
const START: u64 = 1_000_000_000_000;

#[test]
fn golden_cases() {
    // A thread of its own, for the namespace goes with it.
    let run = std::thread::spawn(|| {
        let (mut queue, _host) = device().unzip();
        all_cases(queue.as_mut());
    })
    .join();
    run.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// A queue of a TUN device in a namespace that this thread enters, and who keeps the device up.
fn device() -> Option<(TunQueue, Host)> {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        // Past the test harness, which hides the output of tests that pass.
        let reason = format!("no network namespace ({error}); run as root");
        let _ = writeln!(std::io::stderr(), "SKIP: golden cases through a TUN queue: {reason}");
        return None;
    }
    let (name, existing) = ("golden".to_owned(), ExistingDevice::Refuse);
    let tun = Tun::create(&TunConfig { name, queues: 1, existing, entry: KernelEntry::Direct }).unwrap();
    let mut host = Host::open().unwrap();
    host.bring_up("golden", 65_535, 500).unwrap();
    tun.into_queues().pop().map(|queue| (queue, host))
}

fn all_cases(mut device: Option<&mut TunQueue>) {
    let only = std::env::var("CASE").unwrap_or_default();
    let mut failures = Vec::new();
    let mut count = 0;
    for path in case_files() {
        if !path.to_string_lossy().contains(&only) {
            continue;
        }
        count += 1;
        if let Err(difference) = run(&path, device.as_deref_mut()) {
            failures.push(format!("{}\n{difference}", path.display()));
        }
    }
    assert!(failures.is_empty(), "{} of {count} cases differ:\n\n{}", failures.len(), failures.join("\n"));
    assert!(count >= AT_LEAST || !only.is_empty(), "only {count} cases were found");
}

fn case_files() -> Vec<PathBuf> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let mut files = Vec::new();
    for service in std::fs::read_dir(cases).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        files.extend(std::fs::read_dir(service).unwrap().map(|entry| entry.unwrap().path().join("case.toml")));
    }
    files.retain(|file| file.exists());
    files.sort();
    files
}

/// A case, and a gateway for it.
struct Case {
    steps: Vec<Table>,
    expected: Table,
    engine: Engine,
    plan: Plan,
}

impl Case {
    fn read(path: &Path) -> Result<Self, String> {
        let case: Table = std::fs::read_to_string(path).unwrap().parse().map_err(|error| format!("{error}"))?;
        for key in ["what", "why", "clause"] {
            text(&case, key)?;
        }
        let config = path.parent().and_then(Path::parent).unwrap().join(text(&case, "config")?);
        // Made anew for each case: a plan may share what its services lend.
        let plan = plan(&config);
        let tables = Arc::new(Tables::new(&mut Heap, plan.capacity, HashKey::new([1, 2, 3, 4])).unwrap());
        assert_eq!(tombolo_engine::static_bindings::reconcile(&tables, &plan, Now(START)), Vec::new());
        let steps = case["packet"].as_array().ok_or("no packets")?.iter();
        let steps = steps.map(|step| step.as_table().cloned().ok_or("a packet is no table"));
        let steps = steps.collect::<Result<_, _>>()?;
        Ok(Self { steps, expected: case, engine: Engine::new(tables, [9; 32], 0, 1), plan })
    }

    /// Packet number `number` through the gateway.
    fn pass(&mut self, number: usize, outbox: &mut dyn Outbox) -> Result<Verdict, String> {
        Ok(self.observe(number, outbox)?.0)
    }

    /// As [`pass`](Self::pass), and says whose it was.
    fn observe(&mut self, number: usize, outbox: &mut dyn Outbox) -> Result<(Verdict, Whose), String> {
        let step = &self.steps[number];
        let received = bytes(text(step, "in")?);
        let at = START + step.get("at_ms").and_then(Value::as_integer).map_or(0, |ms| ms.unsigned_abs() * 1_000_000);
        let mut buffer = vec![0xa5; HEADROOM + received.len() + 64];
        buffer[HEADROOM..HEADROOM + received.len()].copy_from_slice(&received);
        let mut packet = Packet::new(&mut buffer, HEADROOM, received.len(), Offload::default()).unwrap();
        Ok(self.engine.observe(&self.plan, &mut packet, Now(at), outbox))
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.engine.counters().add_to(&mut totals);
        totals
    }
}

/// Runs one case; the error says what differs.
fn run(path: &Path, mut device: Option<&mut TunQueue>) -> Result<(), String> {
    let mut case = Case::read(path)?;
    let mut differences = String::new();
    for number in 0..case.steps.len() {
        let mut sent = Vec::new();
        // What the queue does not take ends as a drop, which no case expects.
        let mut outbox = |packet: &mut Packet<'_>| {
            sent.push(packet.bytes().to_vec());
            device.as_mut().map_or(Ok(()), |queue| queue.send(packet))
        };
        let verdict = words(case.pass(number, &mut outbox)?);
        compare(&case.steps[number], number, &verdict, &sent, &mut differences)?;
    }
    let totals = case.totals();
    let expected: BTreeMap<String, u64> = match case.expected.get("counters").and_then(Value::as_table) {
        Some(table) => {
            table.iter().map(|(name, count)| (name.clone(), count.as_integer().unwrap().unsigned_abs())).collect()
        }
        None => BTreeMap::new(),
    };
    let found = named(&totals);
    if found != expected {
        let _ = writeln!(differences, "  counters: expected {expected:?}\n               found {found:?}");
    }
    if differences.is_empty() { Ok(()) } else { Err(differences) }
}

fn plan(config: &Path) -> Plan {
    let mut plan = tombolo_config::load(config).unwrap_or_else(|error| panic!("{error}")).plan;
    plan.capacity.subscribers = 16;
    plan.capacity.bindings = 64;
    plan.capacity.sessions = 64;
    plan
}

/// As cases write it.
fn words(verdict: Verdict) -> String {
    match verdict {
        Verdict::Forward => "forward".to_owned(),
        Verdict::Hold => "hold".to_owned(),
        Verdict::Redirect(_) => "redirect".to_owned(),
        Verdict::ToHost => "to-host".to_owned(),
        Verdict::EchoReply => "echo-reply".to_owned(),
        Verdict::Pcp(answered) => format!("pcp-{}", answered.code.name()),
        Verdict::Reply(reason) => format!("reply {reason}"),
        Verdict::Drop(reason) => format!("drop {reason}"),
    }
}

/// Forwarded, replied, dropped, held and left to the host are together what was received, also if the
/// device takes nothing of it.
#[test]
fn what_a_device_refuses_is_a_drop_and_nothing_else() {
    for path in case_files() {
        let mut case = Case::read(&path).unwrap();
        for number in 0..case.steps.len() {
            let mut refused = 0;
            let mut outbox = |_: &mut Packet<'_>| {
                refused += 1;
                Err::<(), _>(DropReason::DeviceDown)
            };
            let verdict = case.pass(number, &mut outbox).unwrap();
            let lost = verdict == Verdict::Drop(DropReason::DeviceDown);
            assert!(refused == usize::from(lost), "{}: packet {number}: {verdict:?}, {refused}", path.display());
        }
        let totals = case.totals();
        let dropped: u64 = totals.drops().map(|(_, count)| count).sum();
        let fates = dropped + totals.held + totals.to_host;
        assert_eq!(totals.received.iter().sum::<u64>(), fates, "{}", path.display());
        assert_eq!((totals.forwarded, totals.replied), ([0; 2], 0), "{}", path.display());
    }
}

/// The same if it takes the packets that are forwarded, to hold them, and refuses them later.
#[test]
fn what_a_device_refuses_later_is_a_drop_and_nothing_else() {
    for path in case_files() {
        let mut case = Case::read(&path).unwrap();
        let mut lost = 0;
        for number in 0..case.steps.len() {
            let mut sent = 0;
            let mut outbox = |_: &mut Packet<'_>| sent += 1;
            let (verdict, whose) = case.observe(number, &mut outbox).unwrap();
            if sent > 0 {
                lost += u64::from(matches!(verdict, Verdict::Forward | Verdict::ToHost | Verdict::Redirect(_)));
                case.engine.counters().count_lost(whose, verdict, DropReason::DeviceBusy);
            }
        }
        let totals = case.totals();
        assert_eq!(totals.drops[DropReason::DeviceBusy as usize], lost, "{}", path.display());
        assert_eq!(totals.forwarded, [0; 2], "{}", path.display());
        assert_eq!(totals.redirected[0].iter().sum::<u64>(), 0, "{}", path.display());
    }
}

fn compare(
    step: &Table,
    number: usize,
    verdict: &str,
    sent: &[Vec<u8>],
    differences: &mut String,
) -> Result<(), String> {
    let expected_verdict = text(step, "verdict")?;
    if verdict != expected_verdict {
        let _ = writeln!(differences, "  packet {number}: expected {expected_verdict}, found {verdict}");
    }
    let expected = step.get("out").and_then(Value::as_array).cloned().unwrap_or_default();
    if expected.len() != sent.len() {
        let _ = writeln!(differences, "  packet {number}: expected {} packets, found {}", expected.len(), sent.len());
    }
    // The gateway may choose the identification of IPv4 packets that are whole: then a case leaves
    // it out.
    let masked = step.get("any_identification").and_then(Value::as_bool).unwrap_or(false);
    for (expected, sent) in expected.iter().zip(sent) {
        let mut expected = bytes(expected.as_str().ok_or("a packet is no text")?);
        let mut sent = sent.clone();
        if let Some(at) = ipv4_header(&sent).filter(|_| masked) {
            check_header_sum(&sent[at..], number, differences);
            for packet in [&mut expected, &mut sent].into_iter().filter(|packet| packet.len() >= at + 20) {
                packet[at + 4..at + 6].fill(0);
                packet[at + 10..at + 12].fill(0);
            }
        }
        if expected != sent {
            let _ = writeln!(differences, "  packet {number}: expected {}", hex(&expected));
            let _ = writeln!(differences, "                 found {}", hex(&sent));
            let _ = writeln!(differences, "                       {}", marks(&expected, &sent));
        }
    }
    Ok(())
}

/// Where the IPv4 header is: in front, or inside a softwire.
fn ipv4_header(packet: &[u8]) -> Option<usize> {
    let at = if packet.len() >= 60 && packet[0] >> 4 == 6 && packet[6] == 4 { 40 } else { 0 };
    (packet.len() >= at + 20 && packet[at] >> 4 == 4).then_some(at)
}

/// The one field that masking would hide mistakes in.
fn check_header_sum(packet: &[u8], number: usize, differences: &mut String) {
    let header = usize::from(packet[0] & 15) * 4;
    let words = packet[..header].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    if (sum & 0xffff) + (sum >> 16) != 0xffff {
        let _ = writeln!(differences, "  packet {number}: the header checksum is wrong");
    }
}

fn named(totals: &Totals) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    for (side, name) in ["inside", "outside"].into_iter().enumerate() {
        counters.insert(format!("received-{name}"), totals.received[side]);
        counters.insert(format!("received-bytes-{name}"), totals.received_bytes[side]);
        counters.insert(format!("forwarded-{name}"), totals.forwarded[side]);
    }
    counters.insert("to-host".into(), totals.to_host);
    counters.insert("held".into(), totals.held);
    counters.insert("replied".into(), totals.replied);
    counters.extend(totals.drops().map(|(reason, count)| (format!("drop-{reason}"), count)));
    counters.retain(|_, count| *count > 0);
    counters
}

fn text<'t>(table: &'t Table, key: &str) -> Result<&'t str, String> {
    table.get(key).and_then(Value::as_str).ok_or_else(|| format!("{key} is missing"))
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A caret under each digit that differs.
fn marks(a: &[u8], b: &[u8]) -> String {
    let (a, b) = (hex(a), hex(b));
    let longest = a.len().max(b.len());
    (0..longest).map(|at| if a.as_bytes().get(at) == b.as_bytes().get(at) { ' ' } else { '^' }).collect()
}

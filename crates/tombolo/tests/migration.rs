//! State that was made for another plan: what the new one allows goes on across the restart, and
//! the log says what has ended. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tombolo_daemon::utc::Utc;
use tombolo_lab::{Lab, Peer, Process, Topology, dropped_by_links, skip_without, wait_until};

mod flows;
mod running;

use flows::{EndOnDrop, Stream, ask, lost_at_the_ends};
use running::{TOMBOLO, rows, run, settings_of_engine};

const PATIENCE: Duration = Duration::from_secs(30);

const BEFORE: &str = r#"
[capacity]
subscribers = 100
bindings = 10000
sessions = 10000

[[service]]
kind   = "nat64"
name   = "gone"
prefix = "2001:db8:64::/96"
pool   = [{ addresses = "192.0.2.9" }]

[[service]]
kind   = "nat64"
name   = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
pool   = [{ addresses = "192.0.2.1" }]

[[service]]
kind   = "nat44"
name   = "cgn"
inside = ["10.0.0.0/24"]
pool   = [{ addresses = "192.0.2.16/30" }]
"#;

/// Other room, other services in another order, and larger pools.
const AFTER: &str = r#"
[capacity]
subscribers = 200
bindings = 5000
sessions = 30000

[[service]]
kind   = "siit"
prefix = "2001:db8:5111::/96"

[[service]]
kind   = "nat44"
name   = "cgn"
inside = ["10.0.0.0/24"]
pool   = [{ addresses = "192.0.2.16/29" }]

[[service]]
kind   = "nat64"
name   = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
pool   = [{ addresses = "192.0.2.1" }, { addresses = "192.0.2.3" }]
"#;

fn start(lab: &Lab, gateway: &str, rest: &str) -> Process {
    start_as(TOMBOLO, lab, gateway, rest)
}

/// A gateway of some version.
fn start_as(program: &str, lab: &Lab, gateway: &str, rest: &str) -> Process {
    let directory = lab.directory().unwrap();
    let file = directory.join("gateway.toml");
    let log = directory.join("bindings.jsonl");
    fs::write(&file, format!("{}\nbinding_log = \"{}\"\n{rest}", settings_of_engine(gateway), log.display())).unwrap();
    run(program, lab, &file)
}

fn end(mut gateway: Process, signal: Signal) -> String {
    gateway.signal(signal).unwrap();
    wait_until("the gateway is gone", PATIENCE, || (!gateway.is_running()).then_some(())).unwrap();
    gateway.stderr()
}

fn show(lab: &Lab, what: &str) -> Vec<Value> {
    let command = lab.node("gateway").unwrap().command(TOMBOLO).args(["show", what, "--json"]);
    // One with a run directory is asked there.
    let home = lab.directory().unwrap().join("run");
    let command = if home.join("control.sock").exists() {
        command.args(["--gateway".to_owned(), home.display().to_string()])
    } else {
        command
    };
    let output = command.run().unwrap();
    rows(&output.success().unwrap().stdout)
}

fn log(lab: &Lab) -> Vec<Value> {
    rows(&fs::read_to_string(lab.directory().unwrap().join("bindings.jsonl")).unwrap())
}

fn events<'l>(log: &'l [Value], event: &str, service: &str) -> Vec<&'l Value> {
    log.iter().filter(|line| line["event"] == event && line["service"] == service).collect()
}

/// Who has which outside endpoint: service, protocol, inside, outside.
fn bindings(lab: &Lab, service: &str) -> Vec<String> {
    let fields = ["protocol", "inside", "inside_port", "outside", "outside_port"];
    let rows = show(lab, "bindings");
    let mut found: Vec<String> = rows
        .iter()
        .filter(|row| row["service"] == service)
        .map(|row| fields.map(|field| row[field].to_string()).join(" "))
        .collect();
    found.sort();
    found
}

/// A gateway with flows through it is killed, and another one follows, under another plan.
///
/// With the fast path the kernel forwards all the time, and nothing may be lost. Without it nothing is
/// forwarded while there is no gateway, and nothing else may be lost.
fn flows_go_on(settings: &str, programs: [&str; 2], is_accelerated: bool) {
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let home = lab.directory().unwrap().join("run");
    let settings = settings.replace("RUN", &home.display().to_string());
    let _echo = Peer::udp_echo(lab.node("server").unwrap(), "198.51.100.2:7".parse().unwrap()).unwrap();
    let gateway = start_as(programs[0], &lab, &settings, BEFORE);
    ask(&lab, "[2001:db8:64::c633:6402]:7");
    let mut server = lab.node("server").unwrap().command("iperf3").args(["-s", "-1", "--forceflush"]).spawn().unwrap();
    server.wait_for_text("Server listening", PATIENCE).unwrap();
    let words = ["-c", "198.51.100.2", "-t", "14", "-i", "0.5", "-b", "100M", "-w", "200K", "-J"];
    let iperf3 = lab.node("client").unwrap().command("iperf3").args(words).spawn().unwrap();
    let stream = Stream::default();
    let (mut before, mut after) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut said = String::new();
    std::thread::scope(|scope| {
        scope.spawn(|| stream.run(&lab, "[64:ff9b::c633:6402]:7"));
        let _ends = EndOnDrop(&stream.stop);
        wait_until("both flow", PATIENCE, || {
            (stream.answered() > 500 && bindings(&lab, "cgn").len() == 2).then_some(())
        })
        .unwrap();
        // The log walks once a second.
        wait_until("they are logged", PATIENCE, || (events(&log(&lab), "created", "cgn").len() == 2).then_some(()))
            .unwrap();
        // What was made in the tick in which the next gateway begins is new to its log: let it pass.
        std::thread::sleep(Duration::from_millis(2200));
        before = ["nat64", "cgn"].map(|service| bindings(&lab, service));
        end(gateway, Signal::SIGKILL);
        let gateway = start_as(programs[1], &lab, &settings, AFTER);
        after = ["nat64", "cgn"].map(|service| bindings(&lab, service));
        std::thread::sleep(Duration::from_secs(2));
        said = gateway.stderr();
        assert!(said.contains("carried over to another plan"), "{said}");
        stream.stop.store(true, Ordering::Release);
        let report: Value = serde_json::from_str(&iperf3.wait(PATIENCE).unwrap().success().unwrap().stdout).unwrap();
        let intervals = report["intervals"].as_array().unwrap().iter();
        let rates: Vec<f64> = intervals.map(|each| each["sum"]["bits_per_second"].as_f64().unwrap()).collect();
        println!("slowest half second of TCP: {:.1} Mbit/s", rates.iter().copied().fold(f64::MAX, f64::min) / 1e6);
        let judged = if is_accelerated { &rates[..] } else { &rates[rates.len() - 4..] };
        assert!(judged.iter().all(|rate| *rate > 0.0), "the connection stood still: {rates:?}");
        end(gateway, Signal::SIGTERM);
    });
    assert!(!before[0].is_empty() && before == after, "{before:?} {after:?}\n{said}");
    let (sent, answered, lost) = (stream.sent.load(Ordering::Acquire), stream.answered(), stream.lost());
    let elsewhere = [lost_at_the_ends(&lab), dropped_by_links(&lab, &["client", "gateway", "server"]).unwrap()];
    println!("{answered} of {sent} datagrams were answered; at the ends and by links were lost {elsewhere:?}");
    if is_accelerated {
        let is_elsewhere = lost.len() as u64 <= elsewhere.iter().sum();
        assert!(is_elsewhere, "lost {lost:?}, at the ends and by links {elsewhere:?}\n{said}");
    } else {
        let outage = lost.last().map_or(0, |last| last - lost[0] + 1);
        assert_eq!(outage, lost.len() as u64, "only those of the time without a gateway: {lost:?}");
        assert!(lost.last().is_none_or(|last| last + 500 < sent), "the stream goes on: {lost:?} of {sent}\n{said}");
    }
    let log = log(&lab);
    let gone = events(&log, "removed", "gone");
    assert_eq!(gone.len(), 1, "{log:?}");
    assert!(gone[0]["outside"] == "192.0.2.9" && gone[0]["created"].is_string(), "{}", gone[0]);
    assert_eq!((events(&log, "adopted", "cgn").len(), events(&log, "adopted", "gone").len()), (2, 0), "{log:?}");
    // The end, which without a run directory is that of everything.
    let ended = events(&log, "removed", "cgn").len();
    assert_eq!(
        (ended, log.iter().any(|line| line["event"] == "all-removed")),
        if home.exists() { (0, false) } else { (2, true) },
        "{log:?}"
    );
}

#[test]
fn flows_go_on_in_the_kernel_while_pools_capacity_and_services_change() {
    if !skip_without("flows_go_on_in_the_kernel_while_pools_capacity_and_services_change", &["iperf3"]) {
        flows_go_on("fastpath = \"tc\"", [TOMBOLO; 2], true);
    }
}

#[test]
fn flows_go_on_in_the_engine_while_pools_capacity_and_services_change() {
    if !skip_without("flows_go_on_in_the_engine_while_pools_capacity_and_services_change", &["iperf3"]) {
        flows_go_on("run_directory = \"RUN\"", [TOMBOLO; 2], false);
    }
}

/// A gateway of another version, whose records lie otherwise: `scripts/former.sh` makes it.
fn former(test: &str) -> Option<String> {
    if skip_without(test, &["iperf3"]) {
        return None;
    }
    let former = std::env::var("TOMBOLO_FORMER").ok();
    if former.is_none() {
        tombolo_lab::skip(test, "there is no gateway to upgrade from: TOMBOLO_FORMER=$(scripts/former.sh)");
    }
    former
}

#[test]
fn flows_go_on_in_the_kernel_over_an_upgrade_between_two_layouts() {
    if let Some(former) = former("flows_go_on_in_the_kernel_over_an_upgrade_between_two_layouts") {
        flows_go_on("fastpath = \"tc\"", [&former, TOMBOLO], true);
    }
}

#[test]
fn flows_go_on_in_the_engine_over_an_upgrade_between_two_layouts() {
    if let Some(former) = former("flows_go_on_in_the_engine_over_an_upgrade_between_two_layouts") {
        flows_go_on("run_directory = \"RUN\"", [&former, TOMBOLO], false);
    }
}

/// Flows of a host that begin one after the other, and the endpoints that the server sees them come from.
struct Beginners {
    flows: Vec<(Instant, UdpSocket, String)>,
}

impl Beginners {
    fn answer(socket: &UdpSocket) -> Option<String> {
        let mut answer = [0; 64];
        let length = socket.recv(&mut answer).ok()?;
        Some(String::from_utf8_lossy(&answer[..length]).into_owned())
    }

    fn begin(&mut self, lab: &Lab) {
        let socket = lab.node("client").unwrap().run(|| UdpSocket::bind("[::]:0").unwrap()).unwrap();
        socket.connect("[64:ff9b::c633:6402]:99".parse::<SocketAddr>().unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let _ = socket.send(b"who am I?");
        if let Some(seen) = Self::answer(&socket) {
            self.flows.push((Instant::now(), socket, seen));
        }
    }

    /// A datagram of each of them.
    fn go_on(&self) {
        for (_, socket, _) in &self.flows {
            let _ = socket.send(b"who am I?");
        }
    }

    /// When those began that had another endpoint at some time, or have none.
    fn changed(&self) -> Vec<Instant> {
        self.go_on();
        let is_changed = |socket: &UdpSocket, seen: &String| {
            let mut answers = std::iter::from_fn(|| Self::answer(socket)).peekable();
            answers.peek().is_none() || answers.any(|answer| answer != *seen)
        };
        std::thread::sleep(Duration::from_millis(500));
        for (_, socket, _) in &self.flows {
            socket.set_nonblocking(true).unwrap();
        }
        self.flows.iter().filter(|(_, socket, seen)| is_changed(socket, seen)).map(|(began, ..)| *began).collect()
    }
}

/// Tells whoever asks where he comes from, until nobody has for a while.
fn tell_where_from(lab: &Lab) {
    let socket = lab.node("server").unwrap().run(|| UdpSocket::bind("198.51.100.2:99").unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    std::thread::spawn(move || {
        while let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
            let _ = socket.send_to(from.to_string().as_bytes(), from);
        }
    });
}

#[test]
fn flows_that_begin_while_the_next_gateway_starts_go_on() {
    if skip_without("flows_that_begin_while_the_next_gateway_starts_go_on", &[]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    tell_where_from(&lab);
    let gateway = start(&lab, "fastpath = \"tc\"", BEFORE);
    let mut flows = Beginners { flows: Vec::new() };
    wait_until("the host is known to the programs", PATIENCE, || {
        flows.begin(&lab);
        (flows.flows.len() > 10).then_some(())
    })
    .unwrap();
    end(gateway, Signal::SIGKILL);
    let is_ready = AtomicBool::new(false);
    let (mut next, mut ready) = (None, None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            next = Some(start(&lab, "fastpath = \"tc\"", AFTER));
            ready = Some(Instant::now());
            is_ready.store(true, Ordering::Release);
        });
        while !is_ready.load(Ordering::Acquire) {
            flows.begin(&lab);
            flows.go_on();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let (next, ready) = (next.unwrap(), ready.unwrap());
    let changed: Vec<Duration> = flows.changed().into_iter().map(|began| ready.duration_since(began)).collect();
    println!("{} of {} flows have another endpoint; they began {changed:?} before", changed.len(), flows.flows.len());
    assert!(flows.flows.len() > 30, "{}", next.stderr());
    // Those of the moment in which the programs are exchanged, which is shortly before.
    assert!(changed.iter().all(|ago| *ago < Duration::from_millis(500)), "{changed:?}\n{}", next.stderr());
    end(next, Signal::SIGTERM);
}

#[test]
fn state_in_files_goes_over_to_another_plan_and_back_out_of_the_kernel() {
    let name = "state_in_files_goes_over_to_another_plan_and_back_out_of_the_kernel";
    if skip_without(name, &[]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let _echo = Peer::udp_echo(lab.node("server").unwrap(), "198.51.100.2:7".parse().unwrap()).unwrap();
    let home = lab.directory().unwrap().join("run");
    let files = format!("run_directory = \"{}\"", home.display());
    let kernel = format!("{files}\nfastpath = \"tc\"");
    let mut known = None;
    for (gateway, plan) in [(&files, BEFORE), (&files, AFTER), (&kernel, AFTER), (&kernel, BEFORE), (&files, AFTER)] {
        let running = start(&lab, gateway, plan);
        if known.is_none() {
            for to in ["[64:ff9b::c633:6402]:7", "198.51.100.2:7", "[2001:db8:64::c633:6402]:7"] {
                ask(&lab, to);
            }
            std::thread::sleep(Duration::from_secs(3));
        }
        let found = ["nat64", "cgn"].map(|service| bindings(&lab, service));
        assert_eq!(found.each_ref().map(Vec::len), [1, 1], "{}", running.stderr());
        assert_eq!(known.get_or_insert_with(|| found.clone()), &found);
        end(running, Signal::SIGTERM);
        assert!(!home.join("former").exists());
    }
    let log = log(&lab);
    assert_eq!(events(&log, "removed", "gone").len(), 1, "{log:?}");
    assert_eq!(events(&log, "removed", "cgn").len(), 0, "{log:?}");
}

#[test]
fn after_a_reboot_what_was_open_is_closed_in_the_log() {
    if skip_without("after_a_reboot_what_was_open_is_closed_in_the_log", &[]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let _echo = Peer::udp_echo(lab.node("server").unwrap(), "198.51.100.2:7".parse().unwrap()).unwrap();
    let home = lab.directory().unwrap().join("run");
    let files = format!("run_directory = \"{}\"", home.display());
    let gateway = start(&lab, &files, BEFORE);
    ask(&lab, "198.51.100.2:7");
    std::thread::sleep(Duration::from_secs(2));
    end(gateway, Signal::SIGKILL);
    reboot(&home);
    let last = Utc::now();
    std::thread::sleep(Duration::from_secs(3));
    let gateway = start(&lab, &files, BEFORE);
    assert!(gateway.stderr().contains("before the system was started anew"), "{}", gateway.stderr());
    assert!(bindings(&lab, "cgn").is_empty());
    end(gateway, Signal::SIGTERM);
    let log = log(&lab);
    let removed = events(&log, "removed", "cgn");
    assert_eq!(removed.len(), 1, "{log:?}");
    let second = |value: &Value| Utc::parse(value.as_str().unwrap()).unwrap();
    assert!(second(&removed[0]["time"]) <= last && second(&removed[0]["created"]) <= second(&removed[0]["time"]));
    let created = events(&log, "created", "cgn");
    assert!(second(&removed[0]["created"]).0.abs_diff(second(&created[0]["time"]).0) <= 2, "{log:?}");
}

/// As if the system had been started anew: the tables are of another boot.
fn reboot(home: &Path) {
    let marker = home.join("fingerprint");
    let text = fs::read_to_string(&marker).unwrap();
    let boot = text.lines().find(|line| line.starts_with("boot ")).unwrap();
    fs::write(&marker, text.replace(boot, "boot 00000000-0000-0000-0000-000000000000")).unwrap();
}

#[test]
fn what_a_gateway_without_a_run_directory_had_open_has_ended() {
    if skip_without("what_a_gateway_without_a_run_directory_had_open_has_ended", &[]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let _echo = Peer::udp_echo(lab.node("server").unwrap(), "198.51.100.2:7".parse().unwrap()).unwrap();
    let gateway = start(&lab, "", BEFORE);
    ask(&lab, "198.51.100.2:7");
    std::thread::sleep(Duration::from_secs(2));
    end(gateway, Signal::SIGKILL);
    let gateway = start(&lab, "", BEFORE);
    let killed = log(&lab);
    assert!(killed.iter().any(|line| line["event"] == "all-removed"), "{killed:?}");
    let created = events(&killed, "created", "cgn");
    let (outside, port) = (created[0]["outside"].as_str().unwrap(), created[0]["outside_port"].to_string());
    let who = |time: &str| {
        let command =
            lab.node("gateway").unwrap().command(TOMBOLO).args(["binding", "who", outside, &port, time, "--json"]);
        command.run().unwrap().stdout
    };
    assert!(who(created[0]["time"].as_str().unwrap()).contains("10.0.0.2"));
    // When it was killed after the last word of the log is not known, but it was before the next start.
    std::thread::sleep(Duration::from_secs(6));
    let later = Utc::parse(killed.last().unwrap()["time"].as_str().unwrap()).unwrap();
    assert!(!who(&Utc(later.0 + 1).to_string()).contains("\"service\":\"cgn\",\"protocol\":\"udp\""));
    ask(&lab, "198.51.100.2:7");
    std::thread::sleep(Duration::from_secs(2));
    end(gateway, Signal::SIGTERM);
    let stopped = log(&lab);
    assert_eq!(events(&stopped, "removed", "cgn").len(), 1, "{stopped:?}");
    let last: Vec<&Value> = stopped[stopped.len() - 2..].iter().map(|line| &line["event"]).collect();
    assert_eq!(last, ["all-removed", "stop"]);
}

//! A NAT44 as users run it, with real traffic through it, in a lab. Needs root and skips loudly
//! without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use nix::sys::signal::Signal;
use tombolo_lab::{Lab, Peer, Process, Topology, skip_without};

const TOMBOLO: &str = env!("CARGO_BIN_EXE_tombolo");
const READY: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(20);
const LENGTH: usize = 20_000_000;
const CONFIGURATION: &str = r#"
[[service]]
kind   = "nat44"
inside = ["10.0.0.0/24"]
pool   = [{ addresses = "192.0.2.0/28", ports = "1024-65535" }]
static = [{ inside = "10.0.0.2:8080", outside = "192.0.2.1:8080", protocol = "tcp" }]
"#;

fn start() -> (Lab, Process) {
    start_in(Lab::create(&Topology::client_gateway_server()).unwrap(), "")
}

/// With `more` at the end of the service.
fn start_in(lab: Lab, more: &str) -> (Lab, Process) {
    let file = lab.directory().unwrap().join("gateway.toml");
    // Included by fastpath.rs under this name, everything runs with the fast path.
    let fastpath = if module_path!().ends_with("with_tc") { "tc" } else { "off" };
    fs::write(&file, format!("[gateway]\nfastpath = \"{fastpath}\"\n{CONFIGURATION}{more}")).unwrap();
    let command = lab.node("gateway").unwrap().command(TOMBOLO).args(["run", "-c"]);
    let mut gateway = command.arg(file.display().to_string()).spawn().unwrap();
    gateway.wait_for_text("ready", READY).unwrap();
    (lab, gateway)
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Bytes that are the same nowhere else in the stream.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| u8::try_from((n * 31 + n / 251) % 256).unwrap()).collect()
}

/// Sends [`LENGTH`] bytes from `from` to `to`, where `listen` sends them back reversed; who it saw
/// as its client.
fn exchange(lab: &Lab, from: &str, to: SocketAddr, listen: (&str, SocketAddr)) -> SocketAddr {
    let bytes = pattern(LENGTH);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let server = lab.node(listen.0).unwrap().spawn(move || {
        let listener = TcpListener::bind(listen.1).unwrap();
        ready.send(()).unwrap();
        let (mut stream, peer) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = vec![0; LENGTH];
        stream.read_exact(&mut received).unwrap();
        received.reverse();
        stream.write_all(&received).unwrap();
        peer
    });
    let server = server.unwrap();
    is_ready.recv_timeout(PATIENCE).unwrap();
    let mut answer = lab
        .node(from)
        .unwrap()
        .run(|| {
            let mut stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&bytes).unwrap();
            let mut answer = vec![0; LENGTH];
            stream.read_exact(&mut answer).unwrap();
            answer
        })
        .unwrap();
    answer.reverse();
    assert!(answer == bytes, "the bytes that came back are not those that were sent");
    server.join().unwrap().unwrap()
}

#[test]
fn hosts_with_private_addresses_and_a_server_reach_each_other() {
    if skip_without("hosts_with_private_addresses_and_a_server_reach_each_other", &["ping", "ip"]) {
        return;
    }
    let (lab, mut gateway) = start();
    let client = lab.node("client").unwrap();
    client.command("ping").args(["-c", "3", "-i", "0.2", "198.51.100.2"]).run().unwrap().success().unwrap();
    // The gateway itself is reached as before, and answers for packets whose time is over.
    client.command("ping").args(["-c", "1", "10.0.0.1"]).run().unwrap().success().unwrap();
    // What the fast path translates passes the kernel once, not twice.
    let ttl = if module_path!().ends_with("with_tc") { "1" } else { "2" };
    let short = client.command("ping").args(["-c", "1", "-W", "2", "-t", ttl, "198.51.100.2"]).run().unwrap();
    assert!(short.stdout.contains("Time to live exceeded"), "{}", short.stdout);

    let echo = Peer::udp_echo(lab.node("server").unwrap(), address("198.51.100.2:7")).unwrap();
    for length in [0, 1, 512, 1472, 5000] {
        let payload = pattern(length);
        let answer = client.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send_to(&payload, address("198.51.100.2:7")).unwrap();
            let mut answer = vec![0; 65_536];
            let (length, _) = socket.recv_from(&mut answer).unwrap();
            answer.truncate(length);
            answer
        });
        assert!(answer.unwrap() == payload, "{length} bytes");
    }
    let seen = echo.last_client().unwrap();
    assert!(seen.to_string().starts_with("192.0.2.") && seen.port() >= 1024, "{seen}");

    let outward = exchange(&lab, "client", address("198.51.100.2:5000"), ("server", address("198.51.100.2:5000")));
    assert!(outward.to_string().starts_with("192.0.2."), "{outward}");
    let inward = exchange(&lab, "server", address("192.0.2.1:8080"), ("client", address("10.0.0.2:8080")));
    assert_eq!(inward.ip(), address("198.51.100.2:0").ip());
    // Round the hairpin, to the host's own static binding: the source is one of the pool.
    let turned = exchange(&lab, "client", address("192.0.2.1:8080"), ("client", address("10.0.0.2:8080")));
    assert!(turned.to_string().starts_with("192.0.2."), "{turned}");

    let rules = || {
        let node = lab.node("gateway").unwrap();
        ["rule", "route show table 84"].map(|what| node.command("ip").args(what.split(' ')).run().unwrap().stdout)
    };
    let [running, table] = rules();
    assert!(running.contains("from 10.0.0.0/24 lookup 84") && running.contains("iif tombolo lookup main"), "{running}");
    assert!(table.contains("default dev tombolo") && table.contains("throw 10.0.0.0/24"), "{table}");
    gateway.signal(Signal::SIGTERM).unwrap();
    gateway.wait(PATIENCE).unwrap().success().unwrap();
    // Private sources stay in until the operator lets them go (tests/reliability.rs).
    let [after, table] = rules();
    assert!(after.contains("from 10.0.0.0/24 lookup 84") && table.contains("prohibit default"), "{after}{table}");
    lab.node("gateway").unwrap().command(TOMBOLO).args(["down"]).run().unwrap().success().unwrap();
    let [after, table] = rules();
    assert!(!after.contains("84") && table.is_empty(), "{after}{table}");
}

/// Who sends `length` bytes to a port of the server, and gets them back, as the server sees it.
fn seen_by_server(lab: &Lab, port: u16, length: usize) -> SocketAddr {
    let to = SocketAddr::new([198, 51, 100, 2].into(), port);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let server = lab.node("server").unwrap().spawn(move || {
        let socket = UdpSocket::bind(to).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        ready.send(()).unwrap();
        let mut received = vec![0; 65_536];
        let (length, from) = socket.recv_from(&mut received).unwrap();
        socket.send_to(&received[..length], from).unwrap();
        from
    });
    let server = server.unwrap();
    is_ready.recv_timeout(PATIENCE).unwrap();
    let payload = pattern(length);
    let answer = lab.node("client").unwrap().run(|| {
        let socket = UdpSocket::bind("10.0.0.2:4000").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(&payload, to).unwrap();
        let mut answer = vec![0; 65_536];
        let (length, _) = socket.recv_from(&mut answer).unwrap();
        answer.truncate(length);
        answer
    });
    assert!(answer.unwrap() == payload, "port {port}, {length} bytes");
    server.join().unwrap().unwrap()
}

#[test]
fn a_port_that_is_not_translated_sees_the_hosts_own_address() {
    if skip_without("a_port_that_is_not_translated_sees_the_hosts_own_address", &["ip"]) {
        return;
    }
    for strictness in ["0", "2"] {
        let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
        // Also for the device that is yet to come.
        let set = |of: &str| fs::write(format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"), strictness).unwrap();
        lab.node("gateway").unwrap().run(|| ["all", "default"].map(set)).unwrap();
        let back = ["route", "add", "10.0.0.0/24", "via", "198.51.100.1"];
        lab.node("server").unwrap().command("ip").args(back).run().unwrap().success().unwrap();
        let exempt = "untranslated = [{ addresses = \"198.51.100.2\", ports = \"5300\", protocols = [\"udp\"] }]\n";
        let (lab, mut gateway) = start_in(lab, exempt);
        // Fragments, too.
        for length in [100, 5000] {
            assert_eq!(seen_by_server(&lab, 5300, length), address("10.0.0.2:4000"), "rp_filter {strictness}");
            assert!(seen_by_server(&lab, 5301, length).ip() != address("10.0.0.2:0").ip(), "rp_filter {strictness}");
        }
        gateway.signal(Signal::SIGTERM).unwrap();
        gateway.wait(PATIENCE).unwrap().success().unwrap();
    }
}

//! The gateway as users run it, with real traffic through it, in a lab. Needs root and skips loudly
//! without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use tombolo_lab::{Lab, Peer, Process, Topology, skip_without, wait_until};

const TOMBOLO: &str = env!("CARGO_BIN_EXE_tombolo");
const READY: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(10);
const SERVICE: &str = r#"
[[service]]
kind   = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
pool   = [{ addresses = "192.0.2.0/28", ports = "1024-65535" }]
static = [{ inside = "[2001:db8:1::2]:8080", outside = "192.0.2.1:8080", protocol = "tcp" }]
"#;

struct Setup {
    lab: Lab,
    gateway: Process,
}

fn start(more: &str) -> Setup {
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let gateway = start_in(&lab, more);
    Setup { lab, gateway }
}

fn start_in(lab: &Lab, more: &str) -> Process {
    let more = more.strip_prefix("[gateway]\n").unwrap_or(more);
    run(lab, "gateway", &format!("{more}{SERVICE}"))
}

/// Starts a gateway with this in its configuration, of that name, behind `[gateway]`.
fn run(lab: &Lab, name: &str, text: &str) -> Process {
    let file = lab.directory().unwrap().join(format!("{name}.toml"));
    // Included by fastpath.rs under this name, everything runs with the fast path.
    let fastpath = if module_path!().ends_with("with_tc") { "fastpath = \"tc\"\n" } else { "fastpath = \"off\"\n" };
    fs::write(&file, format!("[gateway]\n{fastpath}{text}")).unwrap();
    let command = lab.node("gateway").unwrap().command(TOMBOLO).args(["run", "-c"]);
    let mut gateway = command.arg(file.display().to_string()).spawn().unwrap();
    gateway.wait_for_text("ready", READY).unwrap();
    gateway
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Bytes that are the same nowhere else in the stream.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| u8::try_from((n * 31 + n / 251) % 256).unwrap()).collect()
}

/// Sends `bytes` to whatever listens at `to` in `client`, from which `serve` in the server sends
/// them back reversed.
fn exchange(lab: &Lab, from: &str, to: SocketAddr, listen: (&str, SocketAddr)) -> SocketAddr {
    let bytes = pattern(3_000_000);
    let expected: Vec<u8> = bytes.iter().rev().copied().collect();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let server = lab.node(listen.0).unwrap().spawn(move || {
        let listener = TcpListener::bind(listen.1).unwrap();
        ready.send(()).unwrap();
        let (mut stream, peer) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = vec![0; 3_000_000];
        stream.read_exact(&mut received).unwrap();
        received.reverse();
        stream.write_all(&received).unwrap();
        peer
    });
    let server = server.unwrap();
    is_ready.recv_timeout(PATIENCE).unwrap();
    let answer = lab.node(from).unwrap().run(move || {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let sender = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
        let mut answer = vec![0; 3_000_000];
        stream.read_exact(&mut answer).unwrap();
        sender.join().unwrap();
        answer
    });
    assert!(answer.unwrap() == expected, "the bytes that came back are not those that were sent");
    server.join().unwrap().unwrap()
}

fn udp_round_trip(lab: &Lab, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let client = lab.node("client").unwrap();
    client
        .run(|| {
            let socket = UdpSocket::bind("[::]:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send_to(payload, to).unwrap();
            let mut answer = vec![0; 65_536];
            let (length, from) = socket.recv_from(&mut answer).unwrap();
            assert_eq!(from.ip(), to.ip());
            answer.truncate(length);
            answer
        })
        .unwrap()
}

#[test]
fn an_ipv6_only_host_and_an_ipv4_server_reach_each_other() {
    if skip_without("an_ipv6_only_host_and_an_ipv4_server_reach_each_other", &["ping"]) {
        return;
    }
    let Setup { lab, gateway } = start("");
    let ping = lab.node("client").unwrap().command("ping").args(["-c", "3", "-i", "0.2", "64:ff9b::198.51.100.2"]);
    ping.run().unwrap().success().unwrap();

    let echo = Peer::udp_echo(lab.node("server").unwrap(), address("198.51.100.2:7")).unwrap();
    for length in [0, 1, 512, 1200] {
        let payload = pattern(length);
        assert_eq!(udp_round_trip(&lab, address("[64:ff9b::c633:6402]:7"), &payload), payload);
    }
    let seen = echo.last_client().unwrap();
    assert!(seen.to_string().starts_with("192.0.2.") && seen.port() >= 1024, "{seen}");

    let outward =
        exchange(&lab, "client", address("[64:ff9b::c633:6402]:5000"), ("server", address("198.51.100.2:5000")));
    assert!(outward.to_string().starts_with("192.0.2."), "{outward}");
    let inward = exchange(&lab, "server", address("192.0.2.1:8080"), ("client", address("[2001:db8:1::2]:8080")));
    assert_eq!(inward.ip(), address("[64:ff9b::c633:6402]:0").ip());
    drop(gateway);
}

#[test]
fn nothing_is_left_on_the_host_after_sigint_and_sigterm() {
    if skip_without("nothing_is_left_on_the_host_after_sigint_and_sigterm", &["ip"]) {
        return;
    }
    let Setup { lab, mut gateway } = start("");
    let state = || {
        let node = lab.node("gateway").unwrap();
        ["link", "route", "-6 route", "addr"].map(|what| {
            node.command("ip").args(what.split(' ')).run().unwrap().success().unwrap().stdout.replace("lft forever", "")
        })
    };
    let running = state();
    assert!(
        running[0].contains("tombolo") && running[1].contains("192.0.2.0/28") && running[2].contains("64:ff9b::/96")
    );
    let mut before: Option<[String; 4]> = None;
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        gateway.signal(signal).unwrap();
        let output = gateway.wait(PATIENCE).unwrap().success().unwrap();
        assert!(output.stderr.contains("stopped"), "{}", output.stderr);
        let after = state();
        assert!(!after[0].contains("tombolo:"), "{}", after[0]);
        assert!(!after[1].contains("192.0.2.") && !after[2].contains("64:ff9b"), "{after:?}");
        assert!(before.is_none_or(|before| before == after));
        before = Some(after);
        gateway = start_in(&lab, "");
    }
}

#[test]
fn a_reload_keeps_connections_and_a_bad_file_keeps_the_old_plan() {
    if skip_without("a_reload_keeps_connections_and_a_bad_file_keeps_the_old_plan", &[]) {
        return;
    }
    let Setup { lab, mut gateway } = start("");
    let server = lab.node("server").unwrap().run(|| TcpListener::bind("198.51.100.2:5000").unwrap()).unwrap();
    let connect = || TcpStream::connect_timeout(&address("[64:ff9b::c633:6402]:5000"), PATIENCE).unwrap();
    let mut client = lab.node("client").unwrap().run(connect).unwrap();
    let (mut accepted, _) = server.accept().unwrap();
    accepted.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut say = |word: &[u8; 4]| {
        client.write_all(word).unwrap();
        let mut heard = [0; 4];
        accepted.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, word);
    };
    say(b"one.");
    let file = lab.directory().unwrap().join("gateway.toml");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, good.replace("8080\", protocol", "9090\", protocol")).unwrap();
    gateway.signal(Signal::SIGHUP).unwrap();
    gateway.wait_for_text("configuration reloaded", PATIENCE).unwrap();
    say(b"two.");
    exchange(&lab, "server", address("192.0.2.1:9090"), ("client", address("[2001:db8:1::2]:8080")));
    fs::write(&file, "[[service]]\nkind = \"nonsense\"\n").unwrap();
    gateway.signal(Signal::SIGHUP).unwrap();
    gateway.wait_for_text("configuration not reloaded", PATIENCE).unwrap();
    say(b"thr.");
}

#[test]
fn state_in_a_run_directory_survives_a_kill() {
    if skip_without("state_in_a_run_directory_survives_a_kill", &[]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let settings = format!("[gateway]\nrun_directory = \"{}\"\n", home.path().display());
    let Setup { lab, mut gateway } = start(&settings);
    let server = lab.node("server").unwrap().run(|| TcpListener::bind("198.51.100.2:5000").unwrap()).unwrap();
    let connect = || TcpStream::connect_timeout(&address("[64:ff9b::c633:6402]:5000"), PATIENCE).unwrap();
    let mut client = lab.node("client").unwrap().run(connect).unwrap();
    let (mut accepted, before) = server.accept().unwrap();
    gateway.signal(Signal::SIGKILL).unwrap();
    wait_until("the gateway is gone", PATIENCE, || (!gateway.is_running()).then_some(())).unwrap();
    let _gateway = start_in(&lab, &settings);
    client.write_all(b"still here").unwrap();
    accepted.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut heard = [0; 10];
    accepted.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"still here", "the connection from {before} goes on");
}

#[test]
fn traceroute_and_path_mtu_discovery_cross_the_gateway() {
    if skip_without("traceroute_and_path_mtu_discovery_cross_the_gateway", &["traceroute", "ping"]) {
        return;
    }
    let Setup { lab, gateway } = start("");
    let run = |node: &str, command: &str| {
        let mut words = command.split(' ');
        let program = words.next().unwrap();
        lab.node(node).unwrap().command(program).args(words).run().unwrap()
    };
    // The kernel sends six errors at once to a host, then one a second; simultaneous probes would
    // miss an answer now and then.
    for key in ["net.ipv4.icmp_ratelimit", "net.ipv6.icmp.ratelimit"] {
        lab.node("gateway").unwrap().set_sysctl(key, "0").unwrap();
    }
    // Kernel, gateway, kernel again, server: every hop answers, and hops beyond have addresses
    // inside the prefix. traceroute waits, unless told otherwise, ten times what the next hop took:
    // too little on a busy machine.
    let outward = run("client", "traceroute -6 -n -q 1 -w 5,0,0 -m 6 64:ff9b::198.51.100.2").stdout;
    assert!(!outward.contains('*') && outward.contains("2001:db8:1::1") && outward.contains("64:ff9b::"), "{outward}");
    let inward = run("server", "traceroute -n -q 1 -w 5,0,0 -m 6 -T -p 8080 192.0.2.1").stdout;
    // What the fast path translates passes the kernel once, not twice.
    let hops = if module_path!().ends_with("with_tc") { 1 } else { 2 };
    assert!(!inward.contains('*') && inward.matches("198.51.100.1 ").count() >= hops, "{inward}");

    // Larger than any link, in fragments, both ways of the echo.
    run("client", "ping -c 2 -i 0.2 -W 5 -s 20000 64:ff9b::198.51.100.2").success().unwrap();
    // An outside link of 1400 bytes is seen as 1420 from inside.
    let node = lab.node("gateway").unwrap();
    node.set_mtu("outside0", 1400).unwrap();
    lab.node("server").unwrap().set_mtu("outside0", 1400).unwrap();
    let first = run("client", "ping -c 2 -i 0.2 -W 2 -M do -s 1432 64:ff9b::198.51.100.2");
    assert!(format!("{}{}", first.stdout, first.stderr).contains("1420"), "{} {}", first.stdout, first.stderr);
    run("client", "ping -c 2 -i 0.2 -W 5 -M do -s 1372 64:ff9b::198.51.100.2").success().unwrap();
    let listen = ("server", address("198.51.100.2:5000"));
    exchange(&lab, "client", address("[64:ff9b::c633:6402]:5000"), listen);
    drop(gateway);
}

#[test]
fn what_is_wrong_is_said_with_the_fix() {
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(TOMBOLO).args(arguments).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, text) = run(&["run", "-c", "/nonexistent/gateway.toml"]);
    assert_eq!(status, Some(1));
    assert!(text.contains("/nonexistent/gateway.toml"), "{text}");
    let (status, text) = run(&["run"]);
    assert_eq!(status, Some(2));
    assert!(text.contains("--config"), "{text}");
}

#[test]
fn lacking_privileges_are_diagnosed() {
    if skip_without("lacking_privileges_are_diagnosed", &["setpriv"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let file = lab.directory().unwrap().join("gateway.toml");
    fs::write(&file, SERVICE).unwrap();
    let drop_all = ["--bounding-set=-all", "--inh-caps=-all", TOMBOLO, "run", "-c"];
    let command = lab.node("gateway").unwrap().command("setpriv").args(drop_all);
    let output = command.arg(file.display().to_string()).run().unwrap();
    assert!(output.stderr.contains("CAP_NET_ADMIN"), "{}", output.stderr);
    assert!(output.success().is_err());
}

/// RFC 7915 section 5.6: what a more specific route leads elsewhere is forwarded untranslated.
#[test]
fn a_network_of_the_host_inside_the_prefix_stays_where_it_is() {
    if skip_without("a_network_of_the_host_inside_the_prefix_stays_where_it_is", &["ip", "ping"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let ip = |node: &str, arguments: &str| {
        lab.node(node).unwrap().command("ip").args(arguments.split(' ')).run().unwrap().success().unwrap();
    };
    ip("gateway", "address add 2001:db8:64:1::1/64 dev outside0 nodad");
    ip("server", "address add 2001:db8:64:1::2/64 dev outside0 nodad");
    ip("server", "-6 route add 2001:db8:1::/64 via 2001:db8:64:1::1");
    let _gateway = run(&lab, "gateway", &SERVICE.replace("64:ff9b::/96", "2001:db8:64::/48"));
    let pings = |address: &str| {
        let client = lab.node("client").unwrap();
        client.command("ping").args(["-n", "-c", "1", "-W", "1", address]).run().unwrap().status.success().then_some(())
    };
    // 198.51.100.2 in the prefix, and the host in it that is none of the gateway's.
    wait_until("the IPv4 host answers", PATIENCE, || pings("2001:db8:64:c633:64:200::")).unwrap();
    wait_until("the IPv6 host answers", PATIENCE, || pings("2001:db8:64:1::2")).unwrap();
}

/// As for two networks with hosts of their own each: neither takes the other's packets, and the end of one is not the
/// other's.
#[test]
fn two_gateways_share_a_host() {
    if skip_without("two_gateways_share_a_host", &["ip"]) {
        return;
    }
    let Setup { lab, mut gateway } = start("");
    let other =
        "[[service]]\nkind = \"nat64\"\nprefix = \"2001:db8:64::/96\"\npool = [{ addresses = \"203.0.113.0/28\" }]\n";
    let route = ["route", "add", "203.0.113.0/24", "via", "198.51.100.1"];
    lab.node("server").unwrap().command("ip").args(route).run().unwrap().success().unwrap();
    let _other = run(&lab, "other", &format!("device = \"other\"\ntable = 184\n{other}"));
    let echo = Peer::udp_echo(lab.node("server").unwrap(), address("198.51.100.2:7")).unwrap();
    let serves = |prefix: &str, pool: &str| {
        let to = address(&format!("[{prefix}c633:6402]:7"));
        for length in 1..20 {
            assert_eq!(udp_round_trip(&lab, to, &pattern(length)), pattern(length));
            let seen = echo.last_client().unwrap().to_string();
            assert!(seen.starts_with(pool), "{seen}");
        }
    };
    for _ in 0..2 {
        serves("64:ff9b::", "192.0.2.");
        serves("2001:db8:64::", "203.0.113.");
    }
    gateway.signal(Signal::SIGTERM).unwrap();
    wait_until("the first one is gone", PATIENCE, || (!gateway.is_running()).then_some(())).unwrap();
    serves("2001:db8:64::", "203.0.113.");
}

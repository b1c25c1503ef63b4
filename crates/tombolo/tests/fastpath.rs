//! The gateway with the kernel's fast path: everything that works without works with it, and it
//! goes on while the gateway is away. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tombolo_lab::{Lab, Process, Topology, dropped_by_links, skip_without, wait_until};

mod flows;
mod running;

#[path = "gateway.rs"]
mod gateway_with_tc;

#[path = "nat44.rs"]
mod nat44_with_tc;

#[path = "control.rs"]
mod control_with_tc;

use flows::{EndOnDrop, Stream, segments_lost};
use running::{PATIENCE, TOMBOLO, pins, run, show};

const CONFIGURATION: &str = r#"
[gateway]
fastpath = "tc"

[capacity]
subscribers = 100
bindings = 10000
sessions = 10000

[[service]]
kind   = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
pool   = [{ addresses = "192.0.2.1", ports = "1024-65535" }]
"#;

fn start(lab: &Lab) -> Process {
    let file = lab.directory().unwrap().join("gateway.toml");
    run(TOMBOLO, lab, &file)
}

fn setup() -> (Lab, Process) {
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    fs::write(lab.directory().unwrap().join("gateway.toml"), CONFIGURATION).unwrap();
    let gateway = start(&lab);
    (lab, gateway)
}

fn row<'r>(rows: &'r [Value], what: &str, name: &str) -> &'r Value {
    let found = rows.iter().find(|row| row["what"] == what && row["name"] == name);
    found.unwrap_or_else(|| panic!("no {what} {name} in {rows:?}"))
}

#[test]
fn known_sessions_go_on_while_the_gateway_is_killed_and_comes_back() {
    if skip_without("known_sessions_go_on_while_the_gateway_is_killed_and_comes_back", &["iperf3"]) {
        return;
    }
    let (lab, mut gateway) = setup();
    let _echo = tombolo_lab::Peer::udp_echo(lab.node("server").unwrap(), "198.51.100.2:7".parse().unwrap()).unwrap();
    let server = lab.node("server").unwrap().command("iperf3").args(["-s", "-1", "--forceflush"]);
    let mut server = server.spawn().unwrap();
    server.wait_for_text("Server listening", PATIENCE).unwrap();
    let client = lab.node("client").unwrap().command("iperf3");
    // At a rate and with a window that no queue of the lab overflows from.
    let words = ["-c", "64:ff9b::c633:6402", "-t", "8", "-i", "0.25", "-b", "300M", "-w", "200K", "-J"];
    let iperf3 = client.args(words).spawn().unwrap();
    let stream = Stream::default();
    std::thread::scope(|scope| {
        scope.spawn(|| stream.run(&lab, "[64:ff9b::c633:6402]:7"));
        let _ends = EndOnDrop(&stream.stop);
        wait_until("the stream flows in the kernel", PATIENCE, || {
            let taken = show(&lab, "fastpath");
            let inside = row(&taken, "packets", "taken-inside")["value"].as_str().unwrap().parse::<u64>().unwrap();
            (stream.answered() > 500 && inside > 500).then_some(())
        })
        .unwrap();
        let before = stream.sent.load(Ordering::Acquire);
        gateway.signal(Signal::SIGKILL).unwrap();
        wait_until("the gateway is gone", PATIENCE, || (!gateway.is_running()).then_some(())).unwrap();
        let links = lab.node("gateway").unwrap().command("ip").args(["link"]).run().unwrap().stdout;
        assert!(!links.contains("tombolo:"), "the device went with the process: {links}");
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let without = stream.sent.load(Ordering::Acquire) - before;
        assert!(without > 500, "{without} were sent while the gateway was away");
        gateway = start(&lab);
        std::thread::sleep(Duration::from_secs(1));
    });
    let (sent, answered) = (stream.sent.load(Ordering::Acquire), stream.answered() as u64);
    println!("{answered} of {sent} datagrams were answered");
    assert_eq!(answered, sent, "not one datagram was lost");
    assert!(gateway.stderr().contains("state of the last run adopted"), "{}", gateway.stderr());
    let report: Value = serde_json::from_str(&iperf3.wait(PATIENCE).unwrap().success().unwrap().stdout).unwrap();
    let intervals = report["intervals"].as_array().unwrap();
    let slowest =
        intervals.iter().map(|interval| interval["sum"]["bits_per_second"].as_f64().unwrap()).fold(f64::MAX, f64::min);
    println!("slowest quarter of a second: {:.2} Gbit/s", slowest / 1e9);
    assert!(slowest > 0.0, "the connection never stood still");
    // What finds no room in the queue of a link that waits for a processor is not the gateway's loss.
    let (lost, by_links) =
        (segments_lost(&lab, "client"), dropped_by_links(&lab, &["client", "gateway", "server"]).unwrap());
    println!("{lost} segments were sent again, {by_links} packets dropped by links");
    assert!(lost <= by_links, "{lost} segments were lost, and {by_links} dropped by links");
    drop(server);
    gateway.signal(Signal::SIGTERM).unwrap();
    gateway.wait(PATIENCE).unwrap().success().unwrap();
    assert_eq!(pins(&lab), Vec::<PathBuf>::new(), "a clean end leaves nothing in the kernel");
}

/// Whether a datagram from the server's socket to the gateway's outside endpoint comes in to the client's.
fn comes_in(server: &UdpSocket, outside: SocketAddr, client: &UdpSocket) -> bool {
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    // An earlier one may be answered by an ICMP error, which the next call reports.
    wait_until("a datagram is sent", PATIENCE, || server.send_to(b"in", outside).ok()).unwrap();
    client.recv(&mut [0; 8]).is_ok()
}

#[test]
fn bindings_close_to_the_outside_in_time_while_no_gateway_runs() {
    if skip_without("bindings_close_to_the_outside_in_time_while_no_gateway_runs", &["ip"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    // SYNs whose segment size is lowered are always the engine's.
    let settings = "tcp_mss = \"off\"\n[timeouts]\nudp = 4\ntcp_transitory = 4\n";
    fs::write(lab.directory().unwrap().join("gateway.toml"), format!("{CONFIGURATION}{settings}")).unwrap();
    let mut gateway = start(&lab);
    let server = lab.node("server").unwrap();
    let echo = server.run(|| UdpSocket::bind("198.51.100.2:4000").unwrap()).unwrap();
    let listener = server.run(|| TcpListener::bind("198.51.100.2:4000").unwrap()).unwrap();
    let client = lab.node("client").unwrap().run(|| UdpSocket::bind("[::]:0").unwrap()).unwrap();
    let to = "[64:ff9b::c633:6402]:4000";
    let goes_out = || {
        client.send_to(b"out", to).unwrap();
        echo.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        echo.recv_from(&mut [0; 8]).ok().map(|(_, from)| from)
    };
    let outside = wait_until("a datagram goes out", PATIENCE, goes_out).unwrap();
    let mut connected = lab.node("client").unwrap().run(|| TcpStream::connect(to).unwrap()).unwrap();
    let (mut accepted, outside_tcp) = listener.accept().unwrap();
    // Nobody listens there: who comes in is refused by the host, not lost on the way.
    let syn_comes_in = || {
        let answer = server.run(|| TcpStream::connect_timeout(&outside_tcp, Duration::from_millis(700))).unwrap();
        answer.is_err_and(|why| why.kind() == ErrorKind::ConnectionRefused)
    };

    gateway.signal(Signal::SIGKILL).unwrap();
    wait_until("the gateway is gone", PATIENCE, || (!gateway.is_running()).then_some(())).unwrap();
    assert!(comes_in(&echo, outside, &client), "the binding lives on in the kernel");
    assert!(syn_comes_in(), "and that of TCP");
    // Two more ticks than the lifetimes have, and one that has begun.
    std::thread::sleep(Duration::from_secs(8));
    assert!(!comes_in(&echo, outside, &client), "what is over is closed");
    assert!(!syn_comes_in(), "that of TCP too, but to the connection");
    let mut word = [0; 4];
    accepted.write_all(b"down").unwrap();
    connected.set_read_timeout(Some(PATIENCE)).unwrap();
    connected.read_exact(&mut word).unwrap();
    // The host inside opens it again.
    assert_eq!(goes_out(), Some(outside));
    assert!(comes_in(&echo, outside, &client), "which the inside has opened");
}

#[test]
fn permissions_of_filtering_by_address_are_renewed_in_the_kernel() {
    if skip_without("permissions_of_filtering_by_address_are_renewed_in_the_kernel", &["ip"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let settings = "filtering = \"address-dependent\"\n[timeouts]\nudp = 4\n";
    fs::write(lab.directory().unwrap().join("gateway.toml"), format!("{CONFIGURATION}{settings}")).unwrap();
    let _gateway = start(&lab);
    let server = lab.node("server").unwrap();
    let at = |port: u16| {
        let socket = server.run(|| UdpSocket::bind(("198.51.100.2", port)).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket
    };
    let (first, second, third) = (at(4000), at(4001), at(4002));
    let client = lab.node("client").unwrap().run(|| UdpSocket::bind("[::]:0").unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let exchange = |server: &UdpSocket, port: u16| {
        client.send_to(b"out", format!("[64:ff9b::c633:6402]:{port}")).unwrap();
        let (_, from) = server.recv_from(&mut [0; 8]).ok()?;
        server.send_to(b"back", from).unwrap();
        client.recv_from(&mut [0; 8]).ok().map(|_| from)
    };
    let outside = wait_until("a datagram goes out and back", PATIENCE, || exchange(&first, 4000)).unwrap();
    let left = || {
        let shown = show(&lab, "fastpath");
        let row = shown.iter().find(|row| row["what"] == "left" && row["name"] == "permission");
        row.map_or(0, |row| row["value"].as_str().unwrap().parse::<u64>().unwrap())
    };
    let before = left();
    // Twice the lifetime of the permission, in which nothing but the kernel sees the flow.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(9) {
        assert_eq!(exchange(&first, 4000), Some(outside));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(exchange(&second, 4001), Some(outside), "another session with the same address");
    assert_eq!(left(), before, "all of it was the kernel's: {:?}", show(&lab, "fastpath"));
    // From a port that nothing was sent to; the permission is of the address.
    third.send_to(b"in", outside).unwrap();
    assert!(client.recv_from(&mut [0; 8]).is_ok(), "the permission is alive");
}

#[test]
fn what_the_kernel_takes_is_shown_and_other_tables_are_carried_over() {
    if skip_without("what_the_kernel_takes_is_shown_and_other_tables_are_carried_over", &["ping"]) {
        return;
    }
    let (lab, mut gateway) = setup();
    let ping = lab.node("client").unwrap().command("ping").args(["-c", "5", "-i", "0.1", "64:ff9b::198.51.100.2"]);
    ping.run().unwrap().success().unwrap();
    let shown = show(&lab, "fastpath");
    assert_eq!(row(&shown, "interface", "inside0")["value"].as_str().map(|text| text.starts_with("tc")), Some(true));
    assert_eq!(row(&shown, "service", "nat64")["value"], "taken");
    let number = |name| row(&shown, "packets", name)["value"].as_str().unwrap().parse::<u64>().unwrap();
    // The first packet admits the subscriber, which is the engine's business.
    assert!(number("taken-inside") >= 4 && number("taken-outside") >= 4, "{shown:?}");
    let counters = show(&lab, "counters");
    let kernel = counters.iter().find(|row| row["counter"] == "forwarded" && row["path"] == "kernel").unwrap();
    assert!(kernel["value"].as_u64().unwrap() >= 4, "{kernel}");

    gateway.signal(Signal::SIGKILL).unwrap();
    wait_until("the gateway is gone", PATIENCE, || (!gateway.is_running()).then_some(())).unwrap();
    let file = lab.directory().unwrap().join("gateway.toml");
    fs::write(&file, CONFIGURATION.replace("sessions = 10000", "sessions = 20000")).unwrap();
    let mut gateway = start(&lab);
    assert!(gateway.stderr().contains("carried over to another plan"), "{}", gateway.stderr());
    assert_eq!(show(&lab, "bindings").len(), 1);

    // Without the fast path, nothing of an earlier one is left to decide.
    gateway.signal(Signal::SIGKILL).unwrap();
    wait_until("the gateway is gone", PATIENCE, || (!gateway.is_running()).then_some(())).unwrap();
    fs::write(&file, CONFIGURATION.replace("\"tc\"", "\"off\"")).unwrap();
    let gateway = start(&lab);
    assert_eq!(pins(&lab), Vec::<PathBuf>::new());
    assert_eq!(row(&show(&lab, "fastpath"), "interface", "all")["value"], "off");
    drop(gateway);
}

#[test]
fn xdp_goes_by_the_routes_of_the_kernel_while_they_are_plain() {
    if skip_without("xdp_goes_by_the_routes_of_the_kernel_while_they_are_plain", &["ip", "ping"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    fs::write(lab.directory().unwrap().join("gateway.toml"), CONFIGURATION.replace("\"tc\"", "\"xdp\"")).unwrap();
    for (node, interface) in [("client", "inside0"), ("server", "outside0")] {
        lab.node(node).unwrap().set_offload(interface, tombolo_lab::Offload::Gro, true).unwrap();
    }
    let mut gateway = start(&lab);
    let becomes = |wanted: &str| {
        let shown = || row(&show(&lab, "fastpath"), "routes", "all")["value"].as_str().unwrap().ends_with(wanted);
        wait_until(wanted, PATIENCE, || shown().then_some(())).unwrap();
    };
    let pings = || {
        let ping = lab.node("client").unwrap().command("ping").args(["-c", "1", "-W", "5", "64:ff9b::198.51.100.2"]);
        ping.run().unwrap().success().unwrap();
    };
    let ip = |words: &str| {
        lab.node("gateway").unwrap().command("ip").args(words.split(' ')).run().unwrap().success().unwrap();
    };
    becomes("mirrored");
    pings();
    ip("rule add from 10.9.9.9 table 100");
    becomes("left to the stack (tc)");
    pings();
    ip("rule del from 10.9.9.9 table 100");
    becomes("mirrored");
    pings();
    gateway.signal(Signal::SIGTERM).unwrap();
    gateway.wait(PATIENCE).unwrap().success().unwrap();
    assert_eq!(pins(&lab), Vec::<PathBuf>::new(), "a clean end leaves nothing in the kernel");
}

#[test]
fn netfilter_sees_what_tc_translates_if_it_shall() {
    if skip_without("netfilter_sees_what_tc_translates_if_it_shall", &["ip", "nft", "ping"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let node = lab.node("gateway").unwrap();
    let file = lab.directory().unwrap().join("gateway.toml");
    let ping = || {
        let ping = lab.node("client").unwrap().command("ping").args(["-c", "3", "-i", "0.1", "64:ff9b::198.51.100.2"]);
        ping.run().unwrap().status.success()
    };
    let packets = || {
        let shown = node.command("nft").args(["--json", "list", "counters"]).run().unwrap().success().unwrap().stdout;
        let shown: Value = serde_json::from_str(&shown).unwrap();
        shown["nftables"].as_array().unwrap().iter().find_map(|item| item["counter"]["packets"].as_u64()).unwrap()
    };
    let rules = "table ip filter { counter seen {}; chain forward { type filter hook forward priority 0; \
                 oifname outside0 icmp type echo-request ip saddr 192.0.2.0/24 counter name seen; }; }";
    node.command("nft").args([rules]).run().unwrap().success().unwrap();
    for (line, seen) in [("fastpath_netfilter = true", 3..=9), ("fastpath_netfilter = false", 0..=0)] {
        fs::write(&file, CONFIGURATION.replace("fastpath = \"tc\"", &format!("fastpath = \"tc\"\n{line}"))).unwrap();
        let mut gateway = start(&lab);
        // The first packets admit the subscriber and resolve the neighbours, which is others'
        // business.
        assert!(ping());
        let before = packets();
        assert!(ping(), "{line}");
        let shown = show(&lab, "fastpath");
        assert!(seen.contains(&(packets() - before)), "{line}: {} packets, {shown:?}", packets() - before);
        let to_stack: u64 = row(&shown, "packets", "to-stack")["value"].as_str().unwrap().parse().unwrap();
        let taken: u64 = row(&shown, "packets", "taken-inside")["value"].as_str().unwrap().parse().unwrap();
        assert!(taken >= 4 && if seen.contains(&0) { to_stack < taken } else { to_stack >= taken }, "{shown:?}");
        gateway.signal(Signal::SIGTERM).unwrap();
        gateway.wait(PATIENCE).unwrap().success().unwrap();
    }
}

/// What the kernel's stack would not take by the interface that a packet came in by goes through the engine, as long as
/// the neighbour is not known; then the programs send it.
#[test]
fn neighbours_are_found_where_the_stack_takes_only_the_other_protocol() {
    let name = "neighbours_are_found_where_the_stack_takes_only_the_other_protocol";
    if skip_without(name, &["ip", "ping"]) {
        return;
    }
    let (lab, mut gateway) = setup();
    let ip = |node: &str, words: &str| {
        lab.node(node).unwrap().command("ip").args(words.split(' ')).run().unwrap().success().unwrap();
    };
    let pings = || {
        let ping = lab.node("client").unwrap().command("ping").args(["-c", "1", "-W", "2", "64:ff9b::198.51.100.2"]);
        ping.run().unwrap().status.success()
    };
    let refused = || {
        let shown = show(&lab, "fastpath");
        let row = shown.iter().find(|row| row["what"] == "left" && row["name"] == "stack-refuses");
        row.map_or(0, |row| row["value"].as_str().unwrap().parse::<u64>().unwrap())
    };
    assert!((0..3).any(|_| pings()), "it resolves the neighbours");
    // Else a host asks for the gateway some time, and the gateway knows it again by that.
    ip("client", "neigh change 2001:db8:1::1 dev inside0 nud permanent");
    ip("server", "neigh change 198.51.100.1 dev outside0 nud permanent");
    let node = lab.node("gateway").unwrap();
    for key in ["net.ipv4.conf.all.rp_filter", "net.ipv4.conf.inside0.rp_filter"] {
        node.set_sysctl(key, "0").unwrap();
    }
    let (client, server) = ("neigh del 2001:db8:1::2 dev inside0", "neigh del 198.51.100.2 dev outside0");
    for (key, value, usual, forget) in [
        ("net.ipv6.conf.outside0.disable_ipv6", "1", "0", client),
        ("net.ipv4.conf.inside0.forwarding", "0", "1", server),
        ("net.ipv4.conf.inside0.rp_filter", "1", "0", server),
    ] {
        node.set_sysctl(key, value).unwrap();
        let before = refused();
        for _ in 0..3 {
            ip("gateway", forget);
            // A next hop is remembered for a tick.
            std::thread::sleep(Duration::from_millis(1500));
            assert!(pings(), "{key} = {value}");
        }
        assert!(refused() > before, "{key} = {value}");
        let left = refused();
        assert!(pings() && pings(), "{key} = {value}");
        assert_eq!(refused(), left, "{key} = {value}: the programs send to neighbours that are known");
        node.set_sysctl(key, usual).unwrap();
    }
    gateway.signal(Signal::SIGTERM).unwrap();
    gateway.wait(PATIENCE).unwrap().success().unwrap();
}

#[test]
fn an_interface_that_comes_later_is_served_and_one_that_is_excluded_is_not() {
    if skip_without("an_interface_that_comes_later_is_served_and_one_that_is_excluded_is_not", &["ip"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let more = "\n[[interface]]\nname = \"outside0\"\nfastpath = \"off\"\n";
    fs::write(lab.directory().unwrap().join("gateway.toml"), format!("{CONFIGURATION}{more}")).unwrap();
    let mut gateway = start(&lab);
    let shown = show(&lab, "fastpath");
    assert_eq!(row(&shown, "interface", "outside0")["value"], "off");
    assert_eq!(row(&shown, "interface", "outside0")["why"], "the configuration says so");
    let add = "link add late0 type veth peer name late1";
    lab.node("gateway").unwrap().command("ip").args(add.split(' ')).run().unwrap().success().unwrap();
    let taken = wait_until("late0 is served", PATIENCE, || {
        show(&lab, "fastpath").into_iter().find(|row| row["name"] == "late0")
    });
    assert!(taken.unwrap()["value"].as_str().unwrap().starts_with("tc"));
    lab.node("gateway").unwrap().command("ip").args(["link", "del", "late0"]).run().unwrap().success().unwrap();
    wait_until("late0 is forgotten", PATIENCE, || {
        (!show(&lab, "fastpath").iter().any(|row| row["name"] == "late0")).then_some(())
    })
    .unwrap();
    gateway.signal(Signal::SIGTERM).unwrap();
    gateway.wait(PATIENCE).unwrap().success().unwrap();
}

#[test]
fn the_doctor_tells_what_this_machine_lacks() {
    let output = Command::new(TOMBOLO).args(["doctor", "--json"]).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let checks: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for name in ["kernel", "tun", "capabilities", "bpf-file-system", "fast-path", "btf"] {
        let check = checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no {name}: {text}"));
        assert!(["ok", "warning", "missing"].contains(&check["state"].as_str().unwrap()), "{check}");
        let explained = check["state"] == "ok" || check["remedy"] != "" && check["without"] != "";
        assert!(explained, "{check}");
    }
    assert_eq!(Path::new("/dev/net/tun").exists(), output.status.success(), "{text}");
}

//! Packets from inside come in where their senders are: what a host outside sends in the name of one
//! inside makes no state and does not pass, with and without the fast path. Needs root and skips
//! loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::net::UdpSocket;

use tombolo_lab::{Lab, Process, Topology, skip_without, wait_until};

mod running;

use running::{PATIENCE, TOMBOLO, kill, run, show};

const NAT64: &str = "[[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\nwell_known_prefix_strict = false\n\
                     pool = [{ addresses = \"192.0.2.1\", ports = \"1024-65535\" }]\n";
const NAT44: &str = "[[service]]\nkind = \"nat44\"\ninside = [\"10.0.0.0/24\"]\npool = [{ addresses = \"192.0.2.1\", ports = \"1024-65535\" }]\n";
/// A host inside, and where it sends: for each of the services.
const IPV6: (&str, &str) = ("2001:db8:1::2", "64:ff9b::198.51.100.2");
const IPV4: (&str, &str) = ("10.0.0.2", "198.51.100.2");

fn start(gateway: &str, service: &str) -> (Lab, Process) {
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let file = lab.directory().unwrap().join("gateway.toml");
    fs::write(&file, format!("[gateway]\n{gateway}\n{service}")).unwrap();
    let process = run(TOMBOLO, &lab, &file);
    (lab, process)
}

fn comes(mut condition: impl FnMut() -> bool) -> bool {
    wait_until("a count", PATIENCE, || condition().then_some(())).is_ok()
}

fn spoofed(lab: &Lab) -> u64 {
    let counters = show(lab, "counters");
    counters.iter().find(|row| row["reason"] == "inside-spoofed").map_or(0, |row| row["value"].as_u64().unwrap())
}

/// Has a node take packets of another's address for its own, and send them to the gateway.
fn pretend(lab: &Lab, node: &str, interface: &str, (host, remote): (&str, &str)) {
    let node = lab.node(node).unwrap();
    let is_ipv6 = host.contains(':');
    let (length, family, gateway) = match (is_ipv6, interface) {
        (true, "outside0") => ("128", "-6", "2001:db8:2::1"),
        (false, "outside0") => ("32", "-4", "198.51.100.1"),
        (true, _) => ("128", "-6", "2001:db8:1::1"),
        (false, _) => ("32", "-4", "10.0.0.1"),
    };
    let address = format!("{host}/{length}");
    let mut add = vec!["addr", "add", &address, "dev", interface];
    add.extend(is_ipv6.then_some("nodad"));
    node.command("ip").args(add).run().unwrap().success().unwrap();
    let remote = if is_ipv6 { "64:ff9b::/96" } else { remote };
    node.command("ip").args([family, "route", "replace", remote, "via", gateway]).run().unwrap().success().unwrap();
}

/// Sends datagrams from the host's address, ports 40000 and following.
fn send(lab: &Lab, node: &str, (host, remote): (&str, &str), count: u16) {
    let sent = lab.node(node).unwrap().run(|| {
        for number in 0..count {
            let socket = UdpSocket::bind((host, 40_000 + number)).unwrap();
            // An ICMP error may have come for one before.
            let _ = socket.send_to(b"here I am", (remote, 9));
        }
    });
    sent.unwrap();
}

/// A third party outside, which the gateway reaches by the way to the server.
fn spoofs_from_outside(gateway: &str, service: &str, host: (&str, &str)) {
    let (lab, _process) = start(gateway, service);
    // To another host than the spoofer: its own address it does not send away.
    let remote = if host.0.contains(':') { "64:ff9b::203.0.113.7" } else { "203.0.113.7" };
    let route = ["route", "add", "203.0.113.0/24", "via", "198.51.100.2"];
    lab.node("gateway").unwrap().command("ip").args(route).run().unwrap().success().unwrap();
    pretend(&lab, "server", "outside0", (host.0, remote));
    send(&lab, "server", (host.0, remote), 50);
    assert!(comes(|| spoofed(&lab) >= 50), "{gateway}: {:?}", show(&lab, "counters"));
    assert!(show(&lab, "bindings").is_empty(), "{gateway}: {:?}", show(&lab, "bindings"));
    // The real one is served, also when the fast path knows it.
    for _ in 0..3 {
        send(&lab, "client", host, 5);
    }
    assert!(comes(|| show(&lab, "bindings").len() == 5), "{gateway}: {:?}", show(&lab, "counters"));
    // What is spoofed does not pass by the bindings of the real one either.
    let before = spoofed(&lab);
    send(&lab, "server", (host.0, remote), 5);
    assert!(comes(|| spoofed(&lab) >= before + 5), "{gateway}: {:?}", show(&lab, "counters"));
    assert_eq!(show(&lab, "bindings").len(), 5, "{gateway}");
}

const TC: &str = "fastpath = \"tc\"";
const XDP: &str = "fastpath = \"xdp\"";
const ENGINE: &str = "fastpath = \"off\"";

#[test]
fn who_spoofs_the_inside_from_outside_makes_no_bindings() {
    if skip_without("who_spoofs_the_inside_from_outside_makes_no_bindings", &["ip", "nft"]) {
        return;
    }
    for mode in [ENGINE, TC, XDP] {
        spoofs_from_outside(mode, NAT64, IPV6);
        spoofs_from_outside(mode, NAT44, IPV4);
    }
}

#[test]
fn listed_interfaces_alone_are_inside() {
    if skip_without("listed_interfaces_alone_are_inside", &["ip", "nft"]) {
        return;
    }
    for mode in [ENGINE, TC] {
        spoofs_from_outside(&format!("{mode}\ninside_interfaces = [\"inside0\"]"), NAT64, IPV6);
        // Nobody is inside but by an interface that is not there.
        let (lab, _process) = start(&format!("{mode}\ninside_interfaces = [\"lan9\"]"), NAT64);
        send(&lab, "client", IPV6, 20);
        assert!(comes(|| spoofed(&lab) >= 20), "{mode}: {:?}", show(&lab, "counters"));
        assert!(show(&lab, "bindings").is_empty());
    }
}

/// One service has its own entrance, and the other one the gateway's; a reload gives it another.
#[test]
fn a_service_has_an_entrance_of_its_own() {
    if skip_without("a_service_has_an_entrance_of_its_own", &["ip", "nft"]) {
        return;
    }
    let both = |interfaces: &str| {
        let nat64 = NAT64.replace("pool =", &format!("inside_interfaces = {interfaces}\npool ="));
        format!("{nat64}{}", NAT44.replace("192.0.2.1", "192.0.2.2"))
    };
    for mode in [ENGINE, TC, XDP] {
        let (lab, _process) = start(mode, &both("[\"lan9\"]"));
        let node = lab.node("gateway").unwrap();
        let bindings = |service: &str| show(&lab, "bindings").iter().filter(|row| row["service"] == service).count();
        for _ in 0..3 {
            send(&lab, "client", IPV6, 5);
            send(&lab, "client", IPV4, 5);
        }
        assert!(comes(|| spoofed(&lab) >= 15 && bindings("nat44") == 5), "{mode}: {:?}", show(&lab, "counters"));
        assert_eq!(bindings("nat64"), 0, "{mode}");
        let file = lab.directory().unwrap().join("gateway.toml");
        for interfaces in ["[\"lan9\", \"inside0\"]", "\"any\"", "\"by-route\""] {
            fs::write(&file, format!("[gateway]\n{mode}\n{}", both(interfaces))).unwrap();
            let said = node.command(TOMBOLO).args(["reload"]).run().unwrap().success().unwrap().stdout;
            assert!(said.contains("inside_interfaces"), "{mode}, {interfaces}: {said}");
            node.command(TOMBOLO).args(["flush"]).run().unwrap().success().unwrap();
            let before = spoofed(&lab);
            for _ in 0..3 {
                send(&lab, "client", IPV6, 5);
                send(&lab, "client", IPV4, 5);
            }
            assert!(
                comes(|| bindings("nat64") == 5 && bindings("nat44") == 5),
                "{mode}, {interfaces}: {:?}",
                show(&lab, "counters")
            );
            assert_eq!(spoofed(&lab), before, "{mode}, {interfaces}");
        }
        let chains = node.command("nft").args(["list", "table", "inet", "tombolo-tombolo"]).run().unwrap();
        let chains = chains.success().unwrap().stdout;
        assert!(chains.contains("goto entrance-nat64") && !chains.contains("lan9"), "{chains}");
    }
}

#[test]
fn any_interface_will_do_if_the_configuration_says_so() {
    if skip_without("any_interface_will_do_if_the_configuration_says_so", &["ip", "nft"]) {
        return;
    }
    for mode in [ENGINE, TC] {
        let (lab, _process) = start(&format!("{mode}\ninside_interfaces = \"any\""), NAT64);
        let remote = "64:ff9b::203.0.113.7";
        let route = ["route", "add", "203.0.113.0/24", "via", "198.51.100.2"];
        lab.node("gateway").unwrap().command("ip").args(route).run().unwrap().success().unwrap();
        pretend(&lab, "server", "outside0", (IPV6.0, remote));
        send(&lab, "server", (IPV6.0, remote), 10);
        assert!(comes(|| show(&lab, "bindings").len() == 10), "{mode}: {:?}", show(&lab, "counters"));
        let tables = lab.node("gateway").unwrap().command("nft").args(["list", "tables"]).run();
        assert!(tables.is_ok_and(|output| !output.stdout.contains("tombolo-")));
    }
}

/// The kernel's own rule, as others read it, and its end with the process.
#[test]
fn the_table_is_the_processes_own() {
    if skip_without("the_table_is_the_processes_own", &["ip", "nft"]) {
        return;
    }
    let (lab, mut process) = start(ENGINE, NAT44);
    let node = lab.node("gateway").unwrap();
    let list = || node.command("nft").args(["list", "ruleset"]).run().unwrap().success().unwrap().stdout;
    let rules = list();
    for part in [
        "table inet tombolo-tombolo",
        "oifname != \"tombolo\" accept",
        "ip saddr 10.0.0.0-10.0.0.255 goto entrance",
        "fib saddr . iif oif",
        "counter name \"spoofed\" drop",
    ] {
        assert!(rules.contains(part), "no {part} in {rules}");
    }
    let flush = node.command("nft").args(["flush", "ruleset"]).run().unwrap();
    assert!(list().contains("counter name \"spoofed\" drop"), "flushed by others: {flush:?}");
    let file = lab.directory().unwrap().join("gateway.toml");
    fs::write(&file, format!("[gateway]\n{ENGINE}\n{}", NAT44.replace("10.0.0.0/24", "10.0.0.0/25"))).unwrap();
    let reload = node.command(TOMBOLO).args(["reload"]).run().unwrap();
    if reload.success().is_ok() {
        assert!(list().contains("10.0.0.0-10.0.0.127"), "{}", list());
    }
    kill(&mut process);
    assert!(comes(|| !list().contains("tombolo")), "{}", list());
}

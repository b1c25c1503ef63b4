//! Configurations of other gateways, imported and served, with real traffic in a lab; those of the kernel's NAT are what its own
//! tools print. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use tombolo_lab::{Lab, Process, Scenario, Topology, skip_without};

mod running;

use running::{PATIENCE, TOMBOLO, end};

/// What `tombolo import` makes of a file, given in words behind `import`; and what it leaves.
fn import(lab: &Lab, words: &[&str], text: &str) -> (String, String) {
    let file = lab.directory().unwrap().join("other");
    fs::write(&file, text).unwrap();
    let command = lab.node("gateway").unwrap().command(TOMBOLO).arg("import").args(words.to_vec());
    let output = command.arg(file.display().to_string()).run().unwrap().success().unwrap();
    (output.stdout, output.stderr)
}

fn in_gateway(lab: &Lab, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (program, arguments) = words.split_first().unwrap();
    let command = lab.node("gateway").unwrap().command(*program).args(arguments.to_vec());
    command.run().unwrap().success().unwrap().stdout
}

/// Connects from one node to a listener in another, and gives the address that the listener has seen.
fn connects(lab: &Lab, from: &str, to: SocketAddr, listener: (&str, SocketAddr)) -> IpAddr {
    let server = lab.node(listener.0).unwrap().run(|| TcpListener::bind(listener.1).unwrap()).unwrap();
    let mut client = lab.node(from).unwrap().run(|| TcpStream::connect_timeout(&to, PATIENCE).unwrap()).unwrap();
    let (stream, seen) = server.accept().unwrap();
    drop(stream);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    seen.ip()
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn serve(lab: &Lab, toml: &str) -> Process {
    lab.start_gateway("gateway", TOMBOLO, toml).unwrap_or_else(|error| panic!("{error:?}\n{toml}"))
}

/// The hosts inside reach the server from the pool, and the server reaches the host that a port leads to.
fn serves_as_the_kernel_did(lab: &Lab, toml: &str) {
    let gateway = serve(lab, toml);
    let server = ("server", address("198.51.100.2:8000"));
    assert_eq!(connects(lab, "client", server.1, server), address("192.0.2.16:0").ip());
    let client = ("client", address("10.0.0.2:8080"));
    assert_eq!(connects(lab, "server", address("192.0.2.16:80"), client), address("198.51.100.2:0").ip());
    end(gateway);
}

#[test]
fn rules_of_iptables_are_served() {
    if skip_without("rules_of_iptables_are_served", &["iptables", "iptables-save"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    for rule in [
        "POSTROUTING -s 10.0.0.0/24 -p tcp -j SNAT --to-source 192.0.2.16:2000-65535",
        "PREROUTING -d 192.0.2.16 -p tcp --dport 80 -j DNAT --to-destination 10.0.0.2:8080",
        "POSTROUTING -s 10.0.9.0/24 -m mark --mark 1 -j SNAT --to-source 192.0.2.17",
    ] {
        in_gateway(&lab, &format!("iptables -t nat -A {rule}"));
    }
    let (toml, left) = import(&lab, &["iptables-save"], &in_gateway(&lab, "iptables-save"));
    assert!(left.contains("--mark 0x1") && left.contains("depends on -m mark"), "{left}");
    in_gateway(&lab, "iptables -t nat -F");
    serves_as_the_kernel_did(&lab, &toml);
}

#[test]
fn rules_of_nftables_are_served() {
    if skip_without("rules_of_nftables_are_served", &["nft"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    for rule in [
        "add table ip nat",
        "add chain ip nat post { type nat hook postrouting priority 100 ; }",
        "add chain ip nat pre { type nat hook prerouting priority -100 ; }",
        "add rule ip nat post ip saddr 10.0.0.0/24 oifname outside0 ip protocol tcp snat to 192.0.2.16:2000-65535",
        "add rule ip nat pre ip daddr 192.0.2.16 tcp dport 80 dnat to 10.0.0.2:8080",
        "add rule ip nat pre ct mark 1 redirect",
    ] {
        in_gateway(&lab, &format!("nft {rule}"));
    }
    let (toml, left) = import(&lab, &["nft"], &in_gateway(&lab, "nft -j list ruleset"));
    assert!(left.contains("depends on ct mark"), "{left}");
    in_gateway(&lab, "nft flush ruleset");
    serves_as_the_kernel_did(&lab, &toml);
}

/// A NAT64 with this prefix, the pool 192.0.2.16 and a binding of its port 80.
fn serves_as_a_nat64(lab: &Lab, toml: &str) {
    let gateway = serve(lab, toml);
    let server = ("server", address("198.51.100.2:8000"));
    assert_eq!(connects(lab, "client", address("[2001:db8:64::c633:6402]:8000"), server), address("192.0.2.16:0").ip());
    let client = ("client", address("[2001:db8:1::2]:8080"));
    let seen = connects(lab, "server", address("192.0.2.16:80"), client);
    assert_eq!(seen, address("[2001:db8:64::c633:6402]:0").ip());
    end(gateway);
}

#[test]
fn a_nat64_of_jool_is_served() {
    if skip_without("a_nat64_of_jool_is_served", &[]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let text = r#"{
        "instance": "default", "framework": "netfilter", "global": { "pool6": "2001:db8:64::/96" },
        "pool4": [
            { "protocol": "TCP", "prefix": "192.0.2.16/32", "port range": "1024-65535" },
            { "protocol": "ICMP", "prefix": "192.0.2.16/32", "port range": "0-65535" }
        ],
        "bib": [{ "protocol": "TCP", "ipv6 address": "2001:db8:1::2#8080", "ipv4 address": "192.0.2.16#80" }]
    }"#;
    let (toml, left) = import(&lab, &["jool"], text);
    assert_eq!(left, "");
    serves_as_a_nat64(&lab, &toml);
}

#[test]
fn a_nat64_of_vpp_is_served() {
    if skip_without("a_nat64_of_vpp_is_served", &[]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let text = "nat64 add prefix 2001:db8:64::/96\nnat64 add pool address 192.0.2.16\n\
                nat64 add static bib 2001:db8:1::2 8080 192.0.2.16 80 tcp\n";
    let (toml, left) = import(&lab, &["vpp"], text);
    assert_eq!(left, "");
    serves_as_a_nat64(&lab, &toml);
}

#[test]
fn a_lwaftr_of_snabb_and_one_of_vpp_are_served() {
    if skip_without("a_lwaftr_of_snabb_and_one_of_vpp_are_served", &[]) {
        return;
    }
    let b4s = ["2001:db8:1000:100:0:c000:20a:4", "2001:db8:1000:200:0:c000:20a:5"];
    let softwire = |b4: &str, psid| {
        format!(
            "softwire {{ ipv4 192.0.2.10; psid {psid}; b4-ipv6 {b4}; br-address 2001:db8:ffff::1; \
             port-set {{ psid-length 6; }} }}\n"
        )
    };
    let snabb = format!("softwire-config {{ binding-table {{\n{}{}}} }}\n", softwire(b4s[0], 4), softwire(b4s[1], 5));
    let rule = |b4: &str, psid| format!("map add rule index 0 psid {psid} ip6-dst {b4}\n");
    let vpp = format!(
        "map add domain ip4-pfx 192.0.2.10/32 ip6-pfx ::/0 ip6-src 2001:db8:ffff::1/128 ea-bits-len 0 psid-offset 0 psid-len 6\n\
         {}{}",
        rule(b4s[0], 4),
        rule(b4s[1], 5)
    );
    for (from, text) in [("snabb", snabb), ("vpp", vpp)] {
        let scenario = Scenario::named("lw4o6").unwrap();
        let lab = Lab::create(&scenario.topology).unwrap();
        let (toml, left) = import(&lab, &[from], &text);
        assert_eq!(left, "");
        let relay = serve(&lab, &toml);
        let edges = scenario.gateways.iter().filter(|(node, _)| *node != "gateway");
        let edges: Vec<Process> = edges.map(|(node, text)| lab.start_gateway(node, TOMBOLO, text).unwrap()).collect();
        for client in ["client", "neighbour"] {
            let server = ("server", address("198.51.100.2:8000"));
            assert_eq!(connects(&lab, client, server.1, server), address("192.0.2.10:0").ip(), "{from}, {client}");
        }
        edges.into_iter().chain([relay]).for_each(|gateway| drop(end(gateway)));
    }
}

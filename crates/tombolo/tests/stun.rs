//! What STUN finds out about the gateway (RFC 5780), in a lab: mapping is endpoint-independent,
//! filtering is as it was configured. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tombolo_lab::stun::{Behaviour, Discovered, Server, discover};
use tombolo_lab::{Lab, Process, Topology, skip_without};

const TOMBOLO: &str = env!("CARGO_BIN_EXE_tombolo");
const READY: Duration = Duration::from_secs(20);
const SERVERS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 51, 100, 2), Ipv4Addr::new(198, 51, 100, 3)];
const PORTS: [u16; 2] = [3478, 3479];

fn configuration(filtering: &str) -> String {
    format!(
        r#"
[[service]]
kind = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
pool = [{{ addresses = "192.0.2.0/28" }}]
filtering = "{filtering}"
[[service]]
kind = "nat44"
inside = ["10.0.0.0/24"]
pool = [{{ addresses = "192.0.2.16/28" }}]
allocation = {{ mode = "blocks" }}
filtering = "{filtering}"
"#
    )
}

fn start(filtering: &str) -> (Lab, Process) {
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let other = ["addr", "add", "198.51.100.3/24", "dev", "outside0"];
    lab.node("server").unwrap().command("ip").args(other).run().unwrap().success().unwrap();
    let file = lab.directory().unwrap().join("gateway.toml");
    fs::write(&file, configuration(filtering)).unwrap();
    let command = lab.node("gateway").unwrap().command(TOMBOLO).args(["run", "-c"]);
    let mut gateway = command.arg(file.display().to_string()).spawn().unwrap();
    gateway.wait_for_text("ready", READY).unwrap();
    (lab, gateway)
}

/// Asks over IPv4 (through the NAT44), or over IPv6 (through the NAT64).
fn ask(lab: &Lab, over_ipv6: bool) -> Discovered {
    let embed = |address: Ipv4Addr| Ipv6Addr::from_bits(0x64_ff9b << 96 | u128::from(address.to_bits()));
    let seen = |address: Ipv4Addr| -> IpAddr { if over_ipv6 { embed(address).into() } else { address.into() } };
    let servers = SERVERS.map(|address| PORTS.map(|port| SocketAddr::new(seen(address), port)));
    let local = if over_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    lab.node("client").unwrap().run(|| discover(local, servers)).unwrap().expect("the STUN server answers")
}

#[test]
fn stun_finds_endpoint_independent_mapping_and_filtering_as_configured() {
    if skip_without("stun_finds_endpoint_independent_mapping_and_filtering_as_configured", &["ip"]) {
        return;
    }
    for (filtering, expected) in
        [("endpoint-independent", Behaviour::EndpointIndependent), ("address-dependent", Behaviour::AddressDependent)]
    {
        let (lab, _gateway) = start(filtering);
        let _server = Server::start(lab.node("server").unwrap(), SERVERS, PORTS).unwrap();
        for over_ipv6 in [false, true] {
            let found = ask(&lab, over_ipv6);
            assert_eq!(found.mapping, Behaviour::EndpointIndependent, "{found:?}");
            assert_eq!(found.filtering, expected, "{found:?}");
            let IpAddr::V4(outside) = found.outside.ip() else { panic!("{found:?}") };
            let pool = if over_ipv6 { 0..16 } else { 16..32 };
            assert!(outside.octets()[..3] == [192, 0, 2] && pool.contains(&outside.octets()[3]), "{found:?}");
        }
    }
}

#[test]
fn stun_finds_what_another_nat_does() {
    // The same prober on the kernel's own NAT, which is not endpoint-independent in its filtering:
    // it can tell.
    if skip_without("stun_finds_what_another_nat_does", &["ip", "nft"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let run = |node: &str, command: &str| {
        let mut words = command.split(' ');
        let program = words.next().unwrap();
        lab.node(node).unwrap().command(program).args(words).run().unwrap().success().unwrap();
    };
    run("server", "ip addr add 198.51.100.3/24 dev outside0");
    run("gateway", "nft add table ip nat");
    run("gateway", "nft add chain ip nat out { type nat hook postrouting priority 100 ; }");
    run("gateway", "nft add rule ip nat out oifname outside0 masquerade random,fully-random");
    let _server = Server::start(lab.node("server").unwrap(), SERVERS, PORTS).unwrap();
    let found = ask(&lab, false);
    assert_eq!(found.outside.ip(), IpAddr::from([198, 51, 100, 1]));
    assert_eq!(
        (found.mapping, found.filtering),
        (Behaviour::AddressAndPortDependent, Behaviour::AddressAndPortDependent)
    );
}

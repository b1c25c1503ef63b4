//! What hosts inside may ask for with PCP, and where.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::net::Ipv4Addr;

use tombolo_engine::plan::{ANYCAST_IPV4, PcpAddresses, PcpPolicy};

fn text(gateway: &str, pcp: &str) -> String {
    format!(
        "[gateway]\n{gateway}\n[[service]]\nkind = \"nat44\"\ninside = [\"10.0.0.0/24\"]\npool = [{{ addresses = \"192.0.2.1\" }}]\n{pcp}\n"
    )
}

fn read(gateway: &str, pcp: &str) -> (Option<PcpPolicy>, PcpAddresses, Vec<String>) {
    let read = tombolo_config::parse("gateway.toml", &text(gateway, pcp)).unwrap();
    let policy = read.plan.services[0].kind.nat().unwrap().policy.pcp;
    (policy, read.plan.pcp, read.warnings.iter().map(ToString::to_string).collect())
}

fn mistake(gateway: &str, pcp: &str) -> String {
    tombolo_config::parse("gateway.toml", &text(gateway, pcp)).unwrap_err().to_string()
}

#[test]
fn it_is_off_unless_it_is_switched_on() {
    for off in ["", "pcp = false"] {
        assert_eq!(read("", off), (None, PcpAddresses::default(), Vec::new()));
    }
    let anycast = PcpAddresses { ipv4: vec![ANYCAST_IPV4], ipv6: Vec::new() };
    assert_eq!(read("", "pcp = true"), (Some(PcpPolicy::default()), anycast.clone(), Vec::new()));
    assert_eq!(read("", "pcp = {}"), (Some(PcpPolicy::default()), anycast, Vec::new()));
}

#[test]
fn limits_and_addresses_are_those_of_the_file() {
    let limits = "pcp = { mappings_per_subscriber = 3, shortest_lifetime = 200, longest_lifetime = 300 }";
    let (policy, addresses, warnings) = read("pcp_addresses = [\"10.255.0.1\"]", limits);
    assert_eq!(policy, Some(PcpPolicy { mappings: 3, shortest: 200, longest: 300 }));
    assert_eq!(addresses, PcpAddresses { ipv4: vec![Ipv4Addr::new(10, 255, 0, 1)], ipv6: Vec::new() });
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn what_makes_no_sense_is_said() {
    let (_, _, warnings) = read("", "pcp = { shortest_lifetime = 5, longest_lifetime = 100000 }");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let (_, _, warnings) = read("pcp_addresses = [\"10.255.0.1\"]", "");
    assert!(warnings[0].contains("no service has pcp"), "{warnings:?}");
    let reversed = mistake("", "pcp = { shortest_lifetime = 300, longest_lifetime = 200 }");
    assert!(reversed.contains("exchange them"), "{reversed}");
    let taken = mistake("pcp_addresses = [\"192.0.2.1\"]", "pcp = true");
    assert!(taken.contains("is an address of service"), "{taken}");
    let many =
        mistake("pcp_addresses = [\"10.9.0.1\", \"10.9.0.2\", \"10.9.0.3\", \"10.9.0.4\", \"10.9.0.5\"]", "pcp = true");
    assert!(many.contains("more than 4"), "{many}");
    let unknown = mistake("", "pcp = { mappings = 3 }");
    assert!(unknown.contains("mappings"), "{unknown}");
}

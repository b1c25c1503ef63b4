//! What files become, and the exact words for each mistake.

use std::net::Ipv4Addr;
use std::path::Path;

use tombolo_config::{Configuration, FastPath, TableMemory, parse};
use tombolo_engine::mapping::allocation::{Allocation, Blocks, PortHolder};
use tombolo_engine::mapping::pool::{Parity, PortSpace};
use tombolo_engine::mapping::stateless::Claim;
use tombolo_engine::mechanism::napt::{Filtering, Filters, InboundTcp, Sessions, UnsolicitedSyn};
use tombolo_engine::mechanism::{TrafficClass, UdpZeroChecksum};
use tombolo_engine::plan::ServiceKind;
use tombolo_engine::service::nat64::Nat64;
use tombolo_engine::service::siit::{Hairpinning, Role, Siit};

mod reading;

use reading::{accepted, refused_with_name as refused};

/// The least that a file must have, with `more` at the end of its service.
fn minimal(more: &str) -> String {
    format!(
        "[[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\npool = [{{ addresses = \"192.0.2.0/28\" }}]\n{more}"
    )
}

fn nat64(configuration: &Configuration, number: usize) -> &Nat64 {
    match &configuration.plan.services[number].kind {
        ServiceKind::Nat64(nat64) => nat64,
        other => panic!("service {number} is a {}", other.name()),
    }
}

#[test]
fn the_least_file_has_defaults_for_the_rest() {
    let configuration = accepted(&minimal(""));
    assert_eq!(configuration.host, tombolo_config::Host::default());
    assert_eq!(configuration.warnings, []);
    assert_eq!(configuration.plan.services[0].name, "nat64");
    let service = nat64(&configuration, 0);
    assert_eq!(service.nat.pool.addresses(), 16);
    assert_eq!(service.nat.pool.ranges()[0].span, 1024..=65535);
    assert_eq!(configuration.plan.capacity.outside_slots, 16 * 3 * 64512);
    assert!(service.well_known_prefix_strict);
    assert_eq!(service.translate.udp_zero_4to6, UdpZeroChecksum::Compute);
}

#[test]
fn every_key_arrives_in_the_plan() {
    let configuration = accepted(
        r#"
[gateway]
device = "t0"
queues = 3
pin = false
mtu = 9000
run_directory = "/run/t0"
ipv4 = "192.0.2.254"
ipv6 = "2001:db8::1"
[capacity]
subscribers = 10
bindings = 20
sessions = 8589934592
memory = "at-start"
[timeouts]
udp = 121
icmp = 61
tcp_established = 7201
tcp_transitory = 241
tcp_incoming_syn = 7
port_reuse = 0
ports_kept_back = 7
[[service]]
kind = "nat64"
name = "plat"
prefix = "2001:db8:64::/64"
well_known_prefix_strict = false
filtering = "address-dependent"
inbound_tcp = "denied"
bindings_per_subscriber = 100
traffic_class_4to6 = 0
traffic_class_6to4 = 0x2e
udp_zero_checksum = "drop"
lowest_ipv6_mtu = 1400
ipv6_mtu = 1480
ipv4_mtu = 576
pool = [
  { addresses = "198.51.100.1", ports = "5000", protocols = ["tcp"] },
  { addresses = "198.51.100.1", ports = "6000-6001", protocols = ["udp"] },
  { addresses = "192.0.2.1-192.0.2.2", ports = "2000, 3000-3001" },
]
static = [{ inside = "[2001:db8:1::2]:8080", outside = "192.0.2.2:80", protocol = "tcp" }]
"#,
    );
    let host = &configuration.host;
    assert_eq!((host.device.as_str(), host.queues, host.pin, host.mtu), ("t0", Some(3), false, 9000));
    assert_eq!(host.run_directory.as_deref(), Some(Path::new("/run/t0")));
    assert_eq!(host.memory, TableMemory::AtStart);
    let plan = &configuration.plan;
    assert_eq!(plan.own.ipv4, Some(Ipv4Addr::new(192, 0, 2, 254)));
    assert_eq!(plan.own.ipv6, Some("2001:db8::1".parse().unwrap()));
    assert_eq!((plan.capacity.subscribers, plan.capacity.bindings, plan.capacity.sessions), (10, 20, 1 << 33));
    assert_eq!((plan.times.reuse_port_after, plan.times.most_ports_kept_back), (0, Some(7)));
    assert_eq!(plan.times.established(), tombolo_tables::tick::ticks(7201));
    assert_eq!(configuration.warnings.len(), 1, "the port reuse time is below RFC 6888");

    let service = nat64(&configuration, 0);
    assert_eq!(plan.services[0].name, "plat");
    assert_eq!(service.prefix.length(), 64);
    assert!(!service.well_known_prefix_strict);
    assert_eq!(service.nat.policy.filtering, Filtering::AddressDependent.into());
    assert_eq!(service.nat.policy.inbound_tcp, InboundTcp::Denied);
    assert_eq!(service.nat.policy.bindings_per_subscriber, Some(100));
    let translate = &service.translate;
    assert_eq!(translate.traffic_class_4to6, TrafficClass::Force(0));
    assert_eq!(translate.traffic_class_6to4, TrafficClass::Force(0x2e));
    assert_eq!(translate.udp_zero_4to6, UdpZeroChecksum::Drop);
    assert_eq!((translate.lowest_ipv6_mtu, translate.ipv6_mtu, translate.ipv4_mtu), (1400, 1480, 576));

    let ranges = service.nat.pool.ranges();
    assert_eq!(ranges.len(), 2, "items with the same addresses become one range");
    assert_eq!(ranges[0].span, 80..=3001, "the static binding's port has a slot");
    assert_eq!(ranges[1].span, 5000..=6001);
    assert_eq!(ranges[1].ports[PortSpace::Tcp as usize].ranges(), [5000..=5000]);
    assert_eq!(ranges[1].ports[PortSpace::Udp as usize].ranges(), [6000..=6001]);
    assert!(ranges[1].ports[PortSpace::Icmp as usize].is_empty());
    let binding = service.nat.static_bindings[0];
    assert_eq!((binding.inside_port.0, binding.outside.port.0, binding.space), (8080, 80, PortSpace::Tcp));
    assert!(service.nat.pool.slot(binding.outside.address, binding.space, binding.outside.port.0).is_some());
}

#[test]
fn services_share_the_outside_index_without_overlap() {
    let second = "[[service]]\nkind = \"nat64\"\nprefix = \"2001:db8:64::/96\"\npool = [{ addresses = \"198.51.100.0/30\", ports = \"1-2\" }]\n";
    let configuration = accepted(&minimal(second));
    let names: Vec<_> = configuration.plan.services.iter().map(|service| service.name.as_str()).collect();
    assert_eq!(names, ["nat64", "nat64-2"]);
    let first_slots = 16 * 3 * 64512;
    assert_eq!(nat64(&configuration, 1).nat.pool.ranges()[0].first_slot, first_slots);
    assert_eq!(configuration.plan.capacity.outside_slots, first_slots + 4 * 3 * 2);
    assert_eq!(configuration.plan.outside_slots(), Some(configuration.plan.capacity.outside_slots));
}

/// One mistake each: what is added to the least file, and the whole error.
#[test]
fn a_mistake_in_a_service_is_named_with_its_fix() {
    let cases = [
        (
            "filterin = \"address-dependent\"",
            "gateway.toml:5: service[0].filterin = \"address-dependent\": unknown key; did you mean \"filtering\"?",
        ),
        (
            "filtering = \"adress-dependent\"",
            "gateway.toml:5: service[0].filtering = \"adress-dependent\": unknown (did you mean \"address-dependent\"?); use \"endpoint-independent\" or \"address-dependent\"",
        ),
        (
            "bindings_per_subscriber = 0",
            "gateway.toml:5: service[0].bindings_per_subscriber = 0: out of range; use 1 to 4294967295",
        ),
        (
            "ipv6_mtu = \"1500\"",
            "gateway.toml:5: service[0].ipv6_mtu = \"1500\": is of the type string; a whole number is expected, without quotes",
        ),
        ("ipv6_mtu = 1279", "gateway.toml:5: service[0].ipv6_mtu = 1279: out of range; use 1280 to 65535"),
        ("ipv4_mtu = -1", "gateway.toml:5: service[0].ipv4_mtu = -1: out of range; use 68 to 65535"),
        (
            "traffic_class_4to6 = \"kopy\"",
            "gateway.toml:5: service[0].traffic_class_4to6 = \"kopy\": unknown; use \"copy\" or a number from 0 to 255",
        ),
        (
            "name = \"Public NAT\"",
            "gateway.toml:5: service[0].name = \"Public NAT\": not a name; use 1 to 32 lower-case letters, digits and hyphens",
        ),
        (
            "well_known_prefix_strict = 1",
            "gateway.toml:5: service[0].well_known_prefix_strict = 1: is of the type integer; true or false is expected, without quotes",
        ),
        (
            "static = [{ inside = \"[2001:db8::2]:80\", outside = \"203.0.113.1:80\", protocol = \"tcp\" }]",
            "gateway.toml:5: service[0].static[0].outside = \"203.0.113.1:80\": 203.0.113.1 is not in the pool of this service; add it there, or choose another address",
        ),
        (
            "static = [{ inside = \"[2001:db8::2]:0\", outside = \"192.0.2.1:80\", protocol = \"udp\" }]",
            "gateway.toml:5: service[0].static[0].inside = \"[2001:db8::2]:0\": port 0 cannot be used; choose one from 1 to 65535",
        ),
        (
            "static = [{ inside = \"2001:db8::2\", outside = \"192.0.2.1:80\", protocol = \"udp\" }]",
            "gateway.toml:5: service[0].static[0].inside = \"2001:db8::2\": not an IPv6 address with a port; write it as \"[2001:db8::2]:80\"",
        ),
        (
            "static = [{ inside = \"[2001:db8::2]:80\", outside = \"192.0.2.1\", protocol = \"udp\" }]",
            "gateway.toml:5: service[0].static[0].outside = \"192.0.2.1\": not an IPv4 address with a port; write it as \"192.0.2.1:80\"",
        ),
        (
            "static = [{ inside = \"[fe80::2]:80\", outside = \"192.0.2.1:80\", protocol = \"udp\" }]",
            "gateway.toml:5: service[0].static[0].inside = \"[fe80::2]:80\": fe80::2 cannot be reached through a gateway; use a global or unique local address",
        ),
        (
            "static = [{ inside = \"[64:ff9b::2]:80\", outside = \"192.0.2.1:80\", protocol = \"udp\" }]",
            "gateway.toml:5: service[0].static[0].inside = \"[64:ff9b::2]:80\": lies in the prefix of the service and would loop; use a host inside",
        ),
        (
            "static = [{ inside = \"[2001:db8::2]:80\", outside = \"192.0.2.1:80\", protocol = \"ipip\" }]",
            "gateway.toml:5: service[0].static[0].protocol = \"ipip\": unknown; use \"tcp\" or \"udp\" or \"icmp\" or \"sctp\" or \"dccp\" or \"udp-lite\" or \"esp\" or \"gre\"",
        ),
        (
            "static = [{ inside = \"[2001:db8::2]:80\", outside = \"192.0.2.1:80\" }]",
            "gateway.toml:5: service[0].static[0].protocol: missing; add protocol = \"tcp\"",
        ),
        (
            "static = [{ inside = \"[2001:db8::2]:80\", outside = \"192.0.2.1:80\", protocol = \"tcp\" },\n{ inside = \"[2001:db8::3]:80\", outside = \"192.0.2.1:80\", protocol = \"tcp\" }]",
            "gateway.toml:6: service[0].static[1]: has the same outside endpoint as static[0]; remove one of them",
        ),
        (
            "static = [{ inside = \"[2001:db8::2]:80\", outside = \"192.0.2.1:80\", protocol = \"tcp\" },\n{ inside = \"[2001:db8::2]:80\", outside = \"192.0.2.1:81\", protocol = \"tcp\" }]",
            "gateway.toml:6: service[0].static[1]: has the same inside endpoint as static[0]; remove one of them",
        ),
        (
            "static = 7",
            "gateway.toml:5: service[0].static = 7: is of the type integer; an array is expected, in brackets",
        ),
        ("static = [7]", "gateway.toml:5: service[0].static[0] = 7: is of the type integer; a table is expected"),
        (
            "[[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\npool = [{ addresses = \"198.51.100.1\" }]",
            "gateway.toml:7: service[1].prefix = \"64:ff9b::/96\": is the prefix of service[0] (64:ff9b::/96); give each service a prefix of its own",
        ),
        (
            "[[service]]\nkind = \"nat64\"\nprefix = \"2001:db8::/96\"\npool = [{ addresses = \"192.0.2.8/29\" }]",
            "gateway.toml:8: service[1].pool[0].addresses = \"192.0.2.8/29\": overlaps service[0].pool[0] (192.0.2.0/28); remove one of them",
        ),
        (
            "[[service]]\nname = \"nat64\"\nkind = \"nat64\"\nprefix = \"2001:db8::/96\"\npool = [{ addresses = \"198.51.100.1\" }]",
            "gateway.toml:6: service[1].name = \"nat64\": another service has this name; choose a different one",
        ),
        ("[servise]", "gateway.toml:5: servise: unknown key; did you mean \"service\"?"),
        (
            "[gateway]\ndevice = \"sixteen-bytes-ab\"",
            "gateway.toml:6: gateway.device = \"sixteen-bytes-ab\": cannot be the name of a device; use 1 to 15 letters, digits and hyphens",
        ),
        ("[gateway]\nqueues = 257", "gateway.toml:6: gateway.queues = 257: out of range; use 1 to 256"),
        (
            "[gateway]\nrun_directory = \"run\"",
            "gateway.toml:6: gateway.run_directory = \"run\": not an absolute path; begin with \"/\"",
        ),
        (
            "[gateway]\nipv4 = \"2001:db8::1\"",
            "gateway.toml:6: gateway.ipv4 = \"2001:db8::1\": an IPv6 address; put it under gateway.ipv6",
        ),
        (
            "[gateway]\nipv6 = \"192.0.2.1\"",
            "gateway.toml:6: gateway.ipv6 = \"192.0.2.1\": an IPv4 address; put it under gateway.ipv4",
        ),
        (
            "[gateway]\nipv4 = \"192.0.2.1/24\"",
            "gateway.toml:6: gateway.ipv4 = \"192.0.2.1/24\": not an IP address; write it without a prefix length",
        ),
        (
            "[gateway]\nipv4 = \"224.0.0.1\"",
            "gateway.toml:6: gateway.ipv4 = \"224.0.0.1\": no host could answer to it; use a unicast address of this host",
        ),
        ("[capacity]\nsessions = 0", "gateway.toml:6: capacity.sessions = 0: out of range; use 1 to 8589934592"),
        ("[timeouts]\nudp = 0", "gateway.toml:6: timeouts.udp = 0: out of range; use 1 to 315360000"),
        (
            "[timeouts]\ntcp = 1",
            "gateway.toml:6: timeouts.tcp = 1: unknown key; known here: udp, udp_ports, icmp, tcp_established, tcp_opening, tcp_transitory, tcp_incoming_syn, port_reuse, ports_kept_back",
        ),
    ];
    for (more, expected) in cases {
        assert_eq!(refused(&minimal(more)), [expected]);
    }
}

#[test]
fn a_mistake_in_a_pool_is_named_with_its_fix() {
    let cases = [
        (
            "{ addresses = \"192.0.2.0/24\" },\n  { addresses = \"192.0.2.0/28\" }",
            "5: service[0].pool[1].addresses = \"192.0.2.0/28\": overlaps pool[0] (192.0.2.0/24); remove one of them",
        ),
        (
            "{ addresses = \"192.0.2.1\" }, { addresses = \"192.0.2.1\", protocols = [\"tcp\"] }",
            "4: service[0].pool[1].addresses = \"192.0.2.1\": overlaps pool[0] (192.0.2.1); remove one of them",
        ),
        (
            "{ addresses = \"192.0.2.5/28\" }",
            "4: service[0].pool[0].addresses = \"192.0.2.5/28\": bits are set behind the prefix length; write \"192.0.2.0/28\"",
        ),
        (
            "{ addresses = \"192.0.2.9-192.0.2.1\" }",
            "4: service[0].pool[0].addresses = \"192.0.2.9-192.0.2.1\": the range ends before it begins; write \"192.0.2.1-192.0.2.9\"",
        ),
        (
            "{ addresses = \"public\" }",
            "4: service[0].pool[0].addresses = \"public\": not IPv4 addresses; write a prefix (\"192.0.2.0/28\"), an address (\"192.0.2.1\") or a range (\"192.0.2.1-192.0.2.9\")",
        ),
        (
            "{ addresses = \"126.0.0.0/7\" }",
            "4: service[0].pool[0].addresses = \"126.0.0.0/7\": contains loopback addresses, which no host can have; use unicast addresses",
        ),
        (
            "{ addresses = \"239.1.0.0/16\" }",
            "4: service[0].pool[0].addresses = \"239.1.0.0/16\": contains multicast addresses, which no host can have; use unicast addresses",
        ),
        (
            "{ addresses = \"10.0.0.0/8\" }",
            "4: service[0].pool[0].addresses = \"10.0.0.0/8\": the pools need more than 4294967295 slots (addresses x 3 protocols x ports); give fewer addresses or ports",
        ),
        ("{ ports = \"1024-65535\" }", "4: service[0].pool[0].addresses: missing; add addresses = \"192.0.2.0/28\""),
        (
            "{ addresses = \"192.0.2.1\", ports = \"0-1023\" }",
            "4: service[0].pool[0].ports = \"0-1023\": port 0 cannot be used; begin with 1",
        ),
        (
            "{ addresses = \"192.0.2.1\", ports = \"2000-1024\" }",
            "4: service[0].pool[0].ports = \"2000-1024\": the range 2000-1024 ends before it begins; write 1024-2000",
        ),
        (
            "{ addresses = \"192.0.2.1\", ports = \"http\" }",
            "4: service[0].pool[0].ports = \"http\": \"http\" is not a port; write numbers from 1 to 65535 as \"80, 1024-65535\"",
        ),
        (
            "{ addresses = \"192.0.2.1\", protocols = [] }",
            "4: service[0].pool[0].protocols = []: no protocol; name some, or leave the key out",
        ),
        (
            "{ addresses = \"192.0.2.1\", protocols = [\"tpc\"] }",
            "4: service[0].pool[0].protocols[0] = \"tpc\": unknown (did you mean \"tcp\"?); use \"tcp\" or \"udp\" or \"icmp\"",
        ),
        (
            "{ adresses = \"192.0.2.1\", addresses = \"192.0.2.1\" }",
            "4: service[0].pool[0].adresses = \"192.0.2.1\": unknown key; did you mean \"addresses\"?",
        ),
        ("", "4: service[0].pool = []: no addresses to hand out; add { addresses = \"192.0.2.0/28\" }"),
    ];
    for (pool, expected) in cases {
        let text = format!("[[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\npool = [{pool}]\n");
        assert_eq!(refused(&text), [format!("gateway.toml:{expected}")]);
    }
}

#[test]
fn a_prefix_of_the_wrong_shape_is_named_with_its_fix() {
    let cases = [
        (
            "2001:db8::/95",
            "prefix length 95 is not 32, 40, 48, 56, 64 or 96 (RFC 6052 section 2.2); choose one of these lengths",
        ),
        ("2001:db8::1/96", "bits are set behind the prefix length; write \"2001:db8::/96\""),
        (
            "2001:db8::ff00:0:0:0/96",
            "bits 64 to 71 of a /96 must be zero (RFC 6052 section 2.2); choose another prefix",
        ),
        (
            "64:ff9b::/64",
            "the well-known prefix 64:ff9b::/96 has no other length; write \"64:ff9b::/96\", or take a prefix of your own",
        ),
        ("192.0.2.0/24", "not an IPv6 prefix; write it as \"64:ff9b::/96\""),
        ("64:ff9b::", "not an IPv6 prefix; write it as \"64:ff9b::/96\""),
    ];
    for (prefix, expected) in cases {
        let text = format!(
            "[[service]]\nkind = \"nat64\"\nprefix = \"{prefix}\"\npool = [{{ addresses = \"192.0.2.0/28\" }}]\n"
        );
        assert_eq!(refused(&text), [format!("gateway.toml:3: service[0].prefix = \"{prefix}\": {expected}")]);
    }
}

#[test]
fn the_longest_prefix_counts_whatever_the_order_is() {
    let text = "[[service]]\nkind = \"nat64\"\nprefix = \"2001:db8::/32\"\npool = [{ addresses = \"192.0.2.1\" }]\n\
        [[service]]\nkind = \"nat64\"\nprefix = \"2001:db8:64::/96\"\npool = [{ addresses = \"192.0.2.2\" }]\n";
    let configuration = accepted(text);
    assert_eq!(
        configuration.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "gateway.toml:7: service[1].prefix = \"2001:db8:64::/96\": lies in the prefix of service[0] (2001:db8::/32), where this service goes first: IPv4 addresses that are there in the other's prefix are not reached through the other"
        ]
    );
    let asked: Vec<_> = configuration.plan.services.iter().map(|service| (service.number, &service.name[..])).collect();
    assert_eq!(asked, [(0, "nat64-2"), (1, "nat64")]);
    let service_of = |address: &str| {
        let found = configuration.plan.service_of_ipv6(address.parse().unwrap(), &mut Claim::Unknown);
        found.map(|(_, service)| service.name.clone())
    };
    assert_eq!(service_of("2001:db8:64::192.0.2.1").as_deref(), Some("nat64-2"));
    assert_eq!(service_of("2001:db8:808:808::").as_deref(), Some("nat64"));
    assert_eq!(service_of("2001:db9::"), None);
}

#[test]
fn a_file_without_the_essentials_says_what_to_add() {
    assert_eq!(refused(""), ["gateway.toml:1: no service; add a [[service]]"]);
    assert_eq!(
        refused("\n[[service]]\n"),
        [
            "gateway.toml:2: service[0].kind: missing; add kind = \"nat64\"",
            "gateway.toml:2: service[0].prefix: missing; add prefix = \"64:ff9b::/96\"",
            "gateway.toml:2: service[0].pool: missing; add pool = [{ addresses = \"192.0.2.0/28\", ports = \"1024-65535\" }]",
        ]
    );
    assert_eq!(
        refused("[[service]]\nkind = \"nat46\"\nprefix = \"64:ff9b::/96\"\npool = [{ addresses = \"192.0.2.1\" }]"),
        [
            "gateway.toml:2: service[0].kind = \"nat46\": unknown (did you mean \"nat64\"?); use \"nat64\" or \"nat44\" or \"siit\" or \"clat\" or \"b4\" or \"aftr\" or \"lwb4\" or \"lwaftr\" or \"map-t\" or \"map-e\""
        ]
    );
}

#[test]
fn all_mistakes_are_reported_at_once_in_the_order_of_their_lines() {
    let text = "[gateway]\nmtu = 10\n[[service]]\nkind = \"nat64\"\nprefix = \"x\"\npool = [{ addresses = \"y\" }]\n[timeouts]\nudp = 0\n";
    let lines: Vec<_> = refused(text).iter().map(|line| line.split(": ").next().unwrap().to_owned()).collect();
    assert_eq!(lines, ["gateway.toml:2", "gateway.toml:5", "gateway.toml:6", "gateway.toml:8"]);
}

#[test]
fn what_is_not_toml_is_named_with_its_line() {
    let error = refused("[gateway]\nmtu = = 3\n");
    assert!(error[0].starts_with("gateway.toml:2: not TOML: "), "{error:?}");
    assert_eq!(error.len(), 1);
    let error = refused("[gateway]\nmtu = 1500\nmtu = 1501\n");
    assert!(error[0].starts_with("gateway.toml:3: not TOML: duplicate key"), "{error:?}");
}

#[test]
fn short_timeouts_are_taken_with_a_warning() {
    let configuration = accepted(&minimal("[timeouts]\nudp = 30\n"));
    let warnings: Vec<_> = configuration.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["gateway.toml:6: timeouts.udp = 30: shorter than RFC 4787 REQ-5 asks for; use 120 or more outside of tests"]
    );
}

#[test]
fn a_file_that_cannot_be_read_says_why() {
    let home = tempfile::tempdir().unwrap();
    let missing = home.path().join("no.toml");
    let error = tombolo_config::load(&missing).unwrap_err().to_string();
    assert_eq!(error, format!("{}: there is no such file; name another one with -c FILE", missing.display()));
    let error = tombolo_config::load(home.path()).unwrap_err().to_string();
    assert_eq!(error, format!("{}: is a directory; name the file in it", home.path().display()));
    let binary = home.path().join("binary.toml");
    std::fs::write(&binary, b"[gateway]\n\xff").unwrap();
    let error = tombolo_config::load(&binary).unwrap_err().to_string();
    assert_eq!(error, format!("{}:2: is not UTF-8; save the file in that encoding", binary.display()));
}

#[test]
fn the_examples_are_accepted_without_warnings() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let configuration = tombolo_config::load(&path).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(configuration.warnings, [], "{}", path.display());
            count += 1;
        }
    }
    assert!(count >= 1);
}

fn siit(configuration: &Configuration) -> &Siit {
    match &configuration.plan.services[0].kind {
        ServiceKind::Siit(siit) => siit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_key_of_a_stateless_service_arrives_in_the_plan() {
    let configuration = accepted(
        r#"
[[service]]
kind = "siit"
prefix = "2001:db8:64::/96"
eam = [{ ipv4 = "192.0.2.1", ipv6 = "2001:db8::1" }, { ipv4 = "198.51.100.0/24", ipv6 = "2001:db8:2::/64" }]
embedded_hosts = ["203.0.113.0/24"]
deny = ["192.168.0.0/16", "10.0.0.1"]
hairpinning = "simple"
well_known_prefix_strict = false
icmp_sources = ["198.51.100.8/29", "203.0.113.1"]
identify_nodes = true
udp_zero_checksum = "drop"
lowest_ipv6_mtu = 1400
"#,
    );
    assert_eq!(configuration.warnings, []);
    assert_eq!(configuration.plan.services[0].name, "siit");
    let siit = siit(&configuration);
    assert_eq!((siit.role, siit.hairpinning, siit.identify_nodes), (Role::Siit, Hairpinning::Simple, true));
    assert_eq!(siit.mapping.explicit.rows().len(), 2);
    assert_eq!(siit.mapping.to_ipv6([198, 51, 100, 7].into()).unwrap().address.to_string(), "2001:db8:2:0:700::");
    assert!(
        siit.mapping.denied.contains([192, 168, 3, 4].into()) && siit.mapping.denied.contains([10, 0, 0, 1].into())
    );
    let kind = &configuration.plan.services[0].kind;
    let claims = |address: [u8; 4]| kind.claims_ipv4(address.into(), &mut Default::default());
    assert!(claims([203, 0, 113, 9]) && !claims([203, 0, 114, 9]));
    assert!(!siit.mapping.well_known_prefix_strict);
    assert_eq!(siit.error_sources.ranges().len(), 2);
    assert_eq!((siit.translate.udp_zero_4to6, siit.translate.lowest_ipv6_mtu), (UdpZeroChecksum::Drop, 1400));
}

#[test]
fn explicit_mappings_that_lead_back_to_the_gateway_are_refused_with_their_lines() {
    let siit = |gateway: &str, row: &str| {
        format!("[gateway]\n{gateway}\n[[service]]\nkind = \"siit\"\nprefix = \"64:ff9b::/96\"\neam = [\n{row},\n]\n")
    };
    let own = "ipv4 = \"192.0.2.254\"\nipv6 = \"2001:db8:ffff::1\"";
    let answers = format!("{own}\nanswered_by = \"gateway\"");
    let cases = [
        (
            own,
            "{ ipv4 = \"192.0.2.254\", ipv6 = \"2001:db8::1\" }",
            "gateway.toml:8: service[0].eam[0]: maps gateway.ipv4, which the gateway answers itself; map another address, or give the gateway another",
        ),
        (
            answers.as_str(),
            "{ ipv4 = \"192.0.2.1\", ipv6 = \"2001:db8:ffff::1\" }",
            "gateway.toml:9: service[0].eam[0]: maps gateway.ipv6, which the gateway answers itself; map another address, or give the gateway another",
        ),
        (
            own,
            "{ ipv4 = \"10.0.0.0/8\", ipv6 = \"64:ff9b::/96\" }",
            "gateway.toml:8: service[0].eam[0]: holds 64:ff9b::/96, which is routed to this gateway: packets to it would come back; map other addresses",
        ),
        (
            own,
            "{ ipv4 = \"192.0.2.224/31\", ipv6 = \"64:ff9b::/127\" }",
            "gateway.toml:8: service[0].eam[0]: lies inside 64:ff9b::/96, which is routed to this gateway: packets to it would come back; map an address outside of it",
        ),
    ];
    for (gateway, row, expected) in cases {
        let found = refused(&siit(gateway, row));
        let [found] = &found[..] else { panic!("{found:?}") };
        let (place, text) = expected.split_once(": service").unwrap();
        assert!(found.starts_with(place) && found.ends_with(text.split_once(": ").unwrap().1), "{found}");
    }
    // On an interface of the host it is a host's address like any other.
    let row = "{ ipv4 = \"192.0.2.1\", ipv6 = \"2001:db8:ffff::1\" }";
    assert_eq!(accepted(&siit(own, row)).warnings, []);
    // What another service has counts too.
    let border = "[[service]]\nkind = \"map-e\"\nrole = \"br\"\nbr = \"2001:db8:77::1\"\nrules = [{ ipv6 = \"2001:db8::/40\", ipv4 = \"198.51.100.0/24\", ea_bits = 16 }]\n";
    let nat64 =
        "[[service]]\nkind = \"nat64\"\nprefix = \"2001:db8:77::/96\"\npool = [{ addresses = \"203.0.113.1\" }]\n";
    for (other, expected) in
        [(border, "holds 2001:db8:77::1, which is routed"), (nat64, "lies inside 2001:db8:77::/96, which is routed")]
    {
        let found = refused(&(siit(own, "{ ipv4 = \"192.0.2.1\", ipv6 = \"2001:db8:77::1\" }") + other));
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }
}

#[test]
fn who_speaks_for_routers_has_public_addresses() {
    let warnings = |sources: &str| {
        let text = format!("[[service]]\nkind = \"siit\"\nprefix = \"2001:db8:64::/96\"\nicmp_sources = [{sources}]\n");
        accepted(&text).warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(warnings("\"198.51.100.8/29\", \"203.0.113.1\""), [""; 0]);
    for private in ["10.0.0.1", "192.168.0.0/24", "100.64.0.1"] {
        let found = warnings(&format!("\"198.51.100.8\", \"{private}\""));
        assert!(found.len() == 1, "{private}: {found:?}");
        let expected = format!("service[0].icmp_sources[1] = \"{private}\": private addresses do not pass filters");
        assert!(found[0].contains(&expected) && found[0].contains("use public ones"), "{found:?}");
    }
}

#[test]
fn a_clat_has_a_prefix_and_addresses_for_its_hosts() {
    let configuration = accepted(
        "[[service]]\nkind = \"clat\"\nprefix = \"64:ff9b::/96\"\neam = [{ ipv4 = \"192.0.0.1\", ipv6 = \"2001:db8::464\" }]\n",
    );
    let siit = siit(&configuration);
    assert_eq!((siit.role, siit.hairpinning), (Role::Clat, Hairpinning::Off));
    assert_eq!(siit.translate.udp_zero_4to6, UdpZeroChecksum::Compute);
    assert_eq!(
        refused("[[service]]\nkind = \"clat\"\nhairpinning = \"simple\"\n"),
        [
            "gateway.toml:1: service[0].prefix: missing; add prefix = \"64:ff9b::/96\"",
            "gateway.toml:1: service[0]: the hosts inside have no IPv6 addresses; add eam = [{ ipv4 = \"192.0.0.1\", ipv6 = \"2001:db8::464\" }]",
            "gateway.toml:3: service[0].hairpinning = \"simple\": a CLAT has no IPv6 hosts inside; remove the key, or use kind = \"siit\"",
        ]
    );
}

#[test]
fn mistakes_in_explicit_mappings_name_the_row() {
    let with = |rows: &str| format!("[[service]]\nkind = \"siit\"\neam = [\n{rows}\n]\n");
    assert_eq!(
        refused(&with(
            "{ ipv4 = \"192.0.2.0/24\", ipv6 = \"2001:db8::/124\" },\n{ ipv4 = \"192.0.2.1/24\", ipv6 = \"x\" }"
        )),
        [
            "gateway.toml:4: service[0].eam[0].ipv6 = \"2001:db8::/124\": the IPv4 suffix has 8 bits and the IPv6 suffix only 4 (RFC 7757 section 3.2); make the IPv6 prefix at most 120 bits long",
            "gateway.toml:5: service[0].eam[1].ipv4 = \"192.0.2.1/24\": 192.0.2.1/24 has host bits set; the prefix is 192.0.2.0/24; write the prefix without host bits",
            "gateway.toml:5: service[0].eam[1].ipv6 = \"x\": \"x\" is not an address or a prefix; write it as 192.0.2.0/24 or 2001:db8::/120",
        ]
    );
    assert_eq!(
        refused(&with(
            "{ ipv4 = \"192.0.2.1\", ipv6 = \"2001:db8::1\" },\n{ ipv4 = \"192.0.2.2\", ipv6 = \"2001:db8::1\" }"
        )),
        [
            "gateway.toml:5: service[0].eam[1]: the prefix 2001:db8::1/128 is in service[0].eam[0] too; remove one of them (RFC 7757 section 5)",
        ]
    );
    let nested = accepted(&with(
        "{ ipv4 = \"10.0.0.0/8\", ipv6 = \"2001:db8:1::/48\" },\n{ ipv4 = \"10.1.0.0/16\", ipv6 = \"2001:db8:2::/64\" }",
    ));
    assert_eq!(
        nested.warnings[0].to_string(),
        "gateway.toml:5: service[0].eam[1]: lies inside service[0].eam[0]; addresses may be translated to one and back from another (RFC 7757 section 5)"
    );
}

#[test]
fn every_key_of_a_nat44_arrives_in_the_plan() {
    let configuration = accepted(
        r#"
[gateway]
table = 85

[[service]]
kind = "nat44"
inside = ["10.0.0.0/24", "10.0.1.0-10.0.1.9"]
untranslated = ["172.16.0.0/12"]
pool = [{ addresses = "192.0.2.0/28" }]
static = [{ inside = "10.0.0.2:8080", outside = "192.0.2.1:80", protocol = "tcp" }]
filtering = "address-dependent"
inbound_tcp = "denied"
bindings_per_subscriber = 99
port_parity = false
inside_mtu = 1400
outside_mtu = 1300
"#,
    );
    assert_eq!(configuration.warnings, []);
    assert_eq!(configuration.host.table, 85);
    assert_eq!(configuration.plan.services[0].name, "nat44");
    let ServiceKind::Nat44(nat44) = &configuration.plan.services[0].kind else { panic!("no NAT44") };
    let (host, server): (Ipv4Addr, Ipv4Addr) = ([10, 0, 1, 9].into(), [198, 51, 100, 1].into());
    let is_from_inside =
        |source: Ipv4Addr, destination| configuration.plan.services[0].kind.claims_source(source, destination);
    assert!(is_from_inside(host, server) && !is_from_inside([10, 0, 1, 10].into(), server));
    assert!(!is_from_inside(host, [172, 31, 0, 1].into()) && !is_from_inside(host, [10, 0, 0, 7].into()));
    assert_eq!((nat44.nat.pool.addresses(), nat44.nat.pool.ranges()[0].span.clone()), (16, 80..=65535));
    assert_eq!(configuration.plan.capacity.outside_slots, 16 * 3 * 65456);
    assert_eq!(nat44.nat.static_bindings[0].inside, Ipv4Addr::new(10, 0, 0, 2));
    assert_eq!((nat44.inside_mtu, nat44.outside_mtu), (1400, 1300));
    assert_eq!(nat44.nat.policy.filtering, Filtering::AddressDependent.into());
    assert_eq!(nat44.nat.policy.inbound_tcp, InboundTcp::Denied);
    assert_eq!(nat44.nat.policy.bindings_per_subscriber, Some(99));
    assert_eq!(nat44.nat.policy.parity, Parity::Ignore);
}

#[test]
fn a_mistake_in_a_nat44_is_named_with_its_fix() {
    assert_eq!(
        refused(
            r#"[gateway]
table = 254
[[service]]
kind = "nat44"
inside = ["10.0.0.0/24", "10.0.0.7", "192.0.2.8"]
pool = [{ addresses = "192.0.2.0/28" }]
static = [{ inside = "10.0.1.2:80", outside = "192.0.2.1:80", protocol = "tcp" }]
prefix = "64:ff9b::/96"
[[service]]
kind = "nat44"
inside = []
pool = [{ addresses = "198.51.100.1" }]
"#
        ),
        [
            "gateway.toml:2: gateway.table = 254: it, or the table behind it, is one that every host has and needs; choose another number",
            "gateway.toml:5: service[0].inside[1] = \"10.0.0.7\": overlaps service[0].inside[0] (10.0.0.0/24); give each its own addresses",
            "gateway.toml:6: service[0].pool[0].addresses = \"192.0.2.0/28\": overlaps service[0].inside[2] (192.0.2.8); give each its own addresses",
            "gateway.toml:7: service[0].static[0].inside = \"10.0.1.2:80\": 10.0.1.2 is not inside; add it to the key \"inside\", or use a host there",
            "gateway.toml:8: service[0].prefix = \"64:ff9b::/96\": unknown key; known here: kind, name, inside_interfaces, inside, untranslated, pool, masquerade, static, further_protocols, helpers, filtering, inbound_tcp, sessions, bindings_per_subscriber, limits, allocation, pcp, unsolicited_syn, port_parity, tcp_mss, inside_mtu, outside_mtu",
            "gateway.toml:11: service[1].inside = []: nobody is inside; add a prefix, as \"10.0.0.0/24\"",
        ]
    );
}

#[test]
fn limits_and_allocations_are_read() {
    let text = |allocation: &str| {
        format!(
            "[[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\nsubscriber_prefix = 64\n\
             unsolicited_syn = \"hold\"\nsessions = \"kept\"\npool = [{{ addresses = \"192.0.2.0/28\" }}]\n\
             limits = {{ sessions = 4000, new_bindings_per_second = 100, new_subscribers_per_second = 7 }}\n\
             static = [{{ inside = \"[2001:db8::2]:100\", outside = \"192.0.2.1:200\", protocol = \"tcp\", count = 5 }}]\n\
             allocation = {{ {allocation} }}\n"
        )
    };
    let read = |allocation: &str| nat64(&tombolo_config::parse("gateway.toml", &text(allocation)).unwrap(), 0).clone();
    let blocks = read("mode = \"blocks\", block_size = 256, blocks = 2");
    let policy = blocks.nat.policy;
    assert_eq!(
        (policy.sessions_per_subscriber, policy.binding_rate, policy.subscriber_rate),
        (Some(4000), Some(100), Some(7))
    );
    assert_eq!((policy.subscriber.prefix_length(), policy.unsolicited_syn), (64, UnsolicitedSyn::Hold));
    assert_eq!(policy.sessions, Sessions::Kept);
    assert_eq!(*blocks.nat.pool.allocation(), Allocation::Blocks(Blocks { size: 256, most: 2 }));
    let ports: Vec<_> = blocks.nat.static_bindings.iter().map(|b| (b.inside_port.0, b.outside.port.0)).collect();
    assert_eq!(ports, [(100, 200), (101, 201), (102, 202), (103, 203), (104, 204)]);
    let shared = read("mode = \"deterministic\", inside = \"2001:db8::/56\", order = \"rotate-addresses\"");
    let Allocation::Deterministic(shares) = shared.nat.pool.allocation() else { panic!() };
    assert_eq!((shares.ports_per_host(), shares.dynamic_ports(), shares.blocks), (64_512 / 16, None, None));
    let owner = shares.owner("192.0.2.1".parse().unwrap(), 1024 + 4032);
    assert_eq!(owner, Some(PortHolder::Subscriber("2001:db8:0:11::".parse().unwrap())));

    let mistakes = |allocation: &str| tombolo_config::parse("gateway.toml", &text(allocation)).unwrap_err().to_string();
    for (allocation, expected) in [
        ("block_size = 100", "service[0].allocation.mode: missing"),
        ("mode = \"blocks\", block_size = 63", "out of range; use 64 to 32768"),
        ("mode = \"blocks\", blocks = 5", "out of range; use 1 to 4"),
        ("mode = \"deterministic\"", "service[0].allocation.inside: missing"),
        ("mode = \"deterministic\", inside = \"2001:db8::/39\"", "does not hold 1 to 16777216 subscribers"),
        ("mode = \"deterministic\", inside = \"2001:db8::/65\"", "does not hold 1 to 16777216 subscribers"),
        ("mode = \"deterministic\", inside = \"2001:db8::1/56\"", "write \"2001:db8::/56\""),
        ("mode = \"deterministic\", inside = \"2001:db8::/41\"", "leave no port for each"),
    ] {
        let found = mistakes(allocation);
        assert!(found.contains(expected), "{allocation}: {found}");
    }
}

#[test]
fn mistakes_of_shares_and_ranges_are_named() {
    for (more, expected) in [
        (
            "pool = [{ addresses = \"192.0.2.0\", ports = \"1024-1100\" }]\nallocation = { mode = \"blocks\" }",
            "fewer than 128 ports",
        ),
        (
            "pool = [{ addresses = \"192.0.2.0\" }]\nallocation = { mode = \"deterministic\", inside = \"::/0\" }",
            "from its own key \"inside\"",
        ),
        (
            "pool = [{ addresses = \"192.0.2.0\", protocols = [\"udp\"] }]\nallocation = { mode = \"deterministic\" }",
            "different ports",
        ),
        (
            "pool = [{ addresses = \"192.0.2.0\" }]\nstatic = [{ inside = \"10.0.0.1:65530\", outside = \"192.0.2.0:9\", protocol = \"tcp\", count = 9 }]",
            "out of range; use 1 to 6",
        ),
        (
            "pool = [{ addresses = \"192.0.2.0\" }]\nstatic = [{ inside = \"10.0.0.1:10\", outside = \"192.0.2.0:10\", protocol = \"tcp\", count = 9 }, { inside = \"10.0.0.1:90\", outside = \"192.0.2.0:15\", protocol = \"tcp\" }]",
            "static[1]: has the same outside endpoint as static[0]",
        ),
        ("pool = [{ addresses = \"192.0.2.0\" }]\nlimits = { new_bindings_per_second = 40000 }", "use 1 to 32767"),
        ("pool = [{ addresses = \"192.0.2.0\" }]\nsubscriber_prefix = 64", "unknown key"),
    ] {
        let text = format!("[[service]]\nkind = \"nat44\"\ninside = [\"10.0.0.0/24\"]\n{more}\n");
        let found = tombolo_config::parse("gateway.toml", &text).unwrap_err().to_string();
        assert!(found.contains(expected), "{more}: {found}");
    }
}

#[test]
fn tunnels_say_what_segments_fit_them() {
    let largest = |service: &str, more: &str| {
        let text = format!("[[service]]\n{service}\n{more}\n");
        let plan = tombolo_config::parse("gateway.toml", &text).unwrap_or_else(|error| panic!("{error:?}")).plan;
        match &plan.services[0].kind {
            ServiceKind::B4(b4) => b4.softwire.largest_segment,
            ServiceKind::Aftr(aftr) => aftr.softwire.largest_segment,
            ServiceKind::Lwb4(lwb4) => lwb4.softwire.largest_segment,
            ServiceKind::Lwaftr(lwaftr) => lwaftr.softwire.largest_segment,
            ServiceKind::MapECe(ce) => ce.softwire.largest_segment,
            ServiceKind::MapEBr(br) => br.softwire.largest_segment,
            _ => panic!("no softwire"),
        }
    };
    let rules = "rules = [{ ipv6 = \"2001:db8:4600::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16 }]";
    let map = |role: &str| format!("kind = \"map-e\"\nrole = \"{role}\"\nbr = \"2001:db8:ffff::1\"\n{rules}");
    let edge = "end_user_prefix = \"2001:db8:4612:3400::/56\"\ninside = [\"10.0.0.0/24\"]";
    let services = [
        "kind = \"b4\"\ninside = [\"10.0.0.0/24\"]\naddress = \"2001:db8::b4\"\naftr = \"2001:db8:ffff::1\"".to_owned(),
        "kind = \"aftr\"\naddress = \"2001:db8:ffff::1\"\nb4s = [\"2001:db8:1000::/36\"]\n\
         pool = [{ addresses = \"192.0.2.0/28\" }]"
            .to_owned(),
        "kind = \"lwb4\"\ninside = [\"10.0.0.0/24\"]\nipv4 = \"192.0.2.10\"\npsid_length = 6\npsid = 4\n\
         bind_prefix = \"2001:db8:1000:100::/56\"\naftr = \"2001:db8:ffff::1\""
            .to_owned(),
        "kind = \"lwaftr\"\naddresses = [\"2001:db8:ffff::1\"]\nipv4 = [\"192.0.2.0/28\"]\nsoftwires = []".to_owned(),
        format!("{}\n{edge}", map("ce")),
        map("br"),
    ];
    for service in &services {
        assert_eq!(largest(service, ""), Some(1420), "{service}");
        assert_eq!(largest(service, "ipv6_mtu = 1540"), Some(1460));
        assert_eq!(largest(service, "tcp_mss = \"off\""), None);
        assert_eq!(largest(service, "tcp_mss = 1200"), Some(1200));
    }
}

#[test]
fn each_protocol_may_have_its_own_filtering() {
    let text = |filtering: &str| {
        format!(
            "[[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\npool = [{{ addresses = \"192.0.2.1\" }}]\n{filtering}\n"
        )
    };
    let strict = Filtering::AddressDependent;
    let read = |filtering: &str| nat64(&parse("gateway.toml", &text(filtering)).unwrap(), 0).nat.policy.filtering;
    assert_eq!(read("filtering = { tcp = \"address-dependent\" }"), Filters::default().with(PortSpace::Tcp, strict));
    let both = "filtering = { udp = \"address-dependent\", tcp = \"endpoint-independent\" }";
    assert_eq!(read(both), Filters::default().with(PortSpace::Udp, strict));
    let found =
        parse("gateway.toml", &text("filtering = { tcp = \"strict\", sctp = \"none\" }")).unwrap_err().to_string();
    assert!(found.contains("service[0].filtering.tcp = \"strict\": unknown; use"), "{found}");
    assert!(found.contains("service[0].filtering.sctp = \"none\": unknown key"), "{found}");
}

#[test]
fn the_fast_path_is_chosen_for_the_host_and_for_interfaces() {
    let eth1 = "[[interface]]\nname = \"eth1\"\nfastpath";
    let host =
        accepted(&minimal(&format!("[gateway]\nfastpath = \"auto\"\nfastpath_netfilter = true\n{eth1} = \"off\"\n")))
            .host;
    assert_eq!((host.fastpath, host.fastpath_netfilter), (FastPath::Auto, true));
    assert_eq!(host.interfaces["eth1"], FastPath::Off);
    accepted(&minimal(&format!("[gateway]\nfastpath = \"xdp\"\nfastpath_netfilter = false\n{eth1} = \"xdp\"\n")));
    let expected = "gateway.toml:6: gateway.fastpath_netfilter = true: netfilter cannot see what XDP sends; where fastpath is \
                    \"xdp\", make it \"tc\" or \"auto\"";
    for modes in ["fastpath = \"xdp\"".to_owned(), format!("fastpath = \"tc\"\n{eth1} = \"xdp\"")] {
        let found = refused(&minimal(&format!("[gateway]\nfastpath_netfilter = true\n{modes}\n")));
        assert_eq!(found, [expected]);
    }
    let found = refused(&minimal(&format!("{eth1} = \"tc\"\n{eth1} = \"off\"\n"))).join("\n");
    assert!(found.contains("a second table for eth1; remove one of them"), "{found}");
}

#[test]
fn a_pool_may_be_the_address_of_an_interface() {
    let service = |pool: &str| format!("[[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\n{pool}");
    let read = |pool: &str| tombolo_config::parse("gateway.toml", &service(pool)).unwrap();
    let one = read(
        "pool = [{ interface = \"eth0\", ports = \"20000-39999\" }, { addresses = \"192.0.2.1\" }]\n\
         static = [{ inside = \"[2001:db8::2]:80\", outside = \"eth0:8080\", protocol = \"tcp\" }]\n",
    );
    assert_eq!(nat64(&one, 0).nat.pool.addresses(), 1, "the one that is known");
    assert!(nat64(&one, 0).nat.static_bindings.is_empty());
    let [shared] = one.host.shared_pools.as_slice() else { panic!("{:?}", one.host.shared_pools) };
    assert_eq!((shared.service.as_str(), shared.interface.to_string()), ("nat64", "eth0".to_owned()));
    assert_eq!(shared.ports[0].ranges(), [20_000..=39_999]);
    assert_eq!(shared.static_bindings[0].outside.port.0, 8080);

    for (masquerade, interface) in [("true", "auto"), ("\"ppp0\"", "ppp0")] {
        let short = read(&format!("masquerade = {masquerade}\n"));
        let long = read(&format!("pool = [{{ interface = \"{interface}\", ports = \"10000-29999\" }}]\n"));
        assert_eq!(short.host.shared_pools, long.host.shared_pools);
        assert!(short.plan.capacity.bindings >= 3 * 20_000 && short.plan.capacity.outside_slots >= 3 << 16);
    }
    assert!(read("masquerade = false\npool = [{ addresses = \"192.0.2.1\" }]\n").host.shared_pools.is_empty());
}

#[test]
fn an_interface_has_one_address_for_one_service() {
    let text = |first: &str, second: &str| {
        format!(
            "[[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\n{first}\n\
             [[service]]\nkind = \"nat44\"\ninside = [\"10.0.0.0/24\"]\n{second}\n"
        )
    };
    let eth0 = "pool = [{ interface = \"eth0\" }]";
    assert_eq!(
        refused(&text(eth0, eth0)),
        [
            "gateway.toml:8: service[1].pool[0]: service nat64 has the address of eth0; an address belongs to one service, give this one another"
        ]
    );
    assert_eq!(
        refused(&text("pool = [{ interface = \"eth0\", addresses = \"192.0.2.1\" }]", "masquerade = 1")),
        [
            "gateway.toml:4: service[0].pool[0].addresses = \"192.0.2.1\": the address is that of the interface; remove one of the two keys",
            "gateway.toml:8: service[1].masquerade = 1: neither true nor an interface; use true, or a name as \"eth0\"",
        ]
    );
    assert_eq!(
        refused(&text(
            "masquerade = true\nsubscriber_prefix = 64\nallocation = { mode = \"deterministic\", inside = \"2001:db8::/64\" }",
            eth0
        ))
        .len(),
        1
    );
}

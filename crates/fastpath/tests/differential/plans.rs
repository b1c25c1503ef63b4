//! The plans that are tried.

use std::net::Ipv4Addr;

use tombolo_engine::Plan;
use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::eam::{Eam, EamTable, parse_prefix};
use tombolo_engine::mapping::error_sources::ErrorSources;
use tombolo_engine::mapping::exemptions::{Exemption, Exemptions};
use tombolo_engine::mapping::networks::Networks;
use tombolo_engine::mapping::pool::{Owner, Parity, Pool, PoolRange, PortRanges, PortSpace};
use tombolo_engine::mapping::stateless::{DenyList, StatelessMap};
use tombolo_engine::mechanism::napt::{
    Endpoint, Filtering, Filters, InboundTcp, Nat, Policy, Sessions, SubscriberIs, Times, UnsolicitedSyn,
};
use tombolo_engine::mechanism::session_state::Timeouts;
use tombolo_engine::mechanism::{TrafficClass, TranslateSettings};
use tombolo_engine::plan::{OwnAddresses, Service, ServiceKind, StaticBinding};
use tombolo_engine::service::nat44::Nat44;
use tombolo_engine::service::nat64::Nat64;
use tombolo_engine::service::siit::{Hairpinning, Role, Siit};
use tombolo_tables::lpm::Prefix;
use tombolo_tables::tables::{Budget, Capacity};
use tombolo_wire::{Port, Prefix64};

use crate::packets::{self, Numbers};
use crate::world::World;

pub(crate) const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const OTHER_POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);

/// Name, plan, and what makes a frame for it.
pub(crate) type Case = (&'static str, Plan, Box<dyn Fn(&mut Numbers, &World) -> Vec<u8>>);

pub(crate) fn all() -> Vec<Case> {
    let plain = Policy::default();
    let mut cases = Vec::new();
    let lengths = [
        "64:ff9b::/96",
        "2001:db8:64::/96",
        "2001:db8:64::/64",
        "2001:db8:64::/56",
        "2001:db8:64::/48",
        "2001:db8:6400::/40",
        "3fff::/32",
    ];
    for prefix in lengths {
        cases.push(nat64_case(prefix, prefix, plain, TranslateSettings::default(), vec![pool(1024..=1060, 0)]));
    }
    let strange = TranslateSettings {
        traffic_class_4to6: TrafficClass::Force(0x28),
        traffic_class_6to4: TrafficClass::Force(0),
        ipv4_mtu: 1280,
        ipv6_mtu: 1400,
        lowest_ipv6_mtu: 1400,
        ..TranslateSettings::default()
    };
    let limits = Policy { bindings_per_subscriber: Some(6), parity: Parity::Ignore, ..plain };
    cases.push(nat64_case("limits and classes", "64:ff9b::/96", limits, strange, vec![pool(1..=1100, 0)]));
    let mixed = Filters::from(Filtering::EndpointIndependent).with(PortSpace::Tcp, Filtering::AddressDependent);
    let mixed = Policy { filtering: mixed, ..plain };
    let strict = Policy { filtering: Filtering::AddressDependent.into(), inbound_tcp: InboundTcp::Denied, ..plain };
    let settings = TranslateSettings::default();
    cases.push(nat64_case("address-dependent", "64:ff9b::/96", strict, settings, vec![pool(1024..=1090, 0)]));
    let kept = Policy { sessions: Sessions::Kept, ..plain };
    cases.push(nat64_case("sessions kept", "64:ff9b::/96", kept, settings, vec![pool(1024..=1060, 0)]));
    let few = Policy { unanswered: Budget { of_binding: 2, of_subscriber: 3 }, ..plain };
    cases.push(nat64_case("few unanswered", "64:ff9b::/96", few, settings, vec![pool(1024..=1060, 0)]));
    let closed = Policy { inbound_tcp: InboundTcp::Denied, ..plain };
    let counted = Policy {
        sessions_per_subscriber: Some(20),
        binding_rate: Some(40),
        subscriber: SubscriberIs::Host { prefix_length: 64 },
        ..plain
    };
    cases.push(nat64_case("counted", "64:ff9b::/96", counted, settings, vec![pool(1024..=1090, 0)]));
    let hold = Policy { unsolicited_syn: UnsolicitedSyn::Hold, ..plain };
    let clamp = TranslateSettings { largest_segment: Some(1220), ..settings };
    cases.push(nat64_case("held SYNs, lowered segments", "64:ff9b::/96", hold, clamp, vec![pool(1024..=1090, 0)]));
    cases.push(nat64_case("no inbound TCP", "64:ff9b::/96", closed, settings, vec![pool(1024..=1090, 0)]));
    cases.push(listed_case("nat64, some inside", &["2001:db8:1::2/127", "2001:db8:1::5/128"]));
    let many: Vec<String> = (0..9).map(|n| format!("2001:db8:1::{}/128", 2 * n + 2)).collect();
    cases.push(listed_case("nat64, many inside", &many.iter().map(String::as_str).collect::<Vec<_>>()));
    cases.push(nested_case("nat64, a prefix in another"));
    cases.push(round_case("nat64 twice, packets that have come round"));
    cases.push(both_sides_case("nat64, permissions renewed from both sides", UnsolicitedSyn::Drop));
    cases.push(both_sides_case("nat64, SYNs held that filtering stops", UnsolicitedSyn::Hold));
    cases.push(exempt_case("nat44, some ports untranslated"));
    cases.push(assigned_case("nat64, addresses for some"));
    for (name, policy) in [
        ("nat44, short ports", plain),
        ("nat44, short ports, sessions kept", kept),
        ("nat44, short ports, address-dependent", strict),
    ] {
        let (name, mut plan, build) = nat44_case(name, policy, 1500);
        plan.times = plan.times.with_short_ports(&[(Port(80), 12), (Port(5000), 3)]);
        cases.push((name, plan, build));
    }
    for (name, policy) in [
        ("nat44", plain),
        ("nat44, sessions kept", kept),
        ("nat44, limits", limits),
        ("nat44, address-dependent", strict),
        ("nat44, TCP address-dependent", mixed),
    ] {
        cases.push(nat44_case(name, policy, 1500));
    }
    cases.push(nat44_case("nat44, narrow", closed, 1290));
    cases.push(both_case("nat64 and nat44", [0, 1], plain));
    cases.push(both_case("nat64 and nat44, the other way round", [1, 0], plain));
    cases.push(both_case("nat64 and nat44, with gaps", [9, 2], plain));
    for (name, role, hairpinning, prefix) in [
        ("siit", Role::Siit, Hairpinning::Intrinsic, Some("2001:db8:64::/96")),
        ("siit, simple", Role::Siit, Hairpinning::Simple, Some("2001:db8:64::/48")),
        ("siit, well-known", Role::Siit, Hairpinning::Off, Some("64:ff9b::/96")),
        ("siit, explicit only", Role::Siit, Hairpinning::Intrinsic, None),
        ("clat", Role::Clat, Hairpinning::Off, Some("2001:db8:64::/96")),
    ] {
        cases.push(siit_case(name, role, hairpinning, prefix));
    }
    cases.extend(crate::portions::cases());
    cases.extend(crate::softwires::cases());
    cases.extend(crate::borders::cases());
    cases.extend(crate::cluster::cases());
    cases.extend(crate::shortcuts::cases());
    cases
}

pub(crate) fn nat44_case(name: &'static str, policy: Policy, mtu: u32) -> Case {
    let kind = ServiceKind::Nat44(nat44(policy, mtu, vec![pool(1024..=1060, 0)]));
    let service = Service::new(0, name, kind);
    (name, plan(vec![service]), Box::new(|numbers, world| packets::nat44(numbers, world, POOL)))
}

fn nat44(policy: Policy, mtu: u32, ranges: Vec<PoolRange>) -> Nat44 {
    let range = |first: [u8; 4], last: [u8; 4]| Ipv4Addr::from(first)..=Ipv4Addr::from(last);
    Nat44 {
        inside: AddressRanges::new([range([10, 0, 0, 0], [10, 0, 0, 15]), range([10, 0, 1, 0], [10, 0, 1, 3])]),
        untranslated: AddressRanges::new([range([9, 9, 9, 9], [9, 9, 9, 9])]),
        exempt: Exemptions::default(),
        nat: Nat { pool: Pool::new(ranges), policy, static_bindings: Vec::new() },
        inside_mtu: mtu,
        outside_mtu: mtu - 20,
        largest_segment: (mtu < 1400).then_some(1200),
    }
}

fn siit_case(name: &'static str, role: Role, hairpinning: Hairpinning, prefix: Option<&str>) -> Case {
    let rows = [
        ("192.0.2.1", "2001:db8:1::2"),
        ("192.0.2.2", "2001:db8:1::3"),
        ("203.0.113.0/29", "2001:db8:1::f0/125"),
        ("198.51.100.0/24", "2001:db8:1:1::/64"),
        ("8.8.0.0/16", "2001:db8:100::/40"),
        ("8.8.8.8", "2001:db8:1::8"),
    ];
    let rows: Vec<Eam> = rows.iter().map(|(ipv4, ipv6)| Eam::parse(ipv4, ipv6).unwrap()).collect();
    let prefix: Option<Prefix64> = prefix.map(|prefix| prefix.parse().unwrap());
    let kind = ServiceKind::Siit(Siit {
        role,
        mapping: StatelessMap {
            explicit: EamTable::new(rows.clone()).unwrap(),
            prefix,
            well_known_prefix_strict: true,
            denied: DenyList::default(),
        },
        dynamic: None,
        embedded_hosts: vec![Prefix::covering(u32::from_be_bytes([10, 1, 2, 0]), 24)],
        hairpinning,
        error_sources: ErrorSources::default(),
        identify_nodes: false,
        translate: TranslateSettings::default(),
    });
    let plan = plan(vec![Service::new(0, name, kind)]);
    let build = move |numbers: &mut Numbers, _: &World| packets::stateless(numbers, &rows, prefix);
    (name, plan, Box::new(build))
}

/// A NAT64 and a NAT44 side by side, which have these numbers: after reloads others than their places.
pub(crate) fn both_case(name: &'static str, numbers: [u8; 2], policy: Policy) -> Case {
    let (_, nat64, _) =
        nat64_case("", "64:ff9b::/96", policy, TranslateSettings::default(), vec![pool(1024..=1060, 0)]);
    let slots = nat64.outside_slots().unwrap();
    let mut range = pool(1024..=1060, slots);
    (range.first, range.last) = (OTHER_POOL, OTHER_POOL);
    let kind = ServiceKind::Nat44(nat44(policy, 1500, vec![range]));
    let [first, second] = numbers;
    let nat64 = Service { number: first, ..nat64.services[0].clone() };
    let plan = plan(vec![nat64, Service::new(second, "nat44", kind)]);
    let build = |numbers: &mut Numbers, world: &World| {
        if numbers.one_in(2) {
            packets::nat64(numbers, world, Prefix64::WELL_KNOWN, POOL)
        } else {
            packets::nat44(numbers, world, OTHER_POOL)
        }
    };
    (name, plan, Box::new(build))
}

pub(crate) fn pool(ports: std::ops::RangeInclusive<u16>, first_slot: u32) -> PoolRange {
    let set = PortRanges::new([ports.clone()]);
    PoolRange {
        first: POOL,
        last: Ipv4Addr::from_bits(POOL.to_bits() + 1),
        ports: [set.clone(), set.clone(), set],
        span: 80..=*ports.end().max(&2000),
        first_slot,
        owner: Owner::Gateway,
    }
}

pub(crate) fn nat64_case(
    name: &'static str,
    prefix: &str,
    policy: Policy,
    translate: TranslateSettings,
    ranges: Vec<PoolRange>,
) -> Case {
    let prefix: Prefix64 = prefix.parse().unwrap();
    let server = StaticBinding {
        space: PortSpace::Tcp,
        softwire: std::net::Ipv6Addr::UNSPECIFIED,
        inside: "2001:db8:1::2".parse().unwrap(),
        inside_port: Port(80),
        outside: Endpoint { address: POOL, port: Port(80) },
    };
    let kind = ServiceKind::Nat64(Nat64 {
        prefix,
        inside: Networks::default(),
        well_known_prefix_strict: true,
        nat: Nat { pool: Pool::new(ranges), policy, static_bindings: vec![server] },
        translate,
    });
    (
        name,
        plan(vec![Service::new(0, name, kind)]),
        Box::new(move |numbers, world| packets::nat64(numbers, world, prefix, POOL)),
    )
}

/// A NAT64 that some may use, by their prefixes.
fn listed_case(name: &'static str, inside: &[&str]) -> Case {
    let settings = TranslateSettings::default();
    let ranges = vec![pool(1024..=1090, 0)];
    let (name, mut plan, build) = nat64_case(name, "64:ff9b::/96", Policy::default(), settings, ranges);
    if let ServiceKind::Nat64(nat64) = &mut plan.services[0].kind {
        nat64.inside = Networks::new(inside.iter().map(|text| parse_prefix(text).unwrap()));
    }
    (name, plan, build)
}

/// Two NAT64s, the prefix of one in that of the other.
fn nested_case(name: &'static str) -> Case {
    two_nat64(name, ["3fff:0:808:808::/96", "3fff::/32"])
}

/// Two NAT64s, and packets to the one that come out of either (RFC 6146 section 3.5).
pub(crate) fn round_case(name: &'static str) -> Case {
    let prefixes = ["64:ff9b::/96", "2001:db8:64::/96"];
    let (_, mut plan, plain) = two_nat64(name, prefixes);
    // Hosts and the second prefix are one subscriber: one who is not known is the engine's, whatever the source.
    for service in &mut plan.services {
        if let ServiceKind::Nat64(nat64) = &mut service.kind {
            nat64.nat.policy.subscriber = SubscriberIs::Host { prefix_length: 32 };
        }
    }
    let prefixes = prefixes.map(|prefix| prefix.parse::<Prefix64>().unwrap());
    let build = move |numbers: &mut Numbers, world: &World| {
        if !numbers.one_in(4) {
            return plain(numbers, world);
        }
        let [source, destination] = [(); 2].map(|()| {
            let address = packets::remote(numbers);
            numbers.pick(&prefixes).embed(address)
        });
        let ports = packets::ports(numbers);
        packets::ipv6_frame(numbers, source, destination, ports)
    };
    (name, plan, Box::new(build))
}

/// With these prefixes, and a pool of its own for each.
fn two_nat64(name: &'static str, [first, second]: [&str; 2]) -> Case {
    let settings = TranslateSettings::default();
    let one = |prefix, ranges| nat64_case(name, prefix, Policy::default(), settings, ranges);
    let (_, mut plan, to_first) = one(first, vec![pool(1024..=1060, 0)]);
    let first_slots = plan.outside_slots().unwrap();
    let second_pool = PoolRange { first: OTHER_POOL, last: OTHER_POOL, ..pool(1024..=1060, first_slots) };
    let (_, other, to_second) = one(second, vec![second_pool]);
    plan.services.extend(other.services.into_iter().map(|service| Service { number: 1, ..service }));
    if let ServiceKind::Nat64(nat64) = &mut plan.services[1].kind {
        nat64.nat.static_bindings.clear();
    }
    plan.capacity.outside_slots = plan.outside_slots().unwrap();
    let build = move |numbers: &mut Numbers, world: &World| {
        if numbers.one_in(2) { to_first(numbers, world) } else { to_second(numbers, world) }
    };
    (name, plan, Box::new(build))
}

/// A NAT64 that filters by address, and a few conversations that go on: who refreshes a session renews
/// its permission (RFC 6146 section 3.5.1). A SYN whose sender has none may wait in a session of its own.
fn both_sides_case(name: &'static str, unsolicited_syn: UnsolicitedSyn) -> Case {
    let policy = Policy { filtering: Filtering::AddressDependent.into(), unsolicited_syn, ..Policy::default() };
    let ranges = vec![pool(1024..=1060, 0)];
    let (name, plan, _) = nat64_case(name, "64:ff9b::/96", policy, TranslateSettings::default(), ranges);
    let build = |numbers: &mut Numbers, world: &World| {
        let remote = numbers.pick(&[Ipv4Addr::new(8, 8, 8, 8), Ipv4Addr::new(9, 9, 9, 9)]);
        let remote_port = numbers.pick(&[80, 5000]);
        let bound = packets::bound(numbers, world);
        if let Some((address, port)) = bound.filter(|_| numbers.one_in(2)) {
            return packets::ipv4_frame(numbers, remote, address, (remote_port, port));
        }
        let host = numbers.pick(&["2001:db8:1::2", "2001:db8:1::3"]).parse().unwrap();
        packets::ipv6_frame(numbers, host, Prefix64::WELL_KNOWN.embed(remote), (5001, remote_port))
    };
    (name, plan, Box::new(build))
}

/// A NAT44 whose hosts reach some ports with their own addresses.
fn exempt_case(name: &'static str) -> Case {
    let (name, mut plan, build) = nat44_case(name, Policy::default(), 1500);
    let ports = |port: u16| PortRanges::new([port..=port]);
    let everywhere = Ipv4Addr::new(1, 0, 0, 0)..=Ipv4Addr::new(223, 255, 255, 255);
    let one = Ipv4Addr::new(203, 0, 113, 7);
    if let ServiceKind::Nat44(nat44) = &mut plan.services[0].kind {
        nat44.exempt = Exemptions(vec![
            Exemption { addresses: everywhere, tcp: PortRanges::default(), udp: ports(123) },
            Exemption { addresses: one..=one, tcp: ports(80), udp: PortRanges::new([80..=80, 5000..=5001]) },
        ]);
    }
    (name, plan, build)
}

/// A NAT64 with an address that is for some of its hosts.
fn assigned_case(name: &'static str) -> Case {
    let (first, second) = (pool(1024..=1060, 0), pool(1024..=1060, pool(1024..=1060, 0).slots().unwrap()));
    let second = PoolRange { first: OTHER_POOL, last: OTHER_POOL, ..second };
    let settings = TranslateSettings::default();
    let (name, mut plan, build) = nat64_case(name, "64:ff9b::/96", Policy::default(), settings, vec![first, second]);
    if let ServiceKind::Nat64(nat64) = &mut plan.services[0].kind {
        let hosts = parse_prefix("2001:db8:1::4/126").unwrap();
        nat64.nat.pool = nat64.nat.pool.clone().with_assigned([(hosts, (OTHER_POOL, OTHER_POOL))]);
    }
    (name, plan, build)
}

pub(crate) fn plan(services: Vec<Service>) -> Plan {
    let timeouts =
        Timeouts { udp: 40, icmp: 20, tcp_established: 50, tcp_transitory: 15, tcp_incoming_syn: 6, tcp_opening: 15 };
    let mut plan = Plan {
        services,
        retired: Vec::new(),
        cluster: None,
        rows: tombolo_engine::row::Rows::default(),
        times: Times::new(&timeouts, 10),
        capacity: Capacity { subscribers: 20, bindings: 70, sessions: 150, outside_slots: 0, leases: 0 },
        pcp: Default::default(),
        own: OwnAddresses {
            ipv4: Some(Ipv4Addr::new(198, 51, 100, 1)),
            ipv6: Some("2001:db8:1::1".parse().unwrap()),
            ..OwnAddresses::default()
        },
    };
    plan.capacity.outside_slots = plan.outside_slots().unwrap().max(16);
    plan
}

//! The ends of softwires and the customer's edges: their plans, and frames for them.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::eam::parse_prefix;
use tombolo_engine::mapping::error_sources::ErrorSources;
use tombolo_engine::mapping::exemptions::Exemptions;
use tombolo_engine::mapping::map_domain::MapDomain;
use tombolo_engine::mapping::map_rule::{MapCe, MapRule};
use tombolo_engine::mapping::networks::Networks;
use tombolo_engine::mapping::pool::{Owner, Parity, Pool, PoolRange, PortRanges};
use tombolo_engine::mechanism::napt::{InboundTcp, Nat, Policy, SubscriberIs};
use tombolo_engine::mechanism::{Softwire, SoftwireSettings, TrafficClass, TranslateSettings};
use tombolo_engine::plan::{Service, ServiceKind};
use tombolo_engine::service::aftr::{Aftr, Untranslated};
use tombolo_engine::service::b4::B4;
use tombolo_engine::service::lwb4::Lwb4;
use tombolo_engine::service::map::MapEdge;
use tombolo_engine::service::map_e_ce::MapECe;
use tombolo_engine::service::map_t_ce::MapTCe;
use tombolo_engine::service::nat44::Nat44;
use tombolo_tables::lpm::Prefix;
use tombolo_wire::Prefix64;

use crate::packets::{self, Numbers};
use crate::plans::{self, Case, POOL, plan};
use crate::portions::in_blocks;
use crate::world::World;

pub(crate) const LOCAL: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x1000, 0x100, 0, 0, 0, 0xb4);
pub(crate) const REMOTE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
/// 192.0.2.18 with PSID 0x34 (RFC 7597 appendix A).
const MAP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 18);

pub(crate) fn cases() -> Vec<Case> {
    let narrow = SoftwireSettings { ipv6_mtu: 1290, hop_limit: 9, ..SoftwireSettings::default() };
    let pipe = SoftwireSettings {
        traffic_class: TrafficClass::Force(0xb8),
        largest_segment: Some(1200),
        ..SoftwireSettings::default()
    };
    let plain = Policy::default();
    let closed = Policy { inbound_tcp: InboundTcp::Denied, parity: Parity::Ignore, ..plain };
    vec![
        b4("b4", SoftwireSettings::default()),
        b4("b4, narrow", narrow),
        b4("b4, pipe", pipe),
        aftr("aftr", SoftwireSettings::default(), plain),
        aftr("aftr, narrow", narrow, closed),
        in_blocks(aftr("aftr, blocks", SoftwireSettings::default(), plain)),
        continuity_case("aftr, addresses of ends"),
        lwb4("lwb4", SoftwireSettings::default(), plain),
        lwb4("lwb4, pipe", pipe, closed),
        map_e("map-e ce", MapDomain::default()),
        map_e("map-e ce, mesh", MapDomain::new(vec![rule()]).unwrap()),
        map_t("map-t ce", MapDomain::default(), dmr()),
        map_t("map-t ce, mesh", MapDomain::new(vec![rule()]).unwrap(), dmr()),
        map_t("map-t ce, well-known prefix", MapDomain::default(), Prefix64::WELL_KNOWN),
        without_napt_case("map-e ce without napt, beside a nat64"),
    ]
}

fn case(name: &'static str, kind: ServiceKind, build: impl Fn(&mut Numbers, &World) -> Vec<u8> + 'static) -> Case {
    (name, plan(vec![Service::new(0, name, kind)]), Box::new(build))
}

fn inside() -> AddressRanges {
    AddressRanges::new([Ipv4Addr::new(10, 0, 0, 0)..=Ipv4Addr::new(10, 0, 1, 3)])
}

fn pool(address: Ipv4Addr, ports: PortRanges) -> Pool {
    let span = *ports.ranges()[0].start()..=*ports.ranges().last().unwrap().end();
    let ports = [ports.clone(), ports.clone(), ports];
    Pool::new(vec![PoolRange { first: address, last: address, ports, span, first_slot: 0, owner: Owner::Gateway }])
}

fn b4(name: &'static str, softwire: SoftwireSettings) -> Case {
    let ends = Softwire { local: LOCAL, remote: REMOTE };
    let kind = ServiceKind::B4(B4 {
        inside: inside(),
        ends,
        far_end: None,
        softwire,
        icmp_source: Ipv4Addr::new(192, 0, 0, 2),
    });
    case(name, kind, |numbers, _| {
        if numbers.one_in(2) {
            return packets::from_inside(numbers, POOL);
        }
        let (from, to) = (packets::remote(numbers), packets::host(numbers));
        let ports = packets::ports(numbers);
        let frame = packets::ipv4_frame(numbers, from, to, ports);
        tunnelled(numbers, (REMOTE, LOCAL), &frame)
    })
}

fn aftr(name: &'static str, softwire: SoftwireSettings, policy: Policy) -> Case {
    let kind = ServiceKind::Aftr(Aftr {
        address: REMOTE,
        b4s: Networks::new([Prefix::new("2001:db8:1000::".parse().unwrap(), 36).unwrap()]),
        inside: inside(),
        untranslated: Untranslated::default(),
        nat: Nat {
            pool: pool(POOL, PortRanges::new([1024..=1060])),
            policy: Policy { subscriber: SubscriberIs::Softwire { prefix_length: 56 }, ..policy },
            static_bindings: Vec::new(),
        },
        softwire,
        outside_mtu: 1400,
        icmp_source: Ipv4Addr::new(192, 0, 0, 1),
        tell_unknown: true,
    });
    case(name, kind, |numbers, world| {
        if numbers.one_in(2) {
            return packets::from_outside(numbers, world, POOL);
        }
        let frame = packets::from_inside(numbers, POOL);
        // Homes with the same addresses behind them.
        let home = u16::try_from(numbers.below(3)).unwrap() << 8;
        let b4 = Ipv6Addr::new(0x2001, 0xdb8, 0x1000, home, 0, 0, 0, 0xb4);
        tunnelled(numbers, (b4, REMOTE), &frame)
    })
}

/// What hosts send to the ends of softwires, which have 192.0.0.0/29 (RFC 6333 section 5.7), and to the addresses
/// around it.
fn continuity_case(name: &'static str) -> Case {
    let (_, plan, plain) = aftr(name, SoftwireSettings::default(), Policy::default());
    let build = move |numbers: &mut Numbers, world: &World| {
        if !numbers.one_in(4) {
            return plain(numbers, world);
        }
        let to = Ipv4Addr::from_bits(0xbfff_fffe + u32::try_from(numbers.below(12)).unwrap());
        let (from, ports) = (packets::host(numbers), packets::ports(numbers));
        let frame = packets::ipv4_frame(numbers, from, to, ports);
        tunnelled(numbers, (LOCAL, REMOTE), &frame)
    };
    (name, plan, Box::new(build))
}

fn lwb4(name: &'static str, softwire: SoftwireSettings, policy: Policy) -> Case {
    let kind = ServiceKind::Lwb4(Lwb4 {
        inside: inside(),
        ends: Softwire { local: LOCAL, remote: REMOTE },
        far_end: None,
        nat: Nat { pool: pool(POOL, PortRanges::new([1024..=1087])), policy, static_bindings: Vec::new() },
        softwire,
        inside_mtu: 1400,
        icmp_source: POOL,
        tell_not_ours: true,
    });
    case(name, kind, |numbers, world| edge(numbers, world, POOL, LOCAL))
}

/// From a host inside, or out of the softwire.
fn edge(numbers: &mut Numbers, world: &World, own: Ipv4Addr, local: Ipv6Addr) -> Vec<u8> {
    if numbers.one_in(2) {
        return packets::from_inside(numbers, own);
    }
    let frame = packets::from_outside(numbers, world, own);
    tunnelled(numbers, (REMOTE, local), &frame)
}

fn rule() -> MapRule {
    MapRule::new(parse_prefix("2001:db8::/40").unwrap(), parse_prefix("192.0.2.0/24").unwrap(), 16, 6, None).unwrap()
}

fn ce() -> MapCe {
    rule().provision(parse_prefix("2001:db8:12:3400::/56").unwrap()).unwrap()
}

fn map_edge(mesh: MapDomain) -> MapEdge {
    let napt = Nat44 {
        inside: inside(),
        untranslated: AddressRanges::new([Ipv4Addr::new(9, 9, 9, 9)..=Ipv4Addr::new(9, 9, 9, 9)]),
        exempt: Exemptions::default(),
        nat: Nat {
            pool: pool(MAP, PortRanges::new(ce().ports())),
            policy: Policy::default(),
            static_bindings: Vec::new(),
        },
        inside_mtu: 1400,
        outside_mtu: u32::MAX,
        largest_segment: None,
    };
    MapEdge { ce: ce(), napt: Some(napt), mesh }
}

fn map_e(name: &'static str, mesh: MapDomain) -> Case {
    let edge = map_edge(mesh);
    let kind = ServiceKind::MapECe(MapECe { edge, relay: REMOTE, softwire: SoftwireSettings::default() });
    let local = ce().address();
    case(name, kind, move |numbers, world| self::edge(numbers, world, MAP, local))
}

/// An edge whose hosts have its shared address and keep to its ports themselves: to other ports of that address
/// packets leave, to its own they do not (RFC 7597 section 5.1). The programs take none of its packets, and those of
/// the other service all the same.
fn without_napt_case(name: &'static str) -> Case {
    let edge = MapEdge { napt: None, ..map_edge(MapDomain::default()) };
    let kind = ServiceKind::MapECe(MapECe { edge, relay: REMOTE, softwire: SoftwireSettings::default() });
    let ranges = vec![plans::pool(1024..=1060, 0)];
    let (_, mut plan, to_nat64) =
        plans::nat64_case(name, "64:ff9b::/96", Policy::default(), TranslateSettings::default(), ranges);
    plan.services.push(Service::new(1, "edge", kind));
    let local = ce().address();
    let build = move |numbers: &mut Numbers, world: &World| {
        if !numbers.one_in(3) {
            return to_nat64(numbers, world);
        }
        let [source, destination] = [(); 2].map(|()| {
            let port = numbers.pick(&[1232, 1235, 1236, 2256, 80]);
            (if numbers.one_in(3) { packets::remote(numbers) } else { MAP }, port)
        });
        let frame = packets::ipv4_frame(numbers, source.0, destination.0, (source.1, destination.1));
        if numbers.one_in(2) { frame } else { tunnelled(numbers, (REMOTE, local), &frame) }
    };
    (name, plan, Box::new(build))
}

fn dmr() -> Prefix64 {
    Prefix64::new("2001:db8:ffff::".parse().unwrap(), 64).unwrap()
}

fn map_t(name: &'static str, mesh: MapDomain, dmr: Prefix64) -> Case {
    let kind = ServiceKind::MapTCe(MapTCe {
        edge: map_edge(mesh),
        dmr,
        well_known_prefix_strict: true,
        error_sources: ErrorSources::default(),
        translate: TranslateSettings::default(),
    });
    let local = ce().address();
    case(name, kind, move |numbers, world| {
        if numbers.one_in(2) {
            return packets::from_inside(numbers, MAP);
        }
        let (_, port) = packets::bound(numbers, world).unwrap_or((MAP, 1232));
        let from = packets::remote(numbers);
        let remote_port = if numbers.one_in(4) { port } else { packets::ports(numbers).0 };
        let source = if numbers.one_in(40) { other_edge(numbers) } else { dmr.embed(from) };
        let to = if numbers.one_in(50) { disturbed(numbers, local) } else { local };
        packets::ipv6_frame(numbers, source, to, (remote_port, port))
    })
}

/// The MAP address of another subscriber.
fn other_edge(numbers: &mut Numbers) -> Ipv6Addr {
    let address = numbers.pick(&[Ipv4Addr::new(192, 0, 2, 19), Ipv4Addr::new(192, 0, 2, 77)]);
    rule().share_of(address, 1236).map_or(REMOTE, |share| rule().map_address(share))
}

fn disturbed(numbers: &mut Numbers, address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits() ^ 1 << numbers.below(128))
}

/// The packet of `frame` in a softwire, mostly as it should be.
fn tunnelled(numbers: &mut Numbers, ends: (Ipv6Addr, Ipv6Addr), frame: &[u8]) -> Vec<u8> {
    let declared = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let inner = frame[14..].get(..declared).unwrap_or(&frame[14..]);
    let mut inner = inner.to_vec();
    if numbers.one_in(100) {
        inner.extend([0; 7]);
    }
    let (from, to) = match numbers.below(50) {
        0 => (disturbed(numbers, ends.0), ends.1),
        1 => (ends.0, disturbed(numbers, ends.1)),
        2 => (other_edge(numbers), ends.1),
        _ => ends,
    };
    let class = if numbers.one_in(2) { inner[1] } else { numbers.byte() };
    let mut packet = vec![0x60 | class >> 4, class << 4, 0, 0];
    packet.extend(u16::try_from(inner.len()).unwrap().to_be_bytes());
    packet.push(numbers.pick(&[4, 4, 4, 4, 4, 4, 4, 4, 4, 41, 60]));
    packet.push(if numbers.one_in(60) { numbers.byte() % 3 } else { 64 });
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(inner);
    packets::frame(numbers, [0x86, 0xdd], &packet)
}

//! Border devices without state: lwAFTR and the relays of MAP-E and MAP-T, with random tables and
//! rules.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::error_sources::ErrorSources;
use tombolo_engine::mapping::map_domain::{AddressOwner, MapDomain};
use tombolo_engine::mapping::map_rule::{GivenPsid, InterfaceIdentifier, MapRule};
use tombolo_engine::mapping::port_set::PortDivision;
use tombolo_engine::mapping::softwire_table::{SoftwireRow, SoftwireTable};
use tombolo_engine::mechanism::softwire::{DontFragment, Fragments, SoftwireSettings};
use tombolo_engine::mechanism::{TrafficClass, TranslateSettings};
use tombolo_engine::plan::{Service, ServiceKind};
use tombolo_engine::service::lwaftr::Lwaftr;
use tombolo_engine::service::map_e_br::MapEBr;
use tombolo_engine::service::map_t_br::MapTBr;
use tombolo_tables::lpm::Prefix;
use tombolo_wire::Prefix64;

use crate::packets::{self, Numbers, ipv4_frame, ipv6_frame};
use crate::plans::{Case, plan};
use crate::world::World;

const ADDRESSES: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0x2001, 0xdb8, 0xaf, 0, 0, 0, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 0xaf, 0, 0, 0, 0, 2)];
const DMR: &str = "2001:db8:ffff::/96";

pub(crate) fn cases() -> Vec<Case> {
    let plain = SoftwireSettings::default();
    let pipe = SoftwireSettings {
        ipv6_mtu: 1300,
        hop_limit: 255,
        traffic_class: TrafficClass::Force(0xb9),
        dont_fragment: DontFragment::Override,
        fragments: Fragments::Inner,
        largest_segment: Some(1200),
    };
    let strange = TranslateSettings {
        traffic_class_4to6: TrafficClass::Force(0x28),
        traffic_class_6to4: TrafficClass::Force(0),
        ipv4_mtu: 1280,
        ipv6_mtu: 1400,
        lowest_ipv6_mtu: 1400,
        largest_segment: Some(1220),
        ..TranslateSettings::default()
    };
    vec![
        lwaftr_case("lwaftr", plain, true, &ADDRESSES, Some((6, 6))),
        lwaftr_case("lwaftr, whole addresses", plain, false, &ADDRESSES[..1], Some((0, 0))),
        lwaftr_case("lwaftr, divisions that differ", pipe, true, &ADDRESSES, None),
        map_case("map-e br", |domain| map_e(domain, SoftwireSettings::default()), true),
        map_case("map-e br, pipe", |domain| map_e(domain, pipe_settings()), true),
        map_case("map-t br", |domain| map_t(domain, dmr(), TranslateSettings::default()), false),
        map_case("map-t br, limits and classes", move |domain| map_t(domain, dmr(), strange), false),
        map_case(
            "map-t br, well-known prefix",
            |domain| map_t(domain, Prefix64::WELL_KNOWN, TranslateSettings::default()),
            false,
        ),
    ]
}

fn pipe_settings() -> SoftwireSettings {
    SoftwireSettings { ipv6_mtu: 1300, traffic_class: TrafficClass::Force(0), ..SoftwireSettings::default() }
}

/// Some hundred softwires of some addresses near and far, holes among them.
fn softwires(numbers: &mut Numbers, locals: &[Ipv6Addr], division: Option<(u8, u8)>) -> Vec<SoftwireRow> {
    let mut rows = Vec::new();
    for host in 0..40_u32 {
        let (offset_bits, psid_bits) =
            division.unwrap_or_else(|| numbers.pick(&[(0, 0), (6, 0), (6, 3), (0, 4), (4, 12), (15, 1), (0, 16)]));
        let division = PortDivision::new(offset_bits, psid_bits).unwrap();
        let mut psids: Vec<u16> =
            (0..12).map(|_| u16::try_from(numbers.draw() % u64::from(division.sets())).unwrap()).collect();
        psids.sort_unstable();
        psids.dedup();
        rows.extend(psids.into_iter().map(|psid| SoftwireRow {
            ipv4: Ipv4Addr::from_bits((0xc000_0200 + host * 2) | ((host % 3) << 12)),
            division,
            psid,
            b4: Ipv6Addr::from_bits(0x2001_0db8_00b4 << 80 | u128::from(numbers.draw())),
            local: numbers.pick(locals),
        }));
    }
    rows
}

fn lwaftr_case(
    name: &'static str,
    softwire: SoftwireSettings,
    hairpinning: bool,
    locals: &[Ipv6Addr],
    division: Option<(u8, u8)>,
) -> Case {
    let rows = softwires(&mut Numbers(7), locals, division);
    let kind = ServiceKind::Lwaftr(Lwaftr {
        addresses: locals.to_vec(),
        ipv4: AddressRanges::new([Ipv4Addr::new(192, 0, 0, 0)..=Ipv4Addr::new(192, 0, 35, 255)]),
        table: SoftwireTable::new(&rows).unwrap(),
        softwire,
        hairpinning,
        tell_unknown: true,
        tell_unreachable: false,
        inbound_icmp: hairpinning,
    });
    let build = move |numbers: &mut Numbers, _: &World| {
        let row = rows[numbers.below(rows.len())];
        let port = port_of(numbers, row.division, row.psid);
        // Nobody's address beside his, or below all.
        let other = row.ipv4.to_bits() ^ numbers.pick(&[1, 0x200]);
        let subscriber = if numbers.one_in(30) { Ipv4Addr::from_bits(other) } else { row.ipv4 };
        if numbers.one_in(2) {
            let (b4, local) = (mutated(numbers, row.b4), mutated(numbers, row.local));
            from_softwire(numbers, (b4, local), subscriber, port)
        } else {
            from_outside(numbers, subscriber, port)
        }
    };
    (name, plan(vec![Service::new(0, name, kind)]), Box::new(build))
}

/// A port of the set, mostly.
fn port_of(numbers: &mut Numbers, division: PortDivision, psid: u16) -> u16 {
    let ranges: Vec<_> = division.ranges(psid).collect();
    if ranges.is_empty() || numbers.one_in(20) {
        return numbers.draw().to_le_bytes()[0].into();
    }
    let range = &ranges[numbers.below(ranges.len())];
    range.start() + u16::try_from(numbers.below(range.len())).unwrap()
}

/// Now and then a bit is wrong.
fn mutated(numbers: &mut Numbers, address: Ipv6Addr) -> Ipv6Addr {
    if numbers.one_in(30) { Ipv6Addr::from_bits(address.to_bits() ^ 1 << numbers.below(128)) } else { address }
}

fn peer(numbers: &mut Numbers) -> Ipv4Addr {
    // Of the subscribers' own addresses, too.
    if numbers.one_in(20) { Ipv4Addr::new(192, 0, 2, 40) } else { packets::remote(numbers) }
}

fn from_outside(numbers: &mut Numbers, subscriber: Ipv4Addr, port: u16) -> Vec<u8> {
    let from = peer(numbers);
    ipv4_frame(numbers, from, subscriber, (443, port))
}

fn from_softwire(numbers: &mut Numbers, ends: (Ipv6Addr, Ipv6Addr), subscriber: Ipv4Addr, port: u16) -> Vec<u8> {
    let to = peer(numbers);
    let inner = ipv4_frame(numbers, subscriber, to, (port, 443));
    tunneled(numbers, ends, &inner)
}

/// The IPv4 frame inside an IPv6 packet: with its padding or without, now and then behind an
/// extension header.
fn tunneled(numbers: &mut Numbers, (source, destination): (Ipv6Addr, Ipv6Addr), frame: &[u8]) -> Vec<u8> {
    let declared = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let whole = frame.len() - 14;
    let inner = &frame[14..14 + if numbers.one_in(4) { whole } else { declared.min(whole) }];
    let extension = numbers.one_in(40);
    let class = if numbers.one_in(2) { numbers.draw().to_le_bytes()[1] } else { frame[15] };
    let mut packet = vec![0x60 | class >> 4, class << 4, 0, 0];
    let length = inner.len() + if extension { 8 } else { 0 };
    let length = if numbers.one_in(60) { length + 3 } else { length };
    packet.extend(u16::try_from(length).unwrap().to_be_bytes());
    packet.push(if extension { 60 } else { numbers.pick(&[4, 4, 4, 4, 4, 4, 4, 4, 4, 41]) });
    packet.push(if numbers.one_in(20) { 1 } else { 60 });
    packet.extend(source.octets());
    packet.extend(destination.octets());
    if extension {
        packet.extend([4, 0, 4, 1, 4, 1, 0, 0]);
    }
    packet.extend(inner);
    packets::frame(numbers, [0x86, 0xdd], &packet)
}

fn map_e(domain: MapDomain, softwire: SoftwireSettings) -> ServiceKind {
    ServiceKind::MapEBr(MapEBr { domain, address: ADDRESSES[0], softwire })
}

fn dmr() -> Prefix64 {
    DMR.parse().unwrap()
}

fn map_t(domain: MapDomain, dmr: Prefix64, translate: TranslateSettings) -> ServiceKind {
    let error_sources = ErrorSources::default();
    ServiceKind::MapTBr(MapTBr { domain, dmr, well_known_prefix_strict: true, error_sources, translate })
}

/// Rules of all kinds: shared, whole and assigned; nested; with a PSID given; End-user prefixes
/// below and above 64 bits.
fn rules() -> Vec<MapRule> {
    let rule = |ipv6: (u128, u8), ipv4: ([u8; 4], u8), ea, offset, given: Option<(u8, u16)>| {
        let given = given.map(|(bits, psid)| GivenPsid { bits, psid });
        let (ipv6, ipv4) = (Prefix::covering(ipv6.0, ipv6.1), Prefix::covering(u32::from_be_bytes(ipv4.0), ipv4.1));
        MapRule::new(ipv6, ipv4, ea, offset, given).unwrap()
    };
    let at = |n: u128| 0x2001_0db8 << 96 | n << 80;
    vec![
        rule((at(0x1000), 40), ([192, 0, 2, 0], 24), 16, 6, None),
        rule((at(0x1080), 44), ([192, 0, 2, 16], 28), 12, 6, None),
        rule((at(0x2000), 48), ([203, 0, 113, 0], 24), 8, 6, None),
        rule((at(0x3000), 48), ([198, 18, 0, 0], 16), 12, 6, None),
        rule((at(0x4000), 64), ([198, 51, 100, 0], 24), 12, 0, None),
        rule((at(0x5000), 80), ([198, 51, 101, 0], 24), 16, 4, None),
        rule((at(0x6000), 128), ([192, 0, 3, 1], 32), 0, 0, None),
        rule((at(0x7000), 56), ([192, 0, 3, 2], 32), 0, 6, Some((8, 0x34))),
        rule((at(0x7001), 56), ([192, 0, 3, 2], 32), 0, 6, Some((8, 0x35))),
        rule((at(0x8000), 56), ([100, 64, 0, 0], 16), 25, 1, None),
        rule((at(0x9000), 48), ([192, 0, 4, 7], 32), 16, 0, None),
        rule((at(0xa000), 48), ([192, 0, 5, 0], 24), 16, 6, None).with_identifier(InterfaceIdentifier::Draft3),
        rule((at(0xb000), 48), ([192, 0, 6, 0], 24), 4, 6, None).with_identifier(InterfaceIdentifier::Draft3),
    ]
}

fn map_case(name: &'static str, kind: impl Fn(MapDomain) -> ServiceKind, is_tunneled: bool) -> Case {
    let domain = MapDomain::new(rules()).unwrap();
    let kind = kind(domain.clone());
    let dmr = kind.pref64().unwrap_or_else(dmr);
    let build = move |numbers: &mut Numbers, _: &World| {
        let rule = domain.rules()[numbers.below(domain.rules().len())];
        let hosts = u32::MAX.checked_shr(rule.ipv4().prefix_len().into()).unwrap_or(0);
        let draw = u32::try_from(numbers.draw() >> 32).unwrap();
        let subscriber = Ipv4Addr::from_bits(rule.ipv4().key() | draw & hosts);
        let mut port = u16::try_from(numbers.draw() >> 48).unwrap();
        if let Some(psid) = rule.given_psid() {
            port = port_of(numbers, rule.division(), psid);
        }
        if numbers.one_in(2) {
            return from_outside(numbers, subscriber, port);
        }
        let own = match domain.owner(subscriber, port) {
            AddressOwner::Subscriber { address, .. } if is_tunneled => address,
            AddressOwner::Subscriber { rule, share, .. } => {
                domain.rules()[rule as usize].host_address(share, subscriber)
            }
            _ => Ipv6Addr::from_bits(rule.ipv6().key() | u128::from(numbers.draw())),
        };
        let own = mutated(numbers, own);
        if is_tunneled {
            let address = mutated(numbers, ADDRESSES[0]);
            return from_softwire(numbers, (own, address), subscriber, port);
        }
        let to = peer(numbers);
        let to = mutated(numbers, dmr.embed(to));
        ipv6_frame(numbers, own, to, (port, 443))
    };
    (name, plan(vec![Service::new(0, name, kind)]), Box::new(build))
}

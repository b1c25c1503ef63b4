//! The plan as the programs have it: `bpf/plan.h` in Rust, and how it is made from the engine's
//! plan.
//!
//! Everything is taken apart field by field, so that a new setting of a service does not compile
//! until it is said here what the fast path makes of it. What it cannot do is left to the engine,
//! service by service.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_engine::Plan;
use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::allocation::Allocation;
use tombolo_engine::mapping::eam::Eam;
use tombolo_engine::mapping::map_rule::MapRule;
use tombolo_engine::mapping::pool::{Parity, Pool, PoolRange, PortRanges, PortSpace};
use tombolo_engine::mapping::stateless::StatelessMap;
use tombolo_engine::mechanism::napt::{Filtering, InboundTcp, Policy, SubscriberIs, UnsolicitedSyn};
use tombolo_engine::mechanism::session_state;
use tombolo_engine::mechanism::{SoftwireSettings, TrafficClass, TranslateSettings, UdpZeroChecksum};
use tombolo_engine::plan::{AnsweredBy, OwnAddresses, Routed, Service, ServiceKind, StaticBinding};
use tombolo_engine::service::aftr::Aftr;
use tombolo_engine::service::b4::B4;
use tombolo_engine::service::lwaftr::Lwaftr;
use tombolo_engine::service::lwb4::Lwb4;
use tombolo_engine::service::map::MapEdge;
use tombolo_engine::service::map_e_br::MapEBr;
use tombolo_engine::service::map_e_ce::MapECe;
use tombolo_engine::service::map_t_br::MapTBr;
use tombolo_engine::service::map_t_ce::MapTCe;
use tombolo_engine::service::nat44::Nat44;
use tombolo_engine::service::nat64::Nat64;
use tombolo_engine::service::siit::{Hairpinning, Role, Siit};
use tombolo_tables::lpm::Prefix;
use tombolo_tables::tables::Geometry;
use tombolo_wire::Prefix64;
use tombolo_wire::rfc6052::NON_GLOBAL;

/// Services that the programs know.
pub(crate) const SERVICES: usize = 8;
/// Ranges of each kind that a service may have.
pub(crate) const RANGES: usize = 8;
/// Addresses of its own that a lwAFTR may have.
pub(crate) const LOCALS: usize = 8;
/// Prefixes that the well-known prefix must not represent.
pub(crate) const NON_GLOBALS: usize = 16;

pub(crate) const KIND_NAT64: u8 = 1;
pub(crate) const KIND_NAT44: u8 = 2;
pub(crate) const KIND_SIIT: u8 = 3;
pub(crate) const KIND_ENGINE: u8 = 4;
pub(crate) const KIND_B4: u8 = 5;
pub(crate) const KIND_AFTR: u8 = 6;
pub(crate) const KIND_LWB4: u8 = 7;
pub(crate) const KIND_MAP_E_CE: u8 = 8;
pub(crate) const KIND_MAP_T_CE: u8 = 9;
pub(crate) const KIND_LWAFTR: u8 = 10;
pub(crate) const KIND_MAP_E_BR: u8 = 11;
pub(crate) const KIND_MAP_T_BR: u8 = 12;

const STRICT: u16 = 1;
/// Of TCP; those of UDP and ICMP are the next bits.
const ADDRESS_DEPENDENT: u16 = 4096;
const NO_INBOUND_TCP: u16 = 4;
const PARITY: u16 = 8;
const HAIRPIN_INTRINSIC: u16 = 16;
const HAIRPIN_SIMPLE: u16 = 32;
const CLAT: u16 = 64;
const ENGINE_BINDS: u16 = 128;
const ENGINE_OPENS: u16 = 256;
const ENGINE_OPENS_TCP: u16 = 512;
const CLAMPS: u16 = 1024;

/// Addresses, in the processor's byte order.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Range {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// Ports, in the processor's byte order.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Ports {
    pub(crate) first: u16,
    pub(crate) last: u16,
}

impl Ports {
    const NONE: Self = Self { first: 1, last: 0 };
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PoolRecord {
    pub(crate) addresses: Range,
    pub(crate) first_slot: u32,
    pub(crate) span: Ports,
    pub(crate) handed_out: [Ports; 4],
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PrefixRecord {
    pub(crate) bits: [u64; 2],
    pub(crate) mask: [u64; 2],
    pub(crate) shift: u8,
    pub(crate) gap: u8,
    pub(crate) present: u8,
    pub(crate) unused: [u8; 5],
}

/// This end of a softwire.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct TunnelRecord {
    pub(crate) local: [u64; 2],
    pub(crate) remote: [u64; 2],
    pub(crate) mtu: u32,
    pub(crate) traffic_class: i16,
    pub(crate) hop_limit: u8,
    pub(crate) unused: u8,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Network {
    pub(crate) bits: [u64; 2],
    pub(crate) mask: [u64; 2],
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ServiceRecord {
    pub(crate) kind: u8,
    pub(crate) pool_ranges: u8,
    pub(crate) inside_ranges: u8,
    pub(crate) untranslated_ranges: u8,
    pub(crate) flags: u16,
    pub(crate) traffic_class_4to6: i16,
    pub(crate) traffic_class_6to4: i16,
    pub(crate) b4_networks: u8,
    pub(crate) mesh_ranges: u8,
    pub(crate) inside_mtu: u32,
    pub(crate) outside_mtu: u32,
    pub(crate) lowest_ipv6_mtu: u32,
    pub(crate) bindings_per_subscriber: u32,
    pub(crate) locals: u8,
    pub(crate) unused3: [u8; 3],
    pub(crate) prefix: PrefixRecord,
    pub(crate) pool: [PoolRecord; RANGES],
    pub(crate) inside: [Range; RANGES],
    pub(crate) untranslated: [Range; RANGES],
    pub(crate) tunnel: TunnelRecord,
    pub(crate) b4s: [Network; RANGES],
    pub(crate) mesh: [Range; RANGES],
    pub(crate) local: [[u64; 2]; LOCALS],
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct NonGlobal {
    pub(crate) bits: u32,
    pub(crate) mask: u32,
}

/// `struct plan`: the whole of it.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PlanRecord {
    pub(crate) hash_key: [u64; 4],
    pub(crate) inside_buckets: u32,
    pub(crate) subscriber_buckets: u32,
    pub(crate) session_lines: u32,
    pub(crate) overflow_lines: u32,
    pub(crate) bindings: u32,
    pub(crate) used_words: u32,
    pub(crate) lifetimes: [u32; 16],
    pub(crate) reuse_after: [u32; 16],
    pub(crate) reuse_port_after: u32,
    pub(crate) report_sessions: u32,
    pub(crate) secret: [u64; 2],
    pub(crate) steps: [[u8; 8]; 16],
    pub(crate) own6: [u64; 2],
    pub(crate) own4: u32,
    /// Written when the table has been made (`mirrors.rs`).
    pub(crate) softwire_first_block: u32,
    pub(crate) explicit_rows: u32,
    pub(crate) through_stack: u32,
    pub(crate) explicit_ipv4: Range,
    /// Written with the tables, too.
    pub(crate) map_ipv4: Range,
    pub(crate) explicit_ipv6_first: u64,
    pub(crate) explicit_ipv6_last: u64,
    pub(crate) non_global: [NonGlobal; NON_GLOBALS],
    pub(crate) services: [ServiceRecord; SERVICES],
}

// SAFETY: integers without padding, which the assertion below proves; any bytes are valid.
unsafe impl aya::Pod for PlanRecord {}

const _: () = assert!(
    size_of::<PlanRecord>()
        == 32 + 24 + 128 + 8 + 16 + 128 + 24 + 40 + 8 * NON_GLOBALS + SERVICES * size_of::<ServiceRecord>()
        && size_of::<ServiceRecord>() == 32 + 40 + RANGES * (32 + 8 + 8) + 40 + RANGES * (32 + 8) + LOCALS * 16
);

/// What becomes of each service: taken, or why it is left to the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// `None` if the fast path takes its packets; else why not, in words.
    pub left_to_engine: Option<&'static str>,
}

/// What a plan says beside the services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// Report every session that is made in the kernel, not only every binding. Sessions tell where
    /// a subscriber went, which RFC 6888 section 4 says not to log; so off by default.
    pub report_sessions: bool,
    /// Translated packets pass the kernel's stack, so that netfilter and rules of routing see them.
    /// XDP is not attached.
    pub through_stack: bool,
}

impl PlanRecord {
    pub(crate) fn new(
        plan: &Plan,
        geometry: &Geometry,
        settings: Settings,
        secret: [u64; 2],
    ) -> (Self, Vec<ServiceStatus>) {
        let Plan { services, times, capacity: _, own } = plan;
        let OwnAddresses { ipv4, ipv6, answered_by, errors: _ } = own;
        let answers = *answered_by == AnsweredBy::Gateway;
        let mut record = Self {
            hash_key: geometry.key.words(),
            inside_buckets: geometry.inside_buckets,
            subscriber_buckets: geometry.subscriber_buckets,
            session_lines: geometry.session_lines,
            overflow_lines: geometry.overflow_lines,
            bindings: geometry.bindings,
            used_words: geometry.bindings / 64 + 1,
            lifetimes: times.lifetimes().0,
            reuse_after: times.reuse_entry_after().0,
            reuse_port_after: times.reuse_port_after,
            report_sessions: settings.report_sessions.into(),
            through_stack: settings.through_stack.into(),
            secret,
            steps: session_state::TABLE,
            own6: ipv6.filter(|_| answers).map_or([0; 2], |address| halves(address.to_bits())),
            own4: ipv4.filter(|_| answers).map_or(0, |address| address.to_bits().to_be()),
            ..Self::default()
        };
        for (place, (bits, length)) in record.non_global.iter_mut().zip(NON_GLOBAL) {
            let mask = u32::MAX << (32 - u32::from(length));
            *place = NonGlobal { bits: bits.to_bits().to_be(), mask: mask.to_be() };
        }
        record.set_explicit(explicit_rows(plan));
        // Nothing new may begin: what would is the engine's to refuse.
        let drained = if times.draining_since.is_some() { ENGINE_BINDS | ENGINE_OPENS } else { 0 };
        let mut status: Vec<ServiceStatus> = Vec::new();
        let mut taken: Vec<_> = services.iter().map(service_record).collect();
        for number in 0..services.len() {
            let table = table_of(&services[number].kind);
            if table.is_some() && services[..number].iter().any(|earlier| table_of(&earlier.kind) == table) {
                taken[number] = Err("the fast path has room for one service with such a table");
            }
            if number >= SERVICES {
                taken[number] = Err("there are more services than the fast path has room for");
            } else if taken[number].is_ok() && is_in_the_way(services, &taken, number) {
                taken[number] = Err("a service that is left to the engine has packets of it");
            }
            let service = match &taken[number] {
                Ok(service) => ServiceRecord { flags: service.flags | drained, ..*service },
                Err(_) => ServiceRecord { kind: KIND_ENGINE, ..ServiceRecord::default() },
            };
            if let Some(place) = record.services.get_mut(number) {
                *place = service;
            }
            let name = services[number].name.clone();
            status.push(ServiceStatus { name, left_to_engine: taken[number].as_ref().err().copied() });
        }
        (record, status)
    }

    fn set_explicit(&mut self, rows: &[Eam]) {
        let last = |prefix: Prefix<u32>| prefix.key() | u32::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
        let upper_half = |bits: u128| u64::try_from(bits >> 64).unwrap_or(u64::MAX);
        let last_ipv6 =
            |prefix: Prefix<u128>| prefix.key() | u128::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
        self.explicit_rows = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        self.explicit_ipv4 = Range {
            first: rows.iter().map(|row| row.ipv4().key()).min().unwrap_or(0),
            last: rows.iter().map(|row| last(row.ipv4())).max().unwrap_or(0),
        };
        self.explicit_ipv6_first = rows.iter().map(|row| upper_half(row.ipv6().key())).min().unwrap_or(0);
        self.explicit_ipv6_last = rows.iter().map(|row| upper_half(last_ipv6(row.ipv6()))).max().unwrap_or(0);
    }
}

/// Tables of stateless services, of which the programs have one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableOf {
    Mappings,
    Softwires,
    Rules,
}

fn table_of(kind: &ServiceKind) -> Option<TableOf> {
    match kind {
        ServiceKind::Siit(_) => Some(TableOf::Mappings),
        ServiceKind::Lwaftr(_) => Some(TableOf::Softwires),
        ServiceKind::MapTBr(_) | ServiceKind::MapEBr(_) => Some(TableOf::Rules),
        _ => None,
    }
}

/// The explicit mappings of the stateless service that the programs take.
pub(crate) fn explicit_rows(plan: &Plan) -> &[Eam] {
    let rows = plan.services.iter().find_map(|service| match &service.kind {
        ServiceKind::Siit(siit) => Some(siit.mapping.explicit.rows()),
        _ => None,
    });
    rows.unwrap_or_default()
}

/// Whether a service that the programs do not know comes before service `number` for some packets:
/// one that stands earlier and has a destination in common, or one that knows its packets by their
/// sources.
fn is_in_the_way(services: &[Service], taken: &[Result<ServiceRecord, &'static str>], number: usize) -> bool {
    let own = services[number].kind.routed();
    services.iter().zip(taken).enumerate().filter(|(_, (_, taken))| taken.is_err()).any(|(other, (service, _))| {
        let theirs = service.kind.routed();
        let takes_all = matches!(&service.kind, ServiceKind::Siit(siit) if siit.role == Role::Everything);
        !theirs.sources.is_empty() && !own.ipv4.is_empty()
            || other < number && (takes_all || have_common(&own, &theirs))
    })
}

fn have_common(one: &Routed, other: &Routed) -> bool {
    let ipv4 = one.ipv4.iter().any(|a| other.ipv4.iter().any(|b| a.0 <= b.1 && b.0 <= a.1));
    let is_inside = |(address, length): &(Ipv6Addr, u8), (within, shorter): &(Ipv6Addr, u8)| {
        length >= shorter
            && (address.to_bits() ^ within.to_bits()).checked_shr(128 - u32::from(*shorter)).unwrap_or(0) == 0
    };
    ipv4 || one.ipv6.iter().any(|a| other.ipv6.iter().any(|b| is_inside(a, b) || is_inside(b, a)))
}

fn service_record(service: &Service) -> Result<ServiceRecord, &'static str> {
    match &service.kind {
        ServiceKind::Nat64(nat64) => nat64_record(nat64),
        ServiceKind::Nat44(nat44) => nat44_record(nat44),
        ServiceKind::Siit(siit) => siit_record(siit),
        ServiceKind::B4(b4) => b4_record(b4),
        ServiceKind::Aftr(aftr) => aftr_record(aftr),
        ServiceKind::Lwb4(lwb4) => lwb4_record(lwb4),
        ServiceKind::MapECe(ce) => map_e_ce_record(ce),
        ServiceKind::MapTCe(ce) => map_t_ce_record(ce),
        ServiceKind::Lwaftr(lwaftr) => lwaftr_record(lwaftr),
        ServiceKind::MapEBr(br) => Ok(map_e_br_record(br)),
        ServiceKind::MapTBr(br) => Ok(map_t_br_record(br)),
    }
}

fn nat64_record(nat64: &Nat64) -> Result<ServiceRecord, &'static str> {
    let Nat64 { prefix, well_known_prefix_strict, pool, policy, translate, static_bindings: _ } = nat64;
    let mut record = ServiceRecord { kind: KIND_NAT64, prefix: prefix_record(*prefix), ..ServiceRecord::default() };
    if *well_known_prefix_strict && prefix.is_well_known() {
        record.flags |= STRICT;
    }
    record.set_translation(translate);
    record.set_policy(*policy);
    record.set_pool(pool)?;
    Ok(record)
}

fn nat44_record(nat44: &Nat44) -> Result<ServiceRecord, &'static str> {
    let Nat44 { inside, untranslated, pool, policy, inside_mtu, outside_mtu, largest_segment, static_bindings: _ } =
        nat44;
    let mut record = ServiceRecord {
        kind: KIND_NAT44,
        inside_mtu: *inside_mtu,
        outside_mtu: *outside_mtu,
        ..ServiceRecord::default()
    };
    record.flags |= if largest_segment.is_some() { CLAMPS } else { 0 };
    record.inside_ranges = fill(&mut record.inside, inside)?;
    record.untranslated_ranges = fill(&mut record.untranslated, untranslated)?;
    record.set_policy(*policy);
    record.set_pool(pool)?;
    Ok(record)
}

fn b4_record(b4: &B4) -> Result<ServiceRecord, &'static str> {
    // Errors are the engine's.
    let B4 { inside, ends, softwire, icmp_source: _ } = b4;
    let mut record = ServiceRecord { kind: KIND_B4, ..ServiceRecord::default() };
    record.inside_ranges = fill(&mut record.inside, inside)?;
    record.set_softwire(ends.local, Some(ends.remote), softwire);
    Ok(record)
}

fn aftr_record(aftr: &Aftr) -> Result<ServiceRecord, &'static str> {
    let Aftr { address, b4s, inside, pool, policy, softwire, outside_mtu, icmp_source: _, tell_unknown: _ } = aftr;
    let mut record = ServiceRecord { kind: KIND_AFTR, outside_mtu: *outside_mtu, ..ServiceRecord::default() };
    if b4s.len() > RANGES {
        return Err("it has more prefixes of B4s than the fast path has room for");
    }
    for (place, prefix) in record.b4s.iter_mut().zip(b4s) {
        let mask = !u128::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
        *place = Network { bits: halves(prefix.key()), mask: halves(mask) };
    }
    record.b4_networks = u8::try_from(b4s.len()).unwrap_or(u8::MAX);
    record.inside_ranges = fill(&mut record.inside, inside)?;
    record.set_softwire(*address, None, softwire);
    record.set_policy(*policy);
    record.set_pool(pool)?;
    Ok(record)
}

fn lwb4_record(lwb4: &Lwb4) -> Result<ServiceRecord, &'static str> {
    let Lwb4 { inside, ends, pool, policy, softwire, inside_mtu, icmp_source: _, tell_not_ours: _, static_bindings } =
        lwb4;
    let mut record = ServiceRecord { kind: KIND_LWB4, inside_mtu: *inside_mtu, ..ServiceRecord::default() };
    record.inside_ranges = fill(&mut record.inside, inside)?;
    record.set_softwire(ends.local, Some(ends.remote), softwire);
    record.set_policy(*policy);
    record.set_pool(pool)?;
    are_in_the_set(pool, static_bindings)?;
    Ok(record)
}

fn map_e_ce_record(ce: &MapECe) -> Result<ServiceRecord, &'static str> {
    let MapECe { edge, relay, softwire } = ce;
    let mut record = ServiceRecord { kind: KIND_MAP_E_CE, ..ServiceRecord::default() };
    record.set_edge(edge)?;
    record.set_softwire(edge.ce.address(), Some(*relay), softwire);
    Ok(record)
}

fn map_t_ce_record(ce: &MapTCe) -> Result<ServiceRecord, &'static str> {
    let MapTCe { edge, dmr, error_sources: _, translate } = ce;
    let mut record = ServiceRecord { kind: KIND_MAP_T_CE, prefix: prefix_record(*dmr), ..ServiceRecord::default() };
    record.set_edge(edge)?;
    record.tunnel.local = halves(edge.ce.address().to_bits());
    // The longer prefix decides about a source (RFC 7599 section 8.2); rules inside the default one
    // are rare.
    let is_inside = |rule: &MapRule| rule.ipv6().prefix_len() >= dmr.length() && dmr.contains(rule.ipv6().key().into());
    if edge.mesh.rules().iter().any(is_inside) {
        return Err("a mapping rule lies inside the default one");
    }
    record.set_translation(translate);
    Ok(record)
}

fn lwaftr_record(lwaftr: &Lwaftr) -> Result<ServiceRecord, &'static str> {
    // What turns round, and whom it is told to, is the engine's.
    let Lwaftr { addresses, ipv4, table, softwire, hairpinning: _, tell_unknown: _, tell_unreachable: _ } = lwaftr;
    if addresses.len() > LOCALS {
        return Err("it has more addresses of its own than the fast path has room for");
    }
    if table.rows().any(|row| !addresses.contains(&row.local)) {
        return Err("a softwire ends at an address that is not among its own");
    }
    let mut record = ServiceRecord { kind: KIND_LWAFTR, ..ServiceRecord::default() };
    record.inside_ranges = fill(&mut record.inside, ipv4)?;
    // Each softwire has one of the addresses below.
    record.set_softwire(Ipv6Addr::UNSPECIFIED, None, softwire);
    record.locals = u8::try_from(addresses.len()).unwrap_or(u8::MAX);
    for (place, address) in record.local.iter_mut().zip(addresses) {
        *place = halves(address.to_bits());
    }
    Ok(record)
}

fn map_e_br_record(br: &MapEBr) -> ServiceRecord {
    let MapEBr { domain: _, address, softwire } = br;
    let mut record = ServiceRecord { kind: KIND_MAP_E_BR, ..ServiceRecord::default() };
    record.set_softwire(*address, None, softwire);
    record
}

fn map_t_br_record(br: &MapTBr) -> ServiceRecord {
    // Sources of errors are the engine's.
    let MapTBr { domain: _, dmr, error_sources: _, translate } = br;
    let mut record = ServiceRecord { kind: KIND_MAP_T_BR, prefix: prefix_record(*dmr), ..ServiceRecord::default() };
    record.set_translation(translate);
    record
}

/// An edge translates to ports of its own set only. The configuration sees to it that static
/// bindings are there too; what comes for others is refused by the engine.
fn are_in_the_set(pool: &Pool, bindings: &[StaticBinding]) -> Result<(), &'static str> {
    let is_own = |binding: &StaticBinding| {
        let has = |range: &PoolRange| range.ports[PortSpace::Icmp as usize].contains(binding.outside.port.0);
        pool.ranges().iter().any(has)
    };
    if bindings.iter().all(is_own) { Ok(()) } else { Err("a static binding is outside its port set") }
}

fn siit_record(siit: &Siit) -> Result<ServiceRecord, &'static str> {
    // Sources and extensions of errors are the engine's.
    let Siit { role, mapping, dynamic, embedded_hosts, hairpinning, error_sources: _, identify_nodes: _, translate } =
        siit;
    let StatelessMap { explicit: _, prefix, well_known_prefix_strict, denied } = mapping;
    if !denied.is_empty() {
        return Err("it has a list of denied addresses");
    }
    if dynamic.is_some() {
        return Err("it lends addresses to hosts without one");
    }
    if *role == Role::Everything {
        return Err("it takes whatever is routed to it");
    }
    let mut record = ServiceRecord { kind: KIND_SIIT, ..ServiceRecord::default() };
    if let Some(prefix) = prefix {
        record.prefix = prefix_record(*prefix);
        record.flags |= if *well_known_prefix_strict && prefix.is_well_known() { STRICT } else { 0 };
    }
    record.flags |= match hairpinning {
        Hairpinning::Off => 0,
        Hairpinning::Simple => HAIRPIN_SIMPLE,
        Hairpinning::Intrinsic => HAIRPIN_INTRINSIC,
    };
    record.flags |= if *role == Role::Clat { CLAT } else { 0 };
    let hosts = embedded_hosts.iter().map(|prefix| {
        let last = prefix.key() | u32::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
        Ipv4Addr::from_bits(prefix.key())..=Ipv4Addr::from_bits(last)
    });
    record.inside_ranges = fill(&mut record.inside, &AddressRanges::new(hosts))?;
    record.set_translation(translate);
    Ok(record)
}

/// Writes ranges into their places; how many there are.
fn fill(places: &mut [Range; RANGES], ranges: &AddressRanges) -> Result<u8, &'static str> {
    let ranges = ranges.ranges();
    if ranges.len() > RANGES {
        return Err("it has more ranges of inside or untranslated addresses than the fast path has room for");
    }
    for (place, range) in places.iter_mut().zip(ranges) {
        *place = Range { first: range.start().to_bits(), last: range.end().to_bits() };
    }
    Ok(u8::try_from(ranges.len()).unwrap_or(u8::MAX))
}

impl ServiceRecord {
    fn set_translation(&mut self, settings: &TranslateSettings) {
        let TranslateSettings {
            traffic_class_4to6,
            traffic_class_6to4,
            // Datagrams without checksum are the engine's, whatever becomes of them.
            udp_zero_4to6: UdpZeroChecksum::Drop | UdpZeroChecksum::Compute | UdpZeroChecksum::Forward,
            udp_zero_6to4: UdpZeroChecksum::Drop | UdpZeroChecksum::Compute | UdpZeroChecksum::Forward,
            lowest_ipv6_mtu,
            ipv6_mtu,
            ipv4_mtu,
            largest_segment,
            // Errors are the engine's.
            plateaus: _,
        } = *settings;
        self.flags |= if largest_segment.is_some() { CLAMPS } else { 0 };
        self.traffic_class_4to6 = class(traffic_class_4to6);
        self.traffic_class_6to4 = class(traffic_class_6to4);
        self.lowest_ipv6_mtu = lowest_ipv6_mtu.max(1280);
        self.inside_mtu = ipv6_mtu;
        self.outside_mtu = ipv4_mtu;
    }

    fn set_softwire(&mut self, local: Ipv6Addr, remote: Option<Ipv6Addr>, settings: &SoftwireSettings) {
        // What does not fit is the engine's, whatever becomes of it.
        let SoftwireSettings { ipv6_mtu: _, hop_limit, traffic_class, dont_fragment: _, fragments: _, largest_segment } =
            *settings;
        self.flags |= if largest_segment.is_some() { CLAMPS } else { 0 };
        self.tunnel = TunnelRecord {
            local: halves(local.to_bits()),
            remote: remote.map_or([0; 2], |remote| halves(remote.to_bits())),
            mtu: settings.mtu(),
            traffic_class: class(traffic_class),
            hop_limit,
            unused: 0,
        };
    }

    /// The NAPT of a customer's edge with one address, and whom it reaches directly.
    fn set_edge(&mut self, edge: &MapEdge) -> Result<(), &'static str> {
        let MapEdge { ce, napt, mesh } = edge;
        let Some(nat44) = napt else { return Err("its hosts have the outside address themselves") };
        if ce.ipv4().prefix_len() != 32 {
            return Err("it has a prefix of IPv4 addresses");
        }
        let translation = nat44_record(nat44)?;
        *self = Self { kind: self.kind, prefix: self.prefix, ..translation };
        are_in_the_set(&nat44.pool, &nat44.static_bindings)?;
        let rules = mesh.rules().iter().map(|rule| {
            let (first, length) = (rule.ipv4().key(), rule.ipv4().prefix_len());
            let last = first | u32::MAX.checked_shr(length.into()).unwrap_or(0);
            Ipv4Addr::from_bits(first)..=Ipv4Addr::from_bits(last)
        });
        self.mesh_ranges = fill(&mut self.mesh, &AddressRanges::new(rules))?;
        Ok(())
    }

    fn set_policy(&mut self, policy: Policy) {
        let Policy {
            filtering,
            inbound_tcp,
            bindings_per_subscriber,
            sessions_per_subscriber,
            binding_rate,
            // Admitting is the engine's.
            subscriber_rate: _,
            subscriber,
            parity,
            unsolicited_syn,
        } = policy;
        let mut set = |flag, is_set| self.flags |= if is_set { flag } else { 0 };
        for space in PortSpace::ALL {
            set(ADDRESS_DEPENDENT << space as u16, filtering.of(space) == Filtering::AddressDependent);
        }
        set(NO_INBOUND_TCP, inbound_tcp == InboundTcp::Denied);
        set(PARITY, parity == Parity::Preserve);
        set(ENGINE_BINDS, binding_rate.is_some() || subscriber != SubscriberIs::default());
        set(ENGINE_OPENS, sessions_per_subscriber.is_some());
        set(ENGINE_OPENS_TCP, unsolicited_syn == UnsolicitedSyn::Hold);
        self.bindings_per_subscriber = bindings_per_subscriber.unwrap_or(u32::MAX);
    }

    fn set_pool(&mut self, pool: &Pool) -> Result<(), &'static str> {
        let ranges = pool.ranges();
        if ranges.len() > RANGES {
            return Err("its pool has more ranges than the fast path has room for");
        }
        if !matches!(pool.allocation(), Allocation::Ports) {
            self.flags |= ENGINE_BINDS;
        }
        self.pool_ranges = u8::try_from(ranges.len()).unwrap_or(u8::MAX);
        for (place, range) in self.pool.iter_mut().zip(ranges) {
            *place = pool_record(range);
        }
        Ok(())
    }
}

fn class(class: TrafficClass) -> i16 {
    match class {
        TrafficClass::Copy => -1,
        TrafficClass::Force(octet) => octet.into(),
    }
}

fn pool_record(range: &PoolRange) -> PoolRecord {
    let PoolRange { first, last, ports, span, first_slot } = range;
    PoolRecord {
        addresses: Range { first: first.to_bits(), last: last.to_bits() },
        first_slot: *first_slot,
        span: Ports { first: *span.start(), last: *span.end() },
        handed_out: [handed_out(&ports[0]), handed_out(&ports[1]), handed_out(&ports[2]), Ports::NONE],
    }
}

/// Ports in one run are handed out in the kernel; of others the engine makes the bindings.
fn handed_out(ports: &PortRanges) -> Ports {
    match ports.ranges() {
        [one] => Ports { first: *one.start(), last: *one.end() },
        _ => Ports::NONE,
    }
}

fn prefix_record(prefix: Prefix64) -> PrefixRecord {
    let length = prefix.length();
    // The prefix and the u octet (RFC 6052 section 2.2).
    let mask = u128::MAX << (128 - u32::from(length)) | 0xff << 56;
    PrefixRecord {
        bits: halves(prefix.address().to_bits()),
        mask: halves(mask),
        shift: 96 - length,
        gap: if length == 96 { 0 } else { 8 },
        present: 1,
        unused: [0; 5],
    }
}

/// The halves of an address as they lie in memory.
#[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
pub(crate) const fn halves(bits: u128) -> [u64; 2] {
    [((bits >> 64) as u64).to_be(), (bits as u64).to_be()]
}

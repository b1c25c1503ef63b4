//! The engine's plan as the programs have it.

use std::mem::discriminant;
use std::net::Ipv6Addr;

use tombolo_engine::Plan;
use tombolo_engine::mechanism::napt::ShortPorts;
use tombolo_engine::mechanism::session_state;
use tombolo_engine::plan::{AnsweredBy, MOST_PCP_ADDRESSES, OwnAddresses, Routed, Service};
use tombolo_engine::side::Side;
use tombolo_io::netfilter::{Entrance, Entrances};
use tombolo_tables::tables::Geometry;
use tombolo_wire::Prefix64;
use tombolo_wire::rfc6052::NON_GLOBAL;

use crate::error::FastPathError;
use crate::lookup::LookupTables;
use crate::record::{
    ClusterRecord, HashKeyRecord, KIND_ENGINE, KIND_NAT64, NonGlobal, PCP_ADDRESSES, PlanRecord, SERVICE_AT_CUSTOMER,
    SERVICE_ENGINE_BINDS, SERVICE_ENGINE_OPENS, SERVICES, SHORT_PORTS, ServiceRecord, ShortPortRecord, halves,
};
use crate::service::{fast_record, prefix_record};
use crate::tap::Watch;

/// What becomes of each service: taken, or why it is left to the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// `None` if the fast path takes its packets; else why not, in words.
    pub left_to_engine: Option<&'static str>,
}

/// What a plan says beside the services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Translated packets pass the kernel's stack, so that netfilter and rules of routing see them.
    /// XDP is not attached.
    pub through_stack: bool,
    /// Where packets from inside come in. What comes in elsewhere is left to the kernel's stack.
    pub entrances: Entrances,
    /// Where packets come in that other nodes of the cluster redirect, likewise; `None` if it does not matter.
    pub core: Option<Entrance>,
    /// What the way to the engine and back takes from the hop limit of a packet besides the engine's
    /// own decrement; the programs take as much, so that hop limits and traceroute do not tell which
    /// way a packet went. Two where the kernel forwards into and out of a TUN device.
    pub hops_beside: u8,
    /// IPv6 prefixes that the host routes past the gateway. What lies in a service's prefix is not
    /// the service's (RFC 7915 section 5.6), and the programs do not know; so the engine keeps it.
    pub routes_beside: Vec<(Ipv6Addr, u8)>,
    /// Packets that the programs are to show ([`FastPath::sightings`](crate::FastPath::sightings)).
    pub watch: Option<Watch>,
}

/// What an interface is said to be.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Role {
    /// One of those that hosts inside are at: a bit for each service, of which the programs have the first few.
    pub(crate) inside_of: u8,
    /// One of those by which nodes of a cluster redirect.
    pub(crate) is_core: bool,
}

impl Role {
    pub(crate) fn of(interface: &str, services: &[ServiceStatus], settings: &Settings) -> Self {
        let is_listed = |entrance: Option<&Entrance>| matches!(entrance, Some(Entrance::Listed(names)) if names.iter().any(|listed| listed == interface));
        let is_inside = |service: &ServiceStatus| is_listed(settings.entrances.of(&service.name));
        Self { inside_of: bits(services.iter().map(is_inside)), is_core: is_listed(settings.core.as_ref()) }
    }
}

/// Bits for those of the first services that something holds for.
fn bits(services: impl Iterator<Item = bool>) -> u8 {
    services.take(SERVICES).enumerate().fold(0, |bits, (place, holds)| bits | u8::from(holds) << place)
}

const _: () = assert!(SERVICES == u8::BITS as usize, "a bit for each service");

/// A plan, ready to be loaded with the programs.
pub(crate) struct FastPlan {
    /// What the programs have as constants.
    pub(crate) record: PlanRecord,
    /// What they look up.
    pub(crate) tables: LookupTables,
    /// What becomes of each service.
    pub(crate) services: Vec<ServiceStatus>,
}

// SAFETY: `Plain`: integers without padding; any bytes are valid.
unsafe impl aya::Pod for PlanRecord {}

const _: () = assert!(SHORT_PORTS == ShortPorts::MOST, "what the engine knows has room");

/// The record of a service; or why it is left to the engine.
type Taken = Result<ServiceRecord, &'static str>;

impl FastPlan {
    pub(crate) fn new(
        plan: &Plan,
        geometry: &Geometry,
        settings: &Settings,
        secret: [u64; 2],
    ) -> Result<Self, FastPathError> {
        let taken = taken(plan, &settings.routes_beside);
        let taken_services = plan.services.iter().zip(&taken).filter(|(_, taken)| taken.is_ok());
        let looked_up = taken_services.filter_map(|(service, _)| fast_record(&service.kind).table());
        let pools = (0..).zip(&plan.services).take(SERVICES);
        let pools = pools.filter_map(|(place, service)| Some((place, service.kind.pool()?.slices()?)));
        let mut tables = LookupTables::new(looked_up, pools)?;
        let mut record = PlanRecord::new(plan, geometry, settings, secret);
        // Nothing new may begin: what would is the engine's to refuse.
        let drained = if plan.times.draining_since.is_some() { SERVICE_ENGINE_BINDS | SERVICE_ENGINE_OPENS } else { 0 };
        let all = plan.services.iter().zip(&taken);
        for (place, (entry, (service, taken))) in (0..).zip(record.services.iter_mut().zip(all)) {
            let side = if service.kind.shape().ipv4 == Side::Inside { SERVICE_AT_CUSTOMER } else { 0 };
            *entry = match taken {
                Ok(record) => {
                    ServiceRecord { number: service.number, place, flags: record.flags | drained | side, ..*record }
                }
                Err(_) => ServiceRecord { kind: KIND_ENGINE, ..ServiceRecord::default() },
            };
        }
        tables.complete(&mut record, plan.capacity.subscribers);
        let status = plan
            .services
            .iter()
            .zip(taken)
            .map(|(service, taken)| ServiceStatus { name: service.name.clone(), left_to_engine: taken.err() });
        Ok(Self { record, tables, services: status.collect() })
    }
}

const _: () = assert!(PCP_ADDRESSES == MOST_PCP_ADDRESSES, "there is room for all");

impl PlanRecord {
    /// Everything but the services and what is known of their tables.
    fn new(plan: &Plan, geometry: &Geometry, settings: &Settings, secret: [u64; 2]) -> Self {
        let Plan { services, retired: _, rows: _, times, capacity: _, own, pcp, cluster: _ } = plan;
        let OwnAddresses { ipv4, ipv6, answered_by, errors: _ } = own;
        let answers = *answered_by == AnsweredBy::Gateway;
        let entrances = || services.iter().map(|service| settings.entrances.of(&service.name));
        let mut record = Self {
            hash_key: HashKeyRecord::new(geometry.key),
            cluster: ClusterRecord::new(plan, settings.core.as_ref()),
            inside_buckets: geometry.inside_buckets,
            subscriber_buckets: geometry.subscriber_buckets,
            session_lines: geometry.session_lines,
            overflow_lines: geometry.overflow_lines,
            bindings: geometry.bindings,
            used_words: geometry.bindings / 64 + 1,
            binding_pairs: geometry.binding_pairs,
            lifetimes: times.lifetimes().0,
            reuse_after: times.reuse_entry_after().0,
            reuse_port_after: times.reuse_port_after,
            through_stack: settings.through_stack.into(),
            notes_changes: geometry.notes_changes.into(),
            inside_by_route: bits(entrances().map(|entrance| entrance == Some(&Entrance::ByRoute))).into(),
            inside_listed: bits(entrances().map(|entrance| matches!(entrance, Some(Entrance::Listed(_))))).into(),
            hops_beside: settings.hops_beside.into(),
            secret,
            steps: session_state::TABLE,
            own6: ipv6.filter(|_| answers).map_or([0; 2], |address| halves(address.to_bits())),
            own4: ipv4.filter(|_| answers).map_or(0, |address| address.to_bits().to_be()),
            ..Self::default()
        };
        for (entry, address) in record.pcp4.iter_mut().zip(&pcp.ipv4) {
            *entry = address.to_bits().to_be();
        }
        for (entry, short) in record.short_ports.iter_mut().zip(times.short_ports.iter()) {
            *entry = ShortPortRecord { port: short.port.0.to_be(), unused: 0, earlier: short.earlier };
        }
        for (entry, prefix) in record.prefixes.iter_mut().zip(prefixes(services)) {
            *entry = prefix_record(prefix);
        }
        for (entry, (bits, length)) in record.non_global.iter_mut().zip(NON_GLOBAL) {
            let mask = u32::MAX << (32 - u32::from(length));
            *entry = NonGlobal { bits: bits.to_bits().to_be(), mask: mask.to_be() };
        }
        record
    }
}

/// Prefixes in which services show IPv4 hosts.
fn prefixes(services: &[Service]) -> impl Iterator<Item = Prefix64> {
    services.iter().filter_map(|service| service.kind.pref64())
}

/// Which services are taken, in the order of the plan.
fn taken(plan: &Plan, routes_beside: &[(Ipv6Addr, u8)]) -> Vec<Taken> {
    let services = &plan.services;
    let mut taken: Vec<Taken> = services.iter().map(|service| fast_record(&service.kind).record()).collect();
    let tables: Vec<_> =
        services.iter().map(|s| fast_record(&s.kind).table().map(|table| discriminant(&table))).collect();
    for number in 0..services.len() {
        if tables[number].is_some() && tables[..number].contains(&tables[number]) {
            taken[number] = Err("the fast path has room for one service with such a table");
        }
        if prefixes(services).count() > SERVICES && matches!(&taken[number], Ok(record) if record.kind == KIND_NAT64) {
            taken[number] = Err("there are more prefixes than the fast path has room for");
        }
        if !plan.rows.is_empty() && plan.rows.concern(&services[number].kind.ends()) {
            taken[number] = Err("it passes packets on to another service");
        }
        if taken[number].is_ok() && has_route_inside(&services[number], routes_beside) {
            taken[number] = Err("the host has a more specific route inside its prefix");
        }
        if services[number].stands_by() {
            taken[number] = Err("it stands by while native IPv4 works");
        }
        if number >= SERVICES {
            taken[number] = Err("there are more services than the fast path has room for");
        } else if taken[number].is_ok() && is_in_the_way(services, &taken, number) {
            taken[number] = Err("a service that is left to the engine has packets of it");
        }
    }
    taken
}

/// Whether packets to a part of what is routed to the service are not its own.
fn has_route_inside(service: &Service, routes_beside: &[(Ipv6Addr, u8)]) -> bool {
    let own = service.kind.routed().ipv6;
    own.iter().any(|prefix| routes_beside.iter().any(|route| route.1 > prefix.1 && is_inside(route, prefix)))
}

/// Whether a service that the programs do not know comes before service `number` for some packets:
/// one that stands earlier and has a destination in common, or one that knows its packets by their
/// sources.
fn is_in_the_way(services: &[Service], taken: &[Taken], number: usize) -> bool {
    let own = services[number].routed();
    services.iter().zip(taken).enumerate().filter(|(_, (_, taken))| taken.is_err()).any(|(other, (service, _))| {
        let theirs = service.routed();
        let takes_all = fast_record(&service.kind).takes_everything();
        !theirs.sources.is_empty() && !own.ipv4.is_empty()
            || other < number && (takes_all || have_common(&own, &theirs))
    })
}

fn have_common(one: &Routed, other: &Routed) -> bool {
    let ipv4 = one.ipv4.iter().any(|a| other.ipv4.iter().any(|b| a.0 <= b.1 && b.0 <= a.1));
    ipv4 || one.ipv6.iter().any(|a| other.ipv6.iter().any(|b| is_inside(a, b) || is_inside(b, a)))
}

/// Whether one prefix lies in another.
fn is_inside((address, length): &(Ipv6Addr, u8), (within, shorter): &(Ipv6Addr, u8)) -> bool {
    length >= shorter && (address.to_bits() ^ within.to_bits()).checked_shr(128 - u32::from(*shorter)).unwrap_or(0) == 0
}

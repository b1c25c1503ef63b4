//! `[[service]]`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use ipnet::Ipv6Net;
use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::error_sources::ErrorSources;
use tombolo_engine::mapping::exemptions::Exemptions;
use tombolo_engine::mapping::pool::{Pool, PoolRange};
use tombolo_engine::mechanism::napt::{Filtering, Policy};
use tombolo_engine::plan::{OwnAddresses, Service, ServiceKind, Standby, StaticBinding};
use tombolo_engine::row::Ends;
use tombolo_engine::service::map::MapEdge;
use tombolo_engine::service::map_e_br::MapEBr;
use tombolo_engine::service::map_e_ce::MapECe;
use tombolo_engine::service::map_t_br::MapTBr;
use tombolo_engine::service::map_t_ce::MapTCe;
use tombolo_engine::service::nat44::Nat44;
use tombolo_engine::service::nat64::Nat64;
use tombolo_engine::service::siit::{Role, Siit};
use tombolo_engine::side::Side;
use tombolo_wire::Prefix64;

use crate::assigned::assign;
use crate::capacity::OfPools;
use crate::document::{Node, Table};
use crate::gateway::inside_interfaces;
use crate::host::InsideInterfaces;
use crate::loops::{self, Rows};
use crate::map::{self, End, Row};
use crate::nat44::{self, Inside};
use crate::nat64;
use crate::pool::{self, Draft, InsideEnd};
use crate::problem::{Log, Problem};
use crate::reference::{MAP_E, MAP_T, NAT44, SERVICE, STATELESS};
use crate::shared::SharedPool;
use crate::shared_pool;
use crate::softwire::{self, Taken};
use crate::stateful::{self, Hosts};
use crate::translation::{largest_segment, translate};
use crate::{stateless, value};

/// A service's number has eight bits.
const MOST: usize = 256;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Nat64,
    Nat44,
    Stateless(Role),
    Softwire(softwire::Kind),
    MapT,
    MapE,
}

const KINDS: [(&str, Kind); 10] = [
    ("nat64", Kind::Nat64),
    ("nat44", Kind::Nat44),
    ("siit", Kind::Stateless(Role::Siit)),
    ("clat", Kind::Stateless(Role::Clat)),
    (softwire::KINDS[0].0, Kind::Softwire(softwire::KINDS[0].1)),
    (softwire::KINDS[1].0, Kind::Softwire(softwire::KINDS[1].1)),
    (softwire::KINDS[2].0, Kind::Softwire(softwire::KINDS[2].1)),
    (softwire::KINDS[3].0, Kind::Softwire(softwire::KINDS[3].1)),
    ("map-t", Kind::MapT),
    ("map-e", Kind::MapE),
];

/// Reads all services.
pub(crate) fn read_all(file: &Table<'_>, own: &OwnAddresses, log: &mut Log) -> Services {
    let Some(node) = file.find("service") else {
        log.mistake(file.node().problem("no service; add a [[service]]"));
        return Services::default();
    };
    let items = log.keep(node.items()).unwrap_or_default();
    if items.len() > MOST {
        log.mistake(node.problem(format!("{} services are too many; use at most {MOST}", items.len())));
        return Services::default();
    }
    let mut reader = Reader::default();
    let mut services: Vec<Service> = items.iter().filter_map(|item| reader.read(item, log)).collect();
    stand_by_in_rows(&mut services);
    if services.len() == items.len() {
        loops::check(&services, &reader.explicit, own, log);
    }
    for (number, (node, address)) in reader.host_addresses.iter().enumerate() {
        if let Some((other, _)) = reader.host_addresses[..number].iter().find(|(_, other)| other == address) {
            log.mistake(node.problem(format!("is the address of {} too; give each its own", other.path())));
        }
    }
    let host_addresses = reader.host_addresses.into_iter().map(|(_, address)| address).collect();
    let order = nested_first(&services);
    let place_of = |place: usize| order.iter().position(|other| *other == place).unwrap_or(place);
    let lease_files = reader.lease_files.into_iter().map(|(place, path)| (place_of(place), path)).collect();
    let services = in_order(services, &order);
    let Reader { shared_pools, interfaces, .. } = reader;
    Services { services, host_addresses, lease_files, shared_pools, interfaces }
}

/// The places of services in the order in which they are to be asked whose a packet is: that of the file,
/// but one whose prefix lies in that of another in front of it, so that the longest match counts.
fn nested_first(services: &[Service]) -> Vec<usize> {
    let prefix = |place: usize| services[place].kind.pref64();
    let holds = |outer, inner| prefix(outer).zip(prefix(inner)).is_some_and(|(outer, inner)| lies_in(inner, outer));
    let mut order: Vec<usize> = Vec::new();
    for place in 0..services.len() {
        let at = order.iter().position(|outer| holds(*outer, place)).unwrap_or(order.len());
        order.insert(at, place);
    }
    order
}

/// The services in this order, which their numbers follow.
fn in_order(services: Vec<Service>, order: &[usize]) -> Vec<Service> {
    let mut services: Vec<Option<Service>> = services.into_iter().map(Some).collect();
    let moved = order.iter().filter_map(|place| services.get_mut(*place)?.take());
    (0..).zip(moved).map(|(number, service)| Service { number, ..service }).collect()
}

/// All services, the addresses that they have to have on the device, and the files of their pools.
#[derive(Debug, Default)]
pub(crate) struct Services {
    pub(crate) services: Vec<Service>,
    pub(crate) host_addresses: Vec<Ipv4Addr>,
    /// By place of the service.
    pub(crate) lease_files: Vec<(usize, PathBuf)>,
    pub(crate) shared_pools: Vec<SharedPool>,
    /// Where packets from inside come in, by name of the service.
    pub(crate) interfaces: BTreeMap<String, InsideInterfaces>,
}

/// What the services' pools have.
pub(crate) fn of_pools(services: &[Service]) -> OfPools {
    let ranges = || services.iter().filter_map(|service| service.kind.pool()).flat_map(Pool::ranges);
    let slots = ranges().filter_map(|range| range.first_slot.checked_add(range.slots()?)).max().unwrap_or(0);
    let handed_out = ranges().map(PoolRange::endpoints).fold(0, u32::saturating_add);
    let bound: usize = services.iter().map(|service| service.kind.static_bindings().len()).sum();
    OfPools { slots, endpoints: handed_out.saturating_add(u32::try_from(bound).unwrap_or(u32::MAX)).min(slots) }
}

/// What the services so far have taken.
#[derive(Debug, Default)]
struct Reader<'d> {
    names: Vec<String>,
    prefixes: Vec<(Node<'d>, Prefix64)>,
    inside: Vec<Inside<'d>>,
    pools: Vec<Draft<'d>>,
    tunnels: Vec<(Node<'d>, Ipv6Addr)>,
    next_slot: u32,
    host_addresses: Vec<(Node<'d>, Ipv4Addr)>,
    lease_files: Vec<(usize, PathBuf)>,
    shared_pools: Vec<SharedPool>,
    interfaces: BTreeMap<String, InsideInterfaces>,
    /// Explicit mappings.
    explicit: Vec<Rows<'d>>,
}

impl<'d> Reader<'d> {
    fn read(&mut self, item: &Node<'d>, log: &mut Log) -> Option<Service> {
        let section = match item.entry("kind") {
            Some("siit" | "clat") => &STATELESS,
            Some("nat44") => &NAT44,
            Some("map-t") => &MAP_T,
            Some("map-e") => &MAP_E,
            Some(kind) => softwire::section(kind).unwrap_or(&SERVICE),
            None => &SERVICE,
        };
        let table = item.table(section, log)?;
        let name = self.name(&table, log);
        let number = u8::try_from(self.names.len() - 1).unwrap_or(u8::MAX);
        let kind = table.require("kind", log).and_then(|node| log.keep(node.choice(&KINDS)));
        // Without a kind the rest is read as a NAT64, so that its mistakes are reported too.
        let service = match kind.unwrap_or(Kind::Nat64) {
            Kind::Nat64 => ServiceKind::Nat64(self.nat64(&table, log)?),
            Kind::Nat44 => ServiceKind::Nat44(self.nat44(&table, log)),
            Kind::Stateless(role) => ServiceKind::Siit(self.stateless(role, &table, log)),
            Kind::Softwire(kind) => {
                let Self { inside, pools, tunnels, next_slot, shared_pools, .. } = self;
                let mut taken = Taken { service: &name, inside, pools, tunnels, next_slot, shared_pools };
                softwire::read(kind, &table, &mut taken, log)?
            }
            Kind::MapT => self.map_t(&table, log)?,
            Kind::MapE => self.map_e(&table, log)?,
        };
        self.guard(&table, &name, log);
        let standby = standby(&service, &table, log);
        Some(Service { number, name, kind: service, standby })
    }

    /// Notes where packets from the inside of the service come in, if it says so.
    fn guard(&mut self, table: &Table<'d>, name: &str, log: &mut Log) {
        let Some(node) = table.find("inside_interfaces") else { return };
        let said = log.keep(inside_interfaces(&node));
        self.interfaces.extend(said.map(|said| (name.to_owned(), said)));
    }

    /// The given name; else the kind, with a number if there are several.
    fn name(&mut self, table: &Table<'d>, log: &mut Log) -> String {
        let given = table.find("name").and_then(|node| log.keep(self.given_name(&node)));
        let kind = || table.find("kind").and_then(|node| node.text().ok()).unwrap_or("service");
        let name = given.unwrap_or_else(|| {
            let numbered = (2..).map(|number| format!("{}-{number}", kind()));
            let mut names = std::iter::once(kind().to_owned()).chain(numbered);
            names.find(|name| !self.names.contains(name)).unwrap_or_default()
        });
        self.names.push(name.clone());
        name
    }

    fn given_name(&self, node: &Node<'_>) -> Result<String, Problem> {
        let name = node.text()?;
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > 32 || !name.bytes().all(is_allowed) {
            return Err(node.problem("not a name; use 1 to 32 lower-case letters, digits and hyphens"));
        }
        if self.names.iter().any(|other| other == name) {
            return Err(node.problem("another service has this name; choose a different one"));
        }
        Ok(name.to_owned())
    }

    fn nat64(&mut self, table: &Table<'d>, log: &mut Log) -> Option<Nat64> {
        let prefix = self.prefix(table, log);
        let inside = nat64::read_inside(table, prefix, log);
        let drafts = pool::read(table, &self.pools, log);
        let static_bindings = self.read_static(table, &InsideEnd::Ipv6 { prefix, inside: &inside }, &drafts, log);
        let policy = stateful::policy(table, Policy::default(), log);
        let pool = pool::build(&drafts, &static_bindings, policy.protocols, &mut self.next_slot, log);
        let well_known_prefix_strict = table.read_or("well_known_prefix_strict", true, log, Node::switch);
        let hosts = Hosts::Ipv6 { prefix_length: policy.subscriber.prefix_length(), inside: ("inside", &inside) };
        let pool = assign(stateful::allocation(table, pool, &hosts, log), &drafts, &hosts, log);
        self.pools.extend(drafts);
        let translate = translate(table, log);
        let nat = stateful::nat(table, pool, policy, static_bindings, log);
        Some(Nat64 { prefix: prefix?, inside, well_known_prefix_strict, nat, translate })
    }

    fn nat44(&mut self, table: &Table<'d>, log: &mut Log) -> Nat44 {
        let inside = nat44::read_inside(table, &self.inside, log);
        let addresses = nat44::addresses(&inside);
        let drafts = pool::read(table, &self.pools, log);
        nat44::check_apart(&inside, &drafts, log);
        let static_bindings = self.read_static(table, &InsideEnd::Ipv4(&addresses), &drafts, log);
        let policy = stateful::policy(table, Policy::default(), log);
        let pool = pool::build(&drafts, &static_bindings, policy.protocols, &mut self.next_slot, log);
        self.inside.extend(inside);
        let hosts = Hosts::Ipv4(&addresses);
        let pool = assign(stateful::allocation(table, pool, &hosts, log), &drafts, &hosts, log);
        self.pools.extend(drafts);
        let mtu = |node: &Node<'_>| node.number32(68..=65_535);
        let inside_mtu = table.read_or("inside_mtu", 1500, log, mtu);
        let outside_mtu = table.read_or("outside_mtu", 1500, log, mtu);
        let (untranslated, exempt) = nat44::untranslated(table, log);
        let automatic = u16::try_from(inside_mtu.min(outside_mtu).saturating_sub(40)).unwrap_or(u16::MAX);
        Nat44 {
            inside: addresses,
            untranslated,
            exempt,
            nat: stateful::nat(table, pool, policy, static_bindings, log),
            inside_mtu,
            outside_mtu,
            largest_segment: largest_segment(table, automatic, log),
        }
    }

    /// Static bindings of a service whose addresses may be the host's own. What the file says of these is noted.
    fn read_static(
        &mut self,
        table: &Table<'d>,
        end: &InsideEnd<'_>,
        drafts: &[Draft<'d>],
        log: &mut Log,
    ) -> Vec<StaticBinding> {
        let service = self.names.last().map_or("", String::as_str);
        shared_pool::read_with_static(table, (service, end), drafts, &mut self.shared_pools, log)
    }

    fn stateless(&mut self, role: Role, table: &Table<'d>, log: &mut Log) -> Siit {
        // Found out by the daemon at start.
        let automatic =
            role == Role::Clat && table.find("prefix").is_some_and(|node| matches!(node.text(), Ok("auto")));
        let prefix = table.find("prefix").filter(|_| !automatic).and_then(|_| self.prefix(table, log));
        self.host_addresses.extend(stateless::host_address(role, table, log));
        // Every service has its name by now, this one too.
        let service = self.names.len() - 1;
        self.explicit.extend(table.find("eam").map(|node| Rows { service, node }));
        self.lease_files.extend(stateless::lease_file(table, log).map(|path| (service, path)));
        stateless::read(role, table, prefix, translate(table, log), log)
    }

    fn map_t(&mut self, table: &Table<'d>, log: &mut Log) -> Option<ServiceKind> {
        let end = map::read_end(table, log);
        let dmr = self.default_mapping_rule(end, table, log);
        let well_known_prefix_strict = table.read_or("well_known_prefix_strict", true, log, Node::switch);
        let translate = translate(table, log);
        let error_sources = ErrorSources::new(stateless::error_sources(table, log));
        let end = end?;
        let rows = map::read_rules(table, end, log);
        match end {
            End::Br => {
                let domain = map::domain(&rows, table, log);
                Some(ServiceKind::MapTBr(MapTBr {
                    domain,
                    dmr: dmr?,
                    well_known_prefix_strict,
                    error_sources,
                    translate,
                }))
            }
            End::Ce => {
                let edge = self.map_edge(table, &rows, translate.ipv4_mtu, log);
                Some(ServiceKind::MapTCe(MapTCe {
                    edge: edge?,
                    dmr: dmr?,
                    well_known_prefix_strict,
                    error_sources,
                    translate,
                }))
            }
        }
    }

    fn map_e(&mut self, table: &Table<'d>, log: &mut Log) -> Option<ServiceKind> {
        let end = map::read_end(table, log);
        let relay = map::read_relay(table, log);
        let softwire = softwire::settings(table, log);
        let ipv4_mtu = table.read_or("ipv4_mtu", 1500, log, |node| node.number32(68..=65_535));
        let end = end?;
        let rows = map::read_rules(table, end, log);
        match end {
            End::Br => {
                let domain = map::domain(&rows, table, log);
                let (node, address) = relay?;
                if let Some((other, _)) = self.tunnels.iter().find(|(_, other)| *other == address) {
                    let text = format!("is the address of {} too; give each relay its own", other.path());
                    log.mistake(node.problem(text));
                }
                self.tunnels.push((node, address));
                Some(ServiceKind::MapEBr(MapEBr { domain, address, softwire }))
            }
            End::Ce => {
                let edge = self.map_edge(table, &rows, ipv4_mtu, log)?;
                let (node, relay) = relay?;
                if relay == edge.ce.address() {
                    log.mistake(node.problem("is the edge's own address; name the relay's"));
                }
                Some(ServiceKind::MapECe(MapECe { edge, relay, softwire }))
            }
        }
    }

    /// The prefix in which a MAP-T domain sees the IPv4 Internet. A relay is where it is routed to;
    /// an edge only uses it.
    fn default_mapping_rule(&mut self, end: Option<End>, table: &Table<'d>, log: &mut Log) -> Option<Prefix64> {
        let node = table.require("dmr", log)?;
        let prefix = log.keep(node.text().and_then(|text| value::prefix64(text).map_err(|text| node.problem(text))))?;
        if prefix.length() != 64 {
            log.warning(
                node.problem("should have 64 bits (RFC 7599 section 5.1); other ends may know no other length"),
            );
        }
        if end == Some(End::Br) {
            self.keep_apart(node, prefix, log);
        }
        Some(prefix)
    }

    /// A customer's edge. `mtu` is that of the links inside.
    fn map_edge(&mut self, table: &Table<'d>, rows: &[Row<'_>], mtu: u32, log: &mut Log) -> Option<MapEdge> {
        let mesh = map::mesh(rows, table, log);
        let found = map::read_ce(table, rows, log);
        if !table.read_or("napt", true, log, Node::switch) {
            for node in map::NAPT_ALONE.iter().filter_map(|key| table.find(key)) {
                log.mistake(node.problem("there is no NAPT to use it; remove the key, or napt = false"));
            }
            return found.map(|(_, ce)| MapEdge { ce, napt: None, mesh });
        }
        let inside = nat44::read_inside(table, &self.inside, log);
        let addresses = nat44::addresses(&inside);
        let (node, ce) = found?;
        let drafts: Vec<Draft<'d>> = map::draft(node, &ce, log).into_iter().collect();
        nat44::check_apart(&inside, &drafts, log);
        let static_bindings = pool::read_static(table, &InsideEnd::Ipv4(&addresses), drafts.as_slice().into(), log);
        map::check_static(&ce, &static_bindings, table, log);
        // Small port sets are easily guessed (RFC 7597 section 10).
        let defaults = Policy { filtering: Filtering::AddressDependent.into(), ..Policy::default() };
        let policy = stateful::policy(table, defaults, log);
        let pool = pool::build(&drafts, &static_bindings, policy.protocols, &mut self.next_slot, log);
        self.pools.extend(drafts);
        self.inside.extend(inside);
        let napt = Nat44 {
            inside: addresses,
            untranslated: AddressRanges::default(),
            exempt: Exemptions::default(),
            nat: stateful::nat(table, pool, policy, static_bindings, log),
            inside_mtu: mtu,
            // What leaves is cut to size behind the NAPT, where its new headers are.
            outside_mtu: u32::MAX,
            largest_segment: None,
        };
        Some(MapEdge { ce, napt: Some(napt), mesh })
    }

    fn prefix(&mut self, table: &Table<'d>, log: &mut Log) -> Option<Prefix64> {
        let node = table.require("prefix", log)?;
        let prefix = node.text().and_then(|text| value::prefix64(text).map_err(|text| node.problem(text)));
        let prefix = log.keep(prefix)?;
        self.keep_apart(node, prefix, log);
        Some(prefix)
    }

    /// Reports a prefix that another service has, or a part of it, and notes it for those that follow.
    fn keep_apart(&mut self, node: Node<'d>, prefix: Prefix64, log: &mut Log) {
        for (other, found) in &self.prefixes {
            let path = other.path();
            let service = path.rsplit_once('.').map_or(path, |(service, _)| service);
            let text = other.text().unwrap_or_default();
            if *found == prefix {
                log.mistake(
                    node.problem(format!("is the prefix of {service} ({text}); give each service a prefix of its own")),
                );
            } else if lies_in(prefix, *found) {
                log.warning(node.problem(format!(
                    "lies in the prefix of {service} ({text}), where this service goes first: IPv4 addresses that are \
                     there in the other's prefix are not reached through the other"
                )));
            } else if lies_in(*found, prefix) {
                log.warning(node.problem(format!(
                    "holds the prefix of {service} ({text}), which goes first: IPv4 addresses that are there in this \
                     prefix are not reached through this service"
                )));
            }
        }
        self.prefixes.push((node, prefix));
    }
}

/// Whether a service of this kind stands by while native IPv4 works.
fn standby(kind: &ServiceKind, table: &Table<'_>, log: &mut Log) -> Standby {
    const CHOICES: [(&str, Standby); 2] = [("ignored", Standby::Never), ("preferred", Standby::Active)];
    let is_customers = kind.shape().ipv4 == Side::Inside;
    if !table.knows("native_ipv4") {
        return Standby::Never;
    }
    match table.find("native_ipv4") {
        Some(node) if !is_customers => {
            log.mistake(node.problem("the provider's end has no IPv4 hosts inside; remove the key"));
            Standby::Never
        }
        Some(node) => log.keep(node.choice(&CHOICES)).unwrap_or_default(),
        None => Standby::Never,
    }
}

/// A service whose packets all go to one that stands by, as those of a NAT44 in front of a CLAT do, stands by with it.
fn stand_by_in_rows(services: &mut [Service]) {
    let ends: Vec<Ends> = services.iter().map(|service| service.kind.ends()).collect();
    for _ in 0..services.len() {
        for place in 0..services.len() {
            let lies_inside = |other: usize| {
                let within =
                    |(first, last): &(Ipv4Addr, Ipv4Addr)| ends[other].1.iter().any(|(a, b)| a <= first && last <= b);
                other != place && !ends[place].0.is_empty() && ends[place].0.iter().all(within)
            };
            let standby =
                (0..services.len()).find(|other| services[*other].standby != Standby::Never && lies_inside(*other));
            if standby.is_some() {
                services[place].standby = Standby::Active;
            }
        }
    }
}

/// True if `inner` is a part of `outer`.
fn lies_in(inner: Prefix64, outer: Prefix64) -> bool {
    let net = |prefix: Prefix64| Ipv6Net::new(prefix.address(), prefix.length());
    inner != outer && net(outer).is_ok_and(|outer| net(inner).is_ok_and(|inner| outer.contains(&inner)))
}

//! The mirror: routes and neighbours as the kernel has them, in tables that others read meanwhile.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use tombolo_tables::lpm::epoch::Epochs;
use tombolo_tables::lpm::{Key as _, Lpm, LpmError, NextHop, Prefix, Reader, Route, Shape};
use tombolo_tables::memory::MemorySource;

use super::events::{EventSocket, Received};
use super::parse::{KernelRoute, Neighbour, Target, are_plain};
use super::targets::Targets;
use crate::rtnl::RouteSocket;

/// RTNLGRP_LINK, _NEIGH, _IPV4_IFADDR, _IPV4_ROUTE, _IPV4_RULE, _IPV6_IFADDR, _IPV6_ROUTE,
/// _IPV6_RULE (`linux/rtnetlink.h`).
/// Why routes are not enough: rules ask for more than the destination.
pub const OTHER_RULES: &str = "the kernel has rules of its own for routing (ip rule)";
const GROUPS: [u32; 8] = [1, 3, 5, 7, 8, 9, 11, 19];

/// Bytes that the kernel may queue for us: some ten thousand events. More are lost, noticed, and
/// made up for.
const EVENT_BUFFER: u32 = 8 << 20;

/// Why the mirror does not follow the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MirrorError {
    /// A socket failed.
    #[error("the kernel's routes cannot be read: {action} failed")]
    Netlink {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A table is too small for the kernel's routes. Those that fit are in it; the mirror tries the
    /// others again at each resynchronisation.
    #[error("{missing} of the kernel's routes do not fit the mirror's table; the first is {first}")]
    Full {
        /// Routes that are not in the table.
        missing: usize,
        /// One of them.
        first: IpNet,
        /// The table's own words.
        #[source]
        source: LpmError,
    },
    /// The table could not be made.
    #[error("the mirror's tables cannot be made")]
    Table(#[from] LpmError),
}

/// What the mirror has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorStatistics {
    /// Changes that the kernel announced.
    pub events: u64,
    /// Times that the socket's buffer overflowed, so that changes were lost.
    pub overruns: u64,
    /// Times that everything was read again, the first time included.
    pub resyncs: u64,
}

/// A route that packets take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirroredRoute {
    /// Which destinations.
    pub prefix: IpNet,
    /// Metric, as the kernel gives it.
    pub metric: u32,
    /// Where to.
    pub target: Target,
}

/// The routes of the main and local tables and the neighbours of one network namespace.
#[derive(Debug)]
pub struct Mirror {
    events: EventSocket,
    requests: RouteSocket,
    /// All routes to each prefix, the one that packets take first.
    routes: BTreeMap<IpNet, Vec<KernelRoute>>,
    targets: Targets,
    ipv4: Lpm<u32>,
    ipv6: Lpm<u128>,
    neighbours: HashMap<(u32, IpAddr), Neighbour>,
    links: HashMap<u32, (String, bool)>,
    statistics: MirrorStatistics,
    /// The kernel's rules send every packet to the local table and then to the main one, in both
    /// families.
    plain_rules: bool,
    /// Networks that are local as a whole. The local table goes first, so they hide longer routes
    /// of the main one.
    local_networks: usize,
    /// Routes that did not fit.
    missing: usize,
    /// Events may have been lost: read everything again before the next answer.
    stale: bool,
}

impl Mirror {
    /// Counts the routes of the calling thread's network namespace, of the family that has more.
    ///
    /// # Errors
    /// [`MirrorError::Netlink`].
    pub fn count_routes() -> Result<usize, MirrorError> {
        let failed = |source| MirrorError::Netlink { action: "counting routes", source };
        let mut socket = RouteSocket::open().map_err(failed)?;
        let mut most = 0;
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            most = most.max(socket.dump(RouteNetlinkMessage::GetRoute(request)).map_err(failed)?.len());
        }
        Ok(most)
    }

    /// Opens a mirror of the calling thread's network namespace, with tables for `routes` routes of
    /// each family.
    ///
    /// # Errors
    /// [`MirrorError`].
    pub fn open(memory: &mut dyn MemorySource, routes: usize) -> Result<Self, MirrorError> {
        Self::open_with_buffer(memory, routes, EVENT_BUFFER)
    }

    /// As [`Self::open`], with so many bytes for events that wait.
    ///
    /// # Errors
    /// [`MirrorError`].
    pub fn open_with_buffer(
        memory: &mut dyn MemorySource,
        routes: usize,
        buffer_bytes: u32,
    ) -> Result<Self, MirrorError> {
        let failed = |action| move |source| MirrorError::Netlink { action, source };
        // Events first: what changes during the dump is announced.
        let events = EventSocket::open(&GROUPS, buffer_bytes).map_err(failed("subscribing to changes"))?;
        let mut mirror = Self {
            events,
            requests: RouteSocket::open().map_err(failed("opening a socket"))?,
            routes: BTreeMap::new(),
            targets: Targets::default(),
            ipv4: Lpm::new(memory, "routes-ipv4", Shape::for_routes::<u32>(routes))?,
            ipv6: Lpm::new(memory, "routes-ipv6", Shape::for_routes::<u128>(routes))?,
            neighbours: HashMap::new(),
            links: HashMap::new(),
            statistics: MirrorStatistics::default(),
            plain_rules: false,
            local_networks: 0,
            missing: 0,
            stale: true,
        };
        mirror.follow(Duration::ZERO)?;
        Ok(mirror)
    }

    /// Waits for changes, at most `limit`, and applies all that there are. True if anything changed
    /// that makes a next hop another one: a route, a rule, a link, or the link-layer address of a
    /// neighbour that was known. A neighbour that is heard of, confirmed or forgotten, as thousands
    /// of subscribers on a link are all the time, leaves the next hops of all others as they are.
    ///
    /// # Errors
    /// [`MirrorError`]. After [`MirrorError::Full`] the mirror goes on; after another error it is
    /// as it was, and the next call reads everything again.
    pub fn follow(&mut self, limit: Duration) -> Result<bool, MirrorError> {
        if !self.stale {
            let waited = self.events.wait(limit);
            waited.map_err(|source| MirrorError::Netlink { action: "waiting for changes", source })?;
        }
        let mut refused = Refused::default();
        let mut changed = false;
        loop {
            let received = self.events.receive();
            match received.map_err(|source| MirrorError::Netlink { action: "reading changes", source })? {
                Received::Events(events) => {
                    for (event, replaces) in events {
                        self.statistics.events += 1;
                        changed |= self.apply(event, replaces, &mut refused);
                    }
                }
                Received::Overrun => {
                    self.statistics.overruns += 1;
                    self.stale = true;
                }
                Received::Nothing if self.stale => {
                    self.resync(&mut refused)?;
                    self.stale = false;
                    changed = true;
                }
                Received::Nothing => break,
            }
        }
        self.missing += refused.missing;
        refused.into_result().map(|()| changed)
    }

    /// True if next hops may be others now.
    fn apply(&mut self, event: RouteNetlinkMessage, replaces: bool, refused: &mut Refused) -> bool {
        match event {
            RouteNetlinkMessage::NewRoute(message) => {
                if let Some(route) = KernelRoute::read(&message) {
                    self.add(route, replaces, refused);
                }
            }
            RouteNetlinkMessage::DelRoute(message) => {
                if let Some(route) = KernelRoute::read(&message) {
                    self.remove(&route, refused);
                }
            }
            RouteNetlinkMessage::NewNeighbour(message) => return self.note_neighbour(&message, true),
            RouteNetlinkMessage::DelNeighbour(message) => return self.note_neighbour(&message, false),
            RouteNetlinkMessage::NewLink(message) => self.link(&message),
            RouteNetlinkMessage::DelLink(message) => {
                self.links.remove(&message.header.index);
                self.stale = true;
            }
            // The kernel drops IPv4 routes that an address carried without a word.
            RouteNetlinkMessage::DelAddress(_) => self.stale = true,
            RouteNetlinkMessage::NewRule(_) | RouteNetlinkMessage::DelRule(_) => self.stale = true,
            _ => {}
        }
        true
    }

    /// A link went down: so did IPv4 routes over it, without a word.
    fn link(&mut self, message: &LinkMessage) {
        let Some((index, name, up)) = read_link(message) else { return };
        let before = self.links.insert(index, (name, up));
        self.stale |= before.is_some_and(|(_, was_up)| was_up && !up);
    }

    /// True if a neighbour that was known has another link-layer address.
    fn note_neighbour(&mut self, message: &NeighbourMessage, present: bool) -> bool {
        let Some((neighbour, valid)) = Neighbour::read(message) else { return false };
        let key = (neighbour.interface, neighbour.address);
        if present && valid {
            let link_address = neighbour.link_address.clone();
            self.neighbours.insert(key, neighbour).is_some_and(|before| before.link_address != link_address)
        } else {
            self.neighbours.remove(&key);
            false
        }
    }

    fn add(&mut self, route: KernelRoute, replaces: bool, refused: &mut Refused) {
        let prefix = route.prefix;
        let routes = self.routes.entry(prefix).or_default();
        match routes.iter_mut().find(|other| other.replaces(&route)) {
            Some(other) if *other == route => return,
            // IPv6 appends next hops to a route that is there. Only a dump shows the whole route.
            Some(_) if prefix.addr().is_ipv6() && !replaces => {
                self.stale = true;
                return;
            }
            Some(other) => {
                self.local_networks -= usize::from(other.is_local_network());
                self.local_networks += usize::from(route.is_local_network());
                *other = route;
            }
            None => {
                self.local_networks += usize::from(route.is_local_network());
                routes.push(route);
                routes.sort_by_key(KernelRoute::order);
            }
        }
        self.publish(prefix, refused);
    }

    fn remove(&mut self, route: &KernelRoute, refused: &mut Refused) {
        let Some(routes) = self.routes.get_mut(&route.prefix) else { return };
        let Some(index) = routes.iter().position(|other| other.replaces(route)) else { return };
        if routes[index].target.hops.len() > route.target.hops.len() && !route.target.hops.is_empty() {
            // One next hop of several went.
            self.stale = true;
            return;
        }
        let gone = routes.remove(index);
        self.local_networks -= usize::from(gone.is_local_network());
        self.publish(route.prefix, refused);
    }

    /// Brings the table to what the routes of a prefix say now.
    fn publish(&mut self, prefix: IpNet, refused: &mut Refused) {
        // Of several routes the kernel may take another one than the first, such as when that one's
        // link has no carrier.
        let best = self.routes.get(&prefix).and_then(|routes| {
            let best = routes.first()?;
            Some((best.target.clone(), best.plain && routes.len() == 1))
        });
        let outcome = match best {
            Some((target, plain)) => self.targets.hold(&target, plain).and_then(|next_hop| {
                let replaced = self.insert(prefix, next_hop);
                if replaced.is_err() {
                    self.targets.release(next_hop);
                }
                replaced
            }),
            None => {
                self.routes.remove(&prefix);
                self.withdraw(prefix)
            }
        };
        match outcome {
            Ok(Some(before)) => self.targets.release(before),
            Ok(None) => {}
            Err(error) => refused.note(prefix, error),
        }
    }

    fn insert(&mut self, prefix: IpNet, next_hop: NextHop) -> Result<Option<NextHop>, LpmError> {
        match prefix {
            IpNet::V4(net) => {
                let prefix = Prefix::new(net.addr(), net.prefix_len())?;
                self.ipv4.insert(Route { prefix, next_hop })
            }
            IpNet::V6(net) => {
                let prefix = Prefix::new(net.addr(), net.prefix_len())?;
                self.ipv6.insert(Route { prefix, next_hop })
            }
        }
    }

    fn withdraw(&mut self, prefix: IpNet) -> Result<Option<NextHop>, LpmError> {
        match prefix {
            IpNet::V4(net) => self.ipv4.remove(Prefix::new(net.addr(), net.prefix_len())?),
            IpNet::V6(net) => self.ipv6.remove(Prefix::new(net.addr(), net.prefix_len())?),
        }
    }

    /// Reads everything and applies the differences.
    fn resync(&mut self, refused: &mut Refused) -> Result<(), MirrorError> {
        self.statistics.resyncs += 1;
        self.links = self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()), |message| match message {
            RouteNetlinkMessage::NewLink(message) => read_link(&message).map(|(index, name, up)| (index, (name, up))),
            _ => None,
        })?;
        self.neighbours = self.dump(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()), |message| {
            let RouteNetlinkMessage::NewNeighbour(message) = message else { return None };
            let (neighbour, valid) = Neighbour::read(&message)?;
            valid.then_some(((neighbour.interface, neighbour.address), neighbour))
        })?;
        self.missing = 0;
        self.plain_rules = true;
        let mut fresh: BTreeMap<IpNet, Vec<KernelRoute>> = BTreeMap::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            let mut rules = RuleMessage::default();
            rules.header.family = family;
            let mut rules: Vec<RuleMessage> =
                self.dump(RouteNetlinkMessage::GetRule(rules), |message| match message {
                    RouteNetlinkMessage::NewRule(rule) => Some(rule),
                    _ => None,
                })?;
            self.plain_rules &= are_plain(&mut rules);
            let routes: Vec<KernelRoute> =
                self.dump(RouteNetlinkMessage::GetRoute(request), |message| match message {
                    RouteNetlinkMessage::NewRoute(message) => KernelRoute::read(&message),
                    _ => None,
                })?;
            for route in routes {
                fresh.entry(route.prefix).or_default().push(route);
            }
        }
        self.local_networks = fresh.values().flatten().filter(|route| route.is_local_network()).count();
        fresh.values_mut().for_each(|routes| routes.sort_by_key(KernelRoute::order));
        let before = std::mem::replace(&mut self.routes, fresh);
        let prefixes: HashSet<IpNet> = before.keys().chain(self.routes.keys()).copied().collect();
        for prefix in prefixes {
            // Also what is the same but was refused before: there may be room now.
            let same = before.get(&prefix) == self.routes.get(&prefix) && self.next_hop_of(prefix).is_some();
            if !same {
                self.publish(prefix, refused);
            }
        }
        Ok(())
    }

    fn dump<T, C: FromIterator<T>>(
        &mut self,
        request: RouteNetlinkMessage,
        read: impl FnMut(RouteNetlinkMessage) -> Option<T>,
    ) -> Result<C, MirrorError> {
        let answers = self.requests.dump(request);
        let answers = answers.map_err(|source| MirrorError::Netlink { action: "reading everything", source })?;
        Ok(answers.into_iter().filter_map(read).collect())
    }

    fn next_hop_of(&self, prefix: IpNet) -> Option<NextHop> {
        match prefix {
            IpNet::V4(net) => self.ipv4.find(Prefix::new(net.addr(), net.prefix_len()).ok()?),
            IpNet::V6(net) => self.ipv6.find(Prefix::new(net.addr(), net.prefix_len()).ok()?),
        }
    }

    /// The route that packets to `address` take.
    #[must_use]
    pub fn lookup(&self, address: IpAddr) -> Option<MirroredRoute> {
        let (len, next_hop) = match address {
            IpAddr::V4(address) => {
                let found = self.ipv4.reader().pin().lookup(u32::from_address(address))?;
                (found.prefix_len(), found.next_hop())
            }
            IpAddr::V6(address) => {
                let found = self.ipv6.reader().pin().lookup(u128::from_address(address))?;
                (found.prefix_len(), found.next_hop())
            }
        };
        let prefix = IpNet::new(address, len).ok()?.trunc();
        let metric = self.routes.get(&prefix)?.first()?.metric;
        Some(MirroredRoute { prefix, metric, target: self.targets.get(next_hop)?.clone() })
    }

    /// Every prefix with the route that its packets take, in order.
    pub fn routes(&self) -> impl Iterator<Item = MirroredRoute> {
        self.routes.iter().filter_map(|(prefix, routes)| {
            let best = routes.first()?;
            Some(MirroredRoute { prefix: *prefix, metric: best.metric, target: best.target.clone() })
        })
    }

    /// Prefixes that have a route.
    #[must_use]
    pub fn prefixes(&self) -> usize {
        self.routes.len()
    }

    /// What a next hop of the tables stands for.
    #[must_use]
    pub fn target(&self, next_hop: NextHop) -> Option<&Target> {
        self.targets.get(next_hop)
    }

    /// Different targets in use.
    #[must_use]
    pub fn target_count(&self) -> usize {
        self.targets.len()
    }

    /// Why the tables alone do not decide which route a packet takes, if they do not.
    #[must_use]
    pub fn falls_short(&self) -> Option<&'static str> {
        if !self.plain_rules {
            Some(OTHER_RULES)
        } else if self.missing > 0 {
            Some("there are more routes than at the start; a restart makes room")
        } else if self.local_networks > 0 {
            Some("a whole network is local (ip route show table local)")
        } else {
            None
        }
    }

    /// The epochs of both tables, for whoever lets programs of the kernel read them.
    #[must_use]
    pub fn epochs(&self) -> [&Epochs; 2] {
        [self.ipv4.epochs(), self.ipv6.epochs()]
    }

    /// A reader of the IPv4 table.
    #[must_use]
    pub fn ipv4_reader(&self) -> Reader<u32> {
        self.ipv4.reader()
    }

    /// A reader of the IPv6 table.
    #[must_use]
    pub fn ipv6_reader(&self) -> Reader<u128> {
        self.ipv6.reader()
    }

    /// The neighbour of this address on an interface, if it can be sent to.
    #[must_use]
    pub fn neighbour(&self, interface: u32, address: IpAddr) -> Option<&Neighbour> {
        self.neighbours.get(&(interface, address))
    }

    /// Neighbours that can be sent to.
    #[must_use]
    pub fn neighbour_count(&self) -> usize {
        self.neighbours.len()
    }

    /// An interface's name.
    #[must_use]
    pub fn interface_name(&self, interface: u32) -> Option<&str> {
        self.links.get(&interface).map(|(name, _)| name.as_str())
    }

    /// What the mirror has seen.
    #[must_use]
    pub fn statistics(&self) -> MirrorStatistics {
        self.statistics
    }
}

/// Routes that did not fit.
#[derive(Default)]
struct Refused {
    missing: usize,
    first: Option<(IpNet, LpmError)>,
}

impl Refused {
    fn note(&mut self, prefix: IpNet, error: LpmError) {
        self.missing += 1;
        self.first.get_or_insert((prefix, error));
    }

    fn into_result(self) -> Result<(), MirrorError> {
        match self.first {
            Some((first, source)) => Err(MirrorError::Full { missing: self.missing, first, source }),
            None => Ok(()),
        }
    }
}

/// Index, name, and whether it is up.
fn read_link(message: &LinkMessage) -> Option<(u32, String, bool)> {
    let name = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })?;
    Some((message.header.index, name, message.header.flags.contains(LinkFlags::Up)))
}

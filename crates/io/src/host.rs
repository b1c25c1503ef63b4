//! What the gateway changes on its host: the device is set up, gets its addresses, and the
//! services' prefixes are routed to it. Everything is recorded and taken back when the [`Host`] is
//! dropped.
//!
//! Nothing is taken from anybody: an address or a route that is there already is an error which
//! names its owner, never a replacement.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;

use crate::rtnl::RouteSocket;

/// Protocol number of the gateway's routes and rules, so that `ip route show proto 84` lists them.
/// Numbers are free to choose above 4 where no routing daemon of `/etc/iproute2/rt_protos` has one.
pub(crate) const ROUTE_PROTOCOL: u8 = 84;

/// Longest wait for the kernel to install the local route of a new address; microseconds are usual.
const LOCAL_ROUTE_WAIT: Duration = Duration::from_secs(1);

/// Priorities of the gateway's rules: what leaves the device, and what has to reach it. Before the
/// main table (32766), behind the local one (0), and with room for an operator's own on either
/// side.
const RULE_FROM_DEVICE: u32 = 8400;
const RULE_TO_DEVICE: u32 = 8401;

/// The host could not be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// No such device.
    #[error("there is no network device {device}")]
    NoDevice {
        /// Name of the device.
        device: String,
    },
    /// No privilege.
    #[error(
        "{action} is not allowed: the process needs CAP_NET_ADMIN; run as root, or let systemd give it AmbientCapabilities=CAP_NET_ADMIN"
    )]
    Denied {
        /// What was tried.
        action: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The prefix is routed already.
    #[error(
        "{prefix} is routed to {owner} already: remove that route (\"ip route del {prefix}\"), or give the service another prefix"
    )]
    RouteTaken {
        /// The prefix.
        prefix: IpNet,
        /// Name of the device that has the route.
        owner: String,
    },
    /// One of the host's own addresses lies in the prefix, and no more specific route says so.
    #[error(
        "{prefix} contains {address}, an address of {owner}: packets to it would never reach the gateway; take it out of the prefix or off the device (\"ip addr del {address} dev {owner}\")"
    )]
    AddressInPrefix {
        /// The prefix.
        prefix: IpNet,
        /// The address.
        address: IpAddr,
        /// Name of the device that has the address.
        owner: String,
    },
    /// The address is there already.
    #[error(
        "{address} is an address of {owner} already: choose another one, or remove it (\"ip addr del {address} dev {owner}\")"
    )]
    AddressTaken {
        /// The address.
        address: IpAddr,
        /// Name of the device that has it.
        owner: String,
    },
    /// Another gateway has the routing table.
    #[error(
        "routing table {table} has a default route already: give this gateway another one (gateway.table), or remove the route (\"ip route del default table {table}\")"
    )]
    TableTaken {
        /// Number of the table.
        table: u32,
    },
    /// IPv6 is switched off.
    #[error(
        "{action} failed because IPv6 is switched off: set net.ipv6.conf.all.disable_ipv6=0, or boot without ipv6.disable=1"
    )]
    NoIpv6 {
        /// What was tried.
        action: String,
    },
    /// The MTU is out of range.
    #[error("mtu {mtu} is not possible on {device}: use 1280 to 65535")]
    Mtu {
        /// Name of the device.
        device: String,
        /// The MTU in bytes.
        mtu: u32,
    },
    /// Anything else.
    #[error("{action} failed")]
    Failed {
        /// What was tried.
        action: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// An address of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAddress {
    /// The address.
    pub address: IpAddr,
    /// Number of the device that has it.
    pub index: u32,
    /// Name of the device that has it.
    pub device: String,
    /// Where it is valid.
    pub reach: Reach,
    /// Length of the network that it is in, in bits.
    pub prefix_len: u8,
}

impl HostAddress {
    /// True if it may stay in `prefix` though that is routed to the gateway: its own network is more
    /// specific, and packets to that need no translation (RFC 7915 section 5.6). An IPv4 prefix
    /// holds addresses to be handed out, of which none may be missing.
    fn may_lie_in(&self, prefix: IpNet) -> bool {
        prefix.addr().is_ipv6() && self.prefix_len > prefix.prefix_len()
    }
}

/// Where an address is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Everywhere, as far as the host knows.
    Global,
    /// On the link, or within the host, or not yet or no longer to be used (tentative, deprecated).
    Restricted,
}

/// Whether the host forwards packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarding {
    /// `net.ipv4.ip_forward`.
    pub ipv4: Switch,
    /// `net.ipv6.conf.all.forwarding`.
    pub ipv6: Switch,
}

/// A sysctl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// Not 0.
    On,
    /// 0.
    Off,
    /// It cannot be read.
    Unknown,
}

impl Forwarding {
    /// Reads both settings, for the network namespace of the calling thread.
    #[must_use]
    pub fn read() -> Self {
        Self {
            ipv4: read_switch("/proc/sys/net/ipv4/ip_forward"),
            ipv6: read_switch("/proc/sys/net/ipv6/conf/all/forwarding"),
        }
    }

    /// The commands that switch on what is off.
    #[must_use]
    pub fn remedies(self) -> Vec<&'static str> {
        let commands =
            [(self.ipv4, "sysctl -w net.ipv4.ip_forward=1"), (self.ipv6, "sysctl -w net.ipv6.conf.all.forwarding=1")];
        commands.into_iter().filter(|(switch, _)| *switch == Switch::Off).map(|(_, command)| command).collect()
    }
}

fn read_switch(path: &str) -> Switch {
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim() == "0" => Switch::Off,
        Ok(_) => Switch::On,
        Err(_) => Switch::Unknown,
    }
}

/// The host as the gateway uses it. Dropping it takes every change back, the last one first.
#[derive(Debug)]
pub struct Host {
    socket: RouteSocket,
    changes: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Up(u32),
    Address(AddressMessage),
    Route(RouteMessage),
    Rule(RuleMessage),
}

impl Host {
    /// Opens a socket to the kernel, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`HostError::Failed`].
    pub fn open() -> Result<Self, HostError> {
        let socket = RouteSocket::open().map_err(|source| fail("opening an rtnetlink socket", source))?;
        Ok(Self { socket, changes: Vec::new() })
    }

    /// Sets the device up, with this MTU in bytes and a queue of so many packets (a super-packet
    /// counts as one) for each of its TUN queues. The kernel makes no link-local address: nothing
    /// would answer it.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn bring_up(&mut self, device: &str, mtu: u32, queue_packets: u32) -> Result<(), HostError> {
        if !(1280..=65_535).contains(&mtu) {
            return Err(HostError::Mtu { device: device.to_owned(), mtu });
        }
        let index = index_of(device)?;
        // Fails where there is no IPv6, and then there is nothing to prevent.
        let no_addresses = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
        let mut quiet = link_message(index);
        quiet.attributes.push(LinkAttribute::AfSpecUnspec(vec![no_addresses]));
        let _ = self.socket.request(RouteNetlinkMessage::SetLink(quiet), 0);

        let mut message = link_message(index);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        message.attributes.extend([LinkAttribute::Mtu(mtu), LinkAttribute::TxQueueLen(queue_packets)]);
        let result = self.socket.request(RouteNetlinkMessage::SetLink(message), 0);
        result.map_err(|source| fail(&format!("setting device {device} up with mtu {mtu}"), source))?;
        self.changes.push(Change::Up(index));
        // The gateway's ICMP errors come out of the device with an address of the host as source,
        // which Linux drops by default (IPv4 only). The setting is the device's own and goes with
        // it. Where /proc/sys cannot be written, in some containers, a hop of IPv4 traceroutes
        // stays silent: no reason not to start.
        let _ = std::fs::write(format!("/proc/sys/net/ipv4/conf/{device}/accept_local"), "1");
        Ok(())
    }

    /// Sets the device up and changes nothing else about it, for administrators who do the rest
    /// themselves.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn set_up(&mut self, device: &str) -> Result<(), HostError> {
        let mut message = link_message(index_of(device)?);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        let result = self.socket.request(RouteNetlinkMessage::SetLink(message), 0);
        result.map(drop).map_err(|source| fail(&format!("setting device {device} up"), source))
    }

    /// MTU of the device in bytes.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn mtu(&mut self, device: &str) -> Result<u32, HostError> {
        let request = RouteNetlinkMessage::GetLink(link_message(index_of(device)?));
        let action = format!("reading the mtu of device {device}");
        let answers = self.socket.request(request, 0).map_err(|source| fail(&action, source))?;
        let attributes = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link.attributes),
            _ => None,
        });
        let mtu = attributes.flatten().find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(mtu),
            _ => None,
        });
        mtu.ok_or_else(|| fail(&action, io::ErrorKind::InvalidData.into()))
    }

    /// Gives the device an address.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn add_address(&mut self, device: &str, address: IpNet) -> Result<(), HostError> {
        let index = index_of(device)?;
        let action = format!("adding address {address} to {device}");
        if let Some(owner) = self.addresses()?.into_iter().find(|own| own.address == address.addr()) {
            return Err(HostError::AddressTaken { address: owner.address, owner: owner.device });
        }
        let message = address_message(index, address);
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        match self.socket.request(RouteNetlinkMessage::NewAddress(message.clone()), flags) {
            Ok(_) => self.changes.push(Change::Address(message)),
            Err(source) => return Err(family_error(&action, address.addr(), source)),
        }
        self.wait_until_local(address.addr());
        Ok(())
    }

    /// Waits until the kernel delivers packets for an address of its own. It announces an IPv6
    /// address at once but installs the local route from a work queue; what arrives in between is
    /// lost (`Ip6InAddrErrors`). Gives up after
    /// [`LOCAL_ROUTE_WAIT`]: on a device that is down the route never comes, and that is no error.
    fn wait_until_local(&mut self, address: IpAddr) {
        let deadline = Instant::now() + LOCAL_ROUTE_WAIT;
        while !self.is_local(address) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the kernel's route to the address ends in the host itself.
    fn is_local(&mut self, address: IpAddr) -> bool {
        let mut question = RouteMessage::default();
        question.header.address_family = family_of(address);
        question.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        question.attributes = vec![RouteAttribute::Destination(route_address(address))];
        let answers = self.socket.request(RouteNetlinkMessage::GetRoute(question), 0).unwrap_or_default();
        answers.iter().any(
            |answer| matches!(answer, RouteNetlinkMessage::NewRoute(route) if route.header.kind == RouteType::Local),
        )
    }

    /// Routes a prefix to the device.
    ///
    /// # Errors
    /// [`HostError`]; in particular if the prefix is routed elsewhere, or contains an address of
    /// the host whose network is not more specific.
    pub fn add_route(&mut self, device: &str, prefix: IpNet) -> Result<(), HostError> {
        let index = index_of(device)?;
        let prefix = prefix.trunc();
        let action = format!("routing {prefix} to {device}");
        // Everybody has addresses behind the default route; it is for those that no other route
        // takes.
        let is_default = prefix.prefix_len() == 0;
        let mut own = self.addresses()?.into_iter().filter(|own| own.index != index && !is_default);
        let own = own.find(|own| prefix.contains(&own.address) && !own.may_lie_in(prefix));
        if let Some(own) = own {
            return Err(HostError::AddressInPrefix { prefix, address: own.address, owner: own.device });
        }
        if let Some(owner) = self.owner_of(prefix) {
            return Err(HostError::RouteTaken { prefix, owner });
        }
        let message = route_message(index, prefix);
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        match self.socket.request(RouteNetlinkMessage::NewRoute(message.clone()), flags) {
            Ok(_) => self.changes.push(Change::Route(message)),
            Err(source) if Errno::from_raw(source.raw_os_error().unwrap_or(0)) == Errno::EEXIST => {
                return Err(HostError::RouteTaken { prefix, owner: "a route without a device".into() });
            }
            Err(source) => return Err(family_error(&action, prefix.addr(), source)),
        }
        Ok(())
    }

    /// Sends packets from the IPv4 prefixes `sources` to the device wherever they go, except to
    /// each other and to `exempt`, through routing table `table`:
    ///
    /// ```text
    /// rule 8400: from all iif DEVICE lookup main            what the gateway sends never comes back to it
    /// rule 8401: from SOURCE lookup TABLE                   one for each source
    /// TABLE:     default dev DEVICE; throw SOURCE ...; throw EXEMPT ...
    /// ```
    ///
    /// The host's own addresses come first, in the local table. Strict reverse-path filtering is
    /// content: seen from the device, everything is reached through the device.
    ///
    /// # Errors
    /// [`HostError`]; in particular if the table has a default route.
    pub fn divert(&mut self, device: &str, table: u32, sources: &[IpNet], exempt: &[IpNet]) -> Result<(), HostError> {
        let index = index_of(device)?;
        let everything = IpNet::V4(Ipv4Net::default());
        let action = format!("making the default route of routing table {table}");
        match self.add(in_table(route_message(index, everything), table)) {
            Err(error) if is_there_already(&error) => return Err(HostError::TableTaken { table }),
            result => result.map_err(|source| fail(&action, source))?,
        }
        for &prefix in sources.iter().chain(exempt) {
            let action = format!("exempting {prefix} in routing table {table}");
            self.adopt(in_table(throw_message(prefix), table)).map_err(|source| fail(&action, source))?;
        }
        let from_device = rule_message(
            RULE_FROM_DEVICE,
            RouteHeader::RT_TABLE_MAIN.into(),
            RuleAttribute::Iifname(device.to_owned()),
            0,
        );
        let to_device = sources.iter().map(|prefix| {
            rule_message(RULE_TO_DEVICE, table, RuleAttribute::Source(prefix.addr()), prefix.prefix_len())
        });
        for rule in std::iter::once(from_device).chain(to_device) {
            let action = format!("adding a rule for routing table {table}");
            self.adopt(Change::Rule(rule)).map_err(|source| fail(&action, source))?;
        }
        Ok(())
    }

    /// Makes a route or a rule.
    fn add(&mut self, change: Change) -> io::Result<()> {
        let message = match &change {
            Change::Route(message) => RouteNetlinkMessage::NewRoute(message.clone()),
            Change::Rule(message) => RouteNetlinkMessage::NewRule(message.clone()),
            Change::Up(_) | Change::Address(_) => return Ok(()),
        };
        self.socket.request(message, NLM_F_CREATE | NLM_F_EXCL)?;
        self.changes.push(change);
        Ok(())
    }

    /// As [`add`](Self::add), but takes over what a gateway that was killed has left.
    fn adopt(&mut self, change: Change) -> io::Result<()> {
        let copy = match &change {
            Change::Route(message) => Change::Route(message.clone()),
            Change::Rule(message) => Change::Rule(message.clone()),
            Change::Up(_) | Change::Address(_) => return Ok(()),
        };
        match self.add(change) {
            Err(error) if is_there_already(&error) => {
                self.changes.push(copy);
                Ok(())
            }
            result => result,
        }
    }

    /// Lets packets that carry an address of the host itself as their source come in through the
    /// device: the gateway's own ICMPv4 errors do, and the kernel takes them for forged otherwise.
    ///
    /// # Errors
    /// [`HostError::Failed`].
    pub fn accept_own_sources(&mut self, device: &str) -> Result<(), HostError> {
        let path = format!("/proc/sys/net/ipv4/conf/{device}/accept_local");
        std::fs::write(&path, "1").map_err(|source| fail(&format!("writing 1 to {path}"), source))
    }

    /// All addresses of the host.
    ///
    /// # Errors
    /// [`HostError::Failed`].
    pub fn addresses(&mut self) -> Result<Vec<HostAddress>, HostError> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.socket.dump(request).map_err(|source| fail("listing the host's addresses", source))?;
        Ok(answers.into_iter().filter_map(host_address).collect())
    }

    /// The address from which the host should send ICMP errors of its own on one side: a global one
    /// of the wanted family, a public one rather than a private one (which networks in between may
    /// filter), on the device with the lowest number, and none of `device` unless there is no
    /// other.
    ///
    /// # Errors
    /// [`HostError::Failed`].
    pub fn icmp_source(&mut self, family: Family, device: &str) -> Result<Option<IpAddr>, HostError> {
        let candidates =
            self.addresses()?.into_iter().filter(|own| own.reach == Reach::Global && family.has(own.address));
        Ok(candidates
            .min_by_key(|own| (own.device == device, is_private(own.address), own.index))
            .map(|own| own.address))
    }

    /// Name of the device to which exactly this prefix is routed.
    fn owner_of(&mut self, prefix: IpNet) -> Option<String> {
        let mut message = route_message(0, prefix);
        message.header = RouteHeader {
            address_family: family_of(prefix.addr()),
            destination_prefix_length: prefix.max_prefix_len(),
            flags: RouteFlags::FibMatch,
            ..RouteHeader::default()
        };
        message.attributes.retain(|attribute| matches!(attribute, RouteAttribute::Destination(_)));
        // Without any route to it the kernel answers with an error: nobody owns it.
        let answers = self.socket.request(RouteNetlinkMessage::GetRoute(message), 0).ok()?;
        answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) if is_for(&route, prefix) => Some(owner_name(&route)),
            _ => None,
        })
    }

    fn undo(&mut self, change: Change) {
        let message = match change {
            Change::Up(index) => {
                let mut message = link_message(index);
                message.header.change_mask = LinkFlags::Up;
                RouteNetlinkMessage::SetLink(message)
            }
            Change::Address(message) => RouteNetlinkMessage::DelAddress(message),
            Change::Route(message) => RouteNetlinkMessage::DelRoute(message),
            Change::Rule(message) => RouteNetlinkMessage::DelRule(message),
        };
        // The device may be gone, and its addresses and routes with it.
        let _ = self.socket.request(message, 0);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        while let Some(change) = self.changes.pop() {
            self.undo(change);
        }
    }
}

/// An IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    fn has(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::Ipv4)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

fn fail(action: &str, source: io::Error) -> HostError {
    let action = action.to_owned();
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => HostError::Denied { action, source },
        _ => HostError::Failed { action, source },
    }
}

fn family_error(action: &str, address: IpAddr, source: io::Error) -> HostError {
    match source.raw_os_error().map(Errno::from_raw) {
        // The kernel's words for a device or system without IPv6.
        Some(Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT | Errno::EACCES) if address.is_ipv6() => {
            HostError::NoIpv6 { action: action.to_owned() }
        }
        _ => fail(action, source),
    }
}

/// RFC 1918, RFC 6598 and RFC 4193: not to be seen outside a network.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private() || address.octets()[0] == 100 && address.octets()[1] & 0xc0 == 64,
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

fn index_of(device: &str) -> Result<u32, HostError> {
    nix::net::if_::if_nametoindex(device).map_err(|_| HostError::NoDevice { device: device.to_owned() })
}

fn name_of(index: u32) -> String {
    let name = nix::net::if_::if_indextoname(index);
    name.ok().and_then(|name| name.into_string().ok()).unwrap_or_else(|| format!("device {index}"))
}

fn family_of(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn link_message(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn address_message(index: u32, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family_of(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    // Usable at once: nobody on a TUN device can have the same address.
    message.header.flags = AddressHeaderFlags::Nodad;
    message.attributes = vec![AddressAttribute::Local(address.addr()), AddressAttribute::Address(address.addr())];
    message
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

fn route_message(index: u32, prefix: IpNet) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family_of(prefix.addr()),
        destination_prefix_length: prefix.prefix_len(),
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Other(ROUTE_PROTOCOL),
        scope: if prefix.addr().is_ipv4() { RouteScope::Link } else { RouteScope::Universe },
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    };
    message.attributes = vec![RouteAttribute::Destination(route_address(prefix.addr())), RouteAttribute::Oif(index)];
    message
}

/// A route that sends the search on to the next rule.
fn throw_message(prefix: IpNet) -> RouteMessage {
    let mut message = route_message(0, prefix);
    message.header.kind = RouteType::Throw;
    message.header.scope = RouteScope::Universe;
    message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::Oif(_)));
    message
}

/// A route in another table than the main one.
fn in_table(mut message: RouteMessage, table: u32) -> Change {
    message.header.table = RouteHeader::RT_TABLE_UNSPEC;
    message.attributes.push(RouteAttribute::Table(table));
    Change::Route(message)
}

/// An IPv4 rule that looks packets up in `table`. `source_length` is the length of a source prefix
/// in `selector`.
fn rule_message(priority: u32, table: u32, selector: RuleAttribute, source_length: u8) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.src_len = source_length;
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        selector,
        RuleAttribute::Priority(priority),
        RuleAttribute::Table(table),
        RuleAttribute::Protocol(RouteProtocol::Other(ROUTE_PROTOCOL)),
    ];
    message
}

fn is_there_already(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|number| Errno::from_raw(number) == Errno::EEXIST)
}

/// True if a route's destination is exactly this prefix.
fn is_for(route: &RouteMessage, prefix: IpNet) -> bool {
    let destination = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => Some(address),
        _ => None,
    });
    route.header.destination_prefix_length == prefix.prefix_len()
        && destination.map_or(prefix.addr().is_unspecified(), |address| *address == route_address(prefix.addr()))
}

fn owner_name(route: &RouteMessage) -> String {
    let index = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    index.map_or_else(|| "another next hop".to_owned(), name_of)
}

fn host_address(message: RouteNetlinkMessage) -> Option<HostAddress> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    // On a point-to-point device `Address` is the peer's, and `Local` ours. IPv6 has `Address`
    // alone.
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })?;
    let unusable = AddressHeaderFlags::Tentative | AddressHeaderFlags::Deprecated | AddressHeaderFlags::Dadfailed;
    let is_global = message.header.scope == AddressScope::Universe && !message.header.flags.intersects(unusable);
    let reach = if is_global { Reach::Global } else { Reach::Restricted };
    let (index, prefix_len) = (message.header.index, message.header.prefix_len);
    Some(HostAddress { address, index, device: name_of(index), reach, prefix_len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarding_that_is_off_comes_with_its_command() {
        let forwarding = Forwarding { ipv4: Switch::Off, ipv6: Switch::On };
        assert_eq!(forwarding.remedies(), ["sysctl -w net.ipv4.ip_forward=1"]);
        let unknown = Forwarding { ipv4: Switch::Unknown, ipv6: Switch::Off };
        assert_eq!(unknown.remedies(), ["sysctl -w net.ipv6.conf.all.forwarding=1"]);
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let mut host = Host::open().unwrap();
        let error = host.bring_up("no-such-device", 1500, 500).unwrap_err();
        assert_eq!(error.to_string(), "there is no network device no-such-device");
    }

    #[test]
    fn an_mtu_below_the_ipv6_minimum_is_refused() {
        let mut host = Host::open().unwrap();
        let error = host.bring_up("lo", 1279, 500).unwrap_err();
        assert_eq!(error.to_string(), "mtu 1279 is not possible on lo: use 1280 to 65535");
    }

    #[test]
    fn a_refusal_for_want_of_privilege_says_which_one() {
        let error = fail("routing 192.0.2.0/24 to t0", io::Error::from_raw_os_error(libc::EPERM));
        assert!(error.to_string().starts_with("routing 192.0.2.0/24 to t0 is not allowed"), "{error}");
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    }
}

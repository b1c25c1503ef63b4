//! The changes of the host, made in order and taken back in the opposite one.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::{AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteType};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use nix::errno::Errno;

use super::error::{HostError, fail, family_error, is_there_already};
use super::keys::{RouteKey, RuleKey};
use super::messages::{
    Family, HostAddress, Reach, address_message, address_of, family_of, host_address, in_table, is_for,
    is_for_the_rest, link_message, owner_index, owner_name, prohibit_message, route_address, route_message,
    rule_message, throw_message,
};
use super::proxies::Proxies;
use super::reserved_ports::ReservedPorts;
use super::source_check::SourceCheck;
use crate::netfilter::{OwnErrors, WholePackets};
use crate::rtnl::RouteSocket;

/// Longest wait for the kernel to install the local route of a new address; microseconds are usual.
const LOCAL_ROUTE_WAIT: Duration = Duration::from_secs(1);

/// Priorities of the gateway's rules: what leaves the device, and what has to reach it. Before the
/// main table (32766), behind the local one (0), and with room for an operator's own on either
/// side.
const RULE_FROM_DEVICE: u32 = 8400;
const RULE_TO_DEVICE: u32 = 8401;

/// The first and the last address of a range.
type Range = (Ipv4Addr, Ipv4Addr);

/// The host as the gateway uses it. Dropping it takes every change back, the last one first.
#[derive(Debug)]
pub struct Host {
    pub(super) socket: RouteSocket,
    pub(super) changes: Vec<Change>,
    /// The start is complete: what is to stay when the gateway ends stays from now on.
    is_complete: bool,
    /// The setting of the device, open from the start, since a restricted process cannot open it.
    pub(super) source_check: Option<SourceCheck>,
    pub(super) reserved: ReservedPorts,
    pub(super) proxies: Proxies,
    /// As long as an address is shared.
    pub(super) whole: Option<WholePackets>,
    /// As long as hosts inside are diverted, if the kernel can.
    pub(super) own_errors: Option<OwnErrors>,
    /// What is not as it should be with shared addresses.
    pub(super) shortcomings: Vec<String>,
}

/// A change of the host.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) what: What,
    pub(super) ends: Ends,
}

/// Something that the gateway has given its host.
#[derive(Debug, Clone)]
pub(super) enum What {
    /// The device is up, with what else the message says of it.
    Up(LinkMessage),
    Address(AddressMessage),
    Route(RouteMessage),
    Rule(RuleMessage),
}

/// What tells things apart that the gateway gives its host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Up,
    Address(Option<IpNet>),
    Route(Option<RouteKey>),
    Rule(RuleKey),
}

/// When a change is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// With the gateway.
    WithGateway,
    /// If the start fails, and else by `tombolo down`.
    WithFailedStart,
    /// By `tombolo down`: an earlier gateway has made it.
    Stays,
}

impl Host {
    /// Opens a socket to the kernel, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`HostError::Failed`].
    pub fn open() -> Result<Self, HostError> {
        let socket = RouteSocket::open().map_err(|source| fail("opening an rtnetlink socket", source))?;
        let reserved = ReservedPorts::open();
        Ok(Self {
            socket,
            changes: Vec::new(),
            is_complete: false,
            source_check: None,
            reserved,
            proxies: Proxies::open(),
            whole: None,
            own_errors: None,
            shortcomings: Vec::new(),
        })
    }

    /// The start is complete. What keeps private sources in outlives the gateway from now on.
    pub fn complete(&mut self) {
        self.is_complete = true;
    }

    fn note(&mut self, what: What) {
        self.changes.push(Change { what, ends: Ends::WithGateway });
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
        let result = self.socket.request(RouteNetlinkMessage::SetLink(message.clone()), 0);
        result.map_err(|source| fail(&format!("setting device {device} up with mtu {mtu}"), source))?;
        self.note(What::Up(message));
        // The gateway's ICMP errors come out of the device with an address of the host as source,
        // which Linux drops by default (IPv4 only). The setting is the device's own and goes with
        // it. Where /proc/sys cannot be written, in some containers, a hop of IPv4 traceroutes
        // stays silent: no reason not to start.
        let _ = std::fs::write(format!("/proc/sys/net/ipv4/conf/{device}/accept_local"), "1");
        Ok(())
    }

    /// Another MTU for a device that was [brought up](Self::bring_up).
    ///
    /// # Errors
    /// [`HostError`]: it has the one that it had.
    pub fn set_mtu(&mut self, device: &str, mtu: u32) -> Result<(), HostError> {
        let index = index_of(device)?;
        let mut message = link_message(index);
        message.attributes.push(LinkAttribute::Mtu(mtu));
        let result = self.socket.request(RouteNetlinkMessage::SetLink(message), 0);
        result.map_err(|source| fail(&format!("setting the mtu of device {device} to {mtu}"), source))?;
        // Whoever looks after the device goes by what is noted.
        for change in &mut self.changes {
            if let What::Up(noted) = &mut change.what
                && noted.header.index == index
            {
                noted.attributes.retain(|attribute| !matches!(attribute, LinkAttribute::Mtu(_)));
                noted.attributes.push(LinkAttribute::Mtu(mtu));
            }
        }
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
            Ok(_) => self.note(What::Address(message)),
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
        let own = self.addresses()?;
        self.add_route_beside(&own, device, prefix)
    }

    /// As [`add_route`](Self::add_route), where the host's addresses are known.
    pub(super) fn add_route_beside(
        &mut self,
        own: &[HostAddress],
        device: &str,
        prefix: IpNet,
    ) -> Result<(), HostError> {
        let index = index_of(device)?;
        let prefix = prefix.trunc();
        let action = format!("routing {prefix} to {device}");
        let mut own = own.iter().filter(|own| own.index != index && !is_for_the_rest(prefix));
        let own = own.find(|own| prefix.contains(&own.address) && !own.may_lie_in(prefix));
        if let Some(own) = own {
            return Err(HostError::AddressInPrefix { prefix, address: own.address, owner: own.device.clone() });
        }
        if let Some(owner) = self.owner_of(prefix) {
            return Err(HostError::RouteTaken { prefix, owner });
        }
        let message = route_message(index, prefix);
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        match self.socket.request(RouteNetlinkMessage::NewRoute(message.clone()), flags) {
            Ok(_) => self.note(What::Route(message)),
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
    /// TABLE:     default dev DEVICE
    ///            throw SOURCE ...; throw EXEMPT ...
    ///            prohibit default metric 4294967294         when the device is gone
    /// ```
    ///
    /// The host's own addresses come first, in the local table. Strict reverse-path filtering is
    /// content: seen from the device, everything is reached through the device.
    ///
    /// All but the first route stays when the gateway ends, however it ends: packets with private
    /// sources are prohibited then, and do not leave untranslated. `tombolo down` ends that.
    ///
    /// # Errors
    /// [`HostError`]; in particular if the table has a default route.
    pub fn divert(&mut self, device: &str, table: u32, sources: &[IpNet], exempt: &[IpNet]) -> Result<(), HostError> {
        let index = index_of(device)?;
        for Step { what, stays, action } in diverting(device, index, table, sources, exempt) {
            if self.has(&what) {
                continue;
            }
            let made = if stays { self.adopt(what) } else { self.add(what, Ends::WithGateway) };
            match made {
                Err(error) if !stays && is_there_already(&error) => return Err(HostError::TableTaken { table }),
                result => result.map_err(|source| fail(&action, source))?,
            }
        }
        self.divert_own_errors(device, &ranges_of(sources), &ranges_of(exempt));
        Ok(())
    }

    /// Has the kernel's own errors to remotes of hosts inside go to the device as well. Where it cannot, traceroute from outside
    /// misses a hop, and a link inside that is narrower than configured is not found: no reason not to start.
    fn divert_own_errors(&mut self, device: &str, inside: &[Range], exempt: &[Range]) {
        if self.own_errors.as_ref().is_some_and(|errors| errors.is_for(inside, exempt)) {
            return;
        }
        // The one before goes first: tables have names.
        self.own_errors = None;
        self.own_errors = OwnErrors::divert(device, inside.to_vec(), exempt.to_vec()).ok();
    }

    /// Whether the gateway has made it, or taken it over.
    pub(super) fn has(&self, what: &What) -> bool {
        let key = what.key();
        self.changes.iter().any(|change| change.what.key() == key)
    }

    /// Makes a route or a rule.
    pub(super) fn add(&mut self, what: What, ends: Ends) -> io::Result<()> {
        if let Some(message) = what.made_by() {
            self.socket.request(message, NLM_F_CREATE | NLM_F_EXCL)?;
        }
        self.changes.push(Change { what, ends });
        Ok(())
    }

    /// Makes something that goes with the gateway, or takes over what an earlier one has left; true if it was there.
    pub(super) fn take_over(&mut self, what: What) -> io::Result<bool> {
        match self.add(what.clone(), Ends::WithGateway) {
            Err(error) if is_there_already(&error) => {
                self.note(what);
                Ok(true)
            }
            result => result.map(|()| false),
        }
    }

    /// Makes something that stays, or takes over what an earlier gateway has left.
    fn adopt(&mut self, what: What) -> io::Result<()> {
        match self.add(what.clone(), Ends::WithFailedStart) {
            Err(error) if is_there_already(&error) => {
                self.changes.push(Change { what, ends: Ends::Stays });
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
        std::fs::write(&path, "1").map_err(|source| fail(&format!("writing 1 to {path}"), source))?;
        let source_check = format!("/proc/sys/net/ipv4/conf/{device}/rp_filter");
        self.source_check = File::options().read(true).write(true).open(source_check).ok().map(SourceCheck::of);
        Ok(())
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
    pub(super) fn owner_of(&mut self, prefix: IpNet) -> Option<String> {
        self.route_of(prefix).map(|route| owner_name(&route))
    }

    /// Number of that device.
    pub(super) fn owner_index(&mut self, prefix: IpNet) -> Option<u32> {
        self.route_of(prefix).and_then(|route| owner_index(&route))
    }

    /// The route that the kernel takes for the prefix, if it is for nothing more and nothing less.
    fn route_of(&mut self, prefix: IpNet) -> Option<RouteMessage> {
        self.route_towards(prefix.addr(), prefix)
    }

    /// The route that the kernel takes for an address, if it is for exactly this prefix.
    pub(super) fn route_towards(&mut self, address: IpAddr, prefix: IpNet) -> Option<RouteMessage> {
        let mut message = route_message(0, IpNet::from(address));
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
            RouteNetlinkMessage::NewRoute(route) if is_for(&route, prefix) => Some(route),
            _ => None,
        })
    }

    pub(super) fn undo(&mut self, what: What) {
        // The device may be gone, and its addresses and routes with it.
        let _ = self.socket.request(what.undone_by(), 0);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.proxies.fall_silent(&mut self.socket);
        while let Some(Change { what, ends }) = self.changes.pop() {
            let is_undone = match ends {
                Ends::WithGateway => true,
                Ends::WithFailedStart => !self.is_complete,
                Ends::Stays => false,
            };
            if is_undone {
                self.undo(what);
            }
        }
    }
}

impl What {
    /// How it is made, unless it is the device that is set up.
    pub(super) fn made_by(&self) -> Option<RouteNetlinkMessage> {
        match self {
            Self::Up(_) => None,
            Self::Address(message) => Some(RouteNetlinkMessage::NewAddress(message.clone())),
            Self::Route(message) => Some(RouteNetlinkMessage::NewRoute(message.clone())),
            Self::Rule(message) => Some(RouteNetlinkMessage::NewRule(message.clone())),
        }
    }

    /// What tells it from others.
    pub(super) fn key(&self) -> Key {
        match self {
            Self::Up(_) => Key::Up,
            Self::Address(message) => Key::Address(address_of(message)),
            Self::Route(message) => Key::Route(RouteKey::of(message)),
            Self::Rule(message) => Key::Rule(RuleKey::of(message)),
        }
    }

    fn undone_by(self) -> RouteNetlinkMessage {
        match self {
            Self::Up(message) => {
                let mut down = link_message(message.header.index);
                down.header.change_mask = LinkFlags::Up;
                RouteNetlinkMessage::SetLink(down)
            }
            Self::Address(message) => RouteNetlinkMessage::DelAddress(message),
            Self::Route(message) => RouteNetlinkMessage::DelRoute(message),
            Self::Rule(message) => RouteNetlinkMessage::DelRule(message),
        }
    }
}

/// The first and the last address of prefixes of IPv4.
fn ranges_of(prefixes: &[IpNet]) -> Vec<Range> {
    let ends = prefixes.iter().filter_map(|prefix| match prefix {
        IpNet::V4(prefix) => Some((prefix.network(), prefix.broadcast())),
        IpNet::V6(_) => None,
    });
    ends.collect()
}

/// A part of what diverts packets.
pub(super) struct Step {
    pub(super) what: What,
    /// It is still there when the gateway ends.
    stays: bool,
    action: String,
}

/// What [`Host::divert`] makes, in order: what stays comes first, so that there is no moment without it.
pub(super) fn diverting(device: &str, index: u32, table: u32, sources: &[IpNet], exempt: &[IpNet]) -> Vec<Step> {
    let everything = IpNet::V4(Ipv4Net::default());
    let route = |message, stays, action: String| Step { what: What::Route(in_table(message, table)), stays, action };
    let rule = |message| Step {
        what: What::Rule(message),
        stays: true,
        action: format!("adding a rule for routing table {table}"),
    };
    let mut steps = vec![route(
        prohibit_message(everything),
        true,
        format!("making the prohibiting route of routing table {table}"),
    )];
    steps.extend(
        sources
            .iter()
            .chain(exempt)
            .map(|&prefix| route(throw_message(prefix), true, format!("exempting {prefix} in routing table {table}"))),
    );
    let default = route_message(index, everything);
    steps.push(route(default, false, format!("making the default route of routing table {table}")));
    let from_device = RuleAttribute::Iifname(device.to_owned());
    steps.push(rule(rule_message(RULE_FROM_DEVICE, RouteHeader::RT_TABLE_MAIN.into(), from_device, 0)));
    steps.extend(sources.iter().map(|prefix| {
        rule(rule_message(RULE_TO_DEVICE, table, RuleAttribute::Source(prefix.addr()), prefix.prefix_len()))
    }));
    steps
}

/// RFC 1918, RFC 6598 and RFC 4193: not to be seen outside a network.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private() || address.octets()[0] == 100 && address.octets()[1] & 0xc0 == 64,
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

/// Whether the calling thread's network namespace has a device of this name.
#[must_use]
pub fn has_device(device: &str) -> bool {
    index_of(device).is_ok()
}

pub(super) fn index_of(device: &str) -> Result<u32, HostError> {
    nix::net::if_::if_nametoindex(device).map_err(|_| HostError::NoDevice { device: device.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

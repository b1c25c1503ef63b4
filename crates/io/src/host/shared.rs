//! Ports of the host's own address, from which packets go to the device and not to the host's sockets.
//!
//! The kernel looks for local addresses first, by the rule in front of all others. Rules of the same
//! priority stand in the order in which they were made; so another rule for local addresses is made behind
//! the gateway's, and the first one is removed. There is one at any moment, also when the gateway is killed:
//! its rules lead to an empty table then, and the search goes on.
//!
//! ```text
//! rule 0: iif DEVICE goto 1                                   what the gateway gives back is the host's
//! rule 0: to ADDRESS ipproto tcp dport A-B lookup TABLE       one for each range of ports; the same for udp
//! rule 0: to ADDRESS ipproto icmp lookup TABLE                errors and echo replies; the gateway sees whose
//! rule 0: lookup local                                        the kernel's own
//! rule 1: iif DEVICE lookup local
//! TABLE:  ADDRESS dev DEVICE src ADDRESS
//! ```

use std::io;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use ipnet::{IpNet, Ipv4Net};
use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteProtocol};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::changes::{Host, What};
use super::error::{HostError, fail};
use super::keys::RuleKey;
use super::messages::{in_table, route_message, rule_message};
use crate::netfilter::WholePackets;
use crate::rtnl::{ROUTE_PROTOCOL, RouteSocket};

/// Priority of the rule for local addresses.
const FIRST: u32 = 0;
/// `RT_TABLE_LOCAL`.
const LOCAL: u8 = 255;
/// Where the search goes on for what the gateway gives back.
const GIVEN_BACK: u32 = 1;

/// An address of the host, and ports of it that belong to the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// Its TCP ports.
    pub tcp: Vec<RangeInclusive<u16>>,
    /// Its UDP ports.
    pub udp: Vec<RangeInclusive<u16>>,
}

/// The routing table behind that for the hosts inside.
pub(super) const fn table_of_shared(table: u32) -> u32 {
    table.wrapping_add(1)
}

/// What brings packets for `shared` to the device, in order.
pub(super) fn sharing(device: &str, index: u32, table: u32, shared: &[SharedAddress]) -> Vec<What> {
    if shared.is_empty() {
        return Vec::new();
    }
    let table = table_of_shared(table);
    let from_device = || RuleAttribute::Iifname(device.to_owned());
    let mut all =
        vec![What::Rule(rule_message(GIVEN_BACK, LOCAL.into(), from_device(), 0)), What::Rule(skipping(from_device()))];
    for SharedAddress { address, tcp, udp } in shared {
        all.push(What::Route(in_table(to_device(index, *address), table)));
        let ports = |protocol: i32, ranges: &[RangeInclusive<u16>]| -> Vec<What> {
            let range = |range: &RangeInclusive<u16>| RulePortRange { start: *range.start(), end: *range.end() };
            let rule = |ports| What::Rule(rule_to(*address, table, protocol, Some(range(ports))));
            ranges.iter().map(rule).collect()
        };
        all.extend(ports(libc::IPPROTO_TCP, tcp));
        all.extend(ports(libc::IPPROTO_UDP, udp));
        all.push(What::Rule(rule_to(*address, table, libc::IPPROTO_ICMP, None)));
    }
    all
}

fn to_device(index: u32, address: Ipv4Addr) -> netlink_packet_route::route::RouteMessage {
    let mut message = route_message(index, IpNet::V4(Ipv4Net::from(address)));
    message.attributes.push(RouteAttribute::PrefSource(RouteAddress::Inet(address)));
    message
}

fn skipping(selector: RuleAttribute) -> RuleMessage {
    let mut message = rule_message(FIRST, RouteHeader::RT_TABLE_UNSPEC.into(), selector, 0);
    message.header.action = RuleAction::Goto;
    message.attributes.retain(|attribute| !matches!(attribute, RuleAttribute::Table(_)));
    message.attributes.push(RuleAttribute::Goto(GIVEN_BACK));
    message
}

fn rule_to(address: Ipv4Addr, table: u32, protocol: i32, ports: Option<RulePortRange>) -> RuleMessage {
    let mut message = rule_message(FIRST, table, RuleAttribute::Destination(address.into()), 0);
    message.header.dst_len = 32;
    message.attributes.push(RuleAttribute::IpProtocol(protocol.into()));
    message.attributes.extend(ports.map(RuleAttribute::DestinationPortRange));
    message
}

impl Host {
    /// Brings packets for these ports of the host's own addresses to the device, and keeps the host from
    /// using the ports of `reserved` for connections of its own.
    ///
    /// # Errors
    /// [`HostError`].
    pub(super) fn share(
        &mut self,
        (device, index): (&str, u32),
        table: u32,
        shared: &[SharedAddress],
        reserved: &[RangeInclusive<u16>],
    ) -> Result<(), HostError> {
        let action = "sharing the host's address";
        let mut has_rules = false;
        for what in sharing(device, index, table, shared) {
            if self.has(&what) {
                continue;
            }
            has_rules |= matches!(what, What::Rule(_));
            if !self.take_over(what.clone()).map_err(|source| fail(action, source))? {
                continue;
            }
            // What a gateway that was killed has left, it had reserved as well.
            if let What::Rule(rule) = &what
                && let Some(ports) = RuleKey::of(rule).ports
            {
                self.reserved.inherit(ports.0..=ports.1);
            }
        }
        if has_rules {
            self.put_local_last().map_err(|source| fail(action, source))?;
        }
        // Most packets go their way without these two.
        self.shortcomings.clear();
        if let Err(error) = self.reserved.follow(reserved) {
            self.shortcomings
                .push(format!("the host may use the ports that it shares for connections of its own: {error}"));
        }
        if shared.is_empty() {
            self.whole = None;
        } else if self.whole.is_none() {
            match WholePackets::ask(device) {
                Ok(whole) => self.whole = Some(whole),
                Err(error) => self.shortcomings.push(format!(
                    "fragments to an address that is shared reach nobody inside: nf_tables: {error} (the kernel needs NF_TABLES_INET and NFT_TPROXY)"
                )),
            }
        }
        Ok(())
    }

    /// What is not as it should be with the addresses that are shared.
    #[must_use]
    pub fn shortcomings(&self) -> &[String] {
        &self.shortcomings
    }

    /// Sees to it that local addresses are looked for behind the gateway's own rules of the same priority.
    pub(super) fn put_local_last(&mut self) -> io::Result<()> {
        let rules = first_rules(&mut self.socket)?;
        let last_own = rules.iter().rposition(is_own);
        let mut local = rules.iter().enumerate().filter(|(_, rule)| is_local(rule)).map(|(place, _)| place);
        let (Some(last_own), Some(first_local)) = (last_own, local.next()) else { return Ok(()) };
        if first_local > last_own {
            return Ok(());
        }
        if !local.any(|place| place > last_own) {
            self.socket.request(RouteNetlinkMessage::NewRule(local_rule()), NLM_F_CREATE)?;
        }
        // The kernel removes the first one that is like it.
        self.socket.request(RouteNetlinkMessage::DelRule(local_rule()), 0).map(drop)
    }
}

/// The rules in front of all others, in their order.
fn first_rules(socket: &mut RouteSocket) -> io::Result<Vec<RuleMessage>> {
    let mut request = RuleMessage::default();
    request.header.family = AddressFamily::Inet;
    let answers = socket.dump(RouteNetlinkMessage::GetRule(request))?;
    let rules = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewRule(rule) if RuleKey::of(&rule).priority == FIRST => Some(rule),
        _ => None,
    });
    Ok(rules.collect())
}

fn is_own(rule: &RuleMessage) -> bool {
    rule.attributes.contains(&RuleAttribute::Protocol(RouteProtocol::Other(ROUTE_PROTOCOL)))
}

fn is_local(rule: &RuleMessage) -> bool {
    !is_own(rule) && RuleKey::of(rule) == RuleKey::of(&local_rule())
}

/// The rule for local addresses, as the kernel makes it.
fn local_rule() -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.action = RuleAction::ToTable;
    message.header.table = LOCAL;
    message.attributes = vec![RuleAttribute::Priority(FIRST), RuleAttribute::Protocol(RouteProtocol::Kernel)];
    message
}

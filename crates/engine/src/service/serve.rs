//! What the engine asks of a service.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_wire::Prefix64;

use super::shape::Shape;
use crate::answer::{answer_ipv4, answer_ipv6};
use crate::description::Description;
use crate::mapping::stateless::Claim;
use crate::mechanism::napt::{Host, KnownBy, Nat};
use crate::mechanism::{FarEndName, Refusal, Softwire};
use crate::packet::Packet;
use crate::parse::{AnyParsed, Parsed, parse};
use crate::routed::Routed;
use crate::side::Side;
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// A service. What has a default is that of a service that has no such thing.
pub(crate) trait Serve {
    /// Its kind in the configuration, where the name in the list of services is not it.
    fn kind(&self) -> Option<&'static str> {
        None
    }

    /// What it is set to, for people and for machines.
    fn describe(&self) -> Description;

    /// Where packets of this service are addressed to, for routes.
    fn routed(&self) -> Routed;

    /// The IPv4 hosts inside, first and last of each range, where that is the side that they are on.
    fn hosts(&self) -> Vec<(Ipv4Addr, Ipv4Addr)> {
        self.routed().sources
    }

    /// True if an IPv6 packet to `destination` is this service's. What it took to find out goes to
    /// `claim`.
    fn claims_ipv6(&self, _destination: Ipv6Addr, _claim: &mut Claim) -> bool {
        false
    }

    /// True if an IPv4 packet to `destination` is this service's, whoever sends it.
    fn claims_ipv4(&self, _destination: Ipv4Addr, _claim: &mut Claim) -> bool {
        false
    }

    /// True if an IPv4 packet is this service's because of who sends it: a host inside.
    fn claims_source(&self, _source: Ipv4Addr, _destination: Ipv4Addr) -> bool {
        false
    }

    /// How its packets come.
    fn shape(&self) -> Shape;

    /// The source of its ICMPv4 errors to IPv4 hosts inside, if it has one of its own.
    fn icmp_source(&self) -> Option<Ipv4Addr> {
        None
    }

    /// Its NAT, if it has bindings.
    fn nat(&self) -> Option<&Nat> {
        None
    }

    /// The same, to be changed before the plan is in force.
    fn nat_mut(&mut self) -> Option<&mut Nat> {
        None
    }

    /// The softwire whose far end is known by a name, if that is so.
    fn named_end(&self) -> Option<(&FarEndName, Softwire)> {
        None
    }

    /// The same, to be changed before the plan is in force.
    fn named_end_mut(&mut self) -> Option<(&FarEndName, &mut Softwire)> {
        None
    }

    /// What the hosts inside its NAT are known by.
    fn hosts_known_by(&self) -> KnownBy {
        KnownBy::Ipv4
    }

    /// True if the host of an inside endpoint of its NAT may still be one. Asked of bindings that were
    /// made under another plan.
    fn has_inside(&self, inside: &InsideKey) -> bool {
        let host = Ipv4Addr::from(inside.ipv4);
        self.routed().sources.iter().any(|(first, last)| (*first..=*last).contains(&host))
    }

    /// Asks whether the sender of a packet from the IPv6 side may use it; asked of pieces before they wait
    /// for the others.
    ///
    /// # Errors
    /// The reason why not.
    fn admits(&self, _parsed: &Parsed<Ipv6Addr>) -> Result<(), Refusal> {
        Ok(())
    }

    /// The host inside that a packet from the IPv6 side comes from, or comes back from as an ICMP error: in a
    /// cluster its subscriber's node serves it. None where any node may.
    fn host_of_ipv6(&self, _parsed: &Parsed<Ipv6Addr>, _packet: &Packet<'_>) -> Option<Host> {
        None
    }

    /// As [`host_of_ipv6`](Self::host_of_ipv6), of a packet from IPv4 hosts inside.
    fn host_of_ipv4(&self, _parsed: &Parsed<Ipv4Addr>, _packet: &Packet<'_>) -> Option<Host> {
        None
    }

    /// The address that subscribers' softwires end at, where it is the same for all of them.
    fn softwire_end(&self) -> Option<Ipv6Addr> {
        None
    }

    /// The prefix in which it shows IPv4 hosts to IPv6 hosts (Pref64), if it has one.
    fn pref64(&self) -> Option<Prefix64> {
        None
    }

    /// True if `address` is what it shows an IPv4 host as.
    fn shows_ipv4_as(&self, address: Ipv6Addr) -> bool {
        self.pref64().is_some_and(|prefix| prefix.contains(address))
    }

    /// True if packets loop that come to it from what any service shows an IPv4 host as (RFC 6146
    /// section 3.5).
    fn ends_loops(&self) -> bool {
        false
    }

    /// A packet from the IPv6 side.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    fn serve_ipv6(&self, _parsed: &Parsed<Ipv6Addr>, _work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        Ok(Verdict::ToHost)
    }

    /// A packet from the IPv4 side, claimed by its source (`Side::Inside`) or by its destination.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    fn serve_ipv4(&self, side: Side, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal>;

    /// Sends the IPv4 packet at hand, as if from outside, to the host with the endpoint `inside` of
    /// its NAT; no state is looked at.
    ///
    /// # Errors
    /// The reason why it is not sent.
    fn deliver(
        &self,
        _parsed: &Parsed<Ipv4Addr>,
        _inside: &InsideKey,
        _work: &mut Work<'_>,
    ) -> Result<Verdict, Refusal> {
        Err(DropReason::NoBinding.into())
    }

    /// Answers the packet at hand, a SYN that was held in vain, with an ICMP error.
    ///
    /// # Errors
    /// The reason, if no error is sent.
    fn answer_held(&self, refusal: Refusal, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        match parse(&mut work.packet)? {
            AnyParsed::V4(parsed) => answer_ipv4(work.own.ipv4, refusal, &parsed, work),
            AnyParsed::V6(parsed) => answer_ipv6(work.own.ipv6, refusal, &parsed, work),
        }
    }
}

//! Address and port translation of IPv4 packets that cross a softwire: the part of a NAT44 that an
//! AFTR and a lwB4 have in common, and any customer's edge with a port set.
//!
//! Read first: RFC 3022 section 4, RFC 5508 section 4, RFC 6333 section 8, RFC 7596 section 5.2.
//!
//! Packets are rewritten in place and neither sent nor encapsulated. Every packet loses one in its
//! TTL. The pool may be a carrier's, or one address with the ports of a set: then no port outside
//! the set is ever handed out.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_wire::Port;

use crate::engine::Work;
use crate::mapping::pool::{Pool, PortSpace};
use crate::mechanism::napt::{Endpoint, Policy};
use crate::mechanism::{
    ErrorRewrite, Identification, NextLink, Refusal, Rewrite, Translated, readdress, readdress_error,
};
use crate::packet::Packet;
use crate::parse::{Parsed, Payload};
use crate::service::stateful::{napt, no_state_inside, space_of, space_of_embedded};
use crate::verdict::DropReason;

/// The translation of one service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Napt44<'a> {
    /// Number of the service in the plan.
    pub(crate) number: u8,
    /// Outside addresses and ports.
    pub(crate) pool: &'a Pool,
    /// What subscribers may do.
    pub(crate) policy: &'a Policy,
}

impl Napt44<'_> {
    /// A packet from inside, ICMP errors included, gets its outside source, for a link of `mtu`
    /// bytes. `softwire` is where it came from: hosts behind different softwires may have the same
    /// addresses. Unspecified for hosts that are reached without.
    ///
    /// # Errors
    /// [`Refusal`]: no state, no room for it, too big, ICMP that is neither echo nor error. The packet is unchanged if
    /// the refusal has an answer.
    pub(crate) fn outbound(
        &self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        softwire: Ipv6Addr,
        mtu: u32,
        work: &mut Work<'_>,
    ) -> Result<Translated, Refusal> {
        if parsed.payload == Payload::IcmpError {
            return self.outbound_error(packet, parsed, softwire, mtu, work);
        }
        let (space, event) = space_of(parsed)?;
        let remote = Endpoint { address: parsed.destination, port: parsed.destination_port };
        let inside = self.key(softwire, space, parsed.source, parsed.source_port);
        let outside = napt(self.number, self.pool, self.policy, work).outbound(&inside, space, remote, event);
        let outside = outside.map_err(no_state_inside)?;
        work.notes.add("RFC 4787 REQ-1", || {
            let (source, port) = (parsed.source, parsed.source_port.0);
            format!("{source} port {port} is bound to {} port {}", outside.address, outside.port.0)
        });
        let to = Rewrite {
            source: outside.address,
            destination: remote.address,
            source_port: Some(outside.port),
            destination_port: None,
        };
        readdress(packet, parsed, &to, link(mtu), Identification::Renew(work.identifications))
    }

    /// A packet from outside, ICMP errors included, gets its inside destination, for a link whose
    /// MTU is what `mtu` says of the destination's softwire. Gives the inside endpoint.
    ///
    /// # Errors
    /// [`Refusal`] as for [`outbound`](Self::outbound).
    pub(crate) fn inbound(
        &self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        mtu: u32,
        work: &mut Work<'_>,
    ) -> Result<(InsideKey, Translated), Refusal> {
        if parsed.payload == Payload::IcmpError {
            return self.inbound_error(packet, parsed, mtu, work);
        }
        let (space, event) = space_of(parsed)?;
        let remote = Endpoint { address: parsed.source, port: parsed.source_port };
        let outside = Endpoint { address: parsed.destination, port: parsed.destination_port };
        let inside = napt(self.number, self.pool, self.policy, work).inbound(outside, space, remote, event)?;
        work.notes.add("RFC 4787 REQ-1", || {
            let (host, port) = (Ipv4Addr::from(inside.ipv4), port_of(&inside).0);
            format!("{} port {} is bound to {host} port {port}", outside.address, outside.port.0)
        });
        let to = Rewrite {
            source: parsed.source,
            destination: inside.ipv4.into(),
            source_port: None,
            destination_port: Some(port_of(&inside)),
        };
        Ok((inside, readdress(packet, parsed, &to, link(mtu), Identification::Keep)?))
    }

    /// An error from inside leaves from the outside address that the remote has sent to, whichever
    /// router it comes from (RFC 5508 REQ-5).
    fn outbound_error(
        &self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        softwire: Ipv6Addr,
        mtu: u32,
        work: &mut Work<'_>,
    ) -> Result<Translated, Refusal> {
        let about = parsed.embedded(packet)?;
        let space = space_of_embedded(&about)?;
        let remote = Endpoint { address: about.source, port: about.source_port };
        let inside = self.key(softwire, space, about.destination, about.destination_port);
        let outside = napt(self.number, self.pool, self.policy, work).outbound_error(&inside, space, remote);
        let outside = outside.ok_or(DropReason::NoSession)?;
        let to = ErrorRewrite {
            source: outside.address,
            destination: remote.address,
            embedded: Rewrite {
                source: remote.address,
                destination: outside.address,
                source_port: None,
                destination_port: Some(outside.port),
            },
            node: None,
        };
        readdress_error(packet, parsed, &about, &to, mtu, Identification::Renew(work.identifications))
    }

    /// An error from outside keeps the address of the router that sent it (RFC 5508 REQ-4).
    fn inbound_error(
        &self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        mtu: u32,
        work: &mut Work<'_>,
    ) -> Result<(InsideKey, Translated), Refusal> {
        let about = parsed.embedded(packet)?;
        let space = space_of_embedded(&about)?;
        let remote = Endpoint { address: about.destination, port: about.destination_port };
        let outside = Endpoint { address: about.source, port: about.source_port };
        let inside = napt(self.number, self.pool, self.policy, work).inbound_error(outside, space, remote);
        let inside = inside.ok_or(DropReason::NoSession)?;
        let host = Ipv4Addr::from(inside.ipv4);
        let to = ErrorRewrite {
            source: parsed.source,
            destination: host,
            embedded: Rewrite {
                source: host,
                destination: about.destination,
                source_port: Some(port_of(&inside)),
                destination_port: None,
            },
            node: None,
        };
        Ok((inside, readdress_error(packet, parsed, &about, &to, mtu, Identification::Keep)?))
    }

    fn key(&self, softwire: Ipv6Addr, space: PortSpace, address: Ipv4Addr, port: Port) -> InsideKey {
        InsideKey {
            ipv6: softwire.octets(),
            ipv4: address.octets(),
            port: port.0.to_be_bytes(),
            protocol: space.protocol(),
            service: self.number,
        }
    }
}

/// Segments are as large as the hosts agree on: path MTU discovery crosses softwires.
const fn link(mtu: u32) -> NextLink {
    NextLink { mtu, largest_segment: None }
}

fn port_of(inside: &InsideKey) -> Port {
    Port(u16::from_be_bytes(inside.port))
}

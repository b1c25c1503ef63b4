//! A NAT with IPv4 on both sides: the walk, and the packet readdressed.
//!
//! Read first: RFC 3022 section 4, RFC 5508 section 4, RFC 6333 section 8, RFC 7596 section 5.2.
//!
//! Packets are rewritten in place and not sent: the NAT44 forwards them, softwires encapsulate
//! them. Every packet loses one in its TTL.

use std::net::Ipv4Addr;

use tombolo_tables::binding::InsideKey;

use super::host::Host;
use super::nat::{Arrival, Nat, port_of};
use super::readdress::{Identification, NextLink, readdress, readdress_error};
use crate::mechanism::Refusal;
use crate::mechanism::translate::{ErrorRewrite, Rewrite, Translated};
use crate::mechanism::tunnel::softwire::take_step;
use crate::parse::{Parsed, Payload};
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

impl Nat {
    /// True if a packet from inside is for the pool, and so comes in again. An ICMP error is for the
    /// sender of the packet in it.
    ///
    /// # Errors
    /// As [`Parsed::embedded`].
    #[inline]
    pub(crate) fn hairpins(&self, parsed: &Parsed<Ipv4Addr>, work: &Work<'_>) -> Result<bool, DropReason> {
        Ok(match parsed.payload {
            Payload::IcmpError => {
                let about = parsed.embedded(&work.packet)?;
                self.sent(about.source, &about, work)
            }
            _ => self.receives(parsed.destination, parsed, work),
        })
    }

    /// A packet from inside, ICMP errors included, gets its outside source, for `link`. `host` says
    /// where inside it comes from; of an ICMP error only the softwire of `host` counts.
    ///
    /// # Errors
    /// [`Refusal`]: no state, no room for it, too big, ICMP that is neither echo nor error. The
    /// packet is unchanged if the refusal has an answer.
    #[inline]
    pub(crate) fn leave_ipv4(
        &self,
        parsed: &Parsed<Ipv4Addr>,
        host: Host,
        link: NextLink,
        work: &mut Work<'_>,
    ) -> Result<Translated, Refusal> {
        if parsed.payload == Payload::IcmpError {
            return self.error_leaves_ipv4(parsed, host, link.mtu, work);
        }
        let outside = self.leave(parsed, host, parsed.destination, work)?;
        let helped = self.help_out(parsed, host, parsed.destination, work)?;
        let parsed = helped.as_ref().unwrap_or(parsed);
        let to = Rewrite {
            source: outside.address,
            destination: parsed.destination,
            source_port: Some(outside.port),
            destination_port: None,
        };
        let identification = Identification::Renew(&mut work.worker.identifications);
        readdress(&mut work.packet, parsed, &to, link, identification)
    }

    /// A packet from outside, ICMP errors included, gets its inside destination, for `link`. `None`
    /// for a SYN that waits.
    ///
    /// # Errors
    /// [`Refusal`] as for [`leave_ipv4`](Self::leave_ipv4).
    #[inline]
    pub(crate) fn arrive_ipv4(
        &self,
        parsed: &Parsed<Ipv4Addr>,
        link: NextLink,
        work: &mut Work<'_>,
    ) -> Result<Option<(InsideKey, Translated)>, Refusal> {
        if parsed.payload == Payload::IcmpError {
            return self.error_arrives_ipv4(parsed, link.mtu, work).map(Some);
        }
        let Arrival::At(inside) = self.arrive(parsed, parsed.destination, parsed.source, work)? else {
            return Ok(None);
        };
        let helped = self.help_in(parsed, &inside, parsed.source, work)?;
        let parsed = helped.as_ref().unwrap_or(parsed);
        Ok(Some((inside, deliver_ipv4(parsed, &inside, link, work)?)))
    }

    /// An ICMP error from inside leaves from the outside address that the remote has sent to,
    /// whichever router it comes from (RFC 5508 REQ-5).
    fn error_leaves_ipv4(
        &self,
        parsed: &Parsed<Ipv4Addr>,
        host: Host,
        mtu: u32,
        work: &mut Work<'_>,
    ) -> Result<Translated, Refusal> {
        let about = parsed.embedded(&work.packet)?;
        let host = Host { ipv4: about.destination, ..host };
        let outside = self.error_leaves(&about, host, about.source, work)?;
        let to = ErrorRewrite {
            source: outside.address,
            destination: about.source,
            embedded: Rewrite {
                source: about.source,
                destination: outside.address,
                source_port: None,
                destination_port: Some(outside.port),
            },
            node: None,
        };
        let identification = Identification::Renew(&mut work.worker.identifications);
        readdress_error(&mut work.packet, parsed, &about, &to, mtu, identification)
    }

    /// An ICMP error from outside keeps the address of the router that sent it (RFC 5508 REQ-4).
    fn error_arrives_ipv4(
        &self,
        parsed: &Parsed<Ipv4Addr>,
        mtu: u32,
        work: &mut Work<'_>,
    ) -> Result<(InsideKey, Translated), Refusal> {
        let about = parsed.embedded(&work.packet)?;
        let inside = self.error_arrives(&about, about.source, about.destination, work)?;
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
        let translated = readdress_error(&mut work.packet, parsed, &about, &to, mtu, Identification::Keep)?;
        Ok((inside, translated))
    }
}

/// A packet from inside goes on with its own address (RFC 6888 REQ-6).
///
/// # Errors
/// [`Refusal`] if the TTL runs out.
pub(crate) fn pass_untranslated(parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
    work.notes.add("RFC 6888 REQ-6", || format!("{} keeps its address", parsed.source));
    take_step(&mut work.packet, parsed)?;
    work.forward_whole()
}

/// Gives a packet from outside the inside endpoint `inside` as its destination, for `link`. No
/// state is looked at.
///
/// # Errors
/// As [`readdress`].
#[inline]
pub(crate) fn deliver_ipv4(
    parsed: &Parsed<Ipv4Addr>,
    inside: &InsideKey,
    link: NextLink,
    work: &mut Work<'_>,
) -> Result<Translated, Refusal> {
    let to = Rewrite {
        source: parsed.source,
        destination: inside.ipv4.into(),
        source_port: None,
        destination_port: Some(port_of(inside)),
    };
    readdress(&mut work.packet, parsed, &to, link, Identification::Keep)
}

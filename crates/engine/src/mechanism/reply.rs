//! ICMP errors that the gateway originates.
//!
//! Read first: RFC 4443 sections 2.4 and 3, RFC 1812 section 4.3, RFC 1122 section 3.2.2, RFC 7915
//! sections 4.4 and 5.4.
//!
//! The error takes the place of the packet it is about, in the same buffer: that packet's bytes
//! stay where they are and headers are put in front.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::checksum::{Delta, update};
use tombolo_wire::{Ipv4Header, Ipv6Header, Protocol, Sum, icmpv4, icmpv6, ipv4, ipv6, read_u16, write_u16, write_u32};

use super::screen::{is_illegal_source_ipv4, is_illegal_source_ipv6};
use super::{IcmpAnswer, IdentificationGenerator};
use crate::packet::{Offload, Packet};
use crate::parse::{Parsed, Payload};
use crate::verdict::DropReason;

const ICMP: usize = icmpv4::HEADER_LENGTH;
/// TTL and hop limit of what the gateway sends.
const HOP_LIMIT: u8 = 64;
/// Precedence of ICMPv4 errors: internetwork control (RFC 1812 section 4.3.2.5).
const TOS: u8 = 0xc0;

/// Type, code and bytes 4 to 7 of the ICMPv4 error that says `answer`.
#[must_use]
pub fn answer_ipv4(answer: IcmpAnswer) -> (u8, u8, u32) {
    use icmpv4::{DESTINATION_UNREACHABLE, PARAMETER_PROBLEM, TIME_EXCEEDED, unreachable};
    match answer {
        IcmpAnswer::TimeExceeded => (TIME_EXCEEDED, 0, 0),
        IcmpAnswer::TooBig { mtu } => {
            (DESTINATION_UNREACHABLE, unreachable::FRAGMENTATION_NEEDED, mtu.min(u32::from(u16::MAX)))
        }
        IcmpAnswer::NoRoute => (DESTINATION_UNREACHABLE, unreachable::NET, 0),
        IcmpAnswer::HostUnreachable => (DESTINATION_UNREACHABLE, unreachable::HOST, 0),
        IcmpAnswer::PortUnreachable => (DESTINATION_UNREACHABLE, unreachable::PORT, 0),
        IcmpAnswer::ProtocolUnreachable => (DESTINATION_UNREACHABLE, unreachable::PROTOCOL, 0),
        IcmpAnswer::Prohibited | IcmpAnswer::SourcePolicy => (DESTINATION_UNREACHABLE, unreachable::PROHIBITED, 0),
        IcmpAnswer::SourceRouteFailed => (DESTINATION_UNREACHABLE, unreachable::SOURCE_ROUTE_FAILED, 0),
        IcmpAnswer::ParameterProblem { pointer } => (PARAMETER_PROBLEM, 0, u32::from(pointer.min(255)) << 24),
    }
}

/// Type, code and bytes 4 to 7 of the ICMPv6 error that says `answer`.
#[must_use]
pub fn answer_ipv6(answer: IcmpAnswer) -> (u8, u8, u32) {
    use icmpv6::{DESTINATION_UNREACHABLE, PACKET_TOO_BIG, PARAMETER_PROBLEM, TIME_EXCEEDED, parameter, unreachable};
    match answer {
        IcmpAnswer::TimeExceeded => (TIME_EXCEEDED, 0, 0),
        IcmpAnswer::TooBig { mtu } => (PACKET_TOO_BIG, 0, mtu.max(u32::from(ipv6::MINIMUM_MTU))),
        IcmpAnswer::NoRoute => (DESTINATION_UNREACHABLE, unreachable::NO_ROUTE, 0),
        IcmpAnswer::HostUnreachable => (DESTINATION_UNREACHABLE, unreachable::ADDRESS, 0),
        IcmpAnswer::PortUnreachable | IcmpAnswer::ProtocolUnreachable => {
            (DESTINATION_UNREACHABLE, unreachable::PORT, 0)
        }
        IcmpAnswer::Prohibited | IcmpAnswer::SourceRouteFailed => (DESTINATION_UNREACHABLE, unreachable::PROHIBITED, 0),
        IcmpAnswer::SourcePolicy => (DESTINATION_UNREACHABLE, unreachable::SOURCE_POLICY, 0),
        IcmpAnswer::ParameterProblem { pointer } => (PARAMETER_PROBLEM, parameter::HEADER_FIELD, u32::from(pointer)),
    }
}

/// May an IPv4 packet be answered with an error at all? Not an ICMP error, not a fragment other
/// than the first, not what was sent to many or by nobody (RFC 1122 section 3.2.2, RFC 1812 section
/// 4.3.2.7).
#[must_use]
pub fn may_answer_ipv4(parsed: &Parsed<Ipv4Addr>) -> bool {
    parsed.payload != Payload::IcmpError
        && parsed.payload != Payload::Piece
        && !is_illegal_source_ipv4(parsed.source)
        && !is_illegal_source_ipv4(parsed.destination)
}

/// May an IPv6 packet be answered with an error at all? Not an ICMPv6 error or redirect, not a
/// fragment other than the first, not what was sent by nobody, and what was sent to many only with
/// "packet too big" (RFC 4443 section 2.4 (e)).
#[must_use]
pub fn may_answer_ipv6(packet: &Packet<'_>, parsed: &Parsed<Ipv6Addr>, answer: IcmpAnswer) -> bool {
    let is_redirect = parsed.payload == Payload::IcmpOther
        && packet.bytes().get(usize::from(parsed.transport_offset)) == Some(&icmpv6::REDIRECT);
    let is_too_big = matches!(answer, IcmpAnswer::TooBig { .. });
    parsed.payload != Payload::IcmpError
        && parsed.payload != Payload::Piece
        && !is_redirect
        && !is_illegal_source_ipv6(parsed.source)
        && (is_too_big || !parsed.destination.is_multicast())
}

/// Turns an IPv4 packet into the error about it, from `from`, which is an address of the gateway.
/// The packet must be as it was received. The error has at most 576 bytes (RFC 1812 section
/// 4.3.2.3).
///
/// # Errors
/// [`DropReason::NoHeadroom`].
pub fn reply_ipv4(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv4Addr>,
    from: Ipv4Addr,
    answer: IcmpAnswer,
    identifications: &mut IdentificationGenerator,
) -> Result<(), DropReason> {
    const LARGEST: usize = 576;
    prepend_error(packet, ipv4::HEADER_LENGTH, LARGEST, answer_ipv4(answer))?;
    let message = &mut packet.bytes_mut()[ipv4::HEADER_LENGTH..];
    let checksum = Sum::ZERO.bytes(message).checksum();
    write_u16(message, icmpv4::CHECKSUM, checksum);
    let header = Ipv4Header {
        tos: TOS,
        total_length: u16::try_from(packet.len()).map_err(|_| DropReason::Malformed)?,
        identification: identifications.next(from, parsed.source, 1),
        fragment_word: 0,
        ttl: HOP_LIMIT,
        protocol: Protocol::ICMP,
        source: from,
        destination: parsed.source,
    };
    header.emit(packet.bytes_mut());
    Ok(())
}

/// Turns an IPv6 packet into the error about it, from `from`, which is an address of the gateway.
/// The packet must be as it was received. The error has at most 1280 bytes (RFC 4443 section 2.4
/// (c)).
///
/// # Errors
/// [`DropReason::NoHeadroom`].
pub fn reply_ipv6(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv6Addr>,
    from: Ipv6Addr,
    answer: IcmpAnswer,
) -> Result<(), DropReason> {
    prepend_error(packet, ipv6::HEADER_LENGTH, ipv6::MINIMUM_MTU.into(), answer_ipv6(answer))?;
    let message = &mut packet.bytes_mut()[ipv6::HEADER_LENGTH..];
    let length = u16::try_from(message.len()).map_err(|_| DropReason::Malformed)?;
    let checksum = ipv6::transport_checksum(from, parsed.source, Protocol::ICMPV6, message);
    write_u16(message, icmpv6::CHECKSUM, checksum);
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: length,
        next_header: Protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        source: from,
        destination: parsed.source,
    };
    header.emit(packet.bytes_mut());
    Ok(())
}

/// Turns an ICMPv6 echo request into its reply, as the host that it is addressed to would (RFC 4443
/// section 4.2). Extension headers do not come back.
///
/// # Errors
/// [`DropReason::IcmpUntranslatable`] for anything else, [`DropReason::IllegalSource`] if nobody
/// could hear the reply, [`DropReason::NoHeadroom`]. The packet is as before.
pub fn answer_echo_ipv6(packet: &mut Packet<'_>, parsed: &Parsed<Ipv6Addr>) -> Result<(), DropReason> {
    if parsed.payload != Payload::EchoRequest || parsed.is_piece() || parsed.obstacle.is_some() {
        return Err(DropReason::IcmpUntranslatable);
    }
    if is_illegal_source_ipv6(parsed.source) {
        return Err(DropReason::IllegalSource);
    }
    let payload_length = u16::try_from(parsed.transport_length()).map_err(|_| DropReason::Malformed)?;
    packet.strip(parsed.transport_offset.into());
    packet.prepend(ipv6::HEADER_LENGTH)?;
    let message = &mut packet.bytes_mut()[ipv6::HEADER_LENGTH..];
    let old = read_u16(message, 0);
    message[0] = icmpv6::ECHO_REPLY;
    // The addresses change places, which their sum does not feel.
    let checksum = update(read_u16(message, icmpv6::CHECKSUM), Delta::of_word(old, read_u16(message, 0)));
    write_u16(message, icmpv6::CHECKSUM, checksum);
    let header = Ipv6Header {
        traffic_class: parsed.traffic_class,
        flow_label: 0,
        payload_length,
        next_header: Protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        source: parsed.destination,
        destination: parsed.source,
    };
    header.emit(packet.bytes_mut());
    Ok(())
}

/// Cuts the packet to what may be quoted, and puts room for an IP header and the ICMP header in
/// front.
fn prepend_error(
    packet: &mut Packet<'_>,
    ip_header: usize,
    largest: usize,
    (kind, code, rest): (u8, u8, u32),
) -> Result<(), DropReason> {
    packet.truncate(largest - ip_header - ICMP);
    packet.prepend(ip_header + ICMP)?;
    packet.offload = Offload::default();
    let header = &mut packet.bytes_mut()[ip_header..ip_header + ICMP];
    header[0] = kind;
    header[1] = code;
    write_u16(header, icmpv4::CHECKSUM, 0);
    write_u32(header, 4, rest);
    Ok(())
}

/// Limits how many errors are sent (RFC 4443 section 2.4 (f)): a bucket that holds `burst` errors
/// and gains `rate` a second.
#[derive(Debug, Clone)]
pub struct ErrorLimit {
    /// Nanoseconds that one error costs.
    cost: u64,
    /// Nanoseconds that the bucket holds.
    depth: u64,
    /// When the bucket would have been empty: it holds the time since then, up to `depth`.
    empty_since: u64,
    /// Rate and burst that the above were made from.
    made_for: (u32, u32),
}

impl ErrorLimit {
    /// `rate` errors a second, of which `burst` may come at once. A rate of zero sends none.
    #[must_use]
    pub fn new(rate: u32, burst: u32) -> Self {
        let cost = 1_000_000_000_u64.checked_div(u64::from(rate)).unwrap_or(u64::MAX);
        let depth = cost.saturating_mul(u64::from(burst.max(1)));
        Self { cost, depth, empty_since: 0, made_for: (rate, burst) }
    }

    /// Takes one error out of the bucket at the moment `now` (nanoseconds); false if it is empty. A
    /// bucket for another rate or burst is changed first.
    pub fn allow(&mut self, rate: u32, burst: u32, now: u64) -> bool {
        if self.made_for != (rate, burst) {
            *self = Self { empty_since: self.empty_since, ..Self::new(rate, burst) };
        }
        if self.cost == u64::MAX {
            return false;
        }
        // Should the clock have gone back, the bucket fills from now on, not from when the clock is
        // there again.
        let since = self.empty_since.min(now).max(now.saturating_sub(self.depth));
        let allowed = now.saturating_sub(since) >= self.cost;
        self.empty_since = if allowed { since + self.cost } else { since };
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn another_policy_counts_from_the_next_error_on() {
        let mut limit = ErrorLimit::new(1, 1);
        assert!(limit.allow(1, 1, 10 * SECOND) && !limit.allow(1, 1, 10 * SECOND));
        assert_eq!((0..9).filter(|_| limit.allow(1000, 4, 10 * SECOND + SECOND / 2)).count(), 4);
        assert!(!limit.allow(0, 4, 20 * SECOND));
    }

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let mut limit = ErrorLimit::new(10, 5);
        let mut limit = |now| limit.allow(10, 5, now);
        let now = 100 * SECOND;
        assert_eq!((0..20).filter(|_| limit(now)).count(), 5);
        assert!(!limit(now + SECOND / 10 - 1));
        assert!(limit(now + SECOND / 10));
        assert_eq!((0..20).filter(|_| limit(now + 100 * SECOND)).count(), 5);
    }

    #[test]
    fn a_rate_of_zero_allows_nothing() {
        assert!(!ErrorLimit::new(0, 10).allow(0, 10, SECOND));
    }

    #[test]
    fn a_clock_that_goes_back_does_no_harm() {
        let mut limit = ErrorLimit::new(1, 1);
        assert!(limit.allow(1, 1, 10 * SECOND));
        assert!(!limit.allow(1, 1, 5 * SECOND));
        assert!(limit.allow(1, 1, 11 * SECOND));
        assert!(!limit.allow(1, 1, 2 * SECOND));
        assert!(limit.allow(1, 1, 3 * SECOND), "it does not wait until the old time is reached");
    }
}

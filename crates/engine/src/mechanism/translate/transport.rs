//! Ports and checksums of the transport, brought in line with new addresses.
//!
//! Read first: RFC 7915 sections 4.4, 4.5, 5.4, 5.5; RFC 1624.
//!
//! Everything is by difference, so that a payload is never read and a wrong checksum stays wrong.
//! `transport` is the packet from the transport header on.

use tombolo_wire::checksum::{self, Delta, Sum, udp_checksum};
use tombolo_wire::{Port, Protocol, crc32c, dccp, icmpv4, icmpv6, read_u16, read_u32, sctp, tcp, udp, write_u16};

use super::settings::UdpZeroChecksum;
use crate::packet::ChecksumState;
use crate::parse::{Parsed, Payload};
use crate::verdict::DropReason;

/// Sums of the address pairs before and behind a translation, and the ports that the packet gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    pub(crate) old_addresses: Sum,
    pub(crate) new_addresses: Sum,
    pub(crate) source_port: Option<Port>,
    pub(crate) destination_port: Option<Port>,
}

impl Change {
    #[inline]
    fn addresses(&self) -> Delta {
        self.new_addresses - self.old_addresses
    }

    /// Writes the ports into the first four bytes and returns what that changes.
    #[inline]
    fn write_ports(&self, transport: &mut [u8]) -> Delta {
        let mut delta = Delta::ZERO;
        if let Some(port) = self.source_port {
            delta += replace_word(transport, 0, port.0);
        }
        if let Some(port) = self.destination_port {
            delta += replace_word(transport, 2, port.0);
        }
        delta
    }
}

#[inline]
fn replace_word(bytes: &mut [u8], offset: usize, new: u16) -> Delta {
    let old = read_u16(bytes, offset);
    write_u16(bytes, offset, new);
    Delta::of_word(old, new)
}

/// Rewrites a TCP segment. One that is cut before its checksum, in an ICMP error, gets new ports
/// only.
#[inline]
pub(crate) fn rewrite_tcp(transport: &mut [u8], change: &Change, state: ChecksumState) {
    let ports = change.write_ports(transport);
    if transport.len() < tcp::CHECKSUM + 2 {
        return;
    }
    let field = read_u16(transport, tcp::CHECKSUM);
    write_u16(transport, tcp::CHECKSUM, apply(field, change.addresses(), ports, state));
}

/// A complete checksum changes with addresses and ports, a partial one with the addresses in its
/// pseudo-header.
#[inline]
fn apply(field: u16, addresses: Delta, ports: Delta, state: ChecksumState) -> u16 {
    match state {
        ChecksumState::Complete => checksum::update(field, addresses + ports),
        ChecksumState::Partial { .. } => checksum::update_sum(field, addresses),
    }
}

/// Rewrites a UDP datagram. `whole` says that all of its payload is there.
#[inline]
pub(crate) fn rewrite_udp(
    transport: &mut [u8],
    change: &Change,
    state: ChecksumState,
    zero: UdpZeroChecksum,
    whole: bool,
) -> Result<(), DropReason> {
    let field = read_u16(transport, udp::CHECKSUM);
    let is_computed = zero == UdpZeroChecksum::Compute && whole;
    // Before anything changes: whoever sent it may be told of it, and quoted.
    if (state, field) == (ChecksumState::Complete, 0) && zero != UdpZeroChecksum::Forward && !is_computed {
        return Err(DropReason::UdpChecksumZero);
    }
    let ports = change.write_ports(transport);
    let field = match (state, field) {
        (ChecksumState::Complete, 0) => match zero {
            UdpZeroChecksum::Forward => 0,
            UdpZeroChecksum::Compute | UdpZeroChecksum::Drop => compute_udp(transport, change.new_addresses),
        },
        (ChecksumState::Complete, field) => udp_checksum(apply(field, change.addresses(), ports, state)),
        (ChecksumState::Partial { .. }, field) => apply(field, change.addresses(), ports, state),
    };
    write_u16(transport, udp::CHECKSUM, field);
    Ok(())
}

/// Rewrites a DCCP packet. The addresses are a part of the pseudo-header of its checksum (RFC 4340
/// section 9.1).
pub(crate) fn rewrite_dccp(transport: &mut [u8], change: &Change) {
    let ports = change.write_ports(transport);
    let field = read_u16(transport, dccp::CHECKSUM);
    write_u16(transport, dccp::CHECKSUM, checksum::update(field, change.addresses() + ports));
}

/// Rewrites a UDP-Lite packet. Its checksum covers the ports, however little else it covers. One
/// without a checksum, which must not be (RFC 3828 section 3.1), stays without.
pub(crate) fn rewrite_udp_lite(transport: &mut [u8], change: &Change) {
    let ports = change.write_ports(transport);
    let field = read_u16(transport, udp::CHECKSUM);
    if field != 0 {
        let field = checksum::update(field, change.addresses() + ports);
        write_u16(transport, udp::CHECKSUM, udp_checksum(field));
    }
}

/// Rewrites an SCTP packet, whose checksum has no pseudo-header, but covers the ports. `whole` is the
/// length of the packet, if that is known: a first piece does not say it. One without a checksum
/// (RFC 9653) stays without.
pub(crate) fn rewrite_sctp(transport: &mut [u8], change: &Change, whole: Option<u32>) {
    let old = read_u32(transport, 0);
    change.write_ports(transport);
    let new = read_u32(transport, 0);
    let Some(length) = whole.and_then(|length| u16::try_from(length).ok()) else { return };
    if let Some(field) = transport.get_mut(sctp::CHECKSUM..sctp::HEADER_LENGTH)
        && field != [0; 4]
    {
        crc32c::update(field, old, new, length);
    }
}

/// Rewrites what an ICMP error quotes of a transport, of which only the beginning may be there, but
/// for an echo. It is never an error: a datagram without checksum stays so.
pub(crate) fn rewrite_quoted<A>(quoted: &mut [u8], about: &Parsed<A>, change: &Change) {
    match about.payload {
        Payload::Tcp => rewrite_tcp(quoted, change, ChecksumState::Complete),
        Payload::Udp => {
            let _ = rewrite_udp(quoted, change, ChecksumState::Complete, UdpZeroChecksum::Forward, false);
        }
        Payload::Sctp => rewrite_sctp(quoted, change, (!about.is_piece()).then(|| about.transport_length())),
        Payload::Dccp => rewrite_dccp(quoted, change),
        Payload::UdpLite => rewrite_udp_lite(quoted, change),
        _ => {}
    }
}

fn compute_udp(transport: &[u8], addresses: Sum) -> u16 {
    let length = read_u16(transport, udp::LENGTH);
    let datagram = transport.get(..usize::from(length)).unwrap_or(transport);
    udp_checksum(addresses.word(Protocol::UDP.0.into()).word(length).bytes(datagram).checksum())
}

/// Turns an ICMP echo into an ICMPv6 echo: its checksum gains the pseudo-header. `length` is that
/// of the message as its IP header says.
#[inline]
pub(crate) fn rewrite_echo_4to6(transport: &mut [u8], change: &Change, length: u32) {
    let kind = if transport[0] == icmpv4::ECHO_REQUEST { icmpv6::ECHO_REQUEST } else { icmpv6::ECHO_REPLY };
    rewrite_echo(transport, kind, change, pseudo_icmpv6(change.new_addresses, length) - Sum::ZERO);
}

/// Turns an ICMPv6 echo into an ICMP echo: its checksum loses the pseudo-header.
#[inline]
pub(crate) fn rewrite_echo_6to4(transport: &mut [u8], change: &Change, length: u32) {
    let kind = if transport[0] == icmpv6::ECHO_REQUEST { icmpv4::ECHO_REQUEST } else { icmpv4::ECHO_REPLY };
    rewrite_echo(transport, kind, change, Sum::ZERO - pseudo_icmpv6(change.old_addresses, length));
}

#[inline]
pub(crate) fn pseudo_icmpv6(addresses: Sum, length: u32) -> Sum {
    addresses.double_word(length).word(Protocol::ICMPV6.0.into())
}

/// Gives an echo, ICMP on both sides, another identifier.
#[inline]
pub(crate) fn rewrite_identifier(transport: &mut [u8], change: &Change) {
    if let Some(identifier) = change.source_port.or(change.destination_port) {
        let delta = replace_word(transport, 4, identifier.0);
        update_icmp_checksum(transport, delta);
    }
}

#[inline]
fn rewrite_echo(transport: &mut [u8], kind: u8, change: &Change, pseudo: Delta) {
    let code = transport[1];
    let mut delta = pseudo + replace_word(transport, 0, u16::from_be_bytes([kind, code]));
    if let Some(identifier) = change.source_port.or(change.destination_port) {
        delta += replace_word(transport, 4, identifier.0);
    }
    update_icmp_checksum(transport, delta);
}

/// Changes the checksum by difference. That cannot tell a sum of nothing but zeros (an ICMPv4 echo
/// reply may be one) from one of 0xffff: the checksum of the first is 0xffff (RFC 1071), and
/// receivers drop the other.
#[inline]
fn update_icmp_checksum(transport: &mut [u8], delta: Delta) {
    let field = checksum::update(read_u16(transport, icmpv4::CHECKSUM), delta);
    write_u16(transport, icmpv4::CHECKSUM, field);
    if field == 0 && transport.iter().all(|&byte| byte == 0) {
        write_u16(transport, icmpv4::CHECKSUM, 0xffff);
    }
}

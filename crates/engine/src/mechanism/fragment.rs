//! Sends one packet as several fragments.
//!
//! Read first: RFC 8200 section 4.5, RFC 791 section 3.2, RFC 7915 section 4.1 (4to6) and 5.1.1
//! (6to4).
//!
//! No payload is copied: each fragment's headers are written in front of its payload, over the end
//! of the fragment before it, which has been sent by then.
//!
//! ```text
//! | headers | payload 1 ............. | payload 2 ....
//!                           | headers | payload 2 ....
//! ```

use tombolo_wire::checksum::udp_checksum;
use tombolo_wire::options::Options;
use tombolo_wire::{FragmentHeader, Ipv4View, Ipv6View, Protocol, Sum, ipv4, ipv6, read_u16, udp, write_u16};

use super::offload::complete_checksum;
use crate::packet::{ChecksumState, Offload, Outbox, Packet, Segmentation};
use crate::verdict::DropReason;

/// Sends `packet`, whole or itself a fragment, as fragments of at most `limit` bytes; a UDP
/// super-packet datagram by datagram. An IPv6 packet without Fragment header gets `identification`.
/// IPv6 extension headers other than a Fragment header directly behind the fixed header count as
/// payload: packets here are the gateway's own.
///
/// # Errors
/// [`DropReason::Malformed`] for bytes that are no packet, [`DropReason::TooBig`] if `limit` leaves
/// no room for 8 bytes of payload or the packet is a TCP super-packet (whose segments can be made
/// smaller instead), [`DropReason::NoHeadroom`], and what [`Outbox::send`] says; what is left is not
/// sent then.
pub fn send_fragments<O: Outbox + ?Sized>(
    packet: &mut Packet<'_>,
    limit: u32,
    identification: u32,
    outbox: &mut O,
) -> Result<(), DropReason> {
    match packet.offload.segmentation {
        Segmentation::None => send_whole_or_fragments(packet, limit, identification, outbox),
        Segmentation::Udp { size } => send_datagrams(packet, size.into(), limit, identification, outbox),
        Segmentation::Tcp { .. } => Err(DropReason::TooBig),
    }
}

/// Cuts a super-packet into its datagrams and sends each, in fragments if it is larger than
/// `limit`. The super-packet is the gateway's own: its UDP header is right behind the fixed IP
/// header.
fn send_datagrams<O: Outbox + ?Sized>(
    packet: &mut Packet<'_>,
    size: usize,
    limit: u32,
    identification: u32,
    outbox: &mut O,
) -> Result<(), DropReason> {
    let is_v4 = packet.bytes().first().is_some_and(|first| first >> 4 == 4);
    let ip_header = if is_v4 { ipv4::HEADER_LENGTH } else { ipv6::HEADER_LENGTH };
    let headers_length = ip_header + udp::HEADER_LENGTH;
    let mut headers = [0; ipv6::HEADER_LENGTH + udp::HEADER_LENGTH];
    let headers = &mut headers[..headers_length];
    headers.copy_from_slice(packet.bytes().get(..headers_length).ok_or(DropReason::Malformed)?);
    let first_identification = read_u16(headers, ipv4::IDENTIFICATION);
    if size == 0 {
        return Err(DropReason::Malformed);
    }
    packet.strip(headers_length);
    let mut count = 0_u16;
    while !packet.is_empty() {
        let payload = packet.len().min(size);
        packet.prepend(headers_length)?;
        let start = packet.headroom();
        let (buffer, _, _) = packet.parts_mut();
        let end = start + headers_length + payload;
        buffer[start..start + headers_length].copy_from_slice(headers);
        let datagram = &mut buffer[start..end];
        if is_v4 {
            write_u16(datagram, ipv4::IDENTIFICATION, first_identification.wrapping_add(count));
        }
        complete_datagram(datagram, ip_header)?;
        let mut piece =
            Packet::new(&mut buffer[..end], start, end - start, Offload::default()).ok_or(DropReason::NoHeadroom)?;
        let identification = identification.wrapping_add(count.into());
        send_whole_or_fragments(&mut piece, limit, identification, outbox)?;
        packet.strip(headers_length + payload);
        count = count.wrapping_add(1);
    }
    Ok(())
}

/// Writes lengths and checksums of a datagram behind an IP header of `ip_header` bytes.
fn complete_datagram(packet: &mut [u8], ip_header: usize) -> Result<(), DropReason> {
    let narrow = |length: usize| u16::try_from(length).map_err(|_| DropReason::Malformed);
    let length = narrow(packet.len() - ip_header)?;
    let total_length = narrow(packet.len())?;
    write_u16(packet, ip_header + udp::LENGTH, length);
    write_u16(packet, ip_header + udp::CHECKSUM, 0);
    let addresses = if ip_header == ipv4::HEADER_LENGTH {
        write_u16(packet, ipv4::TOTAL_LENGTH, total_length);
        ipv4::write_checksum(packet);
        ipv4::SOURCE..ipv4::HEADER_LENGTH
    } else {
        write_u16(packet, ipv6::PAYLOAD_LENGTH, length);
        ipv6::SOURCE..ipv6::HEADER_LENGTH
    };
    let sum = Sum::ZERO.bytes(&packet[addresses]).word(Protocol::UDP.0.into()).word(length).bytes(&packet[ip_header..]);
    write_u16(packet, ip_header + udp::CHECKSUM, udp_checksum(sum.checksum()));
    Ok(())
}

fn send_whole_or_fragments<O: Outbox + ?Sized>(
    packet: &mut Packet<'_>,
    limit: u32,
    identification: u32,
    outbox: &mut O,
) -> Result<(), DropReason> {
    if packet.len() <= limit as usize {
        return outbox.send(packet);
    }
    match packet.bytes().first().map(|first| first >> 4) {
        Some(4) => send_ipv4(packet, limit as usize, outbox),
        Some(6) => send_ipv6(packet, limit as usize, identification, outbox),
        _ => Err(DropReason::NotIp),
    }
}

fn send_ipv4<O: Outbox + ?Sized>(packet: &mut Packet<'_>, limit: usize, outbox: &mut O) -> Result<(), DropReason> {
    let view = Ipv4View::parse(packet.bytes()).map_err(|_| DropReason::Malformed)?;
    let (protocol, word, length) = (view.protocol(), view.fragment_word(), view.header_length());
    if protocol == Protocol::TCP || protocol == Protocol::UDP {
        complete_checksum(packet, protocol)?;
    }
    let (mut first, mut others) = ([0; 60], [0; 60]);
    first[..length].copy_from_slice(&packet.bytes()[..length]);
    let length_of_others = copy_for_others(&first[..length], &mut others);
    let headers = Headers { first: &mut first[..length], others: &mut others[..length_of_others] };
    packet.strip(length);
    send_pieces(packet, limit, headers, word & ipv4::OFFSET_MASK, word & ipv4::MF != 0, outbox, |header, piece| {
        let more = if piece.more { ipv4::MF } else { 0 };
        write_u16(header, ipv4::TOTAL_LENGTH, piece.total_length);
        write_u16(header, ipv4::FRAGMENT_OFFSET, piece.offset | more | word & ipv4::DF);
        ipv4::write_checksum(header);
    })
}

/// Writes the header of all fragments but the first: of the options only those with the copied flag
/// (RFC 791 section 3.1). Gives its length.
fn copy_for_others(header: &[u8], others: &mut [u8; 60]) -> usize {
    const COPIED: u8 = 0x80;
    let (fixed, options) = header.split_at(ipv4::HEADER_LENGTH);
    others[..ipv4::HEADER_LENGTH].copy_from_slice(fixed);
    let mut length = ipv4::HEADER_LENGTH;
    for option in Options::new(options).flatten().filter(|option| option.kind & COPIED != 0) {
        let bytes = &options[option.offset..option.offset + 2 + option.data.len()];
        others[length..length + bytes.len()].copy_from_slice(bytes);
        length += bytes.len();
    }
    // What pads the last word is zero: the end of the list.
    let length = length.next_multiple_of(4);
    others[0] = 0x40 | (length / 4).to_le_bytes()[0];
    length
}

fn send_ipv6<O: Outbox + ?Sized>(
    packet: &mut Packet<'_>,
    limit: usize,
    identification: u32,
    outbox: &mut O,
) -> Result<(), DropReason> {
    let view = Ipv6View::parse(packet.bytes()).map_err(|_| DropReason::Malformed)?;
    let next_header = view.next_header();
    let mut header = [0; ipv6::HEADER_LENGTH + ipv6::FRAGMENT_HEADER_LENGTH];
    header[..ipv6::HEADER_LENGTH].copy_from_slice(&packet.bytes()[..ipv6::HEADER_LENGTH]);
    let fragment = if next_header == Protocol::IPV6_FRAGMENT {
        let fragment = FragmentHeader::parse(packet.bytes(), ipv6::HEADER_LENGTH).map_err(|_| DropReason::Malformed)?;
        packet.strip(header.len());
        fragment
    } else {
        if next_header == Protocol::TCP || next_header == Protocol::UDP {
            complete_checksum(packet, next_header)?;
        }
        packet.strip(ipv6::HEADER_LENGTH);
        header[ipv6::NEXT_HEADER] = Protocol::IPV6_FRAGMENT.0;
        FragmentHeader { header_offset: ipv6::HEADER_LENGTH, next_header, offset: 0, more: false, identification }
    };
    let mut others = header;
    let headers = Headers { first: &mut header, others: &mut others };
    send_pieces(packet, limit, headers, fragment.offset, fragment.more, outbox, |header, piece| {
        #[expect(clippy::cast_possible_truncation, reason = "the constant 40")]
        let payload_length = piece.total_length - ipv6::HEADER_LENGTH as u16;
        write_u16(header, ipv6::PAYLOAD_LENGTH, payload_length);
        FragmentHeader { offset: piece.offset, more: piece.more, ..fragment }.emit(header);
    })
}

/// What differs between the headers of fragments of one packet.
struct Piece {
    total_length: u16,
    offset: u16,
    more: bool,
}

/// Headers of the first fragment and of all others. Those of the others are no longer.
struct Headers<'h> {
    first: &'h mut [u8],
    others: &'h mut [u8],
}

/// Sends `payload` in pieces behind `headers`, which `write` completes for each. The first piece has
/// `offset`; the last one inherits `more`.
fn send_pieces<O: Outbox + ?Sized>(
    payload: &mut Packet<'_>,
    limit: usize,
    headers: Headers<'_>,
    mut offset: u16,
    more: bool,
    outbox: &mut O,
    write: impl Fn(&mut [u8], &Piece),
) -> Result<(), DropReason> {
    if limit.saturating_sub(headers.first.len()) < 8 {
        return Err(DropReason::TooBig);
    }
    payload.offload.checksum = ChecksumState::Complete;
    let mut header = headers.first;
    loop {
        let room = limit.saturating_sub(header.len()) & !7;
        let rest = payload.len();
        let size = if rest + header.len() <= limit { rest } else { room };
        let last = size == rest;
        let total_length = u16::try_from(header.len() + size).map_err(|_| DropReason::TooBig)?;
        write(header, &Piece { total_length, offset, more: more || !last });
        payload.prepend(header.len())?;
        let start = payload.headroom();
        let (buffer, _, end) = payload.parts_mut();
        buffer[start..start + header.len()].copy_from_slice(header);
        let mut piece = Packet::new(&mut buffer[..end], start, header.len() + size, Default::default())
            .ok_or(DropReason::NoHeadroom)?;
        outbox.send(&mut piece)?;
        payload.strip(header.len() + size);
        if last {
            return Ok(());
        }
        offset += u16::try_from(size / 8).map_err(|_| DropReason::Malformed)?;
        header = &mut *headers.others;
    }
}

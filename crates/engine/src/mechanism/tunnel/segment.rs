//! Cuts a super-packet into the packets that it stands for, where no network card will do it.
//!
//! Read first: RFC 9293 section 3.1, RFC 3168 section 6.1.2 (CWR), RFC 6864 section 4.
//!
//! A TUN device takes super-packets of TCP and UDP right behind the first IP header and no others
//! (Linux 6.18: `virtio_net_hdr_to_skb` knows no type for IPv4 in IPv6, and `ip4ip6_gso_segment`
//! refuses what does not say `SKB_GSO_IPXIP6`). So a super-packet is cut before it enters a
//! softwire, or goes to another node of a cluster.
//!
//! No payload is copied: the headers of each segment are written in front of its payload, over the
//! end of the segment before it, which has been sent by then. Each payload is read once, for its
//! checksum.
//!
//! ```text
//! | headers | payload 1 ............. | payload 2 ....
//!                           | headers | payload 2 ....
//! ```

use tombolo_wire::checksum::udp_checksum;
use tombolo_wire::{Protocol, Sum, TcpFlags, ipv4, ipv6, read_u16, read_u32, tcp, udp, write_u16, write_u32};

use crate::mechanism::offload::{complete_checksum, tcp_header_length};
use crate::packet::{Offload, Outbox, Packet, Segmentation};
use crate::parse::Parsed;
use crate::verdict::DropReason;

/// Offset of the sequence number in a TCP header.
const SEQUENCE: usize = 4;
/// IPv4 and TCP headers with all the options there can be; of IPv6, 20 bytes of extension headers.
const LONGEST_HEADERS: usize = 120;

/// Sends `packet`, `parsed` from it, as ordinary packets with complete checksums: one, or the
/// segments of a super-packet. Ports and addresses may have changed since it was parsed; its shape
/// must not have.
///
/// # Errors
/// [`DropReason::Malformed`] for headers that do not fit the packet, [`DropReason::NoHeadroom`], and what
/// [`Outbox::send`] says; what is left is not sent then.
pub(crate) fn send_segments<A, O: Outbox + ?Sized>(
    packet: &mut Packet<'_>,
    parsed: &Parsed<A>,
    outbox: &mut O,
) -> Result<(), DropReason> {
    let ip_header = usize::from(parsed.transport_offset);
    let transport = packet.bytes().get(ip_header..).ok_or(DropReason::Malformed)?;
    let (length, size) = match packet.offload.segmentation {
        Segmentation::None => {
            complete_checksum(packet, parsed.protocol)?;
            return outbox.send(packet);
        }
        Segmentation::Tcp { size, .. } => (ip_header + tcp_header_length(transport), usize::from(size)),
        Segmentation::Udp { size } => (ip_header + udp::HEADER_LENGTH, usize::from(size)),
    };
    let mut headers = [0; LONGEST_HEADERS];
    let headers = headers.get_mut(..length).ok_or(DropReason::Malformed)?;
    headers.copy_from_slice(packet.bytes().get(..length).ok_or(DropReason::Malformed)?);
    if size == 0 {
        return Err(DropReason::Malformed);
    }
    let template = Template { headers, ip_header, protocol: parsed.protocol };
    packet.strip(length);
    let mut offset = 0;
    let mut number = 0;
    loop {
        let payload = packet.len().min(size);
        let last = payload == packet.len();
        packet.prepend(length)?;
        let start = packet.headroom();
        let (buffer, _, _) = packet.parts_mut();
        let end = start + length + payload;
        template.write(&mut buffer[start..end], SegmentPosition { offset, number, last })?;
        let mut segment =
            Packet::new(&mut buffer[..end], start, end - start, Offload::default()).ok_or(DropReason::NoHeadroom)?;
        outbox.send(&mut segment)?;
        packet.strip(length + payload);
        if last {
            return Ok(());
        }
        offset += u32::try_from(payload).map_err(|_| DropReason::Malformed)?;
        number += 1;
    }
}

/// The headers of a super-packet.
struct Template<'h> {
    headers: &'h [u8],
    ip_header: usize,
    protocol: Protocol,
}

/// Which segment it is.
#[derive(Clone, Copy)]
struct SegmentPosition {
    /// Bytes of payload before it.
    offset: u32,
    /// Segments before it.
    number: u16,
    last: bool,
}

impl Template<'_> {
    /// Writes headers, lengths and checksums of the segment that is to fill `bytes`; its payload is
    /// there already.
    fn write(&self, bytes: &mut [u8], position: SegmentPosition) -> Result<(), DropReason> {
        let (ip, transport) = bytes.split_at_mut(self.ip_header);
        let (ip_template, transport_template) = self.headers.split_at(self.ip_header);
        ip.copy_from_slice(ip_template);
        transport[..transport_template.len()].copy_from_slice(transport_template);
        let length = u16::try_from(transport.len()).map_err(|_| DropReason::Malformed)?;
        let pseudo = write_ip(ip, length, position)?.word(self.protocol.0.into()).word(length);
        if self.protocol == Protocol::UDP {
            write_u16(transport, udp::LENGTH, length);
            write_u16(transport, udp::CHECKSUM, 0);
            let checksum = udp_checksum(pseudo.bytes(transport).checksum());
            write_u16(transport, udp::CHECKSUM, checksum);
        } else {
            write_tcp(transport, position);
            write_u16(transport, tcp::CHECKSUM, 0);
            let checksum = pseudo.bytes(transport).checksum();
            write_u16(transport, tcp::CHECKSUM, checksum);
        }
        Ok(())
    }
}

/// Writes what is the segment's own in its IP header; `length` is that of its transport. The sum of its addresses.
fn write_ip(ip: &mut [u8], length: u16, position: SegmentPosition) -> Result<Sum, DropReason> {
    let header = u16::try_from(ip.len()).map_err(|_| DropReason::Malformed)?;
    let total_length = header.checked_add(length).ok_or(DropReason::Malformed)?;
    if ip[0] >> 4 == 6 {
        let payload_length = total_length.saturating_sub(u16::try_from(ipv6::HEADER_LENGTH).unwrap_or(0));
        write_u16(ip, ipv6::PAYLOAD_LENGTH, payload_length);
        return Ok(Sum::ZERO.bytes(&ip[ipv6::SOURCE..ipv6::HEADER_LENGTH]));
    }
    write_u16(ip, ipv4::TOTAL_LENGTH, total_length);
    write_u16(ip, ipv4::IDENTIFICATION, read_u16(ip, ipv4::IDENTIFICATION).wrapping_add(position.number));
    ipv4::write_checksum(ip);
    Ok(Sum::ZERO.bytes(&ip[ipv4::SOURCE..ipv4::HEADER_LENGTH]))
}

/// FIN and PSH belong to the last segment, CWR to the first.
fn write_tcp(transport: &mut [u8], position: SegmentPosition) {
    let sequence = read_u32(transport, SEQUENCE).wrapping_add(position.offset);
    write_u32(transport, SEQUENCE, sequence);
    if !position.last {
        transport[tcp::FLAGS] &= !(TcpFlags::FIN.0 | TcpFlags::PSH.0);
    }
    if position.number > 0 {
        transport[tcp::FLAGS] &= !TcpFlags::CWR.0;
    }
}

//! Frame templates: every constant byte of a test frame, and the checksums over them, computed once
//! for a trial.
//!
//! The frame follows RFC 2544 appendix C and RFC 8219 section 4: UDP (or TCP, [`Transport`]), IPv4 with TOS 0,
//! identification 0 and DF set (so that the IPv6 side never needs a Fragment header, RFC 7915
//! section 4), IPv6 with traffic class and flow label 0. The program fills in addresses, ports, tag
//! and checksums; see `bpf/build.h` for the tag.

use std::net::Ipv6Addr;

use crate::layout::{FrameKind, FrameTemplate, TAG_BYTES, TAG_MAGIC, TEMPLATE_BYTES};
use crate::transport::Transport;

const FCS: u16 = 4;

/// Link-layer addresses of the frames of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Of the tester's port.
    pub source: [u8; 6],
    /// Of the gateway's port.
    pub destination: [u8; 6],
}

impl Ends {
    /// The beginning of the Ethernet header: destination, then source.
    pub fn header(&self) -> [u8; 12] {
        let mut header = [0; 12];
        header[..6].copy_from_slice(&self.destination);
        header[6..].copy_from_slice(&self.source);
        header
    }
}

/// The constant part of the frames of one direction.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// Link-layer addresses.
    pub ends: Ends,
    /// IP headers.
    pub kind: FrameKind,
    /// What is in them.
    pub transport: Transport,
    /// Length with the 4-byte FCS (RFC 2544 section 9), bytes; at least [`Template::shortest`].
    pub frame_bytes: u16,
    /// TTL or hop limit, in every IP header of the frame.
    pub hop_limit: u8,
}

impl Template {
    /// The frame of this kind that carries `payload` bytes of UDP payload.
    pub fn carrying(payload: u16, kind: FrameKind, ends: Ends, hop_limit: u8) -> Template {
        let frame_bytes = Template::headers_of(kind, Transport::Udp) + payload + FCS;
        Template { ends, kind, transport: Transport::Udp, frame_bytes, hop_limit }
    }

    /// The shortest frame that has room for the tag, in bytes with FCS.
    pub fn shortest(&self) -> u16 {
        self.kind.shortest() + self.transport.beyond_udp()
    }

    /// Bytes without FCS: what the interface sees.
    pub fn length(&self) -> u16 {
        self.frame_bytes.max(self.shortest()) - FCS
    }

    /// Payload of UDP or TCP in bytes, tag included.
    pub fn payload_bytes(&self) -> u16 {
        self.length() - self.headers()
    }

    /// Length of the outermost IP packet that carries the payload in headers of this kind.
    pub(crate) fn ip_bytes(&self, kind: FrameKind) -> u16 {
        Template::headers_of(kind, self.transport) - 14 + self.payload_bytes()
    }

    fn headers(&self) -> u16 {
        Template::headers_of(self.kind, self.transport)
    }

    fn headers_of(kind: FrameKind, transport: Transport) -> u16 {
        kind.transport_offset() + u16::from(transport.header_bytes())
    }

    /// What the kernel copies into each page: byte o is o.
    pub(crate) fn page(length: u16) -> Vec<u8> {
        (0..length).map(|o| (o & 0xff) as u8).collect()
    }

    /// Sum of the filler after the tag. The gateway moves it but does not change it.
    pub(crate) fn filler_sum(&self) -> u32 {
        let page = Template::page(self.length());
        sum(&page[usize::from(self.headers()) + TAG_BYTES..])
    }

    /// The record that the program copies from.
    pub(crate) fn render(&self, trial: u8) -> FrameTemplate {
        let mut bytes = [0u8; TEMPLATE_BYTES];
        bytes[..12].copy_from_slice(&self.ends.header());
        let (protocol, header) = (self.transport.protocol(), u16::from(self.transport.header_bytes()));
        let transport_bytes = self.payload_bytes() + header;
        let ip = match self.kind {
            FrameKind::Ipv4 => {
                bytes[12..14].copy_from_slice(&[0x08, 0x00]);
                Some(14)
            }
            FrameKind::Ipv6 => {
                self.put_ipv6(&mut bytes, protocol, transport_bytes);
                None
            }
            FrameKind::Ipv4InIpv6 => {
                self.put_ipv6(&mut bytes, 4, transport_bytes + 20);
                Some(54)
            }
        };
        let ip_sum = ip.map_or(0, |at| self.put_ipv4(&mut bytes, at, transport_bytes));
        let transport = usize::from(self.kind.transport_offset());
        let tag = transport + usize::from(header);
        self.transport.emit(&mut bytes[transport..tag], transport_bytes);
        bytes[tag..tag + 2].copy_from_slice(&TAG_MAGIC.to_be_bytes());
        bytes[tag + 2] = trial;
        let pseudo = [0, protocol, (transport_bytes >> 8) as u8, (transport_bytes & 0xff) as u8];
        let transport_sum = sum(&pseudo) + sum(&bytes[transport..tag + TAG_BYTES]) + self.filler_sum();
        let (length, kind) = (self.length(), self.kind as u8);
        FrameTemplate { bytes, transport_sum, ip_sum, length, kind, protocol, reserved: [0; 4] }
    }

    /// The same for background frames, whose addresses never change (the program reads them from
    /// the template).
    pub(crate) fn render_between(&self, trial: u8, source: Ipv6Addr, destination: Ipv6Addr) -> FrameTemplate {
        let mut template = self.render(trial);
        template.bytes[22..38].copy_from_slice(&source.octets());
        template.bytes[38..54].copy_from_slice(&destination.octets());
        template
    }

    fn put_ipv6(&self, bytes: &mut [u8], next_header: u8, payload: u16) {
        bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
        bytes[14] = 0x60;
        bytes[18..20].copy_from_slice(&payload.to_be_bytes());
        bytes[20] = next_header;
        bytes[21] = self.hop_limit;
    }

    fn put_ipv4(&self, bytes: &mut [u8], at: usize, transport_bytes: u16) -> u32 {
        bytes[at] = 0x45;
        bytes[at + 2..at + 4].copy_from_slice(&(transport_bytes + 20).to_be_bytes());
        bytes[at + 6] = 0x40;
        bytes[at + 8] = self.hop_limit;
        bytes[at + 9] = self.transport.protocol();
        sum(&bytes[at..at + 20])
    }
}

/// Ones' complement sum of native-order words, not folded. An odd last byte counts as the first of
/// a word.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|w| u32::from(u16::from_ne_bytes([w[0], w.get(1).copied().unwrap_or(0)]))).sum()
}

/// The Internet checksum of `bytes` (RFC 1071), in network order.
pub fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut s = sum(bytes);
    while s > 0xffff {
        s = (s & 0xffff) + (s >> 16);
    }
    (!u16::try_from(s).unwrap_or(0)).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::TcpHeader;

    const ENDS: Ends = Ends { source: [2, 0, 0, 0, 0, 1], destination: [2, 0, 0, 0, 0, 2] };

    fn template(kind: FrameKind, transport: Transport, frame_bytes: u16) -> Template {
        Template { ends: ENDS, kind, transport, frame_bytes, hop_limit: 10 }
    }

    const SEGMENTS: Transport =
        Transport::Tcp(TcpHeader { sequence: 1, acknowledgement: 2, flags: TcpHeader::ACK, window: 3 });

    #[test]
    fn the_shortest_frames_have_room_for_the_tag_alone() {
        for kind in [FrameKind::Ipv4, FrameKind::Ipv6, FrameKind::Ipv4InIpv6] {
            for transport in [Transport::Udp, SEGMENTS] {
                let template = template(kind, transport, 0);
                assert_eq!(template.payload_bytes(), 18);
                assert_eq!(template.filler_sum(), 0);
            }
        }
        let shortest = [FrameKind::Ipv4, FrameKind::Ipv4InIpv6].map(|kind| template(kind, SEGMENTS, 0).shortest());
        assert_eq!(shortest, [76, 116]);
    }

    #[test]
    fn the_checksum_of_rfc_1071_section_3() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), [0x22, 0x0d]);
    }

    #[test]
    fn lengths_in_the_headers_agree_with_the_frame() {
        let template = template(FrameKind::Ipv4InIpv6, Transport::Udp, 128).render(3);
        let at = |o: usize| u16::from_be_bytes([template.bytes[o], template.bytes[o + 1]]);
        assert_eq!((template.length, at(18), at(56), at(78)), (124, 70, 70, 50));
    }

    #[test]
    fn a_segment_stands_in_the_ip_header_and_before_the_tag() {
        let template = template(FrameKind::Ipv4, SEGMENTS, 128).render(3);
        assert_eq!((template.bytes[23], template.protocol), (6, 6));
        assert_eq!(
            template.bytes[34..56],
            [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0, 3, 0, 0, 0, 0, 0x54, 0x6f]
        );
        assert_eq!(template.bytes[16..18], [0, 110]);
    }
}

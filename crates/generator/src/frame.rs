//! Frame templates: every constant byte of a test frame, and the checksums over them, computed once
//! for a trial.
//!
//! The frame follows RFC 2544 appendix C and RFC 8219 section 4: UDP, IPv4 with TOS 0,
//! identification 0 and DF set (so that the IPv6 side never needs a Fragment header, RFC 7915
//! section 4), IPv6 with traffic class and flow label 0. The program fills in addresses, ports, tag
//! and checksums; see `bpf/build.h` for the tag.

use std::net::Ipv6Addr;

use crate::layout::{FrameKind, FrameTemplate, TAG_BYTES, TAG_MAGIC, TEMPLATE_BYTES};

const FCS: u16 = 4;
const UDP_HEADER: u16 = 8;

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
    /// Protocol headers.
    pub kind: FrameKind,
    /// Length with the 4-byte FCS (RFC 2544 section 9), bytes; at least [`FrameKind::shortest`].
    pub frame_bytes: u16,
    /// TTL or hop limit, in every IP header of the frame.
    pub hop_limit: u8,
}

impl Template {
    /// The frame of this kind that carries `payload` bytes of UDP payload.
    pub fn carrying(payload: u16, kind: FrameKind, ends: Ends, hop_limit: u8) -> Template {
        Template { ends, kind, frame_bytes: Template::headers_of(kind) + payload + FCS, hop_limit }
    }

    /// Bytes without FCS: what the interface sees.
    pub fn length(&self) -> u16 {
        self.frame_bytes.max(self.kind.shortest()) - FCS
    }

    /// UDP payload bytes, tag included.
    pub fn payload_bytes(&self) -> u16 {
        self.length() - self.headers()
    }

    /// Length of the outermost IP packet that carries `payload` bytes of UDP payload in headers of
    /// this kind.
    pub(crate) fn ip_bytes(kind: FrameKind, payload: u16) -> u16 {
        Template::headers_of(kind) - 14 + payload
    }

    fn headers(&self) -> u16 {
        Template::headers_of(self.kind)
    }

    fn headers_of(kind: FrameKind) -> u16 {
        match kind {
            FrameKind::Ipv4 => 42,
            FrameKind::Ipv6 => 62,
            FrameKind::Ipv4InIpv6 => 82,
        }
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
        let udp_bytes = self.payload_bytes() + UDP_HEADER;
        let ip = match self.kind {
            FrameKind::Ipv4 => {
                bytes[12..14].copy_from_slice(&[0x08, 0x00]);
                Some(14)
            }
            FrameKind::Ipv6 => {
                self.put_ipv6(&mut bytes, 17, udp_bytes);
                None
            }
            FrameKind::Ipv4InIpv6 => {
                self.put_ipv6(&mut bytes, 4, udp_bytes + 20);
                Some(54)
            }
        };
        let ip_sum = ip.map_or(0, |at| self.put_ipv4(&mut bytes, at, udp_bytes));
        let udp = self.kind.udp_offset();
        bytes[udp + 4..udp + 6].copy_from_slice(&udp_bytes.to_be_bytes());
        bytes[udp + 8..udp + 10].copy_from_slice(&TAG_MAGIC.to_be_bytes());
        bytes[udp + 10] = trial;
        let pseudo = [0, 17, (udp_bytes >> 8) as u8, (udp_bytes & 0xff) as u8];
        let udp_sum = sum(&pseudo) + sum(&bytes[udp..udp + usize::from(UDP_HEADER) + TAG_BYTES]) + self.filler_sum();
        FrameTemplate { bytes, udp_sum, ip_sum, length: self.length(), kind: self.kind as u8, reserved: [0; 5] }
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

    fn put_ipv4(&self, bytes: &mut [u8], at: usize, udp_bytes: u16) -> u32 {
        bytes[at] = 0x45;
        bytes[at + 2..at + 4].copy_from_slice(&(udp_bytes + 20).to_be_bytes());
        bytes[at + 6] = 0x40;
        bytes[at + 8] = self.hop_limit;
        bytes[at + 9] = 17;
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

    const ENDS: Ends = Ends { source: [2, 0, 0, 0, 0, 1], destination: [2, 0, 0, 0, 0, 2] };

    #[test]
    fn the_shortest_frames_have_room_for_the_tag_alone() {
        for kind in [FrameKind::Ipv4, FrameKind::Ipv6, FrameKind::Ipv4InIpv6] {
            let template = Template { ends: ENDS, kind, frame_bytes: kind.shortest(), hop_limit: 10 };
            assert_eq!(template.payload_bytes(), 18);
            assert_eq!(template.filler_sum(), 0);
        }
    }

    #[test]
    fn the_checksum_of_rfc_1071_section_3() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), [0x22, 0x0d]);
    }

    #[test]
    fn lengths_in_the_headers_agree_with_the_frame() {
        let template = Template { ends: ENDS, kind: FrameKind::Ipv4InIpv6, frame_bytes: 128, hop_limit: 10 }.render(3);
        let at = |o: usize| u16::from_be_bytes([template.bytes[o], template.bytes[o + 1]]);
        assert_eq!((template.length, at(18), at(56), at(78)), (124, 70, 70, 50));
    }
}

//! The single parse of a packet: everything that classification, look-up and transformation want to
//! know.
//!
//! Read first: RFC 791 section 3.1, RFC 8200 sections 3 and 4, RFC 3128 (tiny fragments).
//!
//! [`parse`] cuts off what lies behind the packet (Ethernet padding), verifies the header checksum
//! of IPv4 and all lengths, and reads ports or identifiers. [`Parsed::embedded`] does the same,
//! leniently, for the packet inside an ICMP error; it is a second step because few packets need it
//! and `Parsed` has to stay small.
//!
//! Invariants of a [`Parsed`] from [`parse`]: `transport_offset <= length == packet.len()`; a
//! [`Payload`] other than `Piece` and `Other` has its whole fixed header in the packet.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::options::{BadOption, HeaderOption};
use tombolo_wire::{
    Ipv4View, Ipv6View, Port, Protocol, TcpFlags, dccp, icmpv4, icmpv6, ipv4, read_u16, sctp, tcp, udp,
};

use crate::packet::{Packet, Segmentation};
use crate::verdict::DropReason;

/// What a packet of one family says. `A` is [`Ipv4Addr`] or [`Ipv6Addr`], so that the families
/// cannot be confused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsed<A> {
    /// Source address.
    pub source: A,
    /// Destination address.
    pub destination: A,
    /// Bytes of the packet, IP header included. In an embedded packet: what its header says, which
    /// may be more than there is.
    pub length: u32,
    /// Where the transport header, or the piece of a fragment, begins: bytes from the start of the
    /// packet. IPv4 options and IPv6 extension headers, the Fragment header among them, lie before
    /// it.
    pub transport_offset: u16,
    /// Source port; the identifier of an echo.
    pub source_port: Port,
    /// Destination port; the identifier of an echo.
    pub destination_port: Port,
    /// Protocol number of the transport; IPv4 and IPv6 have different ones for ICMP.
    pub protocol: Protocol,
    /// What stands at `transport_offset`.
    pub payload: Payload,
    /// Flags of a TCP segment; none for anything else.
    pub tcp_flags: TcpFlags,
    /// TTL or hop limit as received.
    pub hop_limit: u8,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// IPv4: DF is set. IPv6: true, for these packets are never fragmented on their way, unless the
    /// packet was reassembled.
    pub dont_fragment: bool,
    /// Place in a datagram, if the packet is a piece of one or has an IPv6 Fragment header. For
    /// IPv4 always present, since every IPv4 header has an identification.
    pub fragment: Option<Fragment>,
    /// Bytes that the largest piece had behind its IP headers, if the packet was reassembled; else 0. Whoever fragments knows
    /// what the path takes: the pieces that are made of it again are no larger.
    pub largest_piece: u16,
    /// Something in the headers that forbids translation.
    pub obstacle: Option<Obstacle>,
}

/// The result of [`parse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnyParsed {
    /// An IPv4 packet.
    V4(Parsed<Ipv4Addr>),
    /// An IPv6 packet.
    V6(Parsed<Ipv6Addr>),
}

/// What stands where the transport header is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Payload {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP or ICMPv6 echo request.
    EchoRequest,
    /// ICMP or ICMPv6 echo reply.
    EchoReply,
    /// An ICMP or ICMPv6 message about another packet, which it carries.
    IcmpError,
    /// Any other ICMP or ICMPv6 message.
    IcmpOther,
    /// SCTP (RFC 9260).
    Sctp,
    /// DCCP (RFC 4340).
    Dccp,
    /// UDP-Lite (RFC 3828).
    UdpLite,
    /// A transport that is not looked into.
    Other,
    /// A fragment other than the first: there is no transport header.
    Piece,
}

impl Payload {
    /// True for what has two ports, or an identifier that stands for both.
    #[inline]
    #[must_use]
    pub const fn has_ports(self) -> bool {
        match self {
            Self::Tcp | Self::Udp | Self::Sctp | Self::Dccp | Self::UdpLite => true,
            Self::EchoRequest | Self::EchoReply => true,
            Self::IcmpError | Self::IcmpOther | Self::Other | Self::Piece => false,
        }
    }
}

/// Place of a packet in a fragmented datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Fragment {
    /// Identification; 16 bits in IPv4.
    pub identification: u32,
    /// Offset in units of 8 bytes.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
}

impl Fragment {
    /// True if the packet is only a piece: not a whole packet, and not an atomic fragment (RFC
    /// 6946).
    #[must_use]
    #[inline]
    pub const fn is_piece(self) -> bool {
        self.more || self.offset != 0
    }
}

/// What in the headers forbids translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// IPv4: a source route that is not used up (RFC 7915 section 4.1).
    SourceRoute,
    /// IPv6: a Routing header with segments left (RFC 7915 section 5.1).
    SegmentsLeft {
        /// Offset of the segments-left byte from the start of the packet.
        offset: u16,
    },
    /// IPv6: an extension header other than ESP behind the Fragment header (RFC 7915 section
    /// 5.1.1).
    HeaderAfterFragment,
    /// IPv6: a fragment that is not the last has no multiple of 8 bytes, or ends behind the largest
    /// datagram (RFC 8200 section 4.5).
    BadPiece {
        /// Offset of the field that is wrong from the start of the packet.
        offset: u16,
    },
}

impl<A> Parsed<A> {
    /// True if the packet is a piece of a datagram.
    #[must_use]
    #[inline]
    pub fn is_piece(&self) -> bool {
        self.fragment.is_some_and(Fragment::is_piece)
    }

    /// True for the first piece of several: it has the transport header.
    #[must_use]
    #[inline]
    pub fn is_first_piece(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.more && fragment.offset == 0)
    }

    /// Bytes behind the IP headers, as the packet's own length says.
    #[must_use]
    #[inline]
    pub fn transport_length(&self) -> u32 {
        self.length - u32::from(self.transport_offset)
    }
}

/// Parses the packet and cuts off what lies behind it.
///
/// # Errors
/// [`DropReason::NotIp`], [`DropReason::Malformed`], [`DropReason::BadChecksum`] (IPv4 header
/// only), or [`DropReason::FragmentInvalid`] for tiny fragments (RFC 3128).
#[inline]
pub fn parse(packet: &mut Packet<'_>) -> Result<AnyParsed, DropReason> {
    match packet.bytes().first().map(|first| first >> 4) {
        Some(4) => parse_ipv4(packet).map(AnyParsed::V4),
        Some(6) => parse_ipv6(packet).map(AnyParsed::V6),
        _ => Err(DropReason::NotIp),
    }
}

/// Parses a packet known to be IPv4; see [`parse`].
///
/// # Errors
/// As [`parse`].
#[inline]
pub fn parse_ipv4(packet: &mut Packet<'_>) -> Result<Parsed<Ipv4Addr>, DropReason> {
    let view = Ipv4View::parse(packet.bytes()).map_err(|_| DropReason::Malformed)?;
    if !view.checksum_verifies() {
        return Err(DropReason::BadChecksum);
    }
    let mut parsed = ipv4_header(view)?;
    read_transport(&mut parsed, view.payload(), Icmp::V4, Strictness::Wire)?;
    check_udp_length(&parsed, view.payload(), packet)?;
    packet.truncate(parsed.length as usize);
    Ok(parsed)
}

/// Parses a packet known to be IPv6; see [`parse`].
///
/// # Errors
/// As [`parse`].
#[inline]
pub fn parse_ipv6(packet: &mut Packet<'_>) -> Result<Parsed<Ipv6Addr>, DropReason> {
    let view = Ipv6View::parse(packet.bytes()).map_err(|_| DropReason::Malformed)?;
    let mut parsed = ipv6_header(view)?;
    let transport = &view.payload()[usize::from(parsed.transport_offset) - IPV6_HEADER..];
    read_transport(&mut parsed, transport, Icmp::V6, Strictness::Wire)?;
    check_udp_length(&parsed, transport, packet)?;
    packet.truncate(parsed.length as usize);
    Ok(parsed)
}

const IPV6_HEADER: usize = tombolo_wire::ipv6::HEADER_LENGTH;

impl Parsed<Ipv4Addr> {
    /// The packet that an ICMP error in `packet` is about. It begins 8 bytes behind
    /// `transport_offset`.
    ///
    /// A source quench or a redirect goes through no gateway (RFC 5508 REQ-10, RFC 6633 section 3,
    /// RFC 7915 section 4.2): the one is obsolete, the other is for one link.
    ///
    /// # Errors
    /// [`DropReason::IcmpErrorUnusable`] if too little of it is there to tell what it was,
    /// [`DropReason::IcmpUntranslatable`] for source quench and redirect.
    pub fn embedded(&self, packet: &Packet<'_>) -> Result<Self, DropReason> {
        let kind = packet.bytes().get(usize::from(self.transport_offset));
        if matches!(kind, Some(&(icmpv4::SOURCE_QUENCH | icmpv4::REDIRECT))) {
            return Err(DropReason::IcmpUntranslatable);
        }
        parse_quoted_ipv4(embedded_bytes(self.transport_offset, packet))
    }
}

/// The beginning of an IPv4 packet, as far as an error quotes it.
///
/// # Errors
/// [`DropReason::IcmpErrorUnusable`] if too little of it is there to tell what it was.
pub fn parse_quoted_ipv4(bytes: &[u8]) -> Result<Parsed<Ipv4Addr>, DropReason> {
    let view = Ipv4View::parse_header(bytes).map_err(|_| DropReason::IcmpErrorUnusable)?;
    if usize::from(view.total_length()) < view.header_length() {
        return Err(DropReason::IcmpErrorUnusable);
    }
    let mut parsed = ipv4_header(view).map_err(|_| DropReason::IcmpErrorUnusable)?;
    read_transport(&mut parsed, view.payload(), Icmp::V4, Strictness::Embedded)?;
    Ok(parsed)
}

impl Parsed<Ipv6Addr> {
    /// The packet that an ICMPv6 error in `packet` is about. It begins 8 bytes behind
    /// `transport_offset`.
    ///
    /// # Errors
    /// [`DropReason::IcmpErrorUnusable`] if too little of it is there to tell what it was.
    pub fn embedded(&self, packet: &Packet<'_>) -> Result<Self, DropReason> {
        let bytes = embedded_bytes(self.transport_offset, packet);
        let view = Ipv6View::parse_header(bytes).map_err(|_| DropReason::IcmpErrorUnusable)?;
        let mut parsed = ipv6_header(view).map_err(|_| DropReason::IcmpErrorUnusable)?;
        if u32::from(parsed.transport_offset) > parsed.length {
            return Err(DropReason::IcmpErrorUnusable);
        }
        let transport = &bytes[usize::from(parsed.transport_offset)..];
        read_transport(&mut parsed, transport, Icmp::V6, Strictness::Embedded)?;
        Ok(parsed)
    }
}

fn embedded_bytes<'a>(transport_offset: u16, packet: &'a Packet<'_>) -> &'a [u8] {
    packet.bytes().get(usize::from(transport_offset) + icmpv4::HEADER_LENGTH..).unwrap_or_default()
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "an IPv4 header has at most 60 bytes")]
fn ipv4_header(view: Ipv4View<'_>) -> Result<Parsed<Ipv4Addr>, DropReason> {
    let obstacle = if view.header_length() > ipv4::HEADER_LENGTH { source_route(view)? } else { None };
    Ok(Parsed {
        source: view.source(),
        destination: view.destination(),
        length: u32::from(view.total_length()),
        transport_offset: view.header_length() as u16,
        source_port: Port(0),
        destination_port: Port(0),
        protocol: view.protocol(),
        payload: Payload::Other,
        tcp_flags: TcpFlags(0),
        hop_limit: view.ttl(),
        traffic_class: view.tos(),
        dont_fragment: view.dont_fragment(),
        fragment: Some(Fragment {
            identification: u32::from(view.identification()),
            offset: view.fragment_offset(),
            more: view.more_fragments(),
        }),
        largest_piece: 0,
        obstacle,
    })
}

/// A source route is used up when its pointer lies behind its end; the pointer counts from the kind
/// byte, from 1 (RFC 791).
fn source_route(view: Ipv4View<'_>) -> Result<Option<Obstacle>, DropReason> {
    for option in view.options() {
        let HeaderOption { kind, data, .. } = option.map_err(|BadOption| DropReason::Malformed)?;
        let is_route = matches!(kind, ipv4::OPTION_LOOSE_SOURCE_ROUTE | ipv4::OPTION_STRICT_SOURCE_ROUTE);
        if is_route && data.first().is_some_and(|&pointer| usize::from(pointer) <= data.len() + 2) {
            return Ok(Some(Obstacle::SourceRoute));
        }
    }
    Ok(None)
}

#[inline]
fn ipv6_header(view: Ipv6View<'_>) -> Result<Parsed<Ipv6Addr>, DropReason> {
    let upper = view.upper_layer().map_err(|_| DropReason::Malformed)?;
    let narrow = |offset: usize| u16::try_from(offset).map_err(|_| DropReason::Malformed);
    let obstacle = match upper.segments_left {
        Some(offset) => Some(Obstacle::SegmentsLeft { offset: narrow(offset)? }),
        None if upper.header_after_fragment => Some(Obstacle::HeaderAfterFragment),
        None => None,
    };
    Ok(Parsed {
        source: view.source(),
        destination: view.destination(),
        length: 40 + u32::from(view.payload_length()),
        transport_offset: narrow(upper.offset)?,
        source_port: Port(0),
        destination_port: Port(0),
        protocol: upper.protocol,
        payload: Payload::Other,
        tcp_flags: TcpFlags(0),
        hop_limit: view.hop_limit(),
        traffic_class: view.traffic_class(),
        dont_fragment: true,
        fragment: upper.fragment.map(|header| Fragment {
            identification: header.identification,
            offset: header.offset,
            more: header.more,
        }),
        largest_piece: 0,
        obstacle,
    })
}

/// Which of the two protocols called ICMP belongs to the family.
#[derive(Clone, Copy)]
enum Icmp {
    V4,
    V6,
}

/// How much of a transport header has to be there.
#[derive(Clone, Copy, PartialEq)]
enum Strictness {
    /// All of it.
    Wire,
    /// Its first 8 bytes, which is what an ICMP error must quote at least (RFC 792).
    Embedded,
}

impl Strictness {
    /// The first `whole` bytes of `transport`, or the first 8 if that suffices.
    #[inline]
    fn header<'a, A>(self, parsed: &Parsed<A>, transport: &'a [u8], whole: usize) -> Result<&'a [u8], DropReason> {
        match self {
            Self::Wire => transport.get(..whole).ok_or(if parsed.is_piece() {
                DropReason::FragmentInvalid
            } else {
                DropReason::Malformed
            }),
            Self::Embedded => transport.get(..8).ok_or(DropReason::IcmpErrorUnusable),
        }
    }
}

/// Reads what the transport header says.
#[inline]
fn read_transport<A>(
    parsed: &mut Parsed<A>,
    transport: &[u8],
    icmp: Icmp,
    strictness: Strictness,
) -> Result<(), DropReason> {
    if parsed.is_piece() && strictness == Strictness::Wire {
        match check_piece(parsed) {
            Ok(()) => {}
            // Whoever reassembles tells the sender; in IPv4 nobody does.
            Err(Some(offset)) if matches!(icmp, Icmp::V6) => {
                parsed.obstacle = parsed.obstacle.or(Some(Obstacle::BadPiece { offset }));
                parsed.payload = Payload::Piece;
                return Ok(());
            }
            Err(_) => return Err(DropReason::FragmentInvalid),
        }
    }
    if let Some(fragment) = parsed.fragment
        && fragment.offset != 0
    {
        parsed.payload = Payload::Piece;
        // A piece that begins inside the TCP header could overwrite its flags (RFC 3128 section 2).
        let overwrites_tcp = fragment.offset == 1 && parsed.protocol == Protocol::TCP;
        return if overwrites_tcp && strictness == Strictness::Wire {
            Err(DropReason::FragmentInvalid)
        } else {
            Ok(())
        };
    }
    if parsed.obstacle == Some(Obstacle::HeaderAfterFragment) {
        return Ok(());
    }
    match (parsed.protocol, icmp) {
        (Protocol::TCP, _) => {
            let header = strictness.header(parsed, transport, tcp::HEADER_LENGTH)?;
            parsed.payload = Payload::Tcp;
            read_ports(parsed, header);
            if let Some(&flags) = header.get(tcp::FLAGS) {
                parsed.tcp_flags = TcpFlags(flags);
            }
            if strictness == Strictness::Wire && header[tcp::DATA_OFFSET] >> 4 < 5 {
                return Err(DropReason::Malformed);
            }
        }
        (Protocol::UDP, _) => {
            let header = strictness.header(parsed, transport, udp::HEADER_LENGTH)?;
            parsed.payload = Payload::Udp;
            read_ports(parsed, header);
        }
        (Protocol::ICMP, Icmp::V4) | (Protocol::ICMPV6, Icmp::V6) => {
            let header = strictness.header(parsed, transport, icmpv4::HEADER_LENGTH)?;
            parsed.payload = icmp.payload(header[0]);
            if matches!(parsed.payload, Payload::EchoRequest | Payload::EchoReply) {
                let identifier = Port(read_u16(header, 4));
                (parsed.source_port, parsed.destination_port) = (identifier, identifier);
            }
        }
        (protocol, _) => {
            if let Some((payload, whole)) = with_ports(protocol) {
                let header = strictness.header(parsed, transport, whole)?;
                parsed.payload = payload;
                read_ports(parsed, header);
            }
        }
    }
    Ok(())
}

/// Transports that begin with two ports, besides TCP and UDP, and the bytes of their headers that
/// are always there (RFC 9260 section 3.1, RFC 4340 section 5.1, RFC 3828 section 3.1).
fn with_ports(protocol: Protocol) -> Option<(Payload, usize)> {
    match protocol {
        Protocol::SCTP => Some((Payload::Sctp, sctp::HEADER_LENGTH)),
        Protocol::DCCP => Some((Payload::Dccp, dccp::HEADER_LENGTH)),
        Protocol::UDP_LITE => Some((Payload::UdpLite, udp::HEADER_LENGTH)),
        _ => None,
    }
}

/// A piece lies inside the largest datagram, and only the last may be of any length (RFC 8200
/// section 4.5, RFC 791). The error names the offset of the field that is wrong, as IPv6 has it; an
/// empty piece has none that is.
fn check_piece<A>(parsed: &Parsed<A>) -> Result<(), Option<u16>> {
    let Fragment { offset, more, .. } = parsed.fragment.unwrap_or_default();
    let length = parsed.transport_length();
    if more && length == 0 {
        return Err(None);
    }
    if more && !length.is_multiple_of(8) {
        return Err(Some(PAYLOAD_LENGTH));
    }
    if u32::from(offset) * 8 + length > u32::from(u16::MAX) {
        // The Fragment header is the last in front of a piece.
        return Err(Some(parsed.transport_offset.saturating_sub(FRAGMENT_HEADER - FRAGMENT_OFFSET)));
    }
    Ok(())
}

/// Offset of the payload length in an IPv6 header, length of a Fragment header, and offset of the
/// fragment offset in it.
const PAYLOAD_LENGTH: u16 = 4;
const FRAGMENT_HEADER: u16 = 8;
const FRAGMENT_OFFSET: u16 = 2;

#[inline]
fn read_ports<A>(parsed: &mut Parsed<A>, header: &[u8]) {
    parsed.source_port = Port(read_u16(header, 0));
    parsed.destination_port = Port(read_u16(header, 2));
}

impl Icmp {
    fn payload(self, kind: u8) -> Payload {
        match (self, kind) {
            (Self::V4, icmpv4::ECHO_REQUEST) | (Self::V6, icmpv6::ECHO_REQUEST) => Payload::EchoRequest,
            (Self::V4, icmpv4::ECHO_REPLY) | (Self::V6, icmpv6::ECHO_REPLY) => Payload::EchoReply,
            (Self::V4, kind) if icmpv4::is_error(kind) => Payload::IcmpError,
            (Self::V6, kind) if icmpv6::is_error(kind) => Payload::IcmpError,
            _ => Payload::IcmpOther,
        }
    }
}

/// A whole datagram has at least its header and at most what the packet carries. In super-packets
/// the field counts otherwise.
#[inline]
fn check_udp_length<A>(parsed: &Parsed<A>, transport: &[u8], packet: &Packet<'_>) -> Result<(), DropReason> {
    if parsed.payload != Payload::Udp || packet.offload.segmentation != Segmentation::None {
        return Ok(());
    }
    let length = usize::from(read_u16(transport, udp::LENGTH));
    let fits = length >= udp::HEADER_LENGTH && (length <= transport.len() || parsed.is_piece());
    if fits { Ok(()) } else { Err(DropReason::Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Offload;
    use tombolo_wire::{Ipv4Header, Ipv6Header};

    fn v4(protocol: Protocol, fragment_word: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 20];
        let header = Ipv4Header {
            tos: 0,
            total_length: u16::try_from(20 + payload.len()).unwrap(),
            identification: 7,
            fragment_word,
            ttl: 64,
            protocol,
            source: Ipv4Addr::new(192, 0, 2, 1),
            destination: Ipv4Addr::new(198, 51, 100, 1),
        };
        header.emit(&mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    }

    fn v6(next_header: Protocol, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        let header = Ipv6Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: u16::try_from(payload.len()).unwrap(),
            next_header,
            hop_limit: 64,
            source: Ipv6Addr::LOCALHOST,
            destination: Ipv6Addr::LOCALHOST,
        };
        header.emit(&mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    }

    fn parse4(mut bytes: Vec<u8>) -> Result<Parsed<Ipv4Addr>, DropReason> {
        let length = bytes.len();
        let mut packet = Packet::new(&mut bytes, 0, length, Offload::default()).unwrap();
        let parsed = parse_ipv4(&mut packet)?;
        assert_eq!(parsed.length as usize, packet.len());
        Ok(parsed)
    }

    fn parse6(mut bytes: Vec<u8>) -> Result<Parsed<Ipv6Addr>, DropReason> {
        let length = bytes.len();
        parse_ipv6(&mut Packet::new(&mut bytes, 0, length, Offload::default()).unwrap())
    }

    const UDP: [u8; 9] = [0x9c, 0x40, 0, 53, 0, 9, 0, 0, 0xff];

    #[test]
    fn ports_and_lengths_of_a_datagram_are_read_and_padding_is_cut_off() {
        let mut bytes = v4(Protocol::UDP, ipv4::DF, &UDP);
        bytes.extend_from_slice(&[0; 17]);
        let parsed = parse4(bytes).unwrap();
        assert_eq!((parsed.payload, parsed.length, parsed.transport_offset), (Payload::Udp, 29, 20));
        assert_eq!((parsed.source_port, parsed.destination_port), (Port(40000), Port(53)));
        assert!(parsed.dont_fragment && !parsed.is_piece());
    }

    #[test]
    fn a_wrong_header_checksum_is_named() {
        let mut bytes = v4(Protocol::UDP, 0, &UDP);
        bytes[8] = 63;
        assert_eq!(parse4(bytes), Err(DropReason::BadChecksum));
    }

    #[test]
    fn an_echo_has_its_identifier_in_both_ports() {
        let parsed = parse6(v6(Protocol::ICMPV6, &[128, 0, 0, 0, 0x12, 0x34, 0, 1])).unwrap();
        assert_eq!(
            (parsed.payload, parsed.source_port.0, parsed.destination_port.0),
            (Payload::EchoRequest, 0x1234, 0x1234)
        );
    }

    #[test]
    fn icmp_of_the_other_family_is_just_another_protocol() {
        assert_eq!(parse4(v4(Protocol::ICMPV6, 0, &[128; 8])).unwrap().payload, Payload::Other);
        assert_eq!(parse6(v6(Protocol::ICMP, &[8; 8])).unwrap().payload, Payload::Other);
    }

    #[test]
    fn tiny_fragments_of_tcp_are_refused() {
        assert_eq!(parse4(v4(Protocol::TCP, ipv4::MF, &[0; 8])), Err(DropReason::FragmentInvalid));
        assert_eq!(parse4(v4(Protocol::TCP, 1, &[0; 8])), Err(DropReason::FragmentInvalid));
        assert_eq!(parse4(v4(Protocol::TCP, 3, &[0; 8])).unwrap().payload, Payload::Piece);
        assert_eq!(parse4(v4(Protocol::TCP, 0, &[0; 8])), Err(DropReason::Malformed));
    }

    #[test]
    fn pieces_that_end_beyond_a_datagram_or_leave_gaps_are_refused() {
        assert_eq!(parse4(v4(Protocol(253), 8191, &[0; 7])).unwrap().payload, Payload::Piece);
        assert_eq!(parse4(v4(Protocol(253), 8191, &[0; 8])), Err(DropReason::FragmentInvalid));
        assert_eq!(parse4(v4(Protocol(253), ipv4::MF, &[0; 9])), Err(DropReason::FragmentInvalid));
        assert_eq!(parse4(v4(Protocol(253), ipv4::MF, &[])), Err(DropReason::FragmentInvalid));
    }

    #[test]
    fn source_routes_count_until_they_are_used_up() {
        let with = |pointer: u8| {
            let mut bytes = v4(Protocol(253), 0, &[131, 7, pointer, 9, 9, 9, 9, 0]);
            bytes[0] = 0x47;
            ipv4::write_checksum(&mut bytes);
            parse4(bytes).unwrap().obstacle
        };
        assert_eq!(with(4), Some(Obstacle::SourceRoute));
        assert_eq!(with(7), Some(Obstacle::SourceRoute));
        assert_eq!(with(8), None);
    }

    #[test]
    fn options_that_lead_out_of_the_header_are_malformed() {
        let mut bytes = v4(Protocol(253), 0, &[7, 0, 0, 0]);
        bytes[0] = 0x46;
        ipv4::write_checksum(&mut bytes);
        assert_eq!(parse4(bytes), Err(DropReason::Malformed));
    }

    #[test]
    fn a_datagram_longer_than_its_packet_is_malformed_unless_it_is_a_first_fragment() {
        let mut udp = [0; 16];
        udp[5] = 17;
        assert_eq!(parse4(v4(Protocol::UDP, 0, &udp)), Err(DropReason::Malformed));
        assert!(parse4(v4(Protocol::UDP, ipv4::MF, &udp)).unwrap().is_first_piece());
    }

    #[test]
    fn an_embedded_packet_may_be_cut_behind_eight_bytes_of_transport() {
        let mut inner = v4(Protocol::TCP, 0, &[0; 20]);
        inner[22..24].copy_from_slice(&[0, 80]);
        let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&inner[..28]);
        let mut bytes = v4(Protocol::ICMP, 0, &message);
        let length = bytes.len();
        let mut packet = Packet::new(&mut bytes, 0, length, Offload::default()).unwrap();
        let parsed = parse_ipv4(&mut packet).unwrap();
        assert_eq!(parsed.payload, Payload::IcmpError);
        let embedded = parsed.embedded(&packet).unwrap();
        assert_eq!((embedded.payload, embedded.length, embedded.destination_port), (Payload::Tcp, 40, Port(80)));
        packet.truncate(20 + 8 + 27);
        assert_eq!(parsed.embedded(&packet), Err(DropReason::IcmpErrorUnusable));
    }

    #[test]
    fn a_header_behind_a_fragment_header_is_an_obstacle() {
        let parsed = parse6(v6(Protocol::IPV6_FRAGMENT, &[60, 0, 0, 1, 0, 0, 0, 1, 6, 0, 0, 0, 0, 0, 0, 0])).unwrap();
        assert_eq!(parsed.obstacle, Some(Obstacle::HeaderAfterFragment));
    }

    #[test]
    fn neither_version_is_not_ip() {
        let mut packet = Packet::new(&mut [], 0, 0, Offload::default()).map(|mut packet| parse(&mut packet));
        assert_eq!(packet.take(), Some(Err(DropReason::NotIp)));
    }

    #[test]
    fn parsed_stays_small() {
        assert!(size_of::<Parsed<Ipv4Addr>>() <= 48, "{}", size_of::<Parsed<Ipv4Addr>>());
        assert!(size_of::<Parsed<Ipv6Addr>>() <= 72, "{}", size_of::<Parsed<Ipv6Addr>>());
    }
}

//! A million damaged packets through stateless translation, errors, fragments, answers and
//! reassembly: nothing panics, nothing leaves with a wrong length or header checksum, and what was
//! right before is right behind.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod bytes;

use std::net::{Ipv4Addr, Ipv6Addr};

use bytes::{Buffer, ipv4_packet, ipv6_packet, naive_sum, write_transport_checksum};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use tombolo_engine::mechanism::mtu::clamp_segment_size;
use tombolo_engine::mechanism::reply::{may_answer_ipv4, may_answer_ipv6, reply_ipv4, reply_ipv6};
use tombolo_engine::mechanism::screen::{screen_ipv4, screen_ipv6};
use tombolo_engine::mechanism::{
    ErrorRewrite, Fragments, IdentificationGenerator, ReassemblyLimits, Refusal, Rewrite, Room, TranslateSettings,
    UdpZeroChecksum, translate_4to6, translate_6to4, translate_error_4to6, translate_error_6to4,
};
use tombolo_engine::packet::{ChecksumState, Packet, Segmentation};
use tombolo_engine::parse::{AnyParsed, Parsed, Payload, parse};
use tombolo_wire::Port;

const PACKETS: u32 = 1_000_000;
const A4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const B4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 9);

struct Gateway {
    identifications: IdentificationGenerator,
    fragments: Fragments,
    room: Room,
    settings: TranslateSettings,
    now: u64,
    sent: u64,
    answered: u64,
}

fn to6(port: Option<Port>) -> Rewrite<Ipv6Addr> {
    Rewrite { source: B6, destination: A6, source_port: port, destination_port: None }
}

fn to4(port: Option<Port>) -> Rewrite<Ipv4Addr> {
    Rewrite { source: B4, destination: A4, source_port: None, destination_port: port }
}

impl Gateway {
    fn pass(&mut self, packet: &mut Packet<'_>, port: Option<Port>) {
        self.now += 1_000_000;
        match parse(packet) {
            Ok(AnyParsed::V4(parsed)) => self.pass_v4(packet, &parsed, port),
            Ok(AnyParsed::V6(parsed)) => self.pass_v6(packet, &parsed, port),
            Err(_) => {}
        }
    }

    fn pass_v4(&mut self, packet: &mut Packet<'_>, parsed: &Parsed<Ipv4Addr>, port: Option<Port>) {
        let whole = self.fragments.accept_ipv4(packet, parsed, None, self.now, &mut self.room);
        let _ = whole.map(|whole| whole.map(|(whole, _)| check(&whole)));
        if let Err(Refusal { answer: Some(answer), .. }) = self.forward_v4(packet, parsed, port)
            && may_answer_ipv4(parsed)
        {
            reply_ipv4(packet, parsed, B4, answer, &mut self.identifications).unwrap();
            bytes::assert_valid(packet.bytes());
            self.answered += 1;
        }
    }

    fn forward_v4(
        &mut self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        port: Option<Port>,
    ) -> Result<(), Refusal> {
        screen_ipv4(parsed)?;
        if parsed.payload == Payload::IcmpError {
            let embedded = parsed.embedded(packet)?;
            let to = ErrorRewrite { source: B6, destination: A6, embedded: to6(port), node: None };
            translate_error_4to6(packet, parsed, &embedded, &to, &self.settings)?;
            bytes::assert_valid(packet.bytes());
            self.sent += 1;
            return Ok(());
        }
        let translated = translate_4to6(packet, parsed, &to6(port), &self.settings)?;
        self.clamp(packet, 40, parsed.payload);
        translated.send(packet, &mut |packet: &mut Packet<'_>| check_and_count(packet, &mut self.sent))?;
        Ok(())
    }

    fn pass_v6(&mut self, packet: &mut Packet<'_>, parsed: &Parsed<Ipv6Addr>, port: Option<Port>) {
        let whole = self.fragments.accept_ipv6(packet, parsed, self.now, &mut self.room);
        let _ = whole.map(|whole| whole.map(|(whole, _)| check(&whole)));
        if let Err(Refusal { answer: Some(answer), .. }) = self.forward_v6(packet, parsed, port)
            && may_answer_ipv6(packet, parsed, answer)
        {
            reply_ipv6(packet, parsed, B6, answer).unwrap();
            bytes::assert_valid(packet.bytes());
            self.answered += 1;
        }
    }

    fn forward_v6(
        &mut self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv6Addr>,
        port: Option<Port>,
    ) -> Result<(), Refusal> {
        screen_ipv6(parsed)?;
        if parsed.payload == Payload::IcmpError {
            let embedded = parsed.embedded(packet)?;
            let node = port.map(|_| A6);
            let to = ErrorRewrite { source: B4, destination: A4, embedded: to4(port), node };
            translate_error_6to4(packet, parsed, &embedded, &to, &self.settings, &mut self.identifications)?;
            bytes::assert_valid(packet.bytes());
            self.sent += 1;
            return Ok(());
        }
        let translated = translate_6to4(packet, parsed, &to4(port), &self.settings, &mut self.identifications)?;
        self.clamp(packet, 20, parsed.payload);
        translated.send(packet, &mut |packet: &mut Packet<'_>| check_and_count(packet, &mut self.sent))?;
        Ok(())
    }

    fn clamp(&self, packet: &mut Packet<'_>, transport_offset: usize, payload: Payload) {
        if payload == Payload::Tcp {
            let state = packet.offload.checksum;
            clamp_segment_size(&mut packet.bytes_mut()[transport_offset..], 1220, state);
        }
    }
}

/// Length and header checksum; the transport may have been damaged before.
fn check(packet: &Packet<'_>) {
    let bytes = packet.bytes();
    let length =
        usize::from(u16::from_be_bytes(if bytes[0] >> 4 == 4 { [bytes[2], bytes[3]] } else { [bytes[4], bytes[5]] }));
    if bytes[0] >> 4 == 4 {
        assert_eq!(length, bytes.len());
        assert_eq!(naive_sum(&[&bytes[..usize::from(bytes[0] & 15) * 4]]), 0xffff);
    } else {
        assert_eq!(length + 40, bytes.len());
    }
}

fn check_and_count(packet: &Packet<'_>, sent: &mut u64) {
    check(packet);
    *sent += 1;
}

struct Source(ChaCha8Rng);

impl Source {
    fn below(&mut self, limit: usize) -> usize {
        self.0.next_u32() as usize % limit
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    /// A transport of some kind, and its protocol number for IPv4.
    fn transport(&mut self, addresses: &[u8]) -> (u8, Vec<u8>) {
        let size = if self.below(20) == 0 { self.below(3000) } else { self.below(60) };
        let payload = vec![0x55; size];
        let head: [u8; 8] = std::array::from_fn(|_| self.byte());
        match self.below(5) {
            0 => {
                let mut tcp =
                    [&head[..], &[0; 4], &[0x60, self.byte(), 0xff, 0xff, 0, 0, 0, 0, 2, 4, 5, 0xb4]].concat();
                tcp.extend(payload);
                write_transport_checksum(&mut tcp, 16, 6, addresses);
                (6, tcp)
            }
            1 => {
                let length = u16::try_from(8 + size).unwrap().to_be_bytes();
                let mut udp = [&head[..4], &length, &[0, 0], &payload].concat();
                if self.below(4) > 0 {
                    write_transport_checksum(&mut udp, 6, 17, addresses);
                }
                (17, udp)
            }
            2 => (253, payload),
            _ => (1, [&[8, 0, 0, 0], &head[..4], &payload].concat()),
        }
    }

    fn packet(&mut self, depth: u8) -> Vec<u8> {
        let word = match self.below(6) {
            0 => 0x4000,
            1 => 0x2000,
            2 => u16::try_from(self.below(200)).unwrap(),
            _ => 0,
        };
        let is_v4 = self.below(2) == 0;
        let addresses = if is_v4 { [A4.octets(), B4.octets()].concat() } else { [A6.octets(), B6.octets()].concat() };
        let (protocol, mut transport) = self.transport(&addresses);
        if protocol == 1 && depth == 0 && self.below(3) > 0 {
            transport =
                vec![*[1, 2, 3, 4, 11, 12].get(self.below(6)).unwrap(), u8::try_from(self.below(6)).unwrap(), 0, 0];
            transport.extend([0, 0, 0x05, 0xdc]);
            if self.below(4) == 0 {
                transport[4] = self.byte() / 8;
                transport[5] = self.byte() / 8;
            }
            transport.extend(self.same_family(is_v4));
            transport.extend((0..self.below(40)).map(|_| 7));
        }
        if is_v4 {
            if protocol == 1 {
                transport[2..4].fill(0);
                let checksum = !naive_sum(&[&transport]);
                transport[2..4].copy_from_slice(&checksum.to_be_bytes());
            }
            return ipv4_packet(A4, B4, protocol, word, &transport);
        }
        let protocol = if protocol == 1 {
            if matches!(transport[0], 0 | 8) {
                transport[0] = 128;
            }
            write_transport_checksum(&mut transport, 2, 58, &addresses);
            58
        } else {
            protocol
        };
        match self.below(5) {
            0 => {
                let fragment = (word << 3 | u16::from(word & 0x2000 != 0)).to_be_bytes();
                let header = [protocol, 0, fragment[0], fragment[1], 0, 0, 1, 2];
                ipv6_packet(A6, B6, 44, &[&header[..], &transport].concat())
            }
            1 => ipv6_packet(A6, B6, 60, &[&[protocol, 0, 0, 0, 0, 0, 0, 0], &transport[..]].concat()),
            _ => ipv6_packet(A6, B6, protocol, &transport),
        }
    }

    fn same_family(&mut self, is_v4: bool) -> Vec<u8> {
        loop {
            let inner = self.packet(1);
            if (inner[0] >> 4 == 4) == is_v4 {
                return inner;
            }
        }
    }

    fn damage(&mut self, packet: &mut Vec<u8>) {
        if self.below(3) == 0 {
            return;
        }
        for _ in 0..self.below(4) {
            let at = self.below(packet.len().clamp(1, 140));
            match self.below(4) {
                0 => packet.truncate(at),
                1 => packet.extend([0; 9]),
                _ if at < packet.len() => packet[at] = self.byte(),
                _ => {}
            }
        }
        // A damaged IPv4 header would mostly end at its checksum.
        if packet.len() >= 60 && packet[0] >> 4 == 4 && self.below(4) > 0 {
            tombolo_wire::ipv4::write_checksum(packet);
        }
    }
}

#[test]
fn a_million_packets_end_well() {
    let mut source = Source(ChaCha8Rng::seed_from_u64(7915));
    let mut gateway = Gateway {
        identifications: IdentificationGenerator::new([1, 2], 0, 1),
        fragments: Fragments::new(ReassemblyLimits { memory: 1 << 20, ..ReassemblyLimits::default() }, [3, 4], 1),
        room: Room::default(),
        settings: TranslateSettings::default(),
        now: 0,
        sent: 0,
        answered: 0,
    };
    for number in 0..PACKETS {
        let mut bytes = source.packet(0);
        source.damage(&mut bytes);
        let mut buffer = Buffer::new(&bytes);
        if source.below(8) == 0 {
            let start = u16::try_from(source.below(80)).unwrap();
            buffer.offload.checksum = ChecksumState::Partial { start, offset: 16 };
        }
        if source.below(8) == 0 {
            let size = u16::try_from(source.below(1600)).unwrap();
            buffer.offload.segmentation =
                if size & 1 == 0 { Segmentation::Tcp { size, ecn: false } } else { Segmentation::Udp { size } };
        }
        gateway.settings.ipv4_mtu = if number & 1 == 0 { 1500 } else { 576 };
        gateway.settings.udp_zero_4to6 =
            [UdpZeroChecksum::Drop, UdpZeroChecksum::Compute, UdpZeroChecksum::Forward][source.below(3)];
        let port = (source.below(2) == 0).then(|| Port(u16::from(source.byte())));
        gateway.pass(&mut buffer.packet(), port);
    }
    // If the source were so damaged that nothing passes, the test would say nothing.
    assert!(gateway.sent > u64::from(PACKETS) / 4, "{} sent", gateway.sent);
    assert!(gateway.answered > u64::from(PACKETS) / 500, "{} answered", gateway.answered);
}

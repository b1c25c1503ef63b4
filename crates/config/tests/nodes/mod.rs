//! What tests of clusters share: gateways that have each other's locators as routes, and packets for them.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part of it, and a test may panic")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::{Engine, Now, Plan, Verdict, static_bindings};
use tombolo_tables::Tables;
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_wire::checksum::udp_checksum;
use tombolo_wire::{Sum, ipv4};

use crate::reading::accepted;

/// When all packets come.
pub(crate) const NOW: Now = Now(1_000_000_000_000);

/// A node.
pub(crate) struct Gateway {
    pub(crate) engine: Engine,
    pub(crate) plan: Plan,
    pub(crate) tables: Arc<Tables>,
}

impl Gateway {
    pub(crate) fn of(text: &str) -> Self {
        let plan = accepted(text).plan;
        let tables = Tables::new(&mut Heap, plan.capacity, HashKey::new([5, 6, 7, 8])).unwrap();
        let tables = Arc::new(tables.noting_changes());
        assert!(static_bindings::reconcile(&tables, &plan, NOW).is_empty());
        Self { engine: Engine::new(Arc::clone(&tables), [7; 32], 0, 1), plan, tables }
    }

    /// What it says of a packet, and what it sends.
    pub(crate) fn process(&mut self, bytes: &[u8], offload: Offload) -> (Verdict, Vec<Vec<u8>>) {
        let mut buffer = vec![0xa5; HEADROOM + bytes.len() + 64];
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len(), offload).unwrap();
        let mut sent = Vec::new();
        let mut outbox = |packet: &mut Packet<'_>| sent.push(packet.bytes().to_vec());
        (self.engine.process(&self.plan, &mut packet, NOW, &mut outbox), sent)
    }
}

/// What becomes of a packet in a cluster.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    /// At the last node.
    pub(crate) verdict: Verdict,
    /// What leaves the cluster.
    pub(crate) sent: Vec<Vec<u8>>,
    /// The nodes that it was redirected to.
    pub(crate) redirected: Vec<usize>,
}

/// Gateways that have each other's locators as routes: 2001:db8:c1:1::/64 and so on.
pub(crate) struct Nodes(pub(crate) Vec<Gateway>);

impl Nodes {
    /// Nodes with these files that all serve, or the one gateway that there is without a cluster.
    pub(crate) fn of(texts: impl IntoIterator<Item = String>) -> Self {
        let nodes = Self(texts.into_iter().map(|text| Gateway::of(&text)).collect());
        for cluster in nodes.0.iter().filter_map(|node| node.plan.cluster.as_ref()) {
            cluster.set_serving(|_| true);
        }
        nodes
    }

    /// What becomes of a packet that comes to a node.
    pub(crate) fn pass(&mut self, node: usize, bytes: &[u8]) -> Fate {
        self.pass_with(node, bytes, Offload::default())
    }

    /// As [`pass`](Self::pass), of a packet on which something is left to be done.
    pub(crate) fn pass_with(&mut self, node: usize, bytes: &[u8], offload: Offload) -> Fate {
        let (verdict, sent) = self.0[node].process(bytes, offload);
        let Verdict::Redirect(to) = verdict else { return Fate { verdict, sent, redirected: Vec::new() } };
        let to = usize::from(to);
        assert_ne!(to, node, "a node redirects nothing to itself");
        assert!(!sent.is_empty(), "a packet is redirected");
        let mut fate = Fate { verdict, sent: Vec::new(), redirected: vec![to] };
        for packet in sent {
            assert_eq!(packet[24..31], [0x20, 1, 0xd, 0xb8, 0, 0xc1, 0][..]);
            assert_eq!(usize::from(packet[31]), to + 1, "to the locator of that node");
            let there = self.pass(to, &packet);
            fate.verdict = there.verdict;
            fate.sent.extend(there.sent);
            fate.redirected.truncate(1);
            fate.redirected.extend(there.redirected);
        }
        fate
    }

    /// Each piece to another node, in turn from `first` on: what comes out of the last, and how often pieces were
    /// redirected.
    pub(crate) fn spread(&mut self, first: usize, pieces: &[Vec<u8>]) -> (Vec<Vec<u8>>, usize) {
        let (mut all, mut redirections) = (Vec::new(), 0);
        for (number, piece) in pieces.iter().enumerate() {
            let Fate { verdict, sent, redirected } = self.pass((first + number) % self.0.len(), piece);
            let expected = if number + 1 == pieces.len() { Verdict::Forward } else { Verdict::Hold };
            assert_eq!(verdict, expected, "piece {number}");
            assert!(redirected.len() <= 2, "piece {number} is redirected to {redirected:?}");
            redirections += redirected.len();
            all.extend(sent);
        }
        (all, redirections)
    }
}

/// A datagram in IPv4.
pub(crate) fn datagram(
    source: (Ipv4Addr, u16),
    destination: (Ipv4Addr, u16),
    length: usize,
    identification: u16,
) -> Vec<u8> {
    let transport_length = u16::try_from(8 + length).unwrap();
    let mut packet = vec![0x45, 0];
    packet.extend((transport_length + 20).to_be_bytes());
    packet.extend(identification.to_be_bytes());
    packet.extend([0, 0, 64, 17, 0, 0]);
    packet.extend(source.0.octets());
    packet.extend(destination.0.octets());
    ipv4::write_checksum(&mut packet);
    let pseudo = Sum::ZERO.bytes(&packet[12..20]).word(17).word(transport_length);
    packet.extend(udp((source.1, destination.1), length, pseudo));
    packet
}

/// The same in IPv6.
pub(crate) fn datagram_ipv6(source: (Ipv6Addr, u16), destination: (Ipv6Addr, u16), length: usize) -> Vec<u8> {
    let addresses = [source.0.octets(), destination.0.octets()].concat();
    let pseudo = Sum::ZERO.bytes(&addresses).word(17).word(u16::try_from(8 + length).unwrap());
    in_ipv6((source.0, destination.0), 17, &udp((source.1, destination.1), length, pseudo))
}

fn udp(ports: (u16, u16), length: usize, pseudo: Sum) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [ports.0, ports.1, u16::try_from(8 + length).unwrap(), 0] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend((0..length).map(|n| u8::try_from(n % 251).unwrap()));
    let checksum = udp_checksum(pseudo.bytes(&bytes).checksum());
    bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// In an IPv6 header.
pub(crate) fn in_ipv6((source, destination): (Ipv6Addr, Ipv6Addr), next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend([next_header, 64]);
    bytes.extend(source.octets());
    bytes.extend(destination.octets());
    bytes.extend(payload);
    bytes
}

/// Pieces of an IPv4 packet with 1000 bytes of payload each.
pub(crate) fn in_ipv4_pieces(packet: &[u8]) -> Vec<Vec<u8>> {
    let (header, payload) = packet.split_at(20);
    let count = payload.chunks(1000).len();
    let pieces = payload.chunks(1000).enumerate().map(|(number, piece)| {
        let more = if number + 1 < count { 0x2000 } else { 0 };
        let offset = u16::try_from(number * 125).unwrap();
        let mut bytes = header.to_vec();
        bytes[2..4].copy_from_slice(&u16::try_from(20 + piece.len()).unwrap().to_be_bytes());
        bytes[6..8].copy_from_slice(&(offset | more).to_be_bytes());
        ipv4::write_checksum(&mut bytes);
        bytes.extend(piece);
        bytes
    });
    pieces.collect()
}

/// Two pieces of an IPv6 packet.
pub(crate) fn in_ipv6_pieces(packet: &[u8], identification: u32) -> Vec<Vec<u8>> {
    let payload = &packet[40..];
    let half = payload.len() / 2 / 8 * 8;
    let piece = |bytes: &[u8], offset: usize, more: u16| {
        let mut piece = packet[..40].to_vec();
        piece[4..6].copy_from_slice(&u16::try_from(8 + bytes.len()).unwrap().to_be_bytes());
        piece[6] = 44;
        piece.extend([packet[6], 0]);
        piece.extend((u16::try_from(offset).unwrap() | more).to_be_bytes());
        piece.extend(identification.to_be_bytes());
        piece.extend(bytes);
        piece
    };
    vec![piece(&payload[..half], 0, 1), piece(&payload[half..], half, 0)]
}

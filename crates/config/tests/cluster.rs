//! Nodes of a cluster: what files make of `[cluster]`, and fragments that arrive apart, which come out as they do
//! where one gateway gets them all.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::{DropReason, Engine, Now, Plan, Verdict};
use tombolo_tables::Tables;
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_wire::checksum::udp_checksum;
use tombolo_wire::{Sum, ipv4};

mod reading;

use reading::{accepted, refused_with_name};

const CLUSTER: &str = r#"[cluster]
node = "n1"
nodes = { n1 = "2001:db8:c1:1::/64", n2 = "2001:db8:c1:2::/64", n3 = "2001:db8:c1:3::/64" }
"#;
const SERVICES: &str = r#"
[[service]]
kind  = "map-t"
role  = "br"
dmr   = "2001:db8:ffff::/64"
rules = [{ ipv6 = "2001:db8:4600::/40", ipv4 = "192.0.2.0/24", ea_bits = 16, psid_offset = 6 }]

[[service]]
kind      = "lwaftr"
addresses = ["2001:db8:fffe::1"]
ipv4      = ["203.0.113.0/28"]
softwires = [{ b4 = "2001:db8:1000:200:0:cb00:710a:4", ipv4 = "203.0.113.10", psid_length = 6, psid = 4 }]
"#;
const NOW: Now = Now(1_000_000_000_000);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// Address and port of the subscriber of MAP-T, and of the lwB4.
const OF_MAP: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 18), 1232);
const OF_LWB4: (Ipv4Addr, u16) = (Ipv4Addr::new(203, 0, 113, 10), 4103);
const LWB4: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x1000, 0x200, 0, 0xcb00, 0x710a, 4);
const LWAFTR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xfffe, 0, 0, 0, 0, 1);

fn refused(text: &str) -> String {
    refused_with_name(text).join("\n")
}

fn with(change: impl FnOnce(String) -> String) -> String {
    change(format!("{CLUSTER}{SERVICES}"))
}

#[test]
fn a_cluster_has_nodes_with_locators() {
    let configuration = accepted(&with(|text| text));
    let cluster = configuration.host.cluster.unwrap();
    assert_eq!((cluster.own, cluster.table, cluster.nodes.len()), (0, 8464, 3));
    assert_eq!(configuration.plan.cluster.unwrap().locator(), Ipv6Addr::new(0x2001, 0xdb8, 0xc1, 1, 0, 0, 0, 0));
    assert!(accepted(SERVICES).plan.cluster.is_none());
}

#[test]
fn mistakes_are_named() {
    let of = |from: &str, to: &str| refused(&with(|text| text.replace(from, to)));
    assert_eq!(
        of("node = \"n1\"", "node = \"n4\""),
        "gateway.toml:2: cluster.node = \"n4\": not one of the nodes; use one of n1, n2, n3"
    );
    assert_eq!(
        of("2001:db8:c1:2::/64", "2001:db8:c1:2::/56"),
        "gateway.toml:3: cluster.nodes.n2 = \"2001:db8:c1:2::/56\": a locator is a /64; write \"2001:db8:c1::/64\""
    );
    assert_eq!(
        of("2001:db8:c1:2::/64", "2001:db8:c1:1::/64"),
        "gateway.toml:3: cluster.nodes.n2 = \"2001:db8:c1:1::/64\": the locator of n1 as well; give each node its own"
    );
    assert_eq!(
        of("2001:db8:c1:2::/64", "2001:db8:ffff::/64"),
        "gateway.toml:3: cluster.nodes.n2 = \"2001:db8:ffff::/64\": overlaps a prefix of service map-t; use another one"
    );
    assert_eq!(
        refused(&format!(
            "{CLUSTER}\n[[service]]\nkind = \"nat44\"\ninside = [\"10.0.0.0/8\"]\npool = [{{ addresses = \"192.0.2.0/28\" }}]\n"
        )),
        "gateway.toml:1: cluster: service nat44 has bindings, which nodes do not share yet; only services without state can be clustered"
    );
}

/// Gateways that have each other's locators as routes.
struct Nodes(Vec<(Engine, Plan)>);

impl Nodes {
    /// Nodes that all serve.
    fn new() -> Self {
        let nodes =
            (1..=3).map(|number| Self::gateway(&with(|text| text.replace("\"n1\"", &format!("\"n{number}\"")))));
        let nodes = Self(nodes.collect());
        for (_, plan) in &nodes.0 {
            plan.cluster.as_ref().unwrap().set_serving(|_| true);
        }
        nodes
    }

    /// The one gateway that there is without a cluster.
    fn alone() -> Self {
        Self(vec![Self::gateway(SERVICES)])
    }

    fn gateway(text: &str) -> (Engine, Plan) {
        let plan = accepted(text).plan;
        let tables = Tables::new(&mut Heap, plan.capacity, HashKey::new([5, 6, 7, 8])).unwrap();
        (Engine::new(Arc::new(tables), [7; 32], 0, 1), plan)
    }

    /// What leaves the cluster when a packet comes to a node, and how often it was redirected.
    fn pass(&mut self, node: usize, bytes: &[u8]) -> (Verdict, Vec<Vec<u8>>, usize) {
        let (engine, plan) = &mut self.0[node];
        let mut buffer = vec![0xa5; HEADROOM + bytes.len() + 64];
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len(), Offload::default()).unwrap();
        let mut sent = Vec::new();
        let mut outbox = |packet: &mut Packet<'_>| sent.push(packet.bytes().to_vec());
        match engine.process(plan, &mut packet, NOW, &mut outbox) {
            Verdict::Redirect(to) => {
                let (redirected, [packet]) = (usize::from(to), &sent[..]) else { panic!("one packet is redirected") };
                assert_eq!(packet[24..31], [0x20, 1, 0xd, 0xb8, 0, 0xc1, 0][..]);
                assert_eq!(usize::from(packet[31]), redirected + 1, "to the locator of that node");
                let (verdict, sent, more) = self.pass(redirected, packet);
                (verdict, sent, more + 1)
            }
            verdict => (verdict, sent, 0),
        }
    }

    /// Each piece to another node, in turn from `first` on; what comes out of the last.
    fn spread(&mut self, first: usize, pieces: &[Vec<u8>]) -> (Vec<Vec<u8>>, usize) {
        let (mut all, mut redirections) = (Vec::new(), 0);
        for (number, piece) in pieces.iter().enumerate() {
            let (verdict, sent, times) = self.pass((first + number) % self.0.len(), piece);
            let expected = if number + 1 == pieces.len() { Verdict::Forward } else { Verdict::Hold };
            assert_eq!(verdict, expected, "piece {number}");
            assert!(times <= 2, "{times} redirections");
            redirections += times;
            all.extend(sent);
        }
        (all, redirections)
    }
}

/// A datagram in IPv4.
fn datagram(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16), length: usize, identification: u16) -> Vec<u8> {
    let payload: Vec<u8> = (0..length).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let udp_length = u16::try_from(8 + length).unwrap();
    let mut packet = vec![0x45, 0];
    packet.extend((udp_length + 20).to_be_bytes());
    packet.extend(identification.to_be_bytes());
    packet.extend([0, 0, 64, 17, 0, 0]);
    packet.extend(source.0.octets());
    packet.extend(destination.0.octets());
    ipv4::write_checksum(&mut packet);
    for word in [source.1, destination.1, udp_length, 0] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend(payload);
    let pseudo = Sum::ZERO.bytes(&packet[12..20]).word(17).word(udp_length);
    let checksum = udp_checksum(pseudo.bytes(&packet[20..]).checksum());
    packet[26..28].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// Pieces of an IPv4 packet with 1000 bytes of payload each.
fn in_ipv4_pieces(packet: &[u8]) -> Vec<Vec<u8>> {
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

/// In an IPv6 header from the lwB4.
fn in_softwire(packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(u16::try_from(packet.len()).unwrap().to_be_bytes());
    bytes.extend([4, 64]);
    bytes.extend(LWB4.octets());
    bytes.extend(LWAFTR.octets());
    bytes.extend(packet);
    bytes
}

/// Two pieces of an IPv6 packet.
fn in_ipv6_pieces(packet: &[u8], identification: u32) -> Vec<Vec<u8>> {
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

/// Whatever node gets which piece, what leaves is what one gateway sends.
fn meet(pieces_of: impl Fn(u16) -> Vec<Vec<u8>>) {
    let mut redirections = 0;
    for identification in 1..40 {
        let pieces = pieces_of(identification);
        let (expected, _) = Nodes::alone().spread(0, &pieces);
        let (sent, times) = Nodes::new().spread(usize::from(identification) % 3, &pieces);
        assert_eq!(sent, expected, "identification {identification}");
        redirections += times;
    }
    assert!(redirections > 20, "{redirections} redirections");
}

#[test]
fn fragments_from_outside_meet() {
    for to in [OF_MAP, OF_LWB4] {
        meet(|identification| in_ipv4_pieces(&datagram((SERVER, 53), to, 2500, identification)));
    }
}

#[test]
fn fragments_inside_softwires_meet() {
    meet(|identification| {
        let pieces = in_ipv4_pieces(&datagram(OF_LWB4, (SERVER, 53), 2500, identification));
        pieces.iter().map(|piece| in_softwire(piece)).collect()
    });
}

#[test]
fn fragments_of_softwire_packets_meet() {
    meet(|identification| {
        let whole = in_softwire(&datagram(OF_LWB4, (SERVER, 53), 1400, identification));
        in_ipv6_pieces(&whole, u32::from(identification) << 16)
    });
}

#[test]
fn fragments_in_fragments_meet_with_two_redirections() {
    let mut most = 0;
    for identification in 1..60 {
        let pieces = in_ipv4_pieces(&datagram(OF_LWB4, (SERVER, 53), 1800, identification));
        let outer = |number: usize, piece: &Vec<u8>| {
            in_ipv6_pieces(&in_softwire(piece), u32::from(identification) * 7 + u32::try_from(number).unwrap())
        };
        let pieces: Vec<_> = pieces.iter().enumerate().flat_map(|(number, piece)| outer(number, piece)).collect();
        let (expected, _) = Nodes::alone().spread(0, &pieces);
        let mut nodes = Nodes::new();
        let mut sent = Vec::new();
        for (number, piece) in pieces.iter().enumerate() {
            let (verdict, out, times) = nodes.pass(number % 3, piece);
            assert!(matches!(verdict, Verdict::Hold | Verdict::Forward), "{verdict:?}");
            most = most.max(times);
            sent.extend(out);
        }
        assert_eq!(sent, expected, "identification {identification}");
    }
    assert_eq!(most, 2);
}

#[test]
fn nodes_that_do_not_agree_redirect_twice_at_most() {
    let mut nodes = Nodes::new();
    // The first knows of itself and the second alone, the second of the third, the third of the first.
    for (number, (_, plan)) in nodes.0.iter().enumerate() {
        plan.cluster.as_ref().unwrap().set_serving(|node| node == (number + 1) % 3);
    }
    for identification in 1..200 {
        let pieces = in_ipv4_pieces(&datagram((SERVER, 53), OF_MAP, 1500, identification));
        assert!(nodes.pass(0, &pieces[0]).2 <= 2);
    }
}

#[test]
fn nobody_but_nodes_can_redirect() {
    let mut nodes = Nodes::new();
    let inner = datagram((SERVER, 53), OF_MAP, 100, 1);
    let from = |source: &str, place: u8, next_header: u8| {
        let mut packet = in_softwire(&inner);
        packet[6] = next_header;
        packet[8..24].copy_from_slice(&source.parse::<Ipv6Addr>().unwrap().octets());
        let mut own = "2001:db8:c1:1::".parse::<Ipv6Addr>().unwrap().octets();
        own[15] = place;
        packet[24..40].copy_from_slice(&own);
        packet
    };
    assert_eq!(nodes.pass(0, &from("2001:db8:c1:2::", 1, 4)).0, Verdict::Forward);
    assert_eq!(nodes.pass(0, &from("2001:db8:c1:2::", 2, 4)).0, Verdict::Forward);
    let refused = Verdict::Drop(DropReason::RedirectRefused);
    for packet in [
        from("2001:db8:bad::", 1, 4),
        from("2001:db8:c1:2::1", 1, 4),
        from("2001:db8:c1:1::", 1, 4),
        from("2001:db8:c1:2::", 3, 4),
        from("2001:db8:c1:2::", 1, 47),
    ] {
        assert_eq!(nodes.pass(0, &packet).0, refused);
    }
    assert_eq!(nodes.pass(0, &from("2001:db8:c1:2::", 1, 41)).0, Verdict::Drop(DropReason::Malformed));
    // Somebody else's address inside is nothing that a node has.
    let stray = datagram((SERVER, 53), (Ipv4Addr::new(8, 8, 8, 8), 53), 100, 1);
    let mut packet = from("2001:db8:c1:2::", 1, 4);
    packet.truncate(40);
    packet.extend(stray);
    assert_eq!(nodes.pass(0, &packet).0, refused);
}

//! Nodes of a cluster: what files make of `[cluster]`, and fragments that arrive apart, which come out as they do
//! where one gateway gets them all.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_engine::{DropReason, Verdict};
use tombolo_wire::Sum;

mod nodes;
mod reading;

use nodes::{Fate, Nodes, datagram, in_ipv4_pieces, in_ipv6, in_ipv6_pieces};
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

/// Three nodes.
fn cluster() -> Nodes {
    Nodes::of((1..=3).map(|number| with(|text| text.replace("\"n1\"", &format!("\"n{number}\"")))))
}

/// The one gateway that there is without a cluster.
fn alone() -> Nodes {
    Nodes::of([SERVICES.to_owned()])
}

/// In an IPv6 header from the lwB4.
fn in_softwire(packet: &[u8]) -> Vec<u8> {
    in_ipv6((LWB4, LWAFTR), 4, packet)
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
        "gateway.toml:1: cluster: service nat44 has bindings, each of which one node has to have: say with slices which has whose, or with etcd where nodes agree on it"
    );
}

/// Whatever node gets which piece, what leaves is what one gateway sends.
fn meet(pieces_of: impl Fn(u16) -> Vec<Vec<u8>>) {
    let mut redirections = 0;
    for identification in 1..40 {
        let pieces = pieces_of(identification);
        let (expected, _) = alone().spread(0, &pieces);
        let (sent, times) = cluster().spread(usize::from(identification) % 3, &pieces);
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
        let (expected, _) = alone().spread(0, &pieces);
        let mut nodes = cluster();
        let mut sent = Vec::new();
        for (number, piece) in pieces.iter().enumerate() {
            let fate = nodes.pass(number % 3, piece);
            assert!(matches!(fate.verdict, Verdict::Hold | Verdict::Forward), "{fate:?}");
            most = most.max(fate.redirected.len());
            sent.extend(fate.sent);
        }
        assert_eq!(sent, expected, "identification {identification}");
    }
    assert_eq!(most, 2);
}

#[test]
fn nodes_that_do_not_agree_redirect_twice_at_most() {
    let mut nodes = cluster();
    // The first knows of itself and the second alone, the second of the third, the third of the first.
    for (number, node) in nodes.0.iter().enumerate() {
        node.plan.cluster.as_ref().unwrap().set_serving(|node| node == (number + 1) % 3);
    }
    for identification in 1..200 {
        let pieces = in_ipv4_pieces(&datagram((SERVER, 53), OF_MAP, 1500, identification));
        let Fate { redirected, .. } = nodes.pass(0, &pieces[0]);
        assert!(redirected.len() <= 2, "{redirected:?}");
    }
}

#[test]
fn a_node_answers_echo_requests_at_its_locator_whole() {
    let mut nodes = cluster();
    let ends = ("2001:db8:c::9".parse().unwrap(), "2001:db8:c1:1::".parse().unwrap());
    let mut message = vec![128, 0, 0, 0, 1, 2, 0, 3];
    message.resize(1540, 7);
    let request = in_ipv6(ends, 58, &message);
    let mut sum = Sum::ZERO.bytes(&request[8..40]).word(58).word(1540);
    sum = sum.bytes(&message);
    message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    let fate = nodes.pass(0, &in_ipv6(ends, 58, &message));
    assert_eq!(fate.verdict, Verdict::EchoReply);
    let [reply] = &fate.sent[..] else { panic!("one reply") };
    assert_eq!((reply.len(), reply[40], &reply[24..40]), (1580, 129, &ends.0.octets()[..]));
    assert_eq!((&reply[8..24], &reply[44..48]), (&ends.1.octets()[..], &[1, 2, 0, 3][..]));
    // Nothing else is there.
    let other = in_ipv6(ends, 17, &[0, 7, 0, 7, 0, 8, 0, 0]);
    assert!(matches!(nodes.pass(0, &other).verdict, Verdict::Drop(_)));
}

#[test]
fn nobody_but_nodes_can_redirect() {
    let mut nodes = cluster();
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
    assert_eq!(nodes.pass(0, &from("2001:db8:c1:2::", 1, 4)).verdict, Verdict::Forward);
    assert_eq!(nodes.pass(0, &from("2001:db8:c1:2::", 2, 4)).verdict, Verdict::Forward);
    let refused = Verdict::Drop(DropReason::RedirectRefused);
    for packet in [
        from("2001:db8:bad::", 1, 4),
        from("2001:db8:c1:2::1", 1, 4),
        from("2001:db8:c1:1::", 1, 4),
        from("2001:db8:c1:2::", 3, 4),
        from("2001:db8:c1:2::", 0xa, 4),
        from("2001:db8:c1:2::", 1, 47),
    ] {
        assert_eq!(nodes.pass(0, &packet).verdict, refused);
    }
    assert_eq!(nodes.pass(0, &from("2001:db8:c1:2::", 1, 41)).verdict, Verdict::Drop(DropReason::Malformed));
    // Somebody else's address inside is nothing that a node has.
    let stray = datagram((SERVER, 53), (Ipv4Addr::new(8, 8, 8, 8), 53), 100, 1);
    let mut packet = from("2001:db8:c1:2::", 1, 4);
    packet.truncate(40);
    packet.extend(stray);
    assert_eq!(nodes.pass(0, &packet).verdict, refused);
}

#[test]
fn nodes_may_agree_by_etcd_instead_of_a_file() {
    let certificates = format!("{}/../cluster/tests/certificates", env!("CARGO_MANIFEST_DIR"));
    let replication = format!(
        "[cluster.replication]\naddresses = {{ n1 = \"2001:db8:c::1\", n2 = \"2001:db8:c::2\", n3 = \"2001:db8:c::3\" }}\n\
         ca = \"{certificates}/ca.pem\"\ncertificate = \"{certificates}/n1.pem\"\nkey = \"{certificates}/n1.key\"\n"
    );
    const ETCD: &str = "[cluster.etcd]\nendpoints = [\"https://[2001:db8:c::e1]:2379\", \"http://e2.example:2379\"]\n";
    const NAT: &str =
        "\n[[service]]\nkind = \"nat44\"\ninside = [\"10.0.0.0/8\"]\npool = [{ addresses = \"192.0.2.0/28\" }]\n";
    let text = format!("{CLUSTER}{replication}{ETCD}{NAT}");
    let mut configuration = accepted(&text);
    let etcd = configuration.host.cluster.as_ref().unwrap().etcd.clone().unwrap();
    assert_eq!((etcd.name.as_str(), etcd.endpoints.len()), ("gateways", 2));
    assert!(etcd.identity.certificate.starts_with(b"-----BEGIN"), "those of replication are shown");
    let cluster = configuration.plan.cluster.clone().unwrap();
    assert!(cluster.is_agreed() && !cluster.has_slices() && !cluster.may_grant(tombolo_engine::Now(1)));

    let slicing = tombolo_engine::mapping::slices::Slicing::new([1, 2, 3, 4], 16).unwrap();
    configuration.divide(std::path::Path::new("gateway.toml"), slicing).unwrap();
    let cluster = configuration.plan.cluster.clone().unwrap();
    assert!(cluster.is_agreed() && cluster.slices().all(|slice| cluster.is_nobodys(slice)));
    let many = tombolo_engine::mapping::slices::Slicing::new([1, 2, 3, 4], 32).unwrap();
    let error = configuration.divide(std::path::Path::new("gateway.toml"), many).unwrap_err().to_string();
    assert!(error.starts_with("gateway.toml: ") && error.contains("nat44"), "{error}");

    let of = |from: &str, to: &str| refused(&text.replace(from, to));
    assert_eq!(
        of("\"http://e2.example:2379\"", "\"e2.example\""),
        "gateway.toml:10: cluster.etcd.endpoints[1] = \"e2.example\": not an address of etcd; write a member's as \
         \"https://[2001:db8:c::e1]:2379\""
    );
    assert_eq!(
        of(ETCD, "[cluster.etcd]\nendpoints = []\n"),
        "gateway.toml:10: cluster.etcd.endpoints = []: nobody is named; name each member, as \"https://[2001:db8:c::e1]:2379\""
    );
    assert_eq!(
        of("[cluster.etcd]\n", "[cluster.etcd]\nname = \"a/b\"\n"),
        "gateway.toml:10: cluster.etcd.name = \"a/b\": keys of etcd begin with it; use letters, digits, hyphens and dots, 64 at most"
    );
    assert_eq!(
        of(&replication, ""),
        "gateway.toml:4: cluster.etcd: whoever takes slices over needs a copy of what is in them; add the table [cluster.replication]"
    );
}

//! Nodes of a cluster that share services with bindings: whatever node a packet comes to, the one that owns the slice of
//! its subscriber serves it; and what files make of `cluster.slices`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_engine::cluster::Place;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::mechanism::napt::Endpoint;
use tombolo_engine::packet::{ChecksumState, Offload, Segmentation};
use tombolo_engine::plan::{Service, StaticBinding};
use tombolo_engine::{DropReason, Verdict, static_bindings};
use tombolo_tables::binding::InsideKey;
use tombolo_wire::{Port, Sum, ipv4};

mod nodes;
mod reading;

use nodes::{Fate, Gateway, NOW, Nodes, datagram, datagram_ipv6, in_ipv4_pieces, in_ipv6, in_ipv6_pieces};
use reading::{accepted, refused_with_name};

const SLICES: &str = r#"count  = 8
secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
owners = [
    { slices = "0-2", owner = "n1", backup = "n2" },
    { slices = "3-5", owner = "n2", backup = "n3" },
    { slices = "6-7", owner = "n3", backup = "n1" },
]
"#;
const SERVICES: &str = r#"
[[service]]
kind   = "nat64"
prefix = "2001:db8:64::/96"
pool   = [{ addresses = "192.0.2.0/28", ports = "1024-5119" }]

[[service]]
kind   = "nat44"
inside = ["100.64.0.0/10"]
pool   = [{ addresses = "198.18.7.0-198.18.7.18", ports = "1024-5119" }]

[[service]]
kind    = "aftr"
address = "2001:db8:af::1"
b4s     = ["2001:db8:b4::/48"]
subscriber_prefix = 64
pool    = [{ addresses = "203.0.113.0/28", ports = "1024-5119" }]
"#;
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 2), 53);
const AFTR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xaf, 0, 0, 0, 0, 1);
const BEHIND_B4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn file(node: u8, cluster: &str, slices: &str, services: &str) -> String {
    format!(
        "[cluster]\nnode = \"n{node}\"\nnodes = {{ n1 = \"2001:db8:c1:1::/64\", n2 = \"2001:db8:c1:2::/64\", n3 = \
         \"2001:db8:c1:3::/64\" }}\n{cluster}[cluster.slices]\n{slices}{services}"
    )
}

/// Three nodes, with more in their `[cluster]`.
fn nodes_with(cluster: &str) -> Nodes {
    Nodes::of((1..=3).map(|node| file(node, cluster, SLICES, SERVICES)))
}

fn three_nodes() -> Nodes {
    nodes_with("")
}

/// A subscriber of one of the three services, by a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Subscriber {
    Nat64(u16),
    Nat44(u16),
    Aftr(u16),
}
use Subscriber::{Aftr, Nat44, Nat64};

const KINDS: [fn(u16) -> Subscriber; 3] = [Nat64, Nat44, Aftr];

impl Subscriber {
    /// Its place among the services.
    const fn service(self) -> usize {
        match self {
            Nat64(_) => 0,
            Nat44(_) => 1,
            Aftr(_) => 2,
        }
    }

    fn ipv6(self) -> Ipv6Addr {
        match self {
            Nat64(number) => Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, number),
            Nat44(_) => Ipv6Addr::UNSPECIFIED,
            Aftr(number) => Ipv6Addr::new(0x2001, 0xdb8, 0xb4, number, 0, 0, 0, 4),
        }
    }

    fn ipv4(self) -> Ipv4Addr {
        match self {
            Nat64(_) => Ipv4Addr::UNSPECIFIED,
            Nat44(number) => Ipv4Addr::from_bits(Ipv4Addr::new(100, 64, 0, 0).to_bits() + u32::from(number)),
            Aftr(_) => BEHIND_B4,
        }
    }

    /// What it sends: a datagram in the header that its service takes.
    fn sends(self, to: (Ipv4Addr, u16), length: usize) -> Vec<u8> {
        match self {
            Nat64(_) => datagram_ipv6((self.ipv6(), 5000), (shown(to.0), to.1), length),
            Nat44(_) => datagram((self.ipv4(), 5000), to, length, 77),
            Aftr(_) => self.through_softwire(&datagram((self.ipv4(), 5000), to, length, 77)),
        }
    }

    fn through_softwire(self, packet: &[u8]) -> Vec<u8> {
        in_ipv6((self.ipv6(), AFTR), 4, packet)
    }

    /// Who has sent what has come to it; panics unless that is a datagram to its port.
    #[track_caller]
    fn receives(self, packet: &[u8]) -> (Ipv4Addr, u16) {
        match self {
            Nat64(_) => {
                assert_eq!((&packet[24..40], packet[6]), (&self.ipv6().octets()[..], 17), "{self:?}");
                assert_eq!(packet[42..44], 5000_u16.to_be_bytes());
                assert!(packet[8..20].starts_with(&shown(Ipv4Addr::UNSPECIFIED).octets()[..12]));
                (ipv4_at(packet, 20), port_at(packet, 40))
            }
            Nat44(_) => {
                assert_eq!((ipv4_at(packet, 16), port_at(packet, 22)), (self.ipv4(), 5000), "{self:?}");
                (ipv4_at(packet, 12), port_at(packet, 20))
            }
            Aftr(number) => {
                assert_eq!((&packet[8..24], &packet[24..40]), (&AFTR.octets()[..], &self.ipv6().octets()[..]));
                // The host behind it has the address that another service's may have.
                let inner = &packet[40..];
                assert_eq!((ipv4_at(inner, 16), port_at(inner, 22)), (self.ipv4(), 5000), "B4 {number}");
                (ipv4_at(inner, 12), port_at(inner, 20))
            }
        }
    }

    /// The node that owns its slice: the only one that says so.
    fn owner(self, nodes: &Nodes) -> usize {
        let inside = InsideKey { ipv6: self.ipv6().octets(), ipv4: self.ipv4().octets(), ..InsideKey::default() };
        let owns = |node: &Gateway| {
            let Service { kind, .. } = &node.plan.services[self.service()];
            let nat = kind.nat().unwrap();
            node.plan.serves(nat, &nat.policy.subscriber.key(&inside))
        };
        let owners: Vec<usize> = (0..nodes.0.len()).filter(|node| owns(&nodes.0[*node])).collect();
        assert_eq!(owners.len(), 1, "{self:?}");
        owners[0]
    }

    /// Has it speak to the server through a node: its outside endpoint.
    fn binds(self, nodes: &mut Nodes, entrance: usize) -> (Ipv4Addr, u16) {
        let fate = nodes.pass(entrance, &self.sends(SERVER, 100));
        assert_eq!(fate.verdict, Verdict::Forward, "{self:?} by node {entrance}");
        outside(&fate)
    }
}

/// The address that an IPv4 host has in the prefix of the NAT64.
fn shown(address: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = address.octets().map(u16::from);
    Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, a << 8 | b, c << 8 | d)
}

fn ipv4_at(packet: &[u8], place: usize) -> Ipv4Addr {
    Ipv4Addr::from(<[u8; 4]>::try_from(&packet[place..place + 4]).unwrap())
}

fn port_at(packet: &[u8], place: usize) -> u16 {
    u16::from_be_bytes([packet[place], packet[place + 1]])
}

/// Where the one packet that has left for the server comes from.
#[track_caller]
fn outside(fate: &Fate) -> (Ipv4Addr, u16) {
    let [packet] = &fate.sent[..] else { panic!("one packet leaves: {fate:?}") };
    assert_eq!((packet[0], ipv4_at(packet, 16), port_at(packet, 22)), (0x45, SERVER.0, SERVER.1));
    (ipv4_at(packet, 12), port_at(packet, 20))
}

/// Twenty subscribers of each service.
fn subscribers() -> impl Iterator<Item = Subscriber> {
    KINDS.into_iter().flat_map(|kind| (1..=20).map(kind))
}

#[test]
fn any_node_is_an_entrance() {
    let mut nodes = three_nodes();
    let mut owners = HashSet::new();
    for subscriber in subscribers() {
        let owner = subscriber.owner(&nodes);
        owners.insert((subscriber.service(), owner));
        let endpoint = subscriber.binds(&mut nodes, 0);
        for entrance in 0..3 {
            let expected = if entrance == owner { vec![] } else { vec![owner] };
            let out = nodes.pass(entrance, &subscriber.sends(SERVER, 100));
            assert_eq!((outside(&out), &out.redirected), (endpoint, &expected), "{subscriber:?}");
            let back = nodes.pass(entrance, &datagram(SERVER, endpoint, 100, 9));
            assert_eq!((back.verdict, back.redirected), (Verdict::Forward, expected), "{subscriber:?}");
            assert_eq!(subscriber.receives(&back.sent[0]), SERVER);
        }
        let pool = nodes.0[owner].plan.services[subscriber.service()].kind.pool().unwrap();
        let slice = pool.slice_of_address(endpoint.0).unwrap();
        assert!(nodes.0[owner].plan.cluster.as_ref().unwrap().owns(slice));
    }
    assert_eq!(owners.len(), 9, "each node has subscribers of each service");
    let bindings: Vec<usize> = nodes.0.iter().map(|node| node.tables.bindings.iter().count()).collect();
    assert_eq!(bindings.iter().sum::<usize>(), 60, "each at one node: {bindings:?}");
}

#[test]
fn fragments_meet_at_the_owner() {
    for first in 0..3 {
        let mut nodes = three_nodes();
        let mut redirections = 0;
        let mut spread = |nodes: &mut Nodes, pieces: &[Vec<u8>]| {
            let (sent, times) = nodes.spread(first, pieces);
            assert!(!sent.is_empty());
            redirections += times;
            sent
        };
        for subscriber in subscribers() {
            let endpoint = subscriber.binds(&mut nodes, first);
            let back = in_ipv4_pieces(&datagram(SERVER, endpoint, 2500, 3));
            spread(&mut nodes, &back);
            match subscriber {
                Nat64(number) => {
                    let pieces = in_ipv6_pieces(&subscriber.sends(SERVER, 2000), number.into());
                    spread(&mut nodes, &pieces);
                }
                Nat44(_) => {
                    let pieces = in_ipv4_pieces(&subscriber.sends(SERVER, 2500));
                    spread(&mut nodes, &pieces);
                }
                Aftr(number) => {
                    let whole = datagram((BEHIND_B4, 5000), SERVER, 2500, 77);
                    let inner = in_ipv4_pieces(&whole).into_iter().map(|piece| subscriber.through_softwire(&piece));
                    spread(&mut nodes, &inner.collect::<Vec<_>>());
                    let outer = in_ipv6_pieces(&subscriber.sends(SERVER, 1000), number.into());
                    spread(&mut nodes, &outer);
                }
            }
        }
        assert!(redirections > 100, "{redirections}");
    }
}

#[test]
fn errors_find_the_host_that_they_are_about() {
    let mut nodes = three_nodes();
    for subscriber in subscribers() {
        let endpoint = subscriber.binds(&mut nodes, 0);
        let delivered = nodes.pass(1, &datagram(SERVER, endpoint, 100, 9)).sent.remove(0);
        for entrance in 0..3 {
            // From a router inside, which is no subscriber.
            let error = match subscriber {
                Nat64(_) => {
                    let router = Ipv6Addr::new(0x2001, 0xdb8, 0xfeed, 0, 0, 0, 0, 1);
                    icmpv6_error((router, shown(SERVER.0)), &delivered)
                }
                Nat44(_) => icmp_error((Ipv4Addr::new(100, 64, 99, 99), SERVER.0), &delivered),
                Aftr(_) => {
                    let inner = icmp_error((Ipv4Addr::new(10, 0, 0, 99), SERVER.0), &delivered[40..]);
                    subscriber.through_softwire(&inner)
                }
            };
            let fate = nodes.pass(entrance, &error);
            assert_eq!(fate.verdict, Verdict::Forward, "{subscriber:?} by node {entrance}");
            assert_eq!((ipv4_at(&fate.sent[0], 12), ipv4_at(&fate.sent[0], 16)), (endpoint.0, SERVER.0));
            // From a router outside.
            let about = datagram(endpoint, SERVER, 100, 9);
            let fate = nodes.pass(entrance, &icmp_error((Ipv4Addr::new(198, 51, 100, 77), endpoint.0), &about));
            assert_eq!(fate.verdict, Verdict::Forward, "{subscriber:?} by node {entrance}");
        }
    }
}

/// "Host unreachable" about a packet.
fn icmp_error((source, destination): (Ipv4Addr, Ipv4Addr), about: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 56, 0, 1, 0, 0, 64, 1, 0, 0];
    packet.extend(source.octets());
    packet.extend(destination.octets());
    ipv4::write_checksum(&mut packet);
    packet.extend([3, 1, 0, 0, 0, 0, 0, 0]);
    packet.extend(&about[..28]);
    let checksum = Sum::ZERO.bytes(&packet[20..]).checksum();
    packet[22..24].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// "Address unreachable" about a packet.
fn icmpv6_error(ends: (Ipv6Addr, Ipv6Addr), about: &[u8]) -> Vec<u8> {
    let mut message = vec![1, 3, 0, 0, 0, 0, 0, 0];
    message.extend(about);
    let length = u16::try_from(message.len()).unwrap();
    let pseudo = Sum::ZERO.bytes(&ends.0.octets()).bytes(&ends.1.octets()).word(58).word(length);
    let checksum = pseudo.bytes(&message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    in_ipv6(ends, 58, &message)
}

#[test]
fn subscribers_of_different_nodes_reach_each_other() {
    let mut nodes = three_nodes();
    let all: Vec<Subscriber> = subscribers().collect();
    let endpoints: Vec<_> = all.iter().map(|subscriber| subscriber.binds(&mut nodes, 2)).collect();
    let mut paths = HashSet::new();
    for (place, sender) in all.iter().enumerate() {
        for step in [1, 7] {
            let receiver = (place + step) % all.len();
            if all[receiver].service() != sender.service() {
                // The kernel brings it from one service to the other.
                continue;
            }
            for entrance in 0..3 {
                let fate = nodes.pass(entrance, &sender.sends(endpoints[receiver], 100));
                assert_eq!(fate.verdict, Verdict::Forward, "{sender:?} to {:?}", all[receiver]);
                assert_eq!(all[receiver].receives(&fate.sent[0]), endpoints[place]);
                assert_eq!(fate.sent.len(), 1);
                paths.insert((entrance, fate.redirected));
            }
        }
    }
    assert!(paths.contains(&(0, vec![1, 2])) && paths.contains(&(0, vec![])), "{paths:?}");
}

#[test]
fn super_packets_are_redirected_in_their_segments() {
    const SIZE: usize = 1200;
    const PAYLOAD: usize = 3000;
    let mut nodes = three_nodes();
    for (kind, header) in [(Nat44 as fn(u16) -> Subscriber, 20), (Nat64, 40)] {
        for number in 1..=6 {
            let subscriber = kind(number);
            let owner = subscriber.owner(&nodes);
            assert_eq!(nodes.pass(owner, &segment(subscriber, 2, 0)).verdict, Verdict::Forward);
            for entrance in 0..3 {
                let packet = segment(subscriber, 0x10, PAYLOAD);
                let offload = Offload {
                    segmentation: Segmentation::Tcp { size: u16::try_from(SIZE).unwrap(), ecn: false },
                    checksum: ChecksumState::Partial { start: header, offset: 16 },
                };
                let fate = nodes.pass_with(entrance, &packet, offload);
                assert_eq!(fate.verdict, Verdict::Forward, "{subscriber:?}");
                if entrance == owner {
                    // Whole: the card cuts it.
                    assert_eq!(fate.sent.len(), 1);
                    continue;
                }
                assert_eq!((fate.redirected, fate.sent.len()), (vec![owner], PAYLOAD.div_ceil(SIZE)));
                let mut next = 1000;
                for segment in &fate.sent {
                    let transport = &segment[20..];
                    let length = u16::try_from(transport.len()).unwrap();
                    let pseudo = Sum::ZERO.bytes(&segment[12..20]).word(6).word(length);
                    assert!(pseudo.bytes(transport).verifies(), "{subscriber:?}: checksum of {next}");
                    assert_eq!(u32::from_be_bytes(transport[4..8].try_into().unwrap()), next);
                    next += u32::from(length) - 20;
                }
                assert_eq!(next, 1000 + u32::try_from(PAYLOAD).unwrap());
            }
        }
    }
}

/// A segment of TCP whose checksum is left to the card, but for a SYN, which is whole.
fn segment(subscriber: Subscriber, flags: u8, payload: usize) -> Vec<u8> {
    let mut tcp = Vec::new();
    tcp.extend(5000_u16.to_be_bytes());
    tcp.extend(80_u16.to_be_bytes());
    tcp.extend(1000_u32.to_be_bytes());
    tcp.extend([0, 0, 0, 0, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    tcp.extend((0..payload).map(|n| u8::try_from(n % 251).unwrap()));
    let length = u16::try_from(tcp.len()).unwrap();
    let (mut packet, pseudo) = match subscriber {
        Nat64(_) => {
            let ends = (subscriber.ipv6(), shown(SERVER.0));
            (in_ipv6(ends, 6, &[]), Sum::ZERO.bytes(&ends.0.octets()).bytes(&ends.1.octets()))
        }
        _ => {
            let mut header = vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 6, 0, 0];
            header.extend(subscriber.ipv4().octets());
            header.extend(SERVER.0.octets());
            header[2..4].copy_from_slice(&(20 + length).to_be_bytes());
            ipv4::write_checksum(&mut header);
            let pseudo = Sum::ZERO.bytes(&header[12..20]);
            (header, pseudo)
        }
    };
    if packet[0] >> 4 == 6 {
        packet[4..6].copy_from_slice(&length.to_be_bytes());
    }
    let pseudo = pseudo.word(6).word(length);
    // What is left to the card has the sum of the pseudo-header, not complemented.
    let checksum = if payload > 0 { !pseudo.checksum() } else { pseudo.bytes(&tcp).checksum() };
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(tcp);
    packet
}

#[test]
fn softwires_keep_their_header_where_only_nodes_can_send_to_the_locators() {
    let mut nodes = nodes_with("core = [\"core0\"]\n");
    let mut plain = three_nodes();
    for subscriber in (1..=20).map(Aftr) {
        let owner = subscriber.owner(&nodes);
        let endpoint = subscriber.binds(&mut nodes, owner);
        let entrance = (owner + 1) % 3;
        let packet = subscriber.sends(SERVER, 100);
        for (nodes, place, longer) in [(&mut nodes, 0xa, 0), (&mut plain, 1, 40)] {
            let (verdict, sent) = nodes.0[entrance].process(&packet, Offload::default());
            assert_eq!(verdict, Verdict::Redirect(u8::try_from(owner).unwrap()));
            assert_eq!((sent[0].len(), sent[0][39]), (packet.len() + longer, place));
        }
        let fate = nodes.pass(entrance, &packet);
        assert_eq!((outside(&fate), &fate.redirected[..]), (endpoint, &[owner][..]));
        let pieces = in_ipv6_pieces(&subscriber.sends(SERVER, 1000), 7);
        nodes.spread(entrance, &pieces);
        let back = nodes.pass(entrance, &datagram(SERVER, endpoint, 100, 9));
        assert_eq!(subscriber.receives(&back.sent[0]), SERVER);
    }
}

#[test]
fn what_nobody_serves_is_dropped() {
    let mut nodes = three_nodes();
    nodes.0[0].plan.cluster.as_ref().unwrap().set_serving(|_| false);
    let mut dropped = 0;
    for subscriber in subscribers() {
        let expected = match subscriber.owner(&nodes) {
            0 => Verdict::Forward,
            _ => Verdict::Drop(DropReason::SliceUnowned),
        };
        let fate = nodes.pass(0, &subscriber.sends(SERVER, 100));
        assert_eq!((fate.verdict, fate.redirected.len()), (expected, 0));
        dropped += usize::from(fate.verdict != Verdict::Forward);
    }
    assert!(dropped > 20);
}

#[test]
fn who_does_not_see_the_owner_goes_by_the_backup() {
    let mut nodes = three_nodes();
    // The first node sees the third alone, which is the backup of what the second owns.
    nodes.0[0].plan.cluster.as_ref().unwrap().set_serving(|node| node == 2);
    let of_second: Vec<Subscriber> = subscribers().filter(|subscriber| subscriber.owner(&nodes) == 1).collect();
    assert!(of_second.len() > 10);
    for subscriber in of_second {
        let fate = nodes.pass(0, &subscriber.sends(SERVER, 100));
        assert_eq!((fate.verdict, fate.redirected), (Verdict::Forward, vec![2, 1]), "{subscriber:?}");
    }
}

#[test]
fn nodes_with_different_slices_redirect_twice_at_most() {
    // Each says that the next one has everything.
    let all_of = |owner: &str| {
        let owners = SLICES.find("owners").unwrap();
        format!("{}owners = [{{ slices = \"0-7\", owner = \"{owner}\" }}]\n", &SLICES[..owners])
    };
    let files = [(1, "n2"), (2, "n3"), (3, "n1")].map(|(node, next)| file(node, "", &all_of(next), SERVICES));
    let mut nodes = Nodes::of(files);
    for subscriber in subscribers() {
        let fate = nodes.pass(0, &subscriber.sends(SERVER, 100));
        assert_eq!((fate.verdict, fate.redirected), (Verdict::Drop(DropReason::RedirectLoop), vec![1, 2]));
    }
}

#[test]
fn a_static_binding_is_its_slices_owners() {
    let fixed = |address: &str| {
        let fixed = format!(
            "pool   = [{{ addresses = \"198.18.7.0-198.18.7.18\", ports = \"1024-5119\" }}]\nstatic = [{{ inside = \"100.64.0.5:80\", outside = \
             \"{address}:4080\", protocol = \"udp\" }}]\n"
        );
        SERVICES.replace("pool   = [{ addresses = \"198.18.7.0-198.18.7.18\", ports = \"1024-5119\" }]\n", &fixed)
    };
    let mut owners = HashSet::new();
    for last in [0, 4, 9, 14, 18] {
        let address = Ipv4Addr::new(198, 18, 7, last);
        let mut nodes = Nodes::of((1..=3).map(|node| file(node, "", SLICES, &fixed(&address.to_string()))));
        let owner = Nat44(5).owner(&nodes);
        owners.insert(owner);
        let counts: Vec<usize> = nodes.0.iter().map(|node| node.tables.bindings.iter().count()).collect();
        assert_eq!((counts[owner], counts.iter().sum::<usize>()), (1, 1), "the owner has it: {counts:?}");
        for entrance in 0..3 {
            let fate = nodes.pass(entrance, &datagram(SERVER, (address, 4080), 100, 9));
            assert_eq!((fate.verdict, ipv4_at(&fate.sent[0], 16)), (Verdict::Forward, Nat44(5).ipv4()));
            // What else the host sends leaves from an address of the same slice, which need not be the same one.
            let (from, _) = Nat44(5).binds(&mut nodes, entrance);
            let pool = nodes.0[0].plan.services[1].kind.pool().unwrap();
            assert_eq!(pool.slice_of_address(from), pool.slice_of_address(address));
        }
    }
    assert_eq!(owners.len(), 3);
}

#[test]
fn an_operator_binds_within_the_slice() {
    let nodes = three_nodes();
    let service = &nodes.0[0].plan.services[1];
    let pool = service.kind.pool().unwrap();
    let key = service
        .kind
        .nat()
        .unwrap()
        .policy
        .subscriber
        .key(&InsideKey { ipv4: Nat44(5).ipv4().octets(), ..InsideKey::default() });
    for address in (0..19).map(|last| Ipv4Addr::new(198, 18, 7, last)) {
        let binding = StaticBinding {
            space: PortSpace::Udp,
            softwire: Ipv6Addr::UNSPECIFIED,
            inside: Nat44(5).ipv4().into(),
            inside_port: Port(1000 + u16::from(address.octets()[3])),
            outside: Endpoint { address, port: Port(5000) },
        };
        let added = static_bindings::add(&nodes.0[0].tables, 1, service, &binding, NOW);
        assert_eq!(added.is_ok(), pool.slice_of_address(address) == pool.slice_of(&key), "{address}: {added:?}");
    }
}

#[test]
fn a_computed_share_decides_the_slice() {
    let services = SERVICES.replace(
        "inside = [\"100.64.0.0/10\"]\n",
        "inside = [\"100.64.0.0/26\"]\nallocation = { mode = \"deterministic\", order = \"rotate-addresses\" }\n",
    );
    let mut nodes = Nodes::of((1..=3).map(|node| file(node, "", SLICES, &services)));
    for number in 0..60 {
        let (address, _) = Nat44(number).binds(&mut nodes, usize::from(number) % 3);
        assert_eq!(address, Ipv4Addr::new(198, 18, 7, u8::try_from(number % 19).unwrap()), "the address of its share");
    }
}

#[test]
fn without_slices_nothing_changes() {
    let configuration = accepted(SERVICES);
    assert!(configuration.plan.services.iter().all(|service| service.kind.pool().unwrap().slices().is_none()));
    let clustered = accepted(&file(2, "", SLICES, SERVICES)).plan.cluster.unwrap();
    let places: Vec<Place> = (0..8).map(|slice| clustered.place_of(slice, tombolo_engine::Now::default())).collect();
    assert_eq!(places.iter().filter(|place| **place == Place::Here).count(), 3);
}

fn refused(text: &str) -> String {
    refused_with_name(text).join("\n")
}

#[test]
fn mistakes_are_named() {
    let of = |from: &str, to: &str| refused(&file(1, "", &SLICES.replace(from, to), SERVICES));
    assert_eq!(
        of("count  = 8", "count  = 6"),
        "gateway.toml:5: cluster.slices.count = 6: not a power of two; use 4 or 8"
    );
    assert_eq!(
        of("000102", "0102"),
        "gateway.toml:6: cluster.slices.secret: not 64 hexadecimal digits; use what openssl rand -hex 32 prints"
    );
    assert_eq!(
        of("3-5", "2-5"),
        "gateway.toml:9: cluster.slices.owners[1]: slice 2 is in owners[0] as well; give each to one owner"
    );
    assert_eq!(
        of("3-5", "4-5"),
        "gateway.toml:7: cluster.slices.owners = [...: slice 3 has no owner; give one to each of 0 to 7"
    );
    assert_eq!(
        of("6-7", "6-8"),
        "gateway.toml:10: cluster.slices.owners[2].slices = \"6-8\": no slices; write one of 0 to 7, or the first and the \
         last as \"0-1\""
    );
    assert_eq!(
        of("owner = \"n3\"", "owner = \"n4\""),
        "gateway.toml:10: cluster.slices.owners[2].owner = \"n4\": not one of the nodes; use one of n1, n2, n3"
    );
    assert_eq!(
        of("backup = \"n1\"", "backup = \"n3\""),
        "gateway.toml:10: cluster.slices.owners[2].backup = \"n3\": the owner as well; name another node, or leave the key \
         out"
    );
    let small = SERVICES.replace("192.0.2.0/28", "192.0.2.0/30");
    assert_eq!(
        refused(&file(1, "", SLICES, &small)),
        "gateway.toml:4: cluster.slices: 8 slices are more than service nat64 has addresses in 192.0.2.0-192.0.2.3 (4), and \
         each slice has some of each range; use count = 4, or give the range more"
    );
    let pinned = SERVICES.replace(
        "inside = [\"100.64.0.0/10\"]\n",
        "inside = [\"100.64.0.0/10\"]\nstatic = [{ inside = \"100.64.0.5:80\", outside = \"198.18.7.0:80\", protocol = \
         \"udp\" }, { inside = \"100.64.0.5:81\", outside = \"198.18.7.18:81\", protocol = \"udp\" }]\n",
    );
    assert_eq!(
        refused(&file(1, "", SLICES, &pinned)),
        "gateway.toml:4: cluster.slices: service nat44: the subscriber of 100.64.0.5 has static bindings in slices 0 and 7 \
         (198.18.7.18); give it addresses of one slice, which one node has"
    );
}

#[test]
fn slices_may_stand_in_a_file_of_their_own() {
    let directory = std::env::temp_dir().join(format!("tombolo-slices-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let gateway = directory.join("gateway.toml");
    let slices = directory.join("slices.toml");
    let inline = file(1, "", SLICES, SERVICES);
    let text = inline.replace(&format!("[cluster.slices]\n{SLICES}"), "slices = \"slices.toml\"\n");
    let load = || tombolo_config::load(&gateway);
    std::fs::write(&gateway, &text).unwrap();
    let missing = load().unwrap_err().to_string();
    assert!(missing.contains("slices.toml cannot be read (No such file"), "{missing}");
    std::fs::write(&slices, SLICES).unwrap();
    let read = load().unwrap();
    assert_eq!(read.host.cluster, accepted(&inline).host.cluster);
    assert_eq!(read.host.file_directories, std::slice::from_ref(&directory));
    std::fs::write(&slices, SLICES.replace("n3", "n4").replace("count  = 8", "")).unwrap();
    let wrong = load().unwrap_err().to_string();
    assert!(wrong.contains("slices.toml") && wrong.contains("count: missing; add count = 256"), "{wrong}");
    std::fs::write(&slices, SLICES.replace("backup = \"n1\"", "backup = \"n2\"")).unwrap();
    let other = load().unwrap();
    let changes = read.wording.changes_to(&other.wording);
    assert!(changes.iter().any(|change| change.key.contains("slices.toml")), "{changes:?}");
    std::fs::remove_dir_all(&directory).unwrap();
}

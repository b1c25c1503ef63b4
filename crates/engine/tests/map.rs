//! MAP through the whole engine: an edge and a relay back to back, and random packets through each
//! of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

mod support;

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use support::{
    SECOND, Seen, echo, fragments_ipv4, fragments_ipv6, icmp, see, sum, tcp, udp, whole_of_ipv4, whole_of_ipv6,
};
use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::eam::parse_prefix;
use tombolo_engine::mapping::error_sources::ErrorSources;
use tombolo_engine::mapping::exemptions::Exemptions;
use tombolo_engine::mapping::map_domain::MapDomain;
use tombolo_engine::mapping::map_rule::{MapCe, MapRule};
use tombolo_engine::mapping::pool::{Owner, Pool, PoolRange, PortRanges};
use tombolo_engine::mechanism::napt::{Filtering, Nat, Policy, Times};
use tombolo_engine::mechanism::softwire::SoftwireSettings;
use tombolo_engine::mechanism::{TranslateSettings, UdpZeroChecksum};
use tombolo_engine::packet::{ChecksumState, HEADROOM, Offload, Packet, Segmentation};
use tombolo_engine::plan::{OwnAddresses, Plan, Service, ServiceKind};
use tombolo_engine::service::map::MapEdge;
use tombolo_engine::service::map_e_br::MapEBr;
use tombolo_engine::service::map_e_ce::MapECe;
use tombolo_engine::service::map_t_br::MapTBr;
use tombolo_engine::service::map_t_ce::MapTCe;
use tombolo_engine::service::nat44::Nat44;
use tombolo_engine::{DropReason, Engine, Now, Verdict};
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_tables::tables::Capacity;
use tombolo_tables::{Tables, audit};
use tombolo_wire::Prefix64;

const PUBLIC: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 18);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const RELAY: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);

/// The rule of RFC 7597 appendix A.
fn rule() -> MapRule {
    MapRule::new(parse_prefix("2001:db8::/40").unwrap(), parse_prefix("192.0.2.0/24").unwrap(), 16, 6, None).unwrap()
}

/// Its subscriber with PSID 0x34 of 192.0.2.18.
fn ce() -> MapCe {
    rule().provision(parse_prefix("2001:db8:12:3400::/56").unwrap()).unwrap()
}

fn dmr() -> Prefix64 {
    Prefix64::new("2001:db8:ffff::".parse().unwrap(), 64).unwrap()
}

fn translate() -> TranslateSettings {
    TranslateSettings { udp_zero_4to6: UdpZeroChecksum::Compute, ..TranslateSettings::default() }
}

fn edge(mesh: bool) -> MapEdge {
    let ports = PortRanges::new(ce().ports());
    let range = PoolRange {
        first: PUBLIC,
        last: PUBLIC,
        span: *ports.ranges()[0].start()..=*ports.ranges()[62].end(),
        ports: [ports.clone(), ports.clone(), ports],
        first_slot: 0,
        owner: Owner::Gateway,
    };
    let napt = Nat44 {
        inside: AddressRanges::new([Ipv4Addr::new(10, 0, 0, 0)..=Ipv4Addr::new(10, 0, 0, 255)]),
        untranslated: AddressRanges::default(),
        exempt: Exemptions::default(),
        nat: Nat {
            pool: Pool::new(vec![range]),
            policy: Policy { filtering: Filtering::AddressDependent.into(), ..Policy::default() },
            static_bindings: Vec::new(),
        },
        inside_mtu: 1500,
        outside_mtu: u32::MAX,
        largest_segment: None,
    };
    let mesh = if mesh { MapDomain::new(vec![rule()]).unwrap() } else { MapDomain::default() };
    MapEdge { ce: ce(), napt: Some(napt), mesh }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Technology {
    Translation,
    Encapsulation,
}

use Technology::{Encapsulation, Translation};

fn relay_of(technology: Technology) -> ServiceKind {
    let domain = MapDomain::new(vec![rule()]).unwrap();
    match technology {
        Translation => ServiceKind::MapTBr(MapTBr {
            domain,
            dmr: dmr(),
            well_known_prefix_strict: true,
            error_sources: ErrorSources::default(),
            translate: translate(),
        }),
        Encapsulation => ServiceKind::MapEBr(MapEBr { domain, address: RELAY, softwire: SoftwireSettings::default() }),
    }
}

fn edge_of(technology: Technology, mesh: bool) -> ServiceKind {
    let edge = edge(mesh);
    match technology {
        Translation => ServiceKind::MapTCe(MapTCe {
            edge,
            dmr: dmr(),
            well_known_prefix_strict: true,
            error_sources: ErrorSources::default(),
            translate: translate(),
        }),
        Encapsulation => ServiceKind::MapECe(MapECe { edge, relay: RELAY, softwire: SoftwireSettings::default() }),
    }
}

struct End {
    engine: Engine,
    plan: Plan,
    tables: Arc<Tables>,
    now: Now,
}

impl End {
    fn new(kind: ServiceKind) -> Self {
        let mut plan = Plan {
            services: vec![Service::new(0, "map", kind)],
            retired: Vec::new(),
            cluster: None,
            rows: tombolo_engine::row::Rows::default(),
            times: Times::default(),
            capacity: Capacity { subscribers: 100, bindings: 1000, sessions: 3000, outside_slots: 0, leases: 0 },
            pcp: Default::default(),
            own: OwnAddresses {
                ipv4: Some(Ipv4Addr::new(192, 168, 9, 9)),
                ipv6: Some("2001:db8:9::9".parse().unwrap()),
                ..OwnAddresses::default()
            },
        };
        plan.capacity.outside_slots = plan.outside_slots().unwrap();
        let tables = Arc::new(Tables::new(&mut Heap, plan.capacity, HashKey::new([5, 6, 7, 8])).unwrap());
        Self { engine: Engine::new(Arc::clone(&tables), [7; 32], 0, 1), plan, tables, now: Now(1000 * SECOND) }
    }

    fn pass_with(&mut self, bytes: &[u8], offload: Offload) -> (Verdict, Vec<(Vec<u8>, Offload)>) {
        let mut buffer = vec![0xa5; HEADROOM + bytes.len() + 64];
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len(), offload).unwrap();
        let mut sent = Vec::new();
        let mut outbox = |packet: &mut Packet<'_>| sent.push((packet.bytes().to_vec(), packet.offload));
        let verdict = self.engine.process(&self.plan, &mut packet, self.now, &mut outbox);
        (verdict, sent)
    }

    /// What comes of all `packets`, which must be forwarded or held.
    fn forward(&mut self, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for packet in packets {
            let (verdict, sent) = self.pass_with(packet, Offload::default());
            assert!(matches!(verdict, Verdict::Forward | Verdict::Hold), "{verdict:?} {packet:02x?}");
            all.extend(sent.into_iter().map(|(bytes, _)| bytes));
        }
        all
    }
}

/// What a packet says at its other end, put together first if it is in pieces.
fn seen(packets: &[Vec<u8>]) -> Seen {
    see(&if packets[0][0] >> 4 == 4 { whole_of_ipv4(packets) } else { whole_of_ipv6(packets) })
}

#[test]
fn what_enters_one_end_leaves_the_other_both_ways() {
    for technology in [Translation, Encapsulation] {
        let (mut edge, mut relay) = (End::new(edge_of(technology, false)), End::new(relay_of(technology)));
        for length in [0, 1, 1000, 1400, 3000, 20_000, 60_000] {
            let payload: Vec<u8> = (0..length).map(|n: u32| n.to_le_bytes()[0]).collect();
            let mut sent = vec![udp((HOST, 40_000), (SERVER, 53), &payload)];
            sent[0][6] = 0;
            sent[0][10..12].fill(0);
            let checksum = !sum(&sent[0][..20]);
            sent[0][10..12].copy_from_slice(&checksum.to_be_bytes());
            if length > 1400 {
                sent = fragments_ipv4(&sent[0], 1400);
            }
            let on_the_line = edge.forward(&sent);
            assert!(on_the_line.iter().all(|packet| packet[0] >> 4 == 6 && packet.len() <= 1500));
            let mut outside = relay.forward(&on_the_line);
            // A relay leaves it to the kernel to cut what it takes out of a softwire.
            let arrived = if technology == Encapsulation { see(&outside.remove(0)) } else { seen(&outside) };
            assert_eq!((arrived.source, arrived.destination), (PUBLIC.into(), SERVER.into()));
            assert!(ce().owns(PUBLIC, arrived.ports.0), "{}", arrived.ports.0);
            assert!(arrived.payload == payload, "{technology:?} {length}");

            let mut answer = vec![udp((SERVER, 53), (PUBLIC, arrived.ports.0), &payload)];
            if length > 1400 {
                answer = fragments_ipv4(&answer[0], 1400);
            }
            answer[0][6] &= 0x20;
            answer[0][10..12].fill(0);
            let checksum = !sum(&answer[0][..20]);
            answer[0][10..12].copy_from_slice(&checksum.to_be_bytes());
            let on_the_line = relay.forward(&answer);
            let inside = edge.forward(&on_the_line);
            let arrived = seen(&inside);
            assert_eq!((arrived.source, arrived.destination), (SERVER.into(), HOST.into()));
            assert_eq!(arrived.ports, (53, 40_000));
            assert!(arrived.payload == payload, "{technology:?} {length} back");
        }
    }
}

#[test]
fn an_edge_uses_every_port_of_its_set_and_no_other() {
    for technology in [Translation, Encapsulation] {
        let (mut edge, mut relay) = (End::new(edge_of(technology, true)), End::new(relay_of(technology)));
        let mut ports = HashSet::new();
        for port in 0..252 {
            let on_the_line = edge.forward(&[udp((HOST, 2000 + port), (SERVER, 53), b"port")]);
            let outside = see(&relay.forward(&on_the_line)[0]);
            ports.insert(outside.ports.0);
        }
        assert_eq!(ports.len(), 252, "{technology:?}");
        assert!(ports.iter().all(|&port| ce().owns(PUBLIC, port)));
        let (verdict, _) = edge.pass_with(&udp((HOST, 9000), (SERVER, 53), b"port"), Offload::default());
        assert_eq!(verdict, Verdict::Reply(DropReason::PoolExhausted));
    }
}

#[test]
fn fragments_of_a_translating_edge_have_identifications_of_its_own_port_set() {
    let mut edge = End::new(edge_of(Translation, false));
    let mut identifications = HashSet::new();
    for round in 0..50 {
        let mut whole = udp((HOST, 40_000), (SERVER, 53), &[7; 3000]);
        whole[6] = 0;
        whole[4..6].copy_from_slice(&[9, round]);
        let pieces = edge.forward(&fragments_ipv4(&whole, 1400));
        assert!(pieces.len() > 1);
        for piece in &pieces {
            let identification = u32::from_be_bytes(piece[44..48].try_into().unwrap());
            let port = u16::try_from(identification).unwrap();
            assert!(ce().owns(PUBLIC, port), "{port}");
            identifications.insert(port);
        }
    }
    assert!(identifications.len() >= 40, "{}", identifications.len());
}

#[test]
fn super_packets_cross_a_translating_edge_and_relay_whole() {
    let (mut edge, mut relay) = (End::new(edge_of(Translation, false)), End::new(relay_of(Translation)));
    let _ = edge.forward(&[tcp((HOST, 40_000), (SERVER, 80), support::SYN, b"")]);
    let bytes = tcp((HOST, 40_000), (SERVER, 80), support::ACK, &[5; 20_000]);
    let offload = Offload {
        segmentation: Segmentation::Tcp { size: 1400, ecn: false },
        checksum: ChecksumState::Partial { start: 20, offset: 16 },
    };
    let (verdict, sent) = edge.pass_with(&bytes, offload);
    assert_eq!((verdict, sent.len()), (Verdict::Forward, 1));
    let (line, offload) = &sent[0];
    assert_eq!(offload.segmentation, Segmentation::Tcp { size: 1400, ecn: false });
    let (verdict, sent) = relay.pass_with(line, *offload);
    assert_eq!((verdict, sent.len(), sent[0].0.len()), (Verdict::Forward, 1, bytes.len()));
}

/// Random packets for either end, often damaged.
struct Source {
    random: ChaCha8Rng,
    technology: Technology,
}

impl Source {
    fn below(&mut self, limit: u32) -> u32 {
        self.random.next_u32() % limit
    }

    fn port(&mut self) -> u16 {
        let ports = [1232, 1233, 1236, 64_723, 80, 1023, 2256, 40_000, 40_001];
        ports[self.below(9) as usize]
    }

    fn packet(&mut self) -> Vec<u8> {
        let technology = self.technology;
        let (a, b) = (self.port(), self.port());
        let host = Ipv4Addr::new(10, 0, 0, u8::try_from(2 + self.below(3)).unwrap());
        let public = Ipv4Addr::new(192, 0, 2, u8::try_from(17 + self.below(3)).unwrap());
        let remote = Ipv4Addr::new(198, 51, 100, u8::try_from(self.below(4)).unwrap());
        let share = rule().share_of(public, [1232, 1236][self.below(2) as usize]).unwrap();
        let subscriber = rule().map_address(share);
        let flags = u8::try_from(self.below(64)).unwrap();
        let payload = vec![0x42; self.below(300) as usize];
        let inner: Vec<u8> = match self.below(5) {
            0 => udp((public, a), (remote, b), &payload),
            1 => tcp((remote, a), (public, b), flags, &payload),
            2 => echo(remote, public, flags & 1 == 0, a),
            3 => icmp(
                remote,
                public,
                3 + 8 * (flags & 1),
                flags >> 2,
                self.below(2000),
                &udp((public, a), (remote, b), &payload),
            ),
            _ => udp((host, a), ([public, remote][self.below(2) as usize], b), &payload),
        };
        let embedded = dmr().embed([remote, public][self.below(2) as usize]);
        let mut packet = match (self.below(6), technology) {
            (0 | 1, _) => inner,
            (2, Translation) => udp((subscriber, a), (embedded, b), &payload),
            (3, Translation) => tcp((embedded, a), (subscriber, b), flags, &payload),
            (4, Translation) => {
                let about = udp((embedded, a), (subscriber, b), &payload);
                icmp(subscriber, embedded, 1 + flags % 4, flags >> 4, self.below(2000), &about)
            }
            (5, Translation) => {
                let about = udp((subscriber, a), (embedded, b), &payload);
                icmp(embedded, subscriber, 1 + flags % 4, flags >> 4, self.below(2000), &about)
            }
            (2, Encapsulation) => softwire(subscriber, RELAY, &inner),
            (3, Encapsulation) => softwire(RELAY, ce().address(), &inner),
            (4, Encapsulation) => {
                let about = softwire(RELAY, subscriber, &inner);
                icmp(subscriber, RELAY, 1 + flags % 4, flags >> 4, 1200 + self.below(400), &about)
            }
            _ => {
                let about = softwire(ce().address(), RELAY, &inner);
                icmp(RELAY, ce().address(), 1 + flags % 4, flags >> 4, 1200 + self.below(400), &about)
            }
        };
        if self.below(8) == 0 && packet.len() > 100 {
            let pieces = if packet[0] >> 4 == 4 { fragments_ipv4(&packet, 64) } else { fragments_ipv6(&packet, 64) };
            let which = self.below(u32::try_from(pieces.len()).unwrap()) as usize;
            packet.clone_from(&pieces[which]);
        }
        for _ in 0..self.below(3) {
            let at = self.below(u32::try_from(packet.len().min(100)).unwrap()) as usize;
            match self.below(6) {
                0 => packet.truncate(at.max(1)),
                1 => packet[at] = flags,
                2 => packet[at] ^= 1 << self.below(8),
                _ => {}
            }
        }
        packet
    }
}

fn softwire(source: Ipv6Addr, destination: Ipv6Addr, inner: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, 4, 64];
    packet[4..6].copy_from_slice(&u16::try_from(inner.len()).unwrap().to_be_bytes());
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.extend(inner);
    packet
}

/// What leaves is a packet, and leaves from an address of the ends' own or of the domain.
fn check_structure(bytes: &[u8]) {
    let word = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    match bytes[0] >> 4 {
        4 => {
            assert_eq!(word(2), bytes.len());
            assert_eq!(sum(&bytes[..usize::from(bytes[0] & 15) * 4]), 0xffff);
        }
        6 => assert_eq!(word(4) + 40, bytes.len()),
        version => panic!("version {version}"),
    }
}

#[test]
fn random_packets_do_no_harm_to_either_end() {
    for technology in [Translation, Encapsulation] {
        for kind in [relay_of(technology), edge_of(technology, true), edge_of(technology, false)] {
            let is_relay = matches!(kind, ServiceKind::MapTBr(_) | ServiceKind::MapEBr(_));
            let mut end = End::new(kind);
            let mut source = Source { random: ChaCha8Rng::seed_from_u64(20), technology };
            let mut forwarded = 0;
            let mut reasons = HashSet::new();
            for n in 0..150_000_u64 {
                let packet = source.packet();
                let (verdict, sent) = end.pass_with(&packet, Offload::default());
                for (bytes, _) in &sent {
                    check_structure(bytes);
                    if is_relay && verdict == Verdict::Forward && bytes[0] >> 4 == 4 && bytes[9] != 1 {
                        // Nobody speaks for another subscriber.
                        assert_eq!(bytes[..3][0] >> 4, 4);
                        assert_eq!(&bytes[12..15], &[192, 0, 2]);
                    }
                }
                match verdict {
                    Verdict::Forward => forwarded += u32::from(!sent.is_empty()),
                    Verdict::Reply(reason) => {
                        reasons.insert(reason);
                    }
                    Verdict::Drop(reason) => {
                        assert!(sent.is_empty(), "{reason}");
                        reasons.insert(reason);
                    }
                    Verdict::EchoReply | Verdict::Pcp(_) => assert_eq!(sent.len(), 1),
                    Verdict::Hold | Verdict::ToHost | Verdict::Redirect(_) => assert!(sent.is_empty()),
                }
                if n % 1000 == 0 {
                    end.now = Now(end.now.0 + SECOND);
                    end.engine.idle(end.now);
                }
            }
            assert_eq!(audit::check(&end.tables), Vec::<String>::new());
            assert!(forwarded > 5000 && reasons.len() >= 6, "{technology:?}: {forwarded} forwarded, {reasons:?}");
        }
    }
}

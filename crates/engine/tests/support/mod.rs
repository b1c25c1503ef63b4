//! What the engine's tests share: a gateway with one NAT64 or one NAT44, packets, and an
//! independent look at what comes out.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test uses a part of it, and a test may panic")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tombolo_engine::counters::Totals;
use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::allocation::Allocation;
use tombolo_engine::mapping::exemptions::Exemptions;
use tombolo_engine::mapping::networks::Networks;
use tombolo_engine::mapping::pool::{Owner, Pool, PoolRange, PortRanges, PortSpace};
use tombolo_engine::mechanism::napt::{Endpoint, Nat, Policy, Times};
use tombolo_engine::mechanism::{TranslateSettings, UdpZeroChecksum};
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::plan::{OwnAddresses, Plan, Service, ServiceKind, StaticBinding};
use tombolo_engine::service::nat44::Nat44;
use tombolo_engine::service::nat64::Nat64;
use tombolo_engine::sweep::Expiry;
use tombolo_engine::{Engine, Now, Verdict};
use tombolo_tables::Tables;
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_tables::session::Session;
use tombolo_tables::sweep::Sweeper;
use tombolo_tables::tables::Capacity;
use tombolo_wire::Port;
use tombolo_wire::rfc6052::Prefix64;

pub const SECOND: u64 = 1_000_000_000;
pub const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2);
pub const OTHER_HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 3);
pub const HOST4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub const OTHER_HOST4: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 3);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
pub const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// What a test may change about the gateway.
pub struct Setup {
    pub ports: std::ops::RangeInclusive<u16>,
    pub last_address: Ipv4Addr,
    pub policy: Policy,
    pub bindings: u32,
    pub sessions: u64,
    pub subscribers: u32,
    pub static_bindings: Vec<StaticBinding>,
    pub times: Times,
    /// A NAT44 for 10.0.0.0/22 instead of a NAT64.
    pub nat44: bool,
    pub allocation: Allocation,
    /// Whose address the pool has.
    pub owner: Owner,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            ports: 1024..=65535,
            last_address: POOL,
            policy: Policy::default(),
            bindings: 1000,
            sessions: 1000,
            subscribers: 100,
            static_bindings: Vec::new(),
            times: Times::default(),
            nat44: false,
            allocation: Allocation::Ports,
            owner: Owner::Gateway,
        }
    }
}

pub struct Gateway {
    pub engine: Engine,
    pub plan: Plan,
    pub tables: Arc<Tables>,
    pub now: Now,
}

/// A packet that left, as bytes, with its offload.
pub type Sent = (Vec<u8>, Offload);

impl Gateway {
    pub fn new(setup: Setup) -> Self {
        let ports = PortRanges::new([setup.ports.clone()]);
        let lowest = setup.static_bindings.iter().map(|b| b.outside.port.0).min().unwrap_or(*setup.ports.start());
        let range = PoolRange {
            first: POOL,
            last: setup.last_address,
            ports: [ports.clone(), ports.clone(), ports],
            span: lowest.min(*setup.ports.start())..=*setup.ports.end(),
            first_slot: 0,
            owner: setup.owner,
        };
        let pool = Pool::new(vec![range]).with_allocation(setup.allocation.clone());
        let kind =
            if setup.nat44 { ServiceKind::Nat44(nat44(&setup, pool)) } else { ServiceKind::Nat64(nat64(&setup, pool)) };
        let mut plan = Plan {
            services: vec![Service::new(0, "test", kind)],
            retired: Vec::new(),
            cluster: None,
            rows: tombolo_engine::row::Rows::default(),
            times: setup.times,
            capacity: Capacity {
                subscribers: setup.subscribers,
                bindings: setup.bindings,
                sessions: setup.sessions,
                outside_slots: 0,
                leases: 16,
            },
            pcp: Default::default(),
            own: OwnAddresses {
                ipv4: Some(Ipv4Addr::new(198, 51, 100, 1)),
                ipv6: Some("2001:db8:1::1".parse().unwrap()),
                ..OwnAddresses::default()
            },
        };
        plan.capacity.outside_slots = plan.outside_slots().unwrap();
        let tables = Arc::new(Tables::new(&mut Heap, plan.capacity, HashKey::new([5, 6, 7, 8])).unwrap());
        let now = Now(1_000 * SECOND);
        assert_eq!(tombolo_engine::static_bindings::reconcile(&tables, &plan, now), Vec::new());
        Self { engine: Engine::new(Arc::clone(&tables), [7; 32], 0, 1), plan, tables, now }
    }

    /// Sends `bytes` through the gateway.
    pub fn pass(&mut self, bytes: &[u8]) -> (Verdict, Vec<Vec<u8>>) {
        let (verdict, sent) = self.pass_with(bytes, Offload::default());
        (verdict, sent.into_iter().map(|(bytes, _)| bytes).collect())
    }

    pub fn pass_with(&mut self, bytes: &[u8], offload: Offload) -> (Verdict, Vec<Sent>) {
        let mut buffer = vec![0xa5; HEADROOM + bytes.len() + 64];
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len(), offload).unwrap();
        let mut sent: Vec<Sent> = Vec::new();
        let mut outbox = |packet: &mut Packet<'_>| sent.push((packet.bytes().to_vec(), packet.offload));
        let verdict = self.engine.process(&self.plan, &mut packet, self.now, &mut outbox);
        (verdict, sent)
    }

    /// The one packet that comes of `bytes`.
    pub fn forward(&mut self, bytes: &[u8]) -> Seen {
        let (verdict, mut sent) = self.pass(bytes);
        assert_eq!((verdict, sent.len()), (Verdict::Forward, 1));
        see(&sent.remove(0))
    }

    /// What leaves of itself when a second or more has passed: SYNs that were held in vain.
    pub fn release_held(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        let mut outbox = |packet: &mut Packet<'_>| sent.push(packet.bytes().to_vec());
        self.engine.release_held(&self.plan, self.now, &mut outbox);
        sent
    }

    /// One pass and another of the sweep: what is over is gone. The connections that are to be
    /// probed.
    pub fn sweep(&mut self) -> Vec<Session> {
        let mut sweeper = Sweeper::new(&self.tables, self.now.tick());
        let mut expiry = Expiry::new(&self.plan);
        for _ in 0..2 {
            assert!(sweeper.advance(&self.tables, usize::MAX, self.now.tick(), &mut expiry));
        }
        expiry.probes
    }

    /// Totals of what was counted.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.engine.counters().add_to(&mut totals);
        totals
    }

    pub fn audit(&self) {
        assert_eq!(tombolo_tables::audit::check(&self.tables), Vec::<String>::new());
    }

    pub fn wait(&mut self, seconds: u64) {
        self.now = Now(self.now.0 + seconds * SECOND);
    }

    pub fn nat44(&mut self) -> &mut Nat44 {
        match &mut self.plan.services[0].kind {
            ServiceKind::Nat44(nat44) => nat44,
            other => panic!("{other:?}"),
        }
    }

    pub fn nat64(&mut self) -> &mut Nat64 {
        match &mut self.plan.services[0].kind {
            ServiceKind::Nat64(nat64) => nat64,
            other => panic!("{other:?}"),
        }
    }
}

fn nat64(setup: &Setup, pool: Pool) -> Nat64 {
    Nat64 {
        prefix: Prefix64::new("64:ff9b::".parse().unwrap(), 96).unwrap(),
        inside: Networks::default(),
        well_known_prefix_strict: false,
        nat: nat(setup, pool),
        translate: TranslateSettings { udp_zero_4to6: UdpZeroChecksum::Compute, ..TranslateSettings::default() },
    }
}

fn nat44(setup: &Setup, pool: Pool) -> Nat44 {
    Nat44 {
        inside: AddressRanges::new([Ipv4Addr::new(10, 0, 0, 0)..=Ipv4Addr::new(10, 0, 3, 255)]),
        untranslated: AddressRanges::new([Ipv4Addr::new(172, 16, 0, 0)..=Ipv4Addr::new(172, 16, 255, 255)]),
        exempt: Exemptions::default(),
        nat: nat(setup, pool),
        inside_mtu: 1500,
        outside_mtu: 1500,
        largest_segment: None,
    }
}

fn nat(setup: &Setup, pool: Pool) -> Nat {
    Nat { pool, policy: setup.policy, static_bindings: setup.static_bindings.clone() }
}

/// What a packet says, read without the code under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    pub hop_limit: u8,
    /// Source and destination port; identifier and zero for an echo.
    pub ports: (u16, u16),
    pub payload: Vec<u8>,
}

/// Reads a packet and insists that all its checksums are right.
pub fn see(bytes: &[u8]) -> Seen {
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let (source, destination, protocol, hop_limit, header) = if bytes[0] >> 4 == 4 {
        assert_eq!(sum(&bytes[..20]), 0xffff, "IPv4 header checksum");
        assert_eq!(usize::from(word(2)), bytes.len());
        let address = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]).into();
        (address(12), address(16), bytes[9], bytes[8], 20)
    } else {
        assert_eq!(usize::from(word(4)) + 40, bytes.len());
        let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[at..at + 16]).unwrap()).into();
        (address(8), address(24), bytes[6], bytes[7], 40)
    };
    let mut pseudo = bytes[header - if header == 20 { 8 } else { 32 }..header].to_vec();
    pseudo.extend(u32::try_from(bytes.len() - header).unwrap().to_be_bytes());
    pseudo.extend([0, 0, 0, protocol]);
    if protocol == 1 {
        pseudo.clear();
    }
    pseudo.extend(&bytes[header..]);
    assert_eq!(sum(&pseudo), 0xffff, "transport checksum of {bytes:02x?}");
    let (ports, data) = match protocol {
        6 => ((word(header), word(header + 2)), header + 20),
        17 => ((word(header), word(header + 2)), header + 8),
        _ => ((word(header + 4), 0), header + 8),
    };
    Seen { source, destination, protocol, hop_limit, ports, payload: bytes[data..].to_vec() }
}

/// One's-complement sum, the slow and plain way.
pub fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

/// An IP packet around a transport header and payload whose checksum lies at `checksum_at`.
fn ip(source: IpAddr, destination: IpAddr, protocol: u8, mut transport: Vec<u8>, checksum_at: usize) -> Vec<u8> {
    let length = u16::try_from(transport.len()).unwrap();
    let (mut header, addresses) = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, protocol, 0, 0];
            header[2..4].copy_from_slice(&(length + 20).to_be_bytes());
            (header, [source.octets(), destination.octets()].concat())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
            header[4..6].copy_from_slice(&length.to_be_bytes());
            (header, [source.octets(), destination.octets()].concat())
        }
        _ => panic!("mixed families"),
    };
    let mut pseudo = if protocol == 1 { Vec::new() } else { addresses.clone() };
    if protocol != 1 {
        pseudo.extend(u32::from(length).to_be_bytes());
        pseudo.extend([0, 0, 0, protocol]);
    }
    pseudo.extend(&transport);
    transport[checksum_at..checksum_at + 2].copy_from_slice(&(!sum(&pseudo)).to_be_bytes());
    header.extend(addresses);
    if header[0] == 0x45 {
        let checksum = !sum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    header.extend(transport);
    header
}

pub fn udp(source: (impl Into<IpAddr>, u16), destination: (impl Into<IpAddr>, u16), payload: &[u8]) -> Vec<u8> {
    let mut transport = [source.1.to_be_bytes(), destination.1.to_be_bytes()].concat();
    transport.extend(u16::try_from(payload.len() + 8).unwrap().to_be_bytes());
    transport.extend([0, 0]);
    transport.extend(payload);
    ip(source.0.into(), destination.0.into(), 17, transport, 6)
}

pub const SYN: u8 = 2;
pub const ACK: u8 = 16;
pub const FIN: u8 = 1;
pub const RST: u8 = 4;

pub fn tcp(
    source: (impl Into<IpAddr>, u16),
    destination: (impl Into<IpAddr>, u16),
    flags: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut transport = [source.1.to_be_bytes(), destination.1.to_be_bytes()].concat();
    transport.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    transport.extend(payload);
    ip(source.0.into(), destination.0.into(), 6, transport, 16)
}

pub fn echo(source: impl Into<IpAddr>, destination: impl Into<IpAddr>, request: bool, identifier: u16) -> Vec<u8> {
    let source = source.into();
    let (kind, protocol) = match (source, request) {
        (IpAddr::V4(_), true) => (8, 1),
        (IpAddr::V4(_), false) => (0, 1),
        (IpAddr::V6(_), true) => (128, 58),
        (IpAddr::V6(_), false) => (129, 58),
    };
    let mut transport = vec![kind, 0, 0, 0];
    transport.extend(identifier.to_be_bytes());
    transport.extend([0, 7]);
    transport.extend(b"ping payload");
    ip(source, destination.into(), protocol, transport, 2)
}

pub fn embed(address: Ipv4Addr) -> Ipv6Addr {
    Prefix64::new("64:ff9b::".parse().unwrap(), 96).unwrap().embed(address)
}

pub fn static_binding(space: PortSpace, inside_port: u16, outside_port: u16) -> StaticBinding {
    StaticBinding {
        space,
        softwire: Ipv6Addr::UNSPECIFIED,
        inside: HOST.into(),
        inside_port: Port(inside_port),
        outside: Endpoint { address: POOL, port: Port(outside_port) },
    }
}

/// An ICMP or ICMPv6 message about `quoted`, with `rest` in bytes 4 to 7.
pub fn icmp(
    source: impl Into<IpAddr>,
    destination: impl Into<IpAddr>,
    kind: u8,
    code: u8,
    rest: u32,
    quoted: &[u8],
) -> Vec<u8> {
    let source = source.into();
    let mut transport = vec![kind, code, 0, 0];
    transport.extend(rest.to_be_bytes());
    transport.extend(quoted);
    ip(source, destination.into(), if source.is_ipv4() { 1 } else { 58 }, transport, 2)
}

/// Cuts an IPv6 packet into fragments with `size` bytes of payload.
pub fn fragments_ipv6(packet: &[u8], size: usize) -> Vec<Vec<u8>> {
    let payload = &packet[40..];
    let pieces = payload.chunks(size).enumerate().map(|(n, chunk)| {
        let more = n * size + chunk.len() < payload.len();
        let mut piece = packet[..40].to_vec();
        piece[4..6].copy_from_slice(&u16::try_from(chunk.len() + 8).unwrap().to_be_bytes());
        piece[6] = 44;
        piece.extend([packet[6], 0]);
        piece.extend((u16::try_from(n * size).unwrap() | u16::from(more)).to_be_bytes());
        piece.extend([0x80, 0, 0, 9]);
        piece.extend(chunk);
        piece
    });
    pieces.collect()
}

/// Cuts an IPv4 packet into fragments with `size` bytes of payload.
pub fn fragments_ipv4(packet: &[u8], size: usize) -> Vec<Vec<u8>> {
    let payload = &packet[20..];
    let pieces = payload.chunks(size).enumerate().map(|(n, chunk)| {
        let more = n * size + chunk.len() < payload.len();
        let mut piece = packet[..20].to_vec();
        piece[2..4].copy_from_slice(&u16::try_from(chunk.len() + 20).unwrap().to_be_bytes());
        let offset = u16::try_from(n * size / 8).unwrap() | if more { 0x2000 } else { 0 };
        piece[6..8].copy_from_slice(&offset.to_be_bytes());
        piece[10..12].copy_from_slice(&[0, 0]);
        let checksum = !sum(&piece);
        piece[10..12].copy_from_slice(&checksum.to_be_bytes());
        piece.extend(chunk);
        piece
    });
    pieces.collect()
}

/// Puts IPv4 packets together that may be fragments.
pub fn whole_of_ipv4(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut whole = packets[0][..20].to_vec();
    let mut pieces: Vec<_> =
        packets.iter().map(|p| (usize::from(u16::from_be_bytes([p[6] & 0x1f, p[7]])) * 8, &p[20..])).collect();
    pieces.sort_unstable();
    for (offset, bytes) in pieces {
        assert_eq!(offset, whole.len() - 20, "a hole, or an overlap");
        whole.extend(bytes);
    }
    let length = u16::try_from(whole.len()).unwrap();
    whole[2..4].copy_from_slice(&length.to_be_bytes());
    whole[6..8].copy_from_slice(&[0, 0]);
    whole[10..12].copy_from_slice(&[0, 0]);
    let checksum = !sum(&whole[..20]);
    whole[10..12].copy_from_slice(&checksum.to_be_bytes());
    whole
}

/// Puts IPv6 packets together that may be fragments.
pub fn whole_of_ipv6(packets: &[Vec<u8>]) -> Vec<u8> {
    if packets[0][6] != 44 {
        assert_eq!(packets.len(), 1);
        return packets[0].clone();
    }
    let mut whole = packets[0][..40].to_vec();
    whole[6] = packets[0][40];
    let mut pieces: Vec<_> =
        packets.iter().map(|p| (usize::from(u16::from_be_bytes([p[42], p[43]]) & !7), &p[48..])).collect();
    pieces.sort_unstable();
    for (offset, bytes) in pieces {
        assert_eq!(offset, whole.len() - 40, "a hole, or an overlap");
        whole.extend(bytes);
    }
    let length = u16::try_from(whole.len() - 40).unwrap();
    whole[4..6].copy_from_slice(&length.to_be_bytes());
    whole
}

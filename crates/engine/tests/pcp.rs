//! Hosts inside ask for ports (RFC 6887, RFC 7753): what they get, what they do not, and what becomes of it.
//! Requests are bytes written here, without the code under test. Behind softwires: `softwire_services.rs`.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use proptest::prelude::*;
use support::*;
use tombolo_engine::mapping::allocation::{Allocation, Blocks};
use tombolo_engine::mapping::pool::{Parity, PortSpace};
use tombolo_engine::mechanism::napt::{Filtering, InboundTcp, Policy, StaticBinding};
use tombolo_engine::plan::{PcpAddresses, PcpPolicy};
use tombolo_engine::{DropReason, Engine, Verdict};
use tombolo_tables::binding::{Binding, Origin};
use tombolo_tables::tables::Removal;

const ANYCAST4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 9);
const ANYCAST6: Ipv6Addr = Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 1);
const STRANGER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const NONCE: [u8; 12] = *b"twelve bytes";
const TCP: u8 = 6;
const UDP: u8 = 17;

const SUCCESS: u8 = 0;
const UNSUPP_VERSION: u8 = 1;
const NOT_AUTHORIZED: u8 = 2;
const MALFORMED_REQUEST: u8 = 3;
const UNSUPP_OPCODE: u8 = 4;
const UNSUPP_OPTION: u8 = 5;
const NO_RESOURCES: u8 = 8;
const UNSUPP_PROTOCOL: u8 = 9;
const USER_EX_QUOTA: u8 = 10;
const CANNOT_PROVIDE_EXTERNAL: u8 = 11;
const ADDRESS_MISMATCH: u8 = 12;

const PREFER_FAILURE: [u8; 4] = [2, 0, 0, 0];

/// A request for a mapping.
#[derive(Clone, Copy)]
struct Map {
    protocol: u8,
    port: u16,
    suggested: (Ipv4Addr, u16),
    lifetime: u32,
    nonce: [u8; 12],
}

impl Map {
    const fn of(protocol: u8, port: u16) -> Self {
        Self { protocol, port, suggested: (Ipv4Addr::UNSPECIFIED, 0), lifetime: 3600, nonce: NONCE }
    }

    fn bytes(&self, opcode: u8, client: IpAddr) -> Vec<u8> {
        let mut bytes = vec![2, opcode, 0, 0];
        bytes.extend(self.lifetime.to_be_bytes());
        bytes.extend(in_ipv6(client).octets());
        bytes.extend(self.nonce);
        bytes.extend([self.protocol, 0, 0, 0]);
        bytes.extend(self.port.to_be_bytes());
        bytes.extend(self.suggested.1.to_be_bytes());
        bytes.extend(self.suggested.0.to_ipv6_mapped().octets());
        bytes
    }
}

fn in_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// A response, read byte by byte.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Got {
    opcode: u8,
    code: u8,
    lifetime: u32,
    epoch: u32,
    outside: Option<(Ipv4Addr, u16)>,
    bytes: Vec<u8>,
}

fn read(bytes: &[u8]) -> Got {
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    assert!(bytes.len() >= 24 && bytes.len() <= 1100 && bytes.len().is_multiple_of(4), "{bytes:?}");
    assert_eq!((bytes[0], bytes[1] & 0x80, bytes[2]), (2, 0x80, 0));
    let outside = (bytes[3] == SUCCESS && bytes.len() >= 60).then(|| {
        let address = Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[44..60]).unwrap());
        (address.to_ipv4_mapped().unwrap(), u16::from_be_bytes([bytes[42], bytes[43]]))
    });
    Got { opcode: bytes[1] & 0x7f, code: bytes[3], lifetime: word(4), epoch: word(8), outside, bytes: bytes.to_vec() }
}

impl Gateway {
    /// What `host` gets for `message`; nothing if there is no answer.
    fn ask(&mut self, host: impl Into<IpAddr>, message: &[u8]) -> Option<Got> {
        let host = host.into();
        let server: IpAddr = if host.is_ipv4() { ANYCAST4.into() } else { ANYCAST6.into() };
        let (verdict, sent) = self.pass(&udp((host, 40_000), (server, 5351), message));
        assert_eq!(matches!(verdict, Verdict::Pcp(_)), !sent.is_empty(), "{verdict:?}");
        let seen = sent.first().map(|bytes| see(bytes))?;
        assert_eq!((seen.source, seen.destination, seen.ports), (server, host, (5351, 40_000)));
        Some(read(&seen.payload))
    }

    fn map(&mut self, host: impl Into<IpAddr>, map: Map) -> Got {
        let host = host.into();
        self.ask(host, &map.bytes(1, host)).unwrap()
    }

    fn bindings(&self) -> Vec<Binding> {
        self.tables.bindings.iter().filter_map(|id| Some(self.tables.bindings.read(id)?.0)).collect()
    }

    /// What the thread that sweeps does once a second.
    fn end_leases(&mut self) -> usize {
        let withdrawn = self.tables.leases.tidy(&self.tables, self.now.tick());
        let mut removal = Removal::new(&self.tables);
        withdrawn.iter().for_each(|(id, binding)| removal.finish_withdrawn(*id, binding));
        removal.finish();
        withdrawn.len()
    }
}

fn policy() -> Policy {
    Policy { pcp: Some(PcpPolicy::default()), ..Policy::default() }
}

fn gateway_of(setup: Setup) -> Gateway {
    let mut gateway = Gateway::new(setup);
    gateway.plan.pcp = PcpAddresses { ipv4: vec![ANYCAST4], ipv6: vec![ANYCAST6] };
    gateway
}

fn nat44(policy: Policy) -> Gateway {
    gateway_of(Setup { nat44: true, policy, ..Setup::default() })
}

#[test]
fn a_mapping_lets_anybody_in_whatever_filtering_says_until_its_time_is_over() {
    let strict = Policy { filtering: Filtering::AddressDependent.into(), inbound_tcp: InboundTcp::Denied, ..policy() };
    for policy in [policy(), strict] {
        let mut gateway = nat44(policy);
        for protocol in [TCP, UDP] {
            let got = gateway.map(HOST4, Map::of(protocol, 8080));
            assert_eq!((got.code, got.opcode, got.lifetime), (SUCCESS, 1, 3600));
            assert_eq!(got.bytes[24..42], Map::of(protocol, 8080).bytes(1, HOST4.into())[24..42], "what it was for");
            let outside = got.outside.unwrap();
            assert_eq!(outside.0, POOL);
            let knocks = |port| match protocol {
                TCP => tcp((STRANGER, port), outside, SYN, b""),
                _ => udp((STRANGER, port), outside, b"knock"),
            };
            let seen = gateway.forward(&knocks(999));
            assert_eq!((seen.destination, seen.ports.1), (HOST4.into(), 8080));
            gateway.wait(3599);
            gateway.sweep();
            gateway.end_leases();
            assert_eq!(gateway.forward(&knocks(1000)).destination, IpAddr::from(HOST4), "no silence ends it");
            gateway.wait(4);
            assert_eq!(gateway.end_leases(), 1);
            assert_eq!(gateway.pass(&knocks(1001)).0, Verdict::Drop(DropReason::NoBinding));
            assert_eq!((gateway.tables.bindings.count(), gateway.tables.each_session().count()), (0, 0));
            gateway.audit();
        }
    }
}

#[test]
fn its_holder_renews_a_mapping_and_deletes_it_and_nobody_else_does() {
    let mut gateway = nat44(policy());
    let map = Map::of(UDP, 5000);
    let first = gateway.map(HOST4, map);
    gateway.wait(1000);
    let stranger = Map { nonce: [9; 12], ..map };
    for other in [stranger, Map { lifetime: 0, ..stranger }] {
        let got = gateway.map(HOST4, other);
        assert_eq!(got.code, NOT_AUTHORIZED);
        assert!((2598..=2602).contains(&got.lifetime), "as long as the mapping is there: {}", got.lifetime);
        assert!(!got.bytes.windows(12).any(|bytes| bytes == NONCE), "the nonce is a secret");
    }
    gateway.wait(2000);
    assert_eq!(gateway.map(HOST4, map).outside, first.outside);
    gateway.wait(2000);
    assert_eq!((gateway.end_leases(), gateway.tables.leases.count()), (0, 1), "renewed");
    let deleted = gateway.map(HOST4, Map { lifetime: 0, suggested: (Ipv4Addr::UNSPECIFIED, 0), ..map });
    assert_eq!((deleted.code, deleted.lifetime), (SUCCESS, 0));
    let knock = udp((STRANGER, 1), first.outside.unwrap(), b"");
    assert_eq!(gateway.pass(&knock).0, Verdict::Drop(DropReason::NoBinding), "at once");
    assert_eq!(gateway.end_leases(), 1, "for the log");
    assert_eq!(gateway.map(HOST4, Map { lifetime: 0, ..map }).code, SUCCESS, "deleted twice");
    assert_eq!(gateway.map(HOST4, Map { lifetime: 0, port: 0, protocol: 0, ..map }).code, SUCCESS, "no wildcards");
    gateway.audit();
}

#[test]
fn what_is_suggested_is_given_if_it_is_free() {
    let mut gateway = nat44(policy());
    let map = Map { suggested: (POOL, 4096), ..Map::of(TCP, 80) };
    assert_eq!(gateway.map(HOST4, map).outside, Some((POOL, 4096)));
    let other = Map { port: 81, ..map };
    let got = gateway.map(OTHER_HOST4, other);
    assert_eq!((got.code, got.outside.unwrap().1 == 4096), (SUCCESS, false));
    for (suggested, port) in [((POOL, 4096), 82), ((STRANGER, 5000), 82), ((POOL, 80), 82), ((POOL, 5555), 81)] {
        let host: IpAddr = OTHER_HOST4.into();
        let message = [Map { suggested, port, ..map }.bytes(1, host), PREFER_FAILURE.to_vec()].concat();
        assert_eq!(gateway.ask(host, &message).unwrap().code, CANNOT_PROVIDE_EXTERNAL, "{suggested:?}");
    }
    let message = [Map { suggested: (POOL, 5000), port: 83, ..map }.bytes(1, HOST4.into()), PREFER_FAILURE.to_vec()];
    let got = gateway.ask(HOST4, &message.concat()).unwrap();
    assert_eq!((got.code, got.outside, &got.bytes[60..]), (SUCCESS, Some((POOL, 5000)), &PREFER_FAILURE[..]));
    assert_eq!((gateway.tables.leases.count(), gateway.tables.bindings.count()), (3, 3), "what failed left nothing");
    gateway.audit();
}

#[test]
fn a_binding_that_packets_have_made_stays_where_it_is_and_becomes_what_it_was() {
    let mut gateway = nat44(Policy { filtering: Filtering::AddressDependent.into(), ..policy() });
    let outside = gateway.forward(&udp((HOST4, 6000), (SERVER, 53), b"")).ports.0;
    assert_eq!(gateway.map(HOST4, Map { lifetime: 0, ..Map::of(UDP, 6000) }).code, NOT_AUTHORIZED);
    assert_eq!(gateway.map(HOST4, Map::of(UDP, 6000)).outside, Some((POOL, outside)));
    assert_eq!(gateway.bindings()[0].origin(), Origin::Leased);
    let knock = udp((STRANGER, 1), (POOL, outside), b"");
    gateway.forward(&knock);
    assert_eq!(gateway.map(HOST4, Map { lifetime: 0, ..Map::of(UDP, 6000) }).code, SUCCESS);
    assert_eq!(gateway.bindings()[0].origin(), Origin::Dynamic);
    let other = udp((Ipv4Addr::new(203, 0, 113, 10), 1), (POOL, outside), b"");
    assert_eq!(gateway.pass(&other).0, Verdict::Drop(DropReason::Filtered));
    gateway.wait(400);
    gateway.sweep();
    assert_eq!(gateway.tables.bindings.count(), 0);
}

#[test]
fn a_configured_binding_is_confirmed_and_never_ends() {
    let fixed = StaticBinding { inside: HOST4.into(), ..static_binding(PortSpace::Tcp, 22, 2222) };
    let setup = Setup { nat44: true, policy: policy(), static_bindings: vec![fixed], ..Setup::default() };
    let mut gateway = gateway_of(setup);
    let got = gateway.map(HOST4, Map::of(TCP, 22));
    assert_eq!((got.code, got.outside, got.lifetime), (SUCCESS, Some((POOL, 2222)), u32::MAX));
    assert_eq!(gateway.map(HOST4, Map { lifetime: 0, ..Map::of(TCP, 22) }).code, NOT_AUTHORIZED);
    assert_eq!(gateway.tables.leases.count(), 0);
    let plan = gateway.plan.clone();
    gateway.map(HOST4, Map::of(TCP, 23));
    assert_eq!(tombolo_engine::static_bindings::reconcile(&gateway.tables, &plan, gateway.now), Vec::new());
    assert_eq!(gateway.tables.bindings.count(), 2, "a reload leaves what hosts have asked for");
}

#[test]
fn limits_hold_for_what_is_asked_for() {
    let limited = Policy { pcp: Some(PcpPolicy { mappings: 2, shortest: 300, longest: 600 }), ..policy() };
    let mut gateway = nat44(limited);
    assert_eq!(gateway.map(HOST4, Map::of(TCP, 1)).lifetime, 600);
    assert_eq!(gateway.map(HOST4, Map { lifetime: 1, ..Map::of(TCP, 2) }).lifetime, 300);
    let refused = gateway.map(HOST4, Map::of(TCP, 3));
    assert_eq!((refused.code, refused.lifetime), (USER_EX_QUOTA, 30));
    assert_eq!(gateway.map(HOST4, Map::of(TCP, 1)).code, SUCCESS, "renewed");
    assert_eq!(gateway.map(OTHER_HOST4, Map::of(TCP, 3)).code, SUCCESS, "each has its own");
    gateway.map(HOST4, Map { lifetime: 0, ..Map::of(TCP, 1) });
    assert_eq!(gateway.map(HOST4, Map::of(TCP, 3)).code, SUCCESS);

    let mut gateway = nat44(Policy { bindings_per_subscriber: Some(1), ..policy() });
    gateway.forward(&udp((HOST4, 1), (SERVER, 53), b""));
    assert_eq!(gateway.map(HOST4, Map::of(TCP, 3)).code, USER_EX_QUOTA, "they are bindings");

    let mut gateway = gateway_of(Setup { nat44: true, policy: policy(), ports: 2000..=2001, ..Setup::default() });
    let codes: Vec<u8> = (1..4).map(|port| gateway.map(HOST4, Map::of(TCP, port)).code).collect();
    assert_eq!(codes, [SUCCESS, SUCCESS, NO_RESOURCES]);

    let mut gateway = nat44(policy());
    let codes: Vec<u8> = (1..=17).map(|port| gateway.map(HOST4, Map::of(TCP, port)).code).collect();
    assert_eq!((codes[15], codes[16]), (SUCCESS, NO_RESOURCES), "room for 16 leases");
    gateway.plan.times.draining_since = Some(gateway.now.tick());
    assert_eq!(gateway.map(HOST4, Map { lifetime: 0, ..Map::of(TCP, 1) }).code, SUCCESS);
    assert_eq!(gateway.map(HOST4, Map::of(TCP, 1)).code, NO_RESOURCES, "nothing new while it is drained");
    assert_eq!(gateway.map(HOST4, Map::of(TCP, 2)).code, SUCCESS, "what is there goes on");
    gateway.end_leases();
    gateway.audit();
}

#[test]
fn ports_come_from_the_blocks_of_the_subscriber() {
    let allocation = Allocation::Blocks(Blocks { size: 64, most: 1 });
    let mut gateway = gateway_of(Setup { nat44: true, policy: policy(), allocation, ..Setup::default() });
    let got = gateway.map(HOST4, Map { suggested: (POOL, 50_000), ..Map::of(TCP, 80) });
    let block = got.outside.unwrap().1 / 64;
    let inside_block = Map { suggested: (POOL, block * 64 + 7), ..Map::of(TCP, 81) };
    assert_eq!(gateway.map(HOST4, inside_block).outside, Some((POOL, block * 64 + 7)));
    let other = Map { suggested: (POOL, (block ^ 1) * 64), ..Map::of(TCP, 82) };
    assert_eq!(gateway.map(HOST4, other).outside.unwrap().1 / 64, block);
    gateway.audit();
}

#[test]
fn what_cannot_be_done_has_its_code() {
    let mut gateway = nat44(policy());
    let code = |gateway: &mut Gateway, message: &[u8]| gateway.ask(HOST4, message).unwrap();
    let map = |map: Map| map.bytes(1, HOST4.into());
    // What natpmpc sends first (RFC 6886 section 3.2), and a mapping of NAT-PMP.
    for natpmp in [&[0, 0][..], &[0, 1, 0, 0, 0x1f, 0x90, 0x1f, 0x90, 0, 0, 0x0e, 0x10]] {
        assert_eq!(code(&mut gateway, natpmp).code, UNSUPP_VERSION);
    }
    let unknown = code(&mut gateway, &Map::of(TCP, 1).bytes(77, HOST4.into()));
    assert_eq!((unknown.code, unknown.opcode, unknown.lifetime), (UNSUPP_OPCODE, 77, 1800));
    assert_eq!(code(&mut gateway, &map(Map::of(TCP, 1))[..52]).code, MALFORMED_REQUEST);
    assert_eq!(code(&mut gateway, &Map::of(TCP, 1).bytes(1, OTHER_HOST4.into())).code, ADDRESS_MISMATCH);
    for (protocol, port) in [(1, 5), (132, 5), (0, 0), (TCP, 0)] {
        assert_eq!(code(&mut gateway, &map(Map::of(protocol, port))).code, UNSUPP_PROTOCOL);
    }
    assert_eq!(code(&mut gateway, &map(Map::of(0, 5))).code, MALFORMED_REQUEST);
    assert_eq!(code(&mut gateway, &map(Map { lifetime: 0, ..Map::of(0, 5) })).code, MALFORMED_REQUEST);
    let third_party = [&[1, 0, 0, 16][..], &OTHER_HOST4.to_ipv6_mapped().octets()].concat();
    let filter = [&[3, 0, 0, 20, 0, 128, 0, 0][..], &STRANGER.to_ipv6_mapped().octets()].concat();
    for option in [third_party, filter] {
        assert_eq!(code(&mut gateway, &[map(Map::of(TCP, 1)), option].concat()).code, UNSUPP_OPTION);
    }
    assert_eq!((gateway.tables.bindings.count(), gateway.tables.leases.count()), (0, 0));
    let totals = gateway.totals();
    assert_eq!((totals.pcp[3][UNSUPP_OPCODE as usize], totals.pcp[1][UNSUPP_PROTOCOL as usize]), (1, 4));
}

#[test]
fn who_is_not_inside_gets_no_answer_and_no_other_port_of_the_address_does() {
    let mut gateway = nat44(policy());
    let message = Map::of(TCP, 80).bytes(1, STRANGER.into());
    let (verdict, sent) = gateway.pass(&udp((STRANGER, 1), (ANYCAST4, 5351), &message));
    assert_eq!((verdict, sent.len()), (Verdict::Drop(DropReason::NotPcpClient), 0));
    let response = {
        let mut bytes = Map::of(TCP, 80).bytes(1, HOST4.into());
        bytes[1] |= 0x80;
        bytes
    };
    assert_eq!(gateway.ask(HOST4, &response), None);
    assert_eq!(gateway.ask(HOST4, &[2]), None);
    let mut damaged = udp((HOST4, 1), (ANYCAST4, 5351), &Map::of(TCP, 80).bytes(1, HOST4.into()));
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(gateway.pass(&damaged).0, Verdict::Drop(DropReason::BadChecksum));
    assert_eq!(gateway.pass(&echo(HOST4, ANYCAST4, true, 1)).0, Verdict::EchoReply);
    assert!(!matches!(gateway.pass(&udp((HOST4, 1), (ANYCAST4, 53), b"")).0, Verdict::Forward | Verdict::Pcp(_)));
    // To others it is a port as any.
    gateway.forward(&udp((HOST4, 1), (SERVER, 5351), &message));
    gateway.nat44().nat.policy.pcp = None;
    let message = Map::of(TCP, 80).bytes(1, HOST4.into());
    let asked = gateway.pass(&udp((HOST4, 1), (ANYCAST4, 5351), &message)).0;
    assert_eq!(asked, Verdict::Drop(DropReason::NotPcpClient));
    assert_eq!(gateway.tables.leases.count(), 0);
}

#[test]
fn the_epoch_counts_on_as_long_as_the_tables_are_there() {
    let mut gateway = nat44(policy());
    let mut announce = vec![2, 0, 0, 0, 0, 0, 0, 0];
    announce.extend(HOST4.to_ipv6_mapped().octets());
    let got = gateway.ask(HOST4, &announce).unwrap();
    assert_eq!((got.code, got.opcode, got.epoch, got.bytes.len()), (SUCCESS, 0, 0, 24));
    gateway.wait(100);
    gateway.engine = Engine::new(Arc::clone(&gateway.tables), [8; 32], 0, 1);
    assert_eq!(gateway.ask(HOST4, &announce).unwrap().epoch, 100);
    assert_eq!(gateway.map(HOST4, Map::of(TCP, 80)).epoch, 100);
}

#[test]
fn a_peer_keeps_its_binding_and_opens_nothing() {
    let mut gateway = gateway_of(Setup {
        policy: Policy { filtering: Filtering::AddressDependent.into(), ..policy() },
        ..Setup::default()
    });
    let peer = |map: Map, remote: Ipv6Addr, port: u16| {
        let mut bytes = map.bytes(2, HOST.into());
        bytes.extend(port.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(remote.octets());
        bytes
    };
    let outside = gateway.forward(&udp((HOST, 7000), (embed(SERVER), 53), b"")).ports.0;
    let got = gateway.ask(HOST, &peer(Map::of(UDP, 7000), embed(SERVER), 53)).unwrap();
    assert_eq!((got.code, got.opcode, got.outside, got.lifetime), (SUCCESS, 2, Some((POOL, outside)), 3600));
    assert_eq!(got.bytes[60..80], peer(Map::of(UDP, 7000), embed(SERVER), 53)[60..80], "its remote");
    gateway.wait(2000);
    gateway.sweep();
    let knock = udp((STRANGER, 1), (POOL, outside), b"");
    assert_eq!(gateway.pass(&knock).0, Verdict::Drop(DropReason::Filtered));
    let later = gateway.forward(&udp((HOST, 7000), (embed(SERVER), 53), b"")).ports.0;
    assert_eq!(later, outside, "silence of half an hour has not ended it");
    let renewed = Map { nonce: [1; 12], ..Map::of(UDP, 7000) };
    assert_eq!(gateway.ask(HOST, &peer(renewed, embed(SERVER), 53)).unwrap().code, NOT_AUTHORIZED);
    let moved = Map { suggested: (POOL, outside ^ 1), ..Map::of(UDP, 7000) };
    assert_eq!(gateway.ask(HOST, &peer(moved, embed(STRANGER), 53)).unwrap().code, CANNOT_PROVIDE_EXTERNAL);
    for (protocol, port, remote) in [(0, 7000, 53), (UDP, 0, 53), (UDP, 7000, 0)] {
        let got = gateway.ask(HOST, &peer(Map::of(protocol, port), embed(SERVER), remote)).unwrap();
        assert_eq!(got.code, MALFORMED_REQUEST);
    }
    let dropped = Map { lifetime: 0, ..Map::of(UDP, 7000) };
    let got = gateway.ask(HOST, &peer(dropped, embed(SERVER), 53)).unwrap();
    assert_eq!((got.code, got.lifetime, got.outside), (SUCCESS, 0, Some((POOL, outside))));
    assert_eq!(gateway.bindings()[0].origin(), Origin::Dynamic, "it goes when silence ends it");
    assert_eq!(gateway.ask(HOST, &peer(Map::of(TCP, 7000), embed(SERVER), 80)).unwrap().code, SUCCESS);
    gateway.wait(4000);
    assert_eq!(gateway.end_leases(), 1, "what it has made ends with it");
    gateway.audit();
}

#[test]
fn a_set_of_ports_stands_side_by_side() {
    let mut gateway = nat44(policy());
    let set = |size: u8, parity: u8| vec![130, 0, 0, 5, 0, size, 0x20, 0x01, parity, 0, 0, 0];
    let message = |lifetime, size| {
        let map = Map { lifetime, ..Map::of(UDP, 0x2001) };
        [map.bytes(1, HOST4.into()), set(size, 1)].concat()
    };
    let got = gateway.ask(HOST4, &message(3600, 8)).unwrap();
    let (code, first, option) = (got.code, got.outside.unwrap().1, got.bytes[60..].to_vec());
    assert_eq!((code, first % 2, option), (SUCCESS, 1, set(8, 1)));
    for place in 0..8 {
        let seen = gateway.forward(&udp((STRANGER, 1), (POOL, first + place), b""));
        assert_eq!(seen.ports.1, 0x2001 + place);
    }
    assert_eq!(gateway.ask(HOST4, &message(3600, 8)).unwrap().bytes[60..], set(8, 1), "renewed as a whole");
    let beyond = gateway.ask(HOST4, &message(3600, 100)).unwrap();
    assert_eq!(beyond.bytes[60..], set(16, 1), "as many as there is room for");
    assert_eq!(gateway.ask(HOST4, &message(0, 16)).unwrap().code, SUCCESS);
    assert_eq!(gateway.end_leases(), 16);
    let one = gateway.ask(HOST4, &message(3600, 1)).unwrap();
    assert_eq!(one.bytes.len(), 60, "a single port is no set");
    gateway.audit();
}

/// RFC 7753 section 6.3. The gateway does not keep parity by itself here, nor are there suggestions.
#[test]
fn a_set_of_udp_ports_begins_with_the_parity_that_was_asked_for() {
    let mut gateway = nat44(Policy { parity: Parity::Ignore, ..policy() });
    for inside in (0x2001..0x2061).step_by(0x10) {
        let map = Map::of(UDP, inside);
        let [high, low] = inside.to_be_bytes();
        let message = [map.bytes(1, HOST4.into()), vec![130, 0, 0, 5, 0, 2, high, low, 1, 0, 0, 0]].concat();
        let got = gateway.ask(HOST4, &message).unwrap();
        assert_eq!((got.code, got.outside.unwrap().1 % 2), (SUCCESS, 1), "{inside:#x}");
    }
}

#[test]
fn a_nat64_maps_for_hosts_of_ipv6() {
    let mut gateway = gateway_of(Setup { policy: policy(), ..Setup::default() });
    let got = gateway.map(HOST, Map::of(TCP, 443));
    let outside = got.outside.unwrap();
    let seen = gateway.forward(&tcp((STRANGER, 1), outside, SYN, b""));
    assert_eq!((seen.destination, seen.source, seen.ports.1), (HOST.into(), embed(STRANGER).into(), 443));
    let mut unsummed = udp((HOST, 1), (ANYCAST6, 5351), &Map::of(TCP, 80).bytes(1, HOST.into()));
    unsummed[46..48].fill(0);
    assert_eq!(gateway.pass(&unsummed).0, Verdict::Drop(DropReason::BadChecksum), "IPv6 has no datagrams without");
}

#[test]
fn a_flush_leaves_what_was_asked_for_and_an_operator_may_remove_it() {
    let mut gateway = nat44(policy());
    let outside = gateway.map(HOST4, Map::of(TCP, 80)).outside.unwrap();
    gateway.forward(&udp((HOST4, 1), (SERVER, 53), b""));
    let flushed = tombolo_engine::flush::flush(&gateway.tables, None, gateway.now, &mut |_| ());
    assert_eq!((flushed.bindings, gateway.tables.bindings.count()), (1, 1));
    let service = gateway.plan.services[0].clone();
    let endpoint =
        tombolo_engine::mechanism::napt::Endpoint { address: outside.0, port: tombolo_wire::Port(outside.1) };
    let removed =
        tombolo_engine::static_bindings::remove(&gateway.tables, &service, PortSpace::Tcp, endpoint, gateway.now);
    assert!(removed.is_ok(), "{removed:?}");
    gateway.end_leases();
    assert_eq!(gateway.tables.leases.count(), 0);
    gateway.audit();
}

/// A request that means something, of a host that has a mapping already.
fn mutated() -> impl Strategy<Value = (Vec<u8>, Ipv4Addr)> {
    let map =
        (prop::sample::select(vec![TCP, UDP, 0, 1, 132]), prop::sample::select(vec![80_u16, 81, 0]), any::<u32>());
    let changes = prop::collection::vec((0_usize..90, any::<u8>()), 0..4);
    let host = prop::sample::select(vec![HOST4, OTHER_HOST4, STRANGER, Ipv4Addr::new(192, 0, 2, 1)]);
    (map, 0_u8..4, changes, 0_usize..=92, host, any::<bool>()).prop_map(
        |((protocol, port, lifetime), opcode, changes, length, host, whole)| {
            let map = Map { lifetime, nonce: [3; 12], ..Map::of(protocol, port) };
            let mut bytes = map.bytes(opcode, host.into());
            bytes.extend([0, 53, 0, 0]);
            bytes.extend(SERVER.to_ipv6_mapped().octets());
            bytes.extend([130, 0, 0, 5, 0, 3, 0, 80, 0, 0, 0, 0]);
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            let whole_length = match opcode {
                0 => 24,
                1 => 60,
                _ => 80,
            };
            bytes.truncate(if whole { whole_length } else { length });
            (bytes, host)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Whatever is sent: an answer is a response, a refusal changes nothing, strangers get no answer, and the
    /// mapping that is there stays its holder's.
    #[test]
    fn malformed_and_spoofed_requests_change_nothing(
        requests in prop::collection::vec(prop_oneof![
            mutated(),
            prop::collection::vec(any::<u8>(), 0..1200).prop_map(|bytes| (bytes, HOST4)),
        ], 1..6),
    ) {
        let mut gateway = nat44(policy());
        let held = gateway.map(HOST4, Map::of(TCP, 80)).outside;
        for (bytes, host) in requests {
            let before = (gateway.bindings(), gateway.tables.leases.iter().collect::<Vec<_>>());
            let got = gateway.ask(host, &bytes);
            let after = (gateway.bindings(), gateway.tables.leases.iter().collect::<Vec<_>>());
            let is_inside = host == HOST4 || host == OTHER_HOST4;
            prop_assert!(got.is_none() || is_inside, "{host} got {got:?}");
            if got.as_ref().is_none_or(|got| got.code != SUCCESS) {
                prop_assert_eq!(before, after, "{:?}", got);
            }
            gateway.end_leases();
        }
        prop_assert_eq!(gateway.map(HOST4, Map::of(TCP, 80)).outside, held);
        gateway.audit();
    }
}

#[test]
fn the_longest_request_is_repeated_whole_and_a_longer_one_cut() {
    let mut gateway = nat44(policy());
    let longest = vec![2; 1100];
    assert_eq!(gateway.ask(HOST4, &longest).unwrap().bytes.len(), 1100);
    let too_long = vec![2; 1400];
    assert_eq!(gateway.ask(HOST4, &too_long).unwrap().code, MALFORMED_REQUEST);
}

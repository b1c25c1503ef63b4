//! Protocols besides TCP, UDP and ICMP, through a NAT44, in virtual time: how long their state lives,
//! who may come in, and whose a port is. What their packets look like on either side, and their
//! checksums, the golden cases say (`tests/cases/nat44`, `tests/cases/nat64`).

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::net::Ipv4Addr;

use support::*;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::mechanism::napt::{Filtering, InboundTcp, Policy, Protocols, Times};
use tombolo_engine::mechanism::session_state::Timeouts;
use tombolo_engine::{DropReason, Verdict};

/// Seconds by which state may go later than its lifetime says: it is kept in ticks.
const LATE: u64 = 3;
const STRANGER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 99);

const INIT: [u8; 20] = [1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1];
const INIT_ACK: [u8; 20] = [2, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1];
const SHUTDOWN: [u8; 8] = [7, 0, 0, 8, 0, 0, 0, 1];
const SHUTDOWN_ACK: [u8; 4] = [8, 0, 0, 4];
const ABORT: [u8; 4] = [6, 0, 0, 4];
const HEARTBEAT: [u8; 4] = [4, 0, 0, 4];

fn setup() -> Setup {
    let policy = Policy { protocols: Protocols::with(PortSpace::ALL), ..Policy::default() };
    Setup { nat44: true, ports: 0..=65535, policy, ..Setup::default() }
}

/// A packet around a transport whose checksum is nobody's business here.
fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, space: PortSpace, transport: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, space.protocol(), 0, 0];
    let length = u16::try_from(20 + transport.len()).unwrap();
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet.extend([source.octets(), destination.octets()].concat());
    let checksum = !sum(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(transport);
    packet
}

/// Chunks of SCTP, or the type of a DCCP packet, behind ports.
fn transport(space: PortSpace, ports: [u16; 2], what: &[u8]) -> Vec<u8> {
    let mut bytes = [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat();
    match space {
        PortSpace::Sctp => bytes.extend([&[0, 0, 0, 1, 0, 0, 0, 0], what].concat()),
        PortSpace::Dccp => bytes.extend([4, 0, 0, 0, what[0] << 1 | 1, 0, 0, 0, 0, 0, 0, 1]),
        PortSpace::UdpLite => bytes.extend([0, 8, 0x12, 0x34]),
        _ => bytes = vec![0, 0, 0x12, 0x34, 0, 0, 0, 1],
    }
    bytes
}

/// One connection or flow of a host.
struct Flow {
    gateway: Gateway,
    space: PortSpace,
    outside: u16,
}

impl Flow {
    fn new(space: PortSpace, setup: Setup, first: &[u8]) -> Self {
        let mut flow = Self { gateway: Gateway::new(setup), space, outside: 0 };
        let sent = flow.out(first).unwrap();
        assert_eq!(sent[12..16], POOL.octets());
        flow.outside = if space.has_ports() { u16::from_be_bytes([sent[20], sent[21]]) } else { 0 };
        flow
    }

    fn send(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Verdict> {
        match self.gateway.pass(bytes) {
            (Verdict::Forward, mut sent) => Ok(sent.remove(0)),
            (verdict, _) => Err(verdict),
        }
    }

    fn out(&mut self, what: &[u8]) -> Result<Vec<u8>, Verdict> {
        self.send(&ipv4(HOST4, SERVER, self.space, &transport(self.space, [40_000, 80], what)))
    }

    fn back_from(&mut self, remote: Ipv4Addr, what: &[u8]) -> Result<Vec<u8>, Verdict> {
        let sent = self.send(&ipv4(remote, POOL, self.space, &transport(self.space, [80, self.outside], what)))?;
        assert_eq!(sent[16..20], HOST4.octets());
        if self.space.has_ports() {
            assert_eq!(sent[22..24], 40_000_u16.to_be_bytes());
        }
        Ok(sent)
    }

    fn back(&mut self, what: &[u8]) -> Result<Vec<u8>, Verdict> {
        self.back_from(SERVER, what)
    }

    /// Seconds until nothing of it is left, if nobody sends.
    fn lives(mut self) -> u64 {
        let mut seconds = 0;
        while self.gateway.tables.bindings.count() > 0 {
            self.gateway.wait(1);
            seconds += 1;
            let probes = self.gateway.sweep();
            let Gateway { engine, plan, now, .. } = &mut self.gateway;
            for session in probes {
                let asked = engine.probe(plan, &session, *now, &mut |_: &mut tombolo_engine::packet::Packet<'_>| ());
                assert!(!asked, "a probe is a TCP segment");
            }
        }
        self.gateway.audit();
        seconds
    }
}

#[track_caller]
fn assert_lives(flow: Flow, seconds: u64) {
    let lived = flow.lives();
    assert!((seconds..=seconds + LATE).contains(&lived), "{lived} seconds instead of {seconds}");
}

/// Times of their own for each kind of state, so that a test sees which one counts.
fn times() -> Times {
    Times::new(&Timeouts { tcp_established: 1000, tcp_opening: 100, tcp_transitory: 60, ..Timeouts::default() }, 120)
}

#[test]
fn connections_of_sctp_and_dccp_live_as_those_of_tcp() {
    const REQUEST: &[u8] = &[0];
    const RESPONSE: &[u8] = &[1];
    const CLOSE: &[u8] = &[6];
    const RESET: &[u8] = &[7];
    const DATA: &[u8] = &[2];
    for (space, first, answer, data, close, closed, reset) in [
        (PortSpace::Sctp, &INIT[..], &INIT_ACK[..], &HEARTBEAT[..], &SHUTDOWN[..], &SHUTDOWN_ACK[..], &ABORT[..]),
        (PortSpace::Dccp, REQUEST, RESPONSE, DATA, CLOSE, CLOSE, RESET),
    ] {
        let begun = || Flow::new(space, Setup { times: times(), ..setup() }, first);
        let opened = || {
            let mut flow = begun();
            flow.back(answer).unwrap();
            flow.out(data).unwrap();
            flow
        };
        assert_lives(begun(), 100);
        // RFC 5382 REQ-5, RFC 5597 REQ-5: an established one, and then the time in which it is asked.
        assert_lives(opened(), 1060);
        let mut flow = opened();
        flow.gateway.wait(900);
        flow.back(data).unwrap();
        assert_lives(flow, 1060);
        let mut flow = opened();
        flow.out(close).unwrap();
        flow.back(closed).unwrap();
        assert_lives(flow, 60);
        let mut flow = opened();
        flow.back(reset).unwrap();
        assert_lives(flow, 60);
        // What was closed is opened again with the same port.
        let mut flow = opened();
        flow.out(close).unwrap();
        flow.back(closed).unwrap();
        let again = flow.out(first).unwrap();
        assert_eq!(again[20..22], flow.outside.to_be_bytes());
        flow.back(answer).unwrap();
        assert_lives(flow, 1060);
    }
}

/// RFC 5596: a server behind a NAT sends Listen, so that the client's Request comes in.
#[test]
fn a_server_of_dccp_opens_with_listen() {
    const LISTEN: &[u8] = &[10];
    let mut flow = Flow::new(PortSpace::Dccp, Setup { times: times(), ..setup() }, LISTEN);
    flow.back(&[0]).unwrap();
    flow.out(&[1]).unwrap();
    assert_lives(flow, 1060);
}

#[test]
fn what_has_no_connections_lives_as_udp() {
    for space in [PortSpace::UdpLite, PortSpace::Esp, PortSpace::Gre] {
        assert_lives(Flow::new(space, setup(), &[]), 300);
        let mut flow = Flow::new(space, setup(), &[]);
        flow.gateway.wait(200);
        flow.back(&[]).unwrap();
        // What the outside sends counts as sent a little later.
        assert_lives(flow, 317);
    }
}

#[test]
fn filtering_is_that_of_what_a_protocol_is_like() {
    for (space, like, first) in [
        (PortSpace::Sctp, PortSpace::Tcp, &INIT[..]),
        (PortSpace::Dccp, PortSpace::Tcp, &[0]),
        (PortSpace::UdpLite, PortSpace::Udp, &[]),
        (PortSpace::Esp, PortSpace::Udp, &[]),
        (PortSpace::Gre, PortSpace::Udp, &[]),
    ] {
        for strict in [PortSpace::Tcp, PortSpace::Udp, PortSpace::Icmp] {
            let base = setup();
            let filtering = base.policy.filtering.with(strict, Filtering::AddressDependent);
            let policy = Policy { filtering, ..base.policy };
            let mut flow = Flow::new(space, Setup { policy, ..base }, first);
            let expected = if strict == like { Err(Verdict::Drop(DropReason::Filtered)) } else { Ok(()) };
            assert_eq!(flow.back_from(STRANGER, first).map(|_| ()), expected, "{space:?}, {strict:?}");
            flow.back(first).unwrap();
            flow.gateway.audit();
        }
    }
    let base = setup();
    let policy = Policy { inbound_tcp: InboundTcp::Denied, ..base.policy };
    let mut flow = Flow::new(PortSpace::Sctp, Setup { policy, ..base }, &INIT);
    assert_eq!(flow.back_from(STRANGER, &INIT), Err(Verdict::Drop(DropReason::InboundSyn)));
}

#[test]
fn a_port_is_for_one_of_the_protocols_that_have_it_in_common() {
    let mut setup = setup();
    setup.ports = 1025..=1025;
    let mut flow = Flow::new(PortSpace::Sctp, setup, &INIT);
    let refused = Err(Verdict::Reply(DropReason::PoolExhausted));
    assert_eq!(flow.outside, 1025);
    assert_eq!(flow.send(&tcp((HOST4, 40_000), (SERVER, 80), SYN, b"")), refused);
    // Nor does a segment of TCP reach the association.
    let segment = tcp((SERVER, 80), (POOL, 1025), ACK, b"");
    assert_eq!(flow.send(&segment), Err(Verdict::Drop(DropReason::NoBinding)));
    flow.back(&INIT_ACK).unwrap();
    // UDP has ports of its own, which UDP-Lite takes one of.
    let datagram = |space, port| ipv4(HOST4, SERVER, space, &transport(space, [port, 80], &[]));
    let sent = flow.send(&udp((HOST4, 40_001), (SERVER, 80), b"")).unwrap();
    assert_eq!(sent[20..22], 1025_u16.to_be_bytes());
    assert_eq!(flow.send(&datagram(PortSpace::UdpLite, 40_001)), refused);
    flow.gateway.audit();
}

#[test]
fn hosts_inside_reach_each_other_by_the_outside() {
    for (space, first) in [(PortSpace::Sctp, &INIT[..]), (PortSpace::Dccp, &[0]), (PortSpace::UdpLite, &[])] {
        let mut flow = Flow::new(space, setup(), first);
        let other = ipv4(OTHER_HOST4, POOL, space, &transport(space, [50_000, flow.outside], first));
        let sent = flow.send(&other).unwrap();
        assert_eq!((&sent[12..16], &sent[16..20]), (&POOL.octets()[..], &HOST4.octets()[..]), "{space:?}");
        assert_eq!(sent[22..24], 40_000_u16.to_be_bytes());
        assert_ne!(sent[20..22], 50_000_u16.to_be_bytes(), "from the outside port");
        flow.gateway.audit();
    }
}

#[test]
fn a_host_has_an_address_for_esp_and_another_host_the_next() {
    let base = Setup { last_address: Ipv4Addr::from_bits(POOL.to_bits() + 1), ..setup() };
    let mut flow = Flow::new(PortSpace::Esp, base, &[]);
    let from =
        |n: u8| ipv4(Ipv4Addr::new(10, 0, 0, n), SERVER, PortSpace::Esp, &transport(PortSpace::Esp, [0; 2], &[]));
    let mut others: Vec<_> = (3..=60).map(|n| flow.send(&from(n))).collect();
    others.retain(Result::is_ok);
    assert_eq!(others.len(), 1, "two addresses, two hosts");
    assert_ne!(others[0].as_ref().unwrap()[12..16], POOL.octets());
    // When the first is silent for long enough, it is another's.
    flow.gateway.wait(310);
    flow.gateway.sweep();
    flow.gateway.wait(130);
    assert!((3..=60).any(|n| flow.send(&from(n)).is_ok_and(|sent| sent[12..16] == POOL.octets())));
    flow.gateway.audit();
}

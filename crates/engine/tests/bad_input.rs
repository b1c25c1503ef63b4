//! Input that was made to do harm: clocks that jump, scans, overlapping fragments, the same host
//! inside and outside.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::net::Ipv4Addr;

use support::*;
use tombolo_engine::mechanism::napt::{Policy, UnsolicitedSyn};
use tombolo_engine::{DropReason, Now, Verdict};

/// A gateway with a UDP session, an open TCP connection, and what they left from.
fn in_use(setup: Setup) -> (Gateway, u16, u16) {
    let mut gateway = Gateway::new(setup);
    let datagram = gateway.forward(&udp((HOST, 5000), (embed(SERVER), 53), b""));
    let syn = gateway.forward(&tcp((HOST, 5000), (embed(SERVER), 80), SYN, b""));
    gateway.forward(&tcp((SERVER, 80), (POOL, syn.ports.0), SYN | ACK, b""));
    (gateway, datagram.ports.0, syn.ports.0)
}

#[test]
fn a_clock_that_goes_back_loses_nothing_and_lets_nothing_live_for_ever() {
    let policy = Policy {
        binding_rate: Some(100),
        subscriber_rate: Some(100),
        unsolicited_syn: UnsolicitedSyn::Hold,
        ..Policy::default()
    };
    let (mut gateway, udp_port, tcp_port) = in_use(Setup { policy, ..Setup::default() });
    for back in [1, 300, 900, 999] {
        gateway.now = Now((1000 - back) * SECOND);
        gateway.sweep();
        gateway.forward(&udp((SERVER, 53), (POOL, udp_port), b""));
        gateway.forward(&tcp((HOST, 5000), (embed(SERVER), 80), ACK, b""));
        gateway.wait(1);
        // New state can be made, and what was held does not wait until the old time is reached
        // again.
        gateway.forward(&udp((OTHER_HOST, 6000 + u16::try_from(back).unwrap()), (embed(SERVER), 53), b""));
        let syn = tcp((SERVER, 1000), (POOL, 1), SYN, b"");
        assert_eq!(gateway.pass(&syn).0, Verdict::Hold);
        assert_eq!(gateway.release_held(), Vec::<Vec<u8>>::new());
        gateway.now = Now(gateway.now.0 - SECOND);
        gateway.release_held();
        assert_eq!(gateway.pass(&syn).0, Verdict::Hold, "the first one is gone");
        gateway.wait(9);
        gateway.release_held();
        gateway.engine.idle(gateway.now);
        gateway.audit();
    }
    // What was touched before the clock went back ends at the latest when the old time is over.
    gateway.now = Now(SECOND);
    gateway.forward(&udp((SERVER, 53), (POOL, udp_port), b""));
    gateway.now = Now(1400 * SECOND);
    gateway.sweep();
    assert_eq!(gateway.pass(&udp((SERVER, 53), (POOL, udp_port), b"")).0, Verdict::Drop(DropReason::NoBinding));
    gateway.forward(&tcp((SERVER, 80), (POOL, tcp_port), ACK, b""));
    gateway.audit();
}

#[test]
fn a_clock_that_leaps_ends_what_is_over_and_nothing_breaks() {
    let (mut gateway, udp_port, _) = in_use(Setup::default());
    for leap in [10 * 365 * 86_400_u64, 100 * 365 * 86_400] {
        gateway.now = Now(leap * SECOND);
        assert_eq!(gateway.pass(&udp((SERVER, 99), (POOL, 9), b"")).0, Verdict::Drop(DropReason::NoBinding));
        gateway.sweep();
        gateway.audit();
        gateway.forward(&udp((HOST, 5000), (embed(SERVER), 53), b""));
        gateway.forward(&tcp((HOST, 5000), (embed(SERVER), 80), SYN, b""));
    }
    assert_ne!(udp_port, 0);
    assert_eq!(gateway.tables.bindings.count(), 2);
}

#[test]
fn a_scan_of_every_port_makes_no_state() {
    for unsolicited_syn in [UnsolicitedSyn::Drop, UnsolicitedSyn::Hold] {
        let policy = Policy { unsolicited_syn, ..Policy::default() };
        let (mut gateway, udp_port, tcp_port) = in_use(Setup { policy, ..Setup::default() });
        let scanner = Ipv4Addr::new(203, 0, 113, 7);
        for port in 1..=u16::MAX {
            if port != udp_port {
                assert_eq!(gateway.pass(&udp((scanner, 1), (POOL, port), b"")).0, Verdict::Drop(DropReason::NoBinding));
            }
            if port != tcp_port {
                for flags in [SYN, ACK, FIN, RST] {
                    let verdict = gateway.pass(&tcp((scanner, 1), (POOL, port), flags, b"")).0;
                    assert!(!matches!(verdict, Verdict::Forward | Verdict::ToHost), "{port} {flags} {verdict:?}");
                }
            }
        }
        assert_eq!((gateway.tables.bindings.count(), gateway.tables.subscribers.count()), (2, 1));
        assert_eq!(gateway.tables.each_session().count(), 1, "that of the connection");
        gateway.wait(10);
        assert!(gateway.release_held().len() <= 60, "answers at a bounded rate");
        gateway.audit();
    }
}

#[test]
fn overlapping_fragments_in_every_order_forward_nothing_and_make_no_state() {
    // A datagram in pieces of 64 bytes, and a piece that overlaps each of them by half.
    let packet = udp((HOST, 5000), (embed(SERVER), 53), &[7; 632]);
    let pieces = fragments_ipv6(&packet, 64);
    for overlapped in 0..pieces.len() - 1 {
        for shift in 1..pieces.len() {
            let mut gateway = Gateway::new(Setup::default());
            let mut overlap = pieces[overlapped].clone();
            let offset = u16::from_be_bytes([overlap[42], overlap[43]]) + 32;
            overlap[42..44].copy_from_slice(&offset.to_be_bytes());
            overlap[48..].fill(9);
            let mut order: Vec<&Vec<u8>> = pieces.iter().collect();
            order.rotate_left(shift);
            order.insert(shift, &overlap);
            for piece in order {
                let (verdict, sent) = gateway.pass(piece);
                assert!(sent.is_empty() && verdict != Verdict::Forward, "{overlapped} {shift} {verdict:?}");
            }
            assert_eq!(gateway.tables.bindings.count(), 0);
            // The next datagram is not harmed.
            for piece in &fragments_ipv6(&udp((OTHER_HOST, 5000), (embed(SERVER), 53), &[7; 632]), 64) {
                gateway.pass(piece);
            }
            assert_eq!(gateway.tables.bindings.count(), 1);
        }
    }
}

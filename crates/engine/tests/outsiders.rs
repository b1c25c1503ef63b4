//! What somebody outside can do who invents sources: floods of datagrams and SYNs to bound ports,
//! and RSTs of connections that are not his.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::net::Ipv4Addr;

use support::*;
use tombolo_engine::mechanism::napt::{Policy, Sessions};
use tombolo_engine::packet::Packet;
use tombolo_engine::{DropReason, Verdict};
use tombolo_tables::session::Session;

fn gateway(sessions: u64, policy: Policy) -> Gateway {
    Gateway::new(Setup { nat44: true, sessions, bindings: 2000, subscribers: 300, policy, ..Setup::default() })
}

/// Datagrams make sessions, too.
fn kept() -> Policy {
    Policy { sessions: Sessions::Kept, ..Policy::default() }
}

/// An address and port that an attacker has invented.
fn invented(n: u32) -> (Ipv4Addr, u16) {
    (Ipv4Addr::from_bits(0xcb00_7100 + n / 7), u16::try_from(n * 31 % 60_000).unwrap() + 1)
}

fn sessions(gateway: &Gateway) -> usize {
    gateway.tables.each_session().count()
}

/// A host inside that talks with so many remotes; its outside port.
fn talk(gateway: &mut Gateway, host: Ipv4Addr, remotes: u16) -> u16 {
    let mut outside = 0;
    for remote in 1..=remotes {
        outside = gateway.forward(&udp((host, 4000), (SERVER, remote), b"")).ports.0;
        gateway.forward(&udp((SERVER, remote), (POOL, outside), b""));
    }
    outside
}

#[test]
fn datagrams_from_invented_sources_to_one_port_leave_room_for_all() {
    let mut gateway = gateway(20_000, kept());
    let outside = talk(&mut gateway, HOST4, 1000);
    for n in 0..90_000 {
        // They come in: the filtering is endpoint-independent.
        assert_eq!(gateway.pass(&udp(invented(n), (POOL, outside), b"")).0, Verdict::Forward);
    }
    assert!(sessions(&gateway) <= 1000 + 256, "{}", sessions(&gateway));
    talk(&mut gateway, OTHER_HOST4, 10_000);
    // Nobody's session is gone.
    let before = sessions(&gateway);
    talk(&mut gateway, HOST4, 1000);
    assert_eq!(sessions(&gateway), before);
    gateway.audit();
    // What the sweep has found expired makes room in the budget again.
    gateway.wait(310);
    let again = gateway.forward(&udp((HOST4, 4000), (SERVER, 9), b"")).ports.0;
    gateway.sweep();
    let before = sessions(&gateway);
    let _ = gateway.pass(&udp(invented(7), (POOL, again), b""));
    assert_eq!(sessions(&gateway), before + 1);
}

/// 90,000 packets to so many ports that each is within its budget.
#[test]
fn a_table_full_of_unanswered_sessions_has_room_for_the_inside() {
    let mut gateway = gateway(3000, kept());
    let host = |n: u32| Ipv4Addr::from_bits(0x0a00_0100 + n);
    let ports: Vec<u16> = (0..200).map(|n| talk(&mut gateway, host(n), 3)).collect();
    for n in 0..90_000_u32 {
        let port = ports[n as usize % ports.len()];
        assert_eq!(gateway.pass(&udp(invented(n), (POOL, port), b"")).0, Verdict::Forward);
    }
    assert!(sessions(&gateway) > 3000, "the flood has filled the table: {}", sessions(&gateway));
    assert_eq!(gateway.tables.sessions.overflowed(), 0, "the overflow is the inside's");
    talk(&mut gateway, HOST4, 800);
    // What was there before is there still: nothing is made anew.
    let all = |gateway: &Gateway| -> Vec<Session> {
        gateway.tables.each_session().filter(|session| session.flags == 0).collect()
    };
    let before = all(&gateway);
    assert_eq!(before.len(), 200 * 3 + 800);
    for n in 0..200 {
        talk(&mut gateway, host(n), 3);
    }
    assert_eq!(all(&gateway).len(), before.len());
    gateway.audit();
}

#[test]
fn syns_from_invented_sources_leave_other_bindings_alone_and_answered_ones_do_not_count() {
    let mut gateway = gateway(20_000, Policy::default());
    let port = |gateway: &mut Gateway, own| gateway.forward(&tcp((HOST4, own), (SERVER, 80), SYN, b"")).ports.0;
    let (attacked, other) = (port(&mut gateway, 5000), port(&mut gateway, 5001));
    // A server inside that answers everybody.
    for n in 0..2000 {
        gateway.forward(&tcp(invented(n), (POOL, other), SYN, b""));
        let (address, remote) = invented(n);
        gateway.forward(&tcp((HOST4, 5001), (address, remote), SYN | ACK, b""));
    }
    let verdicts: Vec<_> = (0..5000).map(|n| gateway.pass(&tcp(invented(n), (POOL, attacked), SYN, b"")).0).collect();
    assert_eq!(verdicts.iter().filter(|&&verdict| verdict == Verdict::Forward).count(), 256);
    assert_eq!(verdicts.last(), Some(&Verdict::Drop(DropReason::UnansweredLimit)));
    gateway.forward(&tcp(invented(9000), (POOL, other), SYN, b""));
    // An RST of the host is no answer: who floods a closed port has no more than its budget.
    gateway.forward(&tcp((HOST4, 5000), invented(1), RST, b""));
    assert_eq!(
        gateway.pass(&tcp(invented(9001), (POOL, attacked), SYN, b"")).0,
        Verdict::Drop(DropReason::UnansweredLimit)
    );
    gateway.audit();
}

/// The sessions that a subscriber may have are its own to open: whoever is outside takes none away.
#[test]
fn a_subscriber_s_limit_counts_what_it_opens_or_answers() {
    let policy = Policy { sessions_per_subscriber: Some(5), ..Policy::default() };
    let mut gateway = gateway(1000, policy);
    let outside = gateway.forward(&udp((HOST4, 4000), (SERVER, 1), b"")).ports.0;
    for n in 0..20 {
        gateway.forward(&udp(invented(n), (POOL, outside), b""));
    }
    (2..=3).for_each(|remote| drop(gateway.forward(&udp((HOST4, 4000), (SERVER, remote), b""))));
    (0..2).for_each(|n| drop(gateway.forward(&udp((HOST4, 4000), invented(n), b""))));
    gateway.audit();
    let full = Verdict::Reply(DropReason::SubscriberLimit);
    assert_eq!(gateway.pass(&udp((HOST4, 4000), (SERVER, 4), b"")).0, full);
    assert_eq!(gateway.pass(&udp((HOST4, 4000), invented(2), b"")).0, full);
    gateway.audit();
    gateway.wait(400);
    gateway.sweep();
    gateway.audit();
}

/// A connection that both ends have opened.
fn connected() -> (Gateway, u16) {
    let mut gateway = gateway(1000, Policy::default());
    let outside = gateway.forward(&tcp((HOST4, 5000), (SERVER, 22), SYN, b"")).ports.0;
    gateway.forward(&tcp((SERVER, 22), (POOL, outside), SYN | ACK, b""));
    gateway.forward(&tcp((HOST4, 5000), (SERVER, 22), ACK, b""));
    (gateway, outside)
}

/// What the host inside is asked.
fn probes(gateway: &mut Gateway) -> usize {
    let due = gateway.sweep();
    let mut sent = Vec::new();
    for session in &due {
        let mut outbox = |packet: &mut Packet<'_>| sent.push(see(packet.bytes()));
        assert!(gateway.engine.probe(&gateway.plan, session, gateway.now, &mut outbox));
    }
    assert!(sent.iter().all(|probe| probe.destination == HOST4 && probe.ports == (22, 5000)));
    sent.len()
}

fn is_there(gateway: &mut Gateway, outside: u16) -> bool {
    gateway.sweep();
    let found = sessions(gateway) > 0;
    assert_eq!(gateway.pass(&tcp((SERVER, 22), (POOL, outside), ACK, b"")).0 == Verdict::Forward, found);
    found
}

#[test]
fn an_rst_that_neither_end_has_sent_ends_no_silent_connection() {
    let (mut gateway, outside) = connected();
    gateway.forward(&tcp((SERVER, 22), (POOL, outside), RST, b""));
    gateway.wait(20);
    assert_eq!(probes(&mut gateway), 0, "what is on its way may still arrive");
    gateway.wait(20);
    assert_eq!(probes(&mut gateway), 1);
    // He goes on for as long as the host thinks.
    for _ in 0..10 {
        gateway.forward(&tcp((SERVER, 22), (POOL, outside), RST, b""));
    }
    gateway.forward(&tcp((HOST4, 5000), (SERVER, 22), ACK, b""));
    gateway.wait(7000);
    assert!(is_there(&mut gateway, outside));
}

#[test]
fn a_connection_that_the_outside_has_reset_is_gone_after_four_minutes() {
    for answers in [true, false] {
        let (mut gateway, outside) = connected();
        gateway.forward(&tcp((SERVER, 22), (POOL, outside), RST, b""));
        gateway.wait(40);
        assert_eq!(probes(&mut gateway), 1);
        if answers {
            gateway.forward(&tcp((HOST4, 5000), (SERVER, 22), RST, b""));
        }
        gateway.wait(40);
        assert_eq!(probes(&mut gateway), 0, "it is asked once");
        gateway.wait(180);
        assert!(!is_there(&mut gateway, outside));
    }
}

#[test]
fn a_connection_that_the_inside_has_reset_is_not_asked_about() {
    let (mut gateway, outside) = connected();
    gateway.forward(&tcp((HOST4, 5000), (SERVER, 22), RST, b""));
    gateway.wait(40);
    assert_eq!(probes(&mut gateway), 0);
    gateway.wait(220);
    assert!(!is_there(&mut gateway, outside));
}

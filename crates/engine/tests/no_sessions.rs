//! Bindings of UDP and ICMP that need no sessions: who keeps them, and for how long (RFC 4787 REQ-5
//! and REQ-6, RFC 6146 sections 3.5.1 and 3.5.3).

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::net::Ipv4Addr;

use support::*;
use tombolo_engine::mechanism::napt::{Filtering, Policy, Sessions};
use tombolo_engine::{DropReason, Verdict};
use tombolo_tables::tables::Budget;

const STRANGER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

fn gateway(policy: Policy) -> Gateway {
    Gateway::new(Setup { nat44: true, policy, ..Setup::default() })
}

fn bind(gateway: &mut Gateway, port: u16) -> u16 {
    gateway.forward(&udp((HOST4, port), (SERVER, 53), b"")).ports.0
}

#[test]
fn datagrams_and_echoes_make_no_session_and_connections_do() {
    let mut gateway = gateway(Policy::default());
    for remote in 1..50 {
        gateway.forward(&udp((HOST4, 4000), (SERVER, remote), b""));
    }
    assert_eq!((gateway.tables.bindings.count(), gateway.tables.each_session().count()), (1, 0));
    for remote in 1..50 {
        gateway.forward(&tcp((HOST4, 4000), (SERVER, remote), SYN, b""));
    }
    assert_eq!((gateway.tables.bindings.count(), gateway.tables.each_session().count()), (2, 49));
    gateway.audit();
}

#[test]
fn sessions_are_kept_where_they_decide_or_are_asked_for() {
    let plain = Policy::default();
    for kept in [
        Policy { sessions: Sessions::Kept, ..plain },
        Policy { sessions_per_subscriber: Some(100), ..plain },
        Policy { filtering: Filtering::AddressDependent.into(), ..plain },
    ] {
        let mut gateway = gateway(kept);
        bind(&mut gateway, 4000);
        assert!(gateway.tables.each_session().count() > 0, "{kept:?}");
    }
}

#[test]
fn either_side_keeps_a_binding_and_silence_ends_it() {
    let mut gateway = gateway(Policy::default());
    let outside = bind(&mut gateway, 4000);
    for _ in 0..5 {
        gateway.wait(250);
        gateway.sweep();
        assert_eq!(bind(&mut gateway, 4000), outside);
    }
    for _ in 0..5 {
        gateway.wait(250);
        gateway.sweep();
        // From somebody whom the inside has never heard of.
        assert_eq!(gateway.forward(&udp((STRANGER, 9), (POOL, outside), b"")).ports.1, 4000);
    }
    gateway.wait(290);
    gateway.sweep();
    assert_eq!(gateway.tables.bindings.count(), 1, "300 s have not passed");
    // What the outside sends counts as sent a little later.
    gateway.wait(15 + 18);
    gateway.sweep();
    assert_eq!(gateway.tables.bindings.count(), 0);
    assert_eq!(gateway.pass(&udp((STRANGER, 9), (POOL, outside), b"")).0, Verdict::Drop(DropReason::NoBinding));
    gateway.audit();
}

/// Bindings that the subscriber has left go in the end, however many strangers send to them.
#[test]
fn strangers_keep_no_more_bindings_of_a_subscriber_than_their_budget() {
    let budget = Budget { of_binding: 1, of_subscriber: 10 };
    let mut gateway = gateway(Policy { unanswered: budget, ..Policy::default() });
    let outside: Vec<u16> = (0..50).map(|n| bind(&mut gateway, 4000 + n)).collect();
    for _ in 0..12 {
        gateway.wait(100);
        for port in &outside {
            let _ = gateway.pass(&udp((STRANGER, 9), (POOL, *port), b""));
        }
        bind(&mut gateway, 4000);
        gateway.sweep();
    }
    assert_eq!(gateway.tables.bindings.count(), 1, "that which the inside uses");
    gateway.audit();
    // Within the budget they stay.
    let few: Vec<u16> = (0..9).map(|n| bind(&mut gateway, 5000 + n)).collect();
    for _ in 0..12 {
        gateway.wait(100);
        for port in &few {
            assert_eq!(gateway.pass(&udp((STRANGER, 9), (POOL, *port), b"")).0, Verdict::Forward);
        }
        gateway.sweep();
    }
    assert_eq!(gateway.tables.bindings.count(), 9);
}

#[test]
fn a_reload_to_and_fro_ends_no_binding_before_its_time() {
    let mut gateway = gateway(Policy::default());
    let outside = bind(&mut gateway, 4000);
    gateway.wait(200);
    gateway.nat44().nat.policy.sessions = Sessions::Kept;
    gateway.sweep();
    gateway.wait(50);
    gateway.sweep();
    assert_eq!(bind(&mut gateway, 4000), outside, "it lives on without a session, and gets one");
    assert_eq!(gateway.tables.each_session().count(), 1);
    gateway.wait(200);
    gateway.nat44().nat.policy.sessions = Sessions::WhereTheyDecide;
    gateway.sweep();
    gateway.wait(50);
    assert_eq!(bind(&mut gateway, 4000), outside);
    gateway.wait(200);
    gateway.sweep();
    assert_eq!(gateway.tables.each_session().count(), 0, "nothing refreshes a session any more");
    assert_eq!(bind(&mut gateway, 4000), outside);
    gateway.audit();
}

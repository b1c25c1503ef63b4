//! SYNs from outside that wait for the inside to open, and probes of connections that fell silent.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::net::{IpAddr, Ipv4Addr};

use support::*;
use tombolo_engine::mechanism::napt::{Filtering, Policy, UnsolicitedSyn};
use tombolo_engine::mechanism::session_state::{
    ESTABLISHED, INSIDE_INIT, OUTSIDE_INIT_HELD, PERMISSION, PERMISSION_TCP, RESET, TRANS,
};
use tombolo_engine::packet::Packet;
use tombolo_engine::{DropReason, Verdict};
use tombolo_tables::session::State;

fn holding(nat44: bool, filtering: Filtering) -> Gateway {
    let policy = Policy { unsolicited_syn: UnsolicitedSyn::Hold, filtering: filtering.into(), ..Policy::default() };
    Gateway::new(Setup { policy, nat44, ..Setup::default() })
}

fn states(gateway: &Gateway) -> Vec<State> {
    let sessions = gateway.tables.each_session().map(|session| session.state);
    sessions.filter(|state| ![PERMISSION, PERMISSION_TCP].contains(state)).collect()
}

/// Sends probes for what the sweep found silent.
fn probes(gateway: &mut Gateway) -> Vec<Vec<u8>> {
    let silent = gateway.sweep();
    let mut sent = Vec::new();
    for session in silent {
        let mut outbox = |packet: &mut Packet<'_>| sent.push(packet.bytes().to_vec());
        assert!(gateway.engine.probe(&gateway.plan, &session, gateway.now, &mut outbox));
    }
    sent
}

#[test]
fn an_unsolicited_syn_is_answered_after_six_seconds_and_not_before() {
    for nat44 in [false, true] {
        let mut gateway = holding(nat44, Filtering::EndpointIndependent);
        let syn = tcp((SERVER, 80), (POOL, 2000), SYN, b"");
        assert_eq!(gateway.pass(&syn), (Verdict::Hold, Vec::new()));
        // Sent again, as hosts do after a second: still no answer, and no second one later.
        gateway.wait(1);
        assert_eq!(gateway.pass(&syn), (Verdict::Drop(DropReason::NoBinding), Vec::new()));
        gateway.wait(4);
        assert_eq!(gateway.release_held(), Vec::<Vec<u8>>::new(), "five seconds are not enough");
        gateway.wait(4);
        let sent = gateway.release_held();
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0][20], sent[0][21]), (3, 3), "ICMPv4 port unreachable");
        assert_eq!(&sent[0][28..], &syn, "quoting the SYN as it was received");
        assert_eq!(see(&sent[0]).destination, IpAddr::from(SERVER));
        gateway.wait(60);
        assert_eq!(gateway.release_held(), Vec::<Vec<u8>>::new());
        assert_eq!((gateway.tables.bindings.count(), states(&gateway).len()), (0, 0), "no state was made");
        let totals = gateway.totals();
        assert_eq!((totals.held, totals.replied), (1, 1));
    }
}

#[test]
fn a_syn_that_the_inside_answers_goes_silently() {
    // A pool of one port: the inside gets the one that the outside host tries.
    let policy = Policy { unsolicited_syn: UnsolicitedSyn::Hold, ..Policy::default() };
    let mut gateway = Gateway::new(Setup { policy, nat44: true, ports: 2000..=2000, ..Setup::default() });
    assert_eq!(gateway.pass(&tcp((SERVER, 80), (POOL, 2000), SYN, b"")).0, Verdict::Hold);
    gateway.wait(2);
    let out = gateway.forward(&tcp((HOST4, 5000), (SERVER, 80), SYN, b""));
    assert_eq!(out.ports.0, 2000);
    gateway.wait(10);
    assert_eq!(gateway.release_held(), Vec::<Vec<u8>>::new());
    gateway.forward(&tcp((SERVER, 80), (POOL, 2000), SYN, b""));
    assert_eq!(states(&gateway), [ESTABLISHED]);
}

#[test]
fn a_syn_that_filtering_stops_waits_in_a_session_of_its_own() {
    for nat44 in [false, true] {
        let mut gateway = holding(nat44, Filtering::AddressDependent);
        let (host, server): (IpAddr, IpAddr) =
            if nat44 { (HOST4.into(), SERVER.into()) } else { (HOST.into(), embed(SERVER).into()) };
        let stranger = Ipv4Addr::new(203, 0, 113, 9);
        let stranger_inside: IpAddr = if nat44 { stranger.into() } else { embed(stranger).into() };
        let out = gateway.forward(&tcp((host, 5000), (server, 80), SYN, b""));
        let syn = tcp((stranger, 90), (POOL, out.ports.0), SYN, b"");
        assert_eq!(gateway.pass(&syn).0, Verdict::Hold);
        assert_eq!(states(&gateway).iter().filter(|&&state| state == OUTSIDE_INIT_HELD).count(), 1);
        // Whatever else comes from there is not let in.
        for flags in [SYN, ACK, RST, FIN] {
            let more = tcp((stranger, 90), (POOL, out.ports.0), flags, b"");
            assert_eq!(reason_of(gateway.pass(&more).0), Some(DropReason::Filtered));
        }
        // The inside opens: established at once, and the held SYN is forgotten.
        gateway.forward(&tcp((host, 5000), (stranger_inside, 90), SYN, b""));
        let mut found = states(&gateway);
        found.sort();
        assert_eq!(found, [INSIDE_INIT, ESTABLISHED]);
        gateway.forward(&syn);
        gateway.wait(10);
        assert_eq!(gateway.release_held(), Vec::<Vec<u8>>::new());
        // Another stranger waits in vain.
        let other = tcp((Ipv4Addr::new(203, 0, 113, 10), 90), (POOL, out.ports.0), SYN, b"");
        assert_eq!(gateway.pass(&other).0, Verdict::Hold);
        gateway.wait(10);
        assert_eq!(gateway.release_held().len(), 1);
        gateway.audit();
    }
}

fn reason_of(verdict: Verdict) -> Option<DropReason> {
    match verdict {
        Verdict::Reply(reason) | Verdict::Drop(reason) => Some(reason),
        _ => None,
    }
}

#[test]
fn a_hairpinned_syn_is_answered_to_the_host_that_sent_it() {
    for nat44 in [false, true] {
        let mut gateway = holding(nat44, Filtering::EndpointIndependent);
        let (host, pool): (IpAddr, IpAddr) =
            if nat44 { (HOST4.into(), POOL.into()) } else { (HOST.into(), embed(POOL).into()) };
        let syn = tcp((host, 5000), (pool, 81), SYN, b"");
        assert_eq!(gateway.pass(&syn), (Verdict::Hold, Vec::new()));
        gateway.wait(9);
        let sent = gateway.release_held();
        assert_eq!(sent.len(), 1);
        let told = see(&sent[0]);
        assert_eq!(told.destination, host);
        let (kind, quoted) = if nat44 { ([3, 3], 28) } else { ([1, 4], 48) };
        assert_eq!(sent[0][quoted - 8..quoted - 6], kind);
        // The quoted packet is the host's own again: its ports are where it put them.
        let ports = quoted + if nat44 { 20 } else { 40 };
        assert_eq!(sent[0][ports..ports + 4], [5000_u16.to_be_bytes(), 81_u16.to_be_bytes()].concat());
        gateway.audit();
    }
}

#[test]
fn a_flood_of_syns_is_held_up_to_a_bound_and_then_answered_at_a_bounded_rate() {
    let mut gateway = holding(true, Filtering::EndpointIndependent);
    let verdicts: Vec<_> =
        (0..2000).map(|n| gateway.pass(&tcp((SERVER, 1000 + n), (POOL, 2000), SYN, b"")).0).collect();
    assert!(verdicts[..512].iter().all(|&verdict| verdict == Verdict::Hold));
    let told = verdicts[512..].iter().filter(|verdict| matches!(verdict, Verdict::Reply(_))).count();
    assert!((1..=60).contains(&told), "{told}");
    gateway.wait(9);
    assert!(gateway.release_held().len() <= 60);
    assert_eq!(gateway.pass(&tcp((SERVER, 999), (POOL, 2000), SYN, b"")).0, Verdict::Hold, "there is room again");
}

#[test]
fn syns_are_dropped_in_silence_by_default() {
    let mut gateway = Gateway::new(Setup { nat44: true, ..Setup::default() });
    let syn = tcp((SERVER, 80), (POOL, 2000), SYN, b"");
    assert_eq!(gateway.pass(&syn), (Verdict::Drop(DropReason::NoBinding), Vec::new()));
    gateway.wait(10);
    assert_eq!(gateway.release_held(), Vec::<Vec<u8>>::new());
}

#[test]
fn a_connection_that_fell_silent_is_probed_and_lives_if_the_host_answers() {
    for nat44 in [false, true] {
        let mut gateway = Gateway::new(Setup { nat44, ..Setup::default() });
        let (host, server): (IpAddr, IpAddr) =
            if nat44 { (HOST4.into(), SERVER.into()) } else { (HOST.into(), embed(SERVER).into()) };
        let out = gateway.forward(&tcp((host, 5000), (server, 80), SYN, b""));
        gateway.forward(&tcp((SERVER, 80), (POOL, out.ports.0), SYN | ACK, b""));
        gateway.wait(7190);
        assert!(probes(&mut gateway).is_empty());
        gateway.wait(20);
        let sent = probes(&mut gateway);
        assert_eq!(sent.len(), 1);
        let probe = see(&sent[0]);
        assert_eq!((probe.source, probe.destination, probe.ports), (server, host, (80, 5000)));
        assert_eq!((probe.protocol, probe.payload.len(), probe.hop_limit), (6, 0, 64));
        let header = if nat44 { 20 } else { 40 };
        assert_eq!(sent[0][header + 4..header + 12], [0; 8], "both numbers are zero");
        assert_eq!(sent[0][header + 13], ACK);
        assert_eq!(states(&gateway), [TRANS]);
        assert!(probes(&mut gateway).is_empty(), "one probe for each silence");
        // The host has the connection: its ACK makes it established again.
        gateway.forward(&tcp((host, 5000), (server, 80), ACK, b""));
        assert_eq!(states(&gateway), [ESTABLISHED]);
        // Silent again, and this time the host is gone: RST ends it in four minutes.
        gateway.wait(7205);
        assert_eq!(probes(&mut gateway).len(), 1);
        gateway.forward(&tcp((host, 5000), (server, 80), RST, b""));
        assert_eq!(states(&gateway), [RESET]);
        gateway.wait(250);
        gateway.sweep();
        assert_eq!(states(&gateway), []);
        gateway.audit();
    }
}

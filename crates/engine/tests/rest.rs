//! For how long what one subscriber has had is nobody else's.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use support::*;
use tombolo_engine::mapping::allocation::{Allocation, Blocks};
use tombolo_engine::mechanism::napt::Times;
use tombolo_engine::{DropReason, Verdict};

/// Times, and after how many seconds a port that is kept back is certainly not another's yet, and certainly is.
fn cases() -> [(Times, u64, u64); 2] {
    [(Times::default(), 119, 123), (Times::default().with_copies(), 183, 190)]
}

/// A gateway with the ports 2048 to 2111 of one address, that of a subscriber that has gone.
fn gone(allocation: Allocation, times: Times, first: &[u8]) -> Gateway {
    let last = if matches!(allocation, Allocation::Ports) { 2048 } else { 2111 };
    let mut gateway = Gateway::new(Setup { allocation, times, ports: 2048..=last, ..Setup::default() });
    gateway.forward(first);
    gateway.wait(400);
    gateway.sweep();
    assert_eq!((gateway.tables.bindings.count(), gateway.tables.subscribers.count()), (0, 0));
    gateway
}

/// Whether another host gets what is there `early` seconds after it was given back, and `late` seconds after.
fn gets(gateway: &mut Gateway, packet: &[u8], [early, late]: [u64; 2]) -> [bool; 2] {
    let mut gets = || match gateway.pass(packet).0 {
        Verdict::Forward => true,
        Verdict::Reply(DropReason::PoolExhausted) => false,
        other => panic!("{other:?}"),
    };
    let before = gets();
    assert!(!before, "at once");
    let mut after = |seconds| {
        gateway.wait(seconds);
        gateway.pass(packet).0 == Verdict::Forward
    };
    [after(early), after(late - early)]
}

#[test]
fn a_block_rests_longer_where_others_have_copies() {
    let blocks = Allocation::Blocks(Blocks { size: 64, most: 1 });
    for (times, early, late) in cases() {
        let [one, other] = [HOST, OTHER_HOST].map(|host| udp((host, 40_000), (embed(SERVER), 53), b""));
        let mut gateway = gone(blocks.clone(), times, &one);
        assert_eq!(gets(&mut gateway, &other, [early, late]), [false, true]);
        gateway.audit();
    }
}

#[test]
fn a_port_that_was_drawn_by_itself_rests_longer_where_others_have_copies() {
    for (times, early, late) in cases() {
        let [one, other] = [HOST, OTHER_HOST].map(|host| udp((host, 40_000), (embed(SERVER), 53), b""));
        let mut gateway = gone(Allocation::Ports, times, &one);
        assert_eq!(gets(&mut gateway, &other, [early, late]), [false, true]);
        gateway.audit();
    }
}

#[test]
fn a_copy_has_connections_so_ports_of_tcp_rest_where_there_are_copies() {
    let [one, other] = [HOST, OTHER_HOST].map(|host| tcp((host, 40_000), (embed(SERVER), 80), SYN, b""));
    let mut gateway = gone(Allocation::Ports, Times::default(), &one);
    assert_eq!(gateway.pass(&other).0, Verdict::Forward, "RFC 6888 REQ-8 (a)");
    let (times, early, late) = cases()[1];
    let mut gateway = gone(Allocation::Ports, times, &one);
    assert_eq!(gets(&mut gateway, &other, [early, late]), [false, true]);
    gateway.audit();
}

#[test]
fn ports_of_a_block_are_its_subscriber_s_again_as_soon_as_ever() {
    let [alone, copied] = cases().map(|(times, ..)| {
        let allocation = Allocation::Blocks(Blocks { size: 64, most: 1 });
        let mut gateway = Gateway::new(Setup { allocation, times, ports: 2048..=2111, ..Setup::default() });
        let from = |port| udp((HOST, port), (embed(SERVER), 53), b"");
        let taken = |gateway: &mut Gateway, ports: std::ops::Range<u16>| {
            ports.filter(|&port| gateway.pass(&from(port)).0 == Verdict::Forward).count()
        };
        let all = taken(&mut gateway, 3000..3064);
        gateway.wait(310);
        // One stays, with its subscriber.
        gateway.forward(&from(3000));
        gateway.sweep();
        gateway.wait(119);
        let early = taken(&mut gateway, 4000..4063);
        gateway.wait(4);
        (all, early, taken(&mut gateway, 5000..5063))
    });
    assert_eq!((alone, copied), ((64, 0, 63), (64, 0, 63)));
}

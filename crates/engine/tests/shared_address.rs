//! Addresses of a pool that the host has itself: what is for nobody inside is the host's.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use support::*;
use tombolo_engine::mapping::pool::Owner;
use tombolo_engine::{DropReason, Verdict};

fn shared(nat44: bool) -> Gateway {
    Gateway::new(Setup { ports: 20_000..=39_999, owner: Owner::Host, nat44, ..Setup::default() })
}

/// The packet is given back as it came.
fn is_the_hosts(gateway: &mut Gateway, packet: &[u8]) {
    assert_eq!(gateway.pass(packet), (Verdict::ToHost, vec![packet.to_vec()]));
}

#[test]
fn what_nobody_inside_has_is_given_back_to_the_host() {
    for nat44 in [false, true] {
        let mut gateway = shared(nat44);
        for port in [22, 25_000] {
            is_the_hosts(&mut gateway, &tcp((SERVER, 80), (POOL, port), SYN, b""));
            is_the_hosts(&mut gateway, &udp((SERVER, 53), (POOL, port), b"answer"));
        }
        assert_eq!(gateway.tables.bindings.count(), 0);
        gateway.audit();
    }
}

#[test]
fn what_somebody_inside_has_is_translated() {
    let mut gateway = shared(false);
    let out = gateway.forward(&udp((HOST, 5000), (embed(SERVER), 53), b"question"));
    assert!((20_000..=39_999).contains(&out.ports.0) && out.source == POOL, "{out:?}");
    let back = gateway.forward(&udp((SERVER, 53), (POOL, out.ports.0), b"answer"));
    assert_eq!((back.destination, back.ports.1), (HOST.into(), 5000));
    let error = icmp(SERVER, POOL, 3, 3, 0, &udp((POOL, out.ports.0), (SERVER, 53), b"question"));
    assert_eq!(gateway.pass(&error).0, Verdict::Forward);
    let of_the_host = icmp(SERVER, POOL, 3, 3, 0, &udp((POOL, 22), (SERVER, 53), b"question"));
    is_the_hosts(&mut gateway, &of_the_host);
}

#[test]
fn the_host_answers_pings_whatever_their_identifiers() {
    let mut gateway = shared(false);
    let out = gateway.forward(&echo(HOST, embed(SERVER), true, 7));
    is_the_hosts(&mut gateway, &echo(SERVER, POOL, true, out.ports.0));
    assert_eq!(gateway.pass(&echo(SERVER, POOL, false, out.ports.0)).0, Verdict::Forward);
    is_the_hosts(&mut gateway, &echo(SERVER, POOL, false, 7));
}

#[test]
fn hosts_inside_reach_each_other_and_the_host() {
    let mut gateway = shared(false);
    let out = gateway.forward(&udp((HOST, 5000), (embed(SERVER), 53), b""));
    let hairpin = gateway.forward(&udp((OTHER_HOST, 6000), (embed(POOL), out.ports.0), b""));
    assert_eq!((hairpin.destination, hairpin.ports.1), (HOST.into(), 5000));
    let to_host = gateway.forward(&udp((HOST, 5000), (embed(POOL), 53), b""));
    assert_eq!((to_host.source, to_host.destination, to_host.ports), (POOL.into(), POOL.into(), (out.ports.0, 53)));

    let mut gateway = shared(true);
    is_the_hosts(&mut gateway, &udp((HOST4, 5000), (POOL, 53), b"from inside, as it is"));
}

#[test]
fn an_address_of_the_gateway_alone_gives_nothing_back() {
    let mut gateway = Gateway::new(Setup { ports: 20_000..=39_999, ..Setup::default() });
    assert_eq!(gateway.pass(&udp((SERVER, 53), (POOL, 25_000), b"")).0, Verdict::Drop(DropReason::NoBinding));
}

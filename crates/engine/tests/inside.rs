//! Who may use a NAT64, where its `inside` says so.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::net::{IpAddr, Ipv6Addr};

use support::*;
use tombolo_engine::mapping::eam::parse_prefix;
use tombolo_engine::mapping::networks::Networks;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::plan::StaticBinding;
use tombolo_engine::settle::{Ended, foresee, settle};
use tombolo_engine::{DropReason, Verdict, static_bindings};

const STRANGER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2);

fn networks(texts: &[&str]) -> Networks {
    Networks::new(texts.iter().map(|text| parse_prefix(text).unwrap()))
}

/// A NAT64 for 2001:db8:1::/48.
fn gateway() -> Gateway {
    let mut gateway = Gateway::new(Setup::default());
    gateway.nat64().inside = networks(&["2001:db8:1::/48"]);
    gateway
}

#[test]
fn who_is_not_inside_is_told_that_it_is_prohibited_and_leaves_no_trace() {
    let mut gateway = gateway();
    gateway.forward(&udp((HOST, 4000), (embed(SERVER), 53), b"query"));
    for packet in [
        udp((STRANGER, 4000), (embed(SERVER), 53), b"query"),
        tcp((STRANGER, 4000), (embed(SERVER), 80), SYN, b""),
        icmp(STRANGER, embed(SERVER), 128, 0, 7, b"ping"),
    ] {
        let (verdict, sent) = gateway.pass(&packet);
        assert_eq!(verdict, Verdict::Reply(DropReason::NotInside));
        assert_eq!(see(&sent[0]).destination, IpAddr::from(STRANGER));
        assert_eq!(sent[0][40..42], [1, 1], "administratively prohibited");
    }
    assert_eq!((gateway.tables.bindings.iter().count(), gateway.tables.subscribers.iter().count()), (1, 1));
}

#[test]
fn pieces_of_who_is_not_inside_do_not_wait_for_others() {
    let mut gateway = gateway();
    let pieces = |host| fragments_ipv6(&udp((host, 4000), (embed(SERVER), 53), &[7; 2000]), 1280);
    let verdicts: Vec<Verdict> = pieces(STRANGER).iter().map(|piece| gateway.pass(piece).0).collect();
    // Only the first says what it is about.
    assert_eq!(verdicts, [Verdict::Reply(DropReason::NotInside), Verdict::Drop(DropReason::NotInside)]);
    let verdicts: Vec<Verdict> = pieces(HOST).iter().map(|piece| gateway.pass(piece).0).collect();
    assert_eq!(verdicts, [Verdict::Hold, Verdict::Forward]);
}

#[test]
fn an_error_of_a_router_between_is_believed_wherever_the_router_is() {
    let mut gateway = gateway();
    let out = gateway.forward(&udp((HOST, 4000), (embed(SERVER), 53), b"query"));
    let back = udp((SERVER, 53), (POOL, out.ports.0), b"answer");
    let (_, sent) = gateway.pass(&back);
    let error = icmp(STRANGER, embed(SERVER), 1, 4, 0, &sent[0]);
    assert_eq!(gateway.pass(&error).0, Verdict::Forward);
}

#[test]
fn an_operator_binds_nobody_who_is_not_inside() {
    let gateway = gateway();
    let service = gateway.plan.services[0].clone();
    let add = |host: Ipv6Addr, port| {
        let binding = StaticBinding { inside: host.into(), ..static_binding(PortSpace::Tcp, port, port) };
        static_bindings::add(&gateway.tables, 0, &service, &binding, gateway.now)
    };
    assert_eq!(add(HOST, 2000), Ok(()));
    assert_eq!(add(STRANGER, 2001), Err("the host is not inside the service"));
}

#[test]
fn a_reload_ends_the_bindings_of_those_who_are_not_inside_any_more() {
    let mut gateway = gateway();
    for host in [HOST, OTHER_HOST] {
        gateway.forward(&udp((host, 4000), (embed(SERVER), 53), b"query"));
    }
    let former = gateway.plan.clone();
    gateway.nat64().inside = networks(&["2001:db8:1::2/128"]);
    let foreseen = foresee(&gateway.tables, &former, &gateway.plan);
    let mut gone = Vec::new();
    let ended =
        settle(&gateway.tables, &former, &gateway.plan, gateway.now, &mut |binding| gone.push(binding.inside.ipv6));
    assert_eq!(foreseen, ended);
    assert_eq!(ended.keys().map(|loss| loss.why).collect::<Vec<_>>(), [Ended::Host]);
    assert_eq!(gone, [OTHER_HOST.octets()]);
    gateway.audit();
}

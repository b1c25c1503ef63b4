//! UDP ports of remotes that have times of their own (RFC 4787 REQ-5 (a)).

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use support::*;
use tombolo_engine::mechanism::napt::{Filtering, Policy, Sessions, Times};
use tombolo_engine::{DropReason, Verdict};
use tombolo_wire::Port;

/// Datagrams keep state for 300 seconds, and with port 53 for 30.
fn gateway(policy: Policy) -> Gateway {
    let times = Times::default().with_short_ports(&[(Port(53), 30)]);
    Gateway::new(Setup { times, policy, ..Setup::default() })
}

fn policies() -> [Policy; 3] {
    let plain = Policy::default();
    [
        plain,
        Policy { sessions: Sessions::Kept, ..plain },
        Policy { filtering: Filtering::AddressDependent.into(), ..plain },
    ]
}

fn query(gateway: &mut Gateway, port: u16) -> u16 {
    gateway.forward(&udp((HOST, 4000), (embed(SERVER), port), b"query")).ports.0
}

fn bindings(gateway: &mut Gateway) -> usize {
    gateway.sweep();
    gateway.tables.bindings.iter().count()
}

#[test]
fn a_binding_for_such_a_port_alone_ends_soon_and_never_early() {
    for policy in policies() {
        let mut gateway = gateway(policy);
        let outside = query(&mut gateway, 53);
        let answer = udp((SERVER, 53), (POOL, outside), b"answer");
        gateway.wait(29);
        assert_eq!((bindings(&mut gateway), gateway.pass(&answer).0), (1, Verdict::Forward), "{policy:?}");
        // The answer has kept it, as any packet does, and for as long as the query would have.
        gateway.wait(29);
        assert_eq!((bindings(&mut gateway), gateway.pass(&answer).0), (1, Verdict::Forward), "{policy:?}");
        gateway.wait(34);
        assert_eq!(bindings(&mut gateway), 0, "{policy:?}");
        assert_eq!(gateway.pass(&answer).0, Verdict::Drop(DropReason::NoBinding));
        gateway.audit();
    }
}

#[test]
fn with_another_port_a_binding_has_the_usual_time() {
    for policy in policies() {
        for ports in [[53, 5000], [5000, 53]] {
            let mut gateway = gateway(policy);
            let outside = ports.map(|port| query(&mut gateway, port));
            assert_eq!(outside[0], outside[1], "one binding for all remotes");
            gateway.wait(299);
            assert_eq!(bindings(&mut gateway), 1, "{policy:?}, {ports:?}");
            // Queries do not make it longer.
            query(&mut gateway, 53);
            gateway.wait(34);
            assert_eq!(bindings(&mut gateway), 0, "{policy:?}, {ports:?}");
        }
    }
}

#[test]
fn tcp_to_such_a_port_has_its_own_times() {
    let mut gateway = gateway(Policy::default());
    gateway.forward(&tcp((HOST, 4000), (embed(SERVER), 53), SYN, b""));
    gateway.wait(200);
    assert_eq!(bindings(&mut gateway), 1);
}

//! After any sequence of what opens and what ends sessions, each subscriber's count is what a
//! recount finds, and a subscriber without sessions may open as many as at first.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::net::Ipv4Addr;

use proptest::prelude::*;
use support::*;
use tombolo_engine::flush::flush;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::mechanism::napt::{Endpoint, Filtering, Policy};
use tombolo_engine::plan::StaticBinding;
use tombolo_engine::{Verdict, static_bindings};
use tombolo_wire::Port;

const LIMIT: u32 = 6;

#[derive(Debug, Clone)]
enum Operation {
    /// A datagram from a host's port to a port of the server.
    Out {
        host: u8,
        port: u8,
        remote: u8,
    },
    /// A SYN, and an RST after it.
    Connect {
        host: u8,
        port: u8,
        remote: u8,
        reset: bool,
    },
    /// A datagram from a stranger to an outside port.
    In {
        stranger: u8,
        port: u16,
    },
    Wait(u64),
    Sweep,
    Flush {
        one_service: bool,
    },
    /// The configuration is read again, with or without a static binding and a limit.
    Reload {
        with_static: bool,
        limited: bool,
    },
    Add,
    Remove,
    Repair,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let out = (0..3_u8, 0..3_u8, 0..4_u8).prop_map(|(host, port, remote)| Operation::Out { host, port, remote });
    let connect = (0..3_u8, 0..3_u8, 0..4_u8, any::<bool>())
        .prop_map(|(host, port, remote, reset)| Operation::Connect { host, port, remote, reset });
    let inward = (0..4_u8, 1024..1040_u16).prop_map(|(stranger, port)| Operation::In { stranger, port });
    let operation = prop_oneof![
        8 => out,
        4 => connect,
        6 => inward,
        2 => prop_oneof![Just(1_u64), Just(100), Just(301), Just(8000)].prop_map(Operation::Wait),
        2 => Just(Operation::Sweep),
        1 => any::<bool>().prop_map(|one_service| Operation::Flush { one_service }),
        1 => any::<(bool, bool)>().prop_map(|(with_static, limited)| Operation::Reload { with_static, limited }),
        1 => Just(Operation::Add),
        1 => Just(Operation::Remove),
        1 => Just(Operation::Repair),
    ];
    prop::collection::vec(operation, 1..120)
}

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number + 1)
}

fn of_operator() -> StaticBinding {
    StaticBinding { inside: host(1).into(), ..static_binding(PortSpace::Udp, 40_001, 1030) }
}

fn apply(gateway: &mut Gateway, operation: &Operation) {
    match *operation {
        Operation::Out { host: number, port, remote } => {
            let port = 40_000 + u16::from(port);
            let _ = gateway.pass(&udp((host(number), port), (SERVER, 50 + u16::from(remote)), b""));
        }
        Operation::Connect { host: number, port, remote, reset } => {
            let ends = ((host(number), 40_000 + u16::from(port)), (SERVER, 80 + u16::from(remote)));
            let _ = gateway.pass(&tcp(ends.0, ends.1, SYN, b""));
            if reset {
                let _ = gateway.pass(&tcp(ends.0, ends.1, RST, b""));
            }
        }
        Operation::In { stranger, port } => {
            let _ = gateway.pass(&udp((Ipv4Addr::new(203, 0, 113, stranger), 9), (POOL, port), b""));
        }
        Operation::Wait(seconds) => gateway.wait(seconds),
        Operation::Sweep => drop(gateway.sweep()),
        Operation::Flush { one_service } => {
            flush(&gateway.tables, one_service.then_some(0), gateway.now, &mut |_| ());
        }
        Operation::Reload { with_static, limited } => {
            let nat = &mut gateway.nat44().nat;
            nat.policy.sessions_per_subscriber = limited.then_some(LIMIT);
            let wanted = StaticBinding { inside: host(0).into(), ..static_binding(PortSpace::Udp, 40_000, 1031) };
            nat.static_bindings = with_static.then_some(wanted).into_iter().collect();
            let _ = static_bindings::reconcile(&gateway.tables, &gateway.plan, gateway.now);
        }
        Operation::Add => {
            let _ = static_bindings::add(&gateway.tables, 0, &gateway.plan.services[0], &of_operator(), gateway.now);
        }
        Operation::Remove => {
            let outside = Endpoint { address: POOL, port: Port(1030) };
            let service = &gateway.plan.services[0];
            let _ = static_bindings::remove(&gateway.tables, service, PortSpace::Udp, outside, gateway.now);
        }
        Operation::Repair => {
            let _ = tombolo_tables::audit::repair(&gateway.tables, gateway.now.tick());
        }
    }
}

fn gateway(filtering: Filtering) -> Gateway {
    let policy = Policy { sessions_per_subscriber: Some(LIMIT), filtering: filtering.into(), ..Policy::default() };
    Gateway::new(Setup { policy, nat44: true, ports: 1024..=1040, bindings: 40, sessions: 60, ..Setup::default() })
}

/// A subscriber opens up to its limit, however often it has been flushed before.
#[test]
fn what_was_flushed_is_off_the_count() {
    let mut gateway = gateway(Filtering::EndpointIndependent);
    for _ in 0..10 {
        let opened = (0..20_u16)
            .filter(|&n| gateway.pass(&udp((host(1), 40_000), (SERVER, 100 + n), b"")).0 == Verdict::Forward);
        assert_eq!(opened.count(), LIMIT as usize);
        flush(&gateway.tables, None, gateway.now, &mut |_| ());
        gateway.audit();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn counts_equal_a_recount_after_any_sequence(operations in operations(), by_address in any::<bool>()) {
        let filtering = if by_address { Filtering::AddressDependent } else { Filtering::EndpointIndependent };
        let mut gateway = gateway(filtering);
        for operation in &operations {
            apply(&mut gateway, operation);
            gateway.audit();
        }
        apply(&mut gateway, &Operation::Reload { with_static: false, limited: true });
        flush(&gateway.tables, None, gateway.now, &mut |_| ());
        gateway.audit();
        // The ports are kept back for a while (RFC 6888 REQ-8).
        gateway.wait(200);
        let opened = (0..20_u16).filter(|&n| gateway.pass(&udp((host(2), 41_000), (SERVER, 100 + n), b"")).0 == Verdict::Forward);
        prop_assert_eq!(opened.count(), LIMIT as usize, "nobody has a session, so each may have as many as the limit");
    }
}

/// Packets of several hosts, flushes and sweeps at once: at rest the counts are right.
#[test]
fn flushes_beside_writers_leave_the_counts_right() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let prototype = gateway(Filtering::EndpointIndependent);
    let (tables, now) = (Arc::clone(&prototype.tables), prototype.now);
    let plan = &prototype.plan;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u16)
            .map(|writer| {
                let (tables, plan) = (Arc::clone(&tables), plan.clone());
                scope.spawn(move || {
                    let engine = tombolo_engine::Engine::new(Arc::clone(&tables), [9; 32], writer, 2);
                    let mut gateway = Gateway { engine, plan, tables, now };
                    for n in 0..20_000_u16 {
                        let (host, port) = (host((n % 3) as u8), 40_000 + n / 3 % 4);
                        let _ = gateway.pass(&udp((host, port), (SERVER, 50 + n / 7 % 5), b""));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                flush(&tables, None, now, &mut |_| ());
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(tombolo_tables::audit::check(&tables), Vec::<String>::new());
    flush(&tables, None, now, &mut |_| ());
    assert_eq!(tombolo_tables::audit::check(&tables), Vec::<String>::new());
    assert!(tables.subscribers.iter().all(|id| tables.subscribers.sessions(id) == 0));
}

//! What an operator may do to a running gateway: flush, drain, add and remove bindings.

mod support;

use support::{ACK, Gateway, HOST, OTHER_HOST, POOL, SECOND, SERVER, SYN, Setup, embed, static_binding, tcp, udp};
use tombolo_engine::flush::{Flushed, flush};
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::mechanism::napt::{Policy, Sessions};
use tombolo_engine::plan::Refusals;
use tombolo_engine::refused::Refused;
use tombolo_engine::static_bindings::{add, reconcile, reconcile_and_report, remove};
use tombolo_engine::{DropReason, Now, Verdict};
use tombolo_tables::audit;
use tombolo_tables::binding::Binding;

fn datagram(n: u16) -> Vec<u8> {
    udp((HOST, n), (embed(SERVER), 53), b"")
}

#[test]
fn a_flush_takes_sessions_and_dynamic_bindings_and_tells_of_each() {
    let policy = Policy { sessions: Sessions::Kept, ..Policy::default() };
    let settings =
        Setup { static_bindings: vec![static_binding(PortSpace::Udp, 80, 2000)], policy, ..Setup::default() };
    let mut gateway = Gateway::new(settings);
    (1..=50).for_each(|n| drop(gateway.forward(&datagram(n))));
    gateway.forward(&datagram(80));
    let mut told: Vec<Binding> = Vec::new();
    let none = flush(&gateway.tables, Some(7), gateway.now, &mut |binding| told.push(*binding));
    assert_eq!(none, Flushed::default());
    let flushed = flush(&gateway.tables, Some(0), gateway.now, &mut |binding| told.push(*binding));
    assert_eq!((flushed, told.len()), (Flushed { sessions: 51, bindings: 50 }, 50));
    assert_eq!(gateway.tables.bindings.count(), 1);
    assert_eq!(audit::check(&gateway.tables), Vec::<String>::new());
    gateway.forward(&datagram(1));
}

#[test]
fn what_is_drained_goes_on_and_begins_nothing() {
    let mut gateway = Gateway::new(Setup::default());
    gateway.forward(&datagram(1));
    let open = tcp((HOST, 9), (embed(SERVER), 80), SYN, b"");
    gateway.forward(&open);
    gateway.plan.times.draining_since = Some(gateway.now.tick());
    gateway.forward(&datagram(1));
    gateway.forward(&tcp((HOST, 9), (embed(SERVER), 80), ACK, b""));
    let refused = Verdict::Reply(DropReason::Draining);
    assert_eq!(gateway.pass(&datagram(2)).0, refused, "a new binding");
    let elsewhere = udp((HOST, 1), (embed(SERVER), 54), b"");
    gateway.forward(&elsewhere);
    gateway.nat64().nat.policy.sessions = Sessions::Kept;
    let again = udp((HOST, 1), (embed(SERVER), 55), b"");
    assert_eq!(gateway.pass(&again).0, refused, "a new session of a binding");
    gateway.plan.times.draining_since = None;
    gateway.forward(&again);
}

#[test]
fn bindings_of_an_operator_stay_over_a_reload_and_go_with_their_sessions() {
    let configured = static_binding(PortSpace::Udp, 80, 2000);
    let mut gateway = Gateway::new(Setup { static_bindings: vec![configured], ..Setup::default() });
    let service = gateway.plan.services[0].clone();
    let wanted = static_binding(PortSpace::Udp, 81, 2001);
    add(&gateway.tables, 0, &service, &wanted, gateway.now).unwrap();
    add(&gateway.tables, 0, &service, &wanted, gateway.now).expect("again is no conflict");
    let other = tombolo_engine::plan::StaticBinding { inside: OTHER_HOST.into(), ..wanted };
    assert!(add(&gateway.tables, 0, &service, &other, gateway.now).unwrap_err().contains("taken"));
    gateway.forward(&udp((SERVER, 53), (POOL, 2001), b""));

    gateway.nat64().nat.static_bindings.clear();
    let mut gone = Vec::new();
    let conflicts =
        reconcile_and_report(&gateway.tables, &gateway.plan, gateway.now, &mut |b| gone.push(b.outside_port));
    assert_eq!((conflicts.len(), gone), (0, vec![2000_u16.to_be_bytes()]));
    gateway.forward(&udp((SERVER, 53), (POOL, 2001), b""));

    let later = Now(gateway.now.0 + SECOND);
    assert!(remove(&gateway.tables, &service, PortSpace::Udp, configured.outside, later).is_err());
    let removed = remove(&gateway.tables, &service, PortSpace::Udp, wanted.outside, later).unwrap();
    assert_eq!(removed.outside_port, 2001_u16.to_be_bytes());
    assert_eq!(gateway.pass(&udp((SERVER, 53), (POOL, 2001), b"")).0, Verdict::Drop(DropReason::NoBinding));
    assert_eq!(audit::check(&gateway.tables), Vec::<String>::new(), "no session is left without its binding");
}

#[test]
fn a_configured_binding_is_not_an_operators_to_remove() {
    let configured = static_binding(PortSpace::Udp, 80, 2000);
    let gateway = Gateway::new(Setup { static_bindings: vec![configured], ..Setup::default() });
    let service = &gateway.plan.services[0];
    let reason = remove(&gateway.tables, service, PortSpace::Udp, configured.outside, gateway.now).unwrap_err();
    assert!(reason.contains("in the configuration"), "{reason}");
    assert_eq!(reconcile(&gateway.tables, &gateway.plan, gateway.now), Vec::new());
}

#[test]
fn what_policy_refuses_is_handed_out_for_a_log_and_a_flood_of_it_is_counted() {
    let mut gateway = Gateway::new(Setup::default());
    gateway.nat64().well_known_prefix_strict = true;
    let private = udp((HOST, 40_000), (embed([10, 1, 2, 3].into()), 53), b"");
    (0..25).for_each(|_| drop(gateway.pass(&private)));
    let mut refused = Vec::new();
    let more = gateway.engine.take_refused(|one| refused.push(*one));
    assert_eq!((refused.len(), more), (10, 15));
    assert_eq!(
        refused[0],
        Refused {
            reason: DropReason::PrivateInWellKnownPrefix,
            source: HOST.into(),
            destination: embed([10, 1, 2, 3].into()).into(),
            protocol: 17,
            ports: Some((40_000, 53)),
        }
    );
    assert_eq!(gateway.engine.take_refused(|one| panic!("{one:?}")), 0);
    // Other drops are no policy, and who does not tell does not log.
    gateway.pass(&udp((std::net::Ipv4Addr::new(8, 8, 8, 8), 53), (POOL, 1), b""));
    gateway.plan.own.errors.refusals = Refusals::Silent;
    gateway.pass(&private);
    assert_eq!(gateway.engine.take_refused(|one| panic!("{one:?}")), 0);
}

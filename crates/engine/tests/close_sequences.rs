//! How hosts close connections, in virtual time: the rows of `docs/tcp-sessions.md`, "Ways to
//! close". The same rows go through live gateways in `crates/tombolo/tests/close_sequences.rs`.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test may")]

mod support;
#[path = "support/ways_to_close.rs"]
mod ways_to_close;

use support::*;
use tombolo_engine::mechanism::session_state;
use ways_to_close::{Step, Way, ways};

/// Seconds by which a session may go later than its lifetime says: it is kept in ticks.
const LATE: u64 = 3;

/// The one session there is: its state, or nothing when it is gone.
fn state(gateway: &Gateway) -> Option<&'static str> {
    let mut all = gateway.tables.each_session().map(|session| session.state);
    let state = all.next()?;
    assert_eq!(all.next(), None, "one connection, one session");
    Some(session_state::name(state))
}

fn payload(has_data: bool) -> &'static [u8] {
    if has_data { b"some data" } else { b"" }
}

/// Takes the steps of a way; every packet must cross.
fn go(gateway: &mut Gateway, way: &Way, nat44: bool) {
    let mut outside = None;
    for &step in &way.steps {
        match step {
            Step::Pause(seconds) => gateway.wait(seconds),
            Step::Inside(flags, data) => {
                let seen = if nat44 {
                    gateway.forward(&tcp((HOST4, 40_000), (SERVER, 80), flags, payload(data)))
                } else {
                    gateway.forward(&tcp((HOST, 40_000), (embed(SERVER), 80), flags, payload(data)))
                };
                assert_eq!(*outside.get_or_insert(seen.ports.0), seen.ports.0, "{}", way.what);
            }
            Step::Outside(flags, data) => {
                let port = outside.expect("the inside opens");
                gateway.forward(&tcp((SERVER, 80), (POOL, port), flags, payload(data)));
            }
        }
    }
}

#[test]
fn every_way_to_close_leaves_what_the_docs_say() {
    for nat44 in [false, true] {
        for way in ways() {
            let mut gateway = Gateway::new(Setup { nat44, ..Setup::default() });
            go(&mut gateway, &way, nat44);
            assert_eq!(state(&gateway), Some(way.state.as_str()), "{}", way.what);
            // Nothing follows, not even an answer to a probe.
            let mut seconds = 0;
            while state(&gateway).is_some() {
                gateway.wait(1);
                seconds += 1;
                gateway.sweep();
            }
            let Way { what, state, seconds: expected, .. } = way;
            println!("{what}: {state}, gone after {seconds} s, and should be after {expected}");
            assert!((expected..=expected + LATE).contains(&seconds), "{what}: {seconds} instead of {expected}");
            gateway.audit();
        }
    }
}

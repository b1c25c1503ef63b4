//! A writer that dies at any of its steps, and what the next process makes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tombolo_tables::atomic::{Outcome, die_after};
use tombolo_tables::audit;
use tombolo_tables::binding::{Binding, BindingId};
use tombolo_tables::session::SessionKey;
use tombolo_tables::subscriber::{Subscriber, SubscriberKey};
use tombolo_tables::tables::Tables;
use tombolo_tables::tick::Tick;

use crate::{FOREVER, Model, NOW, OPEN, assert_sound, candidate, inside, spawn, tables, template};

const OLD: Tick = Tick(1);

fn grant(host: u8) -> Subscriber {
    let key = SubscriberKey { ipv6: [host; 16], ..SubscriberKey::default() };
    Subscriber { key, outside_ipv4: [192, 0, 2, 1] }
}

fn bind(tables: &Tables, port: u16, slots: &[u32]) -> Option<(BindingId, Binding)> {
    let template = Binding { flags: 0, subscriber: 1, ..template(port) };
    tables.bind(&template, slots.iter().copied().map(candidate), 0, NOW).ok()
}

fn session(binding: BindingId, remote: u8) -> SessionKey {
    SessionKey { binding, remote_ipv4: [203, 0, 113, remote], remote_port: [1, 187] }
}

/// Runs `operation` with every number of steps that it may live to make, each beside `other`; then
/// the next process repairs the tables, and `expect` looks at them.
fn at_every_step(
    name: &str,
    prepare: fn(&Tables),
    operation: fn(&Tables),
    other: Option<fn(&Tables)>,
    expect: fn(&Tables),
) {
    let mut model = Model::new(name, 1);
    for steps in 0.. {
        let survived = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&survived);
        model.explore(move || {
            let tables = tables(2, 2);
            prepare(&tables);
            let dying = spawn(&tables, move |tables| die_after(steps, || operation(tables)));
            other.iter().for_each(|other| other(&tables));
            if dying.join().unwrap() != Outcome::Died {
                noted.store(true, Ordering::Relaxed);
            }
            audit::repair(&tables, NOW);
            assert_sound(&tables);
            expect(&tables);
        });
        if survived.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn admit(tables: &Tables) {
    assert!(tables.admit(&grant(7), NOW).is_some());
}

fn nothing(_: &Tables) {}

#[test]
fn a_binding_that_was_half_made_is_repaired() {
    let make = |tables: &Tables| assert!(bind(tables, 1, &[0, 1]).is_some());
    at_every_step("a_binding_that_was_half_made_is_repaired", admit, make, None, nothing);
}

#[test]
fn of_two_writers_of_a_binding_the_one_that_lives_has_it() {
    let make = |tables: &Tables| assert!(bind(tables, 1, &[0, 1]).is_some());
    let other = |tables: &Tables| {
        let (id, binding) = bind(tables, 1, &[1, 0]).expect("there is room for both");
        assert_eq!(tables.find_inside(&inside(1)), Some((id, binding)));
    };
    let expect = |tables: &Tables| assert!(tables.find_inside(&inside(1)).is_some());
    at_every_step("of_two_writers_of_a_binding_the_one_that_lives_has_it", admit, make, Some(other), expect);
}

#[test]
fn a_binding_that_was_half_removed_is_repaired() {
    let prepare = |tables: &Tables| {
        admit(tables);
        let (id, _) = bind(tables, 1, &[0]).unwrap();
        let _ = tables.sessions.insert(&session(id, 1), OPEN, 0, &FOREVER, NOW);
    };
    let remove = |tables: &Tables| {
        let (id, binding) = tables.find_inside(&inside(1)).unwrap();
        assert!(tables.unbind(id, &binding, NOW, NOW));
    };
    let other = |tables: &Tables| {
        let _ = bind(tables, 2, &[0, 1]);
    };
    at_every_step("a_binding_that_was_half_removed_is_repaired", prepare, remove, Some(other), nothing);
}

#[test]
fn a_session_that_was_half_made_is_repaired() {
    let prepare = |tables: &Tables| {
        admit(tables);
        let (id, _) = bind(tables, 1, &[0]).unwrap();
        // One entry is reused, one is in the way.
        let _ = tables.sessions.insert(&session(id, 1), OPEN, 0, &FOREVER, OLD);
        let _ = tables.sessions.insert(&session(id, 2), OPEN, 0, &FOREVER, NOW);
    };
    let make = |tables: &Tables| {
        let (id, _) = tables.find_inside(&inside(1)).unwrap();
        let brief = tombolo_tables::session::Lifetimes([10; 16]);
        let _ = tables.sessions.insert(&session(id, 3), OPEN, 0, &brief, NOW);
        let _ = tables.sessions.insert(&session(id, 4), OPEN, 0, &brief, NOW);
    };
    let expect = |tables: &Tables| {
        let (id, _) = tables.find_inside(&inside(1)).unwrap();
        assert!(tables.sessions.find(&session(id, 2)).is_some(), "one that was in use is lost");
    };
    at_every_step("a_session_that_was_half_made_is_repaired", prepare, make, None, expect);
}

#[test]
fn a_subscriber_that_was_half_admitted_is_repaired() {
    let other = |tables: &Tables| {
        let _ = tables.admit(&grant(7), NOW);
    };
    let make = |tables: &Tables| {
        let _ = tables.admit(&grant(7), NOW);
    };
    at_every_step("a_subscriber_that_was_half_admitted_is_repaired", nothing, make, Some(other), nothing);
}

#[test]
fn a_block_that_was_half_granted_is_repaired() {
    let make = |tables: &Tables| {
        let (id, _) = tables.find_subscriber(&grant(7).key).unwrap();
        assert!(tables.grant_block(id, 0, 0, 2, 0, NOW));
    };
    at_every_step("a_block_that_was_half_granted_is_repaired", admit, make, None, nothing);
}

#[test]
fn a_subscriber_that_was_half_dismissed_is_repaired() {
    let prepare = |tables: &Tables| {
        admit(tables);
        let (id, _) = tables.find_subscriber(&grant(7).key).unwrap();
        assert!(tables.grant_block(id, 0, 0, 2, 0, NOW));
    };
    let remove = |tables: &Tables| {
        let (id, subscriber) = tables.find_subscriber(&grant(7).key).unwrap();
        assert!(tables.dismiss(id, &subscriber, NOW, NOW));
    };
    at_every_step("a_subscriber_that_was_half_dismissed_is_repaired", prepare, remove, None, nothing);
}

//! What is made in several tables at once: bindings, subscribers, blocks of ports.

use std::sync::Arc;

use tombolo_tables::binding::{Binding, BindingId};
use tombolo_tables::outside::Slot;
use tombolo_tables::session::{Inserted, Session, SessionKey, Sweep};
use tombolo_tables::subscriber::{Subscriber, SubscriberKey};
use tombolo_tables::sweep::{Policy, Sweeper};
use tombolo_tables::tables::{Keeper, Tables};
use tombolo_tables::tick::Tick;

use crate::{FOREVER, NOW, OPEN, assert_sound, assert_whole, candidate, inside, model, spawn, tables, template};

const OLD: Tick = Tick(1);

fn bind(tables: &Tables, port: u16, slots: &[u32], now: Tick) -> Option<(BindingId, Binding)> {
    tables.bind(&template(port), slots.iter().copied().map(candidate), 0, now).ok()
}

/// What a reader may find under an inside endpoint and a slot.
fn look(tables: &Tables, port: u16, slot: u32) {
    if let Some((_, binding)) = tables.find_inside(&inside(port)) {
        assert_eq!(binding.inside, inside(port));
        assert_whole(&binding);
    }
    if let Some((_, binding)) = tables.find_outside(slot) {
        assert_eq!(binding.outside_slot, slot);
        assert_whole(&binding);
    }
}

model! {
    two_writers_of_one_inside_endpoint_get_one_binding, 2, || {
        let tables = tables(2, 2);
        let other = spawn(&tables, |tables| bind(tables, 1, &[1], NOW));
        let mine = bind(&tables, 1, &[0], NOW).expect("there is room");
        assert_eq!(other.join().unwrap(), Some(mine));
        assert_eq!(tables.bindings.count(), 1);
        assert_sound(&tables);
    }
}

model! {
    two_writers_never_get_one_outside_endpoint, 2, || {
        let tables = tables(2, 2);
        let other = spawn(&tables, |tables| bind(tables, 1, &[0, 1], NOW).unwrap());
        let (_, mine) = bind(&tables, 2, &[0, 1], NOW).unwrap();
        let (_, theirs) = other.join().unwrap();
        assert_ne!(mine.outside_slot, theirs.outside_slot);
        assert_sound(&tables);
    }
}

model! {
    a_reader_finds_a_binding_whole_or_not_at_all, 2, || {
        let tables = tables(1, 1);
        let other = spawn(&tables, |tables| bind(tables, 1, &[0], NOW).is_some());
        look(&tables, 1, 0);
        assert!(other.join().unwrap());
        assert!(tables.find_inside(&inside(1)).is_some() && tables.find_outside(0).is_some());
        assert_sound(&tables);
    }
}

model! {
    a_number_and_an_endpoint_are_given_on_whole, 2, || {
        let tables = tables(1, 2);
        let (id, old) = bind(&tables, 1, &[0], OLD).unwrap();
        let other = spawn(&tables, move |tables| {
            assert!(tables.unbind(id, &old, OLD, NOW));
            assert!(bind(tables, 2, &[0], NOW).is_some());
        });
        look(&tables, 1, 0);
        look(&tables, 2, 0);
        other.join().unwrap();
        assert_eq!(tables.find_outside(0).map(|(_, binding)| binding.inside), Some(inside(2)));
        assert!(tables.find_inside(&inside(1)).is_none());
        assert_sound(&tables);
    }
}

model! {
    a_number_that_one_frees_and_another_takes_is_given_on_whole, 2, || {
        let tables = tables(1, 2);
        let (id, old) = bind(&tables, 1, &[0], OLD).unwrap();
        let remover = spawn(&tables, move |tables| assert!(tables.unbind(id, &old, OLD, NOW)));
        let maker = spawn(&tables, |tables| bind(tables, 2, &[0, 1], NOW));
        look(&tables, 2, 0);
        remover.join().unwrap();
        if maker.join().unwrap().is_none() {
            assert_eq!(tables.bindings.count(), 0);
            assert!(!matches!(tables.outside.read(0), Slot::Taken(_)));
        }
        assert_sound(&tables);
    }
}

model! {
    of_two_that_remove_a_binding_one_does_and_the_next_binding_stays, 2, || {
        let tables = tables(1, 2);
        let (id, old) = bind(&tables, 1, &[0], NOW).unwrap();
        let other = spawn(&tables, move |tables| tables.unbind(id, &old, NOW, NOW));
        let mine = tables.unbind(id, &old, NOW, NOW);
        // All within a tick: the next binding may have the same number.
        let next = bind(&tables, 2, &[1], NOW);
        let theirs = other.join().unwrap();
        assert!(mine || theirs);
        if let Some((next, binding)) = next {
            assert!(mine != theirs, "the next binding was taken for the last");
            assert_eq!(tables.find_inside(&inside(2)), Some((next, binding)));
        }
        assert_sound(&tables);
    }
}

fn grant() -> Subscriber {
    let key = SubscriberKey { ipv6: [7; 16], ..SubscriberKey::default() };
    Subscriber { key, outside_ipv4: [192, 0, 2, 1] }
}

fn two_subscribers() -> Arc<Tables> {
    use tombolo_tables::{hash::HashKey, memory::Heap, tables::Capacity};
    let capacity = Capacity { subscribers: 2, bindings: 1, sessions: 1, outside_slots: 64, leases: 0 };
    Arc::new(Tables::new(&mut Heap, capacity, HashKey::new([1, 2, 3, 4])).unwrap())
}

model! {
    a_subscriber_is_admitted_once, 2, || {
        let tables = two_subscribers();
        let other = spawn(&tables, |tables| tables.admit(&Subscriber { outside_ipv4: [192, 0, 2, 2], ..grant() }, NOW));
        let mine = tables.admit(&grant(), NOW).expect("there is room");
        assert_eq!(other.join().unwrap(), Some(mine));
        assert_eq!(tables.subscribers.count(), 1);
        assert_sound(&tables);
    }
}

model! {
    a_block_of_ports_has_one_holder_that_knows_it, 2, || {
        let tables = two_subscribers();
        let (first, _) = tables.admit(&grant(), NOW).unwrap();
        let key = SubscriberKey { ipv6: [8; 16], ..SubscriberKey::default() };
        let (second, _) = tables.admit(&Subscriber { key, ..grant() }, NOW).unwrap();
        let others = [(first, 0), (second, 0)].map(|(id, place)| {
            spawn(&tables, move |tables| tables.grant_block(id, 0, place, 2, 0, NOW))
        });
        let mine = tables.grant_block(first, 0, 1, 2, 0, NOW);
        let [a, b] = others.map(|other| other.join().unwrap());
        assert!(mine && a != b);
        assert_sound(&tables);
    }
}

model! {
    a_subscriber_gets_no_more_blocks_than_it_may_have, 2, || {
        let tables = two_subscribers();
        let (id, _) = tables.admit(&grant(), NOW).unwrap();
        let other = spawn(&tables, move |tables| tables.grant_block(id, 0, 0, 1, 0, NOW));
        let mine = tables.grant_block(id, 0, 1, 1, 0, NOW);
        assert_ne!(mine, other.join().unwrap());
        assert_sound(&tables);
    }
}

/// Sessions that were not seen at [`NOW`] go.
struct Expire;

impl Policy for Expire {
    fn session(&mut self, session: &Session, _: Tick) -> Sweep {
        if session.seen < NOW { Sweep::Remove } else { Sweep::Keep }
    }
    fn binding_lifetime(&self, _: &Binding) -> u32 {
        0
    }
    fn binding_removed(&mut self, _: BindingId, _: &Binding) {}
    fn subscriber_removed(&mut self, _: &Subscriber) {}
}

fn sweep(tables: &Tables) {
    while !Sweeper::new(tables, NOW).advance(tables, usize::MAX, NOW, &mut Expire) {}
}

fn session(binding: BindingId) -> SessionKey {
    SessionKey { binding, remote_ipv4: [203, 0, 113, 1], remote_port: [1, 187] }
}

/// A binding of the one subscriber.
fn bind_dynamic(tables: &Tables, slots: &[u32], now: Tick) -> Option<(BindingId, Binding)> {
    let template = Binding { flags: 0, subscriber: 1, ..template(1) };
    tables.bind(&template, slots.iter().copied().map(candidate), 0, now).ok()
}

/// A packet from inside, as the engine has it.
fn packet(tables: &Tables) {
    for _ in 0..2 {
        let found = tables.find_inside(&inside(1)).or_else(|| bind_dynamic(tables, &[0, 1], NOW));
        let Some((id, _)) = found else { return };
        if let Some(found) = tables.sessions.find(&session(id)) {
            found.refresh(NOW);
            return;
        }
        if tables.bindings.touch(id, NOW) {
            let _ = tables.sessions.insert(&session(id), OPEN, 0, &FOREVER, NOW);
            return;
        }
    }
}

model! {
    a_packet_beside_the_sweep_leaves_no_session_without_its_binding, 2, || {
        let tables = tables(1, 2);
        assert!(tables.admit(&grant(), NOW).is_some());
        let (id, _) = bind_dynamic(&tables, &[0], OLD).unwrap();
        assert!(matches!(tables.sessions.insert(&session(id), OPEN, 0, &FOREVER, OLD), Inserted::New(_)));
        let sweeper = spawn(&tables, sweep);
        packet(&tables);
        sweeper.join().unwrap();
        // A second pass finds nothing that the first should have seen.
        sweep(&tables);
        assert_sound(&tables);
    }
}

model! {
    a_packet_without_a_session_beside_the_sweep_leaves_none_without_its_binding, 2, || {
        let tables = tables(1, 2);
        assert!(tables.admit(&grant(), NOW).is_some());
        assert!(bind_dynamic(&tables, &[0], OLD).is_some());
        let sweeper = spawn(&tables, sweep);
        packet(&tables);
        sweeper.join().unwrap();
        assert_sound(&tables);
    }
}

/// A packet from inside on a binding that needs no session, as the engine has it: the binding that it
/// leaves by.
fn packet_without_session(tables: &Tables) -> BindingId {
    for _ in 0..3 {
        let found = tables.find_inside(&inside(1)).or_else(|| bind_dynamic(tables, &[0, 1], NOW));
        let Some((id, binding)) = found else { continue };
        if tables.keep(id, &binding, Keeper::Inside, NOW) {
            return id;
        }
    }
    panic!("the sweep removes it once")
}

model! {
    what_a_packet_keeps_stays_beside_the_sweep, 2, || {
        let tables = tables(2, 2);
        assert!(tables.admit(&grant(), NOW).is_some());
        assert!(bind_dynamic(&tables, &[0], OLD).is_some());
        let sweeper = spawn(&tables, sweep);
        let kept = packet_without_session(&tables);
        sweeper.join().unwrap();
        sweep(&tables);
        let (found, binding) = tables.find_inside(&inside(1)).expect("it was used in this tick");
        assert_eq!(found, kept);
        assert_whole(&binding);
        assert_sound(&tables);
    }
}

model! {
    counts_are_right_after_writers_and_the_sweep, 2, || {
        let tables = two_subscribers();
        let (subscriber, _) = tables.admit(&grant(), NOW).unwrap();
        let template = |port| Binding { flags: 0, subscriber: subscriber.get(), ..template(port) };
        let (id, old) = tables.bind(&template(1), [candidate(0)], 0, OLD).unwrap();
        let other = spawn(&tables, move |tables| assert!(tables.unbind(id, &old, OLD, NOW)));
        let _ = tables.bind(&template(2), [candidate(1)], 0, NOW);
        other.join().unwrap();
        assert_sound(&tables);
    }
}

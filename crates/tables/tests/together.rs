//! The tables together, under several writers, a sweeper, and writers that die half-way.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use proptest::prelude::*;
use tombolo_tables::audit;
use tombolo_tables::binding::{Binding, BindingId, InsideKey, flags};
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_tables::session::{Inserted, Lifetimes, Session, SessionKey, State, Sweep};
use tombolo_tables::subscriber::{Subscriber, SubscriberKey};
use tombolo_tables::sweep::{Policy, Sweeper};
use tombolo_tables::tables::{BindError, Candidate, Capacity, Tables};
use tombolo_tables::tick::Tick;

const OPEN: State = State(1);
const LIFETIME: u32 = 10;
const LIFETIMES: Lifetimes = Lifetimes([LIFETIME; 16]);
const REUSE_AFTER: u32 = 20;

fn tables(bindings: u32, slots: u32) -> Tables {
    let capacity = Capacity { subscribers: 100, bindings, sessions: 20_000, outside_slots: slots, leases: 0 };
    Tables::new(&mut Heap, capacity, HashKey::new([1, 2, 3, 4])).unwrap()
}

fn inside(host: u8, port: u16) -> InsideKey {
    InsideKey { ipv6: [host; 16], ipv4: [0; 4], port: port.to_be_bytes(), protocol: 17, service: 0 }
}

fn candidates(slots: u32, from: u32) -> impl Iterator<Item = Candidate> {
    (0..slots).map(move |n| {
        let slot = (from + n) % slots;
        let port = u16::try_from(1024 + slot).unwrap();
        Candidate { slot, ipv4: [192, 0, 2, 1], port: port.to_be_bytes() }
    })
}

fn admit(tables: &Tables, host: u8, now: Tick) -> u32 {
    let key = SubscriberKey { ipv6: [host; 16], ..SubscriberKey::default() };
    let found = tables.find_subscriber(&key);
    let grant = Subscriber { key, outside_ipv4: [192, 0, 2, 1] };
    let (id, _) = found.or_else(|| tables.admit(&grant, now)).expect("room for every host");
    if tables.subscribers.touch(id, now) { id.get() } else { admit(tables, host, now) }
}

#[derive(Default)]
struct Expire {
    removed: Vec<InsideKey>,
}

impl Policy for Expire {
    fn session(&mut self, session: &Session, now: Tick) -> Sweep {
        if now.since(session.seen) >= LIFETIME { Sweep::Remove } else { Sweep::Keep }
    }
    fn binding_lifetime(&self, _: &Binding) -> u32 {
        0
    }
    fn binding_removed(&mut self, _: BindingId, binding: &Binding) {
        self.removed.push(binding.inside);
    }
    fn subscriber_removed(&mut self, _: &Subscriber) {}
}

#[derive(Default)]
struct Model {
    bindings: HashMap<InsideKey, (u32, Tick)>,
    sessions: HashMap<(InsideKey, u8), Tick>,
    closed: HashMap<u32, Tick>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A few hosts, ports and remotes, so that everything meets everything.
    #[test]
    fn the_tables_equal_a_naive_model(operations in prop::collection::vec((0..10_u8, 0..4_u8, 0..40_u16, 0..3_u8), 1..600)) {
        const SLOTS: u32 = 60;
        let tables = tables(50, SLOTS);
        let mut model = Model::default();
        let mut sweeper = Sweeper::new(&tables, Tick(1));
        let mut now = Tick(1);
        for (operation, host, port, remote) in operations {
            let key = inside(host, port);
            match operation {
                0..=3 => {
                    let expected_free = (0..SLOTS).any(|slot| {
                        !model.bindings.values().any(|(taken, _)| *taken == slot)
                            && model.closed.get(&slot).is_none_or(|at| now.since(*at) >= REUSE_AFTER)
                    });
                    let subscriber = admit(&tables, host, now);
                    let template = Binding { inside: key, subscriber, ..Binding::default() };
                    let found = tables.find_inside(&key);
                    prop_assert_eq!(found.map(|(_, b)| b.outside_slot), model.bindings.get(&key).map(|b| b.0));
                    if found.is_none() {
                        match tables.bind(&template, candidates(SLOTS, u32::from(port)), REUSE_AFTER, now) {
                            Ok((_, binding)) => {
                                prop_assert!(model.bindings.len() < 50);
                                model.closed.remove(&binding.outside_slot);
                                model.bindings.insert(key, (binding.outside_slot, now));
                            }
                            Err(BindError::TableFull) => prop_assert_eq!(model.bindings.len(), 50),
                            Err(BindError::NoneFree) => prop_assert!(!expected_free),
                        }
                    }
                }
                4..=6 => if let Some((id, _)) = tables.find_inside(&key) {
                    prop_assert!(tables.bindings.touch(id, now));
                    let session = SessionKey { binding: id, remote_ipv4: [203, 0, 113, remote], remote_port: [0, 53] };
                    match tables.sessions.insert(&session, OPEN, 0, &LIFETIMES, now) {
                        Inserted::New(_) => {}
                        Inserted::Existing(session) => session.refresh(now),
                        Inserted::Full => prop_assert!(false),
                    }
                    model.bindings.get_mut(&key).unwrap().1 = now;
                    model.sessions.insert((key, remote), now);
                },
                7..=8 => now = Tick(now.0 + 3),
                _ => {
                    // Two passes: what the first finds expired, the second finds unmarked.
                    for _ in 0..2 {
                        let mut expire = Expire::default();
                        while !sweeper.advance(&tables, 7, now, &mut expire) {}
                        for key in expire.removed {
                            let (slot, touched) = model.bindings.remove(&key).expect("only what was there is removed");
                            prop_assert!(now.since(touched) >= 4);
                            model.closed.insert(slot, now);
                        }
                        model.sessions.retain(|_, seen| now.since(*seen) < LIFETIME);
                        prop_assert!(model.sessions.keys().all(|(key, _)| model.bindings.contains_key(key)), "a binding in use was removed");
                    }
                }
            }
            for (key, (slot, _)) in &model.bindings {
                prop_assert_eq!(tables.find_outside(*slot).map(|(_, b)| b.inside), Some(*key));
            }
        }
        let findings = audit::check(&tables);
        prop_assert!(findings.is_empty(), "{findings:#?}");
    }
}

#[test]
fn writers_and_a_sweeper_at_once_leave_every_invariant_intact() {
    const SLOTS: u32 = 6000;
    let tables = tables(5000, SLOTS);
    let clock = AtomicU32::new(1);
    let progress = [const { AtomicU32::new(0) }; 3];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3_u32)
            .map(|writer| {
                let (tables, clock, progress) = (&tables, &clock, &progress[writer as usize]);
                scope.spawn(move || {
                    let mut random = writer + 1;
                    for n in 0..150_000_u32 {
                        random ^= random << 13;
                        random ^= random >> 17;
                        random ^= random << 5;
                        let host = u8::try_from(random % 50).unwrap() + 1;
                        // Ports come out of use as time goes by.
                        let key = inside(host, u16::try_from((random >> 8 & 0x3f) + n / 10_000 * 64).unwrap());
                        let now = Tick(clock.load(Ordering::Relaxed));
                        use_binding(tables, host, key, random, now);
                        progress.fetch_add(1, Ordering::Relaxed);
                    }
                    progress.store(u32::MAX, Ordering::Relaxed);
                })
            })
            .collect();
        let sweeper = scope.spawn(|| {
            let mut sweeper = Sweeper::new(&tables, Tick(1));
            let mut removed = 0;
            let mut seen = [0; 3];
            // When the writers are done, time goes on until everything must have expired.
            let mut after = 0;
            while after < 3 * LIFETIME {
                after += u32::from(done.load(Ordering::Relaxed));
                let mut expire = Expire::default();
                // A tick is longer than any packet takes, also on a machine that stops threads for
                // long: time goes on only when every writer has.
                let reached = [0, 1, 2].map(|writer: usize| progress[writer].load(Ordering::Relaxed));
                let all_went_on = reached.iter().zip(&seen).all(|(now, then)| now != then || *now == u32::MAX);
                if all_went_on {
                    seen = reached;
                    clock.fetch_add(1, Ordering::Relaxed);
                }
                let now = Tick(clock.load(Ordering::Relaxed));
                while !sweeper.advance(&tables, 1000, now, &mut expire) {}
                removed += expire.removed.len();
            }
            removed
        });
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok), "a writer failed");
        assert!(sweeper.join().unwrap() > 100, "the sweeper must have had something to do");
    });
    assert_eq!((tables.bindings.count(), tables.subscribers.count()), (0, 0), "everything has expired");
    let findings = audit::check(&tables);
    assert!(findings.is_empty(), "{findings:#?}");
}

fn use_binding(tables: &Tables, host: u8, key: InsideKey, random: u32, now: Tick) {
    const SLOTS: u32 = 6000;
    let found = tables.find_inside(&key).or_else(|| {
        let template = Binding { inside: key, subscriber: admit(tables, host, now), ..Binding::default() };
        tables.bind(&template, candidates(SLOTS, random % SLOTS), 0, now).ok()
    });
    let Some((id, binding)) = found else { return };
    if tables.bindings.touch(id, now) {
        let session = SessionKey {
            binding: id,
            remote_ipv4: [203, 0, 113, u8::try_from(random >> 24 & 3).unwrap()],
            remote_port: [1, 2],
        };
        // Full is an answer too, where the sweep cannot keep up.
        let _ = tables.sessions.insert(&session, OPEN, 0, &LIFETIMES, now);
        let outside = tables.find_outside(binding.outside_slot);
        assert!(outside.is_none_or(|(other, b)| other != id || b.inside == key));
    }
}

#[test]
fn what_a_crash_leaves_is_repaired() {
    const SLOTS: u32 = 100;
    let tables = tables(50, SLOTS);
    let subscriber = admit(&tables, 1, Tick(1));
    let template = |port| Binding { inside: inside(1, port), subscriber, ..Binding::default() };
    let (kept, _) = tables.bind(&template(1), candidates(SLOTS, 0), 0, Tick(1)).unwrap();
    // Died after claiming a record; after claiming a slot too; after making the record live.
    let _ = tables.bindings.claim(0).unwrap();
    let with_slot = tables.bindings.claim(0).unwrap();
    assert!(tables.outside.claim(50, with_slot, Tick(1), 0));
    let live = tables.bindings.claim(0).unwrap();
    assert!(tables.outside.claim(51, live, Tick(1), 0));
    tables.bindings.publish(live, &Binding { outside_slot: 51, outside_port: [9, 9], ..template(2) }, Tick(1));
    // Died while removing: retired, not yet unlinked, with a session left.
    let (dying, binding) = tables.bind(&template(3), candidates(SLOTS, 3), 0, Tick(1)).unwrap();
    let session = SessionKey { binding: dying, remote_ipv4: [1; 4], remote_port: [1; 2] };
    assert!(matches!(tables.sessions.insert(&session, OPEN, 0, &LIFETIMES, Tick(1)), Inserted::New(_)));
    assert!(tables.bindings.retire(dying, &binding, Tick(1)));
    assert_eq!(binding.flags & flags::STATIC, 0);

    assert!(!audit::check(&tables).is_empty());
    assert!(audit::repair(&tables, Tick(2)) > 0);
    let findings = audit::check(&tables);
    assert!(findings.is_empty(), "{findings:#?}");
    assert_eq!(tables.find_inside(&inside(1, 1)).map(|(id, _)| id), Some(kept));
    assert_eq!(tables.bindings.count(), 1);
}

#[test]
fn the_capacity_says_what_the_tables_take() {
    for capacity in [
        Capacity { subscribers: 1, bindings: 1, sessions: 8, outside_slots: 1, leases: 0 },
        Capacity { subscribers: 3072, bindings: 3072, sessions: 12_288, outside_slots: 3072, leases: 0 },
        Capacity { subscribers: 65_536, bindings: 193_536, sessions: 774_144, outside_slots: 193_536, leases: 0 },
    ] {
        let tables = Tables::new(&mut Heap, capacity, HashKey::new([1; 4])).unwrap();
        let (said, taken) = (capacity.bytes(), tables.memory().total() as u64);
        assert!(said.abs_diff(taken) < 8192, "{capacity:?}: {said} bytes, {taken} are taken");
    }
}

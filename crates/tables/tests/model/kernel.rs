//! The engine beside the programs in the kernel, whose steps are transcribed in `src/kernel.rs`.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use tombolo_tables::audit;
use tombolo_tables::binding::{Binding, BindingId, InsideKey};
use tombolo_tables::kernel::{Program, Shortcut};
use tombolo_tables::session::{Inserted, Lifetimes, SessionKey};
use tombolo_tables::shortcut::LEAD;
use tombolo_tables::subscriber::{Subscriber, SubscriberKey};
use tombolo_tables::tables::{Candidate, Keeper, Opener, Removal, Tables};
use tombolo_tables::tick::Tick;

use crate::{NOW, OPEN, assert_sound, assert_whole, candidate, inside, model, spawn, tables, template};

const OLD: Tick = Tick(1);
/// What was last seen at tick 1 has expired.
const BRIEF: Lifetimes = Lifetimes([10; 16]);

/// Tables with one subscriber.
fn world(bindings: u32, slots: u32) -> Arc<Tables> {
    let tables = tables(bindings, slots);
    let key = SubscriberKey { ipv6: [7; 16], ..SubscriberKey::default() };
    let admitted = tables.admit(&Subscriber { key, outside_ipv4: [192, 0, 2, 1] }, NOW);
    assert_eq!(admitted.unwrap().0.get(), 1);
    tables
}

fn of_subscriber(port: u16) -> Binding {
    Binding { flags: 0, subscriber: 1, ..template(port) }
}

fn candidates(slots: &[u32]) -> Vec<Candidate> {
    slots.iter().copied().map(candidate).collect()
}

fn bind(tables: &Tables, port: u16, slots: &[u32], now: Tick) -> Option<BindingId> {
    tables.bind(&of_subscriber(port), candidates(slots), 0, now).ok().map(|(id, _)| id)
}

fn bind_in_kernel(tables: &Tables, port: u16, slots: &[u32]) -> Option<BindingId> {
    Program(tables).bind(&of_subscriber(port), &candidates(slots), 0, NOW)
}

/// The binding that has the first outside slot.
fn of_outside(tables: &Tables) -> Binding {
    tables.find_outside(0).unwrap().1
}

fn session(binding: BindingId, remote: u8) -> SessionKey {
    SessionKey { binding, remote_ipv4: [203, 0, 113, remote], remote_port: [1, 187] }
}

model! {
    engine_and_kernel_make_one_binding_of_an_inside_endpoint, 1, || {
        let tables = world(2, 2);
        let program = spawn(&tables, |tables| bind_in_kernel(tables, 1, &[0, 1]));
        let mine = bind(&tables, 1, &[0, 1], NOW).expect("the engine has one in the end");
        if let Some(theirs) = program.join().unwrap() {
            assert_eq!(mine, theirs);
        }
        assert_eq!(tables.bindings.count(), 1);
        assert_sound(&tables);
    }
}

model! {
    two_programs_make_one_binding_of_an_inside_endpoint_at_most, 1, || {
        let tables = world(2, 2);
        let other = spawn(&tables, |tables| bind_in_kernel(tables, 1, &[0, 1]));
        let mine = bind_in_kernel(&tables, 1, &[0, 1]);
        let theirs = other.join().unwrap();
        assert!(mine.is_none() || theirs.is_none());
        assert_eq!(tables.bindings.count(), u32::from(mine.or(theirs).is_some()));
        assert_sound(&tables);
    }
}

model! {
    a_program_binds_in_no_block_that_has_gone_to_another_subscriber, 1, || {
        let tables = tables(1, 2);
        let keys = [7, 8].map(|octet| SubscriberKey { ipv6: [octet; 16], ..SubscriberKey::default() });
        let [first, second] = keys.map(|key| Subscriber { key, outside_ipv4: [192, 0, 2, 1] });
        let (id, _) = tables.admit(&first, OLD).unwrap();
        assert!(tables.grant_block(id, 0, 0, 1, 0, OLD));
        let program = spawn(&tables, move |tables| {
            Program(tables).bind_in_block(&first.key, &of_subscriber(1), |block| candidate(block.into()), NOW)
        });
        // The sweep; then record and block are the next one's.
        let is_gone = tables.dismiss(id, &first, OLD, NOW);
        if is_gone {
            let (next, _) = tables.admit(&second, NOW).unwrap();
            assert!(tables.grant_block(next, 0, 0, 1, 0, NOW));
        }
        let made = program.join().unwrap();
        assert!(!is_gone || made.is_none());
        assert_sound(&tables);
    }
}

model! {
    a_program_finds_a_binding_whole_while_its_number_is_given_on, 2, || {
        let tables = world(1, 2);
        let id = bind(&tables, 1, &[0], OLD).unwrap();
        let (old, _) = tables.bindings.read(id).unwrap();
        let engine = spawn(&tables, move |tables| {
            assert!(tables.unbind(id, &old, OLD, NOW));
            assert!(bind(tables, 2, &[0], NOW).is_some());
        });
        for found in [Program(&tables).find_inside(&inside(2)), Program(&tables).find_outside(0)] {
            found.iter().for_each(|(_, binding)| assert_whole(binding));
        }
        engine.join().unwrap();
        assert_sound(&tables);
    }
}

model! {
    no_shortcut_leads_to_a_binding_that_has_gone_before_its_time, 1, || {
        const EARLIER: Tick = Tick(NOW.0 - 40);
        let keeper = Keeper::Outside { alone_after: 300, ahead: LEAD, budget: 1 };
        let tables = world(1, 1);
        let shortcut = Arc::new(Shortcut::default());
        let id = bind(&tables, 1, &[0], EARLIER).unwrap();
        let binding = of_outside(&tables);
        Program(&tables).leave_shortcut(&shortcut, id, &binding, keeper, EARLIER);
        assert!(Program(&tables).may_take_shortcut(&shortcut, EARLIER));
        let place = Arc::clone(&shortcut);
        let program = spawn(&tables, move |tables| {
            if let Some((id, binding)) = Program(tables).find_outside(0) {
                Program(tables).leave_shortcut(&place, id, &binding, keeper, NOW);
            }
        });
        let mut removal = Removal::new(&tables);
        assert!(removal.unbind_if(id, |_| true, NOW).is_some());
        drop(removal);
        program.join().unwrap();
        assert!(!Program(&tables).may_take_shortcut(&shortcut, NOW));
        assert_sound(&tables);
    }
}

model! {
    the_address_of_a_shortcut_is_not_written_for_a_subscriber_that_has_gone, 1, || {
        let tables = tables(1, 1);
        let key = SubscriberKey { ipv6: [7; 16], ..SubscriberKey::default() };
        let subscriber = Subscriber { key, outside_ipv4: [192, 0, 2, 1] };
        tables.admit(&subscriber, OLD).unwrap();
        let id = bind(&tables, 1, &[0], OLD).unwrap();
        let shortcut = Arc::new(Shortcut::default());
        let place = Arc::clone(&shortcut);
        let program = spawn(&tables, move |tables| {
            let keeper = Keeper::Outside { alone_after: 300, ahead: LEAD, budget: 1 };
            if let Some((id, binding)) = Program(tables).find_outside(0) {
                Program(tables).leave_shortcut(&place, id, &binding, keeper, NOW);
            }
        });
        let mut removal = Removal::new(&tables);
        assert!(removal.unbind_if(id, |_| true, NOW).is_some());
        removal.finish();
        // The sweep; then the number may be another's.
        let (subscriber_id, _) = tables.find_subscriber(&key).unwrap();
        let is_gone = tables.dismiss(subscriber_id, &subscriber, OLD, NOW);
        program.join().unwrap();
        assert!(!is_gone || shortcut.host() == 0);
        assert_sound(&tables);
    }
}

model! {
    the_engine_finds_a_binding_whole_while_a_program_takes_its_number, 1, || {
        let tables = world(1, 1);
        let id = bind(&tables, 1, &[0], OLD).unwrap();
        let (old, _) = tables.bindings.read(id).unwrap();
        let program = spawn(&tables, |tables| bind_in_kernel(tables, 2, &[0]));
        assert!(tables.unbind(id, &old, OLD, NOW));
        for found in [tables.find_inside(&inside(2)), tables.find_outside(0)] {
            found.iter().for_each(|(_, binding)| assert_whole(binding));
        }
        let _ = program.join().unwrap();
        assert_sound(&tables);
    }
}

model! {
    engine_and_kernel_make_one_session, 1, || {
        let tables = world(1, 1);
        let id = bind(&tables, 1, &[0], NOW).unwrap();
        let program = spawn(&tables, move |tables| Program(tables).open(&session(id, 1), OPEN, &BRIEF, NOW));
        let mine = tables.sessions.insert(&session(id, 1), OPEN, 0, &BRIEF, NOW);
        let theirs = program.join().unwrap();
        assert!(!(theirs && matches!(mine, Inserted::New(_))));
        assert!(tables.sessions.find(&session(id, 1)).is_some());
        assert_sound(&tables);
    }
}

model! {
    what_has_expired_is_reused_by_engine_and_kernel_and_nothing_live_is_pushed_out, 1, || {
        let tables = world(1, 1);
        let id = bind(&tables, 1, &[0], NOW).unwrap();
        for remote in [1, 2] {
            let made = tables.sessions.insert(&session(id, remote), OPEN, 0, &BRIEF, OLD);
            assert!(matches!(made, Inserted::New(_)));
        }
        let program = spawn(&tables, move |tables| Program(tables).open(&session(id, 3), OPEN, &BRIEF, NOW));
        assert!(matches!(tables.sessions.insert(&session(id, 4), OPEN, 0, &BRIEF, NOW), Inserted::New(_)));
        assert_eq!(program.join().unwrap(), tables.sessions.find(&session(id, 3)).is_some());
        assert!(tables.sessions.find(&session(id, 4)).is_some());
        assert_sound(&tables);
    }
}

/// A TCP binding of the subscriber.
fn bind_tcp(tables: &Tables) -> (BindingId, Binding) {
    let template = of_subscriber(1);
    let template = Binding { inside: InsideKey { protocol: 6, ..template.inside }, ..template };
    tables.bind(&template, candidates(&[0]), 0, NOW).unwrap()
}

model! {
    engine_and_kernel_make_one_session_that_is_the_first, 2, || {
        let tables = world(1, 1);
        let (id, binding) = bind_tcp(&tables);
        let program =
            spawn(&tables, move |tables| Program(tables).open_tcp(&session(id, 1), &binding, OPEN, &BRIEF, NOW));
        let inside = Opener::Inside { limit: None };
        let mine = tables.open(&session(id, 1), &binding, OPEN, inside, &BRIEF, NOW).is_ok();
        assert!(program.join().unwrap() != mine);
        assert_eq!(tables.each_session().count(), 1);
        assert!(tables.find_session(&session(id, 1)).is_some());
        assert_sound(&tables);
    }
}

model! {
    of_three_sessions_at_once_one_is_the_first_and_each_is_there_once, 1, || {
        let tables = world(1, 1);
        let (id, binding) = bind_tcp(&tables);
        let program =
            spawn(&tables, move |tables| Program(tables).open_tcp(&session(id, 1), &binding, OPEN, &BRIEF, NOW));
        let inside = Opener::Inside { limit: None };
        let others = [1, 2].map(|remote| tables.open(&session(id, remote), &binding, OPEN, inside, &BRIEF, NOW).is_ok());
        let theirs = program.join().unwrap();
        assert!(others[1] && theirs != others[0]);
        assert_eq!(tables.each_session().count(), 2);
        assert_sound(&tables);
    }
}

model! {
    a_program_that_comes_late_leaves_no_session_on_the_next_binding, 1, || {
        let tables = world(1, 2);
        let (id, binding) = bind_tcp(&tables);
        let program =
            spawn(&tables, move |tables| Program(tables).open_tcp(&session(id, 1), &binding, OPEN, &BRIEF, NOW));
        // Removed by an operator within the tick in which it was used.
        let removed = tables.unbind(id, &binding, NOW, NOW);
        let next = bind(&tables, 2, &[1], NOW);
        let theirs = program.join().unwrap();
        assert!(removed || theirs);
        let left: Vec<_> = tables.each_session().collect();
        assert!(next.is_none() || left.is_empty(), "{removed} {theirs} {next:?} {left:?}");
        assert_sound(&tables);
    }
}

model! {
    what_a_program_keeps_the_engine_does_not_remove, 2, || {
        let tables = world(1, 2);
        let id = bind(&tables, 1, &[0], OLD).unwrap();
        let (old, seen) = tables.bindings.read(id).unwrap();
        let program = spawn(&tables, move |tables| {
            let (found, binding) = Program(tables).find_inside(&inside(1))?;
            Some(Program(tables).keep(found, &binding, Keeper::Inside, NOW))
        });
        let removed = tables.unbind(id, &old, seen, NOW);
        let kept = program.join().unwrap() == Some(true);
        assert_ne!(removed, kept);
        if kept {
            assert_eq!((tables.bindings.seen(id), tables.bindings.read(id)), (NOW, Some((old, NOW))));
        }
        assert_sound(&tables);
    }
}

/// Packets that a program has been through: odd while it is at one.
#[derive(Default)]
struct Packets(AtomicU64);

impl Packets {
    fn process(&self, packet: impl FnOnce()) {
        self.0.fetch_add(1, Ordering::SeqCst);
        packet();
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Longer than any packet takes: whichever is under way is done then.
    fn pause(&self) {
        let now = self.0.fetch_add(0, Ordering::SeqCst);
        while now % 2 == 1 && self.0.fetch_add(0, Ordering::SeqCst) == now {
            loom::thread::yield_now();
        }
    }
}

model! {
    repair_takes_nothing_from_a_program_beside_it, 1, || {
        let tables = world(2, 2);
        // Left by a process that died: a record, a slot and a session.
        let dead = tables.bindings.claim(0).unwrap();
        assert!(tables.outside.claim(0, dead, NOW, 0));
        let packets = Arc::new(Packets::default());
        let program = {
            let packets = Arc::clone(&packets);
            spawn(&tables, move |tables| {
                let mut made = None;
                packets.process(|| made = bind_in_kernel(tables, 1, &[1]));
                made
            })
        };
        assert!(audit::repair_beside(&tables, NOW, &mut || packets.pause()) > 0);
        let id = program.join().unwrap().expect("there is room for it");
        assert_eq!(tables.find_inside(&inside(1)).map(|(found, _)| found), Some(id));
        assert_sound(&tables);
    }
}

model! {
    repair_takes_no_session_from_a_program_beside_it, 1, || {
        let tables = world(1, 1);
        let id = bind(&tables, 1, &[0], NOW).unwrap();
        let packets = Arc::new(Packets::default());
        let program = {
            let packets = Arc::clone(&packets);
            spawn(&tables, move |tables| {
                let mut made = [false; 2];
                for (made, remote) in made.iter_mut().zip([1, 2]) {
                    packets.process(|| *made = Program(tables).open(&session(id, remote), OPEN, &BRIEF, NOW));
                }
                made
            })
        };
        audit::repair_beside(&tables, NOW, &mut || packets.pause());
        let made = program.join().unwrap();
        assert!(made[0] && made[1], "giving up is allowed, but nothing is in the way here");
        assert!([1, 2].iter().all(|&remote| tables.sessions.find(&session(id, remote)).is_some()));
        assert_sound(&tables);
    }
}

//! Sessions: several that are made at once, in entries that are free or have expired, beside the
//! sweep.

use std::sync::Arc;

use loom::thread::JoinHandle;
use tombolo_tables::binding::BindingId;
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_tables::session::{Inserted, Lifetimes, SessionKey, Sessions, State, Sweep};
use tombolo_tables::tick::Tick;

use crate::{FOREVER, NOW, OPEN, model};

/// What was last seen at tick 1 has expired.
const BRIEF: Lifetimes = Lifetimes([10; 16]);
const OLD: Tick = Tick(1);
const CLOSING: State = State(2);

/// One line of two, and one of two in the overflow: every session meets every other.
fn sessions() -> Arc<Sessions> {
    Arc::new(Sessions::new(&mut Heap, 1, HashKey::new([101, 202, 303, 404])).unwrap())
}

/// Of one binding and one remote port: nothing but the address tells these apart.
fn key(remote: u8) -> SessionKey {
    SessionKey { binding: BindingId::new(1).unwrap(), remote_ipv4: [203, 0, 113, remote], remote_port: [1, 187] }
}

fn is_new(sessions: &Sessions, remote: u8, now: Tick) -> bool {
    match sessions.insert(&key(remote), OPEN, 0, &BRIEF, now) {
        Inserted::New(_) => true,
        Inserted::Existing(_) => false,
        Inserted::Full => panic!("there is room"),
    }
}

fn insert_elsewhere(sessions: &Arc<Sessions>, remote: u8) -> JoinHandle<bool> {
    let sessions = Arc::clone(sessions);
    loom::thread::spawn(move || is_new(&sessions, remote, NOW))
}

/// How often each remote is there; none is half-made, and the overflow is counted.
fn counts(sessions: &Sessions) -> [usize; 4] {
    let mut counts = [0; 4];
    let mut overflowed = 0;
    for line in 0..sessions.lines() {
        for (session, pending) in sessions.read_line(line) {
            assert!(!pending && sessions.is_home(&session.key, line), "{session:?}");
            assert!(sessions.find(&session.key).is_some(), "{session:?} is not found");
            counts[usize::from(session.key.remote_ipv4[3])] += 1;
            overflowed += u64::from(line >= sessions.main_lines());
        }
    }
    assert_eq!(sessions.overflowed(), overflowed);
    counts
}

model! {
    of_two_writers_of_a_session_exactly_one_makes_it, 2, || {
        let sessions = sessions();
        let other = insert_elsewhere(&sessions, 1);
        let mine = is_new(&sessions, 1, NOW);
        assert_ne!(mine, other.join().unwrap());
        assert_eq!(counts(&sessions), [0, 1, 0, 0]);
    }
}

model! {
    of_three_writers_of_a_session_exactly_one_makes_it, 1, || {
        let sessions = sessions();
        let others = [insert_elsewhere(&sessions, 1), insert_elsewhere(&sessions, 1)];
        let mine = is_new(&sessions, 1, NOW);
        let made = others.map(|other| other.join().unwrap());
        assert_eq!(usize::from(mine) + made.iter().filter(|made| **made).count(), 1);
        assert_eq!(counts(&sessions), [0, 1, 0, 0]);
    }
}

model! {
    what_has_expired_is_reused_and_nothing_live_is_pushed_out, 2, || {
        let sessions = sessions();
        assert!(is_new(&sessions, 0, OLD) && is_new(&sessions, 1, OLD));
        let other = insert_elsewhere(&sessions, 2);
        assert!(is_new(&sessions, 3, NOW));
        assert!(other.join().unwrap());
        let [.., second, third] = counts(&sessions);
        assert_eq!([second, third], [1, 1]);
    }
}

model! {
    of_two_writers_that_reuse_for_one_session_exactly_one_makes_it, 2, || {
        let sessions = sessions();
        assert!(is_new(&sessions, 0, OLD) && is_new(&sessions, 1, OLD));
        let other = insert_elsewhere(&sessions, 2);
        let mine = is_new(&sessions, 2, NOW);
        assert_ne!(mine, other.join().unwrap());
        assert_eq!(counts(&sessions)[2], 1);
    }
}

model! {
    a_session_that_revives_is_there_once, 2, || {
        let sessions = sessions();
        assert!(is_new(&sessions, 0, OLD) && is_new(&sessions, 1, OLD));
        let other = insert_elsewhere(&sessions, 2);
        // Refreshed while the other looks for an entry that has expired.
        let found = sessions.find(&key(0));
        found.iter().for_each(|session| session.refresh(NOW));
        if found.is_none() {
            let _ = is_new(&sessions, 0, NOW);
        }
        assert!(other.join().unwrap());
        let [zero, _, two, _] = counts(&sessions);
        assert!(zero <= 1 && two == 1);
    }
}

model! {
    the_sweep_removes_what_has_expired_and_nothing_else, 2, || {
        let sessions = sessions();
        assert!(is_new(&sessions, 0, OLD) && is_new(&sessions, 1, OLD));
        let sweeper = {
            let sessions = Arc::clone(&sessions);
            loom::thread::spawn(move || {
                sessions.sweep(0, sessions.lines(), |session| {
                    if session.seen == OLD { Sweep::Remove } else { Sweep::Keep }
                });
            })
        };
        assert!(is_new(&sessions, 2, NOW));
        sweeper.join().unwrap();
        assert_eq!(counts(&sessions), [0, 0, 1, 0]);
    }
}

model! {
    the_sweep_changes_what_it_looked_at_and_nothing_else, 2, || {
        let sessions = sessions();
        assert!(is_new(&sessions, 0, OLD) && is_new(&sessions, 1, OLD));
        let sweeper = {
            let sessions = Arc::clone(&sessions);
            loom::thread::spawn(move || {
                sessions.sweep(0, sessions.lines(), |session| {
                    if session.seen == OLD { Sweep::Change(CLOSING, Tick(5)) } else { Sweep::Keep }
                });
            })
        };
        assert!(is_new(&sessions, 2, NOW));
        sweeper.join().unwrap();
        let session = sessions.find(&key(2)).expect("it is live");
        assert_eq!((session.state(), session.seen()), (Some(OPEN), NOW));
    }
}

model! {
    a_session_that_is_found_is_whole, 2, || {
        let sessions = sessions();
        assert!(is_new(&sessions, 0, OLD) && is_new(&sessions, 1, OLD));
        let other = insert_elsewhere(&sessions, 2);
        if let Some(session) = sessions.find(&key(2)) {
            // What is seen to be old would be taken for dead.
            assert_eq!((session.state(), session.seen()), (Some(OPEN), NOW));
        }
        assert!(other.join().unwrap());
        assert_eq!(counts(&sessions)[2], 1);
    }
}

model! {
    a_session_changes_its_state_once, 2, || {
        let sessions = sessions();
        assert!(is_new(&sessions, 0, NOW));
        let other = {
            let sessions = Arc::clone(&sessions);
            loom::thread::spawn(move || sessions.find(&key(0)).unwrap().transition(OPEN, CLOSING))
        };
        let mine = sessions.find(&key(0)).unwrap().transition(OPEN, CLOSING);
        assert_ne!(mine, other.join().unwrap());
        assert_eq!(sessions.find(&key(0)).unwrap().state(), Some(CLOSING));
    }
}

model! {
    of_two_writers_of_a_session_in_the_overflow_exactly_one_makes_it, 2, || {
        let sessions = sessions();
        assert!(is_new(&sessions, 0, NOW) && is_new(&sessions, 1, NOW));
        let other = insert_elsewhere(&sessions, 2);
        let mine = is_new(&sessions, 2, NOW);
        assert!(sessions.find(&key(2)).is_some());
        assert_ne!(mine, other.join().unwrap());
        assert_eq!(counts(&sessions), [1, 1, 1, 0]);
    }
}

model! {
    a_session_that_goes_to_the_overflow_is_found_when_it_is_known_of, 2, || {
        let sessions = sessions();
        assert!(is_new(&sessions, 0, NOW));
        let others = [insert_elsewhere(&sessions, 1), insert_elsewhere(&sessions, 2)];
        others.into_iter().for_each(|other| assert!(other.join().unwrap()));
        assert_eq!(counts(&sessions), [1, 1, 1, 0]);
    }
}

model! {
    a_place_that_becomes_free_is_not_taken_for_a_second_entry, 2, || {
        // Writers that see different lines: one goes to the overflow, the other to the place that
        // the sweep frees meanwhile.
        let sessions = sessions();
        assert!(is_new(&sessions, 0, NOW));
        assert!(matches!(sessions.insert(&key(1), OPEN, 0, &FOREVER, NOW), Inserted::New(_)));
        let other = insert_elsewhere(&sessions, 2);
        sessions.sweep(0, sessions.lines(), |s| if s.key == key(0) { Sweep::Remove } else { Sweep::Keep });
        let mine = is_new(&sessions, 2, NOW);
        assert_ne!(mine, other.join().unwrap());
        assert_eq!(counts(&sessions), [0, 1, 1, 0]);
    }
}

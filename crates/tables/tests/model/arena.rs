//! Records that are claimed, made live, touched, retired and freed.

use std::num::NonZeroU32;
use std::sync::Arc;

use tombolo_tables::arena::{Arena, Stored, WORDS};
use tombolo_tables::memory::Heap;
use tombolo_tables::tick::Tick;

use crate::model;

#[derive(Debug, PartialEq)]
struct Twice(u64);

impl Stored for Twice {
    type Id = NonZeroU32;
    const NAMES: [&'static str; 2] = ["test", "test-used"];

    fn to_words(&self) -> [u64; WORDS] {
        [self.0, 0, 0, 0, 0, 0, 0, self.0]
    }

    fn from_words(words: [u64; WORDS]) -> Self {
        // Zero for half of one record and half of another, which no test stores.
        Self(if words[0] == words[7] { words[0] } else { 0 })
    }
}

fn arena(capacity: u32) -> Arc<Arena<Twice>> {
    Arc::new(Arena::new(&mut Heap, capacity).unwrap())
}

fn make(arena: &Arena<Twice>, value: u64, now: u32) -> Option<NonZeroU32> {
    let id = arena.claim(0)?;
    arena.publish(id, &Twice(value), Tick(now));
    arena.settle(id);
    Some(id)
}

fn remove(arena: &Arena<Twice>, id: NonZeroU32, seen: u32) -> bool {
    let retired = arena.retire(id, &Twice(1), Tick(seen));
    if retired {
        arena.free(id);
    }
    retired
}

model! {
    a_reader_sees_one_record_whole_while_another_takes_its_place, 2, || {
        let arena = arena(1);
        let id = make(&arena, 1, 10).unwrap();
        let writer = {
            let arena = Arc::clone(&arena);
            loom::thread::spawn(move || {
                assert!(remove(&arena, id, 10));
                assert_eq!(make(&arena, 2, 11), Some(id));
            })
        };
        match arena.read(id) {
            Some((Twice(1), seen)) => assert_eq!(seen, Tick(10)),
            Some((Twice(2), seen)) => assert_eq!(seen, Tick(11)),
            None => {}
            other => panic!("{other:?}"),
        }
        writer.join().unwrap();
        assert_eq!(arena.read(id), Some((Twice(2), Tick(11))));
    }
}

model! {
    a_record_that_another_freed_is_claimed_as_a_new_one, 2, || {
        let arena = arena(1);
        let id = make(&arena, 1, 10).unwrap();
        let remover = {
            let arena = Arc::clone(&arena);
            loom::thread::spawn(move || assert!(remove(&arena, id, 10)))
        };
        let maker = {
            let arena = Arc::clone(&arena);
            loom::thread::spawn(move || make(&arena, 2, 11).is_some())
        };
        let read = arena.read(id);
        assert!(read.is_none_or(|(Twice(value), Tick(seen))| (value, seen) == (1, 10) || (value, seen) == (2, 11)));
        remover.join().unwrap();
        let made = maker.join().unwrap();
        assert_eq!(arena.read(id), made.then_some((Twice(2), Tick(11))));
        assert_eq!(arena.count(), u32::from(made));
    }
}

model! {
    two_writers_never_claim_one_record, 2, || {
        let arena = arena(2);
        let other = {
            let arena = Arc::clone(&arena);
            loom::thread::spawn(move || make(&arena, 1, 10).unwrap())
        };
        let mine = make(&arena, 2, 10).unwrap();
        let other = other.join().unwrap();
        assert_ne!(mine, other);
        assert_eq!(arena.read(mine), Some((Twice(2), Tick(10))));
        assert_eq!(arena.read(other), Some((Twice(1), Tick(10))));
    }
}

model! {
    a_record_is_touched_or_retired_and_never_both, 2, || {
        let arena = arena(1);
        let id = make(&arena, 1, 10).unwrap();
        let toucher = {
            let arena = Arc::clone(&arena);
            loom::thread::spawn(move || arena.touch(id, Tick(20)))
        };
        let retired = arena.retire(id, &Twice(1), Tick(10));
        assert_ne!(toucher.join().unwrap(), retired);
    }
}

model! {
    a_record_that_is_touched_while_it_is_made_becomes_live_all_the_same, 2, || {
        let arena = arena(1);
        let id = arena.claim(0).unwrap();
        arena.publish(id, &Twice(1), Tick(10));
        let touchers = [20, 21].map(|now| {
            let arena = Arc::clone(&arena);
            loom::thread::spawn(move || assert!(arena.touch(id, Tick(now))))
        });
        arena.settle(id);
        touchers.into_iter().for_each(|toucher| toucher.join().unwrap());
        assert_eq!(arena.read(id), Some((Twice(1), Tick(21))));
        assert!(arena.retire(id, &Twice(1), Tick(21)));
    }
}

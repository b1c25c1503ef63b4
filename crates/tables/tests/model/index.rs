//! Writers of one key, each of which may put it into another bucket.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tombolo_tables::atomic::{Outcome, die_after};
use tombolo_tables::hash::{Hash, HashKey};
use tombolo_tables::index::{Index, Inserted};
use tombolo_tables::memory::Heap;

use crate::model;

/// An index, and what its records hold: written before they are inserted, and read by whoever finds
/// them.
struct World {
    index: Index,
    keys: [AtomicU64; 4],
}

fn world() -> Arc<World> {
    let index = Index::new(&mut Heap, "index", 1).unwrap();
    Arc::new(World { index, keys: Default::default() })
}

/// Of a secret under which key 5 has two buckets: it may go into either.
fn hash(key: u64) -> Hash {
    HashKey::new([0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, SECRET]).hash([key, 0, 0])
}

const SECRET: u64 = 0x27d4_eb2f_1656_67c5;

#[test]
fn the_key_of_the_models_has_two_buckets() {
    let [first, second] = hash(5).buckets(2);
    assert_ne!(first, second);
}

impl World {
    fn insert(&self, id: u32, key: u64) -> Inserted {
        self.keys[id as usize].store(key, Relaxed);
        self.index.insert(hash(key), id, |other| self.has(other, key))
    }

    fn has(&self, id: u32, key: u64) -> bool {
        let found = self.keys[id as usize].load(Relaxed);
        assert_ne!(found, 0, "found before it was complete");
        found == key
    }

    fn find(&self, key: u64) -> Option<u32> {
        self.index.find(hash(key), |id| self.has(id, key))
    }

    /// Live entries, and pending ones.
    fn entries(&self) -> (usize, usize) {
        let mut count = (0, 0);
        self.index.for_each(|entry| if entry.pending { count.1 += 1 } else { count.0 += 1 });
        count
    }
}

fn insert_elsewhere(world: &Arc<World>, id: u32, key: u64) -> loom::thread::JoinHandle<Inserted> {
    let world = Arc::clone(world);
    loom::thread::spawn(move || world.insert(id, key))
}

fn assert_one_won(world: &World, results: &[Inserted]) {
    let live = world.find(5).expect("the key is there");
    assert_eq!(world.entries(), (1, 0));
    for (n, result) in results.iter().enumerate() {
        let id = u32::try_from(n).unwrap() + 1;
        assert_eq!(*result, if id == live { Inserted::New } else { Inserted::Existing(live) });
    }
}

model! {
    of_two_writers_of_a_key_exactly_one_wins, 2, || {
        let world = world();
        let first = insert_elsewhere(&world, 1, 5);
        let second = world.insert(2, 5);
        assert_one_won(&world, &[first.join().unwrap(), second]);
    }
}

model! {
    of_three_writers_of_a_key_exactly_one_wins, 1, || {
        let world = world();
        let others = [insert_elsewhere(&world, 1, 5), insert_elsewhere(&world, 2, 5)];
        let mine = world.insert(3, 5);
        let [first, second] = others.map(|other| other.join().unwrap());
        assert_one_won(&world, &[first, second, mine]);
    }
}

model! {
    a_reader_finds_nothing_or_the_winner, 2, || {
        let world = world();
        let others = [insert_elsewhere(&world, 1, 5), insert_elsewhere(&world, 2, 5)];
        let found = world.find(5);
        let [first, second] = others.map(|other| other.join().unwrap());
        assert_one_won(&world, &[first, second]);
        assert!(found.is_none_or(|id| world.find(5) == Some(id)));
    }
}

model! {
    a_key_that_is_removed_is_there_or_inserted_anew, 2, || {
        let world = world();
        assert_eq!(world.insert(1, 5), Inserted::New);
        let remover = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || assert!(world.index.remove(hash(5), 1)))
        };
        let inserted = world.insert(2, 5);
        remover.join().unwrap();
        assert_eq!(world.find(5), (inserted == Inserted::New).then_some(2));
        assert!(matches!(inserted, Inserted::New | Inserted::Existing(1)));
    }
}

/// Wherever a writer dies, the other has its key, and one entry of it is live at most.
#[test]
fn a_writer_that_dies_is_overruled() {
    let mut model = crate::Model::new("a_writer_that_dies_is_overruled", 2);
    for steps in 0.. {
        let died = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let noted = Arc::clone(&died);
        model.explore(move || {
            let world = world();
            let dying = {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || die_after(steps, || world.insert(1, 5)))
            };
            let mine = world.insert(2, 5);
            let other = dying.join().unwrap();
            if other == Outcome::Died {
                noted.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            match mine {
                Inserted::New => assert_eq!(world.find(5), Some(2)),
                Inserted::Existing(1) => assert_eq!(world.find(5), Some(1)),
                other => panic!("{other:?}"),
            }
            assert_eq!(world.entries().0, 1);
        });
        if !died.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
    }
}

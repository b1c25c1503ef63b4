//! What an adversary could send who knows everything but the secret: keys chosen so that they
//! collide.

#![expect(clippy::unwrap_used, reason = "a test may")]

use tombolo_tables::hash::HashKey;
use tombolo_tables::index::{Index, Inserted};
use tombolo_tables::memory::Heap;

/// Words of a key.
type Words = [u64; 3];

/// A deterministic source of numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn key(&mut self) -> HashKey {
        HashKey::new([self.draw(), self.draw(), self.draw(), self.draw()])
    }

    fn words(&mut self) -> Words {
        [self.draw(), self.draw(), self.draw()]
    }
}

/// Differences in one word: each bit, each with the same bit of the other half, all bits from one
/// up, and all up to one.
fn differences() -> Vec<u64> {
    let single = (0..64).map(|bit| 1_u64 << bit);
    let in_both_halves = (0..32).map(|bit| 1_u64 << bit | 1 << (bit + 32));
    let from = (0..64).map(|bit| u64::MAX << bit);
    let up_to = (1..64).map(|bit| u64::MAX >> bit);
    single.chain(in_both_halves).chain(from).chain(up_to).collect()
}

/// Every difference in one word, and every two in two words.
fn classes() -> Vec<Words> {
    let mut classes = Vec::new();
    let differences = differences();
    for &difference in &differences {
        classes.extend([[difference, 0, 0], [0, difference, 0], [0, 0, difference]]);
        for &other in &differences {
            classes.extend([[difference, other, 0], [difference, 0, other], [0, difference, other]]);
        }
    }
    classes
}

/// Whether two keys that differ by `class` have the same hash under `key`.
fn collides(key: HashKey, words: Words, class: Words) -> bool {
    key.hash(words) == key.hash(std::array::from_fn(|n| words[n] ^ class[n]))
}

#[test]
fn no_difference_collides_under_every_key() {
    let mut numbers = Numbers(1);
    // A class that collides under any one key of a few is looked at under thousands.
    let few: Vec<_> = (0..8).map(|_| (numbers.key(), numbers.words())).collect();
    let suspects = classes().into_iter().filter(|&class| few.iter().any(|&(key, words)| collides(key, words, class)));
    let mut worst = (0, [0; 3]);
    for class in suspects {
        let collisions = (0..4096).filter(|_| collides(numbers.key(), numbers.words(), class)).count();
        worst = worst.max((collisions, class));
    }
    let (collisions, class) = worst;
    assert_eq!(collisions, 0, "of 4096 keys, for keys of the tables that differ by {class:016x?}");
}

#[test]
fn no_difference_in_one_word_collides_under_thousands_of_keys() {
    let mut numbers = Numbers(2);
    for difference in differences() {
        for place in 0..3 {
            let mut class = [0; 3];
            class[place] = difference;
            for _ in 0..2048 {
                assert!(!collides(numbers.key(), numbers.words(), class), "{class:016x?}");
            }
        }
    }
}

/// Two keys in the same two of 1024 buckets: one pair in half a million by chance, whichever their
/// difference.
#[test]
fn no_difference_leads_to_the_same_buckets_more_often_than_chance() {
    const BUCKETS: u32 = 1024;
    const KEYS: usize = 2048;
    let mut numbers = Numbers(3);
    for class in classes().into_iter().step_by(19) {
        let mut same = 0;
        for _ in 0..KEYS {
            let (key, words) = (numbers.key(), numbers.words());
            let other = std::array::from_fn(|n| words[n] ^ class[n]);
            same += usize::from(key.hash(words).buckets(BUCKETS) == key.hash(other).buckets(BUCKETS));
        }
        assert!(same <= 3, "{same} of {KEYS} keys, for keys of the tables that differ by {class:016x?}");
    }
}

/// The ids of the chosen keys are their places; the victim's comes last.
fn is_refused(index: &Index, key: HashKey, chosen: &[Words], victim: Words) -> bool {
    for (id, &words) in (1..).zip(chosen) {
        let _ = index.insert(key.hash(words), id, |other| chosen.get(other as usize - 1) == Some(&words));
    }
    let id = u32::try_from(chosen.len() + 1).unwrap();
    index.insert(key.hash(victim), id, |other| other == id) == Inserted::Full
}

/// Multiplied modulo 2^64, differences in the five top bits of two words leave 32 hashes to 1024
/// keys, whichever the secret: 32 keys for the 16 places of a victim's two buckets.
#[test]
fn chosen_sources_do_not_lock_a_host_out_of_a_table_that_is_nearly_empty() {
    const ROOM: u32 = 128_000;
    let mut numbers = Numbers(4);
    for _ in 0..32 {
        let (key, victim) = (numbers.key(), numbers.words());
        for [one, other] in [[0, 1], [0, 2], [1, 2]] {
            let chosen: Vec<Words> = (1..1024_u64)
                .map(|n| {
                    let mut words = victim;
                    // In both halves, which an attacker who knows how words are folded would do.
                    words[one] ^= (n >> 5) << 59 | (n >> 5) << 27;
                    words[other] ^= (n & 31) << 59 | (n & 31) << 27;
                    words
                })
                .collect();
            let index = Index::new(&mut Heap, "index", ROOM).unwrap();
            assert!(!is_refused(&index, key, &chosen, victim), "by 1023 sources, at a load of 0.8 %");
        }
    }
}

/// Hosts of one prefix whose low half is a number, or a number in the top bits: what a subscriber
/// can choose.
#[test]
fn chosen_sources_fill_a_table_as_random_ones_do() {
    const ROOM: u32 = 20_000;
    let mut numbers = Numbers(5);
    let patterns: [fn(u64) -> Words; 6] = [
        |n| [7, n, 0],
        |n| [7, n << 32, 0],
        |n| [7, n.rotate_right(16), 0],
        |n| [n << 40, n << 40, 0],
        |n| [7, n.reverse_bits(), 9],
        |n| [0, 0, n << 17],
    ];
    for (number, pattern) in patterns.into_iter().enumerate() {
        for _ in 0..4 {
            let key = numbers.key();
            let index = Index::new(&mut Heap, "index", ROOM).unwrap();
            let refused = (1..=ROOM)
                .filter(|&id| {
                    let words = pattern(id.into());
                    index.insert(key.hash(words), id, |other| pattern(other.into()) == words) == Inserted::Full
                })
                .count();
            assert_eq!(refused, 0, "of pattern {number}, within the room that was promised");
        }
    }
}

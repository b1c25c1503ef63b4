//! Which frames arrived: one bit a frame, set by the receiver with an atomic or.
//!
//! In the map each sending core's frames, which are every `lanes`-th, have words of their own; in a
//! copy all are in order.

use crate::mapped::Mapped;

/// A read-only copy of the arrivals of one direction.
#[derive(Clone, Debug)]
pub struct Bitmap {
    words: Vec<u64>,
    frames: u32,
}

/// Consecutive frames that are all missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of the first missing frame.
    pub first: u32,
    /// How many are missing.
    pub length: u32,
}

/// Words of each of `lanes` sending cores, in whole cache lines.
pub(crate) fn lane_words(frames: u32, lanes: usize) -> usize {
    (frames as usize).div_ceil(lanes.max(1)).div_ceil(64).next_multiple_of(8)
}

/// Words of so many frames from at most `lanes` cores.
pub(crate) fn words_of(frames: u32, lanes: usize) -> usize {
    (frames as usize).div_ceil(64) + 9 * lanes.max(1)
}

impl Bitmap {
    pub(crate) fn copy(map: &Mapped<u64>, first_word: usize, frames: u32, lanes: usize, lane_words: usize) -> Bitmap {
        let lanes = lanes.max(1);
        if lanes == 1 {
            let words = (0..frames.div_ceil(64) as usize).map(|w| map.get(first_word + w)).collect();
            return Bitmap { words, frames };
        }
        let mut words = vec![0; frames.div_ceil(64) as usize];
        for number in 0..frames as usize {
            let (lane, index) = (number % lanes, number / lanes);
            let arrived = map.get(first_word + lane * lane_words + index / 64) >> (index % 64) & 1;
            words[number / 64] |= arrived << (number % 64);
        }
        Bitmap { words, frames }
    }

    /// So many frames, of which these are missing.
    pub fn without(frames: u32, missing: &[u32]) -> Bitmap {
        let mut words = vec![u64::MAX; frames.div_ceil(64) as usize];
        missing.iter().for_each(|number| words[(number / 64) as usize] &= !(1 << (number % 64)));
        Bitmap { words, frames }
    }

    /// Number of frames that it speaks of.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Whether the frame arrived.
    pub fn arrived(&self, number: u32) -> bool {
        self.words.get((number / 64) as usize).is_some_and(|w| w >> (number % 64) & 1 == 1)
    }

    /// The last frame that is missing.
    pub fn last_missing(&self) -> Option<u32> {
        (0..self.frames.div_ceil(64)).rev().find_map(|word| {
            let missing = !self.words[word as usize] & self.valid(word);
            (missing != 0).then(|| word * 64 + 63 - missing.leading_zeros())
        })
    }

    /// The longest run of missing frames, the first one of equals.
    pub fn longest_gap(&self) -> Option<Run> {
        self.gaps().fold(None, |best: Option<Run>, run| match best {
            Some(b) if b.length >= run.length => Some(b),
            _ => Some(run),
        })
    }

    /// All runs of missing frames in order.
    pub fn gaps(&self) -> impl Iterator<Item = Run> + '_ {
        let mut next = 0;
        std::iter::from_fn(move || {
            let first = self.find(next, false)?;
            let end = self.find(first, true).unwrap_or(self.frames);
            next = end;
            Some(Run { first, length: end - first })
        })
    }

    /// Frames that are missing outside of these ranges of numbers, which are in order.
    pub fn missing_outside(&self, excused: &[std::ops::Range<u32>]) -> u64 {
        let inside = |run: &Run, range: &std::ops::Range<u32>| {
            let (from, to) = (run.first.max(range.start), (run.first + run.length).min(range.end));
            u64::from(to.saturating_sub(from))
        };
        let mut ranges: Vec<std::ops::Range<u32>> = Vec::new();
        for range in excused {
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range.clone()),
            }
        }
        self.gaps().map(|run| u64::from(run.length) - ranges.iter().map(|range| inside(&run, range)).sum::<u64>()).sum()
    }

    fn valid(&self, word: u32) -> u64 {
        match self.frames - word * 64 {
            rest @ 0..64 => (1 << rest) - 1,
            _ => u64::MAX,
        }
    }

    fn find(&self, from: u32, arrived: bool) -> Option<u32> {
        let mut at = from;
        while at < self.frames {
            let word = at / 64;
            let bits = self.words[word as usize];
            let wanted = if arrived { bits } else { !bits } & self.valid(word) & u64::MAX << (at % 64);
            if wanted != 0 {
                return Some(word * 64 + wanted.trailing_zeros());
            }
            at = (word + 1).checked_mul(64)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_all_lanes_fit() {
        for frames in [0, 1, 63, 64, 65, 1000, 1_000_000, 1_000_001] {
            for lanes in 1..=16 {
                assert!(lane_words(frames, lanes) * lanes <= words_of(frames, lanes), "{frames} frames, {lanes} lanes");
                assert!(lane_words(frames, lanes) * 64 * lanes >= frames as usize, "{frames} frames, {lanes} lanes");
            }
        }
    }

    #[test]
    fn gaps_are_found_across_words_and_at_both_ends() {
        let map = Bitmap::without(200, &[0, 62, 63, 64, 65, 130, 199]);
        let runs: Vec<(u32, u32)> = map.gaps().map(|r| (r.first, r.length)).collect();
        assert_eq!(runs, [(0, 1), (62, 4), (130, 1), (199, 1)]);
        assert_eq!(map.longest_gap(), Some(Run { first: 62, length: 4 }));
        assert_eq!(map.last_missing(), Some(199));
    }

    #[test]
    fn only_what_is_missing_outside_of_the_excused_ranges_counts() {
        let map = Bitmap::without(1000, &[5, 100, 101, 102, 103, 500, 999]);
        assert_eq!(map.missing_outside(&[]), 7);
        assert_eq!(map.missing_outside(&[101..103, 900..2000]), 4);
        assert_eq!(map.missing_outside(&[0..60, 50..510, 999..1000]), 0, "overlapping ranges count once");
    }

    #[test]
    fn a_full_map_has_no_gap_and_an_empty_one_is_one_gap() {
        assert_eq!(Bitmap::without(128, &[]).longest_gap(), None);
        assert_eq!(Bitmap::without(128, &[]).last_missing(), None);
        let empty = Bitmap { words: vec![0; 3], frames: 130 };
        assert_eq!(empty.longest_gap(), Some(Run { first: 0, length: 130 }));
    }
}

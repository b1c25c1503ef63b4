//! A bit for each record of a kind, of one thread alone.

/// Numbers, of which each is in it or not.
#[derive(Debug, Clone)]
pub(super) struct Bits {
    words: Vec<u64>,
    count: usize,
}

impl Bits {
    /// Of numbers up to `last`.
    pub(super) fn new(last: u32) -> Self {
        Self { words: vec![0; last as usize / 64 + 1], count: 0 }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.words.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    pub(super) fn set(&mut self, number: u32, is_in: bool) {
        let Some(word) = self.words.get_mut(number as usize / 64) else { return };
        let bit = 1 << (number % 64);
        match (*word & bit != 0, is_in) {
            (false, true) => self.count += 1,
            (true, false) => self.count -= 1,
            _ => {}
        }
        *word = if is_in { *word | bit } else { *word & !bit };
    }

    /// None is left.
    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// The first number from `from` on that is in it.
    pub(super) fn next(&self, from: u32) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let first = from as usize / 64;
        let behind = |at: usize| if at == first { u64::MAX << (from % 64) } else { u64::MAX };
        let words = self.words.iter().enumerate().skip(first);
        let (at, word) = words.map(|(at, word)| (at, word & behind(at))).find(|(_, word)| *word != 0)?;
        Some(u32::try_from(at * 64).ok()? + word.trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_order() {
        let mut bits = Bits::new(1000);
        for number in [1, 63, 64, 700, 1000, 700] {
            bits.set(number, true);
        }
        bits.set(5000, true);
        bits.set(2, false);
        assert_eq!((bits.count(), bits.has(64), bits.has(65), bits.has(5000)), (5, true, false, false));
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(number) = bits.next(from) {
            found.push(number);
            from = number + 1;
        }
        assert_eq!(found, [1, 63, 64, 700, 1000]);
        bits.set(700, false);
        assert_eq!((bits.next(65), bits.count()), (Some(1000), 4));
        bits.clear();
        assert_eq!((bits.next(0), bits.count()), (None, 0));
    }
}

//! Keyed hashing of the tables' keys, cheap enough for a BPF program: multiply, add, shift.
//!
//! ```text
//! word     63      32  31       0
//!          |   high   |   low   |        product = (low + key low mod 2^32) * (high + key high mod 2^32)
//! hash     mix(product of word 0 + product of word 1 + product of word 2 + offset)
//! ```
//!
//! The sum is NH, the inner hash of UMAC (RFC 4418 section 5.2; Black et al., "UMAC: Fast and
//! Secure Message Authentication", CRYPTO 1999, theorem 4.2): whatever two keys are chosen and
//! whatever number is wished for, the chance over the secret that their sums differ by that number
//! is at most 2^-32. Every word goes into a widening multiplication in which both factors are
//! secret, so there is no difference, in one word or in several, that collides under every secret.
//! Multiplying words by secret odd numbers modulo 2^64 has such: the top bits of two words.
//!
//! What follows is known to all, but it is a bijection of a sum that nobody knows: it makes no
//! collision of whole hashes, and spreads sums that are near to each other over all buckets.

/// The secret of one set of tables; lives beside them, since entries are found by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashKey {
    words: [u64; 3],
    offset: u64,
}

impl HashKey {
    /// A key from 32 random bytes' worth of words. Each word is mixed, so that even a seed of a few
    /// small numbers, as tests have, makes a key that hashes well.
    #[must_use]
    pub const fn new(seed: [u64; 4]) -> Self {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let [a, b, c, d] = seed;
        Self {
            words: [mix(a ^ GOLDEN), mix(b ^ GOLDEN.wrapping_mul(2)), mix(c ^ GOLDEN.wrapping_mul(3))],
            offset: mix(d ^ GOLDEN.wrapping_mul(4)),
        }
    }

    /// What the low and the high half of each word are added to, in turn.
    #[must_use]
    pub const fn halves(self) -> [u32; 6] {
        let [a, b, c] = self.words;
        [low(a), high(a), low(b), high(b), low(c), high(c)]
    }

    /// What the sum of the products is added to.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Hashes three words.
    #[inline]
    #[must_use]
    pub const fn hash(self, words: [u64; 3]) -> Hash {
        let [a, b, c] = words;
        let [ka, kb, kc] = self.words;
        let sum = product(a, ka).wrapping_add(product(b, kb)).wrapping_add(product(c, kc));
        Hash(mix(sum.wrapping_add(self.offset)))
    }
}

#[inline]
const fn product(word: u64, key: u64) -> u64 {
    low(word).wrapping_add(low(key)) as u64 * high(word).wrapping_add(high(key)) as u64
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the half is taken on purpose")]
const fn low(word: u64) -> u32 {
    word as u32
}

#[inline]
const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// A hash; all of its bits are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash(pub u64);

#[expect(clippy::cast_possible_truncation, reason = "halves of a hash are taken on purpose")]
impl Hash {
    /// The two candidate buckets of `count` (not a power of two in general: `half * count / 2^32`).
    #[inline]
    #[must_use]
    pub const fn buckets(self, count: u32) -> [u32; 2] {
        [spread(self.0 as u32, count), spread((self.0 >> 32) as u32, count)]
    }

    /// A tag that is never zero and does not repeat what chose the buckets.
    #[inline]
    #[must_use]
    pub const fn tag(self) -> u32 {
        let tag = ((self.0 ^ (self.0 >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        if tag == 0 { 1 } else { tag }
    }

    /// Another hash from this one, for a table beside the first.
    #[inline]
    #[must_use]
    pub const fn rehash(self) -> Self {
        Self(mix(self.0 ^ 0x9e37_79b9_7f4a_7c15))
    }
}

#[inline]
const fn spread(half: u32, count: u32) -> u32 {
    ((half as u64 * count as u64) >> 32) as u32
}

/// A bijection in which every input bit reaches every output bit.
#[inline]
const fn mix(mut h: u64) -> u64 {
    h ^= h >> 32;
    h = h.wrapping_mul(0xd6e8_feb8_6659_fd93);
    h ^= h >> 32;
    h = h.wrapping_mul(0xd6e8_feb8_6659_fd93);
    h ^ (h >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: HashKey = HashKey::new([0x0123_4567_89ab_cdef, 0x1357_9bdf_0246_8ace, 0xdead_beef_cafe_f00d, 42]);

    #[test]
    fn sequential_keys_fill_buckets_evenly() {
        let mut load = vec![0_u32; 1000];
        for n in 0..100_000_u64 {
            for bucket in KEY.hash([1, n, 7]).buckets(1000) {
                load[bucket as usize] += 1;
            }
        }
        // 200 a bucket expected, standard deviation 14: seven of them would be a defect.
        assert!(load.iter().all(|&n| (100..=300).contains(&n)), "{:?}", load.iter().max());
    }

    #[test]
    fn the_key_decides() {
        let other = HashKey::new([9, 8, 7, 6]);
        assert_ne!(KEY.hash([1, 2, 3]), other.hash([1, 2, 3]));
    }

    #[test]
    fn a_reader_with_32_bit_factors_gets_the_same() {
        let [a, b, c, d, e, f] = KEY.halves();
        let words = [0xffff_ffff_0000_0001_u64, 0x8000_0000_ffff_fffe, 0x1234_5678_9abc_def0];
        let factor = |half: u64, key: u32| (half + u64::from(key)) & 0xffff_ffff;
        let product = |word: u64, low, high| factor(word & 0xffff_ffff, low) * factor(word >> 32, high);
        let sum = [product(words[0], a, b), product(words[1], c, d), product(words[2], e, f)];
        let sum = sum.into_iter().fold(KEY.offset(), u64::wrapping_add);
        assert_eq!(KEY.hash(words), Hash(mix(sum)));
    }
}

//! Keyed hashing of the tables' keys, cheap enough for a BPF program: multiply, add, shift.
//!
//! Three words are multiplied by secret odd numbers and added (multilinear hashing: without the key
//! nobody can make two inputs collide more often than chance), then mixed so that every half of the
//! result is good. Ids and ports chosen by an attacker therefore cannot fill a bucket on purpose.

/// The secret of one set of tables; lives beside them, since entries are found by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashKey {
    multipliers: [u64; 3],
    offset: u64,
}

impl HashKey {
    /// A key from 32 random bytes' worth of words.
    #[must_use]
    pub const fn new(random: [u64; 4]) -> Self {
        let [a, b, c, offset] = random;
        Self { multipliers: [a | 1, b | 1, c | 1], offset }
    }

    /// The words that make up the key, for storing it beside the tables.
    #[must_use]
    pub const fn words(self) -> [u64; 4] {
        let [a, b, c] = self.multipliers;
        [a, b, c, self.offset]
    }

    /// Hashes three words.
    #[inline]
    #[must_use]
    pub const fn hash(self, words: [u64; 3]) -> Hash {
        let [a, b, c] = words;
        let [ma, mb, mc] = self.multipliers;
        let sum = (a ^ (a >> 32)).wrapping_mul(ma).wrapping_add((b ^ (b >> 32)).wrapping_mul(mb));
        Hash(mix(sum.wrapping_add((c ^ (c >> 32)).wrapping_mul(mc)).wrapping_add(self.offset)))
    }
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
        assert_eq!(HashKey::new(KEY.words()), KEY);
    }
}

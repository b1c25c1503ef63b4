//! Numbers that look random and are the same in each run.

/// The next one (xorshift64); from a state that is not zero.
#[inline(always)]
pub(crate) fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// The next one as a part of one.
#[cfg(test)]
pub(crate) fn part(state: &mut u64) -> f64 {
    (xorshift(state) >> 11) as f64 / (1_u64 << 53) as f64
}

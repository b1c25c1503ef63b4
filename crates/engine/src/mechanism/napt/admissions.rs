//! How many subscribers may be admitted, in a second.

use crate::mechanism::error_limit::ErrorLimit;

/// Limits, for one service and worker, how many subscribers are admitted.
#[derive(Debug, Clone)]
pub struct Admissions {
    workers: u32,
    limit: ErrorLimit,
}

impl Admissions {
    /// For one of `workers` workers, each of which admits its part.
    #[must_use]
    pub fn new(workers: u16) -> Self {
        Self { workers: u32::from(workers.max(1)), limit: ErrorLimit::new(0, 1) }
    }

    /// True if one more may be admitted at `now` (nanoseconds), of `rate` a second over all
    /// workers.
    pub fn allow(&mut self, rate: Option<u32>, now: u64) -> bool {
        let Some(per_second) = rate else { return true };
        let own = per_second.div_ceil(self.workers);
        self.limit.allow(own, own, now)
    }
}

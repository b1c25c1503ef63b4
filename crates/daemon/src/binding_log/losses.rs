//! What could not be logged. It is counted, and the log says so where it is written again.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::utc::Utc;

/// No time.
const NEVER: u64 = u64::MAX;

/// Events that are in no line of the log.
#[derive(Debug)]
pub(crate) struct Losses {
    count: AtomicU64,
    /// The first one that the log does not tell of yet.
    since: AtomicU64,
}

impl Default for Losses {
    fn default() -> Self {
        Self { count: AtomicU64::new(0), since: AtomicU64::new(NEVER) }
    }
}

impl Losses {
    /// Counts some that happened from `time` on.
    pub(crate) fn add(&self, count: u64, time: Utc) {
        // Before the count, so that whoever sees the count finds a time.
        self.since.fetch_min(time.0, Ordering::AcqRel);
        self.count.fetch_add(count, Ordering::AcqRel);
    }

    /// All that there were.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Those behind the first `told` ones: how many, and since when.
    pub(crate) fn behind(&self, told: u64) -> Option<(u64, Utc)> {
        let more = self.count().saturating_sub(told);
        (more > 0).then(|| (more, Utc(self.since.swap(NEVER, Ordering::AcqRel))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_once_with_its_beginning() {
        let losses = Losses::default();
        assert_eq!(losses.behind(0), None);
        losses.add(2, Utc(105));
        losses.add(3, Utc(100));
        assert_eq!((losses.behind(0), losses.behind(5)), (Some((5, Utc(100))), None));
        losses.add(1, Utc(110));
        assert_eq!((losses.behind(5), losses.count()), (Some((1, Utc(110))), 6));
    }
}

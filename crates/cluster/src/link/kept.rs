//! What this node has handed over. Its tables are a whole copy at once, as of its successor's epoch, until the copy that the successor makes
//! here is whole and takes their place. That replaces record by record, and drops nothing before it is whole: if it breaks off on the way,
//! what there is lacks no more than any copy does whose connection broke.
//!
//! They were served by, so they may have sessions, which copies have not. Those go when the successor's copy begins, and once more when it is
//! whole: a packet may have been at hand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::UNHEARD_LASTS;
use crate::replica::Applier;

/// Slices that were handed over, by number.
#[derive(Debug, Default)]
pub(super) struct Kept(BTreeMap<u16, Keeping>);

#[derive(Debug)]
struct Keeping {
    successor: u8,
    /// Of the successor.
    epoch: u32,
    since: Instant,
    /// Its copy has begun.
    is_replaced: bool,
}

impl Kept {
    /// A slice was handed over to `successor`, which owns it as of this epoch.
    pub(super) fn keep(&mut self, slice: u16, successor: u8, epoch: u32, since: Instant) {
        self.0.insert(slice, Keeping { successor, epoch, since, is_replaced: false });
    }

    /// Whether what there is of a slice is a whole copy as of this epoch.
    pub(super) fn has(&self, slice: u16, epoch: u32, now: Instant) -> bool {
        let kept = self.0.get(&slice).filter(|kept| kept.epoch == epoch);
        kept.is_some_and(|kept| now.saturating_duration_since(kept.since) < UNHEARD_LASTS)
    }

    /// Whether there is something that was handed over to this node, whose copy has not begun.
    pub(super) fn is_any(&self, successor: u8) -> bool {
        self.0.values().any(|kept| kept.successor == successor && !kept.is_replaced)
    }

    /// `applier` has the copy of what this node owns, as far as it has come. Gives the slices whose copies have begun, or are whole: of what
    /// was kept of these nothing is left.
    pub(super) fn give_way(&mut self, successor: u8, applier: &Applier) -> BTreeSet<u16> {
        let mut reached = BTreeSet::new();
        self.0.retain(|slice, kept| {
            if kept.successor != successor {
                return true;
            }
            let (has_begun, is_whole) = (applier.has_begun(*slice, kept.epoch), applier.has(*slice, kept.epoch));
            if has_begun && !kept.is_replaced || is_whole {
                reached.insert(*slice);
            }
            kept.is_replaced |= has_begun;
            !is_whole
        });
        reached
    }

    /// What there was of some slices is here no more.
    pub(super) fn lose(&mut self, is_lost: impl Fn(u16) -> bool) {
        self.0.retain(|slice, _| !is_lost(*slice));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_kept_is_a_copy_for_a_while_and_of_one_epoch() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        kept.keep(3, 1, 7, now);
        assert!(kept.has(3, 7, now) && !kept.has(3, 8, now) && !kept.has(4, 7, now));
        assert!(kept.is_any(1) && !kept.is_any(2));
        assert!(kept.has(3, 7, now + Duration::from_secs(54)) && !kept.has(3, 7, now + Duration::from_secs(55)));
        kept.lose(|slice| slice == 3);
        assert!(!kept.has(3, 7, now) && !kept.is_any(1));
    }
}

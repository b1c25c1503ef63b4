//! What an owner whose tables were lost waits for before it serves: that each of its backups has given back what it
//! has, or has nothing, or says nothing for a while.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long is waited for word from a backup, from when this node has its routes. To one that is there is a
/// connection within less; two nodes that start at the same time wait for each other's processes.
const LIMIT: Duration = Duration::from_secs(5);

/// How far backups have given back what there was.
///
/// Of each backup that has not given back everything yet, when it last sent something, or it was first asked.
#[derive(Debug)]
pub struct Returns(Mutex<BTreeMap<u8, Option<Instant>>>);

impl Returns {
    /// Nothing is given back: nothing was lost.
    #[must_use]
    pub fn none() -> Self {
        Self::from([])
    }

    /// These backups are to give back what they have.
    #[must_use]
    pub fn from(backups: impl IntoIterator<Item = u8>) -> Self {
        Self(Mutex::new(backups.into_iter().map(|backup| (backup, None)).collect()))
    }

    /// Whether it is better not to serve yet. Asked from when this node has its routes.
    #[must_use]
    pub fn are_awaited(&self) -> bool {
        self.are_awaited_at(Instant::now())
    }

    /// The time of each backup is its own: one that goes on sending what changes is no reason to wait for another, which
    /// is dead.
    fn are_awaited_at(&self, now: Instant) -> bool {
        let mut lacking = self.lock();
        // Of all of them: the time of each begins now.
        let heard = lacking.values_mut().map(|heard| *heard.get_or_insert(now));
        heard.filter(|heard| now.saturating_duration_since(*heard) < LIMIT).count() > 0
    }

    /// Whether what this backup has is still lacking.
    #[must_use]
    pub fn lacks(&self, node: u8) -> bool {
        self.lock().contains_key(&node)
    }

    /// A backup gives back.
    pub(super) fn hear(&self, node: u8) {
        self.hear_at(node, Instant::now());
    }

    fn hear_at(&self, node: u8, now: Instant) {
        if let Some(heard) = self.lock().get_mut(&node) {
            *heard = Some(now);
        }
    }

    /// It has given back everything, or has nothing.
    pub(super) fn settle(&self, node: u8) {
        self.lock().remove(&node);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u8, Option<Instant>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_backups_are_awaited() {
        assert!(!Returns::none().are_awaited());
        let returns = Returns::from([1, 2]);
        returns.settle(1);
        assert!(returns.are_awaited() && returns.lacks(2) && !returns.lacks(1));
        returns.settle(2);
        assert!(!returns.are_awaited());
    }

    #[test]
    fn a_backup_that_says_nothing_is_not_awaited_because_another_goes_on_sending() {
        let returns = Returns::from([1, 2]);
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!(returns.are_awaited_at(at(0)));
        returns.hear_at(1, at(3));
        assert!(returns.are_awaited_at(at(6)), "the first one is still sending");
        returns.settle(1);
        // What changes it goes on sending until it sees this node serve.
        returns.hear_at(1, at(7));
        assert!(!returns.are_awaited_at(at(7)) && returns.lacks(2) && !returns.lacks(1));
        // The other one comes, late.
        returns.hear_at(2, at(20));
        assert!(returns.are_awaited_at(at(21)) && !returns.are_awaited_at(at(25)));
    }
}

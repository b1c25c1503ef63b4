//! What an owner whose tables were lost waits for before it serves: that each of its backups has given back what it
//! has, or has nothing, or says nothing for a while.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long is waited for word from a backup, from when this node could serve otherwise. To one that is there is a
/// connection within less; two nodes that start at the same time wait for each other's processes.
const LIMIT: Duration = Duration::from_secs(5);

/// How far backups have given back what there was.
#[derive(Debug)]
pub struct Returns(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Backups that have not given back everything yet.
    lacking: BTreeSet<u8>,
    /// When one of them last sent something, or it was first asked.
    heard: Option<Instant>,
}

impl Returns {
    /// Nothing is given back: nothing was lost.
    #[must_use]
    pub fn none() -> Self {
        Self::from(BTreeSet::new())
    }

    /// These backups are to give back what they have.
    #[must_use]
    pub fn from(backups: BTreeSet<u8>) -> Self {
        Self(Mutex::new(State { lacking: backups, heard: None }))
    }

    /// Whether it is better not to serve yet, where nothing else is in the way.
    #[must_use]
    pub fn are_awaited(&self) -> bool {
        let mut state = self.lock();
        !state.lacking.is_empty() && state.heard.get_or_insert_with(Instant::now).elapsed() < LIMIT
    }

    /// Whether what this backup has is still lacking.
    #[must_use]
    pub fn lacks(&self, node: u8) -> bool {
        self.lock().lacking.contains(&node)
    }

    /// A backup gives back.
    pub(super) fn hear(&self) {
        self.lock().heard = Some(Instant::now());
    }

    /// It has given back everything, or has nothing.
    pub(super) fn settle(&self, node: u8) {
        self.lock().lacking.remove(&node);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_backups_are_awaited() {
        assert!(!Returns::none().are_awaited());
        let returns = Returns::from([1, 2].into());
        returns.settle(1);
        assert!(returns.are_awaited() && returns.lacks(2) && !returns.lacks(1));
        returns.settle(2);
        assert!(!returns.are_awaited());
    }
}

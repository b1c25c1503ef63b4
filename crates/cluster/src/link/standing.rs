//! How copying stands with each node, for whoever asks.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::taken::Taken;
use crate::replica::Applied;

/// How a copy stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyingState {
    /// Nothing is copied.
    #[default]
    None,
    /// There is no connection.
    Broken,
    /// Everything is being copied.
    Copying,
    /// Everything was copied; what changes is.
    Complete,
    /// The backup gives back what the owner lacks.
    Returning,
}

impl CopyingState {
    /// It in a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Broken => "broken",
            Self::Copying => "copying",
            Self::Complete => "complete",
            Self::Returning => "returning",
        }
    }
}

/// How copying stands with one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Copying {
    /// Of this node's slices, to that one.
    pub to: CopyingState,
    /// Records that it is to be sent and was not yet.
    pub pending: u64,
    /// Bytes that it was sent and has not acknowledged.
    pub in_flight: u64,
    /// Bytes that it was sent.
    pub sent_bytes: u64,
    /// Microseconds since the oldest batch was sent that it has not acknowledged; 0 if it has all.
    pub lag: u64,
    /// When it said anything last, if only that it is alive.
    pub heard: Option<Instant>,
    /// When it said anything last, on whichever connection.
    pub spoke: Option<Instant>,
    /// When it last said that its host's routes lead to this node no more.
    pub unseen: Option<Instant>,
    /// When it last said that it has taken over none of this node's slices, where nodes agree on who has which.
    pub vouched: Option<Instant>,
    /// Of that node's slices, to this one.
    pub from: CopyingState,
    /// What became of what it has sent.
    pub applied: Applied,
    /// What became of what it has given back.
    pub returned: Applied,
    /// What is wrong with either.
    pub faults: [Option<String>; 2],
}

/// How copying stands with all nodes, by their numbers.
#[derive(Debug, Default)]
pub struct Standings {
    copying: Mutex<Vec<Copying>>,
    /// What each node said last that it took over from this one, since somebody asked.
    taken: Mutex<BTreeMap<u8, Vec<Taken>>>,
}

impl Standings {
    /// Of so many nodes, with none of which anything is copied yet.
    #[must_use]
    pub fn of(nodes: usize) -> Self {
        Self { copying: Mutex::new(vec![Copying::default(); nodes]), ..Self::default() }
    }

    /// With all of them.
    #[must_use]
    pub fn all(&self) -> Vec<Copying> {
        self.lock().clone()
    }

    /// What nodes said, since this was asked last, that they took over from this one: the last word of each.
    #[must_use]
    pub fn take_taken(&self) -> BTreeMap<u8, Vec<Taken>> {
        std::mem::take(&mut *self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn note_taken(&self, node: u8, taken: Vec<Taken>) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(node, taken);
    }

    pub(super) fn change(&self, node: u8, change: impl FnOnce(&mut Copying)) {
        if let Some(copying) = self.lock().get_mut(usize::from(node)) {
            change(copying);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Copying>> {
        self.copying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

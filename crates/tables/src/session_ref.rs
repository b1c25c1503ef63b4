//! A session in its place, for reading and changing it: an entry of the table, or the record of its
//! binding.

use crate::atomic::Ordering;
use crate::binding::BindingId;
use crate::entry::{DOUBTED, Entry, PENDING, STATE, SessionKey, State, UNANSWERED, flags, state};
use crate::first::First;
use crate::tick::Tick;

/// Where a session lies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'t> {
    Table(&'t Entry),
    Binding(First<'t>),
}

/// A session in its place.
#[derive(Debug, Clone, Copy)]
pub struct SessionRef<'t> {
    pub(crate) place: Place<'t>,
    pub(crate) key: SessionKey,
}

impl SessionRef<'_> {
    /// The binding that it is a session of.
    #[must_use]
    pub fn binding(&self) -> BindingId {
        self.key.binding
    }

    /// Its state; `None` if it was removed meanwhile.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        let word = self.word();
        self.matches(word).then(|| state(word))
    }

    /// True if only the outside has sent in it so far.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        flags(self.word()) & UNANSWERED != 0
    }

    /// The inside sends in a session for the first time: moves it from one state to another, and
    /// sets `flag`. False as for [`transition`](Self::transition), and if it was answered already.
    pub(crate) fn answer(&self, from: State, to: State, flag: u8) -> bool {
        let word = self.word();
        let next = word & !(STATE | u64::from(UNANSWERED)) | u64::from(to.0) << 8 | u64::from(flag);
        self.is_in(word, from) && flags(word) & UNANSWERED != 0 && self.replace(word, next)
    }

    /// When it was last refreshed.
    #[must_use]
    pub fn seen(&self) -> Tick {
        match self.place {
            Place::Table(entry) => Tick(entry.seen.load(Ordering::Relaxed)),
            Place::Binding(first) => first.seen(),
        }
    }

    /// Refreshes it. The line is written at most once a tick.
    #[inline]
    pub fn refresh(&self, now: Tick) {
        match self.place {
            Place::Table(entry) if entry.seen.load(Ordering::Relaxed) != now.0 => {
                entry.seen.store(now.0, Ordering::Relaxed);
            }
            Place::Table(_) => {}
            Place::Binding(first) => first.change_seen(first.seen(), now),
        }
    }

    /// Moves it from one state to another; false if another writer was faster or it is gone.
    #[must_use]
    pub fn transition(&self, from: State, to: State) -> bool {
        self.move_on(from, to, 0)
    }

    /// As [`transition`](Self::transition), and notes that it was the outside that has reset it.
    #[must_use]
    pub fn doubt(&self, from: State, to: State) -> bool {
        self.move_on(from, to, DOUBTED)
    }

    /// True if the outside has reset it, and the inside was not asked yet.
    #[must_use]
    pub fn is_doubted(&self) -> bool {
        flags(self.word()) & DOUBTED != 0
    }

    /// True if it lies in the record of its binding, where it is never counted.
    pub(crate) fn is_first(&self) -> bool {
        matches!(self.place, Place::Binding(_))
    }

    fn move_on(&self, from: State, to: State, flag: u8) -> bool {
        let word = self.word();
        let next = word & !STATE | u64::from(to.0) << 8 | u64::from(flag);
        self.is_in(word, from) && self.replace(word, next)
    }

    fn word(&self) -> u64 {
        match self.place {
            Place::Table(entry) => entry.word.load(Ordering::Acquire),
            Place::Binding(first) => first.word.load(Ordering::Acquire),
        }
    }

    fn matches(&self, word: u64) -> bool {
        match self.place {
            Place::Table(entry) => entry.matches(word, &self.key),
            Place::Binding(_) => First::has_key(word, &self.key) && First::is_live(word),
        }
    }

    fn is_in(&self, word: u64, from: State) -> bool {
        word & PENDING == 0 && self.matches(word) && state(word) == from
    }

    fn replace(&self, from: u64, to: u64) -> bool {
        match self.place {
            Place::Table(entry) => entry.replace(from, to),
            Place::Binding(first) => first.replace(from, to),
        }
    }
}

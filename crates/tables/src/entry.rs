//! A session and its entry: the bytes that [`session`](crate::session) draws, and how one entry is read
//! and changed.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::binding::BindingId;
use crate::hash::{Hash, HashKey};
use crate::memory::Record;
use crate::tick::Tick;

/// What a session is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// The binding.
    pub binding: BindingId,
    /// Remote IPv4 address, as on the wire.
    pub remote_ipv4: [u8; 4],
    /// Remote port, as on the wire; zero for ICMP queries.
    pub remote_port: [u8; 2],
}

impl SessionKey {
    pub(crate) fn word(&self) -> u64 {
        u64::from(self.binding.get()) << 32 | u64::from(u16::from_ne_bytes(self.remote_port)) << 16
    }

    pub(crate) fn remote(&self) -> u32 {
        u32::from_ne_bytes(self.remote_ipv4)
    }

    pub(crate) fn hash(&self, key: HashKey) -> Hash {
        key.hash([self.word(), u64::from(self.remote()), 0])
    }
}

/// State of a session, a number below 16 that indexes [`Lifetimes`]. What it means is the engine's
/// business; zero is not a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State(pub u8);

/// Ticks that a session in each state may be silent before it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes(pub [u32; 16]);

impl Lifetimes {
    /// The lifetime of `state`.
    #[must_use]
    pub fn of(&self, state: State) -> u32 {
        self.0[usize::from(state.0 & 15)]
    }
}

/// A session, copied out of its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// What it is found by.
    pub key: SessionKey,
    /// Its state.
    pub state: State,
    /// The six bits that its owner may use.
    pub flags: u8,
    /// When a packet last refreshed it.
    pub seen: Tick,
}

tombolo_records::constants! {
    /// Flag of a session that its subscriber's record counts. It is taken off the count by whoever
    /// removes the session; so an entry with this flag is not reused, however old, until the sweep
    /// has removed it.
    pub const COUNTED: u8 as SESSION_COUNTED = 1;
    /// Flag of a session that only the outside has sent in. It is the first to give way where there
    /// is no room for one that the inside opens.
    pub const UNANSWERED: u8 as SESSION_UNANSWERED = if cfg!(other_layout) { 16 } else { 2 };
    /// Flag of a session that the outside has reset, or somebody who says so: whoever is inside has
    /// not been asked yet.
    pub const DOUBTED: u8 as SESSION_DOUBTED = 4;
    pub(crate) const PENDING: u64 as SESSION_PENDING = 0x80;
    pub(crate) const MARK: u64 as SESSION_MARK = 0x40;
    /// Claimed, and not yet filled: no binding has this id.
    pub(crate) const CLAIMED: u64 as SESSION_CLAIMED = PENDING | 0x3f;
    pub(crate) const STATE: u64 as SESSION_STATE = 0xff00;
    const BINDING: u64 as SESSION_BINDING = 0xffff_ffff << 32;
    /// In the word of a binding's first session.
    const REMOTE: u64 as FIRST_REMOTE = 0xffff_ffff << 32;
    const PORT: u64 as SESSION_PORT = 0xffff << 16;
}

/// What of a word is the key: of an entry the binding and the port, of a binding's first session
/// the remote address and the port.
pub(crate) const KEY: u64 = BINDING | PORT;

/// Sessions of a line. A model checker has fewer steps to order where they are fewer.
pub(crate) const ENTRIES: usize = if cfg!(loom) { 2 } else { 4 };

tombolo_records::records! {
    /// One session: binding id, remote port, state and flags in a word; remote address; tick in
    /// which it was last seen.
    atomic pub(crate) struct Entry as session {
        word: AtomicU64,
        #[cfg(not(other_layout))]
        remote: AtomicU32,
        seen: AtomicU32,
        #[cfg(other_layout)]
        remote: AtomicU32,
    }

    /// One cache line of sessions.
    line pub(crate) struct Line as session_line {
        entry: [Entry; ENTRIES],
    }
}

// SAFETY: an array of structs of atomics.
unsafe impl Record for Line {}

impl Line {
    /// A session whose first line this is may be in the overflow.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.entry[ENTRIES - 1].word.load(Ordering::SeqCst) & MARK != 0
    }

    pub(crate) fn mark(&self) {
        self.entry[ENTRIES - 1].word.fetch_or(MARK, Ordering::SeqCst);
    }
}

impl Entry {
    pub(crate) fn is_free(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !MARK == 0
    }

    #[inline]
    pub(crate) fn matches(&self, word: u64, key: &SessionKey) -> bool {
        word & KEY == key.word() && self.remote.load(Ordering::Relaxed) == key.remote()
    }

    pub(crate) fn copy(&self, word: u64) -> Option<Session> {
        Some(Session {
            key: SessionKey {
                binding: BindingId::new(high(word))?,
                remote_ipv4: self.remote.load(Ordering::Relaxed).to_ne_bytes(),
                remote_port: port(word).to_ne_bytes(),
            },
            state: state(word),
            flags: flags(word),
            seen: Tick(self.seen.load(Ordering::Relaxed)),
        })
    }

    /// Replaces the word, if it is `from` but for the mark, which stays as it is.
    pub(crate) fn replace(&self, from: u64, to: u64) -> bool {
        let mut current = self.word.load(Ordering::Relaxed);
        while current & !MARK == from & !MARK {
            let next = to & !MARK | current & MARK;
            match self.word.compare_exchange_weak(current, next, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(changed) => current = changed,
            }
        }
        false
    }

    /// Takes a settled entry for as long as it takes to look at the rest of it: nobody else changes
    /// the word meanwhile, and writers of its session wait as for one of theirs. The word alone
    /// does not say whose it is, since sessions of one binding with one remote port have the same.
    pub(crate) fn seize(&self, word: u64) -> bool {
        self.replace(word, word | PENDING)
    }

    /// As it was before [`seize`](Self::seize).
    pub(crate) fn hand_back(&self, word: u64) {
        self.replace(word | PENDING, word);
    }

    /// Claims an entry that has expired, unless it was reused or refreshed meanwhile.
    pub(crate) fn take_over(&self, word: u64, lifetimes: &Lifetimes, now: Tick) -> bool {
        if !self.seize(word) {
            return false;
        }
        let taken = self.expired(word, lifetimes, now) && self.replace(word | PENDING, CLAIMED);
        if !taken {
            self.hand_back(word);
        }
        taken
    }

    /// True if a seized entry is what was copied out of it before.
    pub(crate) fn is_still(&self, session: &Session) -> bool {
        self.remote.load(Ordering::Relaxed) == session.key.remote()
            && self.seen.load(Ordering::Relaxed) == session.seen.0
    }

    /// Only the outside has sent in it, and nobody counts it.
    pub(crate) fn gives_way(word: u64) -> bool {
        high(word) != 0 && word & PENDING == 0 && flags(word) & (COUNTED | UNANSWERED) == UNANSWERED
    }

    pub(crate) fn expired(&self, word: u64, lifetimes: &Lifetimes, now: Tick) -> bool {
        word & PENDING == 0
            && flags(word) & COUNTED == 0
            && now.since(Tick(self.seen.load(Ordering::Relaxed))) >= lifetimes.of(state(word))
    }
}

pub(crate) fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "fields are cut out of the word")]
pub(crate) fn port(word: u64) -> u16 {
    (word >> 16) as u16
}

#[expect(clippy::cast_possible_truncation, reason = "fields are cut out of the word")]
pub(crate) fn state(word: u64) -> State {
    State((word >> 8) as u8)
}

pub(crate) fn flags(word: u64) -> u8 {
    (word & 0x3f) as u8
}

pub(crate) fn word_of(key: &SessionKey, state: State, flags: u8) -> u64 {
    key.word() | u64::from(state.0) << 8 | u64::from(flags & 0x3f)
}

/// What a sweep does with a session that it looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// It stays.
    Keep,
    /// It goes.
    Remove,
    /// It stays in another state, as if last seen at this tick, and is not [`DOUBTED`] any more.
    Change(State, Tick),
}

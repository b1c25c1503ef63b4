//! The first session of a TCP binding lies in the binding's record, since most bindings of hosts have
//! one: a packet that has found the binding has found its session. Further ones are in the table
//! ([`session`](crate::session)).
//!
//! ```text
//! word  63       32  31          16  15    8  7     0
//!       |  remote  | remote port  | state | flags |     0 = there was none yet
//! seen  the upper half of the word before
//! ```
//!
//! The lower half is that of an entry of the table. The key is written once in the life of a binding:
//! when the session is over, the state is 0 and the key stays, and only the same session may be
//! opened there again. So of two writers that open one session both find the place free, or both find
//! it another's: it never lies here and in the table.
//!
//! The word changes by exchange alone, and all of it. Who is late, and exchanges in the record of the
//! next binding, finds another word there, or at worst leaves a session that is over. None is
//! [`COUNTED`](crate::session::COUNTED): services that count keep all sessions in the table.

use std::mem::offset_of;

use crate::atomic::{AtomicU64, Ordering};
use crate::binding::{BindingId, BindingRecord, Bindings};
use crate::entry::{DOUBTED, KEY, STATE, Session, SessionKey, Sweep, flags, high, port, state};
use crate::tick::Tick;

const FIRST_WORD: usize = offset_of!(BindingRecord, first) / 8;
const SEEN_WORD: usize = offset_of!(BindingRecord, seen) / 8;
const _: () = assert!(offset_of!(BindingRecord, seen) % 8 == 4, "the upper half of its word");

/// The place of a binding's first session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct First<'t> {
    pub(crate) word: &'t AtomicU64,
    /// When the binding was made, and when the session, or the inside, was last seen.
    times: &'t AtomicU64,
}

/// What came of opening the first session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opened {
    /// It is new.
    New,
    /// It was there already.
    Existing,
    /// Another session is, or was, the first.
    Taken,
}

impl SessionKey {
    /// The word of a first session without its lower half.
    pub(crate) fn first_word(&self) -> u64 {
        u64::from(self.remote()) << 32 | u64::from(u16::from_ne_bytes(self.remote_port)) << 16
    }
}

impl First<'_> {
    /// True if `word` has the key of a session, over or not.
    #[inline]
    pub(crate) fn has_key(word: u64, key: &SessionKey) -> bool {
        word & KEY == key.first_word()
    }

    /// True if `word` is that of a session that is not over.
    #[inline]
    pub(crate) fn is_live(word: u64) -> bool {
        word & STATE != 0
    }

    pub(crate) fn replace(&self, from: u64, to: u64) -> bool {
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends the session if its word is `word`.
    pub(crate) fn end(&self, word: u64) -> bool {
        self.replace(word, word & KEY)
    }

    /// When it was last refreshed; without sessions, when the inside last sent.
    #[inline]
    pub(crate) fn seen(&self) -> Tick {
        Tick(high(self.times.load(Ordering::Relaxed)))
    }

    /// Notes when it was seen, if that was at `before`.
    pub(crate) fn change_seen(&self, before: Tick, seen: Tick) {
        let times = self.times.load(Ordering::Relaxed);
        if Tick(high(times)) == before && before != seen {
            let next = times & 0xffff_ffff | u64::from(seen.0) << 32;
            // Who was faster has written the same, or it is another binding's record now.
            let _ = self.times.compare_exchange(times, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn copy(&self, id: BindingId) -> Option<(u64, Session)> {
        let word = self.word.load(Ordering::Acquire);
        let key =
            SessionKey { binding: id, remote_ipv4: high(word).to_ne_bytes(), remote_port: port(word).to_ne_bytes() };
        let session = Session { key, state: state(word), flags: flags(word), seen: self.seen() };
        Self::is_live(word).then_some((word, session))
    }

    fn open(&self, key: &SessionKey, low: u64, now: Tick) -> Opened {
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word != 0 && !Self::has_key(word, key) {
                return Opened::Taken;
            }
            if Self::is_live(word) {
                return Opened::Existing;
            }
            self.change_seen(self.seen(), now);
            if self.replace(word, key.first_word() | low) {
                return Opened::New;
            }
        }
    }
}

impl Bindings {
    #[inline]
    pub(crate) fn place_of_first(&self, id: BindingId) -> First<'_> {
        First { word: self.word(id, FIRST_WORD), times: self.word(id, SEEN_WORD) }
    }

    /// The first session of binding `id`, where it lies in the record and is not over.
    #[must_use]
    pub fn first_session(&self, id: BindingId) -> Option<Session> {
        let generation = self.generation(id);
        let (_, session) = self.place_of_first(id).copy(id)?;
        (self.read(id).is_some() && self.generation(id) == generation).then_some(session)
    }

    /// Opens `key` as the first session of its binding, which was found and touched, in a state with
    /// flags.
    pub(crate) fn open_first(&self, key: &SessionKey, low: u64, now: Tick) -> Opened {
        self.place_of_first(key.binding).open(key, low, now)
    }

    /// Does with the first session of binding `id` what `decide` says; the session, if it stays.
    pub(crate) fn sweep_first(&self, id: BindingId, mut decide: impl FnMut(&Session) -> Sweep) -> Option<Session> {
        let first = self.place_of_first(id);
        loop {
            let (word, session) = first.copy(id)?;
            match decide(&session) {
                Sweep::Keep => return Some(session),
                Sweep::Change(to, as_if_seen) => {
                    let next = word & !(STATE | u64::from(DOUBTED)) | u64::from(to.0) << 8;
                    if first.replace(word, next) {
                        // A packet that refreshed it meanwhile wins.
                        first.change_seen(session.seen, as_if_seen);
                        return Some(Session { state: to, seen: first.seen(), ..session });
                    }
                }
                Sweep::Remove if first.end(word) => {
                    // Nor is one taken away that a packet has refreshed since it was decided upon.
                    if first.seen() == session.seen || !first.replace(word & KEY, word) {
                        return None;
                    }
                }
                Sweep::Remove => {}
            }
        }
    }

    /// Ends the first session of binding `id`; false if there is none.
    pub(crate) fn end_first(&self, id: BindingId) -> bool {
        let first = self.place_of_first(id);
        loop {
            let word = first.word.load(Ordering::Acquire);
            if !First::is_live(word) {
                return false;
            }
            if first.end(word) {
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::Binding;
    use crate::entry::State;
    use crate::memory::Heap;

    const OPEN: State = State(5);

    fn key(binding: BindingId, port: u8) -> SessionKey {
        SessionKey { binding, remote_ipv4: [203, 0, 113, 9], remote_port: [0, port] }
    }

    fn bound() -> (Bindings, BindingId) {
        let bindings = Bindings::new(&mut Heap, 1).unwrap();
        let id = bindings.claim(0).unwrap();
        bindings.publish(id, &Binding::default(), Tick(5));
        bindings.settle(id);
        (bindings, id)
    }

    #[test]
    fn the_place_is_the_first_one_s_for_as_long_as_the_binding_lives() {
        let (bindings, id) = bound();
        assert_eq!(bindings.first_session(id), None);
        assert_eq!(bindings.open_first(&key(id, 1), 0x500, Tick(7)), Opened::New);
        let session = Session { key: key(id, 1), state: OPEN, flags: 0, seen: Tick(7) };
        assert_eq!(bindings.first_session(id), Some(session));
        assert_eq!(bindings.open_first(&key(id, 1), 0x500, Tick(8)), Opened::Existing);
        assert_eq!(bindings.open_first(&key(id, 2), 0x500, Tick(8)), Opened::Taken);
        assert!(bindings.end_first(id) && !bindings.end_first(id));
        assert_eq!(bindings.first_session(id), None);
        assert_eq!(bindings.open_first(&key(id, 2), 0x500, Tick(9)), Opened::Taken);
        assert_eq!(bindings.open_first(&key(id, 1), 0x500, Tick(9)), Opened::New);
    }

    #[test]
    fn the_next_binding_of_the_record_has_none() {
        let (bindings, id) = bound();
        assert_eq!(bindings.open_first(&key(id, 1), 0x500, Tick(7)), Opened::New);
        assert!(bindings.retire(id, &Binding::default(), Tick(5)));
        bindings.free(id);
        assert_eq!(bindings.first_session(id), None);
        assert_eq!(bindings.claim(0), Some(id));
        bindings.publish(id, &Binding::default(), Tick(9));
        assert_eq!(bindings.first_session(id), None);
        assert_eq!(bindings.open_first(&key(id, 2), 0x500, Tick(9)), Opened::New);
    }

    #[test]
    fn the_sweep_keeps_changes_and_ends_it() {
        let (bindings, id) = bound();
        assert_eq!(bindings.sweep_first(id, |_| unreachable!()), None);
        assert_eq!(bindings.open_first(&key(id, 1), 0x500, Tick(7)), Opened::New);
        assert!(bindings.sweep_first(id, |_| Sweep::Keep).is_some());
        let changed = bindings.sweep_first(id, |_| Sweep::Change(State(10), Tick(6)));
        assert_eq!(changed.map(|session| (session.state, session.seen)), Some((State(10), Tick(6))));
        assert_eq!(bindings.first_session(id), changed);
        // A packet that comes while it is decided upon is seen.
        let mut asked = 0;
        let kept = bindings.sweep_first(id, |session| {
            asked += 1;
            bindings.place_of_first(id).change_seen(session.seen, Tick(20));
            if session.seen == Tick(20) { Sweep::Keep } else { Sweep::Remove }
        });
        assert_eq!((kept.map(|session| session.seen), asked), (Some(Tick(20)), 2));
        assert_eq!(bindings.sweep_first(id, |_| Sweep::Remove), None);
        assert_eq!(bindings.first_session(id), None);
    }
}

//! Sessions: a binding and a remote endpoint. 16 bytes each, four to a cache line, two candidate
//! lines a session; one entry serves both directions.
//!
//! ```text
//!  0   word     63        32  31          16  15    8  7     0
//!               | binding id | remote port  | state | flags |     0 = free, bits 6 and 7 aside
//!               flags: 7 pending; 6 of the last entry: the line is marked (see Overflow); 5-0 the owner's
//!  8   remote IPv4 address, as on the wire                        4
//! 12   last seen, tick                                            4
//! ```
//!
//! Two writers that create the same session at once are told apart as in [`index`](crate::index):
//! claim, publish as pending, look again, make live. A packet never waits for another otherwise.
//!
//! # Overflow
//! When both lines of a session are full of live sessions, it goes to a small second table (1/32 of
//! the first; two choices at 80 % load send 1 % there), and its first line is marked for good, in
//! the last entry's word. A look-up goes to the second table only from a marked line, so nearly
//! never in vain. When its lines there are full too, the session is refused.
//!
//! # Who gives way
//! None that both sides have sent in is ever pushed out, and none that the inside has. What only
//! the outside has sent in ([`UNANSWERED`]) costs an attacker one packet: it takes no room in the
//! overflow, and gives way to what the inside opens, before that one goes to the overflow.

use crate::atomic::{AtomicU64, Ordering, spin_loop};
use crate::entry::{CLAIMED, ENTRIES, Entry, KEY, Line, MARK, PENDING, STATE, flags, high, word_of};
pub use crate::entry::{
    COUNTED, DOUBTED, Lifetimes, Session, SessionKey, State, Sweep, UNANSWERED, constants, records,
};
use crate::hash::HashKey;
use crate::index::PATIENCE;
use crate::memory::{MemoryError, MemorySource, Slab};
use crate::session_ref::Place;
pub use crate::session_ref::SessionRef;
use crate::tick::Tick;

/// Lines of the overflow beside 1/32 of the others.
const SPARE_LINES: u32 = if cfg!(loom) { 1 } else { 16 };

/// What came of [`Sessions::insert`].
#[derive(Debug, Clone, Copy)]
pub enum Inserted<'t> {
    /// It is new.
    New(SessionRef<'t>),
    /// It was there already.
    Existing(SessionRef<'t>),
    /// There is no room in its lines, nor in the overflow.
    Full,
}

/// The table of sessions. See the module for its layout.
#[derive(Debug)]
pub struct Sessions {
    main: Slab<Line>,
    overflow: Slab<Line>,
    pub(crate) overflowed: Slab<AtomicU64>,
    main_lines: u32,
    overflow_lines: u32,
    key: HashKey,
}

/// Share of the entries that may be in use before lines begin to overflow often, in percent.
pub const LOAD: u64 = 80;

impl Sessions {
    /// Room for `capacity` sessions.
    ///
    /// # Errors
    /// [`MemoryError`] if `source` does not have the memory.
    pub fn new(source: &mut dyn MemorySource, capacity: u64, key: HashKey) -> Result<Self, MemoryError> {
        let main_lines = u32::try_from(capacity.saturating_mul(100) / (ENTRIES as u64 * LOAD) + 1).unwrap_or(u32::MAX);
        let overflow_lines = main_lines / 32 + SPARE_LINES;
        Ok(Self {
            main: Slab::take(source, "sessions", main_lines as usize)?,
            overflow: Slab::take(source, "sessions-overflow", overflow_lines as usize)?,
            overflowed: Slab::take(source, "sessions-overflowed", 8)?,
            main_lines,
            overflow_lines,
            key,
        })
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.main.bytes() + self.overflow.bytes() + self.overflowed.bytes()
    }

    /// Lines of the table without its overflow, and of the overflow.
    #[must_use]
    pub fn sizes(&self) -> (u32, u32) {
        (self.main_lines, self.overflow_lines)
    }

    /// Sessions in the overflow at the moment.
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        self.overflowed[0].load(Ordering::Relaxed)
    }

    /// Starts loading the lines of `key`. Worth its cost from a few packets ahead.
    #[inline]
    pub fn prefetch(&self, key: &SessionKey) {
        for line in key.hash(self.key).buckets(self.main_lines) {
            self.main.prefetch(line as usize);
        }
    }

    /// The session with this key.
    #[inline]
    #[must_use]
    pub fn find(&self, key: &SessionKey) -> Option<SessionRef<'_>> {
        let hash = key.hash(self.key);
        let [first, second] = hash.buckets(self.main_lines);
        let first = &self.main[first as usize];
        let found = find_in(first, key).or_else(|| find_in(&self.main[second as usize], key));
        let found = match found {
            None if first.is_marked() => {
                let lines = hash.rehash().buckets(self.overflow_lines);
                lines.into_iter().find_map(|line| find_in(&self.overflow[line as usize], key))
            }
            found => found,
        };
        found.map(|entry| SessionRef { place: Place::Table(entry), key: *key })
    }

    /// Makes the session, unless it is there. Entries that have outlived `lifetimes` are reused.
    pub fn insert(&self, key: &SessionKey, to: State, flags: u8, lifetimes: &Lifetimes, now: Tick) -> Inserted<'_> {
        let word = word_of(key, to, flags);
        loop {
            let Some(place) = self.publish(key, word | PENDING, lifetimes, now) else {
                return self.find(key).map_or(Inserted::Full, Inserted::Existing);
            };
            match self.settle(key, place, word | PENDING) {
                Settled::Mine => {
                    let entry = self.entry(place);
                    // Fails only if another writer took this one for dead.
                    if entry.replace(word | PENDING, word) {
                        return Inserted::New(SessionRef { place: Place::Table(entry), key: *key });
                    }
                }
                Settled::Theirs(entry) => {
                    return Inserted::Existing(SessionRef { place: Place::Table(entry), key: *key });
                }
                Settled::Again => {}
            }
        }
    }

    /// Looks at every session of `lines` lines from `first`, and does with each what `decide` says.
    /// [`Self::lines`] says how many lines there are, the overflow's included. Nothing is taken off
    /// a count: that is [`Tables::sweep_sessions`](crate::Tables::sweep_sessions).
    pub fn sweep(&self, first: usize, lines: usize, decide: impl FnMut(&Session) -> Sweep) {
        self.sweep_and_tell(first, lines, decide, |_| {});
    }

    /// As [`sweep`](Self::sweep), and tells `gone` of each session that was removed.
    pub(crate) fn sweep_and_tell(
        &self,
        first: usize,
        lines: usize,
        mut decide: impl FnMut(&Session) -> Sweep,
        mut gone: impl FnMut(&Session),
    ) {
        for number in first..(first + lines).min(self.lines()) {
            for entry in &self.line(number).entry {
                // What changed meanwhile is looked at again: a session that stays is always decided
                // upon, since its binding stays for its sake.
                loop {
                    let word = entry.word.load(Ordering::Acquire);
                    let Some(session) = entry.copy(word).filter(|_| word & PENDING == 0) else { break };
                    let done = match decide(&session) {
                        Sweep::Keep => true,
                        Sweep::Remove => {
                            let removed = self.remove_from(number, entry, word, &session);
                            if removed {
                                gone(&session);
                            }
                            removed
                        }
                        Sweep::Change(to, seen) => change(entry, word, to, &session, seen),
                    };
                    if done {
                        break;
                    }
                }
            }
        }
    }

    /// Removes a session that was found in `entry`; its flags, or nothing if it is gone already.
    /// Whoever gets the flag [`COUNTED`] takes it off its subscriber's count.
    pub(crate) fn remove(&self, entry: &Entry, key: &SessionKey) -> Option<u8> {
        let word = entry.word.load(Ordering::Acquire);
        if !entry.matches(word, key) || !entry.replace(word, 0) {
            return None;
        }
        let [_, _, c, d] = self.lines_of(key);
        let is_there = |line| self.line(line).entry.iter().any(|other| std::ptr::eq(other, entry));
        if is_there(c) || is_there(d) {
            self.overflowed[0].fetch_sub(1, Ordering::Relaxed);
        }
        Some(flags(word))
    }

    /// Removes every entry at once, counted or not: the fastest tear-down there is, for
    /// measurements.
    pub fn clear(&self) {
        for number in 0..self.lines() {
            for entry in &self.line(number).entry {
                entry.word.store(0, Ordering::Relaxed);
            }
        }
        self.overflowed[0].store(0, Ordering::Release);
    }

    /// Clears what writers that died have left half-done and counts the overflow again. What is
    /// half-done both before and after `pause` is nobody's any more, though programs in the kernel
    /// go on meanwhile; and if it is, its writer gives up or starts again.
    pub fn repair(&self, pause: &mut dyn FnMut()) {
        let before = self.half_done();
        if !before.is_empty() {
            pause();
        }
        for (place, word) in before {
            self.take_back(place, word);
        }
        // Who puts a session into the overflow counts it first, so that too little seems to be
        // missing meanwhile.
        let missing = self.missing_in_overflow();
        if missing != 0 {
            pause();
            self.overflowed[0].fetch_add(missing.max(self.missing_in_overflow()).cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// Entries that are claimed or pending: where, and what stands there.
    fn half_done(&self) -> Vec<(usize, u64)> {
        let entries = (0..self.lines()).flat_map(|number| self.line(number).entry.iter()).enumerate();
        let words = entries.map(|(place, entry)| (place, entry.word.load(Ordering::Acquire)));
        words.filter(|(_, word)| word & PENDING != 0).collect()
    }

    fn missing_in_overflow(&self) -> i64 {
        let found = (self.main.len()..self.lines()).flat_map(|number| self.read_line(number)).count() as u64;
        found.wrapping_sub(self.overflowed()).cast_signed()
    }

    /// Lines of the table without its overflow; they come first.
    #[must_use]
    pub fn main_lines(&self) -> usize {
        self.main.len()
    }

    /// Lines of the table and its overflow.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.main.len() + self.overflow.len()
    }

    /// True if a session with this key may be found in line `line`.
    #[must_use]
    pub fn is_home(&self, key: &SessionKey, line: usize) -> bool {
        let lines = self.lines_of(key);
        lines[..2].contains(&line) || lines[2..].contains(&line) && self.line(lines[0]).is_marked()
    }

    /// Entries of line `number` that are in use, as `(session, pending)`; for audits.
    pub fn read_line(&self, number: usize) -> impl Iterator<Item = (Session, bool)> + '_ {
        self.line(number).entry.iter().filter_map(|entry| {
            let word = entry.word.load(Ordering::Acquire);
            entry.copy(word).map(|session| (session, word & PENDING != 0))
        })
    }

    pub(crate) fn line(&self, number: usize) -> &Line {
        self.main.get(number).unwrap_or_else(|| &self.overflow[number - self.main.len()])
    }

    fn entry(&self, place: usize) -> &Entry {
        &self.line(place / ENTRIES).entry[place % ENTRIES]
    }

    /// Lines of a key in the order in which they are tried: its two lines, then its two overflow
    /// lines.
    pub(crate) fn lines_of(&self, key: &SessionKey) -> [usize; 4] {
        let hash = key.hash(self.key);
        let [a, b] = hash.buckets(self.main_lines);
        let [c, d] = hash.rehash().buckets(self.overflow_lines);
        let overflow = self.main.len();
        [a as usize, b as usize, overflow + c as usize, overflow + d as usize]
    }

    /// Claims a place and publishes `word` there; `None` if every place is taken.
    fn publish(&self, key: &SessionKey, word: u64, lifetimes: &Lifetimes, now: Tick) -> Option<usize> {
        let [a, b, c, d] = self.lines_of(key);
        let is_unanswered = flags(word) & UNANSWERED != 0;
        let place = self.claim_either([a, b], lifetimes, now);
        if place.is_none() && is_unanswered {
            return None;
        }
        let place =
            place.or_else(|| [a, b].into_iter().find_map(|line| self.claim_unanswered(line))).or_else(|| {
                self.overflowed[0].fetch_add(1, Ordering::Relaxed);
                self.line(a).mark();
                let place = self.claim_either([c, d], lifetimes, now);
                if place.is_none() {
                    self.overflowed[0].fetch_sub(1, Ordering::Relaxed);
                }
                place
            })?;
        let entry = self.entry(place);
        // Release: whoever sees the new address sees that the entry is claimed.
        entry.remote.store(key.remote(), Ordering::Release);
        entry.seen.store(now.0, Ordering::Relaxed);
        entry.replace(CLAIMED, word);
        Some(place)
    }

    /// Claims an entry in the emptier of two lines, else in the other.
    fn claim_either(&self, [a, b]: [usize; 2], lifetimes: &Lifetimes, now: Tick) -> Option<usize> {
        let room = |line| room_in(self.line(line), lifetimes, now);
        let order = if room(a) >= room(b) { [a, b] } else { [b, a] };
        order.into_iter().find_map(|line| self.claim(line, lifetimes, now))
    }

    /// Claims a free entry of a line, or one that has expired.
    fn claim(&self, line: usize, lifetimes: &Lifetimes, now: Tick) -> Option<usize> {
        let entries = &self.line(line).entry;
        let free = entries.iter().position(|entry| entry.is_free() && entry.replace(0, CLAIMED));
        let slot = free.or_else(|| {
            let reused = entries.iter().position(|entry| {
                let word = entry.word.load(Ordering::Acquire);
                high(word) != 0 && entry.expired(word, lifetimes, now) && entry.take_over(word, lifetimes, now)
            })?;
            self.note_removed(line);
            Some(reused)
        })?;
        Some(line * ENTRIES + slot)
    }

    /// Claims the entry of a line that only the outside has sent in, if there is one.
    fn claim_unanswered(&self, line: usize) -> Option<usize> {
        let entries = &self.line(line).entry;
        let slot = entries.iter().position(|entry| {
            let word = entry.word.load(Ordering::Acquire);
            Entry::gives_way(word) && entry.replace(word, CLAIMED)
        })?;
        Some(line * ENTRIES + slot)
    }

    /// Looks at all other places of the key; see [`crate::index`] for why this leaves exactly one
    /// entry.
    fn settle(&self, key: &SessionKey, mine: usize, pending: u64) -> Settled<'_> {
        let lines = self.lines_of(key);
        let count = if self.line(lines[0]).is_marked() { 4 } else { 2 };
        for place in
            lines[..count].iter().flat_map(|line| line * ENTRIES..(line + 1) * ENTRIES).filter(|&place| place != mine)
        {
            let entry = self.entry(place);
            let mut patience = PATIENCE;
            loop {
                let word = entry.word.load(Ordering::SeqCst);
                if !entry.matches(word, key) {
                    break;
                }
                if word & PENDING == 0 {
                    self.take_back(mine, pending);
                    return Settled::Theirs(entry);
                }
                if place < mine {
                    self.take_back(mine, pending);
                    return self.wait_for(place, word);
                }
                if patience == 0 {
                    self.take_back(place, word);
                    break;
                }
                patience -= 1;
                spin_loop();
            }
        }
        Settled::Mine
    }

    fn take_back(&self, place: usize, pending: u64) {
        if self.entry(place).replace(pending, 0) {
            self.note_removed(place / ENTRIES);
        }
    }

    /// Waits until the pending `word` at `place` is live or gone.
    fn wait_for(&self, place: usize, word: u64) -> Settled<'_> {
        let entry = self.entry(place);
        for _ in 0..PATIENCE {
            let now = entry.word.load(Ordering::Acquire);
            if now & !MARK == word & !(MARK | PENDING) {
                return Settled::Theirs(entry);
            }
            if now & !MARK != word & !MARK {
                return Settled::Again;
            }
            spin_loop();
        }
        self.take_back(place, word);
        Settled::Again
    }

    fn remove_from(&self, line: usize, entry: &Entry, word: u64, session: &Session) -> bool {
        if !entry.seize(word) {
            return false;
        }
        let removed = entry.is_still(session) && entry.replace(word | PENDING, 0);
        if removed {
            self.note_removed(line);
        } else {
            entry.hand_back(word);
        }
        removed
    }

    fn note_removed(&self, line: usize) {
        if line >= self.main.len() {
            self.overflowed[0].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// False if the entry was changed meanwhile, and nothing was done.
fn change(entry: &Entry, word: u64, to: State, session: &Session, as_if_seen: Tick) -> bool {
    if !entry.seize(word) {
        return false;
    }
    if !entry.is_still(session) {
        entry.hand_back(word);
        return false;
    }
    // A packet that refreshed it meanwhile wins.
    let _ = entry.seen.compare_exchange(session.seen.0, as_if_seen.0, Ordering::Relaxed, Ordering::Relaxed);
    entry.replace(word | PENDING, word & !(STATE | u64::from(DOUBTED)) | u64::from(to.0) << 8)
}

#[inline]
fn find_in<'t>(line: &'t Line, key: &SessionKey) -> Option<&'t Entry> {
    line.entry.iter().find(|entry| {
        let word = entry.word.load(Ordering::Acquire);
        // Where the entry is reused meanwhile, the word may be the last session's and the address
        // the next one's.
        word & PENDING == 0
            && word & KEY == key.word()
            && entry.remote.load(Ordering::Acquire) == key.remote()
            && entry.word.load(Ordering::Acquire) & !(MARK | STATE) == word & !(MARK | STATE)
    })
}

/// Entries of a line that are free, or have expired.
fn room_in(line: &Line, lifetimes: &Lifetimes, now: Tick) -> usize {
    let is_free = |entry: &&Entry| {
        let word = entry.word.load(Ordering::Relaxed);
        word & !MARK == 0 || high(word) != 0 && entry.expired(word, lifetimes, now)
    };
    line.entry.iter().filter(is_free).count()
}

enum Settled<'t> {
    Mine,
    Theirs(&'t Entry),
    Again,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::BindingId;
    use crate::memory::Heap;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const HASH: HashKey = HashKey::new([101, 202, 303, 404]);
    const FOREVER: Lifetimes = Lifetimes([u32::MAX; 16]);
    const OPEN: State = State(1);
    const CLOSING: State = State(2);

    fn key(binding: u32, remote: u32) -> SessionKey {
        let [a, b, ..] = remote.to_be_bytes();
        SessionKey {
            binding: BindingId::new(binding).unwrap(),
            remote_ipv4: remote.to_be_bytes(),
            remote_port: [a ^ 9, b],
        }
    }

    fn count(sessions: &Sessions) -> usize {
        (0..sessions.lines()).map(|line| sessions.read_line(line).count()).sum()
    }

    proptest! {
        #[test]
        fn equals_a_naive_map(operations in prop::collection::vec((0..5_u8, 1..8_u32, 0..60_u32), 1..3000)) {
            let sessions = Sessions::new(&mut Heap, 400, HASH).unwrap();
            let mut model: HashMap<SessionKey, (State, Tick)> = HashMap::new();
            for (now, (operation, binding, remote)) in operations.into_iter().enumerate() {
                let now = Tick(u32::try_from(now).unwrap() + 1);
                let key = key(binding, remote);
                match operation {
                    0 | 1 => match sessions.insert(&key, OPEN, 0, &FOREVER, now) {
                        Inserted::New(_) => prop_assert!(model.insert(key, (OPEN, now)).is_none()),
                        Inserted::Existing(_) => prop_assert!(model.contains_key(&key)),
                        Inserted::Full => prop_assert!(false, "full at {} sessions", model.len()),
                    },
                    2 => {
                        let found = sessions.find(&key);
                        prop_assert_eq!(found.and_then(|s| Some((s.state()?, s.seen()))), model.get(&key).copied());
                        if let Some(session) = found {
                            session.refresh(now);
                            let _ = session.transition(OPEN, CLOSING);
                            model.insert(key, (CLOSING, now));
                        }
                    }
                    3 => {
                        sessions.sweep(0, sessions.lines(), |s| if s.key == key { Sweep::Remove } else { Sweep::Keep });
                        model.remove(&key);
                    }
                    _ => prop_assert_eq!(sessions.find(&key).is_some(), model.contains_key(&key)),
                }
            }
            prop_assert_eq!(count(&sessions), model.len());
            for line in 0..sessions.lines() {
                for (session, pending) in sessions.read_line(line) {
                    prop_assert!(!pending && sessions.is_home(&session.key, line));
                    prop_assert_eq!(model.get(&session.key), Some(&(session.state, session.seen)));
                }
            }
        }
    }

    #[test]
    fn the_promised_capacity_fits_and_nothing_is_lost_when_it_is_exceeded() {
        let sessions = Sessions::new(&mut Heap, 50_000, HASH).unwrap();
        let mut accepted = Vec::new();
        let mut refused = 0;
        for n in 0..70_000 {
            match sessions.insert(&key(1 + n % 10, n), OPEN, 0, &FOREVER, Tick(1)) {
                Inserted::New(_) => accepted.push(key(1 + n % 10, n)),
                Inserted::Existing(_) => panic!("no key comes twice"),
                Inserted::Full => refused += 1,
            }
            assert!(n >= 50_000 || refused == 0, "refused session {n} of 50000");
        }
        assert!(refused > 0 && sessions.overflowed() > 0);
        assert!(accepted.iter().all(|key| sessions.find(key).is_some()));
        sessions.sweep(0, sessions.lines(), |_| Sweep::Remove);
        assert_eq!((count(&sessions), sessions.overflowed()), (0, 0));
    }

    #[test]
    fn a_full_line_reuses_what_has_expired() {
        let sessions = Sessions::new(&mut Heap, 1000, HASH).unwrap();
        let brief = Lifetimes([10; 16]);
        for n in 0..20_000 {
            // 800 of them are alive at any time.
            let now = Tick(1 + n / 80);
            let inserted = sessions.insert(&key(1, n), OPEN, 0, &brief, now);
            assert!(matches!(inserted, Inserted::New(_)), "session {n} refused although old ones have expired");
        }
    }

    #[test]
    fn what_only_the_outside_has_sent_in_gives_way_to_the_inside() {
        let sessions = Sessions::new(&mut Heap, 10_000, HASH).unwrap();
        let answered: Vec<_> = (0..4000).map(|n| key(1, n)).collect();
        let mut refused = 0;
        for (number, key) in (0_u32..).zip(&answered) {
            // Every other one was opened from outside, and answered.
            let opened = sessions.insert(key, OPEN, if number % 2 == 0 { 0 } else { UNANSWERED }, &FOREVER, Tick(1));
            let Inserted::New(session) = opened else { panic!("full at a third of the room") };
            assert!(number % 2 == 0 || session.answer(OPEN, OPEN, 0) && !session.is_unanswered());
        }
        for n in 0..200_000 {
            refused +=
                u32::from(matches!(sessions.insert(&key(2, n), OPEN, UNANSWERED, &FOREVER, Tick(1)), Inserted::Full));
        }
        assert!(refused > 180_000 && sessions.overflowed() == 0, "{refused} refused, {} over", sessions.overflowed());
        // The inside has the room that it would have without the flood, nearly.
        for n in 0..4000 {
            assert!(matches!(sessions.insert(&key(3, n), OPEN, 0, &FOREVER, Tick(1)), Inserted::New(_)), "{n}");
        }
        assert!(answered.iter().all(|key| sessions.find(key).is_some()));
        assert!((0..4000).all(|n| sessions.find(&key(3, n)).is_some()));
        sessions.sweep(0, sessions.lines(), |_| Sweep::Remove);
        assert_eq!((count(&sessions), sessions.overflowed()), (0, 0));
    }

    #[test]
    fn of_writers_that_race_for_a_session_exactly_one_wins() {
        const KEYS: u32 = 40_000;
        let sessions = Sessions::new(&mut Heap, u64::from(KEYS), HASH).unwrap();
        let wins: Vec<usize> = std::thread::scope(|scope| {
            let writer = || {
                (0..KEYS)
                    .filter(|&n| {
                        matches!(sessions.insert(&key(1 + n % 7, n), OPEN, 0, &FOREVER, Tick(1)), Inserted::New(_))
                    })
                    .count()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(writer)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(wins.iter().sum::<usize>(), KEYS as usize);
        assert_eq!(count(&sessions), KEYS as usize);
    }

    #[test]
    fn creating_and_sweeping_at_once_keeps_what_is_in_use() {
        let sessions = Sessions::new(&mut Heap, 10_000, HASH).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // Everything of binding 1 goes, nothing of the others.
                    sessions.sweep(0, sessions.lines(), |s| {
                        if s.key.binding.get() == 1 { Sweep::Remove } else { Sweep::Keep }
                    });
                }
            });
            let writers: Vec<_> = (2..5_u32)
                .map(|binding| {
                    let sessions = &sessions;
                    scope.spawn(move || {
                        for n in 0..2000 {
                            let _ = sessions.insert(&key(1, n), OPEN, 0, &FOREVER, Tick(1));
                            assert!(matches!(
                                sessions.insert(&key(binding, n), OPEN, 0, &FOREVER, Tick(1)),
                                Inserted::New(_)
                            ));
                        }
                        assert!((0..2000).all(|n| sessions.find(&key(binding, n)).is_some()));
                    })
                })
                .collect();
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn what_a_living_writer_is_at_is_not_repaired_away() {
        let sessions = Sessions::new(&mut Heap, 100, HASH).unwrap();
        let word = word_of(&key(1, 1), OPEN, 0);
        let place = sessions.publish(&key(1, 1), word | PENDING, &FOREVER, Tick(1)).unwrap();
        // A program takes microseconds: it is done when the pause is over.
        sessions.repair(&mut || assert!(sessions.entry(place).replace(word | PENDING, word)));
        assert!(sessions.find(&key(1, 1)).is_some());
    }

    #[test]
    fn what_a_dead_writer_left_is_overruled_and_repaired() {
        let sessions = Sessions::new(&mut Heap, 100, HASH).unwrap();
        let half_done = sessions.publish(&key(1, 1), word_of(&key(1, 1), OPEN, 0) | PENDING, &FOREVER, Tick(1));
        assert!(half_done.is_some() && sessions.find(&key(1, 1)).is_none());
        sessions.repair(&mut || ());
        assert_eq!(count(&sessions), 0);
        let _ = sessions.publish(&key(1, 1), word_of(&key(1, 1), OPEN, 0) | PENDING, &FOREVER, Tick(1));
        assert!(matches!(sessions.insert(&key(1, 1), OPEN, 0, &FOREVER, Tick(2)), Inserted::New(_)));
        assert_eq!(count(&sessions), 1);
    }
}

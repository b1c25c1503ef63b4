//! What the programs in the kernel do with the tables (`crates/fastpath/bpf`), step by step, for the
//! model checker: the same accesses in the same order, under the rules that `base.h` names. Plain
//! loads and stores are ordered as the processor orders them: loads stay in order, and so do
//! stores. Exchanges are `lock` instructions, over which nothing moves.
//!
//! A change there is to be made here, too.

use crate::arena::{Arena, BUILDING, FREE, GENERATION, LIFE_WORD, LIVE, ONE_GENERATION, OPENING, STAGE, Stored, WORDS};
use crate::atomic::{AtomicU32, AtomicU64, Ordering, fully_ordered};
use crate::binding::{Binding, BindingId, InsideKey};
use crate::changes::Changes;
use crate::entry::{CLAIMED, Entry, Lifetimes, Line, MARK, PENDING, STATE, SessionKey, State};
use crate::hash::Hash;
use crate::index::{ID, Index, PENDING as INDEX_PENDING};
use crate::outside::CLOSED;
use crate::shortcut::{HOLDS, LEAD, SUBSCRIBER, TICK};
use crate::subscriber::{BLOCKS_WORD, COUNTS_WORD, Subscriber, SubscriberId, SubscriberKey};
use crate::tables::{Candidate, Keeper, Tables};
use crate::tick::Tick;

/// The macro `READ`.
#[track_caller]
fn read(word: &AtomicU64) -> u64 {
    word.load(Ordering::Acquire)
}

/// The macro `WRITE`.
#[track_caller]
fn write(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
}

/// The macro `SWAP`.
#[track_caller]
fn swap(word: &AtomicU64, from: u64, to: u64) -> bool {
    fully_ordered();
    let swapped = word.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    fully_ordered();
    swapped
}

#[track_caller]
fn add(word: &AtomicU64, number: u64) {
    fully_ordered();
    word.fetch_add(number, Ordering::SeqCst);
    fully_ordered();
}

fn is_readable(life: u64) -> bool {
    matches!(life & STAGE, LIVE | OPENING)
}

/// `index.h`
impl Index {
    fn find_tag(&self, bucket: u32, tag: u32) -> Option<u32> {
        let entries = &self.buckets[bucket as usize].entry;
        entries.iter().map(read).find(|word| word >> 31 == u64::from(tag) << 1).map(|word| (word & ID) as u32)
    }

    fn find_by_tag(&self, hash: Hash) -> Option<u32> {
        let [first, second] = hash.buckets(self.buckets());
        self.find_tag(first, hash.tag()).or_else(|| self.find_tag(second, hash.tag()))
    }

    fn insert_entry(&self, hash: Hash, id: u32) -> bool {
        let [first, second] = hash.buckets(self.buckets());
        let entries = |bucket: u32| &self.buckets[bucket as usize].entry;
        let free = |bucket| entries(bucket).iter().filter(|entry| read(entry) >> 1 == 0).count();
        let live = u64::from(hash.tag()) << 32 | u64::from(id);
        let chosen = if free(first) < free(second) { second } else { first };
        let mine = entries(chosen).iter().find(|entry| read(entry) == 0 && swap(entry, 0, live | INDEX_PENDING));
        let Some(mine) = mine else { return false };
        let with = |bucket| entries(bucket).iter().filter(|entry| read(entry) >> 32 == u64::from(hash.tag())).count();
        let count = with(first) + if first == second { 0 } else { with(second) };
        if count > 1 {
            swap(mine, live | INDEX_PENDING, 0);
            return false;
        }
        swap(mine, live | INDEX_PENDING, live)
    }
}

/// `arena.h`, and what `binding.h` does with a record's life.
impl<T: Stored> Arena<T> {
    fn life(&self, id: u32) -> &AtomicU64 {
        &self.cells[id as usize].0[LIFE_WORD]
    }

    fn touch_in_kernel(&self, id: u32, now: Tick) -> bool {
        (0..4).any(|_| {
            let life = read(self.life(id));
            is_readable(life)
                && (life >> 32 >= u64::from(now.0)
                    || swap(self.life(id), life, life & 0xffff_ffff | u64::from(now.0) << 32))
        })
    }

    fn settle_in_kernel(&self, id: u32) {
        for _ in 0..8 {
            let life = read(self.life(id));
            if life & STAGE != OPENING || swap(self.life(id), life, life & !STAGE | LIVE) {
                return;
            }
        }
    }

    fn claim_in_kernel(&self) -> Option<u32> {
        let word = &self.used[0];
        let taken = read(word) | 1;
        let bit = taken.trailing_ones();
        if bit > self.capacity() {
            return None;
        }
        fully_ordered();
        let before = word.fetch_or(1 << bit, Ordering::SeqCst);
        fully_ordered();
        if before >> bit & 1 != 0 {
            return None;
        }
        write(self.life(bit), (read(self.life(bit)).wrapping_add(ONE_GENERATION) & GENERATION) | BUILDING);
        Some(bit)
    }

    fn free_in_kernel(&self, id: u32) {
        write(self.life(id), read(self.life(id)) & GENERATION | FREE);
        fully_ordered();
        self.used[0].fetch_and(!(1 << id), Ordering::SeqCst);
        fully_ordered();
    }

    fn publish_in_kernel(&self, id: u32, value: &T, now: Tick) {
        for (n, word) in value.to_words().into_iter().enumerate().filter(|&(n, _)| n != LIFE_WORD) {
            write(&self.cells[id as usize].0[n], word);
        }
        let life = read(self.life(id)) & GENERATION | OPENING | u64::from(now.0) << 32;
        write(self.life(id), life);
    }

    /// `look_at_binding`, the fields, `is_still_bound`.
    fn look_in_kernel(&self, id: u32) -> Option<T> {
        let before = read(self.life(id));
        if !is_readable(before) {
            return None;
        }
        let cell = &self.cells[id as usize].0;
        let words: [u64; WORDS] = std::array::from_fn(|n| if n == LIFE_WORD { 0 } else { read(&cell[n]) });
        let after = read(self.life(id));
        (is_readable(after) && (before ^ after) & GENERATION == 0).then(|| T::from_words(words))
    }
}

/// `note_change` in `binding.h`
impl Changes {
    fn note_in_kernel(&self, id: u32) {
        if !self.are_noted() {
            return;
        }
        let or = |word: &AtomicU64, bit: u64| {
            fully_ordered();
            let before = word.fetch_or(bit, Ordering::SeqCst);
            fully_ordered();
            before
        };
        // A model has few records: one word.
        let (word, summary) = (&self.words[0], &self.summary[0]);
        if or(word, 1 << id) >> id & 1 == 0 && read(summary) & 1 == 0 {
            or(summary, 1);
        }
    }
}

/// `session.h`
fn has_expired(entry: &Entry, word: u64, lifetimes: &Lifetimes, now: Tick) -> bool {
    let seen = Tick(entry.seen.load(Ordering::Acquire));
    word >> 32 != 0
        && word & (PENDING | u64::from(crate::entry::COUNTED)) == 0
        && now.since(seen) >= lifetimes.of(State((word >> 8) as u8))
}

fn replace_word(entry: &Entry, from: u64, to: u64) -> bool {
    for _ in 0..3 {
        let word = read(&entry.word);
        if (word ^ from) & !MARK != 0 {
            return false;
        }
        if swap(&entry.word, word, to & !MARK | word & MARK) {
            return true;
        }
    }
    false
}

fn take_over(entry: &Entry, word: u64, lifetimes: &Lifetimes, now: Tick) -> bool {
    if !replace_word(entry, word, word | PENDING) {
        return false;
    }
    if has_expired(entry, word, lifetimes, now) {
        return replace_word(entry, word | PENDING, CLAIMED);
    }
    replace_word(entry, word | PENDING, word);
    false
}

fn claim_in<'t>(line: &'t Line, lifetimes: &Lifetimes, now: Tick) -> Option<(&'t Entry, bool)> {
    let free = line.entry.iter().find(|entry| {
        let word = read(&entry.word);
        word & !MARK == 0 && swap(&entry.word, word, CLAIMED | word & MARK)
    });
    free.map(|entry| (entry, false)).or_else(|| {
        let reused = line.entry.iter().find(|entry| {
            let word = read(&entry.word);
            has_expired(entry, word, lifetimes, now) && take_over(entry, word, lifetimes, now)
        });
        reused.map(|entry| (entry, true))
    })
}

/// `shortcuts` in `shortcut.h`: one of them, and who `known_hosts` has under its subscriber's number.
#[derive(Debug, Default)]
pub struct Shortcut {
    word: AtomicU64,
    host: AtomicU64,
}

impl Shortcut {
    /// The host's first address, in one word.
    #[must_use]
    pub fn host(&self) -> u64 {
        read(&self.host)
    }
}

/// A program at the tables.
#[derive(Debug, Clone, Copy)]
pub struct Program<'t>(pub &'t Tables);

impl Program<'_> {
    /// `find_inside`, `is_still_bound`
    #[must_use]
    pub fn find_inside(&self, key: &InsideKey) -> Option<(BindingId, Binding)> {
        let hash = self.0.key.hash(key.words());
        let id = self.find_at_home(hash, key).or_else(|| self.0.inside_index.find_by_tag(hash))?;
        let binding = self.0.bindings.look_in_kernel(id)?;
        (binding.inside == *key).then_some((BindingId::new(id)?, binding))
    }

    /// `find_at_home`
    fn find_at_home(&self, hash: Hash, key: &InsideKey) -> Option<u32> {
        let bindings = &self.0.bindings;
        let numbers = hash.buckets(bindings.pairs()).into_iter().flat_map(|pair| [pair * 2, pair * 2 + 1]);
        let is_there = |&number: &u32| {
            let cell = &bindings.cells[number as usize].0;
            let words = std::array::from_fn(|n| if n < LIFE_WORD { read(&cell[n]) } else { 0 });
            Binding::from_words(words).inside == *key && read(&cell[LIFE_WORD]) & STAGE == LIVE
        };
        numbers.filter(|&number| number != 0 && number <= bindings.capacity()).find(is_there)
    }

    /// `find_outside`, `is_still_bound`
    #[must_use]
    pub fn find_outside(&self, slot: u32) -> Option<(BindingId, Binding)> {
        let word = self.0.outside.slots.get(slot as usize)?.load(Ordering::Acquire);
        let id = BindingId::new(word).filter(|_| word & CLOSED == 0)?;
        let binding = self.0.bindings.look_in_kernel(id.get())?;
        (binding.outside_slot == slot).then_some((id, binding))
    }

    /// `use_subscriber` in `bind.h`
    fn use_subscriber(&self, key: &SubscriberKey, now: Tick) -> Option<SubscriberId> {
        let subscribers = &self.0.subscribers;
        let id = self.0.subscriber_index.find_by_tag(self.0.key.hash(key.words()))?;
        let is_subscriber = || {
            let cell = &subscribers.cells[id as usize].0;
            let words = std::array::from_fn(|n| if n < LIFE_WORD { read(&cell[n]) } else { 0 });
            Subscriber::from_words(words).key == *key
        };
        let is_found = is_subscriber() && is_readable(read(subscribers.life(id)));
        (is_found && subscribers.touch_in_kernel(id, now) && is_subscriber()).then(|| SubscriberId::new(id))?
    }

    /// `bind` in `bind.h`, for a subscriber with blocks of ports: `drawn` is what it draws in a block.
    #[must_use]
    pub fn bind_in_block(
        &self,
        subscriber: &SubscriberKey,
        template: &Binding,
        drawn: impl Fn(u16) -> Candidate,
        now: Tick,
    ) -> Option<BindingId> {
        let subscriber = self.use_subscriber(subscriber, now)?;
        let blocks = read(self.0.subscribers.word(subscriber, BLOCKS_WORD));
        let block = u16::try_from(blocks & 0xffff).ok()?.checked_sub(1)?;
        self.bind_for(&Binding { subscriber: subscriber.get(), ..*template }, &[drawn(block)], 0, now)
    }

    /// `bind` in `bind.h`, for a subscriber that was found, with the ports that were drawn.
    #[must_use]
    pub fn bind(&self, template: &Binding, drawn: &[Candidate], reuse_after: u32, now: Tick) -> Option<BindingId> {
        let is_there = self.0.subscribers.touch_in_kernel(template.subscriber, now);
        is_there.then(|| self.bind_for(template, drawn, reuse_after, now))?
    }

    /// `bind_for`
    fn bind_for(&self, template: &Binding, drawn: &[Candidate], reuse_after: u32, now: Tick) -> Option<BindingId> {
        let bindings = &self.0.bindings;
        let subscriber = SubscriberId::new(template.subscriber)?;
        let id = bindings.claim_in_kernel()?;
        let claimed = drawn.iter().find(|candidate| self.claim_slot(candidate.slot, id, reuse_after, now));
        let Some(candidate) = claimed else {
            bindings.free_in_kernel(id);
            return None;
        };
        let binding = Binding {
            outside_ipv4: candidate.ipv4,
            outside_port: candidate.port,
            outside_slot: candidate.slot,
            created: now,
            ..*template
        };
        let counts = self.0.subscribers.word(subscriber, COUNTS_WORD);
        add(counts, 1);
        bindings.publish_in_kernel(id, &binding, now);
        if self.0.inside_index.insert_entry(self.0.key.hash(binding.inside.words()), id) {
            bindings.settle_in_kernel(id);
            self.0.changed_bindings.note_in_kernel(id);
            return BindingId::new(id);
        }
        add(counts, u64::MAX);
        swap_slot(&self.0.outside.slots[candidate.slot as usize], id, 0);
        bindings.free_in_kernel(id);
        None
    }

    fn claim_slot(&self, slot: u32, id: u32, reuse_after: u32, now: Tick) -> bool {
        let place = &self.0.outside.slots[slot as usize];
        let word = place.load(Ordering::Acquire);
        let is_taken = word != 0 && word & CLOSED == 0;
        let is_kept_back = word != 0 && now.since(Tick(word & !CLOSED)) < reuse_after;
        !is_taken && !is_kept_back && swap_slot(place, word, id)
    }

    /// `keep` in `napt.h`: a packet uses the binding that was found.
    #[must_use]
    pub fn keep(&self, id: BindingId, binding: &Binding, keeper: Keeper, now: Tick) -> bool {
        let bindings = &self.0.bindings;
        if let Keeper::Outside { alone_after, budget, .. } = keeper {
            let subscriber = SubscriberId::new(binding.subscriber);
            let is_over = |id| self.0.subscribers.unanswered(id) >= budget;
            if now.since(bindings.seen(id)) >= alone_after && subscriber.is_some_and(is_over) {
                return true;
            }
        }
        let life = bindings.life(id.get());
        let until = match keeper {
            Keeper::Inside => now,
            Keeper::Outside { ahead, .. } => Tick(now.0 + ahead),
        };
        if read(life) >> 32 < u64::from(until.0) {
            // A store of the upper half, whatever the lower one is by then: the model has whole words
            // only.
            let touched = |life: u64| Some(life & 0xffff_ffff | u64::from(until.0) << 32);
            let _ = life.fetch_update(Ordering::Release, Ordering::Relaxed, touched);
        }
        if keeper == Keeper::Inside {
            bindings.see(id, now);
        }
        // `is_still_bound`
        bindings.look_in_kernel(id.get()) == Some(*binding)
    }

    /// `inbound` in `napt.h`, with `shortcut_by` of `shortcut.h`: the outside keeps the binding that was found, and leaves a
    /// shortcut.
    pub fn leave_shortcut(&self, shortcut: &Shortcut, id: BindingId, binding: &Binding, keeper: Keeper, now: Tick) {
        if !self.keep(id, binding, keeper, now) {
            return;
        }
        let bindings = &self.0.bindings;
        let life = read(bindings.life(id.get()));
        if life & STAGE != LIVE || life >> 32 < u64::from(now.0 + LEAD) {
            return;
        }
        let is_still_bound = || bindings.look_in_kernel(id.get()) == Some(*binding);
        let host = binding.inside.words()[0];
        if read(&shortcut.host) != host {
            if !self.0.subscribers.touch_in_kernel(binding.subscriber, now) || !is_still_bound() {
                return;
            }
            write(&shortcut.host, host);
        }
        if is_still_bound() {
            write(&shortcut.word, u64::from(now.0) << TICK | u64::from(binding.subscriber) << SUBSCRIBER);
        }
    }

    /// `take_shortcut`: whether a packet may go by it.
    #[must_use]
    pub fn may_take_shortcut(&self, shortcut: &Shortcut, now: Tick) -> bool {
        let word = read(&shortcut.word);
        let tick = word >> TICK;
        word != 0 && u64::from(now.0) - tick <= HOLDS.into() && tick > read(self.0.bindings.shortcuts_ended())
    }

    /// `open` in `napt.h`: the binding was found, and no session.
    #[must_use]
    pub fn open(&self, key: &SessionKey, state: State, lifetimes: &Lifetimes, now: Tick) -> bool {
        self.0.bindings.touch_in_kernel(key.binding.get(), now) && self.open_session(key, state, lifetimes, now)
    }

    /// The same for `binding`, of TCP: its first session lies in its record.
    #[must_use]
    pub fn open_tcp(
        &self,
        key: &SessionKey,
        binding: &Binding,
        state: State,
        lifetimes: &Lifetimes,
        now: Tick,
    ) -> bool {
        if !self.0.bindings.touch_in_kernel(key.binding.get(), now) {
            return false;
        }
        let live = key.first_word() | u64::from(state.0) << 8;
        let opened = match self.open_first(key, live, now) {
            Some(opened) => opened,
            None => self.open_session(key, state, lifetimes, now),
        };
        if opened && self.0.bindings.look_in_kernel(key.binding.get()) != Some(*binding) {
            swap(self.0.bindings.place_of_first(key.binding).word, live, key.first_word());
            return false;
        }
        opened
    }

    /// `open_first` in `first.h`; nothing if another session is, or was, the first.
    fn open_first(&self, key: &SessionKey, live: u64, now: Tick) -> Option<bool> {
        let first = self.0.bindings.place_of_first(key.binding);
        let word = read(first.word);
        if word != 0 && (word ^ key.first_word()) >> 16 != 0 {
            return None;
        }
        if word & STATE != 0 {
            return Some(false);
        }
        first.change_seen(first.seen(), now);
        Some(swap(first.word, word, live))
    }

    /// `open_session`, and `open_in_overflow`.
    #[must_use]
    pub fn open_session(&self, key: &SessionKey, state: State, lifetimes: &Lifetimes, now: Tick) -> bool {
        let sessions = &self.0.sessions;
        let [a, b, c, d] = sessions.lines_of(key);
        let claim =
            |lines: [usize; 2]| lines.into_iter().find_map(|line| claim_in(sessions.line(line), lifetimes, now));
        if let Some((entry, _)) = claim([a, b]) {
            return self.fill_entry(entry, key, state, now);
        }
        let overflowed = &sessions.overflowed[0];
        add(overflowed, 1);
        let last = sessions.line(a).entry.last();
        fully_ordered();
        last.iter().for_each(|entry| _ = entry.word.fetch_or(MARK, Ordering::SeqCst));
        fully_ordered();
        let claimed = claim([c, d]);
        if claimed.is_none_or(|(_, reused)| reused) {
            add(overflowed, u64::MAX);
        }
        let Some((entry, _)) = claimed else { return false };
        let made = self.fill_entry(entry, key, state, now);
        if !made {
            add(overflowed, u64::MAX);
        }
        made
    }

    fn fill_entry(&self, entry: &Entry, key: &SessionKey, state: State, now: Tick) -> bool {
        let live = key.word() | u64::from(state.0) << 8;
        entry.remote.store(key.remote(), Ordering::Release);
        entry.seen.store(now.0, Ordering::Release);
        if !replace_word(entry, CLAIMED, live | PENDING) {
            return false;
        }
        let sessions = &self.0.sessions;
        let [a, b, c, d] = sessions.lines_of(key);
        let mut lines = vec![a];
        lines.extend((b != a).then_some(b));
        if sessions.line(a).entry.last().is_some_and(|entry| read(&entry.word) & MARK != 0) {
            lines.push(c);
            lines.extend((d != c).then_some(d));
        }
        let has_key = |entry: &&Entry| {
            (read(&entry.word) ^ key.word()) >> 16 == 0 && entry.remote.load(Ordering::Acquire) == key.remote()
        };
        let count: usize = lines.iter().map(|&line| sessions.line(line).entry.iter().filter(has_key).count()).sum();
        if count > 1 {
            replace_word(entry, live | PENDING, 0);
            return false;
        }
        replace_word(entry, live | PENDING, live)
    }
}

#[track_caller]
fn swap_slot(place: &AtomicU32, from: u32, to: u32) -> bool {
    fully_ordered();
    let swapped = place.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    fully_ordered();
    swapped
}

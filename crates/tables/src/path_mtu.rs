//! Paths whose MTU is less than their service was told: what a router on the way has said in a "packet
//! too big" (RFC 8201), for as long as that is believed.
//!
//! ```text
//! line     | address 16 | until (tick, 32) mtu (32) | unused 40 |       two candidate lines a path
//! watch    | the latest `until` of all |                               0: none is known
//! ```
//!
//! Most gateways never hear of one, and no path has less than 1280 bytes. So only who has a larger
//! packet asks, and finds in one word, which stays in the cache, that there is nothing to know.
//!
//! There is room for a bounded number; the one that would be forgotten soonest makes room. A path that
//! was forgotten is heard of again.
//!
//! Writers of one process take a lock. Readers, the programs in the kernel among them, take none: the
//! word is 0 while its line changes, and is read again behind the address.

use std::sync::{Mutex, PoisonError};

use crate::atomic::{AtomicU64, Ordering};
use crate::binding::halves;
use crate::hash::HashKey;
use crate::memory::{MemoryError, MemorySource, Record, Slab};
use crate::tick::{Tick, ticks};

tombolo_records::constants! {
    /// Lines of paths. Models make tables anew for each execution, and hear of no paths.
    pub(crate) const PATHS: u32 as PATHS_MAX = if cfg!(loom) { 2 } else { 1024 };
}

/// Seconds that a path's MTU is believed (RFC 8201 section 4: at least five minutes, ten are recommended).
pub const BELIEVED: u32 = 600;

tombolo_records::records! {
    /// A path.
    line pub(crate) struct PathLine as path_line {
        /// Where it leads, as on the wire.
        address: [AtomicU64; 2],
        /// Until which tick this is believed, and the MTU in bytes; 0 if nothing is known.
        known: AtomicU64,
        unused: [AtomicU64; 5],
    }
}

// SAFETY: atomics.
unsafe impl Record for PathLine {}

/// The paths that are known.
#[derive(Debug)]
pub struct PathMtus {
    lines: Slab<PathLine>,
    watch: Slab<AtomicU64>,
    key: HashKey,
    writing: Mutex<()>,
}

impl PathMtus {
    /// Nothing is known of any path.
    ///
    /// # Errors
    /// [`MemoryError`] if `source` does not have the memory.
    pub fn new(source: &mut dyn MemorySource, key: HashKey) -> Result<Self, MemoryError> {
        Ok(Self {
            lines: Slab::take(source, "path-mtus", PATHS as usize)?,
            watch: Slab::take(source, "path-mtu-watch", 1)?,
            key,
            writing: Mutex::new(()),
        })
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lines.bytes() + self.watch.bytes()
    }

    /// The MTU of the path to `address`, in bytes, if it is known to be small.
    #[inline]
    #[must_use]
    pub fn of(&self, address: [u8; 16], now: Tick) -> Option<u32> {
        if self.watch[0].load(Ordering::Acquire) <= u64::from(now.0) { None } else { self.look_up(address, now) }
    }

    /// How many are known.
    #[must_use]
    pub fn count(&self, now: Tick) -> usize {
        self.lines.iter().filter(|line| until(line.known.load(Ordering::Relaxed)) > now).count()
    }

    /// The path to `address` takes `mtu` bytes, a router says. True if that is news: a path never grows
    /// by what is said (RFC 8201 section 4), only by being forgotten.
    pub fn learn(&self, address: [u8; 16], mtu: u32, now: Tick) -> bool {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let words = halves(address);
        let lines = self.places(words).map(|place| &self.lines[place]);
        let known = |line: &PathLine| line.known.load(Ordering::Relaxed);
        let has_it = |line: &&&PathLine| until(known(line)) > now && line.address() == words;
        let line = match lines.iter().find(has_it) {
            Some(line) if mtu_of(known(line)) < mtu => return false,
            Some(line) => line,
            None if until(known(lines[1])) < until(known(lines[0])) => lines[1],
            None => lines[0],
        };
        let is_news = line.address() != words || known(line) == 0 || mtu_of(known(line)) != mtu;
        let until = now.0.saturating_add(ticks(BELIEVED));
        line.known.store(0, Ordering::Release);
        for (place, word) in line.address.iter().zip(words) {
            place.store(word, Ordering::Release);
        }
        line.known.store(u64::from(until) << 32 | u64::from(mtu), Ordering::Release);
        self.watch[0].fetch_max(u64::from(until), Ordering::Release);
        is_news
    }

    #[cold]
    fn look_up(&self, address: [u8; 16], now: Tick) -> Option<u32> {
        let words = halves(address);
        self.places(words).into_iter().find_map(|place| {
            let line = &self.lines[place];
            let before = line.known.load(Ordering::Acquire);
            let is_it = until(before) > now && line.address() == words;
            (is_it && line.known.load(Ordering::Acquire) == before).then_some(mtu_of(before))
        })
    }

    fn places(&self, [first, second]: [u64; 2]) -> [usize; 2] {
        self.key.hash([first, second, 0]).buckets(PATHS).map(|place| place as usize)
    }
}

impl PathLine {
    fn address(&self) -> [u64; 2] {
        [self.address[0].load(Ordering::Acquire), self.address[1].load(Ordering::Acquire)]
    }
}

const fn until(known: u64) -> Tick {
    Tick((known >> 32) as u32)
}

#[expect(clippy::cast_possible_truncation, reason = "the half is taken on purpose")]
const fn mtu_of(known: u64) -> u32 {
    known as u32
}

#[cfg(all(test, not(loom)))]
#[expect(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;
    use crate::memory::Heap;

    fn paths() -> PathMtus {
        PathMtus::new(&mut Heap, HashKey::new([1, 2, 3, 4])).unwrap()
    }

    fn address(n: u32) -> [u8; 16] {
        let mut address = [0x20; 16];
        address[12..].copy_from_slice(&n.to_be_bytes());
        address
    }

    #[test]
    fn a_path_shrinks_when_told_and_grows_by_being_forgotten() {
        let paths = paths();
        let now = Tick(100);
        assert_eq!(paths.of(address(1), now), None);
        assert!(paths.learn(address(1), 1400, now));
        assert!(!paths.learn(address(1), 1400, now), "no news");
        assert!(!paths.learn(address(1), 1450, now), "told to grow");
        assert_eq!(paths.of(address(1), now), Some(1400));
        assert!(paths.learn(address(1), 1280, now));
        assert_eq!((paths.of(address(1), now), paths.of(address(2), now)), (Some(1280), None));
        let believed = Tick(now.0 + 558); // 600 s in ticks of 1.07 s
        assert_eq!(paths.of(address(1), believed), Some(1280));
        let forgotten = Tick(now.0 + ticks(BELIEVED));
        assert_eq!(paths.of(address(1), forgotten), None);
        assert!(paths.learn(address(1), 1450, forgotten), "it may have grown by now");
    }

    #[test]
    fn whoever_names_many_paths_pushes_out_what_would_go_first() {
        let paths = paths();
        for n in 0..100_000 {
            paths.learn(address(n), 1300, Tick(1 + n / 1000));
        }
        let now = Tick(101);
        assert!((800..=PATHS as usize).contains(&paths.count(now)), "{}", paths.count(now));
        assert!((99_900..100_000).filter(|n| paths.of(address(*n), now) == Some(1300)).count() > 90);
        assert_eq!(paths.of(address(100_001), now), None);
    }

    #[test]
    fn readers_never_take_one_path_for_another() {
        let paths = paths();
        std::thread::scope(|scope| {
            // Each path's MTU is its own number: whatever is read under an address must be that.
            scope.spawn(|| (0..300_000).for_each(|n| _ = paths.learn(address(n % 5000), 1280 + n % 5000, Tick(1 + n))));
            for _ in 0..2 {
                scope.spawn(|| {
                    for n in 0..300_000 {
                        if let Some(mtu) = paths.of(address(n % 5000), Tick(1)) {
                            assert_eq!(mtu, 1280 + n % 5000);
                        }
                    }
                });
            }
        });
    }
}

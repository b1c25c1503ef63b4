//! Packets shown as they pass, with what became of them: for `trace`, and for drops as they happen.
//!
//! ```text
//! workers (Observer) --+--> Tap: is it wanted? is there room? --> a queue --> the client's thread
//! programs (Sighting) -+        else it is counted
//! ```
//!
//! Nobody waits for whoever looks on: a packet that is wanted and finds no room in the queue, or comes when
//! so many lines of this second have been shown, is counted and not shown. While nobody looks on, workers
//! have nothing to ask: they look for taps when there is another plan, and whoever opens or closes a
//! tap puts the same one in its place (`Running::follow_taps`). The programs that show packets are others
//! than the ordinary ones, and are loaded for as long as somebody wants to see what they forward.
//!
//! * [`summary`]: a packet's headers, out of its first bytes. [`seen`]: a packet, and what became of it.
//!   [`wanted`]: which are shown.
//! * `observer`: the workers' side.

pub(crate) mod observer;
pub mod seen;
pub mod summary;
pub mod wanted;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use tombolo_engine::Plan;
use tombolo_fastpath::tap::{SHOWN, Sighting, Watch};

use seen::{Bytes, Seen};
use wanted::Wanted;

/// Taps at a time.
pub const MOST: usize = 8;
/// Lines that wait for the client at most.
const WAITING: usize = 1024;
/// Bytes of a packet that are kept where packets themselves are wanted.
pub const KEPT: usize = 2048;

/// Somebody who looks on.
#[derive(Debug)]
pub struct Tap {
    wanted: Wanted,
    /// Lines that may still be shown in this second.
    allowance: AtomicU32,
    lost: AtomicU64,
    is_closed: AtomicBool,
    lines: SyncSender<Seen>,
}

impl Tap {
    /// One that shows what is `wanted`, and where it comes out.
    #[must_use]
    pub fn new(wanted: Wanted) -> (Arc<Self>, Receiver<Seen>) {
        let (lines, out) = sync_channel(WAITING);
        let (allowance, lost, is_closed) = (AtomicU32::new(0), AtomicU64::new(0), AtomicBool::new(false));
        (Arc::new(Self { wanted, allowance, lost, is_closed, lines }), out)
    }

    /// A second begins, in which so many lines may be shown.
    pub fn allow(&self, lines: u32) {
        self.allowance.store(lines, Ordering::Relaxed);
    }

    /// Packets that were wanted and not shown, since the last call.
    #[must_use]
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Counts packets that were not shown.
    pub(crate) fn lose(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
    }

    /// Shows a packet, if it is wanted and there is room. `whole` are its bytes and their number.
    fn offer(&self, plan: &Plan, seen: &Seen, whole: Option<(&[u8], usize)>) {
        if self.is_closed.load(Ordering::Relaxed) || !self.wanted.matches(plan, seen) {
            return;
        }
        let may = |left: u32| left.checked_sub(1);
        if self.allowance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, may).is_err() {
            return self.lose(1);
        }
        let mut line = seen.clone();
        if let Some((first, length)) = whole.filter(|_| self.wanted.bytes) {
            line.bytes = Some(Bytes { first: first.to_vec(), length });
        }
        if self.lines.try_send(line).is_err() {
            self.lose(1);
        }
    }
}

/// All taps that are open, as workers have them.
pub(crate) type Open = Arc<[Arc<Tap>]>;

/// Who looks on.
#[derive(Debug, Default)]
pub struct Taps(Mutex<Open>);

impl Taps {
    /// All of them.
    pub(crate) fn open(&self) -> Open {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One more. False if there are enough.
    pub(crate) fn add(&self, tap: &Arc<Tap>) -> bool {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MOST {
            return false;
        }
        *open = open.iter().chain([tap]).cloned().collect();
        true
    }

    /// One less.
    pub(crate) fn remove(&self, tap: &Arc<Tap>) {
        tap.is_closed.store(true, Ordering::Relaxed);
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *open = open.iter().filter(|other| !Arc::ptr_eq(other, tap)).cloned().collect();
    }

    /// What the programs are to show; `None` if nobody wants anything of them.
    pub(crate) fn watch(&self, plan: &Plan) -> Option<Watch> {
        let watches = self.open().iter().filter_map(|tap| tap.wanted.watch(plan)).collect::<Vec<_>>();
        let (first, others) = watches.split_first()?;
        let mut all = first.clone();
        for other in others {
            let takes_any = all.any.is_empty() || other.any.is_empty();
            all.any.extend(other.any.iter().copied());
            if takes_any {
                all.any.clear();
            }
            all.space = all.space.filter(|space| other.space == Some(*space));
            all.port = all.port.filter(|port| other.port == Some(*port));
        }
        Some(all)
    }

    /// Shows what a program has seen to those who want to see it.
    pub(crate) fn show(&self, plan: &Plan, sighting: &Sighting<'_>) {
        let seen = Seen::by_program(sighting);
        self.open().iter().for_each(|tap| tap.offer(plan, &seen, None));
    }

    /// Counts packets that programs did not show.
    pub(crate) fn lose(&self, count: u64) {
        self.open().iter().filter(|tap| !tap.wanted.drops).for_each(|tap| tap.lose(count));
    }
}

/// Bytes of a packet that are looked at for some taps.
fn kept(taps: &[Arc<Tap>]) -> usize {
    if taps.iter().any(|tap| tap.wanted.bytes) { KEPT } else { SHOWN }
}

//! loom's atomics, with four things added.
//!
//! * *Sequential consistency.* loom takes a `SeqCst` access for `AcqRel`, and would report the rule
//!   by which two writers see each other (publish, then look) as broken. What the rule needs is that
//!   a `SeqCst` load does not overtake an earlier `SeqCst` write of its thread; so such a load begins
//!   with the fence that loom does know. Neither end alone makes a fence: where one of the two is
//!   weakened, the rule is seen to break.
//! * *Death.* [`die_after`] ends an operation before any chosen step.
//! * *Every order.* See [`Turn`].
//! * *Weakening.* Each ordering is known by its place in the source ([`super::weaken`]).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};

use loom::sync::atomic as looms;

use super::weaken::{Kind, weakened};

loom::thread_local! {
    /// Steps until the thread dies; `None` for one that lives on.
    static STEPS_LEFT: Cell<Option<u32>> = Cell::new(None);
    /// The thread wrote with `SeqCst` since its last fence.
    static WROTE_IN_ORDER: Cell<bool> = Cell::new(false);
}

/// What the thread of [`die_after`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It ended before it had used up its steps.
    Finished(T),
    /// It was cut off.
    Died,
}

struct Death;

/// Runs `operation` for `steps` steps (loads, stores, exchanges); the next one is never made.
pub fn die_after<T>(steps: u32, operation: impl FnOnce() -> T) -> Outcome<T> {
    STEPS_LEFT.with(|left| left.set(Some(steps)));
    let result = catch_unwind(AssertUnwindSafe(operation));
    STEPS_LEFT.with(|left| left.set(None));
    match result {
        Ok(result) => Outcome::Finished(result),
        Err(death) if death.is::<Death>() => Outcome::Died,
        Err(other) => resume_unwind(other),
    }
}

fn step(turn: &Turn) {
    STEPS_LEFT.with(|left| match left.get() {
        None => {}
        Some(0) => resume_unwind(Box::new(Death)),
        Some(steps) => left.set(Some(steps - 1)),
    });
    turn.0.notify_one();
}

/// Tells loom of every access to an atomic. By itself it remembers the last access alone: where a
/// thread reads a word and then exchanges it, as everything here does, what another thread read or
/// wrote before is forgotten, and the order in which the exchange comes first is never tried. A
/// notification that nobody waits for is an access like any other, and has no effect on memory.
#[derive(Debug)]
struct Turn(loom::sync::Condvar);

impl Default for Turn {
    fn default() -> Self {
        Self(loom::sync::Condvar::new())
    }
}

/// Orders everything before against everything after, as `lock` instructions and the exchanges of
/// BPF do.
pub fn fully_ordered() {
    WROTE_IN_ORDER.with(|wrote| wrote.set(false));
    looms::fence(SeqCst);
}

#[track_caller]
pub(crate) fn fence(order: Ordering) {
    match weakened(Kind::Fence, order, Location::caller()) {
        Relaxed => {}
        order => looms::fence(order),
    }
}

/// Before a load.
fn in_order(order: Ordering) -> Ordering {
    if order == SeqCst && WROTE_IN_ORDER.with(Cell::get) {
        fully_ordered();
    }
    order
}

/// Before a write.
fn note_write(order: Ordering) -> Ordering {
    if order == SeqCst {
        WROTE_IN_ORDER.with(|wrote| wrote.set(true));
    }
    order
}

macro_rules! atomics {
    ($($name:ident: $int:ty,)+) => {
        $(
            #[derive(Debug)]
            pub(crate) struct $name {
                value: looms::$name,
                turn: Turn,
            }

            impl Default for $name {
                fn default() -> Self {
                    Self { value: looms::$name::new(0), turn: Turn::default() }
                }
            }

            #[allow(dead_code, reason = "not every type needs every operation")]
            impl $name {
                #[track_caller]
                pub(crate) fn load(&self, order: Ordering) -> $int {
                    step(&self.turn);
                    self.value.load(in_order(weakened(Kind::Load, order, Location::caller())))
                }

                #[track_caller]
                pub(crate) fn store(&self, value: $int, order: Ordering) {
                    step(&self.turn);
                    self.value.store(value, note_write(weakened(Kind::Store, order, Location::caller())));
                }

                #[track_caller]
                pub(crate) fn compare_exchange(
                    &self,
                    from: $int,
                    to: $int,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$int, $int> {
                    step(&self.turn);
                    let success = weakened(Kind::Exchange, success, Location::caller());
                    let failure = weakened(Kind::Failure, failure, Location::caller());
                    let result = self.value.compare_exchange(from, to, success, failure);
                    if result.is_ok() {
                        note_write(success);
                    }
                    result
                }

                #[track_caller]
                pub(crate) fn compare_exchange_weak(
                    &self,
                    from: $int,
                    to: $int,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$int, $int> {
                    self.compare_exchange(from, to, success, failure)
                }

                #[track_caller]
                pub(crate) fn swap(&self, value: $int, order: Ordering) -> $int {
                    step(&self.turn);
                    self.value.swap(value, note_write(weakened(Kind::Exchange, order, Location::caller())))
                }

                #[track_caller]
                pub(crate) fn fetch_or(&self, bits: $int, order: Ordering) -> $int {
                    step(&self.turn);
                    self.value.fetch_or(bits, note_write(weakened(Kind::Exchange, order, Location::caller())))
                }

                #[track_caller]
                pub(crate) fn fetch_and(&self, bits: $int, order: Ordering) -> $int {
                    step(&self.turn);
                    self.value.fetch_and(bits, note_write(weakened(Kind::Exchange, order, Location::caller())))
                }

                #[track_caller]
                pub(crate) fn fetch_add(&self, number: $int, order: Ordering) -> $int {
                    step(&self.turn);
                    self.value.fetch_add(number, note_write(weakened(Kind::Exchange, order, Location::caller())))
                }

                #[track_caller]
                pub(crate) fn fetch_sub(&self, number: $int, order: Ordering) -> $int {
                    step(&self.turn);
                    self.value.fetch_sub(number, note_write(weakened(Kind::Exchange, order, Location::caller())))
                }

                #[track_caller]
                pub(crate) fn fetch_max(&self, number: $int, order: Ordering) -> $int {
                    step(&self.turn);
                    self.value.fetch_max(number, note_write(weakened(Kind::Exchange, order, Location::caller())))
                }

                #[track_caller]
                pub(crate) fn fetch_update(
                    &self,
                    success: Ordering,
                    failure: Ordering,
                    mut next: impl FnMut($int) -> Option<$int>,
                ) -> Result<$int, $int> {
                    step(&self.turn);
                    let success = weakened(Kind::Exchange, success, Location::caller());
                    let failure = weakened(Kind::Failure, failure, Location::caller());
                    let result = self.value.fetch_update(success, failure, |value| next(value));
                    if result.is_ok() {
                        note_write(success);
                    }
                    result
                }
            }
        )+
    };
}

atomics! {
    AtomicU8: u8,
    AtomicU16: u16,
    AtomicU32: u32,
    AtomicU64: u64,
}

impl tombolo_records::CType for AtomicU32 {
    fn declaration(name: &str) -> String {
        u32::declaration(name)
    }
}

impl tombolo_records::CType for AtomicU64 {
    fn declaration(name: &str) -> String {
        u64::declaration(name)
    }
}

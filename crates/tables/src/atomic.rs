//! The atomics that the tables are made of: the standard library's. Built with `--cfg loom` they
//! are loom's, so that a model checker runs the same code under every order of steps, and under
//! every value that a weak memory may show (`docs/reliability.md`, "Model checking").

#[cfg(not(loom))]
pub(crate) use std::hint::spin_loop;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
mod modelled;
#[cfg(loom)]
mod weaken;

#[cfg(loom)]
pub(crate) use loom::hint::spin_loop;
#[cfg(loom)]
pub(crate) use modelled::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, fence};
#[cfg(loom)]
pub use modelled::{Outcome, die_after, fully_ordered};
#[cfg(loom)]
pub(crate) use std::sync::atomic::Ordering;
#[cfg(loom)]
pub use weaken::{Site, is_weakened, sites};

//! The complete gateway, without input or output: a packet, a plan, tables and the time go in; a
//! verdict and packets come out.
//!
//! There is no clock, file, socket, thread or log in this crate.

#![forbid(unsafe_code)]

pub mod counters;
pub mod engine;
pub mod flush;
pub mod mapping;
pub mod mechanism;
pub mod packet;
pub mod parse;
pub mod plan;
pub mod probe;
pub mod service;
pub mod static_bindings;
pub mod sweep;
pub mod trace;
pub mod verdict;

pub use engine::{Engine, Now};
pub use plan::Plan;
pub use trace::Trace;
pub use verdict::{DropReason, Verdict};

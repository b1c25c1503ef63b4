//! The complete gateway, without input or output: a packet, a plan, tables and the time go in; a
//! verdict and packets come out.
//!
//! There is no clock, file, socket, thread or log in this crate.

#![forbid(unsafe_code)]

pub mod adoption;
mod allowed;
mod answer;
mod answered;
pub mod carry_over;
pub mod counters;

pub mod cluster;
pub mod description;
pub mod endpoint;
pub mod engine;
pub mod flush;
pub mod layout;
pub mod mapping;
pub mod mechanism;
mod now;
mod own_addresses;
pub mod packet;
mod packet_words;
pub mod parse;
mod pcp;
mod pcp_addresses;
pub mod pcp_request;
pub mod plan;
pub mod probe;
mod random;
pub mod refused;
mod routed;
pub mod row;
pub mod service;
pub mod settle;
pub mod side;
mod softwire;
mod standby;
pub mod static_bindings;
pub mod sweep;
pub mod trace;
pub mod verdict;
mod work;

pub use answered::Answered;
pub use engine::Engine;
pub use now::Now;
pub use plan::Plan;
pub use random::Random;
pub use trace::Trace;
pub use verdict::{DropReason, Verdict};

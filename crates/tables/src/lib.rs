//! The gateway's state: flat arrays of fixed-size records over memory that the caller provides.
//!
//! Several writers work on the same tables at once (engine workers, and later programs inside the
//! kernel), so every field is a plain atomic, no record holds a pointer, and no lock is held across
//! a packet. The tables outlive the process if the memory does.
//!
//! ```text
//!             inside endpoint                         outside endpoint
//!                   |                                        |
//!            [inside index]                           [outside index]          session key:
//!          8 x (tag, binding) a line           address x protocol x port       binding, remote
//!                   |                                        |                      |
//!                   +-----------> [bindings] <---------------+                 [sessions]
//!                                  64 bytes                                 4 x 16 bytes a line
//!                                      |
//!                                [subscribers]
//! ```
//!
//! * [`memory`]: where the bytes come from; the only unsafe code of the crate.
//! * [`atomic`]: what they are made of: the processor's atomics, or a model checker's.
//! * [`hash`]: keyed hashing, the same in Rust and BPF.
//! * [`index`]: buckets of eight (tag, id), two candidate buckets.
//! * [`arena`]: records of one line that are claimed, made live, retired and freed.
//! * [`subscriber`], [`binding`], [`outside`], [`blocks`], [`session`]: the records. The first session of
//!   a TCP binding lies in the binding's record.
//! * [`shortcut`]: for how long a datagram from outside need not look at its binding.
//! * [`tables`]: the tables together: admit, bind, find. [`sweep`]: what has expired goes.
//! * [`path_mtu`]: what routers have said of paths to the far ends of softwires.
//! * [`conversation`]: connections in which helpers rewrite what the ends say.
//! * [`changes`]: which records have changed since somebody copied them.
//! * [`copies`]: what another node's tables have, made again in these.
//! * [`audit`]: every invariant that ties the tables together, checked one by one.
//! * [`former`]: tables that an earlier process has left, whatever their layout.
//! * [`shared`]: records and numbers for programs inside the kernel.
//! * [`lpm`]: longest-prefix match for routes, mappings and softwires.
//!
//! Addresses and ports are kept as they stand on the wire, so that neither side swaps bytes.

pub mod arena;
pub mod atomic;
pub mod audit;
pub mod binding;
pub mod blocks;
pub mod changes;
pub mod conversation;
#[cfg(not(loom))]
pub mod copies;
mod entry;
mod first;
#[cfg(not(loom))]
pub mod former;
pub mod hash;
mod home;
pub mod index;
#[cfg(loom)]
pub mod kernel;
pub mod lease;
pub mod leasing;
#[cfg(not(loom))]
pub mod lpm;
pub mod memory;
pub mod outside;
pub mod path_mtu;
pub mod session;
mod session_ref;
pub mod shared;
pub mod shortcut;
pub mod subscriber;
pub mod sweep;
pub mod tables;
pub mod tick;

pub use tables::Tables;

//! The running gateway: device, routes, tables, workers, expiry, signals.
//!
//! * [`discovery`]: what the configuration leaves to the network.
//! * [`gateway`]: puts it all together and takes it apart again.
//! * [`state`]: memory for the tables, kept across restarts where the configuration says so.
//! * [`worker`]: what a worker does with a packet.
//! * [`maintenance`]: the thread that sweeps out what has expired.
//! * [`accelerator`]: the kernel's fast path: where it is attached, and why not where it is not.
//! * [`reload`]: what may change while packets flow.
//! * [`running`]: the gateway as the threads beside its workers see it.
//! * [`control`]: the socket on which it is asked and told. [`metrics`]: the same for Prometheus.
//!   [`listener`]: what both have in common. [`row`], [`utc`]: state in words.
//! * [`binding_log`]: who had which outside endpoint, and when.
//! * [`lending`]: the thread that remembers, in a file, which addresses a dynamic pool has lent.
//! * [`tayga`]: the gateway as Tayga's configuration describes it.

pub mod accelerator;
pub mod binding_log;
mod block_log;
pub mod control;
pub mod discovery;
pub mod gateway;
pub mod lending;
pub mod listener;
pub mod maintenance;
pub mod metrics;
pub mod reload;
pub mod row;
pub mod running;
pub mod state;
pub mod tayga;
pub mod utc;
pub mod worker;

pub use gateway::{DaemonError, run};

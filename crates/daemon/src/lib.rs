//! The running gateway: device, routes, tables, workers, expiry, signals.
//!
//! From the top down; a file imports only what stands below it:
//!
//! * [`tayga`]: the gateway as Tayga's configuration describes it.
//! * [`gateway`]: starts everything in order, and stops it.
//! * `lookout`, `prefix_watch`: threads that look for interfaces, routes and the network's prefix.
//! * [`control`]: the socket on which it is asked. [`metrics`]: the same for Prometheus.
//!   [`listener`]: what both have in common.
//! * [`running`]: the gateway as the threads beside its workers see it.
//! * [`accelerator`]: the kernel's fast path: where it is attached, and why not where it is not.
//! * [`reload`]: what may change while packets flow. [`discovery`]: what the configuration leaves
//!   to the network. `provision`: what a plan needs of the host.
//! * [`state`]: memory for the tables, kept across restarts where the configuration says so.
//! * [`worker`]: what a worker does with a packet. [`maintenance`]: the thread that sweeps out what
//!   has expired.
//! * [`binding_log`]: who had which outside endpoint, and when. [`lease_files`]: which addresses a
//!   dynamic pool has lent, in a file.
//! * [`directories`], [`table_rows`], [`utc`], [`error_chain`]: names, records, times and errors in
//!   words.

pub mod accelerator;
pub mod binding_log;
mod block_log;
pub mod control;
pub mod directories;
pub mod discovery;
mod error;
pub mod error_chain;
pub mod gateway;
pub mod lease_files;
pub mod listener;
mod lookout;
pub mod maintenance;
pub mod metrics;
mod prefix_watch;
mod provision;
pub mod reload;
pub mod running;
pub mod state;
pub mod table_rows;
pub mod tayga;
pub mod utc;
pub mod worker;

pub use error::DaemonError;
pub use gateway::run;

//! The running gateway: device, routes, tables, workers, expiry, signals.
//!
//! * [`discovery`]: what the configuration leaves to the network.
//! * [`gateway`]: puts it all together and takes it apart again.
//! * [`state`]: memory for the tables, kept across restarts where the configuration says so.
//! * [`worker`]: what a worker does with a packet.
//! * [`maintenance`]: the thread that sweeps out what has expired.
//! * [`reload`]: what may change while packets flow.
//! * [`lending`]: the thread that remembers, in a file, which addresses a dynamic pool has lent.
//! * [`tayga`]: the gateway as Tayga's configuration describes it.

pub mod discovery;
pub mod gateway;
pub mod lending;
pub mod maintenance;
pub mod reload;
pub mod state;
pub mod tayga;
pub mod worker;

pub use gateway::{DaemonError, run};

//! The running gateway: device, routes, tables, workers, expiry, signals.
//!
//! * [`discovery`]: what the configuration leaves to the network.
//! * [`gateway`]: puts it all together and takes it apart again.
//! * [`state`]: memory for the tables, kept across restarts where the configuration says so.
//! * [`worker`]: what a worker does with a packet.
//! * [`maintenance`]: the thread that sweeps out what has expired.
//! * [`reload`]: what may change while packets flow.

pub mod discovery;
pub mod gateway;
pub mod maintenance;
pub mod reload;
pub mod state;
pub mod worker;

pub use gateway::{DaemonError, run};

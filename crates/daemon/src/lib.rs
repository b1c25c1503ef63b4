//! The running gateway: device, routes, tables, workers, expiry, signals.
//!
//! From the top down; a file imports only what stands below it:
//!
//! * [`tayga`]: the gateway as Tayga's configuration describes it.
//! * [`gateway`]: starts everything, waits for signals, and ends it. `assembly`: the parts in order, and
//!   how they are taken apart, also when the start fails. `team`: the workers.
//! * [`down`]: what a gateway leaves on its host, and its removal.
//! * `privileges`: what a running gateway may do; the rest is given up when the start is complete.
//! * [`doctor`]: what stands in packets' way through the host, and the line that mends it.
//! * `lookout`, `prefix_watch`, `found_watch`: threads that look for interfaces and routes, the network's prefix, and what
//!   else plans leave open.
//! * `peers`: the thread that follows who else of the cluster is there. `core_paths`, `doubt`, `seen`: what the network between the nodes carries, and
//!   whether there are nodes behind it that are not seen.
//! * `upkeep`: the thread that puts back what was taken from the host. `watchdog`: the one that sees
//!   whether the workers live.
//! * [`control`]: the socket on which it is asked. [`metrics`]: the same over HTTP, for Prometheus and people.
//!   [`listener`]: what both have in common.
//! * [`rehearsal`]: what would become of a packet, without any change.
//! * [`tap`]: packets shown as they pass.
//! * [`running`]: the gateway as the threads beside its workers see it.
//! * [`accelerator`]: the kernel's fast path: where it is attached, and why not where it is not.
//! * [`reload`]: a configuration that is to take the place of the one in force. [`change`]: what comes of it,
//!   in words. `table_text`: what the tables are made for, as the next process reads it. `provided`: the host,
//!   for those that change it. [`discovery`]: what the configuration leaves
//!   to the network. [`awaits`]: what of it there is. `found`: what else it leaves open. `own_address`, `native`, `far_ends`: the host's addresses,
//!   whether it has IPv4 of its own, and where names lead. `question`: one that may not be answered soon. `provision`:
//!   what a plan needs of the host.
//!   `targets`: metrics and the log of bindings, and where they are.
//! * [`state`]: memory for the tables, kept across restarts where the configuration says so.
//!   [`migration`]: what was made for another plan is carried over.
//! * `ownership`: who has which slice of a cluster, by etcd. `agreement`: what is known of that. `holdings`: what the tables have.
//! * [`events`]: what has happened lately. `limits`: the thread that says which limits are reached.
//! * [`health`]: how the gateway does. `threads`: none ends unnoticed. [`fault`]: faults for tests.
//! * [`worker`]: what a worker does with a packet. [`maintenance`]: the thread that sweeps out what
//!   has expired.
//! * [`binding_log`]: who had which outside endpoint, and when. [`lease_files`]: which addresses a
//!   dynamic pool has lent, in a file.
//! * [`directories`], [`table_clock`], [`table_rows`], [`utc`], [`error_chain`]: names, records, times and errors in
//!   words.

pub mod accelerator;
mod agreement;
mod assembly;
pub mod awaits;
pub mod binding_log;
pub mod change;
pub mod control;
mod copies;
mod core_paths;
pub mod directories;
pub mod discovery;
pub mod doctor;
mod doubt;
pub mod down;
mod error;
pub mod error_chain;
pub mod events;
mod far_ends;
pub mod fault;
mod found;
mod found_watch;
pub mod gateway;
pub mod health;
mod holdings;
pub mod lease_files;
mod limits;
pub mod listener;
mod lookout;
pub mod maintenance;
pub mod metrics;
pub mod migration;
mod native;
mod own_address;
#[cfg(feature = "cluster")]
pub mod ownership;
#[cfg(not(feature = "cluster"))]
#[path = "ownership_absent.rs"]
mod ownership;
mod pcp_door;
mod peers;
mod prefix_watch;
mod privileges;
mod provided;
mod provision;
mod question;
pub mod rehearsal;
pub mod reload;
pub mod reloads;
pub mod running;
mod seen;
pub mod source_guard;
pub mod state;
pub mod table_clock;
pub mod table_rows;
pub mod table_text;
pub mod tap;
mod targets;
pub mod tayga;
mod team;
mod threads;
mod upkeep;
pub mod utc;
mod watchdog;
pub mod worker;

pub use error::DaemonError;
pub use gateway::run;
pub use privileges::SandboxError;

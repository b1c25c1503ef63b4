//! Network-namespace laboratories: one description of hosts and links, built through netlink, and
//! gone when the [`Lab`] is dropped.
//!
//! The demo, the kernel tests and the benchmarks all stand on this crate, so that what a reader
//! sees in `tombolo lab demo` is what the tests test and the tables measure.
//!
//! ```no_run
//! use tombolo_lab::{Lab, Topology};
//!
//! let lab = Lab::create(&Topology::client_gateway_server())?;
//! let client = lab.node("client")?;
//! client.command("ping").args(["-c", "1", "198.51.100.2"]).run()?.success()?;
//! // Dropping `lab` kills what runs in it and removes its namespaces.
//! # Ok::<(), tombolo_lab::LabError>(())
//! ```
//!
//! Reading order: [`topology`] says what a lab looks like (plain data); `lab` builds and removes
//! it; `namespace` and `link` are the two things it is made of; `frames` is one end of a cable, and
//! `relay` delays what crosses it; `process`, `peers` and `capture` are what runs inside, `flow` and `talk` what is said;
//! `scenario` is what there is to be shown, and [`cluster`] the largest of it, running; `registry` is what removes a lab when nobody gets to drop it.
//!
//! # Invariants
//! - No command is run to build a lab: namespaces are made by `unshare` and a bind mount (as `ip
//!   netns add` does, so that `ip netns exec` finds them), everything else goes through netlink.
//! - Nothing is ever created in the caller's own network namespace, not even for a moment.
//! - A lab goes away on drop, on panic, and on SIGINT, SIGTERM and SIGHUP ([`registry`]); after
//!   SIGKILL its processes die with their parent, and [`remove_stale`] removes the namespaces, and what was pinned in
//!   the BPF file system.
//! - Nothing sleeps for luck: what has to become true is polled ([`wait_until`]) or awaited with a
//!   time limit.

pub mod cluster;
pub mod stun;
pub mod topology;

mod capture;
mod drops;
mod error;
mod flow;
mod frames;
mod groups;
mod interruption;
mod lab;
mod link;
mod log;
mod namespace;
mod offload;
mod peers;
mod pins;
mod prefix;
mod process;
pub mod registry;
mod relay;
mod release;
mod requirements;
pub mod scenario;
mod talk;
mod wait;

pub use capture::Capture;
pub use drops::dropped_by_links;
pub use error::LabError;
pub use flow::{Effect, Flow, first_answers, under_load};
pub use frames::Frames;
pub use interruption::interrupted;
pub use lab::Lab;
pub use namespace::Namespace;
pub use offload::Offload;
pub use peers::Peer;
pub use prefix::{ParsePrefixError, Prefix};
pub use process::{Command, Output, Process};
pub use registry::{LabRecord, list, remove_named, remove_stale};
pub use requirements::{is_installed, kernel, missing_privilege, package_of, skip, skip_without};
pub use scenario::Scenario;
pub use talk::{Heard, Talk, connected, talking};
pub use topology::{End, Link, Node, Route, Topology};
pub use wait::wait_until;

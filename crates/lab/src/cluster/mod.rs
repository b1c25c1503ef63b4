//! The scenario `cluster`, running: three gateways, their routing daemons and, where nodes agree by it, an etcd. What befalls
//! its boxes, and what its nodes, routers and subscribers know of that.
//!
//! - `boxes`: what runs in it, and when all of it knows of each other
//! - `agreed`: who owns what, as etcd has it
//! - `faults`: power, links, paths and processes, gone and back
//! - `subscribers`: hosts of the NAT64, the NAT44 and the AFTR, and what they send

mod agreed;
mod boxes;
mod faults;
mod subscribers;

pub use agreed::Owned;
pub use boxes::{ClusterLab, PATIENCE};
pub use faults::SWITCHES;
pub use subscribers::{Newcomers, Subscriber, subscribers};

//! Scenarios: a topology, and what a gateway has to be configured as on which of its nodes, so that
//! hosts inside reach the IPv4 server. `tombolo lab up NAME` shows them, and the kernel tests run
//! on them.
//!
//! The addresses are those of [`topology`](crate::topology), and what the scenario's file draws.

mod cluster;
mod description;
mod frr;
mod list;
mod map;
mod members;
mod network;
mod single;
mod softwires;
mod start;
mod xlat464;

pub use description::{SLICES, Scenario};

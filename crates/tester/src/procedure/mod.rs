//! The procedures, one file or folder each. [`tcp`] works with iperf3 on connections,
//! [`route_lookup`] on tables, [`features`] on single packets; all others work on frames, and [`packet`] names them.

mod back_to_back;
mod capacity;
mod connection_rate;
mod delay;
pub mod dns64;
pub mod features;
mod frame_loss;
mod known;
mod measured;
mod mlrsearch;
mod overload;
pub mod packet;
mod phase_one;
mod received_rate;
mod recovery;
mod reset;
pub mod route_lookup;
mod scalability;
mod steps;
pub mod tcp;
mod teardown;
mod throughput;
mod turns;
mod up_and_down;

pub use known::Known;
pub use measured::{Bound, Measured, Point};
pub(crate) use turns::{InTurn, measure_throughput_in_turns};

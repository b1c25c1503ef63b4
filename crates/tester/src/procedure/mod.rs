//! The procedures, one file or folder each. [`tcp`] works with iperf3 on connections,
//! [`route_lookup`] on tables; all others work on frames, and [`packet`] says what they have in
//! common.

mod back_to_back;
mod capacity;
mod connection_rate;
mod delay;
mod frame_loss;
pub mod packet;
mod recovery;
mod reset;
pub mod route_lookup;
mod scalability;
pub mod tcp;
mod teardown;
mod throughput;

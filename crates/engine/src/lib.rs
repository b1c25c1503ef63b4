//! The complete gateway, without input or output: a packet, a plan, tables and the time go in; a verdict
//! and packets come out.
//!
//! There is no clock, file, socket, thread or log in this crate.

#![forbid(unsafe_code)]

pub mod packet;
pub mod verdict;

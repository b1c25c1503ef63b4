//! Gateways that stand in for each other: how the tables of one are copied to another, which goes on with them
//! when the first one is gone.
//!
//! * [`replica`]: what is sent of a table, and what becomes of it at the other end. No socket, no clock, no
//!   thread.
//! * [`link`]: the connections between nodes.
//! * [`ownership`]: which node has which slice, as a pure state machine beside etcd.
//! * `etcd` (feature `etcd`): the adapter between the two.

#![forbid(unsafe_code)]

#[cfg(feature = "etcd")]
pub mod etcd;
pub mod link;
pub mod ownership;
pub mod replica;

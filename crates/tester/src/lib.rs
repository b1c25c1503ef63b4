//! The tester: procedures that measure an IPv4/IPv6 gateway, ours or another's, on plain Linux
//! interfaces.
//!
//! Reading order: a [`procedure`] builds a lab for each gateway under test ([`dut`]), drives
//! traffic through it ([`iperf3`]), and writes what it saw as JSON Lines ([`results`]) together
//! with what it saw it on ([`machine`]). [`statistics`] turns samples into medians and ratios.
//!
//! Procedures on frames go another way: a [`series`] opens a [`mod@bench`] around each [`gateway`],
//! a [`procedure`] asks it for trials ([`trial`]) and [`search`]es, and [`setup`] knows which
//! frames a technology needs. [`summary`] is what the RFCs report.
//!
//! Nothing here imports the gateway's crates: gateways are started as programs and judged by their
//! packets, so that the tester cannot share their mistakes. One exception:
//! [`procedure::route_lookup`] measures the tables themselves, and so imports them.

#![forbid(unsafe_code)]

pub mod bench;
pub mod dut;
pub mod effort;
pub mod gateway;
pub mod iperf3;
pub mod machine;
pub mod procedure;
pub mod results;
pub mod search;
pub mod selftest;
pub mod series;
pub mod setup;
pub mod statistics;
pub mod summary;
pub mod trial;

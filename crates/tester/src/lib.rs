//! The tester: procedures that measure an IPv4/IPv6 gateway, ours or another's, on plain Linux
//! interfaces.
//!
//! Reading order: [`gateway`] says which gateways there are, what they do, and how one is started or
//! reached. A [`series`] opens a [`mod@bench`] around each; a [`procedure`] asks the bench for trials
//! ([`trial`]) and [`search`]es; [`summary`] is what the RFCs report. [`results`] are JSON Lines,
//! together with what they were seen on ([`machine`]).
//!
//! [`procedure::tcp`] takes another road: it has [`iperf3`] send through a lab, and compares medians
//! and ratios ([`statistics`]).
//!
//! Nothing here imports the gateway's crates: gateways are started as programs and judged by their
//! packets, so that the tester cannot share their mistakes. One exception:
//! [`procedure::route_lookup`] measures the tables themselves, and so imports them.

#![forbid(unsafe_code)]

pub mod bench;
pub mod effort;
mod expiry;
pub mod figures;
pub mod forecast;
pub mod frame_size;
pub mod gateway;
mod headers;
pub mod iperf3;
pub mod isolation;
pub mod machine;
pub mod matrix;
pub mod ports;
pub mod preset;
pub mod procedure;
pub mod processors;
pub mod published;
mod random;
pub mod readings;
pub mod resolving_power;
pub mod results;
pub mod scale;
pub mod search;
pub mod selftest;
pub mod series;
pub mod statistics;
pub mod summary;
pub mod trial;

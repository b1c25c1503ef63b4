//! Three nodes that serve the same services, with BIRD on all routers: what a subscriber sees when a node loses its
//! power, its process or a link, fragments that arrive apart, and packets of services with bindings that come to
//! a node that does not have them. Needs root and BIRD, and skips loudly without.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod boxes;
mod copies;
mod entrances;
mod fragments;
mod loads;
#[cfg(feature = "cluster")]
mod moves;
mod nodes;
#[cfg(feature = "cluster")]
mod owners_by_etcd;
#[path = "../running/mod.rs"]
mod running;
mod streams;
mod subscribers;

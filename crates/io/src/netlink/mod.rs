//! A mirror of the kernel's routes and neighbours.
//!
//! Read first: RFC 3549; Linux `Documentation/userspace-api/netlink/intro.rst`; rtnetlink(7).
//!
//! ```text
//!   kernel --dump----> [RouteSocket] --+
//!          --events--> [EventSocket] --+--> [Mirror] --changes only--> Lpm IPv4, Lpm IPv6 --> readers, BPF
//! ```
//!
//! The event socket is opened before the first dump, so no change falls between the two; what is
//! both in the dump and among the events is applied twice, which changes nothing.
//!
//! When events were lost (the socket overran, ENOBUFS), or when the kernel drops routes without
//! saying so (IPv4 routes of a link that goes down or an address that goes away), everything is
//! dumped again and the differences are applied: readers never see an empty table.
//!
//! `lookup`: for single packets, and with the rules: which rule and which route decide, by name. `neighbours`:
//! who is on the links. `egress`: where a packet of the host's own would go.

mod beside;
mod egress;
mod events;
mod lookup;
mod mirror;
pub(crate) mod neighbours;
mod parse;
mod targets;
mod xdp_features;

pub use beside::ipv6_routes_beside;
pub use egress::{INTERNET, egress};
pub(crate) use events::{EventSocket, Received};
pub use lookup::{Decision, Found, Lookup, Rule, Way};
pub use mirror::{Mirror, MirrorError, MirrorStatistics, MirroredRoute, OTHER_RULES};
pub use neighbours::Neighbours;
pub use parse::{Hop, Neighbour, RouteKind, Target};
pub use targets::{BY_GATEWAY, ON_LINK};
pub use xdp_features::sends_redirected;

//! The third mechanism: address and port translation with state.
//!
//! A service asks its `Nat`, which walks a packet through the tables (`state`, and `bind` for
//! what is new) by what `policy` and `times` say; `readdress` changes an IPv4 packet in place
//! where both sides are IPv4.

pub(crate) mod admissions;
mod bind;
mod classify;
mod description;
pub(crate) mod exhausted;
pub mod filtering;
pub(crate) mod held;
mod helped;
pub mod host;
mod ipv4;
pub(crate) mod lease;
pub(crate) mod nat;
pub mod policy;
pub mod protocols;
pub mod readdress;
pub mod session_state;
mod shared;
pub mod short_ports;
pub mod state;
pub mod static_binding;
pub mod times;

pub use crate::endpoint::Endpoint;
pub use admissions::Admissions;
pub use exhausted::Exhausted;
pub use filtering::{Filtering, Filters};
pub use host::{Host, KnownBy};
pub(crate) use ipv4::{deliver_ipv4, pass_untranslated};
pub use nat::Nat;
pub(crate) use nat::{Arrival, port_of};
pub use policy::{InboundTcp, Policy, Sessions, SubscriberIs, UnsolicitedSyn};
pub use protocols::Protocols;
pub use readdress::{Identification, NextLink, readdress, readdress_error};
pub use short_ports::ShortPorts;
pub use state::Napt;
pub use static_binding::StaticBinding;
pub use times::{Among, Times};

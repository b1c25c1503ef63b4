//! Gateways under test: which there are, what they do, and how one is started or reached.
//!
//! - [`technology`] is what a gateway does, [`addresses`] which addresses the tester uses with it,
//!   [`frames`] which frames that makes on either side.
//! - [`kind`] names the gateways that a lab can start, [`start`] starts them.
//! - [`between_ports`] has one between the tester's two ports: in a lab, or on another machine.
//! - [`spec`] is what the user asked for, in one word.

pub mod addresses;
pub mod between_ports;
pub mod frames;
pub mod kind;
pub mod spec;
pub mod start;
pub mod technology;

pub use addresses::{Addresses, MapRule};
pub use between_ports::{Gateway, GatewayError};
pub use frames::{Flows, TestFrames};
pub use kind::Kind;
pub use spec::Spec;
pub use technology::Technology;

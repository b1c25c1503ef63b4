//! Gateways as the procedures on frames see them: something between two ports of the tester, and
//! what can be done to it ([`Gateway`]).
//!
//! [`laboratory`] has one in a network-namespace lab of this machine; [`external`] is somebody
//! else's box behind two interfaces, driven by hook commands. [`faulty`] is a forwarder with
//! planted faults ([`Faults`]), to test the tester.

mod conntrack;
mod control;
pub mod external;
mod faults;
pub mod faulty;
pub mod hosts;
pub mod laboratory;
pub(crate) mod placement;

pub use control::{Gateway, GatewayError, TableCounts};
pub use external::Hooks;
pub use faults::Faults;

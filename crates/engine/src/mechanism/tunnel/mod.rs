//! The second mechanism: IPv4 packets through softwires (RFC 2473).
//!
//! `softwire` puts packets in and takes them out, `segment` cuts super-packets for it, `end`
//! is what every end of a softwire does: sort what arrives, reassemble what is inside, send, answer.

pub(crate) mod end;
pub(crate) mod segment;
pub mod softwire;

pub use softwire::{FarEndName, Softwire, SoftwireSettings, decapsulate, encapsulate};

//! The first mechanism: IPv4 to IPv6 and back, in place (RFC 7915).
//!
//! `headers` translates whole packets and fragments, `icmp_error` ICMP errors with the packet
//! inside them (`icmp` knows the types, `extension` what stands behind), `transport` changes
//! ports and checksums, `mtu` reckons sizes.

mod extension;
pub(crate) mod headers;
pub mod icmp;
pub(crate) mod icmp_error;
pub mod mtu;
mod settings;
pub(crate) mod transport;

pub use headers::{Translated, translate_4to6, translate_6to4};
pub use icmp_error::{ErrorRewrite, translate_error_4to6, translate_error_6to4};
pub use settings::{DSCP, ECN, Plateaus, Rewrite, TrafficClass, TranslateSettings, UdpZeroChecksum};

//! ICMP for IPv6 (RFC 4443; length attribute and extensions: RFC 4884).
//!
//! ```text
//! 0      1      2          4                                  8
//! | type | code | checksum | rest of header                   | body
//!   128, 129   echo         identifier 2, sequence 2
//!   1                       length / 8, 0 3                     embedded packet, extension
//!   2                       MTU 4                               embedded packet
//!   3                       length / 8, 0 3                     embedded packet, extension
//!   4                       pointer 4                           embedded packet
//! ```
//!
//! The checksum covers the pseudo-header of IPv6.

use crate::IcmpView;
pub use crate::icmp::{CHECKSUM, HEADER_LENGTH};

/// Destination unreachable.
pub const DESTINATION_UNREACHABLE: u8 = 1;
/// Packet too big.
pub const PACKET_TOO_BIG: u8 = 2;
/// Time exceeded.
pub const TIME_EXCEEDED: u8 = 3;
/// Code of "time exceeded": fragments were waited for in vain.
pub const REASSEMBLY_TIME_EXCEEDED: u8 = 1;
/// Parameter problem.
pub const PARAMETER_PROBLEM: u8 = 4;
/// Echo request.
pub const ECHO_REQUEST: u8 = 128;
/// Echo reply.
pub const ECHO_REPLY: u8 = 129;
/// Redirect (RFC 4861), which RFC 4443 section 2.4 (e) treats like an error.
pub const REDIRECT: u8 = 137;

/// Codes of [`DESTINATION_UNREACHABLE`].
pub mod unreachable {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// Communication administratively prohibited.
    pub const PROHIBITED: u8 = 1;
    /// Beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// Address unreachable.
    pub const ADDRESS: u8 = 3;
    /// Port unreachable.
    pub const PORT: u8 = 4;
    /// The source address failed ingress or egress policy.
    pub const SOURCE_POLICY: u8 = 5;
    /// Reject route to the destination.
    pub const REJECT_ROUTE: u8 = 6;
}

/// Codes of [`PARAMETER_PROBLEM`].
pub mod parameter {
    /// Erroneous header field.
    pub const HEADER_FIELD: u8 = 0;
    /// Unrecognised next header type.
    pub const NEXT_HEADER: u8 = 1;
    /// Unrecognised IPv6 option.
    pub const OPTION: u8 = 2;
}

/// True if a message of type `kind` reports about another packet, which it carries (RFC 4443
/// section 2.1).
#[must_use]
#[inline]
pub const fn is_error(kind: u8) -> bool {
    kind < 128
}

/// ICMP for IPv6, as the protocol of a view.
#[derive(Debug, Clone, Copy)]
pub enum Icmpv6 {}

/// A message with a whole header.
pub type Icmpv6View<'a> = IcmpView<'a, Icmpv6>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_from_queries() {
        assert!(is_error(TIME_EXCEEDED) && !is_error(ECHO_REQUEST) && !is_error(ECHO_REPLY));
    }
}

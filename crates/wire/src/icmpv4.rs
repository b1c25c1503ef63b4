//! ICMP for IPv4 (RFC 792; length attribute and extensions: RFC 4884).
//!
//! ```text
//! 0      1      2          4                                  8
//! | type | code | checksum | rest of header                   | body
//!   0, 8   echo             identifier 2, sequence 2
//!   3                       0, length / 4, MTU 2                embedded packet, extension
//!   11                      0, length / 4, 0 2                  embedded packet, extension
//!   12                      pointer, length / 4, 0 2            embedded packet, extension
//! ```

use crate::IcmpView;
pub use crate::icmp::{CHECKSUM, HEADER_LENGTH};

/// Echo reply.
pub const ECHO_REPLY: u8 = 0;
/// Destination unreachable.
pub const DESTINATION_UNREACHABLE: u8 = 3;
/// Source quench (RFC 6633: deprecated).
pub const SOURCE_QUENCH: u8 = 4;
/// Redirect.
pub const REDIRECT: u8 = 5;
/// Echo request.
pub const ECHO_REQUEST: u8 = 8;
/// Time exceeded.
pub const TIME_EXCEEDED: u8 = 11;
/// Code of "time exceeded": fragments were waited for in vain.
pub const REASSEMBLY_TIME_EXCEEDED: u8 = 1;
/// Parameter problem.
pub const PARAMETER_PROBLEM: u8 = 12;

/// Codes of [`DESTINATION_UNREACHABLE`].
pub mod unreachable {
    /// Net unreachable.
    pub const NET: u8 = 0;
    /// Host unreachable.
    pub const HOST: u8 = 1;
    /// Protocol unreachable.
    pub const PROTOCOL: u8 = 2;
    /// Port unreachable.
    pub const PORT: u8 = 3;
    /// Fragmentation needed and DF set (RFC 1191: with MTU).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Source route failed.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// Communication with the host administratively prohibited.
    pub const HOST_PROHIBITED: u8 = 10;
    /// Communication administratively prohibited (RFC 1812).
    pub const PROHIBITED: u8 = 13;
}

/// True for a query other than the echo: of a time stamp, an information or an address mask (RFC 792,
/// RFC 950).
#[must_use]
pub const fn is_query(kind: u8) -> bool {
    matches!(kind, 13 | 15 | 17)
}

/// True if a message of type `kind` reports about another packet, which it carries (RFC 1122
/// section 3.2.2).
#[must_use]
#[inline]
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, DESTINATION_UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
}

/// ICMP for IPv4, as the protocol of a view.
#[derive(Debug, Clone, Copy)]
pub enum Icmpv4 {}

/// A message with a whole header.
pub type Icmpv4View<'a> = IcmpView<'a, Icmpv4>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_from_queries() {
        assert!(is_error(TIME_EXCEEDED) && !is_error(ECHO_REQUEST) && !is_error(ECHO_REPLY));
    }
}

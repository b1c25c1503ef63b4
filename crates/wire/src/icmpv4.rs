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

use crate::{ParseError, read_u16, read_u32};

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

/// True if a message of type `kind` reports about another packet, which it carries (RFC 1122 section 3.2.2).
#[must_use]
#[inline]
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, DESTINATION_UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
}

/// Bytes of the header.
pub const HEADER_LENGTH: usize = 8;
/// Offset of the checksum.
pub const CHECKSUM: usize = 2;

/// A message with a whole header.
#[derive(Debug, Clone, Copy)]
pub struct Icmpv4View<'a> {
    message: &'a [u8],
}

impl<'a> Icmpv4View<'a> {
    /// The message in `message`.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if there are fewer than 8 bytes.
    pub const fn parse(message: &'a [u8]) -> Result<Self, ParseError> {
        if message.len() < HEADER_LENGTH { Err(ParseError::Truncated) } else { Ok(Self { message }) }
    }

    /// What the message is.
    #[must_use]
    pub const fn kind(self) -> u8 {
        self.message[0]
    }

    /// The variant of its kind.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.message[1]
    }

    /// The checksum.
    #[must_use]
    pub fn checksum(self) -> u16 {
        read_u16(self.message, CHECKSUM)
    }

    /// Bytes 4 to 7, whose meaning depends on the kind.
    #[must_use]
    pub fn rest_of_header(self) -> u32 {
        read_u32(self.message, 4)
    }

    /// Identifier of an echo request or reply.
    #[must_use]
    pub fn identifier(self) -> u16 {
        read_u16(self.message, 4)
    }

    /// What follows the header.
    #[must_use]
    pub fn body(self) -> &'a [u8] {
        &self.message[HEADER_LENGTH..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_from_their_places() {
        let view = Icmpv4View::parse(&[3, 4, 0x12, 0x34, 0xab, 0xcd, 5, 0xdc, 9]).unwrap();
        assert_eq!((view.kind(), view.code(), view.checksum()), (3, 4, 0x1234));
        assert_eq!((view.rest_of_header(), view.identifier(), view.body()), (0xabcd_05dc, 0xabcd, &[9][..]));
        assert!(Icmpv4View::parse(&[0; 7]).is_err());
    }

    #[test]
    fn errors_are_told_from_queries() {
        assert!(is_error(TIME_EXCEEDED) && !is_error(ECHO_REQUEST) && !is_error(ECHO_REPLY));
    }
}

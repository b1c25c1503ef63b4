//! What messages of ICMP for IPv4 and for IPv6 have in common: the first eight bytes, and a body.
//!
//! ```text
//! 0      1      2          4                8
//! | type | code | checksum | rest of header | body
//! ```

use core::marker::PhantomData;

use crate::{ParseError, read_u16, read_u32};

/// Bytes of the header.
pub const HEADER_LENGTH: usize = 8;
/// Offset of the checksum.
pub const CHECKSUM: usize = 2;

/// A message with a whole header. `V` is the protocol, so that a message of one is not taken for
/// one of the other: their numbers differ.
#[derive(Debug, Clone, Copy)]
pub struct IcmpView<'a, V> {
    message: &'a [u8],
    protocol: PhantomData<V>,
}

impl<'a, V: Copy> IcmpView<'a, V> {
    /// The message in `message`.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if there are fewer than 8 bytes.
    pub const fn parse(message: &'a [u8]) -> Result<Self, ParseError> {
        if message.len() < HEADER_LENGTH {
            return Err(ParseError::Truncated);
        }
        Ok(Self { message, protocol: PhantomData })
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
    use crate::Icmpv4View;

    #[test]
    fn fields_are_read_from_their_places() {
        let view = Icmpv4View::parse(&[3, 4, 0x12, 0x34, 0xab, 0xcd, 5, 0xdc, 9]).unwrap();
        assert_eq!((view.kind(), view.code(), view.checksum()), (3, 4, 0x1234));
        assert_eq!((view.rest_of_header(), view.identifier(), view.body()), (0xabcd_05dc, 0xabcd, &[9][..]));
        assert!(Icmpv4View::parse(&[0; 7]).is_err());
    }
}

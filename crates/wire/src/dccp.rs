//! DCCP (RFC 4340), as far as a gateway reads it.
//!
//! ```text
//!  0               1               2               3
//! | source port                   | destination port              |
//! | data offset   | CCVal | CsCov | checksum                      |
//! | res | type  |X| ...
//! ```

/// Bytes of the shorter of its generic headers.
pub const HEADER_LENGTH: usize = 12;
/// Offset of the checksum. Its pseudo-header has the addresses; what of the data it covers, the
/// header says, and the ports always are (RFC 4340 section 9.2).
pub const CHECKSUM: usize = 6;

/// Packet types.
pub mod kind {
    /// Opens a connection.
    pub const REQUEST: u8 = 0;
    /// Its answer.
    pub const RESPONSE: u8 = 1;
    /// The server wants the client to close.
    pub const CLOSE_REQ: u8 = 5;
    /// Closes a connection.
    pub const CLOSE: u8 = 6;
    /// Ends one, also as the answer to a Close.
    pub const RESET: u8 = 7;
    /// The server opens its NAT for a Request (RFC 5596).
    pub const LISTEN: u8 = 10;
}

/// The type of `packet`, if it is long enough.
#[must_use]
pub fn kind_of(packet: &[u8]) -> Option<u8> {
    packet.get(8).map(|octet| octet >> 1 & 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_is_four_bits() {
        assert_eq!(kind_of(&[0, 0, 0, 0, 0, 0, 0, 0, 0b1010_1111]), Some(kind::RESET));
        assert_eq!(kind_of(&[0; 8]), None);
    }
}

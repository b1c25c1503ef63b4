//! Ethernet II.
//!
//! ```text
//! 0            6            12        14
//! | destination |  source   | type    | payload ...
//! ```

use core::fmt;

use crate::{ParseError, read_u16, write_u16};

/// Bytes of the header.
pub const HEADER_LENGTH: usize = 14;
/// Type of IPv4.
pub const TYPE_IPV4: u16 = 0x0800;
/// Type of ARP.
pub const TYPE_ARP: u16 = 0x0806;
/// Type of a VLAN tag (IEEE 802.1Q).
pub const TYPE_VLAN: u16 = 0x8100;
/// Type of IPv6.
pub const TYPE_IPV6: u16 = 0x86dd;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A frame with a whole header.
#[derive(Debug, Clone, Copy)]
pub struct EthernetView<'a> {
    frame: &'a [u8],
}

impl<'a> EthernetView<'a> {
    /// The frame in `frame`.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if it is shorter than a header.
    pub const fn parse(frame: &'a [u8]) -> Result<Self, ParseError> {
        if frame.len() < HEADER_LENGTH { Err(ParseError::Truncated) } else { Ok(Self { frame }) }
    }

    /// Where it goes.
    #[must_use]
    pub fn destination(self) -> MacAddress {
        MacAddress(self.frame[..6].try_into().unwrap_or_default())
    }

    /// Where it comes from.
    #[must_use]
    pub fn source(self) -> MacAddress {
        MacAddress(self.frame[6..12].try_into().unwrap_or_default())
    }

    /// What the payload is.
    #[must_use]
    pub fn ether_type(self) -> u16 {
        read_u16(self.frame, 12)
    }

    /// What follows the header, padding included.
    #[must_use]
    pub fn payload(self) -> &'a [u8] {
        &self.frame[HEADER_LENGTH..]
    }
}

/// The fields of an Ethernet header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EthernetHeader {
    /// Where the frame goes.
    pub destination: MacAddress,
    /// Where it comes from.
    pub source: MacAddress,
    /// What the payload is.
    pub ether_type: u16,
}

impl EthernetHeader {
    /// The fields of the header that begins `frame`.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if the frame is shorter than a header.
    pub fn parse(frame: &[u8]) -> Result<Self, ParseError> {
        let view = EthernetView::parse(frame)?;
        Ok(Self { destination: view.destination(), source: view.source(), ether_type: view.ether_type() })
    }

    /// Writes the 14 bytes of the header.
    ///
    /// # Panics
    /// If `bytes` is shorter.
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[..6].copy_from_slice(&self.destination.0);
        bytes[6..12].copy_from_slice(&self.source.0);
        write_u16(bytes, 12, self.ether_type);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_header_round_trips() {
        let header = EthernetHeader {
            destination: MacAddress([2, 0, 0, 0, 0, 1]),
            source: MacAddress([2, 0, 0, 0, 0, 0xfe]),
            ether_type: TYPE_IPV6,
        };
        let mut bytes = [0; 15];
        header.emit(&mut bytes);
        assert_eq!(EthernetHeader::parse(&bytes), Ok(header));
        assert_eq!(EthernetView::parse(&bytes).unwrap().payload(), [0]);
        assert_eq!(header.source.to_string(), "02:00:00:00:00:fe");
        assert_eq!(EthernetHeader::parse(&bytes[..13]), Err(ParseError::Truncated));
    }
}

//! UDP (RFC 768).
//!
//! ```text
//! 0             2                  4        6          8
//! | source port | destination port | length | checksum | payload
//! ```

use crate::{ParseError, Port, read_u16, write_u16};

/// Bytes of the header.
pub const HEADER_LENGTH: usize = 8;
/// Offset of the length.
pub const LENGTH: usize = 4;
/// Offset of the checksum.
pub const CHECKSUM: usize = 6;

/// A datagram with a whole header.
#[derive(Debug, Clone, Copy)]
pub struct UdpView<'a> {
    datagram: &'a [u8],
}

impl<'a> UdpView<'a> {
    /// The datagram in `datagram`. Its length field is not compared with what is there, for in
    /// fragments, packets inside ICMP errors and super-packets the two differ.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if there are fewer than 8 bytes.
    pub const fn parse(datagram: &'a [u8]) -> Result<Self, ParseError> {
        if datagram.len() < HEADER_LENGTH { Err(ParseError::Truncated) } else { Ok(Self { datagram }) }
    }

    /// Source port.
    #[must_use]
    pub fn source_port(self) -> Port {
        Port(read_u16(self.datagram, 0))
    }

    /// Destination port.
    #[must_use]
    pub fn destination_port(self) -> Port {
        Port(read_u16(self.datagram, 2))
    }

    /// Bytes of header and payload, as the header says.
    #[must_use]
    pub fn length(self) -> u16 {
        read_u16(self.datagram, LENGTH)
    }

    /// The checksum; zero means that there is none.
    #[must_use]
    pub fn checksum(self) -> u16 {
        read_u16(self.datagram, CHECKSUM)
    }

    /// What follows the header.
    #[must_use]
    pub fn payload(self) -> &'a [u8] {
        &self.datagram[HEADER_LENGTH..]
    }
}

/// The fields of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdpHeader {
    /// Source port.
    pub source_port: Port,
    /// Destination port.
    pub destination_port: Port,
    /// Bytes of header and payload.
    pub length: u16,
    /// The checksum; zero means that there is none.
    pub checksum: u16,
}

impl UdpHeader {
    /// The fields of the datagram in `datagram`.
    ///
    /// # Errors
    /// As [`UdpView::parse`].
    pub fn parse(datagram: &[u8]) -> Result<Self, ParseError> {
        let view = UdpView::parse(datagram)?;
        Ok(Self {
            source_port: view.source_port(),
            destination_port: view.destination_port(),
            length: view.length(),
            checksum: view.checksum(),
        })
    }

    /// Writes the 8 bytes of the header.
    ///
    /// # Panics
    /// If `bytes` is shorter.
    pub fn emit(&self, bytes: &mut [u8]) {
        write_u16(bytes, 0, self.source_port.0);
        write_u16(bytes, 2, self.destination_port.0);
        write_u16(bytes, LENGTH, self.length);
        write_u16(bytes, CHECKSUM, self.checksum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_round_trips() {
        let header = UdpHeader { source_port: Port(1), destination_port: Port(0xfffe), length: 9, checksum: 0xabcd };
        let mut bytes = [0; 9];
        header.emit(&mut bytes);
        assert_eq!(UdpHeader::parse(&bytes), Ok(header));
        assert_eq!(UdpView::parse(&bytes).unwrap().payload(), [0]);
        assert_eq!(UdpHeader::parse(&bytes[..7]), Err(ParseError::Truncated));
    }
}

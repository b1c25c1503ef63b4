//! What a test frame has in its IP packet before the tag: the constant part of a header of UDP (RFC 768)
//! or of TCP without options (RFC 9293 section 3.1).
//!
//! ```text
//!    0       2       4        6        8       12      14       16         18  20
//!    +-------+-------+--------+--------+-------+-------+--------+----------+---+
//!    | from  | to    | sequence number | ack   | flags | window | checksum | 0 |   TCP
//!    +-------+-------+--------+--------+-------+-------+--------+----------+---+
//!    | from  | to    | length | checks.|                                           UDP
//!    +-------+-------+--------+--------+
//! ```
//!
//! Every segment carries the tag, a SYN as well (RFC 9293 section 3.4), so that the receiver knows it.

use crate::layout::{PROTOCOL_TCP, PROTOCOL_UDP, TCP_HEADER, UDP_HEADER};

/// What the frames carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// Segments with this header. The gateway changes nothing of it.
    Tcp(TcpHeader),
}

/// What is the same in all segments of a trial, on whichever connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpHeader {
    /// Sequence number.
    pub sequence: u32,
    /// What is acknowledged; 0 without [`ACK`](TcpHeader::ACK).
    pub acknowledgement: u32,
    /// [`SYN`](TcpHeader::SYN), [`ACK`](TcpHeader::ACK), and others as RFC 9293 has them.
    pub flags: u8,
    /// Window, bytes.
    pub window: u16,
}

impl TcpHeader {
    /// The flag that begins a connection.
    pub const SYN: u8 = 0x02;
    /// The flag that says that something is acknowledged.
    pub const ACK: u8 = 0x10;

    /// Sequence number, acknowledgement, flags and window, as on the wire.
    pub(crate) fn words(&self) -> [u8; 12] {
        let mut words = [0; 12];
        words[0..4].copy_from_slice(&self.sequence.to_be_bytes());
        words[4..8].copy_from_slice(&self.acknowledgement.to_be_bytes());
        words[8] = (TCP_HEADER / 4) << 4;
        words[9] = self.flags;
        words[10..12].copy_from_slice(&self.window.to_be_bytes());
        words
    }
}

impl Transport {
    /// Its number in IP headers.
    pub(crate) fn protocol(self) -> u8 {
        match self {
            Transport::Udp => PROTOCOL_UDP,
            Transport::Tcp(_) => PROTOCOL_TCP,
        }
    }

    /// Bytes of its header.
    pub(crate) fn header_bytes(self) -> u8 {
        match self {
            Transport::Udp => UDP_HEADER,
            Transport::Tcp(_) => TCP_HEADER,
        }
    }

    /// What differs from UDP in the length of a frame.
    pub(crate) fn beyond_udp(self) -> u16 {
        u16::from(self.header_bytes() - UDP_HEADER)
    }

    /// Writes the constant part of a header that stands before so many bytes with itself.
    pub(crate) fn emit(self, header: &mut [u8], bytes: u16) {
        match self {
            Transport::Udp => header[4..6].copy_from_slice(&bytes.to_be_bytes()),
            Transport::Tcp(tcp) => header[4..16].copy_from_slice(&tcp.words()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_tcp_has_its_fields_where_rfc_9293_has_them() {
        let tcp = TcpHeader { sequence: 0x0102_0304, acknowledgement: 0x0506_0708, flags: 0x12, window: 0x0910 };
        let mut header = [0xff; 20];
        Transport::Tcp(tcp).emit(&mut header, 38);
        assert_eq!(header[4..16], [1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x12, 9, 0x10]);
        assert_eq!((&header[..4], &header[16..]), (&[0xff; 4][..], &[0xff; 4][..]));
        let mut header = [0; 8];
        Transport::Udp.emit(&mut header, 26);
        assert_eq!(header, [0, 0, 0, 0, 0, 26, 0, 0]);
    }
}

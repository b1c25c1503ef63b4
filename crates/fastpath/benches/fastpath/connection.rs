//! The segments of a connection that is opened and then stays as it is: each has the tester's tag as
//! its data, the SYNs as well (RFC 9293 section 3.4), and what follows is in the window of both ends,
//! as one that was sent again.

use tombolo_generator::{TcpHeader, Transport};

const OF_SUBSCRIBER: u32 = 1_000_000;
const OF_SERVER: u32 = 2_000_000;

/// Opens it, from the subscriber.
pub(crate) const SYN: Transport = segment(TcpHeader::SYN, OF_SUBSCRIBER, 0);
/// Answers, from the server.
pub(crate) const SYN_ACK: Transport = segment(TcpHeader::SYN | TcpHeader::ACK, OF_SERVER, OF_SUBSCRIBER + 1);
/// The subscriber's, from then on.
pub(crate) const ACK: Transport = segment(TcpHeader::ACK, OF_SUBSCRIBER + 1, OF_SERVER + 1);
/// The server's, from then on.
pub(crate) const ACK_INWARDS: Transport = segment(TcpHeader::ACK, OF_SERVER + 1, OF_SUBSCRIBER + 1);

const fn segment(flags: u8, sequence: u32, acknowledgement: u32) -> Transport {
    Transport::Tcp(TcpHeader { sequence, acknowledgement, flags, window: 65_535 })
}

//! One IP packet in a buffer with room in front, and what the kernel left to be done on it.
//!
//! A [`Packet`] is changed in place: headers are stripped with [`Packet::strip`] and put in front
//! with [`Packet::prepend`], by moving the head. Nothing is allocated and the payload is never
//! copied.
//!
//! ```text
//! buffer  |<- headroom ->|<------------- packet ------------->|<- tailroom ->|
//!         0              start                                end            buffer.len()
//! ```
//!
//! Invariant: `start <= end <= buffer.len()`.

use crate::verdict::DropReason;

/// Headroom that a receiver leaves in front of each packet, in bytes.
///
/// Enough for an IPv6 header in place of an IPv4 header, a Fragment header, a softwire header and
/// the virtio header of a TUN queue, with the IP header kept 16-byte aligned.
pub const HEADROOM: usize = 128;

/// Of these bytes in front of a packet no header is made: they are the sender's, for a header of its
/// own. A packet that grows into all of its headroom could not be sent.
pub const SENDERS_ROOM: usize = 16;

/// Work on a packet that was left to the network card, or to whoever plays it (virtio `vnet`
/// header).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// How a super-packet is to be cut.
    pub segmentation: Segmentation,
    /// State of the transport checksum.
    pub checksum: ChecksumState,
}

/// How a super-packet is to be cut into packets when it reaches a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Segmentation {
    /// An ordinary packet.
    #[default]
    None,
    /// A TCP super-packet. `size` is the payload of each segment in bytes; `ecn` asks for the CWR
    /// flag on the first segment only.
    Tcp {
        /// Payload bytes of each segment.
        size: u16,
        /// The super-packet carries CWR.
        ecn: bool,
    },
    /// Several UDP datagrams of `size` payload bytes in one (USO).
    Udp {
        /// Payload bytes of each datagram.
        size: u16,
    },
}

impl Segmentation {
    /// Payload bytes of each segment; `None` for an ordinary packet.
    #[must_use]
    pub const fn size(self) -> Option<u16> {
        match self {
            Self::None => None,
            Self::Tcp { size, .. } | Self::Udp { size } => Some(size),
        }
    }
}

/// State of the transport checksum of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChecksumState {
    /// The checksum field holds what goes on the wire.
    #[default]
    Complete,
    /// The checksum field holds the folded, *not* complemented sum of the pseudo-header; the sum
    /// over the bytes from `start` (an offset from the first byte of the IP header) to the end is
    /// added, and the result complemented, by whoever sends the packet. Address changes therefore
    /// update the field with the plain sum, and port changes do not touch it at all.
    Partial {
        /// Offset of the transport header from the start of the packet.
        start: u16,
        /// Offset of the checksum field from `start`.
        offset: u16,
    },
}

/// One IP packet, changed in place. The default is none, in no buffer.
#[derive(Debug, Default)]
pub struct Packet<'b> {
    buffer: &'b mut [u8],
    start: usize,
    end: usize,
    /// What is left to be done on it.
    pub offload: Offload,
}

impl<'b> Packet<'b> {
    /// The packet of `length` bytes that begins `headroom` bytes into `buffer`; `None` if it does
    /// not fit.
    #[must_use]
    pub fn new(buffer: &'b mut [u8], headroom: usize, length: usize, offload: Offload) -> Option<Self> {
        let end = headroom.checked_add(length)?;
        (end <= buffer.len()).then_some(Self { buffer, start: headroom, end, offload })
    }

    /// The same packet, lent to somebody else. What becomes of it there is not seen here.
    #[must_use]
    pub fn lend(&mut self) -> Packet<'_> {
        Packet { buffer: self.buffer, start: self.start, end: self.end, offload: self.offload }
    }

    /// Bytes of the packet, from the first byte of the IP header.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Bytes of the packet, to be changed.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// True if no byte is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Bytes free in front of the packet.
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Drops the first `count` bytes (at most all of them).
    pub fn strip(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Bytes that can be put in front of the packet: the headroom without [`SENDERS_ROOM`].
    #[must_use]
    pub fn room_in_front(&self) -> usize {
        self.start.saturating_sub(SENDERS_ROOM)
    }

    /// Puts `count` bytes of unspecified content in front.
    ///
    /// # Errors
    /// [`DropReason::NoHeadroom`] if there is not that much room, [`SENDERS_ROOM`] apart.
    pub fn prepend(&mut self, count: usize) -> Result<(), DropReason> {
        if count > self.room_in_front() {
            return Err(DropReason::NoHeadroom);
        }
        self.start -= count;
        Ok(())
    }

    /// Cuts the packet to `length` bytes; does nothing if it is shorter.
    pub fn truncate(&mut self, length: usize) {
        self.end = self.end.min(self.start + length);
    }

    /// Makes the packet `length` bytes long; bytes gained at the end are what the buffer held.
    ///
    /// # Errors
    /// [`DropReason::NoHeadroom`] if the buffer ends before.
    pub fn resize(&mut self, length: usize) -> Result<(), DropReason> {
        let end = self.start + length;
        if end > self.buffer.len() {
            return Err(DropReason::NoHeadroom);
        }
        self.end = end;
        Ok(())
    }

    /// The whole buffer with the place of the packet in it, for a sender that writes its own header
    /// into the headroom: `(buffer, start, end)`.
    #[must_use]
    pub fn parts_mut(&mut self) -> (&mut [u8], usize, usize) {
        (self.buffer, self.start, self.end)
    }
}

/// Takes the packets that the engine sends, in order.
pub trait Outbox {
    /// Sends one packet. The bytes in front of it may be overwritten.
    ///
    /// # Errors
    /// Why the device does not take it: [`DropReason::DeviceDown`] and its like. The packet is lost, and
    /// what it came of ends as a drop.
    fn send(&mut self, packet: &mut Packet<'_>) -> Result<(), DropReason>;
}

/// What a closure that stands for an outbox says of a packet.
pub trait Sent {
    /// As [`Outbox::send`] says it.
    ///
    /// # Errors
    /// As there.
    fn into_result(self) -> Result<(), DropReason>;
}

/// It takes all.
impl Sent for () {
    fn into_result(self) -> Result<(), DropReason> {
        Ok(())
    }
}

impl Sent for Result<(), DropReason> {
    fn into_result(self) -> Result<(), DropReason> {
        self
    }
}

impl<S: Sent, F: FnMut(&mut Packet<'_>) -> S> Outbox for F {
    fn send(&mut self, packet: &mut Packet<'_>) -> Result<(), DropReason> {
        self(packet).into_result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strip_and_prepend_move_the_head() {
        let mut buffer = *b"................payload.";
        let mut packet = Packet::new(&mut buffer, 16, 7, Offload::default()).unwrap();
        assert_eq!(packet.bytes(), b"payload");
        packet.strip(3);
        assert_eq!(packet.bytes(), b"load");
        packet.prepend(3).unwrap();
        assert_eq!((packet.len(), packet.headroom()), (7, SENDERS_ROOM));
    }

    #[test]
    fn the_senders_room_is_nobody_elses() {
        let mut buffer = [0; SENDERS_ROOM + 9];
        let mut packet = Packet::new(&mut buffer, SENDERS_ROOM + 2, 7, Offload::default()).unwrap();
        assert_eq!(packet.room_in_front(), 2);
        assert_eq!(packet.prepend(3), Err(DropReason::NoHeadroom));
        assert_eq!(packet.prepend(2), Ok(()));
        let mut bare = [0; 8];
        assert_eq!(Packet::new(&mut bare, 0, 8, Offload::default()).unwrap().prepend(1), Err(DropReason::NoHeadroom));
    }

    #[test]
    fn a_packet_never_leaves_its_buffer() {
        let mut buffer = [0; 8];
        assert!(Packet::new(&mut buffer, 4, 5, Offload::default()).is_none());
        let mut packet = Packet::new(&mut buffer, 4, 2, Offload::default()).unwrap();
        packet.strip(9);
        assert!(packet.is_empty());
        assert_eq!(packet.resize(3), Err(DropReason::NoHeadroom));
    }
}

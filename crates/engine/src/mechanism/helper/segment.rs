//! A TCP segment's numbers and its text, changed in the packet.
//!
//! ```text
//! | IP .. | ports | sequence | acknowledgement | .. | checksum | .. | options (SACK: pairs of numbers) | text .. |
//!         start                                                                                       text
//! ```
//!
//! Checksums change by difference, so that a wrong one stays wrong; partial ones count the length alone. Where the text
//! grows the headers move to the front.

use std::ops::Range;

use tombolo_wire::checksum::{self, Delta};
use tombolo_wire::tcp::{self, TcpView};
use tombolo_wire::{Sum, TcpFlags, ipv4, ipv6, options::Options, read_u16, read_u32, write_u16, write_u32};

use crate::packet::{ChecksumState, Packet};
use crate::parse::Parsed;
use crate::verdict::DropReason;

/// Kind of the option that says what arrived out of order (RFC 2018 section 3).
const OPTION_SACK: u8 = 5;
/// Most numbers in one: two for each of four blocks.
const MOST_EDGES: usize = 8;

/// Where a segment lies in its packet, and what its header says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    start: usize,
    text: usize,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    pub(super) flags: TcpFlags,
}

impl Segment {
    /// The segment in `packet`, `parsed` from it; `None` if its header is damaged.
    pub(super) fn of<A>(packet: &Packet<'_>, parsed: &Parsed<A>) -> Option<Self> {
        let start = usize::from(parsed.transport_offset);
        let view = TcpView::parse(packet.bytes().get(start..)?).ok()?;
        Some(Self {
            start,
            text: start + view.header_length(),
            sequence: view.sequence(),
            acknowledgement: view.acknowledgement(),
            flags: view.flags(),
        })
    }

    /// What it says.
    pub(super) fn text<'p>(&self, packet: &'p Packet<'_>) -> &'p [u8] {
        &packet.bytes()[self.text..]
    }

    /// Behind its last byte, FIN included.
    pub(super) fn end(&self, packet: &Packet<'_>) -> u32 {
        let fin = u32::from(self.flags.contains(TcpFlags::FIN));
        let length = u32::try_from(self.text(packet).len()).unwrap_or(0);
        self.sequence.wrapping_add(length).wrapping_add(fin)
    }

    /// Gives it another sequence number, and what it acknowledges what `acknowledged` makes of it.
    pub(super) fn renumber(&self, packet: &mut Packet<'_>, sequence: u32, acknowledged: impl Fn(u32) -> u32) {
        let state = packet.offload.checksum;
        let header = &mut packet.bytes_mut()[self.start..self.text];
        let before = Sum::ZERO.bytes(header);
        write_u32(header, tcp::SEQUENCE, sequence);
        if self.flags.contains(TcpFlags::ACK) {
            write_u32(header, tcp::ACKNOWLEDGEMENT, acknowledged(self.acknowledgement));
        }
        let edges = selective_edges(&header[tcp::HEADER_LENGTH..]);
        for edge in edges.map(|edge| tcp::HEADER_LENGTH + edge) {
            let number = read_u32(header, edge);
            write_u32(header, edge, acknowledged(number));
        }
        let change = Sum::ZERO.bytes(header) - before;
        if state == ChecksumState::Complete {
            update_checksum(header, change);
        }
    }

    /// Puts `new` in the place of `old`, bytes of its text. Returns the packet's new length.
    ///
    /// # Errors
    /// [`DropReason::NoHeadroom`].
    pub(super) fn replace(&self, packet: &mut Packet<'_>, old: Range<usize>, new: &[u8]) -> Result<u32, DropReason> {
        let place = self.text + old.start;
        let (length, before) = (packet.len() - self.start, Sum::ZERO.bytes(self.text(packet)));
        if let Some(gained) = new.len().checked_sub(old.len()) {
            packet.prepend(gained)?;
            packet.bytes_mut().copy_within(gained..gained + place, 0);
        } else {
            let lost = old.len() - new.len();
            packet.bytes_mut().copy_within(..place, lost);
            packet.strip(lost);
        }
        packet.bytes_mut()[place..place + new.len()].copy_from_slice(new);
        let lengths = Delta::of_word(word(length), word(packet.len() - self.start));
        let change = Sum::ZERO.bytes(self.text(packet)) - before;
        let state = packet.offload.checksum;
        let header = &mut packet.bytes_mut()[self.start..self.text];
        match state {
            ChecksumState::Complete => update_checksum(header, change + lengths),
            ChecksumState::Partial { .. } => {
                let field = checksum::update_sum(read_u16(header, tcp::CHECKSUM), lengths);
                write_u16(header, tcp::CHECKSUM, field);
            }
        }
        write_length(packet);
        Ok(u32::from(word(packet.len())))
    }
}

/// Where the numbers of a SACK option stand among the options.
fn selective_edges(options: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let mut found = [0; MOST_EDGES];
    let mut count = 0;
    let selective = Options::new(options).map_while(Result::ok).find(|option| option.kind == OPTION_SACK);
    if let Some(option) = selective {
        count = (option.data.len() / 4).min(MOST_EDGES);
        (0..count).for_each(|edge| found[edge] = option.offset + 2 + edge * 4);
    }
    found.into_iter().take(count)
}

fn update_checksum(header: &mut [u8], change: Delta) {
    let field = checksum::update(read_u16(header, tcp::CHECKSUM), change);
    write_u16(header, tcp::CHECKSUM, field);
}

/// The IP header says how long the packet is.
fn write_length(packet: &mut Packet<'_>) {
    let length = packet.len();
    let bytes = packet.bytes_mut();
    if bytes[0] >> 4 == 4 {
        write_u16(bytes, ipv4::TOTAL_LENGTH, word(length));
        ipv4::write_checksum(bytes);
    } else {
        write_u16(bytes, ipv6::PAYLOAD_LENGTH, word(length - ipv6::HEADER_LENGTH));
    }
}

fn word(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

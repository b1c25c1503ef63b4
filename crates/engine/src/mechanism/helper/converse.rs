//! A segment of a conversation on its way: its lines are listened to, and its numbers brought in line.

use std::ops::Range;

use tombolo_tables::conversation::{Conversation, Stream};
use tombolo_wire::{Port, TcpFlags};

use super::ftp::{self, Client, Line};
use super::segment::Segment;
use super::stream;
use super::text::Text;
use crate::endpoint::Endpoint;
use crate::packet::Packet;
use crate::parse::Parsed;
use crate::side::Side;
use crate::verdict::DropReason;

/// Most bytes of text of a segment in which a line is rewritten: what it becomes fits the smallest links.
const LONGEST_TEXT: usize = 1024;

/// What became of a segment.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::mechanism) struct Conversed {
    /// The packet's length, if that is another one.
    pub(in crate::mechanism) length: Option<u32>,
    /// A line has become another one.
    pub(in crate::mechanism) is_rewritten: bool,
    /// A line would have, but could not.
    pub(in crate::mechanism) is_unhelped: bool,
}

/// The sequence number of a SYN from inside that opens a connection.
pub(in crate::mechanism) fn opens<A>(packet: &Packet<'_>, parsed: &Parsed<A>) -> Option<u32> {
    let flags = parsed.tcp_flags;
    let opens = flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::ACK) && !flags.contains(TcpFlags::RST);
    if opens { Segment::of(packet, parsed).map(|segment| segment.sequence) } else { None }
}

/// The streams of a connection that begins with that SYN.
pub(in crate::mechanism) fn begun(sequence: u32) -> [Stream; 2] {
    [stream::begun(sequence), Stream::default()]
}

/// True if one of the ends has said its last.
pub(in crate::mechanism) fn has_ended(conversation: &Conversation) -> bool {
    ftp::has_ended(&conversation.streams)
}

/// Brings a segment from `side` in line with its conversation. `reach` makes a port of the client's reachable for the
/// server.
///
/// # Errors
/// [`DropReason::RewritingUnacknowledged`]: it is to be sent again. Packet and conversation are as they were.
/// [`DropReason::NoHeadroom`].
pub(in crate::mechanism) fn converse<A>(
    packet: &mut Packet<'_>,
    parsed: &Parsed<A>,
    side: Side,
    client: &Client,
    conversation: &mut Conversation,
    reach: impl FnMut(Port) -> Option<Endpoint>,
) -> Result<Conversed, DropReason> {
    let Some(segment) = Segment::of(packet, parsed) else { return Ok(Conversed::default()) };
    let mut streams = conversation.streams;
    let (mine, others) = (side as usize, 1 - side as usize);
    if segment.flags.contains(TcpFlags::SYN) {
        streams[mine] = Stream { flags: streams[mine].flags & !stream::OWN_FLAGS, ..stream::begun(segment.sequence) };
    }
    if segment.flags.contains(TcpFlags::FIN) || segment.flags.contains(TcpFlags::RST) {
        ftp::end(&mut streams);
    }
    let mut listener = Listener { streams, side, client, reach, edit: None, is_unhelped: false };
    if !segment.flags.contains(TcpFlags::SYN) && !ftp::is_secured(&listener.streams) {
        listener.listen(&segment, segment.text(packet))?;
    }
    let Listener { mut streams, edit, is_unhelped, .. } = listener;
    stream::note_said(&mut streams[mine], segment.end(packet), segment.text(packet));
    if segment.flags.contains(TcpFlags::ACK) {
        let acknowledged = stream::acknowledged(&streams[others], segment.acknowledgement);
        stream::note_acknowledged(&mut streams[others], acknowledged);
    }
    let sequence = stream::sent(&streams[mine], segment.sequence);
    if sequence != segment.sequence || stream::differs(&streams[others]) {
        segment.renumber(packet, sequence, |number| stream::acknowledged(&streams[others], number));
    }
    let length = match &edit {
        Some((old, new)) => Some(segment.replace(packet, old.clone(), new.bytes())?),
        None => None,
    };
    conversation.streams = streams;
    Ok(Conversed { length, is_rewritten: edit.is_some(), is_unhelped })
}

/// What listens to the lines of one segment.
struct Listener<'a, F> {
    streams: [Stream; 2],
    side: Side,
    client: &'a Client,
    reach: F,
    /// Bytes of the text that become others: one line at most.
    edit: Option<(Range<usize>, Text)>,
    is_unhelped: bool,
}

impl<F: FnMut(Port) -> Option<Endpoint>> Listener<'_, F> {
    fn listen(&mut self, segment: &Segment, text: &[u8]) -> Result<(), DropReason> {
        let mut begin = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let sequence = segment.sequence.wrapping_add(u32::try_from(begin).unwrap_or(0));
            let place = begin..begin + line.len();
            begin = place.end;
            if place.start == 0 && !stream::begins_line(self.mine(), sequence) {
                continue;
            }
            let is_repeated = stream::is_rewritten_at(self.mine(), sequence);
            let is_new = !stream::is_behind(self.mine().next, sequence);
            if !is_repeated && !is_new {
                continue;
            }
            let is_whole = line.ends_with(b"\n");
            let has_room = text.len() <= LONGEST_TEXT && !segment.flags.contains(TcpFlags::URG);
            if !is_whole || !has_room {
                let from_client = self.side == Side::Inside;
                self.is_unhelped |= ftp::may_become(line, from_client, &self.streams, self.client);
                continue;
            }
            let before = self.streams;
            match self.say(line, !is_repeated) {
                Line::Kept => {}
                Line::Unhelped => self.is_unhelped = true,
                Line::Becomes(new) if is_repeated => {
                    if !stream::is_the_same(self.mine(), line.len(), new.bytes().len()) {
                        return Err(DropReason::RewritingUnacknowledged);
                    }
                    self.edit = Some((place, new));
                }
                Line::Becomes(_) if self.edit.is_some() => self.leave(before),
                Line::Becomes(_) if stream::is_unacknowledged(self.mine()) => {
                    return Err(DropReason::RewritingUnacknowledged);
                }
                Line::Becomes(new) => {
                    let mine = &mut self.streams[self.side as usize];
                    if stream::note_rewritten(mine, sequence, line.len(), new.bytes().len()) {
                        self.edit = Some((place, new));
                    } else {
                        self.leave(before);
                    }
                }
            }
        }
        Ok(())
    }

    /// What a line becomes.
    fn say(&mut self, line: &[u8], is_new: bool) -> Line {
        match self.side {
            Side::Inside => ftp::command(line, is_new, &mut self.streams, self.client, &mut self.reach),
            Side::Outside => ftp::reply(line, is_new, &mut self.streams, self.client),
        }
    }

    /// The line goes on as it is, and nothing was noted of it.
    fn leave(&mut self, before: [Stream; 2]) {
        self.streams = before;
        self.is_unhelped = true;
    }

    fn mine(&self) -> &Stream {
        &self.streams[self.side as usize]
    }
}

//! Sequence numbers of a stream of which a text was rewritten (RFC 6384 section 4: "track and update TCP sequence
//! numbers").
//!
//! The last rewriting is remembered, so that a retransmission is numbered, and rewritten, alike. Another one waits until
//! that has been acknowledged. Numbers wrap: what is behind what is told by the sign of the difference (RFC 9293
//! section 3.4).

use tombolo_tables::conversation::{MOST_DIFFERENCE, Stream};

/// Of a stream's flags: `at`, `grown` and `length` are those of a text that was rewritten.
const REWRITTEN: u8 = 1;
/// The receiver has not acknowledged it.
const UNACKNOWLEDGED: u8 = 2;
/// What comes next is not the beginning of a line.
const IN_LINE: u8 = 4;

/// All of these.
pub(super) const OWN_FLAGS: u8 = REWRITTEN | UNACKNOWLEDGED | IN_LINE;

/// Longest line that is rewritten, in bytes.
const LONGEST_LINE: usize = 127;

/// True if sequence number `a` lies behind `b`.
pub(super) const fn is_behind(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// The stream that begins with the SYN numbered `sequence`.
pub(super) fn begun(sequence: u32) -> Stream {
    Stream { next: sequence.wrapping_add(1), ..Stream::default() }
}

/// The receiver's number for `sequence`.
pub(super) fn sent(stream: &Stream, sequence: u32) -> u32 {
    let is_before = stream.flags & REWRITTEN != 0 && !is_behind(sequence, stream.at);
    sequence.wrapping_add_signed(if is_before { before(stream) } else { stream.difference })
}

/// True if the receiver's numbers are not the sender's everywhere.
pub(super) fn differs(stream: &Stream) -> bool {
    stream.difference != 0 || stream.grown != 0
}

/// The sender's number for what the receiver acknowledges. Of a text of which only a part has arrived, nothing has.
pub(super) fn acknowledged(stream: &Stream, acknowledgement: u32) -> u32 {
    let behind = acknowledgement.wrapping_add_signed(-stream.difference);
    if stream.flags & REWRITTEN == 0 {
        return behind;
    }
    let up_to = acknowledgement.wrapping_add_signed(-before(stream));
    match (is_behind(up_to, stream.at), is_behind(end(stream), behind)) {
        (false, _) => up_to,
        (true, true) => stream.at,
        (true, false) => behind,
    }
}

/// Notes that the receiver has everything in front of the sender's number `sequence`.
pub(super) fn note_acknowledged(stream: &mut Stream, sequence: u32) {
    if !is_behind(end(stream), sequence) {
        stream.flags &= !UNACKNOWLEDGED;
    }
}

/// True if the text that was rewritten last may still be on its way.
pub(super) const fn is_unacknowledged(stream: &Stream) -> bool {
    stream.flags & UNACKNOWLEDGED != 0
}

/// True if a line begins at `sequence` by what is known of the bytes in front of it.
pub(super) const fn begins_line(stream: &Stream, sequence: u32) -> bool {
    sequence == stream.next && stream.flags & IN_LINE == 0 || is_rewritten_at(stream, sequence)
}

/// True if the text that begins there was rewritten: this is a retransmission.
pub(super) const fn is_rewritten_at(stream: &Stream, sequence: u32) -> bool {
    stream.flags & REWRITTEN != 0 && sequence == stream.at
}

/// True if a retransmitted line of `length` bytes that becomes one of `new` bytes is what was rewritten.
pub(super) fn is_the_same(stream: &Stream, length: usize, new: usize) -> bool {
    usize::from(stream.length) == length && length.checked_add_signed(stream.grown.into()) == Some(new)
}

/// Notes that the line of `length` bytes at `sequence` becomes one of `new` bytes; false if that is more than can be
/// noted.
pub(super) fn note_rewritten(stream: &mut Stream, sequence: u32, length: usize, new: usize) -> bool {
    let grown = new.cast_signed() - length.cast_signed();
    let (Ok(grown), Ok(length_noted)) = (i8::try_from(grown), u8::try_from(length)) else { return false };
    let difference = stream.difference + i32::from(grown);
    if length > LONGEST_LINE || difference.abs() > MOST_DIFFERENCE {
        return false;
    }
    let flags = stream.flags | REWRITTEN | UNACKNOWLEDGED;
    *stream = Stream { at: sequence, difference, grown, length: length_noted, flags, ..*stream };
    true
}

/// Notes that the sender has said what ends in front of `sequence`, with the bytes `said` last.
pub(super) fn note_said(stream: &mut Stream, sequence: u32, said: &[u8]) {
    if is_behind(sequence, stream.next) {
        stream.next = sequence;
        if let Some(last) = said.last() {
            stream.flags = stream.flags & !IN_LINE | if *last == b'\n' { 0 } else { IN_LINE };
        }
    }
}

fn before(stream: &Stream) -> i32 {
    stream.difference - i32::from(stream.grown)
}

fn end(stream: &Stream) -> u32 {
    stream.at.wrapping_add(stream.length.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of ten bytes at 1000 that becomes one of `new`, in a stream that was `before` bytes longer.
    fn rewritten(before: i32, new: usize) -> Stream {
        let mut stream = Stream { next: 1000, difference: before, ..Stream::default() };
        assert!(note_rewritten(&mut stream, 1000, 10, new));
        stream
    }

    #[test]
    fn what_is_acknowledged_is_what_was_sent() {
        for (before, new) in [(0, 10), (0, 17), (0, 3), (-40, 12), (300, 4)] {
            let stream = rewritten(before, new);
            for sequence in (900..=1000).chain(1010..1100) {
                assert_eq!(acknowledged(&stream, sent(&stream, sequence)), sequence, "{before} {new}");
            }
            let first = sent(&stream, 1000);
            let inside = (1..u32::try_from(new).unwrap()).map(|part| acknowledged(&stream, first + part));
            assert!(inside.into_iter().all(|sequence| sequence == 1000), "a part of the text is none of it");
        }
    }

    #[test]
    fn numbers_wrap() {
        let mut stream = Stream { next: u32::MAX - 4, ..Stream::default() };
        assert!(note_rewritten(&mut stream, u32::MAX - 4, 10, 14));
        assert_eq!((sent(&stream, u32::MAX - 4), sent(&stream, 5)), (u32::MAX - 4, 9));
        assert_eq!((acknowledged(&stream, 9), acknowledged(&stream, u32::MAX)), (5, u32::MAX - 4));
        note_said(&mut stream, 5, b"x\r\n");
        assert!(stream.next == 5 && begins_line(&stream, 5) && !begins_line(&stream, 4));
    }

    #[test]
    fn a_rewriting_waits_for_its_acknowledgement() {
        let mut stream = rewritten(0, 17);
        note_acknowledged(&mut stream, 1009);
        assert!(is_unacknowledged(&stream));
        note_acknowledged(&mut stream, 1010);
        assert!(!is_unacknowledged(&stream) && is_rewritten_at(&stream, 1000));
        assert!(is_the_same(&stream, 10, 17) && !is_the_same(&stream, 10, 18) && !is_the_same(&stream, 11, 17));
    }

    #[test]
    fn what_cannot_be_noted_is_not_rewritten() {
        let mut stream = Stream::default();
        assert!(!note_rewritten(&mut stream, 0, 128, 30));
        stream.difference = MOST_DIFFERENCE;
        assert!(!note_rewritten(&mut stream, 0, 10, 11) && stream.flags == 0);
    }
}

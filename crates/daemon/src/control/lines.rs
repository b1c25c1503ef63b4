//! Requests of a client, line by line: several on one connection, one after the other or all at once.

use std::io::{ErrorKind, Read as _};
use std::time::Duration;

use super::request::LONGEST;
use crate::listener::{Stream, Within};

/// Bytes of a line that is too long that are skipped. Whoever sends more wants something else.
const SKIPPED: usize = 1 << 20;
/// Bytes that are read at once.
const CHUNK: usize = 4096;

/// What a client has sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, with its end.
    Whole(Vec<u8>),
    /// One of more bytes than a request may have; what follows it is another.
    TooLong,
    /// The beginning of one, and nothing more.
    Incomplete,
    /// Nothing more.
    End,
}

/// What has been read and not been taken.
#[derive(Debug, Default)]
pub(super) struct Lines {
    read: Vec<u8>,
}

impl Lines {
    /// The next one, within so much time.
    pub(super) fn next(&mut self, stream: &mut dyn Stream, limit: Duration) -> Line {
        let mut within = Within::new(stream, limit);
        let (mut searched, mut skipped) = (0, 0);
        loop {
            if let Some(end) = self.read[searched..].iter().position(|&byte| byte == b'\n') {
                let rest = self.read.split_off(searched + end + 1);
                let line = std::mem::replace(&mut self.read, rest);
                return if skipped + line.len() > LONGEST { Line::TooLong } else { Line::Whole(line) };
            }
            searched = self.read.len();
            if searched >= LONGEST {
                skipped += searched;
                searched = 0;
                self.read.clear();
            }
            if skipped > SKIPPED {
                return Line::Incomplete;
            }
            let mut chunk = [0; CHUNK];
            match within.read(&mut chunk) {
                Ok(count @ 1..) => self.read.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Gone, or silent for too long.
                _ if skipped > 0 => return Line::TooLong,
                _ if self.read.is_empty() => return Line::End,
                _ => return Line::Incomplete,
            }
        }
    }

    /// True if another request is there already.
    pub(super) fn has_more(&self) -> bool {
        !self.read.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn lines(text: &[u8]) -> Vec<Line> {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        let text = text.to_vec();
        let writer = std::thread::spawn(move || {
            // The other end may have had enough.
            let _ = client.write_all(&text).and_then(|()| client.shutdown(Shutdown::Write));
        });
        let (mut found, mut lines) = (Vec::new(), Lines::default());
        loop {
            let line = lines.next(&mut server, Duration::from_secs(5));
            let is_last = matches!(line, Line::End | Line::Incomplete);
            found.push(line);
            if is_last {
                drop(server);
                writer.join().unwrap();
                return found;
            }
        }
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.as_bytes().to_vec())
    }

    #[test]
    fn lines_come_one_by_one_however_they_were_sent() {
        assert_eq!(lines(b"one\ntwo\n"), [whole("one\n"), whole("two\n"), Line::End]);
        assert_eq!(lines(b"one\ntw"), [whole("one\n"), Line::Incomplete]);
        assert_eq!(lines(b""), [Line::End]);
    }

    #[test]
    fn behind_a_line_that_is_too_long_is_another() {
        let mut text = vec![b'x'; LONGEST - 1];
        text.extend(b"\n");
        let most = text.clone();
        text.extend(vec![b'y'; 3 * LONGEST]);
        text.extend(b"\nthree\n");
        assert_eq!(lines(&text), [Line::Whole(most), Line::TooLong, whole("three\n"), Line::End]);
        assert_eq!(lines(&vec![b'z'; LONGEST]), [Line::TooLong, Line::End]);
        assert_eq!(lines(&vec![b'z'; 3 * SKIPPED]), [Line::Incomplete]);
    }
}

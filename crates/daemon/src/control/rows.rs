//! An answer under way: rows, sent in chunks, and how it ends.

use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use crate::listener::Stream;

/// Bytes of an answer that are sent at once.
const CHUNK: usize = 1 << 16;

/// What kind of error it is: stable, for programs. The words beside it may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// No line of JSON that is a request.
    Malformed,
    /// A line of more bytes than a request may have.
    TooLong,
    /// No whole line came in time.
    Incomplete,
    /// Too many clients at a time.
    Crowded,
    /// A request that cannot be granted: the words say why.
    Refused,
}

impl Code {
    fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLong => "too-long",
            Self::Incomplete => "incomplete",
            Self::Crowded => "crowded",
            Self::Refused => "refused",
        }
    }
}

/// Why an answer ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The reason, which the client gets.
    Refused(String),
    /// The client is gone, or does not read.
    Gone(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

/// The rows of an answer, sent in chunks.
pub(crate) struct Rows<'s> {
    stream: &'s mut dyn Stream,
    buffer: Vec<u8>,
    rows: u64,
}

impl<'s> Rows<'s> {
    /// An answer to this client.
    pub(super) fn new(stream: &'s mut dyn Stream) -> Self {
        Self { stream, buffer: Vec::new(), rows: 0 }
    }

    /// The client's connection.
    pub(super) fn stream(&mut self) -> &mut dyn Stream {
        self.stream
    }

    /// Another answer begins.
    pub(super) fn begin(&mut self) {
        self.rows = 0;
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, row: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.buffer, row).map_err(io::Error::from)?;
        self.buffer.push(b'\n');
        self.rows += 1;
        if self.buffer.len() >= CHUNK {
            self.send()?;
        }
        Ok(())
    }

    /// Rows so far.
    pub(crate) fn count(&self) -> u64 {
        self.rows
    }

    /// Sends what there is, for a client that waits for it.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        if self.buffer.is_empty() { Ok(()) } else { Ok(self.send()?) }
    }

    /// Goes on until `until`, or until the client is gone, with a pause after each look. A look adds rows, and says how
    /// many there were that are not shown, and whether there may be more.
    pub(super) fn follow(
        &mut self,
        until: Instant,
        pause: Duration,
        mut look: impl FnMut(&mut Self) -> Result<(u64, bool), Failure>,
    ) -> Result<(), Failure> {
        let mut goes_on = true;
        while goes_on && Instant::now() < until {
            let (lost, may_be_more) = look(self)?;
            if lost > 0 {
                self.row(&json!({ "not_shown": lost }))?;
            }
            self.flush()?;
            goes_on = may_be_more && !self.stream().is_gone();
            if goes_on {
                std::thread::sleep(pause);
            }
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the answer: all rows were sent.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let line = json!({ "end": { "rows": self.rows } });
        self.buffer.extend_from_slice(format!("{line}\n").as_bytes());
        self.send()
    }

    /// Ends the answer with the reason why there is no more of it. The error comes first in the line.
    pub(super) fn fail(&mut self, code: Code, reason: &str) -> io::Result<()> {
        let (reason, code) = (json!(reason), code.name());
        let line = format!("{{\"error\":{reason},\"code\":\"{code}\"}}");
        self.buffer.extend_from_slice(format!("{line}\n").as_bytes());
        self.send()
    }
}

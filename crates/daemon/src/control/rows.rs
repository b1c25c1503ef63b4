//! An answer under way: rows, sent in chunks, and how it ends.

use std::io;

use serde::Serialize;
use serde_json::json;

use crate::listener::Stream;

/// Bytes of an answer that are sent at once.
const CHUNK: usize = 1 << 16;

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

    /// Ends the answer with the reason why there is no more of it.
    pub(super) fn fail(&mut self, reason: &str) -> io::Result<()> {
        let line = json!({ "error": reason });
        self.buffer.extend_from_slice(format!("{line}\n").as_bytes());
        self.send()
    }
}

//! The other side of the control socket: asks, and reads the answer line by line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use serde::Deserialize;

use super::locate::{self, LocateError};
use super::request::Request;

/// Longest line of an answer in bytes.
const LONGEST: u64 = 1 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No gateway.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// The gateway says so.
    #[error("{0}")]
    Refused(String),
    /// The connection broke.
    #[error("the gateway did not answer to the end: was it stopped, or was nothing read for minutes?")]
    Cut,
    /// The connection failed.
    #[error("speaking with the gateway failed")]
    Io(#[from] io::Error),
}

/// An answer that is being read.
#[derive(Debug)]
pub struct Answer {
    lines: BufReader<UnixStream>,
    line: Vec<u8>,
}

#[derive(Deserialize)]
struct Failure {
    error: String,
}

/// Asks the gateway called `gateway` (see [`locate::connect`]).
///
/// # Errors
/// [`ClientError`].
pub fn ask(gateway: Option<&str>, request: &Request) -> Result<Answer, ClientError> {
    let mut stream = locate::connect(gateway)?;
    let mut line = serde_json::to_vec(request).map_err(io::Error::from)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(Answer { lines: BufReader::with_capacity(1 << 16, stream), line: Vec::new() })
}

impl Answer {
    /// The next row, as a line of JSON without its end; `None` behind the last one.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn next_row(&mut self) -> Result<Option<&[u8]>, ClientError> {
        self.line.clear();
        (&mut self.lines).take(LONGEST).read_until(b'\n', &mut self.line)?;
        let Some(line) = self.line.strip_suffix(b"\n") else { return Err(ClientError::Cut) };
        if line.starts_with(b"{\"end\":") {
            return Ok(None);
        }
        if line.starts_with(b"{\"error\":") {
            let failure: Failure = serde_json::from_slice(line).map_err(io::Error::from)?;
            return Err(ClientError::Refused(failure.error));
        }
        Ok(Some(line))
    }

    /// The only row there is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn only_row<T: for<'a> Deserialize<'a>>(mut self) -> Result<T, ClientError> {
        let row = self.next_row()?.ok_or(ClientError::Cut)?;
        let row = serde_json::from_slice(row).map_err(io::Error::from)?;
        while self.next_row()?.is_some() {}
        Ok(row)
    }
}

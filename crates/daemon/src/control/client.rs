//! The other side of the control socket: asks, and reads the answer line by line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use serde::Deserialize;
use serde_json::Value;

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
    #[error("{reason}")]
    Refused {
        /// In words.
        reason: String,
        /// In one word that stays the same.
        code: String,
    },
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
    #[serde(default)]
    code: String,
}

impl ClientError {
    /// What kind of error it is: stable, for programs.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Locate(LocateError::None | LocateError::NotThere { .. }) => "no-gateway",
            Self::Locate(LocateError::Several(_)) => "several-gateways",
            Self::Locate(LocateError::Denied(_)) => "denied",
            Self::Refused { code, .. } => code,
            Self::Cut => "cut-short",
            Self::Io(_) => "connection",
        }
    }
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
            let Failure { error: reason, code } = failure;
            return Err(ClientError::Refused { reason, code });
        }
        Ok(Some(line))
    }

    /// All rows, of an answer that has few.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn all_rows(mut self) -> Result<Vec<Value>, ClientError> {
        let mut rows = Vec::new();
        while let Some(row) = self.next_row()? {
            rows.push(serde_json::from_slice(row).map_err(io::Error::from)?);
        }
        Ok(rows)
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

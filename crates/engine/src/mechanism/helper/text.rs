//! A short text, made for a packet without allocating.

use std::fmt;

/// Longest text that a helper writes.
const LONGEST: usize = 64;

/// A line that takes the place of another one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Text {
    /// What `format_args!` says; `None` if that is too long.
    pub(super) fn of(arguments: fmt::Arguments<'_>) -> Option<Self> {
        let mut text = Self { bytes: [0; LONGEST], length: 0 };
        fmt::write(&mut text, arguments).ok().map(|()| text)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = self.length + part.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(part.as_bytes());
        self.length = end;
        Ok(())
    }
}

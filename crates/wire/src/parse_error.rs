//! Why bytes are not the header that they were taken for.

use core::fmt;

/// Why bytes are not the header that they were taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseError {
    /// The bytes end before the header, or before what its length field announces.
    Truncated,
    /// The version field says another version of IP.
    Version,
    /// A length field is smaller than the header that carries it.
    Length,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "bytes end before the header or its payload does",
            Self::Version => "wrong IP version",
            Self::Length => "length field smaller than its own header",
        })
    }
}

impl core::error::Error for ParseError {}

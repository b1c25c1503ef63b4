//! What an import gives: a configuration, what is left, or why there is none.

use std::fmt;

/// What came of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The configuration.
    pub toml: String,
    /// What is not in it.
    pub left: Vec<Left>,
}

/// Something that could not be carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Where it stands: `line 7`, or the path in a JSON file.
    pub place: String,
    /// What stands there.
    pub what: String,
    /// Why it is left, and what to do.
    pub why: String,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.what, self.why)
    }
}

/// The file is none that could be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {text}")]
pub struct ImportError {
    place: String,
    text: String,
}

impl ImportError {
    pub(crate) fn at(place: impl fmt::Display, text: impl fmt::Display) -> Self {
        Self { place: place.to_string(), text: text.to_string() }
    }
}

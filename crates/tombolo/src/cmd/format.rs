//! For whom a command prints.

use clap::ValueEnum;

/// How rows and answers are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON object a line; an answer of many parts is one object.
    Json,
    /// Comma-separated values.
    Csv,
}

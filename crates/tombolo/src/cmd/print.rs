//! Output that survives a reader who has seen enough (`tombolo lab list | head -1`).

use std::io::{self, Write as _};

use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

/// Writes a line, or lines, to standard output.
///
/// # Errors
/// Whatever writing gives, except that the reader is gone.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

/// Writes a value as JSON.
///
/// # Errors
/// As [`line`].
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(value)?)
}

/// Writes why a command failed, with all causes, to standard error.
pub(crate) fn error(error: &anyhow::Error) {
    // There is nowhere to report that this cannot be written.
    let _ = writeln!(io::stderr(), "tombolo: {error:#}");
}

/// An empty table in the house's dress.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    table
}

//! Output that survives a reader who has seen enough (`tombolo lab list | head -1`).

use std::{
    io::{self, Write as _},
    os::fd::AsFd as _,
    time::Duration,
};

use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use indicatif::{ProgressBar, ProgressStyle};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use serde_json::json;
use tombolo_daemon::control::client::ClientError;

use super::format::Format;

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

/// False once nobody reads the standard output any more.
pub(crate) fn is_read() -> bool {
    let out = io::stdout();
    let mut asked = [PollFd::new(out.as_fd(), PollFlags::empty())];
    match poll(&mut asked, PollTimeout::ZERO) {
        Ok(1..) => !asked[0].revents().is_some_and(|found| found.contains(PollFlags::POLLERR)),
        _ => true,
    }
}

/// Writes a value as JSON.
///
/// # Errors
/// As [`line()`].
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(value)?)
}

/// Writes a report: for programs as it is, for people in `words`.
///
/// # Errors
/// As [`line()`].
#[cfg(feature = "tester")]
pub(crate) fn report<T: Serialize>(report: &T, is_json: bool, words: impl Fn(&T) -> String) -> anyhow::Result<()> {
    if is_json { json(report) } else { line(&words(report)) }
}

/// A text out of JSON.
pub(crate) fn word(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Writes why a command failed, with all causes, to standard error; for programs with a code that stays
/// the same whatever the words are.
pub(crate) fn error(error: &anyhow::Error, format: Format) {
    // There is nowhere to report that this cannot be written.
    let _ = match format {
        Format::Json => {
            let code = error.downcast_ref::<ClientError>().map_or("failed", ClientError::code);
            writeln!(io::stderr(), "{}", json!({ "error": format!("{error:#}"), "code": code }))
        }
        Format::Table | Format::Csv => writeln!(io::stderr(), "tombolo: {error:#}"),
    };
}

/// Writes a line that is not the command's result to standard error.
pub(crate) fn warning(text: &str) {
    // There is nowhere to report that this cannot be written.
    let _ = writeln!(io::stderr(), "tombolo: {text}");
}

/// An empty table in the house's dress.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    table
}

/// A line on a terminal's standard error that says how far something is; nothing where there is no
/// terminal. It vanishes when dropped.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(steps: usize) -> Self {
        let bar = ProgressBar::new(u64::try_from(steps).unwrap_or(u64::MAX));
        // The default style serves if this one should not parse.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {pos}/{len} [{elapsed}, {eta} to go] {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Says what is being done.
    pub(crate) fn say(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Says how many steps are done, and what the last was.
    pub(crate) fn advance(&self, done: usize, what: &str) {
        self.0.set_position(u64::try_from(done).unwrap_or(u64::MAX));
        self.say(what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

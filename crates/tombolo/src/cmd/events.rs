//! `tombolo events`: what has happened in a running gateway, and what happens.

use clap::Args;
use serde_json::{Map, Value};
use tombolo_daemon::control::client::ask;
use tombolo_daemon::control::request::{Happened, Request};

use super::control::Gateway;
use super::format::Format;
use super::output::{Output, plain};
use super::print;
use super::rows::{Cell, follow_rows};

/// Arguments of `tombolo events`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    gateway: Gateway,
    /// Go on with those that come, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Also bindings and blocks of ports, as they are made and end
    #[arg(long, requires = "follow")]
    bindings: bool,
    /// At most so many of those that were [default: all that are kept; 10 with --follow]
    #[arg(long, value_name = "EVENTS")]
    limit: Option<u64>,
    /// Follow for so many seconds
    #[arg(long, requires = "follow", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// At most so many of bindings and blocks a second [default: 1000]
    #[arg(long, value_name = "EVENTS", requires = "bindings", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    #[command(flatten)]
    pub(super) output: Output,
}

const EVENTS: &[Cell] =
    &[Cell::Text("time"), Cell::Text("level"), Cell::Text("part"), Cell::Text("event"), Cell::Text("details")];

/// Shows events, the oldest first.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { gateway, follow, bindings, limit, seconds, rate, output } = arguments;
    let format = output.format();
    let wanted = Happened { follow: *follow, bindings: *bindings, limit: *limit, seconds: *seconds, rate: *rate };
    let mut each = |row: &mut Value| {
        if let Some(count) = row["not_shown"].as_u64() {
            print::warning(&format!("{count} more events, which are not shown"));
        }
        let is_note = row["event"].is_null();
        if let (false, Some(details)) = (format == Format::Json, row["details"].as_object()) {
            row["details"] = Value::String(in_words(details));
        }
        Ok(is_note)
    };
    follow_rows(ask(gateway.name(), &Request::Events(wanted))?, EVENTS, format, &mut each).map(drop)
}

/// Details as the log has them.
fn in_words(details: &Map<String, Value>) -> String {
    details.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect::<Vec<_>>().join(" ")
}

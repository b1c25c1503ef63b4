//! `tombolo reload`, `plan` and `confirm`: another configuration for a running gateway.

use clap::Args;
use serde_json::{Value, json};
use tombolo_daemon::control::client::ask;
use tombolo_daemon::control::request::Request;

use super::control::Gateway;
use super::format::Format;
use super::output::Output;
use super::print;

/// Arguments of `tombolo reload`.
#[derive(Debug, Args)]
pub(crate) struct Reload {
    #[command(flatten)]
    gateway: Gateway,
    /// Say what would change and what would end, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Go back to the configuration before after so many seconds, unless "tombolo confirm" comes first
    #[arg(long, value_name = "SECONDS", conflicts_with = "dry_run", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    confirm: Option<u32>,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Arguments of `tombolo plan`.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    gateway: Gateway,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Arguments of `tombolo confirm`.
#[derive(Debug, Args)]
pub(crate) struct Confirm {
    #[command(flatten)]
    gateway: Gateway,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Has the configuration file read again.
pub(crate) fn reload(Reload { gateway, dry_run, confirm, output }: &Reload) -> anyhow::Result<()> {
    let request = Request::Reload { dry_run: *dry_run, confirm_within: *confirm };
    let rows = tell(gateway, &request, *output, *dry_run)?;
    match (output.format(), dry_run, confirm) {
        (Format::Json | Format::Csv, ..) => Ok(()),
        (_, true, _) if rows == 0 => print::line("nothing would change"),
        (_, true, _) => Ok(()),
        (_, _, Some(seconds)) => print::line(&format!(
            "configuration reloaded; the one before comes back in {seconds} s unless \"tombolo confirm\" comes first"
        )),
        _ => print::line("configuration reloaded"),
    }
}

/// Says what a reload would change.
pub(crate) fn plan(Plan { gateway, output }: &Plan) -> anyhow::Result<()> {
    let rows = tell(gateway, &Request::Reload { dry_run: true, confirm_within: None }, *output, true)?;
    if rows == 0 && output.format() == Format::Table { print::line("nothing would change") } else { Ok(()) }
}

/// Keeps the configuration that was reloaded last.
pub(crate) fn confirm(Confirm { gateway, output }: &Confirm) -> anyhow::Result<()> {
    ask(gateway.name(), &Request::Confirm {})?.all_rows()?;
    output.answer(&json!({ "confirmed": true }), || print::line("configuration confirmed"))
}

/// Prints the rows of an answer; says how many there were.
fn tell(gateway: &Gateway, request: &Request, output: Output, dry_run: bool) -> anyhow::Result<usize> {
    let rows = ask(gateway.name(), request)?.all_rows()?;
    output.rows(&rows, |row| match words(row, dry_run) {
        Some((text, true)) => {
            print::warning(&text);
            Ok(())
        }
        Some((text, false)) => print::line(&text),
        None => Ok(()),
    })?;
    Ok(rows.len())
}

/// What a row says, and whether it is a warning.
fn words(row: &Value, dry_run: bool) -> Option<(String, bool)> {
    let text = |key: &str| print::word(&row[key]);
    if let Some(why) = row["not_followed"].as_str() {
        return Some((format!("the engine serves without the fast path: {why}"), true));
    }
    if row["conflict"].is_string() {
        return Some((
            format!("static binding {} of {}: {}", text("binding"), text("service"), text("conflict")),
            true,
        ));
    }
    if row["ends"].is_object() {
        let count = |key: &str| row["ends"][key].as_u64().unwrap_or(0);
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let (sessions, bindings) = (count("sessions"), count("bindings"));
        let end = if dry_run { "would end" } else { "have ended" };
        let said = format!(
            "{sessions} session{} and {bindings} binding{} of {} on {} {end}: {}",
            plural(sessions),
            plural(bindings),
            text("service"),
            text("addresses"),
            text("reason")
        );
        return Some((said, false));
    }
    let key = row["changed"].as_str()?;
    let said = match (row["before"].as_str(), row["after"].as_str()) {
        (Some(before), Some(after)) => format!("{key}: {before} -> {after}"),
        (Some(before), None) => format!("{key}: {before} is gone"),
        (None, Some(after)) => format!("{key}: {after} is new"),
        (None, None) => key.to_owned(),
    };
    Some((said, false))
}

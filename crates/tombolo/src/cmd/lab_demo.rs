//! `tombolo lab demo`: the demo's arguments and its table.

use anyhow::{Context as _, bail};
use clap::Args;
use tombolo_tester::gateway::{Kind, Technology, start::Options};

use super::print;
use crate::demo::{ALL_STEPS, Demo, Report, StepReport, TechnologyReport};

/// Arguments of `tombolo lab demo`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The gateway to show: tombolo, tayga
    #[arg(long, default_value = "tombolo")]
    gateway: Kind,
    /// Seconds of each TCP transfer; there are twelve, and four of each technology
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Settings for tombolo's configuration, before its service
    #[arg(long, value_name = "TOML", default_value = "[gateway]\nfastpath = \"auto\"")]
    settings: String,
}

pub(crate) fn run(arguments: Arguments, json: bool) -> anyhow::Result<()> {
    let tombolo = std::env::current_exe().context("cannot find the program that is running")?;
    let options = Options::new(tombolo, arguments.settings, Technology::Nat64);
    let demo = Demo { gateway: arguments.gateway, options, seconds: arguments.seconds };
    let progress = print::Progress::new(ALL_STEPS);
    let report = demo.run(|done, what| progress.advance(done, what));
    drop(progress);
    let report = report?;
    print::report(&report, json, in_words)?;
    let of_pairs = report.technologies.iter().flat_map(|one| one.steps.iter().map(|step| (one.technology, step)));
    let steps: Vec<(&str, &StepReport)> =
        report.steps.iter().map(|step| (report.gateway.as_str(), step)).chain(of_pairs).collect();
    let failed: Vec<_> = steps.iter().filter(|(_, step)| !step.worked).collect();
    if let Some((who, first)) = failed.first() {
        let log = if report.log.is_empty() { " nothing" } else { report.log.as_str() };
        bail!(
            "{} of {} steps failed; {who}, {}: {}; the last words:{log}",
            failed.len(),
            steps.len(),
            first.what,
            first.result
        );
    }
    Ok(())
}

fn in_words(report: &Report) -> String {
    let mut table = print::table(&["what", "result", &report.gateway, "plain", "unit", "ratio"]);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), figure);
    for step in &report.steps {
        let result = format!("{} {}", if step.worked { "ok:" } else { "FAILED:" }, step.result);
        let (ours, plain) = (number(step.ours), number(step.plain));
        table.add_row([step.what, &result, &ours, &plain, step.unit, &number(step.ratio)]);
    }
    let technologies = in_a_table(&report.technologies);
    format!(
        "client 2001:db8:1::2 (IPv6) -- gateway -- server 198.51.100.2 (IPv4), three network namespaces\n\
         {} passed its first packet {} ms after it was started; plain is kernel forwarding beside it; medians of three rounds\n\
         {table}\n\
         {technologies}\
         Next:  tombolo lab up                 the same hosts, to play with: ip netns exec tombolo-lab-client bash\n\
         \x20      tombolo lab up ds-lite         the same for a technology, with its gateways running\n\
         \x20      tombolo bench tcp               TCP with 1 to 50 flows, beside plain forwarding and Tayga\n\
         \x20      tombolo run -c FILE             a gateway of your own",
        report.version, report.start_ms
    )
}

/// A row for each technology.
fn in_a_table(technologies: &[TechnologyReport]) -> String {
    let Some(first) = technologies.first() else { return String::new() };
    let mut header = vec!["technology"];
    header.extend(first.steps.iter().map(|step| step.what));
    let mut table = print::table(&header);
    for technology in technologies {
        let mut row = vec![technology.technology.to_owned()];
        row.extend(technology.steps.iter().map(cell));
        table.add_row(row);
    }
    format!(
        "\nclient 10.0.0.2 (IPv4) -- cpe -- IPv6 only -- gateway -- server 198.51.100.2 (IPv4): both ends of the five technologies\n\
         x: times plain IPv4 forwarding over the same three hops\n{table}\n"
    )
}

fn cell(step: &StepReport) -> String {
    match (step.ours, step.ratio) {
        (Some(ours), Some(ratio)) if step.worked => format!("ok: {} {}\n{ratio:.2} x", figure(ours), step.unit),
        (Some(ours), None) if step.worked => format!("ok: {} {}", figure(ours), step.unit),
        _ => format!("FAILED: {}", step.result),
    }
}

/// Two digits behind the point, or none where there are enough before it.
fn figure(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

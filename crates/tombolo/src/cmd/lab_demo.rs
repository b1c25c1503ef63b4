//! `tombolo lab demo`: the demo's arguments and its table.

use anyhow::{Context as _, bail};
use clap::Args;
use tombolo_tester::{
    dut::{Dut, Options},
    setup::Technology,
};

use super::print;
use crate::demo::{Demo, Report, StepReport};

/// Arguments of `tombolo lab demo`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The gateway to show: tombolo, tayga
    #[arg(long, default_value = "tombolo")]
    gateway: Dut,
    /// Seconds of each TCP transfer; there are twelve
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Settings for tombolo's configuration, before its service
    #[arg(long, value_name = "TOML", default_value = "")]
    settings: String,
}

pub(crate) fn run(arguments: Arguments, json: bool) -> anyhow::Result<()> {
    let tombolo = std::env::current_exe().context("cannot find the program that is running")?;
    let options = Options { tombolo, tombolo_settings: arguments.settings, tombolo_trade: Technology::Nat64 };
    let demo = Demo { gateway: arguments.gateway, options, seconds: arguments.seconds };
    let progress = print::Progress::new(6);
    let report = demo.run(|done, what| progress.advance(done, what));
    drop(progress);
    let report = report?;
    if json {
        print::json(&report)?;
    } else {
        print::line(&in_words(&report))?;
    }
    let failed: Vec<&StepReport> = report.steps.iter().filter(|step| !step.worked).collect();
    if let Some(first) = failed.first() {
        let log = if report.log.is_empty() { " nothing" } else { report.log.as_str() };
        let count = failed.len();
        bail!(
            "{count} of {} steps failed; {}: {}; the gateway's last words:{log}",
            report.steps.len(),
            first.what,
            first.result
        );
    }
    Ok(())
}

fn in_words(report: &Report) -> String {
    let mut table = print::table(&["what", "result", &report.gateway, "plain", "unit", "ratio"]);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    for step in &report.steps {
        let result = format!("{} {}", if step.worked { "ok:" } else { "FAILED:" }, step.result);
        let (ours, plain) = (number(step.ours), number(step.plain));
        table.add_row([step.what, &result, &ours, &plain, step.unit, &number(step.ratio)]);
    }
    format!(
        "client 2001:db8:1::2 (IPv6) -- gateway -- server 198.51.100.2 (IPv4), three network namespaces\n\
         {} passed its first packet {} ms after it was started; plain is kernel forwarding beside it; medians of three rounds\n\
         {table}\n\
         Next:  tombolo lab up                 the same hosts, to play with: ip netns exec tombolo-lab-client bash\n\
         \x20      tombolo bench tcp               TCP with 1 to 50 flows, beside plain forwarding and Tayga\n\
         \x20      tombolo run -c FILE             a gateway of your own",
        report.version, report.start_ms
    )
}

//! `tombolo lab compare`: the comparison's arguments and its table.

use anyhow::bail;
use clap::Args;

use super::print;
use crate::live::{self, Path, Report};

/// Arguments of `tombolo lab compare`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Packets of each service on each path
    #[arg(long, default_value_t = 10_000)]
    packets: u64,
    /// Services: siit, clat, nat64, nat44, b4, aftr, lwb4, lwaftr, map-e-ce, map-e-br, map-t-ce,
    /// map-t-br; all if there is none
    #[arg(long, value_name = "NAME")]
    service: Vec<String>,
    /// Paths through the gateway; both if there is none
    #[arg(long, value_enum)]
    path: Vec<Path>,
    /// Seed of the packets
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Compares, and prints what came of it.
pub(crate) fn run(arguments: &Arguments, json: bool) -> anyhow::Result<()> {
    let services = if arguments.service.is_empty() {
        live::names().into_iter().map(str::to_owned).collect()
    } else {
        arguments.service.clone()
    };
    let paths = if arguments.path.is_empty() { &[Path::Engine, Path::Tc][..] } else { &arguments.path };
    let progress = print::Progress::new(services.len() * paths.len());
    let mut reports = Vec::new();
    for service in &services {
        for &path in paths {
            progress.advance(reports.len(), service);
            reports.push(live::run(service, path, arguments.packets, arguments.seed)?);
        }
    }
    drop(progress);
    if json {
        print::json(&reports)?;
    } else {
        print::line(&in_words(&reports))?;
    }
    let failures: Vec<_> = reports.iter().flat_map(|report| &report.failures).collect();
    if let Some(first) = failures.first() {
        bail!("{} things are not as they should be; the first: {first}", failures.len());
    }
    Ok(())
}

fn in_words(reports: &[Report]) -> String {
    let mut table = print::table(&[
        "service",
        "path",
        "in, from inside",
        "from outside",
        "out, inside",
        "outside",
        "forwarded",
        "of these by the kernel",
        "answered",
        "held",
        "dropped",
        "different",
    ]);
    for report in reports {
        let fates = &report.fates;
        let numbers = [
            report.sent[0],
            report.sent[1],
            report.arrived[0],
            report.arrived[1],
            fates.forwarded,
            report.taken_by_the_kernel,
            fates.answered + fates.echo_replies,
            fates.held,
            fates.dropped,
            report.different,
        ];
        let path = if report.path == Path::Tc { "TC" } else { "engine" };
        table.add_row([&[report.service.to_owned(), path.to_owned()][..], &numbers.map(|n| n.to_string())].concat());
    }
    let failures = reports.iter().flat_map(|report| report.failures.iter().map(move |text| (report.service, text)));
    let failures: String = failures.map(|(service, text)| format!("\nFAILED: {service}: {text}")).collect();
    format!("{table}{failures}")
}

//! `tombolo bench`: the tester's procedures.

use std::{path::PathBuf, time::SystemTime};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use tombolo_tester::{
    dut::{Dut, Options},
    procedure::tcp::{Direction, Plan, Summary},
    results::ResultFile,
};

use super::{bench_route_lookup, print};

/// Arguments of `tombolo bench`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    procedure: Procedure,
}

#[derive(Debug, Subcommand)]
enum Procedure {
    /// TCP goodput through several gateways, interleaved (iperf3)
    Tcp(Tcp),
    /// Route lookup: our table, libraries, and the running kernel
    RouteLookup(bench_route_lookup::Arguments),
}

/// Arguments of `tombolo bench tcp`.
#[derive(Debug, Args)]
#[command(
    after_help = "6to4: the client, on the IPv6 side, sends. 4to6: the server, on the IPv4 side, sends (iperf3 -R).\n\
    Ratios are medians of the ratios within rounds; compare them, not absolute rates."
)]
struct Tcp {
    /// Gateways: plain, plain4, tombolo, tayga, iptables
    #[arg(long, value_delimiter = ',', default_value = "plain,tombolo,tayga")]
    gateways: Vec<Dut>,
    /// Numbers of parallel connections
    #[arg(long, value_delimiter = ',', default_value = "1,10,20,50", value_parser = clap::value_parser!(u32).range(1..=128))]
    flows: Vec<u32>,
    /// Directions: 6to4, 4to6
    #[arg(long, value_delimiter = ',', default_value = "6to4,4to6", value_parser = direction)]
    directions: Vec<Direction>,
    /// How often everything is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Settings for tombolo's configuration, before its service
    #[arg(long, value_name = "TOML", default_value = "")]
    settings: String,
    /// Result file (JSON Lines), appended to
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the summaries as JSON instead of a table
    #[arg(long)]
    json: bool,
}

fn direction(text: &str) -> Result<Direction, String> {
    match text {
        "6to4" => Ok(Direction::SixToFour),
        "4to6" => Ok(Direction::FourToSix),
        _ => Err("directions are 6to4 and 4to6".to_owned()),
    }
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.procedure {
        Procedure::Tcp(tcp) => run_tcp(tcp),
        Procedure::RouteLookup(arguments) => bench_route_lookup::run(arguments),
    }
}

fn run_tcp(arguments: Tcp) -> anyhow::Result<()> {
    let tombolo = std::env::current_exe().context("cannot find the program that is running")?;
    let output = arguments.output.unwrap_or_else(default_output);
    let mut results =
        ResultFile::open(&output).with_context(|| format!("cannot open the result file {}", output.display()))?;
    let mut plan = Plan {
        gateways: arguments.gateways,
        flows: arguments.flows,
        directions: arguments.directions,
        rounds: arguments.rounds,
        seconds: arguments.seconds,
        options: Options { tombolo, tombolo_settings: arguments.settings },
    };
    plan.deduplicate();
    let progress = print::Progress::new(plan.measurements());
    progress.say(&format!("starting {} gateways", plan.gateways.len()));
    let mut errors = Vec::new();
    let summaries = plan.run(&mut results, |taken, sample| {
        progress.advance(taken, &format!("{} {} {} flows", sample.gateway, sample.direction, sample.flows));
        errors.extend(sample.error.as_ref().map(|error| format!("{}: {error}", sample.gateway)));
    });
    drop(progress);
    let summaries = summaries?;
    if arguments.json {
        print::json(&summaries)?;
    } else {
        print::line(&tabulate(&summaries))?;
        print::line(&format!("every measurement and the machine: {}", results.path().display()))?;
    }
    ensure!(errors.is_empty(), "{} measurements failed; the first: {}", errors.len(), errors[0]);
    Ok(())
}

fn default_output() -> PathBuf {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    format!("results/tcp-{}.jsonl", now.map_or(0, |since| since.as_secs())).into()
}

fn tabulate(summaries: &[Summary]) -> String {
    let header = ["direction", "flows", "gateway", "Gbit/s, median", "min", "max", "x plain", "x Tayga", "failed"];
    let mut table = print::table(&header);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    for summary in summaries {
        let rate = summary.bits_per_second;
        table.add_row([
            summary.direction.to_string(),
            summary.flows.to_string(),
            summary.gateway.clone(),
            number(rate.map(|rate| rate.median / 1e9)),
            number(rate.map(|rate| rate.min / 1e9)),
            number(rate.map(|rate| rate.max / 1e9)),
            number(summary.ratio_to_plain),
            number(summary.ratio_to_tayga),
            summary.failures.to_string(),
        ]);
    }
    table.to_string()
}

//! `tombolo bench dns64`: queries a second that a DNS64 resolver answers.

use std::{
    net::{Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use tombolo_tester::{
    bench::BenchError,
    effort::Effort,
    procedure::dns64::{Dns64Plan, Dns64Result, Resolver, Shares, TIMEOUT},
    results::ResultFile,
    search::Verdict,
    summary::Summary,
};

use super::bench_summary::number;
use super::print;

/// Arguments of `tombolo bench dns64`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without --server, unbound is started in a lab: client, resolver and authority in three namespaces.\n\
With it, the resolver has to be told that the zone dns64perf.test is served at --authority.")]
pub(crate) struct Arguments {
    /// Ask this resolver, and not unbound in a lab
    #[arg(long, value_name = "ADDRESS:PORT", requires = "authority")]
    server: Option<SocketAddr>,
    /// Answer for the zone dns64perf.test here
    #[arg(long, value_name = "ADDRESS:PORT", requires = "server")]
    authority: Option<SocketAddr>,
    /// Prefix under which the resolver synthesizes, a /96
    #[arg(long, value_name = "ADDRESS", default_value = "64:ff9b::")]
    prefix: Ipv6Addr,
    /// A first look: trials of 0.4 s, 3 repetitions, to 2 %
    #[arg(long, conflicts_with = "standard")]
    quick: bool,
    /// Between quick and full: trials of 5 s, 5 repetitions, to 0.5 %
    #[arg(long)]
    standard: bool,
    /// Repetitions [default: 20, standard 5, quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: Option<u32>,
    /// Seconds of a trial [default: 60, standard 5, quick 0.4]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Milliseconds after which an answer is none, at most 1000
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1000))]
    timeout: u64,
    /// Percent of the queries for names that the resolver knows
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    cached: u32,
    /// Percent of the names with AAAA records, so that nothing is synthesized
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    with_aaaa: u32,
    /// Highest rate to try [default: what the self-test allows]
    #[arg(long, value_name = "QPS")]
    max_rate: Option<u64>,
    /// Core of the client and of the authority
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// Core of unbound [default: the next one]
    #[arg(long, value_name = "CORE")]
    resolver_core: Option<usize>,
    /// Result file (JSON Lines), appended to
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the values as JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let plan = arguments.plan()?;
    let output = arguments.output.clone().unwrap_or_else(default_output);
    let mut results =
        ResultFile::open(&output).with_context(|| format!("cannot open the result file {}", output.display()))?;
    let outcome = plan.run(&mut results, &mut |asked, answers| {
        if answers.verdict() != Verdict::Passed {
            eprintln!("{} queries/s: {}", asked.rate, answers.why());
        }
    });
    let result = match outcome {
        Err(BenchError::Interrupted) => bail!("interrupted; what was measured is in {}", output.display()),
        other => other?,
    };
    if arguments.json {
        return print::json(&result.measured);
    }
    print::line(&tabulate(&plan, &result))?;
    print::line(&format!("every trial and the machine: {}", output.display()))
}

impl Arguments {
    fn plan(&self) -> anyhow::Result<Dns64Plan> {
        let mut effort = match (self.quick, self.standard) {
            (true, _) => Effort::QUICK,
            (_, true) => Effort::STANDARD,
            _ => Effort::FULL,
        };
        effort.repetitions = self.repetitions.unwrap_or(effort.repetitions);
        if let Some(seconds) = self.seconds {
            ensure!(seconds > 0.0 && seconds < 100_000.0, "--seconds {seconds}: not a length of a trial");
            effort.trial_seconds = seconds;
        }
        let there = std::thread::available_parallelism().map_or(1, usize::from);
        let resolver_core = self.resolver_core.unwrap_or((self.core + 1) % there);
        let core = self.core.max(resolver_core);
        ensure!(core < there, "there is no core {core}; this machine has {there}");
        Ok(Dns64Plan {
            resolver: match (self.server, self.authority) {
                (Some(server), Some(authority)) => Resolver::At { server, authority, prefix: self.prefix },
                _ => Resolver::Unbound,
            },
            effort,
            timeout: Duration::from_millis(self.timeout).min(TIMEOUT),
            shares: Shares { cached: self.cached, with_aaaa: self.with_aaaa },
            cores: (self.core, resolver_core),
            max_rate: self.max_rate,
        })
    }
}

fn default_output() -> PathBuf {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    format!("results/dns64-{}.jsonl", now.map_or(0, |since| since.as_secs())).into()
}

fn tabulate(plan: &Dns64Plan, result: &Dns64Result) -> String {
    let mut table = print::table(&["resolver", "cached", "with AAAA", "queries/s, median", "p1", "p99", "n"]);
    let values: Vec<f64> = result.measured.iter().filter_map(|one| one.value).collect();
    let summary = Summary::of(&values);
    let sign = result.measured.iter().find_map(|one| one.bound).map_or("", |bound| bound.sign());
    let of = |field: fn(&Summary) -> f64| summary.as_ref().map_or_else(|| "-".to_owned(), |s| number(field(s)));
    table.add_row([
        result.resolver.lines().next().unwrap_or_default().to_owned(),
        format!("{} %", plan.shares.cached),
        format!("{} %", plan.shares.with_aaaa),
        format!("{sign} {}", of(|s| s.median)).trim_start().to_owned(),
        of(|s| s.p1),
        of(|s| s.p99),
        format!("{} of {}", values.len(), result.measured.len()),
    ]);
    let mut doubts: Vec<&String> = result.measured.iter().flat_map(|one| &one.doubts).collect();
    doubts.sort();
    doubts.dedup();
    let notes: String = doubts.iter().map(|doubt| format!("\n* {doubt}")).collect();
    format!(
        "{table}\nself-test: the tester's own authority answers {} queries/s within a quarter of the timeout, so at most {} are asked; \
         searches end within {} % of the value found; an answer after {} ms is none{notes}",
        number(result.self_test.answered_rate as f64),
        number(result.self_test.highest_rate as f64),
        plan.effort.resolution * 100.0,
        plan.timeout.as_millis()
    )
}

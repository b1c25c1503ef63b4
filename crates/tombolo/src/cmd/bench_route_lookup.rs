//! `tombolo bench route-lookup`.

use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use tombolo_tester::procedure::route_lookup::routes::Distribution;
use tombolo_tester::procedure::route_lookup::verdict::{Verdict, verdicts};
use tombolo_tester::procedure::route_lookup::{self, KeyKind, Options, Record};
use tombolo_tester::results::ResultFile;

use super::print;

/// Arguments of `tombolo bench route-lookup`.
#[derive(Debug, Args)]
#[command(
    after_help = "Times are ns of processor time a lookup in each thread, a dry run subtracted. The last column is what\n\
    the slides of NetDev 1.1 (2016) give for Linux 4.4 on a 2.7 GHz Xeon. The libraries are compiled as this\n\
    program is: build it with RUSTFLAGS=-Ctarget-cpu=native to see them at their best."
)]
pub(crate) struct Arguments {
    /// Routes in the tables
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,10000,100000,1000000")]
    routes: Vec<usize>,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,24")]
    threads: Vec<usize>,
    /// Tables that more than one thread, and a writer, are tried on
    #[arg(long, value_delimiter = ',', default_value = "1,100000")]
    thread_routes: Vec<usize>,
    /// Address families
    #[arg(long, value_delimiter = ',', default_value = "4,6", value_parser = clap::value_parser!(u8).range(4..=6))]
    families: Vec<u8>,
    /// Kinds of tables: uniformly random, or like the Internet's
    #[arg(long, value_delimiter = ',', default_value = "random")]
    tables: Vec<TableKind>,
    /// Keys from the whole address space, or inside the table's routes
    #[arg(long, value_delimiter = ',', default_value = "random")]
    keys: Vec<Keys>,
    /// Lookups in each thread in a round
    #[arg(long, default_value_t = 1_000_000)]
    lookups: usize,
    /// Rounds; the highest and the lowest are dropped
    #[arg(long, default_value_t = 12)]
    rounds: usize,
    /// Changes a second of the writer beside one reader; 0: none
    #[arg(long, default_value_t = 100_000.0)]
    updates: f64,
    /// Leave the running kernel out (it needs root and Linux 6.3)
    #[arg(long)]
    no_kernel: bool,
    /// Leave the libraries out
    #[arg(long)]
    no_libraries: bool,
    /// Leave DPDK's own benchmark out, which is run where dpdk-test-fib is installed
    #[arg(long)]
    no_dpdk: bool,
    /// Result file (JSON Lines), appended to
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON Lines instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TableKind {
    Random,
    Global,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Keys {
    Random,
    Covered,
}

impl Arguments {
    fn options(&self) -> Options {
        let distribution = |kind: &TableKind| match kind {
            TableKind::Random => Distribution::Random,
            TableKind::Global => Distribution::Global,
        };
        let keys = |keys: &Keys| match keys {
            Keys::Random => KeyKind::Random,
            Keys::Covered => KeyKind::Covered,
        };
        Options {
            families: self.families.clone(),
            distributions: self.tables.iter().map(distribution).collect(),
            keys: self.keys.iter().map(keys).collect(),
            routes: self.routes.clone(),
            threads: self.threads.clone(),
            thread_routes: self.thread_routes.clone(),
            lookups: self.lookups,
            rounds: self.rounds.max(1),
            kernel: !self.no_kernel,
            libraries: !self.no_libraries,
            dpdk: !self.no_dpdk,
            updates: (self.updates > 0.0).then_some(self.updates),
        }
    }
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let output = arguments.output.clone().unwrap_or_else(default_output);
    let mut results =
        ResultFile::open(&output).with_context(|| format!("cannot open the result file {}", output.display()))?;
    let options = arguments.options();
    let progress = print::Progress::new(options.distributions.len() * options.routes.len() * options.families.len());
    progress.say("building the first tables");
    let mut cases = Vec::new();
    let records = route_lookup::record(&options, &mut results, |record| {
        let case = (record.distribution, record.routes, record.family);
        if cases.last() != Some(&case) {
            cases.push(case);
        }
        progress.advance(cases.len(), &format!("IPv{}, {} routes", record.family, record.routes));
    });
    drop(progress);
    let records = records?;
    let verdicts = verdicts(&records);
    if arguments.json {
        for record in &records {
            print::line(&serde_json::to_string(record)?)?;
        }
        for verdict in &verdicts {
            print::line(&serde_json::to_string(verdict)?)?;
        }
        return Ok(());
    }
    print::line(&tabulate(&records))?;
    print::line(&judge(&verdicts))?;
    print::line(&format!("every round and the machine: {}", results.path().display()))
}

fn default_output() -> PathBuf {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    format!("results/route-lookup-{}.jsonl", now.map_or(0, |since| since.as_secs())).into()
}

fn tabulate(records: &[Record]) -> String {
    let header = [
        "table",
        "routes",
        "IP",
        "keys",
        "threads",
        "updates/s",
        "contender",
        "ns, median",
        "mean",
        "deviation",
        "all threads, ns",
        "bytes a route",
        "build, s",
        "Linux 4.4, ns",
    ];
    let mut table = print::table(&header);
    let optional = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.1}"));
    for record in records {
        table.add_row([
            format!("{:?}", record.distribution).to_lowercase(),
            record.routes.to_string(),
            record.family.to_string(),
            format!("{:?}", record.keys).to_lowercase(),
            record.threads.to_string(),
            format!("{:.0}", record.updates_per_second),
            record.contender.to_owned(),
            format!("{:.2}", record.ns.median),
            format!("{:.2}", record.ns.mean),
            format!("{:.2}", record.ns.deviation),
            format!("{:.2}", record.total_ns),
            optional(record.bytes_per_route),
            format!("{:.3}", record.build_seconds),
            optional(record.published_ns),
        ]);
    }
    table.to_string()
}

fn judge(verdicts: &[Verdict]) -> String {
    let mut table = print::table(&["requirement", "measured", "at most", ""]);
    for verdict in verdicts {
        table.add_row([
            verdict.requirement.clone(),
            format!("{:.3}", verdict.measured),
            format!("{:.3}", verdict.at_most),
            if verdict.met { "met" } else { "NOT MET" }.to_owned(),
        ]);
    }
    table.to_string()
}

//! `tombolo bench`: the tester's procedures.

use std::{path::PathBuf, time::SystemTime};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use tombolo_tester::{
    gateway::{Kind, Technology, start::Options},
    procedure::packet::Procedure as OnFrames,
    procedure::tcp::{Direction, Protocol, Summary, TcpComparison, WARM_UP_SECONDS},
    results::ResultFile,
};

use super::{bench_dns64, bench_matrix, bench_packets, bench_preset, bench_route_lookup, print};

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
    /// Highest rate without loss (RFC 2544 26.1, RFC 8219 7.1)
    Throughput(Box<bench_packets::Arguments>),
    /// Loss against the rate (RFC 2544 26.3)
    FrameLoss(Box<bench_packets::Arguments>),
    /// Typical and worst-case latency at the throughput rate (RFC 8219 7.2)
    Latency(Box<bench_packets::Arguments>),
    /// Packet delay variation at the throughput rate (RFC 8219 7.3.1)
    Pdv(Box<bench_packets::Arguments>),
    /// Inter-packet delay variation at the throughput rate (RFC 8219 7.3.2)
    Ipdv(Box<bench_packets::Arguments>),
    /// Longest burst without loss, and buffer time (RFC 2544 26.4, RFC 9004)
    BackToBack(Box<bench_packets::Arguments>),
    /// Time to recover from overload (RFC 2544 26.5)
    Recovery(Box<bench_packets::Arguments>),
    /// Time without forwarding around a restart (RFC 2544 26.6, RFC 6201)
    Reset(Box<bench_packets::Arguments>),
    /// What is received while more is sent than is forwarded (CSIT "MRR")
    ReceivedRate(Box<bench_packets::Arguments>),
    /// Maximum connection establishment rate, validated (RFC 9693 4.4, 4.5)
    ConnectionRate(Box<bench_packets::Arguments>),
    /// Throughput in phase 2, all connections established (RFC 9693 4.6)
    StatefulThroughput(Box<bench_packets::Arguments>),
    /// Connection tear-down rate (RFC 9693 4.7)
    Teardown(Box<bench_packets::Arguments>),
    /// Capacity of the connection tracking table (RFC 9693 4.8)
    Capacity(Box<bench_packets::Arguments>),
    /// Series over sessions and over cores (RFC 9693 4.10)
    Scalability(Box<bench_packets::Arguments>),
    /// What many flows at once take from throughput and latency of one (RFC 8219 10)
    Overload(Box<bench_packets::Arguments>),
    /// The same of flows that begin one after another (RFC 8219 10.2.2)
    OverloadIncremental(Box<bench_packets::Arguments>),
    /// Non-drop and partial-drop rate by MLRsearch's rules (CSIT "NDR", "PDR")
    Mlrsearch(Box<bench_packets::Arguments>),
    /// Queries a second that a DNS64 resolver answers (RFC 8219 9)
    Dns64(bench_dns64::Arguments),
    /// Every technology by every procedure that applies to it, each measured once
    Matrix(bench_matrix::Arguments),
    /// A published table or figure, measured again beside it
    Preset(bench_preset::Arguments),
    /// The tester against itself: its highest rate and its pacing on this machine
    SelfTest(bench_packets::SelfTest),
}

/// Arguments of `tombolo bench tcp`.
#[derive(Debug, Args)]
#[command(
    after_help = "6to4: the client, on the IPv6 side, sends. 4to6: the server, on the IPv4 side, sends (iperf3 -R).\n\
    Pairs (464xlat, ds-lite, lw4o6, map-e, map-t) are both ends of a technology, a customer's edge and the provider's; they are\n\
    compared with plain-pair, IPv4 forwarding over the same three hops.\n\
    Ratios are medians of the ratios within rounds; compare them, not absolute rates."
)]
struct Tcp {
    /// Gateways: plain, plain4, tombolo, tayga, tayga-nat, iptables, nftables, jool, jool_siit; pairs: plain-pair, 464xlat,
    /// ds-lite, lw4o6, map-e, map-t [default: plain,tombolo,tayga; plain4 instead of plain for nat44]
    #[arg(long, value_delimiter = ',')]
    gateways: Vec<Kind>,
    /// What tombolo does: nat64, nat44, siit
    #[arg(long, default_value = "nat64", value_parser = service)]
    service: Technology,
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

fn service(text: &str) -> Result<Technology, String> {
    match text {
        "nat64" => Ok(Technology::Nat64),
        "nat44" => Ok(Technology::Nat44),
        "siit" => Ok(Technology::Siit),
        _ => Err("services are nat64, nat44 and siit".to_owned()),
    }
}

fn default_gateways(service: Technology) -> Vec<Kind> {
    let plain = if service == Technology::Nat44 { Kind::Plain4 } else { Kind::Plain };
    vec![plain, Kind::Tombolo, Kind::Tayga]
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
        Procedure::Throughput(a) => bench_packets::run(OnFrames::Throughput, *a),
        Procedure::FrameLoss(a) => bench_packets::run(OnFrames::FrameLoss, *a),
        Procedure::Latency(a) => bench_packets::run(OnFrames::Latency, *a),
        Procedure::Pdv(a) => bench_packets::run(OnFrames::Pdv, *a),
        Procedure::Ipdv(a) => bench_packets::run(OnFrames::Ipdv, *a),
        Procedure::BackToBack(a) => bench_packets::run(OnFrames::BackToBack, *a),
        Procedure::Recovery(a) => bench_packets::run(OnFrames::Recovery, *a),
        Procedure::Reset(a) => bench_packets::run(OnFrames::Reset, *a),
        Procedure::ReceivedRate(a) => bench_packets::run(OnFrames::ReceivedRate, *a),
        Procedure::ConnectionRate(a) => bench_packets::run(OnFrames::ConnectionRate, *a),
        Procedure::StatefulThroughput(a) => bench_packets::run(OnFrames::StatefulThroughput, *a),
        Procedure::Teardown(a) => bench_packets::run(OnFrames::Teardown, *a),
        Procedure::Capacity(a) => bench_packets::run(OnFrames::Capacity, *a),
        Procedure::Scalability(a) => bench_packets::run(OnFrames::Scalability, *a),
        Procedure::Overload(a) => bench_packets::run(OnFrames::Overload, *a),
        Procedure::OverloadIncremental(a) => bench_packets::run(OnFrames::OverloadIncremental, *a),
        Procedure::Mlrsearch(a) => bench_packets::run(OnFrames::Mlrsearch, *a),
        Procedure::Dns64(a) => bench_dns64::run(&a),
        Procedure::Matrix(a) => bench_matrix::run(a),
        Procedure::Preset(a) => bench_preset::run(&a),
        Procedure::SelfTest(a) => bench_packets::self_test(&a),
    }
}

fn run_tcp(arguments: Tcp) -> anyhow::Result<()> {
    let tombolo = std::env::current_exe().context("cannot find the program that is running")?;
    let output = arguments.output.unwrap_or_else(default_output);
    let mut results =
        ResultFile::open(&output).with_context(|| format!("cannot open the result file {}", output.display()))?;
    let mut comparison = TcpComparison {
        protocol: Protocol::Tcp,
        gateways: if arguments.gateways.is_empty() { default_gateways(arguments.service) } else { arguments.gateways },
        flows: arguments.flows,
        directions: arguments.directions,
        rounds: arguments.rounds,
        seconds: arguments.seconds,
        warm_up_seconds: WARM_UP_SECONDS,
        options: Options::new(tombolo, arguments.settings, arguments.service),
    };
    comparison.deduplicate();
    let progress = print::Progress::new(comparison.measurements());
    progress.say(&format!("starting {} gateways", comparison.gateways.len()));
    let mut errors = Vec::new();
    let summaries = comparison.run(&mut results, |taken, sample| {
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

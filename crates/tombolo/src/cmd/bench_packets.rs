//! `tombolo bench throughput`, `latency`, `connection-rate` and the other procedures on frames.

use std::{
    io::{self, IsTerminal as _, Write as _},
    net::{Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde_json::json;
use tombolo_tester::{
    bench::{BenchError, Means, Mix, Status},
    effort::Effort,
    forecast::Forecast,
    gateway::{Addresses, Flows, Spec, Technology, between_ports::Hooks},
    procedure::{Bound, Known, Measured, packet::Procedure},
    readings::GatewaySummary,
    results::ResultFile,
    selftest,
    series::{Progress, SeriesPlan, SeriesResult},
    summary::Summary,
    trial::{Directions, Sharing},
};

use super::print;

/// Arguments of all procedures on frames.
#[derive(Debug, Args)]
#[command(after_help = "\
Gateways: plain, tombolo, tombolo:off|tc|xdp, iptables, nftables, tayga, jool, jool_siit, external,\n\
and faulty:loss=N,corrupt=N,misdirect=N,duplicate=N,reorder=N (every Nth frame),delay=US,capacity=N,rate=N,outage=MS,state=1,keep=N,timeout=MS,\n\
hops=N,tos=N,df=N,id=N,label=N,mac=N (a field of every Nth header).\n\
Exit status: 0 measured, 1 a gateway could not be measured or the run was interrupted, 2 wrong usage.\n\
An interrupted run leaves whole lines; --resume FILE goes on where it ended.")]
pub(crate) struct Arguments {
    /// The gateway under test
    #[arg(long, value_name = "GATEWAY", default_value = "tombolo")]
    dut: Spec,
    /// Gateways to measure beside it, interleaved; ratios are relative to --dut
    #[arg(long, value_name = "GATEWAY", num_args = 1.., value_delimiter = ' ')]
    against: Vec<Spec>,
    /// What the gateways do: forward4, forward6, nat44, nat64, siit, clat, b4, aftr, lwb4, lwaftr,
    /// map-e-ce, map-e-br, map-t-ce, map-t-br [default: each gateway's usual trade]
    #[arg(long)]
    technology: Option<Technology>,
    /// A first look in well under a minute a gateway: short trials, few repetitions
    #[arg(long, conflicts_with = "standard")]
    quick: bool,
    /// Between quick and full: trials of 5 s, 5 repetitions, to 0.5 %
    #[arg(long)]
    standard: bool,
    /// Repetitions [default: 20, standard 5, quick 3]
    #[arg(long, value_name = "N")]
    repetitions: Option<u32>,
    /// Seconds of a trial [default: 60, standard 5, quick 0.4]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// A search ends within so many percent of the value found ("e") [default: 0.1, standard 0.5,
    /// quick 2]
    #[arg(long, value_name = "PERCENT")]
    resolution: Option<f64>,
    /// Rate of the validation over that of phase 1 (RFC 9693: 0.5 to 0.8) [default: 0.8]
    #[arg(long, value_name = "PART")]
    alpha: Option<f64>,
    /// Milliseconds to wait for late frames, the global timeout [default: 2000, standard 1000, quick
    /// 300]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout: Option<u64>,
    /// Milliseconds between two trials [default: 5000, standard 500, quick 0]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=3_600_000))]
    pause: Option<u64>,
    /// Frames timed one by one, the "tags" of the latency procedure [default: 50000, standard 10000,
    /// quick 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    tags: Option<u32>,
    /// Bytes of a frame on the left side of --dut, with FCS [default: the shortest]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..=3400))]
    frame_size: Option<u16>,
    /// Frames to the outside only
    #[arg(long, conflicts_with_all = ["bidirectional", "reverse_only"])]
    forward_only: bool,
    /// Frames to the inside only
    #[arg(long, conflicts_with = "bidirectional")]
    reverse_only: bool,
    /// Frames in both directions at the same rate (the default)
    #[arg(long)]
    bidirectional: bool,
    /// Percent of foreground traffic; the rest is native IPv6
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    foreground: u32,
    /// Inside ports of a subscriber
    #[arg(long, value_name = "N")]
    inside_ports: Option<u32>,
    /// Outside ports of a server
    #[arg(long, value_name = "N")]
    outside_ports: Option<u32>,
    /// Subscribers
    #[arg(long, value_name = "N", default_value_t = 1)]
    inside_hosts: u32,
    /// Servers
    #[arg(long, value_name = "N", default_value_t = 1)]
    outside_hosts: u32,
    /// Known throughput of each direction, frames/s: latency and the like then need no search
    #[arg(long, value_name = "FPS")]
    rate: Option<u64>,
    /// Rate of phase 1, connections/s [default: half of the connection rate, which is measured
    /// first]
    #[arg(long, value_name = "CPS")]
    fill_rate: Option<u64>,
    /// Highest rate to try in each direction [default: what the self-test reached]
    #[arg(long, value_name = "FPS")]
    max_rate: Option<u64>,
    /// How frames leave [default: live frames where the kernel has them]
    #[arg(long, value_enum, default_value = "auto", hide_default_value = true)]
    generator: Generator,
    /// Times a failed trial is tried again before it counts (RFC 9004, loss verification) [default:
    /// 0, quick 1]
    #[arg(long, value_name = "N")]
    verify: Option<u32>,
    /// Cores that send [default: 0]
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    sending_cores: Option<Vec<usize>>,
    /// Cores of the gateway [default: all others]; the sending ones for a gateway that shares them
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    gateway_cores: Option<Vec<usize>>,
    #[command(flatten)]
    external: External,
    /// Result file (JSON Lines), appended to
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Go on with this result file: repetitions that it holds are not measured again
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    resume: Option<PathBuf>,
    /// Write the summaries as CSV, too
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print the summaries as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// An external gateway.
#[derive(Debug, Args)]
#[command(next_help_heading = "For --dut external")]
struct External {
    /// Interface that leads to the gateway's inside
    #[arg(long, value_name = "INTERFACE")]
    left: Option<String>,
    /// Interface that leads to its outside
    #[arg(long, value_name = "INTERFACE")]
    right: Option<String>,
    /// Link-layer address of its inside port
    #[arg(long, value_name = "MAC", value_parser = link_address)]
    left_gateway: Option<[u8; 6]>,
    /// Link-layer address of its outside port
    #[arg(long, value_name = "MAC", value_parser = link_address)]
    right_gateway: Option<[u8; 6]>,
    /// First subscriber's IPv4 address
    #[arg(long, value_name = "ADDRESS")]
    inside_ipv4: Option<Ipv4Addr>,
    /// First subscriber's IPv6 address, or its softwire's
    #[arg(long, value_name = "ADDRESS")]
    inside_ipv6: Option<Ipv6Addr>,
    /// First server's IPv4 address
    #[arg(long, value_name = "ADDRESS")]
    outside_ipv4: Option<Ipv4Addr>,
    /// First server's IPv6 address
    #[arg(long, value_name = "ADDRESS")]
    outside_ipv6: Option<Ipv6Addr>,
    /// IPv4 address that SIIT maps the first subscriber to
    #[arg(long, value_name = "ADDRESS")]
    mapped_ipv4: Option<Ipv4Addr>,
    /// Softwire address of the AFTR, lwAFTR or BR
    #[arg(long, value_name = "ADDRESS")]
    concentrator: Option<Ipv6Addr>,
    /// First and last address of the gateway's pool
    #[arg(long, value_name = "FIRST-LAST", value_parser = pool)]
    pool: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Seconds that the gateway keeps UDP connections
    #[arg(long, value_name = "S")]
    udp_timeout: Option<u64>,
    /// Command that empties its tables
    #[arg(long, value_name = "COMMAND")]
    hook_flush: Option<String>,
    /// Command that restarts it
    #[arg(long, value_name = "COMMAND")]
    hook_reset: Option<String>,
    /// Command that prints its number of connections
    #[arg(long, value_name = "COMMAND")]
    hook_sessions: Option<String>,
    /// Command that sets its number of cores to $TOMBOLO_CORES
    #[arg(long, value_name = "COMMAND")]
    hook_cores: Option<String>,
}

/// Arguments of `tombolo bench self-test`.
#[derive(Debug, Args)]
pub(crate) struct SelfTest {
    /// Bytes of a frame, with FCS
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=3400))]
    frame_size: u16,
    /// The core
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// How frames leave [default: live frames where the kernel has them]
    #[arg(long, value_enum, default_value = "auto", hide_default_value = true)]
    generator: Generator,
    /// JSON instead of lines
    #[arg(long)]
    json: bool,
}

/// How frames leave.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Generator {
    /// What the kernel has
    Auto,
    /// Live frames from the kernel
    Live,
    /// Packet sockets: slower, on any kernel with XDP
    Socket,
}

impl Generator {
    fn means(self) -> Option<Means> {
        match self {
            Generator::Auto => None,
            Generator::Live => Some(Means::LiveFrames),
            Generator::Socket => Some(Means::PacketSockets),
        }
    }
}

/// The tester against itself, over a veth pair without a gateway.
pub(crate) fn self_test(arguments: &SelfTest) -> anyhow::Result<()> {
    let kind = Technology::Forward4.kinds().0;
    let result = {
        let there = std::thread::available_parallelism().map_or(1, usize::from);
        let other = (0..there).find(|core| *core != arguments.core);
        selftest::run(kind, arguments.frame_size, arguments.core, other, arguments.generator.means())?
    };
    if arguments.json {
        return print::json(&result);
    }
    print::line(&describe(&result))
}

pub(crate) fn run(procedure: Procedure, arguments: Arguments) -> anyhow::Result<()> {
    let json = arguments.json;
    let csv = arguments.csv.clone();
    let resume = arguments.resume.is_some();
    let output = arguments.resume.clone().or(arguments.output.clone()).unwrap_or_else(|| default_output(procedure));
    if resume {
        ensure!(output.exists(), "there is no result file {} to go on with", output.display());
    }
    let plan = arguments.plan(procedure)?;
    let mut results =
        ResultFile::open(&output).with_context(|| format!("cannot open the result file {}", output.display()))?;
    let mut progress = Live::new();
    let result = plan.run(&mut results, resume, &mut progress);
    progress.clear();
    let result = match result {
        Err(BenchError::Interrupted) => {
            bail!("interrupted; what was measured is in {0}, and --resume {0} goes on", output.display())
        }
        other => other?,
    };
    if let Some(file) = csv {
        std::fs::write(&file, comma_separated(&result))
            .with_context(|| format!("cannot write the summaries to {}", file.display()))?;
    }
    if json {
        print::json(&json!({ "procedure": procedure, "self_test": result.self_test, "summaries": result.summaries,
            "failures": result.failures, "results": output }))?;
    } else {
        print::line(&tabulate(&result))?;
        print::line(&footnotes(&plan, &result))?;
        print::line(&format!("every trial and the machine: {}", output.display()))?;
    }
    match result.failures.first() {
        Some((gateway, error)) => bail!("{} measurements have no result; {gateway}: {error}", result.failures.len()),
        None => Ok(()),
    }
}

impl Arguments {
    fn plan(self, procedure: Procedure) -> anyhow::Result<SeriesPlan> {
        let mut effort = match (self.quick, self.standard) {
            (true, _) => Effort::QUICK,
            (_, true) => Effort::STANDARD,
            _ => Effort::FULL,
        };
        self.adapt(&mut effort)?;
        effort.repetitions = self.repetitions.unwrap_or(effort.repetitions).max(1);
        effort.verify_failures = self.verify.unwrap_or(effort.verify_failures);
        if let Some(repetitions) = self.repetitions {
            effort.burst_repetitions = repetitions.max(1);
        }
        if let Some(seconds) = self.seconds {
            ensure!(seconds > 0.0 && seconds < 100_000.0, "--seconds {seconds}: not a length of a trial");
            effort.trial_seconds = seconds;
        }
        let known = Known { throughput: self.rate, fill_rate: self.fill_rate, ..Known::default() };
        let flows = self.flows()?;
        let addresses = self.external.addresses();
        let external = &self.external;
        let gateways = std::iter::once(self.dut).chain(self.against);
        let gateways: Vec<Spec> = gateways
            .map(|spec| match spec {
                Spec::External(_) => external.hooks().map(Spec::External),
                other => Ok(other),
            })
            .collect::<Result<_, _>>()?;
        let mix = (self.foreground < 100).then_some(Mix { n: 100, m: self.foreground });
        Ok(SeriesPlan {
            procedure,
            gateways,
            technology: self.technology,
            effort,
            directions: match (self.forward_only, self.reverse_only) {
                (true, _) => Directions::Forward,
                (_, true) => Directions::Reverse,
                _ => Directions::Both,
            },
            flows,
            frame_bytes: self.frame_size,
            mix,
            sending_cores: self.sending_cores,
            gateway_cores: self.gateway_cores,
            known,
            max_rate: self.max_rate,
            means: self.generator.means(),
            addresses: Some(addresses),
            tombolo: std::env::current_exe().context("cannot find the program that is running")?,
        })
    }

    /// The parameters of the RFCs that were given.
    fn adapt(&self, effort: &mut Effort) -> anyhow::Result<()> {
        if let Some(percent) = self.resolution {
            ensure!((0.0001..=50.0).contains(&percent), "--resolution {percent}: percent, from 0.0001 to 50");
            effort.resolution = percent / 100.0;
        }
        if let Some(alpha) = self.alpha {
            ensure!((0.01..=1.0).contains(&alpha), "--alpha {alpha}: a part of the rate, from 0.01 to 1");
            effort.alpha = alpha;
        }
        effort.drain_ms = self.timeout.unwrap_or(effort.drain_ms);
        effort.pause_ms = self.pause.unwrap_or(effort.pause_ms);
        effort.timed_frames = self.tags.unwrap_or(effort.timed_frames);
        Ok(())
    }

    fn flows(&self) -> anyhow::Result<Option<Flows>> {
        let several = self.inside_hosts > 1 || self.outside_hosts > 1;
        if self.inside_ports.is_none() && self.outside_ports.is_none() && !several {
            return Ok(None);
        }
        let usual = if several { Flows::sessions(1000, 100) } else { Flows::sessions(4000, 10) };
        let flows = Flows {
            inside_ports: self.inside_ports.unwrap_or(usual.inside_ports),
            outside_ports: self.outside_ports.unwrap_or(usual.outside_ports),
            inside_hosts: self.inside_hosts,
            outside_hosts: self.outside_hosts,
            ..usual
        };
        ensure!(flows.count() > 0, "there must be at least one port and one host on each side");
        Ok(Some(flows))
    }
}

impl External {
    fn addresses(&self) -> Addresses {
        let usual = Addresses::default();
        Addresses {
            inside_ipv4: self.inside_ipv4.unwrap_or(usual.inside_ipv4),
            inside_ipv6: self.inside_ipv6.unwrap_or(usual.inside_ipv6),
            outside_ipv4: self.outside_ipv4.unwrap_or(usual.outside_ipv4),
            outside_ipv6: self.outside_ipv6.unwrap_or(usual.outside_ipv6),
            mapped_ipv4: self.mapped_ipv4.unwrap_or(usual.mapped_ipv4),
            softwire_concentrator: self.concentrator.unwrap_or(usual.softwire_concentrator),
            pool: self.pool,
            ..usual
        }
    }

    fn hooks(&self) -> Result<Hooks, anyhow::Error> {
        let (Some(left), Some(right)) = (self.left.clone(), self.right.clone()) else {
            bail!("an external gateway needs --left INTERFACE and --right INTERFACE");
        };
        let (Some(left_gateway), Some(right_gateway)) = (self.left_gateway, self.right_gateway) else {
            bail!("an external gateway needs --left-gateway MAC and --right-gateway MAC (ip neigh shows them)");
        };
        Ok(Hooks {
            name: None,
            left,
            right,
            left_gateway,
            right_gateway,
            flush: self.hook_flush.clone(),
            reset: self.hook_reset.clone(),
            sessions: self.hook_sessions.clone(),
            cores: self.hook_cores.clone(),
            udp_timeout_seconds: self.udp_timeout,
        })
    }
}

fn link_address(text: &str) -> Result<[u8; 6], String> {
    let bytes: Vec<u8> = text.split(':').map_while(|part| u8::from_str_radix(part, 16).ok()).collect();
    let well_formed = text.split(':').count() == 6;
    bytes.try_into().ok().filter(|_| well_formed).ok_or_else(|| format!("`{text}` is not like 02:00:00:00:00:01"))
}

fn pool(text: &str) -> Result<(Ipv4Addr, Ipv4Addr), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => Err(format!("`{text}` is not like 192.0.2.1-192.0.2.14")),
    }
}

fn default_output(procedure: Procedure) -> PathBuf {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    format!("results/{procedure}-{}.jsonl", now.map_or(0, |since| since.as_secs())).into()
}

/// The progress: one line that is rewritten on a terminal, one line a measurement elsewhere.
struct Live {
    terminal: bool,
    forecast: Option<Forecast>,
    finished: u32,
    started: Instant,
    shown: Instant,
}

impl Live {
    fn new() -> Live {
        let now = Instant::now();
        Live { terminal: io::stderr().is_terminal(), forecast: None, finished: 0, started: now, shown: now }
    }

    fn total(&self) -> u32 {
        self.forecast.map_or(0, |forecast| forecast.measurements)
    }

    fn clear(&self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    /// Time left, judged by what is done; before that, by the forecast.
    fn left(&self) -> String {
        let passed = self.started.elapsed().as_secs_f64();
        let left = match (self.finished, self.forecast) {
            (0, Some(forecast)) => forecast.seconds - passed,
            (done, _) => passed * f64::from(self.total().saturating_sub(done)) / f64::from(done.max(1)),
        };
        match left {
            ..=0.0 => "longer than forecast".to_owned(),
            left => format!("about {}", duration(left)),
        }
    }
}

impl Progress for Live {
    fn planned(&mut self, forecast: &Forecast) {
        self.forecast = Some(*forecast);
        self.started = Instant::now();
        let _ = writeln!(
            io::stderr(),
            "{} measurements, about {}; the tester takes {} MiB",
            forecast.measurements,
            duration(forecast.seconds),
            forecast.memory_bytes >> 20
        );
    }

    fn status(&mut self, _: u32, _: u32, status: &Status) {
        if !self.terminal || self.shown.elapsed() < Duration::from_millis(100) {
            return;
        }
        self.shown = Instant::now();
        let bounds = status.bounds.map_or_else(String::new, |(low, high)| format!(" in [{low}, {high}]"));
        let percent = status.sent.0 * 100 / status.sent.1.max(1);
        let (done, total, left) = (self.finished, self.total(), self.left());
        let line = format!(
            "[{done}/{total}, {left}] {} {} {} frames/s {percent}%{bounds}",
            status.gateway, status.purpose, status.rate
        );
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
    }

    fn measured(&mut self, gateway: &str, repetition: u32, measured: &[Measured]) {
        self.finished += 1;
        let values: Vec<String> = measured.iter().map(in_words).collect();
        self.clear();
        let _ = writeln!(io::stderr(), "{gateway} {repetition}: {}", values.join(", "));
    }

    fn failed(&mut self, gateway: &str, error: &BenchError) {
        self.clear();
        let _ = writeln!(io::stderr(), "{gateway}: {error}");
    }
}

/// To the second below an hour, to the minute above.
fn duration(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of seconds, not negative")]
    let seconds = seconds.max(0.0).ceil() as u64;
    match seconds {
        0..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        _ => format!("{}:{:02} h", seconds / 3600, seconds % 3600 / 60),
    }
}

fn sign(bound: Option<Bound>) -> String {
    bound.map_or_else(String::new, |bound| format!("{} ", bound.sign()))
}

fn in_words(measured: &Measured) -> String {
    match measured.value {
        Some(value) => format!("{} {}{} {}", measured.quantity, sign(measured.bound), number(value), measured.unit),
        None => format!("{}: none ({})", measured.quantity, measured.doubts.join("; ")),
    }
}

fn tabulate(result: &SeriesResult) -> String {
    let mut table = print::table(&["gateway", "quantity", "median", "min", "max", "unit", "ratio (min..max)", "n"]);
    for row in &result.summaries {
        let GatewaySummary { summary, ratio, .. } = row;
        let doubtful = if row.doubts.is_empty() { "" } else { " *" };
        let ratio = ratio.map_or_else(
            || if row.gateway == result.summaries[0].gateway { "1".to_owned() } else { "-".to_owned() },
            |r| format!("{}{} ({}..{})", sign(row.ratio_bound), number(r.median), number(r.min), number(r.max)),
        );
        let or_none = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
        let count = summary.map_or(0, |s| s.count);
        table.add_row([
            row.gateway.clone(),
            row.quantity.clone(),
            format!("{}{}{doubtful}", sign(row.bound), or_none(summary.map(|s| s.median))),
            or_none(summary.map(|s| s.min)),
            or_none(summary.map(|s| s.max)),
            row.unit.clone(),
            ratio,
            if row.missing == 0 { count.to_string() } else { format!("{count} of {}", count + row.missing) },
        ]);
    }
    table.to_string()
}

/// The summaries as CSV (RFC 4180): one line each, absent values empty.
fn comma_separated(result: &SeriesResult) -> String {
    let quoted = |text: &str| match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let plain = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let mut lines =
        vec!["gateway,quantity,unit,count,missing,median,p1,p99,min,max,bound,ratio,ratio_bound,doubts".to_owned()];
    for row in &result.summaries {
        let of = |field: fn(&Summary) -> f64| plain(row.summary.as_ref().map(field));
        let sign = |bound: Option<Bound>| bound.map_or(String::new(), |bound| bound.sign().to_owned());
        let fields = [
            quoted(&row.gateway),
            quoted(&row.quantity),
            quoted(&row.unit),
            row.summary.map_or(0, |summary| summary.count).to_string(),
            row.missing.to_string(),
            of(|s| s.median),
            of(|s| s.p1),
            of(|s| s.p99),
            of(|s| s.min),
            of(|s| s.max),
            sign(row.bound),
            plain(row.ratio.map(|ratio| ratio.median)),
            sign(row.ratio_bound),
            quoted(&row.doubts.join("; ")),
        ];
        lines.push(fields.join(","));
    }
    lines.join("\r\n") + "\r\n"
}

fn footnotes(plan: &SeriesPlan, result: &SeriesResult) -> String {
    let mut lines = vec![describe(&result.self_test)];
    for (gateway, placement) in &result.placement {
        let together = if placement.sharing == Sharing::Together { "sharing " } else { "" };
        lines.push(format!(
            "{gateway}: tester on core {:?}, {together}gateway on {:?} ({})",
            placement.sending, placement.gateway, placement.note
        ));
    }
    if plan.gateways.iter().any(|g| !matches!(g, Spec::External(_))) {
        lines.push("tester and gateway share this machine: the method of the RFCs, not their setup".to_owned());
    }
    if plan.effort.quick {
        let form = plan.effort.form;
        lines.push(format!("{form} form: scaled down, not comparable with published figures"));
    }
    lines.push(format!("searches end within {} % of the value found", plan.effort.resolution * 100.0));
    let said = result.deviations.iter().map(|(gateway, deviation)| format!("{gateway}: {deviation}"));
    lines.extend(said);
    for (gateway, tally) in &result.tallies {
        let silence = match tally.longest_silence_us {
            0.0 => String::new(),
            us => format!("; longest silence of the gateway {us:.0} us"),
        };
        let silence = match tally.longest_absence_us {
            0.0 => silence,
            us => format!("{silence}; the machine kept a core away from the gateway for up to {us:.0} us"),
        };
        lines.push(format!(
            "{gateway}: {} trials, {} of them invalid; longest pause of the sending core {:.0} us{silence}",
            tally.trials, tally.invalid, tally.longest_pause_us
        ));
    }
    for row in result.summaries.iter().filter(|row| !row.doubts.is_empty()) {
        lines.push(format!("* {}, {}: {}", row.gateway, row.quantity, row.doubts.join("; ")));
    }
    if result.summaries.iter().any(|s| s.bound.is_some() || s.ratio_bound.is_some()) {
        lines.push(">=, <=: a bound; the true value is that or more, or less. ?: it may be either".to_owned());
    }
    lines.join("\n")
}

fn describe(test: &selftest::SelfTest) -> String {
    let receiver = test
        .receiver_ns
        .map_or_else(String::new, |ns| format!("; the receiver takes {ns:.0} ns of the gateway's core for each frame"));
    format!(
        "self-test: {} frames/s of {} bytes made and checked on core {} ({} wrong); 100,000 frames/s paced to {:.4} %, own delay {:.2} us, \
         longest pause of the machine in it {:.0} us{receiver}; {}",
        number(test.highest_rate as f64),
        test.frame_bytes,
        test.core,
        test.wrong,
        test.pacing_error_percent,
        test.calibration_us,
        test.longest_pause_us,
        test.generator
    )
}

/// Three or four significant digits where there is a fraction, thousands apart where not.
fn number(value: f64) -> String {
    if value.abs() < 1000.0 {
        let digits = if value.abs() < 10.0 { 3 } else { 1 };
        return format!("{value:.digits$}");
    }
    let whole = format!("{value:.0}");
    let digits: Vec<char> = whole.chars().collect();
    let mut text = String::new();
    for (i, digit) in digits.iter().enumerate() {
        let rest = digits.len() - i;
        if i > 0 && rest.is_multiple_of(3) && digits[i - 1] != '-' {
            text.push(',');
        }
        text.push(*digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(
            [0.0, 1.25, 123.456, 1234.0, 1_234_567.0, -1000.0].map(number),
            ["0.000", "1.250", "123.5", "1,234", "1,234,567", "-1,000"]
        );
    }

    #[test]
    fn link_addresses_and_pools_are_read_or_refused() {
        assert_eq!(link_address("02:00:00:00:00:ff"), Ok([2, 0, 0, 0, 0, 255]));
        assert!(link_address("02:00:00:00:00").is_err() && link_address("02:00:00:00:00:gg").is_err());
        assert_eq!(pool("192.0.2.1"), Ok((Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 1))));
        assert!(pool("192.0.2.9-192.0.2.1").is_err());
    }
}

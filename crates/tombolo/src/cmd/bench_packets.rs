//! `tombolo bench throughput`, `latency`, `connection-rate` and the other procedures on frames.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde_json::json;
use tombolo_tester::{
    bench::{BenchError, Means, Mix},
    effort::Effort,
    frame_size::FrameSize,
    gateway::{Flows, Spec, Technology},
    ports::Port,
    procedure::{Known, packet::Procedure},
    resolving_power::{Comparison, REPETITIONS, ResolvingPower},
    results::ResultFile,
    scale::Scale,
    selftest::{self, SelfTestPlan},
    series::{Anew, SeriesPlan},
    trial::Directions,
};

use super::bench_external::External;
use super::bench_progress::Live;
use super::bench_summary::{comma_separated, describe, footnotes, tabulate};
use super::print;

/// Arguments of all procedures on frames.
#[derive(Debug, Args)]
#[command(after_help = "\
Gateways: plain, plain-pair (three hops), tombolo, tombolo:off|tc|xdp, iptables, nftables, tayga, tayga-nat, jool, jool_siit,\n\
external, and faulty:loss=N,corrupt=N,misdirect=N,duplicate=N,reorder=N (every Nth frame),delay=US,capacity=N,rate=N,outage=MS,state=1,keep=N,timeout=MS,\n\
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
    /// What the gateways do: forward4, forward6, nat44, nat64, siit; both ends in series: 464xlat,
    /// ds-lite, lw4o6, map-e, map-t; one end: clat, b4, aftr, lwb4, lwaftr, map-e-ce, map-e-br,
    /// map-t-ce, map-t-br [default: each gateway's usual trade]
    #[arg(long)]
    technology: Option<Technology>,
    /// Settings for tombolo's configuration, before its service; dotted keys beside tombolo:tc and
    /// the like. A line like `service.sessions = "kept"` is of the service itself
    #[arg(long, value_name = "TOML", default_value = "")]
    settings: String,
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
    /// Seconds of the trials with which a search for the throughput begins (RFC 2544 section 24); the
    /// last ones have the full length; 0: all have [default: 1, standard and quick 0]
    #[arg(long, value_name = "S")]
    explore: Option<f64>,
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
    /// Bytes of a frame on the left side of --dut, with FCS, or a list of what is measured one after
    /// the other: 64,512,imix (7:4:1 of the shortest, 570 and 1518), rfc2544, rfc8219 [default: the
    /// shortest]
    #[arg(long, value_name = "SIZES", value_parser = frame_sizes)]
    frame_size: Option<FrameSizes>,
    /// Milliseconds after which a frame counts as lost though it arrives [default: no such timeout]
    #[arg(long, value_name = "MS")]
    frame_timeout: Option<f64>,
    /// Percent of the frames that may be lost: for a second throughput beside that without loss; of
    /// each phase of connection-rate and capacity, in place of none
    #[arg(long, value_name = "PERCENT")]
    tolerated_loss: Option<f64>,
    /// Beside the throughput the rate that half of the trials pass, with the tolerated loss: so many
    /// go up and down around it, and all of them count
    #[arg(long, value_name = "TRIALS", value_parser = clap::value_parser!(u32).range(8..=10_000))]
    up_and_down: Option<u32>,
    /// Frames to the outside only
    #[arg(long, conflicts_with_all = ["bidirectional", "reverse_only"])]
    forward_only: bool,
    /// Frames to the inside only
    #[arg(long, conflicts_with = "bidirectional")]
    reverse_only: bool,
    /// Frames in both directions at the same rate (the default)
    #[arg(long)]
    bidirectional: bool,
    /// Percent of foreground traffic; the rest is native IPv6, with 0 all of it
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=100))]
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
    /// How frames leave [default: live frames, where the kernel and the ports have them and the frames are
    /// short enough, else AF_XDP, else packet sockets]
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
    /// Keep everything else of the machine off the sending cores, and off the gateway's where others
    /// remain (control groups, cpuset)
    #[arg(long)]
    isolate: bool,
    /// Make the lab's gateways anew for each repetition, in this order and the other one in turns; with a number also after
    /// so many trials that go up and down
    #[arg(long, value_name = "TRIALS", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    anew: Option<u32>,
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

/// Arguments of `tombolo bench self-test`.
#[derive(Debug, Args)]
pub(crate) struct SelfTest {
    /// Bytes of a frame, with FCS
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=9216))]
    frame_size: u16,
    /// Two interfaces of this machine with a cable between them, in place of a virtual cable
    #[arg(long, value_name = "INTERFACE", requires = "right", conflicts_with = "full")]
    left: Option<String>,
    /// The other one
    #[arg(long, value_name = "INTERFACE", requires = "left")]
    right: Option<String>,
    /// The core
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// How frames leave [default: live frames, where the kernel and the ports have them and the frames are
    /// short enough, else AF_XDP, else packet sockets]
    #[arg(long, value_enum, default_value = "auto", hide_default_value = true)]
    generator: Generator,
    /// Plain forwarding against itself and two forwarders 3 % apart, 20 times each: whether small
    /// differences are seen, and only they (three quarters of an hour or so)
    #[arg(long)]
    full: bool,
    /// Repetitions of --full: on a machine that is disturbed more are needed, and how many it says
    #[arg(long, value_name = "NUMBER", requires = "full", default_value_t = REPETITIONS, value_parser = clap::value_parser!(u32).range(6..=1000))]
    repetitions: u32,
    /// Result file of --full (JSON Lines), appended to
    #[arg(long, short, value_name = "FILE", requires = "full")]
    output: Option<PathBuf>,
    /// JSON instead of lines
    #[arg(long)]
    json: bool,
}

/// How frames leave.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Generator {
    /// What the kernel has
    Auto,
    /// Live frames from the kernel, of up to 3400 bytes
    Live,
    /// AF_XDP: any driver and length, without copies where the driver has that
    Afxdp,
    /// Packet sockets: slower, on any kernel
    Socket,
}

impl Generator {
    fn means(self) -> Option<Means> {
        match self {
            Generator::Auto => None,
            Generator::Live => Some(Means::LiveFrames),
            Generator::Afxdp => Some(Means::AfXdp),
            Generator::Socket => Some(Means::PacketSockets),
        }
    }
}

/// The tester against itself, without a gateway.
pub(crate) fn self_test(arguments: &SelfTest) -> anyhow::Result<()> {
    if arguments.full {
        return resolving_power(arguments);
    }
    let kind = Technology::Forward4.kinds().0;
    let result = {
        let there = std::thread::available_parallelism().map_or(1, usize::from);
        let other = (0..there).find(|core| *core != arguments.core);
        let port = |name: &String| Port { name: name.clone(), namespace: None };
        selftest::run(&SelfTestPlan {
            kind,
            frame_bytes: arguments.frame_size,
            core: arguments.core,
            gateway_core: other,
            means: arguments.generator.means(),
            between: arguments.left.as_ref().zip(arguments.right.as_ref()).map(|(l, r)| (port(l), port(r))),
        })?
    };
    if arguments.json {
        return print::json(&result);
    }
    print::line(&describe(&result))
}

/// Whether gateways that differ by little are told apart; an error where they are not.
fn resolving_power(arguments: &SelfTest) -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let default = || format!("results/self-test-{}.jsonl", now.map_or(0, |since| since.as_secs())).into();
    let output = arguments.output.clone().unwrap_or_else(default);
    let mut results =
        ResultFile::open(&output).with_context(|| format!("cannot open the result file {}", output.display()))?;
    let mut progress = Live::new();
    let power = ResolvingPower::measure(arguments.repetitions, &mut results, &mut progress);
    progress.clear();
    let power = power?;
    match arguments.json {
        true => print::json(&power)?,
        false => print::line(&in_lines(&power))?,
    }
    ensure!(power.is_good(), "small differences are not told apart here; every trial: {}", output.display());
    print::line(&format!("every trial: {}", output.display()))
}

fn in_lines(power: &ResolvingPower) -> String {
    let sign = |one: &Comparison| one.bound.map_or_else(String::new, |bound| format!("{} ", bound.sign()));
    let line = |what: &str, one: &Comparison, is_good: bool| {
        let ((low, high), (trials, invalid)) = (one.interval, one.trials);
        format!(
            "{what}: ratio {}{:.4}, 95 % interval {low:.4} to {high:.4} ({:.2} % wide; by the median alone {:.4}, {:.4} to {:.4}), \
             {} repetitions, {invalid} of {trials} trials invalid: {}",
            sign(one),
            one.ratio,
            (high - low) * 100.0,
            one.median,
            one.median_interval.0,
            one.median_interval.1,
            one.repetitions,
            if is_good { "as it should be" } else { "NOT as it should be" }
        )
    };
    let itself = line(
        "half of the trials, up to 0.5 % lost: plain forwarding against itself",
        &power.itself,
        power.itself.is_the_same(),
    );
    let reduced = line("the same of a forwarder with 97 % of the capacity", &power.reduced, power.reduced.is_slower());
    let at_most = {
        let Comparison { ratio, interval: (low, high), .. } = power.itself_at_most;
        format!(
            "plain forwarding against itself by the highest rate without any loss: ratio {}{ratio:.4}, interval {low:.4} to {high:.4} \
             ({:.2} % wide), for comparison{}",
            sign(&power.itself_at_most),
            (high - low) * 100.0,
            power.itself_at_most.bound.map_or("", |_| "; some of these ratios are bounds"),
        )
    };
    let more = power
        .itself
        .repetitions_needed()
        .map(|count| format!("\nas this machine is disturbed, --repetitions {count} would tell 2 % apart"));
    format!("{itself}\n{reduced}\n{at_most}{}", more.unwrap_or_default())
}

pub(crate) fn run(procedure: Procedure, arguments: Arguments) -> anyhow::Result<()> {
    let json = arguments.json;
    let csv = arguments.csv.clone();
    let resume = arguments.resume.is_some();
    let output = arguments.resume.clone().or(arguments.output.clone()).unwrap_or_else(|| default_output(procedure));
    if resume {
        ensure!(output.exists(), "there is no result file {} to go on with", output.display());
    }
    let sizes = arguments.frame_size.clone();
    let mut plan = arguments.plan(procedure)?;
    let mut results =
        ResultFile::open(&output).with_context(|| format!("cannot open the result file {}", output.display()))?;
    let mut all = Vec::new();
    for size in sizes.map_or(vec![None], |FrameSizes(sizes)| sizes.into_iter().map(Some).collect()) {
        plan.frame_size = size;
        let mut progress = Live::new();
        let result = plan.run(&mut results, resume, &mut progress);
        progress.clear();
        let result = match result {
            Err(BenchError::Interrupted) => {
                bail!("interrupted; what was measured is in {0}, and --resume {0} goes on", output.display())
            }
            other => other?,
        };
        if json {
            print::json(&json!({ "procedure": procedure, "frame_size": size, "self_test": result.self_test,
                "summaries": result.summaries, "failures": result.failures, "results": output }))?;
        } else {
            size.map_or(Ok(()), |size| print::line(&format!("frames of {}", in_bytes(size))))?;
            print::line(&tabulate(&result))?;
            print::line(&footnotes(&plan, &result))?;
        }
        all.push((size, result));
    }
    if let Some(file) = csv {
        std::fs::write(&file, comma_separated(&all))
            .with_context(|| format!("cannot write the summaries to {}", file.display()))?;
    }
    if !json {
        print::line(&format!("every trial and the machine: {}", output.display()))?;
    }
    let failures: Vec<_> = all.iter().flat_map(|(_, result)| &result.failures).collect();
    match failures.first() {
        Some((gateway, error)) => bail!("{} measurements have no result; {gateway}: {error}", failures.len()),
        None => Ok(()),
    }
}

/// The lengths that were asked for.
#[derive(Clone, Debug)]
struct FrameSizes(Vec<FrameSize>);

fn frame_sizes(text: &str) -> Result<FrameSizes, String> {
    FrameSize::list(text).map(FrameSizes)
}

fn in_bytes(size: FrameSize) -> String {
    match size {
        FrameSize::Bytes(bytes) => format!("{bytes} bytes"),
        FrameSize::Imix => "three lengths, 7 : 4 : 1".to_owned(),
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
            frame_size: None,
            mix,
            sending_cores: self.sending_cores,
            gateway_cores: self.gateway_cores,
            isolated: self.isolate,
            anew: match self.anew {
                None => Anew::Never,
                Some(0) => Anew::Repetitions,
                Some(trials) => Anew::Trials(trials),
            },
            scale: Scale::default(),
            known,
            max_rate: self.max_rate,
            means: self.generator.means(),
            addresses: Some(addresses),
            tombolo: std::env::current_exe().context("cannot find the program that is running")?,
            settings: self.settings,
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
        if let Some(ms) = self.frame_timeout {
            let most = self.timeout.unwrap_or(effort.drain_ms) as f64;
            ensure!((0.001..=most).contains(&ms), "--frame-timeout {ms}: from 0.001 to {most} ms, the global timeout");
            effort.frame_timeout_ns = u64::try_from(Duration::from_secs_f64(ms / 1000.0).as_nanos()).unwrap_or(0);
        }
        if let Some(percent) = self.tolerated_loss {
            ensure!((0.0001..=50.0).contains(&percent), "--tolerated-loss {percent}: percent, from 0.0001 to 50");
            effort.tolerated_loss_percent = percent;
        }
        effort.up_and_down_trials = self.up_and_down.unwrap_or(effort.up_and_down_trials);
        if let Some(seconds) = self.explore {
            ensure!((0.0..=3600.0).contains(&seconds), "--explore {seconds}: seconds, from 0 to 3600");
            effort.exploring_seconds = seconds;
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

fn default_output(procedure: Procedure) -> PathBuf {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    format!("results/{procedure}-{}.jsonl", now.map_or(0, |since| since.as_secs())).into()
}

//! `tombolo lab soak`: everything at once for as long as one likes, and then every invariant.
//!
//! A gateway with a NAT64 (ports in blocks) and a NAT44 (port by port, with limits) in a lab; its
//! timeouts are short, so that state comes and goes all the time. Hosts open, use, close and
//! forget; somebody scans from outside, somebody floods from inside, from one address and from
//! invented ones; the configuration is read again and the gateway is killed and started again in
//! between. Then it is stopped, its tables are adopted, checked, and swept until nothing may be
//! left: what is left leaked.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use serde::Serialize;
use tombolo_lab::{Lab, Process, Topology};

mod aftermath;
mod traffic;

use aftermath::Aftermath;
use traffic::{Failures, Traffic};

const CONFIGURATION: &str = r#"
[capacity]
subscribers = 20000
bindings = 100000
sessions = 200000
[timeouts]
udp = 30
icmp = 10
tcp_established = 40
tcp_opening = 10
tcp_transitory = 30
port_reuse = 5
[[service]]
kind = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
pool = [{ addresses = "192.0.2.0/28", ports = "1024-65535" }]
static = [{ inside = "[2001:db8:1::2]:8080", outside = "192.0.2.1:8080", protocol = "tcp" }]
allocation = { mode = "blocks", block_size = 64, blocks = 4 }
limits = { new_subscribers_per_second = 40 }
[[service]]
kind = "nat44"
inside = ["10.0.0.0/24"]
pool = [{ addresses = "192.0.2.16/28", ports = "1024-65535" }]
static = [{ inside = "10.0.0.2:8080", outside = "192.0.2.17:8080", protocol = "tcp" }]
bindings_per_subscriber = 600
unsolicited_syn = "hold"
limits = { sessions = 800, new_bindings_per_second = 200 }
"#;

/// Static bindings of the configuration: what may be left in the end.
const STATIC_BINDINGS: u32 = 2;
const READY: Duration = Duration::from_secs(20);
/// How often the gateway is killed and started again.
const KILLS: u32 = 3;
/// Private memory may grow by this much while tables, buffers and logs settle.
const GROWTH_KB: u64 = 4096;

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Seconds of traffic.
    pub(crate) seconds: u64,
    /// Times that the gateway was killed and started again.
    pub(crate) kills: u32,
    /// Longest time from starting the gateway to its being ready, in milliseconds.
    pub(crate) slowest_start_ms: u128,
    /// What the hosts did.
    pub(crate) traffic: traffic::Totals,
    /// Private memory of the last gateway process, soon after its start and in the end, in kB.
    pub(crate) private_kb: [u64; 2],
    /// What was found in the tables afterwards.
    pub(crate) aftermath: Aftermath,
    /// Everything that should not have been; empty if all is well.
    pub(crate) failures: Vec<String>,
}

/// Runs traffic for `seconds`; `progress` hears of each.
pub(crate) fn run(seconds: u64, mut progress: impl FnMut(u64)) -> anyhow::Result<Report> {
    let lab = prepare()?;
    let mut bed = Bed::start(&lab)?;
    let failures = Arc::new(Failures::default());
    let traffic = Traffic::start(&lab, &failures)?;
    let begin = Instant::now();
    let elapsed = || begin.elapsed().as_secs();
    let (mut kills, mut slowest_start) = (0, bed.ready_in);
    while elapsed() < seconds && !tombolo_lab::interrupted() {
        std::thread::sleep(Duration::from_secs(1));
        progress(elapsed());
        if !bed.gateway.is_running() {
            failures.add(format!("the gateway ended: {}", bed.gateway.log_tail(5)));
            break;
        }
        bed.sample();
        if elapsed() % 20 == 19 {
            bed.gateway.signal(Signal::SIGHUP)?;
        }
        if elapsed() > seconds * u64::from(kills + 1) / u64::from(KILLS + 1) {
            bed = bed.kill_and_start(&lab)?;
            slowest_start = slowest_start.max(bed.ready_in);
            kills += 1;
        }
    }
    let totals = traffic.stop(&failures);
    for idle in totals.idle() {
        failures.add(format!("{idle}: there was none"));
    }
    let private_kb = bed.private_kb;
    if private_kb[1] > private_kb[0] + GROWTH_KB {
        failures.add(format!("private memory grew from {} to {} kB", private_kb[0], private_kb[1]));
    }
    let aftermath = bed.finish(&failures)?;
    Ok(Report {
        seconds: elapsed(),
        kills,
        slowest_start_ms: slowest_start.as_millis(),
        traffic: totals,
        private_kb,
        aftermath,
        failures: failures.take(),
    })
}

/// A lab whose client has many addresses: all of 10.0.0.128/25 and 2001:db8:1:f::/64.
fn prepare() -> anyhow::Result<Lab> {
    let lab = Lab::create(&Topology::client_gateway_server())?;
    let ip = |node: &str, arguments: &str| -> anyhow::Result<()> {
        lab.node(node)?.command("ip").args(arguments.split(' ')).run()?.success()?;
        Ok(())
    };
    // Addresses that are local by route alone may be bound in IPv6 only so.
    lab.node("client")?.set_sysctl("net.ipv6.ip_nonlocal_bind", "1")?;
    ip("client", "route add local 10.0.0.128/25 dev lo")?;
    ip("client", "-6 route add local 2001:db8:1:f::/64 dev lo")?;
    ip("gateway", "-6 route add 2001:db8:1:f::/64 via 2001:db8:1::2")?;
    Ok(lab)
}

/// The gateway, and where its tables are.
struct Bed {
    gateway: Process,
    file: PathBuf,
    state: PathBuf,
    started: Instant,
    ready_in: Duration,
    private_kb: [u64; 2],
}

impl Bed {
    fn start(lab: &Lab) -> anyhow::Result<Self> {
        let directory = lab.directory()?;
        let (file, state) = (directory.join("soak.toml"), directory.join("state"));
        let settings = format!("[gateway]\nqueues = 2\nrun_directory = \"{}\"\n{CONFIGURATION}", state.display());
        std::fs::write(&file, settings).with_context(|| format!("cannot write {}", file.display()))?;
        let program = std::env::current_exe().context("cannot find the program that is running")?;
        let command = lab.node("gateway")?.command(program.display().to_string());
        let begin = Instant::now();
        let mut gateway = command.args(["run", "-c"]).arg(file.display().to_string()).spawn()?;
        gateway.wait_for_text("ready", READY)?;
        let (started, ready_in) = (Instant::now(), begin.elapsed());
        Ok(Self { gateway, file, state, started, ready_in, private_kb: [0, 0] })
    }

    fn kill_and_start(mut self, lab: &Lab) -> anyhow::Result<Self> {
        self.gateway.signal(Signal::SIGKILL)?;
        tombolo_lab::wait_until("the gateway is gone", READY, || (!self.gateway.is_running()).then_some(()))?;
        Self::start(lab)
    }

    /// Notes how much private memory the gateway has: in the beginning, after ten seconds, and now.
    fn sample(&mut self) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.gateway.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let private = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
        if self.started.elapsed() < Duration::from_secs(10) || self.private_kb[0] == 0 {
            self.private_kb[0] = private;
        }
        self.private_kb[1] = private;
    }

    /// Stops the gateway and looks at what it left.
    fn finish(mut self, failures: &Failures) -> anyhow::Result<Aftermath> {
        self.gateway.signal(Signal::SIGTERM)?;
        let output = self.gateway.wait(READY)?;
        ensure!(output.stderr.contains("stopped"), "the gateway did not stop in order: {}", output.tail(10));
        let plan = tombolo_config::load(&self.file)?.plan;
        aftermath::examine(&self.state, &plan, &output.stderr, failures)
    }
}

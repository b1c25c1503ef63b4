//! The lab of the soak and the gateway in it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use tombolo_lab::{Lab, Process, Topology};

use super::aftermath::{self, Aftermath};
use super::configuration::CONFIGURATION;
use super::failures::Failures;

const READY: Duration = Duration::from_secs(20);

/// A lab whose client has many addresses: all of 10.0.0.128/25 and 2001:db8:1:f::/64.
pub(super) fn prepare() -> anyhow::Result<Lab> {
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
pub(super) struct Bed {
    pub(super) gateway: Process,
    file: PathBuf,
    state: PathBuf,
    started: Instant,
    pub(super) ready_in: Duration,
    pub(super) private_kb: [u64; 2],
}

impl Bed {
    pub(super) fn start(lab: &Lab) -> anyhow::Result<Self> {
        let directory = lab.directory()?;
        let (file, state) = (directory.join("soak.toml"), directory.join("state"));
        let settings = format!(
            "[gateway]\nqueues = 2\nfastpath = \"off\"\nrun_directory = \"{}\"\n{CONFIGURATION}",
            state.display()
        );
        std::fs::write(&file, settings).with_context(|| format!("cannot write {}", file.display()))?;
        let program = std::env::current_exe().context("cannot find the program that is running")?;
        let command = lab.node("gateway")?.command(program.display().to_string());
        let begin = Instant::now();
        let mut gateway = command.args(["run", "-c"]).arg(file.display().to_string()).spawn()?;
        gateway.wait_for_text("ready", READY)?;
        let (started, ready_in) = (Instant::now(), begin.elapsed());
        Ok(Self { gateway, file, state, started, ready_in, private_kb: [0, 0] })
    }

    pub(super) fn kill_and_start(mut self, lab: &Lab) -> anyhow::Result<Self> {
        self.gateway.signal(Signal::SIGKILL)?;
        tombolo_lab::wait_until("the gateway is gone", READY, || (!self.gateway.is_running()).then_some(()))?;
        Self::start(lab)
    }

    /// Notes how much private memory the gateway has: in the beginning, after ten seconds, and now.
    pub(super) fn sample(&mut self) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.gateway.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let private = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
        if self.started.elapsed() < Duration::from_secs(10) || self.private_kb[0] == 0 {
            self.private_kb[0] = private;
        }
        self.private_kb[1] = private;
    }

    /// Stops the gateway and looks at what it left.
    pub(super) fn finish(mut self, failures: &Failures) -> anyhow::Result<Aftermath> {
        self.gateway.signal(Signal::SIGTERM)?;
        let output = self.gateway.wait(READY)?;
        ensure!(output.stderr.contains("stopped"), "the gateway did not stop in order: {}", output.tail(10));
        let plan = tombolo_config::load(&self.file)?.plan;
        aftermath::examine(&self.state, &plan, &output.stderr, failures)
    }
}

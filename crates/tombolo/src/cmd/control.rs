//! `tombolo flush`, `drain` and `binding`: commands to a running gateway.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tombolo_daemon::control::client::ask;
use tombolo_daemon::control::request::{NewBinding, Request};

use super::binding_who;
use super::output::Output;
use super::print;

/// Which gateway.
#[derive(Debug, Args)]
pub(crate) struct Gateway {
    /// The gateway, where several run: the name of its device, its run directory, or its control
    /// socket
    #[arg(long, global = true, value_name = "NAME|PATH")]
    gateway: Option<String>,
}

impl Gateway {
    pub(crate) fn name(&self) -> Option<&str> {
        self.gateway.as_deref()
    }
}

/// Arguments of `tombolo flush`.
#[derive(Debug, Args)]
pub(crate) struct Flush {
    #[command(flatten)]
    gateway: Gateway,
    /// Only what this service has
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Has sessions and dynamic bindings removed.
pub(crate) fn flush(arguments: &Flush) -> anyhow::Result<()> {
    let request = Request::Flush { service: arguments.service.clone() };
    let row: Value = ask(arguments.gateway.name(), &request)?.only_row()?;
    let words = format!("{} sessions and {} dynamic bindings removed", row["sessions"], row["bindings"]);
    arguments.output.answer(&row, || print::line(&words))
}

/// Arguments of `tombolo drain`.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    gateway: Gateway,
    /// Serve new connections again
    #[arg(long)]
    off: bool,
    /// Wait until no session is left, at most so many seconds if a number is given
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, conflicts_with = "off")]
    #[expect(clippy::option_option, reason = "three answers: no, yes, and how long")]
    wait: Option<Option<u64>>,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Has nothing new begin, or allows it again.
pub(crate) fn drain(arguments: &Drain) -> anyhow::Result<()> {
    let gateway = arguments.gateway.name();
    let _: Value = ask(gateway, &Request::Drain { on: !arguments.off })?.only_row()?;
    let say = |sessions: Option<u64>, words: &str| {
        let answer = json!({ "draining": !arguments.off, "sessions": sessions });
        arguments.output.answer(&answer, || print::line(words))
    };
    if arguments.off {
        return say(None, "new connections are served again");
    }
    let sessions = sessions(gateway)?;
    let Some(limit) = arguments.wait else {
        return say(Some(sessions), &format!("nothing new begins; {sessions} sessions go on"));
    };
    let limit = limit.map(Duration::from_secs);
    wait(gateway, sessions, limit)?;
    say(Some(0), "no session is left")
}

fn wait(gateway: Option<&str>, sessions_at_first: u64, limit: Option<Duration>) -> anyhow::Result<()> {
    let progress = print::Progress::new(usize::try_from(sessions_at_first)?);
    let began = Instant::now();
    loop {
        let left = sessions(gateway)?;
        if left == 0 {
            return Ok(());
        }
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            anyhow::bail!("{left} sessions are left; nothing new begins until \"tombolo drain --off\"");
        }
        progress.advance(usize::try_from(sessions_at_first.saturating_sub(left))?, &format!("{left} sessions left"));
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Sessions that live now, of all services, and bindings that have none and live by themselves.
fn sessions(gateway: Option<&str>) -> anyhow::Result<u64> {
    let mut answer = ask(gateway, &Request::Services {})?;
    let mut sum = 0;
    while let Some(line) = answer.next_row()? {
        let row: Value = serde_json::from_slice(line)?;
        sum += ["sessions", "bindings_without_sessions"].iter().filter_map(|key| row[key].as_u64()).sum::<u64>();
    }
    Ok(sum)
}

/// Arguments of `tombolo binding`.
#[derive(Debug, Args)]
pub(crate) struct Binding {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    gateway: Gateway,
    #[command(flatten)]
    pub(super) output: Output,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Add a static binding; it stays until it is removed, over reloads, and over restarts with a
    /// run directory
    Add {
        /// tcp, udp or icmp
        protocol: String,
        /// Endpoint inside, for example `[2001:db8::2]:80`
        inside: SocketAddr,
        /// Endpoint outside, for example 192.0.2.1:80
        outside: SocketAddr,
        /// Of an AFTR: the B4 that the host is behind
        #[arg(long, value_name = "ADDRESS")]
        softwire: Option<Ipv6Addr>,
    },
    /// Remove a binding that was added, and its sessions
    Remove {
        /// tcp, udp or icmp
        protocol: String,
        /// Endpoint outside
        outside: SocketAddr,
    },
    /// Who has an outside endpoint, or had it at some time
    Who {
        /// Outside address
        address: Ipv4Addr,
        /// Outside port, or identifier of ICMP
        port: u16,
        /// When, for example 2026-11-21T08:00:00Z, or in seconds since 1970; without it, now
        time: Option<String>,
        /// tcp, udp or icmp; all of them if none is named
        #[arg(long)]
        protocol: Option<String>,
        /// Compute it from this configuration file (TOML) with a deterministic mapping instead of
        /// asking a gateway
        #[arg(short, long, value_name = "FILE", conflicts_with_all = ["time", "protocol"])]
        config: Option<PathBuf>,
        /// Read these files of a log of bindings instead of asking a gateway, the oldest first
        #[arg(long, value_name = "FILE", num_args = 1.., requires = "time", conflicts_with = "config")]
        log: Vec<PathBuf>,
    },
}

/// Has bindings added and removed, and asks for their owners.
pub(crate) fn binding(arguments: &Binding) -> anyhow::Result<()> {
    let gateway = arguments.gateway.name();
    match &arguments.what {
        What::Add { protocol, softwire, inside, outside } => {
            let request = Request::BindingAdd(NewBinding {
                protocol: protocol.clone(),
                softwire: *softwire,
                inside: *inside,
                outside: *outside,
            });
            let row: Value = ask(gateway, &request)?.only_row()?;
            let words = format!("{protocol} {outside} is {inside} from now on, in {}", print::word(&row["service"]));
            let answer =
                json!({ "service": row["service"], "protocol": protocol, "inside": inside, "outside": outside });
            arguments.output.answer(&answer, || print::line(&words))
        }
        What::Remove { protocol, outside } => {
            let request = Request::BindingRemove { protocol: protocol.clone(), outside: *outside };
            let row: Value = ask(gateway, &request)?.only_row()?;
            let words = format!("{protocol} {outside} is removed from {}", print::word(&row["service"]));
            let answer = json!({ "service": row["service"], "protocol": protocol, "outside": outside });
            arguments.output.answer(&answer, || print::line(&words))
        }
        What::Who { address, port, config: Some(file), .. } => {
            binding_who::run(file, *address, *port, arguments.output)
        }
        What::Who { address, port, time, protocol, log, config: None } => {
            let outside = SocketAddr::new((*address).into(), *port);
            let rows = if log.is_empty() {
                let request = Request::Who { outside, protocol: protocol.clone(), time: time.clone() };
                ask(gateway, &request)?.all_rows()?
            } else {
                let time = time.as_deref().unwrap_or_default();
                binding_who::in_logs(log, (*address, *port), time, protocol.as_deref())?
            };
            binding_who::print(&rows, outside, time.is_some(), arguments.output)
        }
    }
}

//! `tombolo doctor`: what this machine lacks for the gateway; and with a configuration, what stands in
//! the way of its packets.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use tombolo_config::Configuration;
use tombolo_daemon::control::client::ask;
use tombolo_daemon::control::filter::Filter;
use tombolo_daemon::control::request::Request;
use tombolo_daemon::doctor::{Cure, Ends, Finding, Gravity, Report, examine};

use super::doctor_check::{Check, State};
use super::output::Output;
use super::{doctor_machine, print};

/// Bindings of a running gateway that are asked for who is inside.
const ASKED: u64 = 32;

/// Arguments of `tombolo doctor`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Walk each prefix and each pool of this configuration file (TOML) through the kernel, with
    /// packets: what stands in the way, and the line that mends it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A host inside that packets are sent for; without it, one that has a binding or is known on a
    /// link
    #[arg(long, value_name = "ADDRESS", requires = "config")]
    inside: Vec<IpAddr>,
    /// A host outside; without it, the router of the default route
    #[arg(long, value_name = "ADDRESS", requires = "config")]
    remote: Option<Ipv4Addr>,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Checks, and says what it found.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut checks = doctor_machine::checks();
    if let Some(file) = &arguments.config {
        checks.extend(walk(file, arguments)?);
    }
    arguments.output.rows(&checks, Check::print)?;
    let fatal = checks.iter().find(|check| check.state == State::Missing && check.check == "tun");
    anyhow::ensure!(fatal.is_none(), "the gateway cannot run here: there is no TUN device");
    let faults = checks.iter().filter(|check| check.state == State::Fault).count();
    anyhow::ensure!(faults == 0, "packets do not pass: {faults} faults");
    Ok(())
}

/// What stands in the way of a configuration's packets.
fn walk(file: &Path, arguments: &Arguments) -> anyhow::Result<Vec<Check>> {
    let Configuration { host, plan, .. } = tombolo_config::load(file)?;
    let mut inside = arguments.inside.clone();
    inside.extend(hosts_with_bindings(&host.device));
    let Report { findings, probed, left_out } = examine(&host, &plan, &Ends { inside, remote: arguments.remote })?;
    let mut checks: Vec<Check> = findings.into_iter().map(check).collect();
    let is_faultless = checks.iter().all(|check| check.state != State::Fault);
    if is_faultless && probed > 0 {
        checks.push(Check::ok("packets", format!("{probed} packets came through the host as they should")));
    }
    let without = "only routes, rules and settings were looked at on these ways";
    checks.extend(left_out.iter().map(|why| Check::lacks("packets", State::Warning, why, without, "")));
    Ok(checks)
}

fn check(Finding { gravity, subject, found, cure }: Finding) -> Check {
    let state = match gravity {
        Gravity::Fault => State::Fault,
        Gravity::Warning => State::Warning,
    };
    let check = Check { state, ..Check::ok(subject, found) };
    match cure {
        Cure::Line(line) => Check { run: Some(line), ..check },
        Cure::Words(remedy) => Check { remedy, ..check },
    }
}

/// Hosts inside that a running gateway serves; none if none runs.
fn hosts_with_bindings(device: &str) -> Vec<IpAddr> {
    let request = Request::Bindings { filter: Filter { limit: Some(ASKED), ..Filter::default() } };
    let Ok(mut answer) = ask(Some(device), &request) else { return Vec::new() };
    let mut hosts = Vec::new();
    while let Ok(Some(line)) = answer.next_row() {
        let row: Value = serde_json::from_slice(line).unwrap_or_default();
        // Behind a softwire nobody is on a link of this host.
        let host = print::word(&row["inside"]).parse::<IpAddr>().ok();
        hosts.extend(host.filter(|_| row["softwire"].is_null()));
    }
    hosts
}

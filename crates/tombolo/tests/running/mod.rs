//! What tests of gateways in labs share: one that runs, what it says, and its ends.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part of it, and a test may panic")]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tombolo_lab::{Lab, Process, wait_until};

pub(crate) const TOMBOLO: &str = env!("CARGO_BIN_EXE_tombolo");
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A NAT44 and a NAT64, for the client of [`tombolo_lab::Topology::client_gateway_server`].
pub(crate) const SERVICES: &str = r#"
[capacity]
subscribers = 100
bindings = 10000
sessions = 10000

[[service]]
kind   = "nat44"
inside = ["10.0.0.0/24"]
pool   = [{ addresses = "192.0.2.16/28", ports = "1024-65535" }]

[[service]]
kind   = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
pool   = [{ addresses = "192.0.2.1", ports = "1024-65535" }]
"#;

/// Starts a gateway of some version with a configuration file, and waits until it is ready.
pub(crate) fn run(program: &str, lab: &Lab, file: &Path) -> Process {
    let command = lab.node("gateway").unwrap().command(program).args(["run", "-c"]);
    let mut gateway = command.arg(file.display().to_string()).spawn().unwrap();
    gateway.wait_for_text("ready", PATIENCE).unwrap();
    gateway
}

/// JSON Lines.
pub(crate) fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// What the gateway shows.
pub(crate) fn show(lab: &Lab, what: &str) -> Vec<Value> {
    let output = lab.node("gateway").unwrap().command(TOMBOLO).args(["show", what, "--json"]).run().unwrap();
    rows(&output.success().unwrap().stdout)
}

/// Settings of a gateway that has no fast path unless they speak of it: what a test looks at is the
/// engine's.
pub(crate) fn settings_of_engine(settings: &str) -> String {
    let engine = if settings.contains("fastpath") { "" } else { "fastpath = \"off\"\n" };
    format!("[gateway]\n{engine}{settings}")
}

/// What is attached to an interface, if it is known, of what `show fastpath` says.
pub(crate) fn takes(fastpath: &[Value], interface: &str) -> Option<String> {
    let row = fastpath.iter().find(|row| row["what"] == "interface" && row["name"] == interface)?;
    Some(row["value"].as_str().unwrap().to_owned())
}

/// Entries of a directory that end with the number of the gateway's network namespace.
pub(crate) fn named_for(lab: &Lab, directory: &str) -> Vec<PathBuf> {
    let namespace = fs::metadata(lab.node("gateway").unwrap().path()).unwrap().ino();
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().ends_with(&format!("@{namespace}"))).collect()
}

/// Where it has its directory in the BPF file system.
pub(crate) fn pins(lab: &Lab) -> Vec<PathBuf> {
    named_for(lab, "/sys/fs/bpf/tombolo")
}

/// Ends it, and gives what it said.
pub(crate) fn end(mut gateway: Process) -> String {
    gateway.signal(Signal::SIGTERM).unwrap();
    gateway.wait(PATIENCE).unwrap().success().unwrap().stderr
}

pub(crate) fn kill(gateway: &mut Process) {
    gateway.signal(Signal::SIGKILL).unwrap();
    wait_until("the gateway is gone", PATIENCE, || (!gateway.is_running()).then_some(())).unwrap();
}

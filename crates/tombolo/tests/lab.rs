//! `tombolo lab` and `tombolo bench` as users run them. They need root and skip loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tombolo_lab::{skip_without, wait_until};

const TOOLS: &[&str] = &["ping", "curl", "iperf3"];

fn tombolo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    tombolo(arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// The namespaces of the labs that a process has made.
fn namespaces_of(process: &Child) -> Vec<String> {
    let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&format!("tombolo-{}-", process.id()))).collect()
}

#[test]
fn the_demo_works_and_leaves_nothing() {
    if skip_without("the_demo_works_and_leaves_nothing", TOOLS) {
        return;
    }
    let demo = tombolo(&["lab", "demo", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = demo.id();
    let output = demo.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output);
    assert_eq!(report["steps"].as_array().unwrap().len(), 6);
    let pairs = report["technologies"].as_array().unwrap();
    let names: Vec<_> = pairs.iter().map(|pair| pair["technology"].as_str().unwrap()).collect();
    assert_eq!(names, ["464xlat", "ds-lite", "lw4o6", "map-e", "map-t"]);
    assert!(pairs.iter().all(|pair| pair["steps"].as_array().unwrap().len() == 5));
    for step in pairs.iter().chain([&report]).flat_map(|part| part["steps"].as_array().unwrap()) {
        assert!(step["worked"].as_bool().unwrap() && step["ratio"].as_f64().unwrap() > 0.0, "{step}");
    }
    let left = fs::read_dir("/run/netns").unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.starts_with(&format!("tombolo-{id}-"))).count(), 0);
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    if skip_without("an_interrupted_demo_leaves_nothing", TOOLS) {
        return;
    }
    let mut demo = tombolo(&["lab", "demo"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Both labs are there, and the steps have begun or are about to.
    let labs = || (namespaces_of(&demo).len() == 6).then_some(());
    wait_until("two labs", Duration::from_secs(20), labs).unwrap();
    kill(Pid::from_raw(demo.id().cast_signed()), Signal::SIGINT).unwrap();
    let status = demo.wait().unwrap();
    assert!(!status.success());
    assert_eq!(namespaces_of(&demo), [""; 0]);
}

#[test]
fn a_demo_that_fails_says_why() {
    if skip_without("a_demo_that_fails_says_why", TOOLS) {
        return;
    }
    let output = run(&["lab", "demo", "--settings", "nonsense = 1"]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(words.contains("nonsense"), "the gateway's own words: {words}");
}

#[test]
fn labs_go_up_and_down() {
    if skip_without("labs_go_up_and_down", TOOLS) {
        return;
    }
    let name = format!("cli{}", std::process::id());
    let up = json(&run(&["lab", "up", &name, "--json"]));
    assert_eq!(up["name"], name.as_str());
    let listed = json(&run(&["lab", "list", "--json"]));
    assert!(listed.as_array().unwrap().contains(&up));
    assert_eq!(run(&["lab", "up", &name]).status.code(), Some(1), "the name is taken");
    let down = json(&run(&["lab", "down", &name, "--json"]));
    assert_eq!(down["removed"][0], up["id"]);
    assert_eq!(run(&["lab", "down", &name]).status.code(), Some(1), "it is gone");
}

#[test]
fn what_a_playground_proposes_works() {
    if skip_without("what_a_playground_proposes_works", &["ip", "ping", "traceroute"]) {
        return;
    }
    for scenario in ["nat64", "nat44", "464xlat"] {
        let name = format!("play{scenario}{}", std::process::id());
        let up = run(&["lab", "up", scenario, "--as", &name]);
        let text = String::from_utf8(up.stdout).unwrap();
        let proposed: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("ip netns exec ")).collect();
        let failed = proposed.iter().find_map(|command| {
            let words =
                command.split(' ').map(|word| if word == "tombolo" { env!("CARGO_BIN_EXE_tombolo") } else { word });
            let output = Command::new("ip").args(["netns", "exec"]).args(words).output().unwrap();
            (!output.status.success()).then(|| format!("{command}: {output:?}"))
        });
        assert!(run(&["lab", "down", &name]).status.success());
        assert!(up.status.success() && proposed.len() > 1 && failed.is_none(), "{scenario}: {failed:?} {text}");
    }
}

#[test]
fn wrong_usage_is_status_two() {
    for arguments in [&["lab", "frob"][..], &["bench", "tcp", "--gateways", "frob"], &["bench", "tcp", "--flows", "0"]]
    {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_benchmark_compares_ours_with_plain_forwarding() {
    if skip_without("a_benchmark_compares_ours_with_plain_forwarding", TOOLS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tcp.jsonl");
    let file = file.to_str().unwrap();
    let case =
        ["--gateways", "plain,tombolo", "--flows", "1", "--directions", "4to6", "--rounds", "1", "--seconds", "1"];
    let output = run(&[&["bench", "tcp", "--json", "-o", file][..], &case].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summaries = json(&output);
    assert_eq!(summaries[1]["gateway"], "tombolo");
    assert!(summaries[1]["ratio_to_plain"].as_f64().unwrap() > 0.0);
    assert_eq!(fs::read_to_string(file).unwrap().lines().count(), 1 + 2 + 2 * 2);
}

//! The demo and the soak of the cluster, as users run them.

use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tombolo_lab::{skip_without, wait_until};

use super::PROGRAMS;
use super::limits::{ADMISSION, BFD};
use crate::running::{PATIENCE, TOMBOLO};

fn lab(words: &[&str]) -> Command {
    let mut command = Command::new(TOMBOLO);
    command.arg("lab").args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Namespaces of the labs that a process has made.
fn namespaces_of(process: u32) -> usize {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    names.filter(|name| name.file_name().to_string_lossy().starts_with(&format!("tombolo-{process}-"))).count()
}

#[test]
fn the_demo_of_the_cluster_shows_what_a_dead_node_costs_and_leaves_nothing() {
    if skip_without("the_demo_of_the_cluster_shows_what_a_dead_node_costs_and_leaves_nothing", &PROGRAMS) {
        return;
    }
    let demo = lab(&["demo", "cluster", "--json"]).spawn().unwrap();
    let id = demo.id();
    let output = demo.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{errors}"));
    eprintln!("{report:#}");
    let phases = report["phases"].as_array().unwrap();
    let names: Vec<_> = phases.iter().map(|phase| phase["phase"].as_str().unwrap()).collect();
    assert_eq!(names, ["before", "death", "takeover", "after"]);
    let number = |phase: usize, key: &str| u128::from(phases[phase][key].as_u64().unwrap());
    assert!((0..4).all(|phase| number(phase, "silence_ms") <= BFD.datagrams.as_millis()), "{report:#}");
    assert!(number(1, "lost") > 0 && number(1, "acting") > 0 && number(0, "lost") == 0, "{report:#}");
    assert!(number(2, "new_hosts_wait_ms") <= ADMISSION.as_millis(), "{report:#}");
    assert!(phases[1]["owners"]["n2"].as_u64() > Some(0) && phases[2]["owners"]["n2"].is_null(), "{report:#}");
    assert!(report["seconds"].as_f64().unwrap() < 60.0, "{report:#}");
    assert_eq!(namespaces_of(id), 0);
}

#[test]
fn an_interrupted_demo_of_the_cluster_leaves_nothing() {
    if skip_without("an_interrupted_demo_of_the_cluster_leaves_nothing", &PROGRAMS) {
        return;
    }
    let mut demo = lab(&["demo", "cluster"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // All boxes are there, and programs start in them.
    wait_until("the boxes", PATIENCE, || (namespaces_of(demo.id()) >= 21).then_some(())).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    kill(Pid::from_raw(demo.id().cast_signed()), Signal::SIGINT).unwrap();
    assert!(!demo.wait().unwrap().success());
    assert_eq!(namespaces_of(demo.id()), 0);
}

#[test]
fn a_minute_of_faults_leaves_every_invariant_of_the_cluster_intact() {
    if skip_without("a_minute_of_faults_leaves_every_invariant_of_the_cluster_intact", &PROGRAMS) {
        return;
    }
    let seconds = std::env::var("TOMBOLO_SOAK_SECONDS").unwrap_or_else(|_| "60".to_owned());
    let seed = std::env::var("TOMBOLO_SOAK_SEED").unwrap_or_else(|_| "1".to_owned());
    let output = lab(&["soak", "cluster", "--json", "--seconds", &seconds, "--seed", &seed]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{errors}"));
    eprintln!("{report:#}");
    assert!(output.status.success() && report["failures"].as_array().unwrap().is_empty(), "{report:#}\n{errors}");
    let faults: u64 = report["faults"].as_object().unwrap().values().map(|seen| seen["times"].as_u64().unwrap()).sum();
    let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_u64).unwrap();
    assert!(
        faults >= 4 && number("/guests/0") > 50 && number("/claims") > 20 && number("/endpoints") > 8,
        "{report:#}"
    );
    assert!(number("/epochs/1") >= number("/epochs/0"), "{report:#}");
}

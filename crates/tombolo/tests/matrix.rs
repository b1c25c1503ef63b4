//! `tombolo bench matrix`: technologies with two ends and with one, each measured as a user would. It takes the processors for itself. Needs
//! root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::process::Command;

use serde_json::Value;
use tombolo_lab::skip_without;

/// The rate that arrives right under overload, of each gateway as each technology, and the lines.
fn received(gateways: &[&str], technologies: &str) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("matrix.jsonl").display().to_string();
    let page = directory.path().join("matrix.md").display().to_string();
    let arguments = ["bench", "matrix", "--procedures", "received-rate", "--technologies", technologies];
    let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command.args(arguments).args(["--output", &file, "--page", &page, "--dut"]).args(gateways);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = fs::read_to_string(&page).unwrap();
    let rows = rows.lines().filter(|line| gateways.iter().any(|gateway| line.contains(&format!("| {gateway} |"))));
    let lines = fs::read_to_string(&file).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let cells: Vec<Value> = lines.filter(|line| line["record"] == "cell").collect();
    assert_eq!(rows.count(), cells.len(), "a row of the page each");
    let measured: Vec<&str> = cells.iter().map(|cell| cell["technology"].as_str().unwrap()).collect();
    assert_eq!(measured.join(","), technologies);
    cells
}

#[test]
fn pairs_and_single_ends_of_the_technologies_are_measured() {
    if skip_without("pairs_and_single_ends_of_the_technologies_are_measured", &[]) {
        return;
    }
    for cell in received(&["tombolo:tc"], "ds-lite,map-e-ce") {
        // All that came back is right: addresses, ports of the customer's set, every field.
        assert!(cell["measured"][0]["value"].as_f64().is_some_and(|rate| rate > 0.0), "{cell}");
    }
}

#[test]
fn the_kernel_and_tayga_play_ends_of_the_technologies() {
    if skip_without("the_kernel_and_tayga_play_ends_of_the_technologies", &["nft", "tayga", "conntrack"]) {
        return;
    }
    for cell in received(&["nftables", "tayga-nat"], "map-e-ce,map-t-ce") {
        assert!(cell["measured"][0]["value"].as_f64().is_some_and(|rate| rate > 0.0), "{cell}");
    }
}

//! `tombolo bench matrix`: technologies with two ends and with one, each measured as a user would. It takes the processors for itself. Needs
//! root and skips loudly without it.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tombolo_lab::skip_without;

#[test]
fn pairs_and_single_ends_of_the_technologies_are_measured() {
    if skip_without("pairs_and_single_ends_of_the_technologies_are_measured", &[]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("matrix.jsonl").display().to_string();
    let technologies = "ds-lite,map-e-ce";
    let arguments =
        ["bench", "matrix", "--procedures", "received-rate", "--technologies", technologies, "--output", &file];
    let output = Command::new(env!("CARGO_BIN_EXE_tombolo")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let cells: Vec<&Value> = lines.iter().filter(|line| line["record"] == "cell").collect();
    let measured: Vec<&str> = cells.iter().map(|cell| cell["technology"].as_str().unwrap()).collect();
    assert_eq!(measured.join(","), technologies);
    for cell in cells {
        // All that came back is right: addresses, ports of the customer's set, every field.
        assert!(cell["measured"][0]["value"].as_f64().is_some_and(|rate| rate > 0.0), "{cell}");
    }
}

//! The soak, short: `TOMBOLO_SOAK_SECONDS` makes it long. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::process::Command;

use tombolo_lab::skip_without;

#[test]
fn everything_at_once_leaves_every_invariant_intact_and_leaks_nothing() {
    if skip_without("everything_at_once_leaves_every_invariant_intact_and_leaks_nothing", &["ip"]) {
        return;
    }
    let seconds = std::env::var("TOMBOLO_SOAK_SECONDS").unwrap_or_else(|_| "24".into());
    let output =
        Command::new(env!("CARGO_BIN_EXE_tombolo")).args(["lab", "soak", "--json", "--seconds", &seconds]).output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{errors}"));
    assert!(output.status.success() && report["failures"].as_array().unwrap().is_empty(), "{report:#}\n{errors}");
    let number = |pointer: &str| report.pointer(pointer).and_then(serde_json::Value::as_u64).unwrap();
    assert!(number("/kills") >= 1 && number("/traffic/steady_answers") > 100, "{report:#}");
    // The floods met their limits, and the scans closed doors.
    for reason in ["rate-limited", "no-binding"] {
        assert!(number(&format!("/aftermath/dropped/{reason}")) > 0, "{report:#}");
    }
}

//! Random packets through a live gateway of each kind, byte by byte beside what `tombolo translate`
//! makes of them; `TOMBOLO_LIVE_PACKETS` says how many of each kind and path. Needs root and skips
//! loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::process::Command;

use tombolo_lab::skip_without;

/// Some of each kind that a comparison would be worthless without.
const ENOUGH: u64 = 20;

fn compare(path: &str) {
    let name = format!("a_live_gateway_sends_and_counts_what_translate_does::{path}");
    if skip_without(&name, &["ip"]) {
        return;
    }
    let packets = std::env::var("TOMBOLO_LIVE_PACKETS").unwrap_or_else(|_| "10000".into());
    let arguments = ["lab", "compare", "--json", "--path", path, "--packets", &packets];
    let output = Command::new(env!("CARGO_BIN_EXE_tombolo")).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let reports: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reports.len(), 12, "every service");
    for report in &reports {
        let number = |pointer: &str| report.pointer(pointer).and_then(serde_json::Value::as_u64).unwrap();
        for what in ["/fates/forwarded", "/fates/answered", "/fates/dropped", "/arrived/0", "/arrived/1"] {
            assert!(number(what) > ENOUGH, "{what} in {report:#}");
        }
        assert_eq!(number("/taken_by_the_kernel") > ENOUGH, path == "tc", "{report:#}");
        assert_eq!(number("/different"), 0, "{report:#}");
    }
}

#[test]
fn a_live_gateway_sends_and_counts_what_translate_does() {
    compare("engine");
}

#[test]
fn a_live_gateway_with_its_programs_sends_and_counts_what_translate_does() {
    compare("tc");
}

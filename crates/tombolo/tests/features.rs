//! `tombolo bench preset thesis-features`: what a NAT64 does is seen by what it does, and what one lacks is seen
//! to be lacking. Needs root and skips loudly without it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;
use tombolo_lab::skip_without;

#[test]
fn features_are_tried_and_what_is_lacking_is_seen() {
    if skip_without("features_are_tried_and_what_is_lacking_is_seen", &["tayga"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["bench", "preset", "thesis-features", "-o"];
    let output = Command::new(env!("CARGO_BIN_EXE_tombolo")).args(arguments).arg(directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = fs::read_to_string(directory.path().join("thesis-features-quick.jsonl")).unwrap();
    let mut lacking: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        if line["record"] == "feature" {
            let of = |key: &str| line[key].as_str().unwrap().to_owned();
            let lacks = lacking.entry(of("gateway")).or_default();
            lacks.extend((line["works"] == false).then(|| of("feature")));
        }
    }
    assert_eq!((&lacking["tombolo:tc"], &lacking["tombolo:off"]), (&vec![], &vec![]));
    // It is stateless, and drops datagrams without a checksum (RFC 7915 section 4.5 allows that).
    assert_eq!(lacking["tayga"], ["NAT64: Sessions", "Payload Checksum"]);
}

//! `tombolo map calc`, on the examples of the RFCs.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Output};

use serde_json::Value;

const RULE: [&str; 8] = ["map", "calc", "--ipv6", "2001:db8::/40", "--ipv4", "192.0.2.0/24", "--ea-bits", "16"];

fn tombolo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tombolo")).args(arguments).output().unwrap()
}

fn json(more: &[&str]) -> Value {
    let output = tombolo(&[&RULE, more, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(more: &[&str]) -> (i32, String) {
    let output = tombolo(&[&RULE, more].concat());
    assert!(output.stdout.is_empty());
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn both_directions_agree_on_the_example_of_rfc_7597() {
    let from_prefix = json(&["--end-user", "2001:db8:12:3400::/56"]);
    assert_eq!(from_prefix["ipv4"], "192.0.2.18");
    assert_eq!(from_prefix["psid"]["value"], 0x34);
    assert_eq!(from_prefix["map_address"], "2001:db8:12:3400:0:c000:212:34");
    assert_eq!(from_prefix["ports"]["count"], 252);
    let ranges = from_prefix["ports"]["ranges"].as_array().unwrap();
    assert_eq!((ranges.len(), &ranges[0], &ranges[62]), (63, &[1232, 1235].into(), &[64720, 64723].into()));
    let from_port = json(&["--address", "192.0.2.18", "--port", "64721"]);
    assert_eq!(from_port, from_prefix);
}

#[test]
fn a_default_mapping_rule_embeds_remote_addresses() {
    let dmr = ["--dmr", "2001:db8:ffff::/64", "--remote", "10.2.3.4"];
    let report = json(&[&["--end-user", "2001:db8:12:3400::/56"], &dmr[..]].concat());
    assert_eq!(report["remote"], "2001:db8:ffff:0:a:203:400:0");
}

#[test]
fn text_says_the_same() {
    let output = tombolo(&[&RULE[..], &["--end-user", "2001:db8:12:34a0::/60"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["shared address: 192.0.2.18", "PSID 0x34", "252 ports in 63 ranges", "1232-1235", "cannot compute"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn what_makes_no_sense_is_named() {
    assert_eq!(refused(&[]).0, 2, "neither direction");
    let cases: [(&[&str], &str); 6] = [
        (&["--end-user", "2001:db8:1200::/56"], "does not lie in the rule's IPv6 prefix"),
        (&["--end-user", "2001:db8:12::/48"], "with the rule's EA bits it has 56 at least"),
        (&["--address", "192.0.3.1", "--port", "2000"], "does not lie in the rule's IPv4 prefix"),
        (&["--address", "192.0.2.1"], "add --port"),
        (&["--address", "192.0.2.1", "--port", "80"], "belongs to nobody"),
        (&["--address", "192.0.2.1", "--psid-offset", "9", "--port", "1"], "do not fit the 16 bits of a port"),
    ];
    for (arguments, words) in cases {
        let (status, text) = refused(arguments);
        assert!(status == 1 && text.contains(words), "{arguments:?}: {text}");
    }
}

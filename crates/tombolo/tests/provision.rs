//! `tombolo provision` as users run it; what it prints is a configuration.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tombolo")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What `tombolo check` says of a configuration.
fn check(configuration: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gateway.toml");
    std::fs::write(&file, configuration).unwrap();
    text(&run(&["check", "-c", file.to_str().unwrap()]))
}

#[test]
fn a_container_of_lightweight_4over6_becomes_a_lwb4() {
    let container =
        "0060002c 005c0014c00002123820010db8001234 005d000400061000 005a001020010db8ffff00000000000000000001";
    let configuration = text(&run(&["provision", "s46", container]));
    assert_eq!(
        configuration.trim_end(),
        "[[service]]\nkind = \"lwb4\"\ninside = [\"192.168.1.0/24\"]\nipv4 = \"192.0.2.18\"\npsid_offset = 0\n\
         psid_length = 6\npsid = 4\nbind_prefix = \"2001:db8:12:3400::/56\"\naftr = \"2001:db8:ffff::1\""
    );
    let plan = check(&configuration);
    assert!(
        plan.contains("addresses: 2001:db8:12:3400:0:c000:212:4") && plan.contains("aftr: 2001:db8:ffff::1"),
        "{plan}"
    );
    assert!(plan.contains("4096-5119"), "{plan}");
}

#[test]
fn the_name_of_an_aftr_becomes_a_b4_to_be_completed() {
    let option = "004000120461667472076578616d706c6503636f6d00";
    let configuration = text(&run(&["provision", "s46", option]));
    assert!(configuration.contains("aftr = \"aftr.example.com\""), "{configuration}");
    let configuration =
        text(&run(&["provision", "s46", option, "--aftr", "2001:db8:ffff::1", "--inside", "10.0.0.0/24"]));
    let complete = configuration.replace(
        "# address = an address of the delegated prefix that no interface has",
        "address = \"2001:db8:1::b4\"",
    );
    let plan = check(&complete);
    assert!(plan.contains("addresses: 2001:db8:1::b4") && plan.contains("aftr: 2001:db8:ffff::1"), "{plan}");
}

#[test]
fn containers_of_map_become_edges() {
    let container = "005e00250059000d011018c00002002820010db800005a001020010db8ffff00000000000000000001";
    let configuration = text(&run(&["provision", "s46", container, "--prefix", "2001:db8:12:3400::/56"]));
    for line in [
        "kind = \"map-e\"",
        "role = \"ce\"",
        "end_user_prefix = \"2001:db8:12:3400::/56\"",
        "    { ipv6 = \"2001:db8::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16, forwarding = true },",
        "br = \"2001:db8:ffff::1\"",
    ] {
        assert!(configuration.contains(line), "{line}: {configuration}");
    }
    let container = "005f001e0059000d011018c00002002820010db800005b00094020010db8ffff0000";
    let configuration = text(&run(&["provision", "s46", container]));
    assert!(configuration.contains("dmr = \"2001:db8:ffff::/64\""), "{configuration}");
}

#[test]
fn what_is_ignored_is_said_and_nothing_is_an_error() {
    let rule = "0059000d011018c00002002820010db800";
    let output = run(&["provision", "s46", rule]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("# ignored: option 89 is outside of a container"));
    for bad in ["xyz", "abc", "", "0060"] {
        assert_eq!(run(&["provision", "s46", bad]).status.code(), Some(1), "{bad}");
    }
}

#[test]
fn a_pref64_option_is_read() {
    let told = text(&run(&["provision", "pref64", "26:02:07:08:00:64:ff:9b:00:00:00:00:00:00:00:00"]));
    assert_eq!(told.trim_end(), "prefix = \"64:ff9b::/96\"    # for 1800 seconds");
    let told = text(&run(&["provision", "pref64", "260207080064ff9b0000000000000000", "--json"]));
    assert!(told.contains("\"lifetime_seconds\": 1800"), "{told}");
    assert_eq!(run(&["provision", "pref64", "2602070e0064ff9b0000000000000000"]).status.code(), Some(1));
}

//! Mistakes in services with softwires: each named with file, line, key, value, reason and fix.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::Ipv4Addr;
use std::time::Instant;

use tombolo_engine::plan::ServiceKind;

fn refused(text: &str) -> Vec<String> {
    let error = tombolo_config::parse("gateway.toml", text).unwrap_err();
    error.problems().iter().map(ToString::to_string).collect()
}

#[track_caller]
fn says(text: &str, expected: &[&str]) {
    let found = refused(text);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found}\n  lacks {expected}");
    }
}

#[test]
fn an_end_without_its_essentials_says_what_to_add() {
    says(
        "[[service]]\nkind = \"b4\"\n",
        &["service[0].inside: missing", "service[0].address: missing", "service[0].aftr: missing; add aftr = \"2001:"],
    );
    says("[[service]]\nkind = \"aftr\"\n", &["address: missing", "b4s: missing", "pool: missing"]);
    says("[[service]]\nkind = \"lwb4\"\n", &["inside: missing", "ipv4: missing", "aftr: missing"]);
    says(
        "[[service]]\nkind = \"lwaftr\"\n",
        &["addresses: missing", "ipv4: missing", "no softwires; add softwires or softwires_file"],
    );
}

#[test]
fn addresses_that_cannot_work_are_refused() {
    let b4 = |address: &str, aftr: &str| {
        format!("[[service]]\nkind = \"b4\"\ninside = [\"10.0.0.0/24\"]\naddress = \"{address}\"\naftr = \"{aftr}\"\n")
    };
    says(
        &b4("ff02::1", "2001:db8::1"),
        &["gateway.toml:4: service[0].address = \"ff02::1\": no softwire can end there"],
    );
    says(&b4("2001:db8::1/64", "2001:db8::2"), &["not an IPv6 address; write it without a prefix length"]);
    says(&b4("2001:db8::1", "2001:db8::1"), &["is this end's own address"]);
    let two = b4("2001:db8::1", "2001:db8::2") + &b4("2001:db8::1", "2001:db8::2").replace("10.0.0.0", "10.0.1.0");
    says(&two, &["is the address of service[0].address too"]);
    let aftr = "[[service]]\nkind = \"aftr\"\naddress = \"2001:db8::1\"\nb4s = [\"2001:db8::/32\"]\npool = [{ addresses = \"192.0.2.1\" }]\n";
    says(aftr, &["service[0].b4s[0] = \"2001:db8::/32\": contains the AFTR's own address"]);
}

#[test]
fn port_sets_that_do_not_exist_are_refused() {
    let lwb4 = |keys: &str| {
        format!(
            "[[service]]\nkind = \"lwb4\"\ninside = [\"10.0.0.0/24\"]\nipv4 = \"192.0.2.10\"\naddress = \"2001:db8::1\"\naftr = \"2001:db8::2\"\n{keys}\n"
        )
    };
    says(&lwb4("psid_length = 6\npsid = 64"), &["service[0].psid = 64: PSID 64 does not fit 6 bits; use 0 to 63"]);
    says(&lwb4("psid = 1"), &["PSID 1 does not fit 0 bits; use 0 to 0"]);
    says(&lwb4("psid_offset = 6\npsid_length = 12"), &["6 offset bits and 12 PSID bits are more than 16"]);
    says(&lwb4("bind_prefix = \"2001:db8:1::/56\""), &["follows from bind_prefix; remove one of the two"]);
    let fixed = "psid_length = 6\npsid = 4\nstatic = [{ inside = \"10.0.0.2:80\", outside = \"192.0.2.10:80\", protocol = \"tcp\" }]";
    says(&lwb4(fixed), &["outside port 80 is not in the port set; choose one of 4096-5119"]);
}

fn lwaftr(rows: &str) -> String {
    format!(
        "[[service]]\nkind = \"lwaftr\"\naddresses = [\"2001:db8:ffff::1\"]\nipv4 = [\"192.0.2.0/24\"]\nsoftwires = [\n{rows}]\n"
    )
}

#[test]
fn rows_that_contradict_each_other_are_named() {
    let row = |n: u16, more: &str| format!("{{ b4 = \"2001:db8:1::{n}\", ipv4 = \"192.0.2.10\", {more} }},\n");
    let same = row(1, "psid_length = 6, psid = 4") + &row(2, "psid_length = 6, psid = 4");
    says(
        &lwaftr(&same),
        &["gateway.toml:7: service[0].softwires[1]: has the same address and port set as service[0].softwires[0]"],
    );
    let other = row(1, "psid_length = 6, psid = 4") + &row(2, "psid_length = 7, psid = 4");
    says(&lwaftr(&other), &["divides the ports of its address otherwise than service[0].softwires[0]"]);
    let foreign = row(1, "psid_length = 6, psid = 4, aftr = \"2001:db8:ffff::9\"");
    says(&lwaftr(&foreign), &["softwires[0].aftr = \"2001:db8:ffff::9\": is not among the service's addresses"]);
    let outside = row(1, "psid = 0").replace("192.0.2.10", "203.0.113.1");
    says(&lwaftr(&outside), &["softwires[0].ipv4 = \"203.0.113.1\": is not among the addresses"]);
    let low = tombolo_config::parse("gateway.toml", &lwaftr(&row(1, "psid_length = 6, psid = 0"))).unwrap();
    assert!(low.warnings[0].to_string().contains("1 softwires have well-known ports of a shared address"));
}

#[test]
fn lines_of_a_file_are_named_like_keys() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("gateway.toml");
    let text = lwaftr("").replace("softwires = [\n]", "softwires_file = \"s.csv\"");
    std::fs::write(&config, text).unwrap();
    let load = |lines: &str| {
        std::fs::write(directory.path().join("s.csv"), lines).unwrap();
        tombolo_config::load(&config)
    };
    let good = "b4,ipv4,psid_offset,psid_length,psid,aftr\n# a comment\n\n2001:db8:1::1,192.0.2.10,0,6,4\n";
    let ServiceKind::Lwaftr(service) = &load(good).unwrap().plan.services[0].kind else { panic!("no lwAFTR") };
    assert_eq!(service.table.len(), 1);
    assert!(service.table.find(Ipv4Addr::new(192, 0, 2, 10), Some(4096)).is_some());
    for (line, expected) in [
        ("2001:db8:1::1,192.0.2.10,0,6", "s.csv:5: psid is missing; write b4,ipv4,"),
        ("2001:db8:1::1,192.0.2.10,0,6,4", "s.csv:5: has the same address and port set as line 4 of "),
        ("2001:db8:1::1,192.0.2.300,0,6,4", "s.csv:5: ipv4 \"192.0.2.300\" is not an IPv4 address"),
        ("hello,192.0.2.10,0,6,4", "s.csv:5: b4 \"hello\" is not an IPv6 address"),
        ("2001:db8:1::1,192.0.2.10,0,6,64", "s.csv:5: psid: PSID 64 does not fit 6 bits"),
        ("2001:db8:1::1,192.0.2.10,0,17,4", "s.csv:5: psid_length: out of range"),
        ("2001:db8:1::1,192.0.2.10,0,6,x", "s.csv:5: psid \"x\" is not a number"),
        ("2001:db8:1::1,192.0.2.11,0,6,4,::1", "s.csv:5: aftr: is not among the service's addresses"),
        ("2001:db8:1::1,192.0.2.11,0,6,4,,7", "s.csv:5: more than six columns"),
        ("::1,192.0.2.11,0,6,4", "s.csv:5: b4: no softwire can end there"),
    ] {
        let error = load(&format!("{good}{line}\n")).unwrap_err();
        assert!(error.problems()[0].to_string().contains(expected), "{error}\n  lacks {expected}");
    }
    let many = load(&"nonsense\n".repeat(100)).unwrap_err();
    assert_eq!(many.problems().len(), 21, "twenty lines, and how many more");
    std::fs::remove_file(directory.path().join("s.csv")).unwrap();
    assert!(tombolo_config::load(&config).unwrap_err().to_string().contains("cannot be read"));
}

#[test]
fn a_million_softwires_are_read_in_seconds() {
    use std::fmt::Write as _;
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("gateway.toml");
    let text =
        lwaftr("").replace("softwires = [\n]", "softwires_file = \"s.csv\"").replace("192.0.2.0/24", "100.64.0.0/10");
    std::fs::write(&config, text).unwrap();
    let mut lines = String::new();
    for n in 0..1_000_000_u32 {
        let address = Ipv4Addr::from_bits(0x6440_0000 + n / 63);
        let _ = writeln!(lines, "2001:db8:{:x}:{:x}::1,{address},0,6,{}", n >> 16, n & 0xffff, 1 + n % 63);
    }
    std::fs::write(directory.path().join("s.csv"), lines).unwrap();
    let begun = Instant::now();
    let configuration = tombolo_config::load(&config).unwrap();
    println!("{:?}", begun.elapsed());
    let ServiceKind::Lwaftr(service) = &configuration.plan.services[0].kind else { panic!("no lwAFTR") };
    assert_eq!(service.table.len(), 1_000_000);
    // Far more than it takes; a table that grows with the square of its rows would need hours.
    assert!(begun.elapsed().as_secs() < 60);
}

//! Files of other gateways, what becomes of them and what is left. `UPDATE_CASES=1 cargo test -p tombolo-import` writes the
//! expected files anew, to be read before they are kept.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use tombolo_import::{Gateway, Hints, import};

#[track_caller]
fn check(gateway: Gateway, file: &str, hints: &Hints) {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let text = fs::read_to_string(cases.join(file)).unwrap();
    let imported = import(gateway, &text, hints).unwrap();
    let left: String = imported.left.iter().map(|left| format!("{left}\n")).collect();
    let (stem, _) = file.split_once('.').unwrap();
    for (name, made) in [(format!("{stem}.toml"), &imported.toml), (format!("{stem}.left"), &left)] {
        let path = cases.join(&name);
        if std::env::var_os("UPDATE_CASES").is_some() {
            fs::write(&path, made).unwrap();
        }
        assert_eq!(*made, fs::read_to_string(&path).unwrap(), "{name}");
    }
    if let Err(error) = tombolo_config::parse(&format!("{stem}.toml"), &imported.toml) {
        panic!("{error}\n{}", imported.toml);
    }
}

#[test]
fn a_nat64_of_jool() {
    check(Gateway::Jool, "jool-nat64.json", &Hints::default());
}

#[test]
fn a_nat64_of_jool_that_shares_the_hosts_address() {
    let text = r#"{ "framework": "netfilter", "global": { "pool6": "64:ff9b::/96" } }"#;
    let imported = import(Gateway::Jool, text, &Hints::default()).unwrap();
    assert!(imported.left[0].to_string().contains("say with --outside"), "{:?}", imported.left);
    let inside = vec!["2001:db8::/32".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
    let hints = Hints { outside: Some(Ipv4Addr::new(192, 0, 2, 9)), inside };
    let imported = import(Gateway::Jool, text, &hints).unwrap();
    assert_eq!(imported.left, []);
    assert!(imported.toml.contains("inside = [\"2001:db8::/32\"]"), "{}", imported.toml);
    assert!(imported.toml.contains(r#"{ addresses = "192.0.2.9", ports = "61001-65535" }"#), "{}", imported.toml);
    tombolo_config::parse("made", &imported.toml).unwrap();
}

#[test]
fn a_siit_of_jool() {
    check(Gateway::JoolSiit, "jool-siit.json", &Hints::default());
}

#[test]
fn rules_of_iptables() {
    check(Gateway::Iptables, "iptables.txt", &Hints { outside: Some(Ipv4Addr::new(192, 0, 2, 9)), ..Hints::default() });
}

#[test]
fn rules_of_nftables() {
    check(Gateway::Nft, "nft.json", &Hints::default());
}

#[test]
fn nat_of_vpp() {
    check(Gateway::Vpp, "vpp-nat.txt", &Hints::default());
}

#[test]
fn map_and_softwires_of_vpp() {
    let inside = vec!["2001:db8:400::/40".parse().unwrap()];
    check(Gateway::Vpp, "vpp-map.txt", &Hints { inside, ..Hints::default() });
}

#[test]
fn a_lwaftr_of_snabb() {
    check(Gateway::Snabb, "snabb.conf", &Hints::default());
}

#[test]
fn what_is_no_such_file_is_said_with_its_place() {
    let refused = |gateway, text: &str| import(gateway, text, &Hints::default()).unwrap_err().to_string();
    assert!(refused(Gateway::Jool, "{\n\"a\"").starts_with("line 2: not JSON"));
    assert_eq!(refused(Gateway::Jool, "[]"), "line 1: not an object, as Jool's files are");
    assert_eq!(refused(Gateway::Iptables, "table ip nat {"), "line 1: not a line of iptables-save: table ip nat {");
    assert!(refused(Gateway::Iptables, "*filter\nCOMMIT\n").contains("has no rule of the table nat"));
    assert!(refused(Gateway::Nft, "table ip nat {").contains("nft -j list ruleset"));
    assert!(refused(Gateway::Nft, "{}").contains("has no rule in a chain of the type nat"));
    assert!(refused(Gateway::Vpp, "show version").contains("has no line of nat64"));
    assert_eq!(refused(Gateway::Snabb, "softwire-config { a; }\n}"), "line 2: a } without its {");
    assert_eq!(refused(Gateway::Snabb, "softwire-config {"), "the end of the file: a { has no }");
    assert_eq!(refused(Gateway::Snabb, "softwire-config { a \"b }"), "line 1: a quoted text does not end on its line");
    assert_eq!(refused(Gateway::Snabb, &"a {".repeat(10_000)), "line 1: blocks within too many others");
    assert_eq!(refused(Gateway::Snabb, "// nothing"), "the file: has no softwire-config { ... }");
}

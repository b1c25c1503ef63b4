//! Vectors for MAP: rules and addresses (RFC 7597, RFC 7599).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a vector that cannot be read fails its test")]

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;
use tombolo_engine::mapping::eam::parse_prefix;
use tombolo_engine::mapping::map_domain::{AddressOwner, MapDomain};
use tombolo_engine::mapping::map_rule::{Assignment, GivenPsid, MapRule};
use tombolo_tables::lpm::Prefix;
use tombolo_wire::Prefix64;

/// Runs every case of a file; the counts guard against vectors that are silently passed over.
fn run(name: &str, expected: &[(&str, usize)]) {
    let path = format!("{}/../../tests/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    for case in cases {
        check(case);
    }
    for (kind, count) in expected {
        assert_eq!(cases.iter().filter(|case| case["kind"] == **kind).count(), *count, "{kind}");
    }
    assert_eq!(cases.len(), expected.iter().map(|(_, count)| count).sum::<usize>());
}

#[test]
fn map_e() {
    run(
        "map_e",
        &[
            ("provision", 38),
            ("forward", 26),
            ("source_check", 12),
            ("bmr_select", 3),
            ("fmr_select", 3),
            ("br_to_ce", 1),
            ("ce_to_br", 1),
        ],
    );
}

#[test]
fn map_t() {
    run(
        "map_t",
        &[
            ("provision", 38),
            ("forward", 26),
            ("source_check", 12),
            ("br_4to6", 1),
            ("ce_4to6", 1),
            ("dmr", 21),
            ("config", 5),
            ("br_icmp", 3),
        ],
    );
}

fn check(case: &Value) {
    match case["kind"].as_str().unwrap() {
        "provision" => check_provision(case),
        "forward" => {
            let owner = owner(case, address(case, "ipv4_dst"), port(case, "dst_port_or_icmp_id"));
            assert_eq!(owner, optional(case, "map_address"), "{case}");
        }
        "br_icmp" => {
            let owner = owner(case, address(case, "ipv4_dst"), port(case, "icmp_id"));
            assert_eq!(owner, optional(case, "ipv6_dst"), "{case}");
        }
        "source_check" => check_source(case),
        "bmr_select" | "fmr_select" => check_selection(case),
        "br_to_ce" => {
            let owner = owner(case, address(case, "ipv4_dst"), port(case, "dst_port"));
            assert_eq!(owner, optional(case, "outer_ipv6_dst"), "{case}");
        }
        "ce_to_br" => {
            let owner = owner(case, address(case, "ipv4_src"), port(case, "src_port"));
            assert_eq!(owner, optional(case, "outer_ipv6_src"), "{case}");
        }
        "br_4to6" => {
            let owner = owner(case, address(case, "ipv4_dst"), port(case, "dst_port"));
            assert_eq!(owner, optional(case, "ipv6_dst"), "{case}");
            assert_eq!(Some(dmr(case).unwrap().embed(address(case, "ipv4_src"))), optional(case, "ipv6_src"), "{case}");
        }
        "ce_4to6" => {
            let owner = owner(case, address(case, "ipv4_src"), port(case, "src_port"));
            assert_eq!(owner, optional(case, "ipv6_src"), "{case}");
            assert_eq!(Some(dmr(case).unwrap().embed(address(case, "ipv4_dst"))), optional(case, "ipv6_dst"), "{case}");
        }
        "dmr" => {
            let (dmr, ipv6) = (dmr(case).unwrap(), optional(case, "ipv6").unwrap());
            assert_eq!(dmr.embed(address(case, "ipv4")), ipv6, "{case}");
            assert_eq!(dmr.extract(ipv6), Some(address(case, "ipv4")), "{case}");
        }
        "config" => assert_eq!(dmr(case).is_some(), case["valid"].as_bool().unwrap(), "{case}"),
        other => panic!("{other}"),
    }
}

fn check_provision(case: &Value) {
    let rule = rule(&case["rule"]);
    let ce = rule.provision(parse_prefix(text(case, "end_user_ipv6_prefix")).unwrap()).unwrap();
    let expect = &case["expect"];
    let number = |key: &str| expect[key].as_u64().unwrap();
    assert_eq!(u64::from(rule.ipv6().prefix_len()), number("ea_bits_offset"), "{case}");
    assert_eq!(u64::from(rule.ea_bits()), number("ea_bits_len"));
    assert_eq!(u64::from(rule.suffix_bits()), number("ipv4_suffix_bits_p"));
    assert_eq!(u64::from(rule.embedded_psid_bits()), number("psid_bits_q_in_ea"));
    let assignment = match rule.assignment() {
        Assignment::Prefix => "prefix",
        Assignment::Address => "full",
        Assignment::Shared => "shared",
    };
    assert_eq!(assignment, text(expect, "assignment"), "{case}");
    assert_eq!(ce.ipv4(), parse_prefix(text(expect, "ipv4")).unwrap(), "{case}");
    assert_eq!(Some(ce.address()), optional(expect, "map_address"), "{case}");
    let psid = (rule.division().psid_bits() > 0).then_some(u64::from(ce.share().psid));
    assert_eq!(psid, expect["psid"].as_u64(), "{case}");
    assert_eq!(u64::from(rule.division().psid_bits()), number("psid_len_k"));
    assert_eq!(u64::from(rule.division().offset_bits()), number("psid_offset_a"));
    assert_eq!(u64::from(rule.division().sets()), number("sharing_ratio"));
    let ranges: Vec<_> = ce.ports().collect();
    let total: u64 = ranges.iter().map(|range| u64::from(range.end() - range.start()) + 1).sum();
    assert_eq!(total, expect["ports"]["total_ports"].as_u64().unwrap(), "{case}");
    if expect["ports"]["restricted"] == true {
        assert_eq!(ranges.len() as u64, expect["ports"]["range_count"].as_u64().unwrap());
        let pair = |key: &str| [0, 1].map(|end| u16::try_from(expect["ports"][key][end].as_u64().unwrap()).unwrap());
        assert_eq!([*ranges[0].start(), *ranges[0].end()], pair("first_range"));
        let last = &ranges[ranges.len() - 1];
        assert_eq!([*last.start(), *last.end()], pair("last_range"));
    }
    // And back: any of the ports leads to the prefix, as far as the rule knows it.
    let share = rule.share_of(ce.share().ipv4, *ranges[0].start()).unwrap();
    assert_eq!(share, ce.share());
    assert!(rule.end_user_prefix(share).contains(ce.end_user_prefix().key()));
    assert_eq!(ce.is_computable(), rule.map_address(share) == ce.address());
}

/// Both checks of the vectors: by the EA bits, which RFC 7597 describes, and by the whole address,
/// which is used.
fn check_source(case: &Value) {
    let rule = rule(&case["rule"]);
    let source = optional(case, "ipv6_src").unwrap();
    let (ipv4, port) = (address(case, "ipv4_src"), port(case, "src_port_or_icmp_id"));
    let by_bits = rule.share_in(source).is_some_and(|share| rule.owns(share, ipv4, port));
    let by_address = rule.share_at(source).is_some_and(|share| rule.owns(share, ipv4, port));
    assert_eq!(by_bits, case["accept_ea_bits_check"].as_bool().unwrap(), "{case}");
    assert_eq!(by_address, case["accept_full_address_check"].as_bool().unwrap(), "{case}");
}

/// The vectors give one prefix of each rule only; the other is made up, different for each.
fn check_selection(case: &Value) {
    let rows = case["rules"].as_array().unwrap();
    let rules: Vec<MapRule> = rows
        .iter()
        .zip(1_u32..)
        .map(|(row, number)| {
            let ipv4 = row.get("rule_ipv4_prefix").map(|text| parse_prefix(text.as_str().unwrap()).unwrap());
            let ipv6 = row.get("rule_ipv6_prefix").map(|text| parse_prefix(text.as_str().unwrap()).unwrap());
            let ipv4 = ipv4.unwrap_or(Prefix::covering(number << 24, 32));
            let ipv6 = ipv6.unwrap_or(Prefix::covering(u128::from(number) << 96, 32));
            MapRule::new(ipv6, ipv4, 0, 6, None).unwrap()
        })
        .collect();
    let domain = MapDomain::new(rules).unwrap();
    let selected = match case.get("ipv4_dst") {
        Some(_) => match domain.owner(address(case, "ipv4_dst"), 2000) {
            AddressOwner::Subscriber { rule, .. } => Some(rule),
            AddressOwner::Nobody | AddressOwner::Outside => None,
        },
        None => {
            let prefix: Prefix<u128> = parse_prefix(text(case, "end_user_ipv6_prefix")).unwrap();
            domain.rule_of_ipv6(Ipv6Addr::from_bits(prefix.key())).map(|(number, _)| number)
        }
    };
    let selected = selected.map(|number| rows[number as usize]["name"].as_str().unwrap());
    assert_eq!(selected, case["selected"].as_str(), "{case}");
}

fn rule(rule: &Value) -> MapRule {
    let small = |key: &str| u8::try_from(rule[key].as_u64().unwrap()).unwrap();
    let given = rule.get("explicit_psid_len").map(|_| GivenPsid {
        bits: small("explicit_psid_len"),
        psid: u16::try_from(rule["explicit_psid"].as_u64().unwrap()).unwrap(),
    });
    let ipv6 = parse_prefix(text(rule, "rule_ipv6_prefix")).unwrap();
    let ipv4 = parse_prefix(text(rule, "rule_ipv4_prefix")).unwrap();
    MapRule::new(ipv6, ipv4, small("ea_bits_len"), small("psid_offset"), given).unwrap()
}

fn owner(case: &Value, address: Ipv4Addr, port: u16) -> Option<Ipv6Addr> {
    match MapDomain::new(vec![rule(&case["rule"])]).unwrap().owner(address, port) {
        AddressOwner::Subscriber { address, .. } => Some(address),
        AddressOwner::Nobody | AddressOwner::Outside => None,
    }
}

fn dmr(case: &Value) -> Option<Prefix64> {
    let prefix: Prefix<u128> = parse_prefix(text(case, "dmr")).unwrap();
    Prefix64::new(Ipv6Addr::from_bits(prefix.key()), prefix.prefix_len()).ok()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap()
}

fn address(case: &Value, key: &str) -> Ipv4Addr {
    text(case, key).parse().unwrap()
}

fn optional(case: &Value, key: &str) -> Option<Ipv6Addr> {
    case[key].as_str().map(|text| text.parse().unwrap())
}

fn port(case: &Value, key: &str) -> u16 {
    u16::try_from(case[key].as_u64().unwrap()).unwrap()
}

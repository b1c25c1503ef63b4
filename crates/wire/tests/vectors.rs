//! Runs the published and computed vectors that concern this crate (`tests/vectors` at the
//! workspace root).

#![expect(clippy::unwrap_used, reason = "a vector that cannot be read fails its test")]

mod cases;

use std::net::{Ipv4Addr, Ipv6Addr};

use cases::{bytes, run_vectors, text};
use serde_json::Value;
use tombolo_wire::checksum::{self, Delta, Sum};
use tombolo_wire::rfc6052::{Prefix64, Prefix64Error};
use tombolo_wire::{Ipv4View, Pref64Option, ipv4, pref64, read_u16, write_u16};

/// Runs `check` on every case of a kind and returns how many there were.
fn run(file: &str, kind: &str, check: impl Fn(&Value)) -> usize {
    run_vectors(file, |case| case["kind"] == kind, check)
}

fn word(case: &Value, key: &str) -> u16 {
    u16::from_str_radix(text(case, key).trim_start_matches("0x"), 16).unwrap()
}

fn prefix(case: &Value) -> Result<Prefix64, Prefix64Error> {
    text(case, "prefix").parse()
}

fn v4(case: &Value) -> Ipv4Addr {
    text(case, "ipv4").parse().unwrap()
}

fn v6(case: &Value) -> Ipv6Addr {
    text(case, "ipv6").parse().unwrap()
}

#[test]
fn rfc6052_addresses_map_both_ways() {
    let count = run("rfc6052", "map", |case| {
        let prefix = prefix(case).unwrap();
        assert_eq!(prefix.embed(v4(case)), v6(case));
        assert_eq!(prefix.extract(v6(case)), Some(v4(case)));
    });
    assert_eq!(count, 49);
}

#[test]
fn rfc6052_suffixes_are_ignored() {
    let count = run("rfc6052", "extract", |case| {
        let expected = case["ipv4"].as_str().map(|text| text.parse().unwrap());
        assert_eq!(prefix(case).unwrap().extract(v6(case)), expected);
    });
    assert_eq!(count, 7);
}

#[test]
fn rfc6052_a_u_octet_is_removed_whatever_it_says() {
    let count = run("rfc6052", "extract_u_octet", |case| {
        assert_eq!(
            prefix(case).unwrap().extract(v6(case)),
            case["ipv4_if_accepted"].as_str().map(|text| text.parse().unwrap())
        );
    });
    assert_eq!(count, 5);
}

#[test]
fn rfc6052_prefixes_are_accepted_or_refused() {
    assert_eq!(17, run("rfc6052", "config", |case| assert_eq!(prefix(case).is_ok(), case["valid"].as_bool().unwrap())));
}

#[test]
fn rfc6052_the_well_known_prefix_has_its_policy() {
    let count = run("rfc6052", "wkp_policy", |case| {
        let prefix = prefix(case).unwrap();
        assert_eq!(prefix.extract(v6(case)), Some(v4(case)));
        assert_eq!(prefix.forbids(v4(case)), case["drop"].as_bool().unwrap());
    });
    assert_eq!(count, 45);
}

#[test]
fn checksum_sums() {
    let count = run("checksum", "sum", |case| {
        let sum = Sum::ZERO.bytes(&bytes(case, "data"));
        assert_eq!(sum.fold(), word(case, "ones_complement_sum"));
        assert_eq!(sum.checksum(), word(case, "checksum"));
    });
    assert_eq!(count, 16);
}

#[test]
fn checksum_updates() {
    let count = run("checksum", "incremental", |case| {
        let (old, new) = (word(case, "old_word"), word(case, "new_word"));
        let updated = checksum::update(word(case, "old_checksum"), Delta::of_word(old, new));
        assert_eq!(updated, word(case, "new_checksum"));
        if case.get("ipv4_header_before").is_some() {
            let mut header = bytes(case, "ipv4_header_before");
            let at = (0..20).step_by(2).find(|&at| at != ipv4::CHECKSUM && read_u16(&header, at) == old).unwrap();
            write_u16(&mut header, at, new);
            write_u16(&mut header, ipv4::CHECKSUM, updated);
            assert!(Ipv4View::parse_header(&header).unwrap().checksum_verifies());
        }
    });
    assert_eq!(count, 14);
}

#[test]
fn checksum_neutral_prefixes() {
    let count = run("checksum", "prefix_neutral", |case| {
        let prefix = prefix(case).unwrap();
        assert_eq!(Sum::ZERO.ipv6(prefix.address()).fold(), word(case, "prefix_sum"));
        let address = Ipv4Addr::new(192, 0, 2, 33);
        let delta = Delta::between(Sum::ZERO.ipv4(address), Sum::ZERO.ipv6(prefix.embed(address)));
        assert_eq!(delta.is_neutral(), case["neutral"].as_bool().unwrap());
    });
    assert_eq!(count, 8);
}

#[test]
fn checksum_deltas_of_addresses() {
    let count = run("checksum", "address_delta", |case| {
        let (sum4, sum6) = (Sum::ZERO.ipv4(v4(case)), Sum::ZERO.ipv6(v6(case)));
        assert_eq!((sum4.fold(), sum6.fold()), (word(case, "sum_ipv4"), word(case, "sum_ipv6")));
        assert_eq!(sum6 - sum4, Delta::from_bits(word(case, "delta_4to6")));
        assert_eq!(prefix(case).unwrap().embed(v4(case)), v6(case));
    });
    assert_eq!(count, 14);
}

#[test]
fn pref64_options_are_written_and_read() {
    let count = run("pref64", "encode", |case| {
        let lifetime = u16::try_from(case["lifetime_seconds"].as_u64().unwrap()).unwrap();
        let option = Pref64Option { prefix: prefix(case).unwrap(), lifetime };
        assert_eq!(option.emit()[..], bytes(case, "option"));
        assert_eq!(u64::from(pref64::scaled_lifetime(lifetime)), case["scaled_lifetime"].as_u64().unwrap());
        let decoded = Pref64Option::parse(&option.emit()).unwrap();
        assert_eq!(decoded.prefix, option.prefix);
        assert_eq!(u64::from(decoded.lifetime), case["decoded_lifetime_seconds"].as_u64().unwrap());
    });
    assert_eq!(count, 17);
    let count = run("pref64", "decode", |case| {
        assert_eq!(Pref64Option::parse(&bytes(case, "option")).is_some(), case["accept"] == true);
    });
    assert_eq!(count, 6);
    let count = run("pref64", "default_lifetime", |case| {
        let interval = u16::try_from(case["max_rtr_adv_interval"].as_u64().unwrap()).unwrap();
        let scaled = pref64::scaled_lifetime(pref64::default_lifetime(interval));
        assert_eq!(u64::from(scaled), case["scaled_lifetime"].as_u64().unwrap());
    });
    assert_eq!(count, 3);
}

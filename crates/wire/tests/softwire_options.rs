//! DHCPv6 options of RFC 7598 and RFC 6334: `tests/vectors/s46_options.json`.

mod cases;

use cases::{bytes, run_vectors};
use serde_json::{Value, json};
use tombolo_wire::dhcpv6_softwire::{PortParameters, S46Error, S46Option};

fn ports(ports: &PortParameters) -> Value {
    json!({ "offset": ports.offset, "psid_len": ports.psid_length, "psid": ports.psid })
}

/// The option in the words of the vectors, as far as they go.
fn words(option: &S46Option) -> Value {
    match option {
        S46Option::Rule(rule) => {
            let mut words = json!({
                "code": 89, "fmr": rule.forwarding, "ea_len": rule.ea_bits,
                "ipv4_prefix": rule.ipv4.to_string(), "ipv6_prefix": rule.ipv6.to_string(),
            });
            if let Some(set) = &rule.ports {
                words["portparams"] = ports(set);
            }
            words
        }
        S46Option::Br(address) => json!({ "code": 90, "br": address.to_string() }),
        S46Option::Dmr(prefix) => json!({ "code": 91, "dmr": prefix.to_string() }),
        S46Option::Bind(bind) => {
            let mut words = json!({
                "code": 92, "ipv4": bind.ipv4.to_string(), "bind_prefix": bind.bind_prefix.to_string(),
            });
            if let Some(set) = &bind.ports {
                words["portparams"] = ports(set);
            }
            words
        }
        S46Option::PortParameters(set) => {
            let mut words = ports(set);
            words["code"] = json!(93);
            words
        }
        S46Option::MapE { rules, relays } => {
            json!({ "code": 94, "contains": codes(&[(rules.len(), 89), (relays.len(), 90)]) })
        }
        S46Option::MapT { rules, .. } => json!({ "code": 95, "contains": codes(&[(rules.len(), 89), (1, 91)]) }),
        S46Option::Lw4o6 { bind, relays } => {
            json!({ "code": 96, "contains": codes(&[(usize::from(bind.is_some()), 92), (relays.len(), 90)]) })
        }
        S46Option::AftrName(name) => json!({ "code": 64, "name": name }),
    }
}

fn codes(counts: &[(usize, u16)]) -> Vec<u16> {
    counts.iter().flat_map(|&(count, code)| std::iter::repeat_n(code, count)).collect()
}

#[test]
fn options_are_read_and_written() {
    let count = run_vectors(
        "s46_options",
        |case| case["kind"] == "encode",
        |case| {
            let bytes = bytes(case, "option");
            let option = S46Option::decode(&bytes).unwrap();
            let mut expected = case["decoded"].clone();
            for derived in ["psid_field", "option_len"] {
                expected.as_object_mut().unwrap().remove(derived);
            }
            assert_eq!(words(&option), expected);
            assert_eq!(option.encode(), bytes);
        },
    );
    assert_eq!(count, 14);
}

#[test]
fn what_breaks_the_rules_is_ignored_with_a_reason() {
    let count = run_vectors(
        "s46_options",
        |case| case["kind"] == "invalid",
        |case| {
            let (options, errors) = S46Option::decode_received(&bytes(case, "option"));
            assert_eq!((options.len(), errors.len()), (0, 1), "{errors:?}");
        },
    );
    assert_eq!(count, 14);
}

#[test]
fn other_options_of_a_reply_are_passed_over() {
    // Domain search list, then an AFTR name, then a rule that lies about.
    let reply = [&[0, 24, 0, 2, 1, 0][..], &[0, 64, 0, 4, 2, b'a', b'b', 0], &[0, 89, 0, 0]].concat();
    let (options, errors) = S46Option::decode_received(&reply);
    assert_eq!(options, [S46Option::AftrName("ab.".into())]);
    assert_eq!(errors, [S46Error::Stray { code: 89 }]);
}

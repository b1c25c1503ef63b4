//! Who may use a service: `inside` of a NAT64, and what contradicts it.

use std::net::Ipv6Addr;

use tombolo_config::{Configuration, parse};
use tombolo_engine::plan::ServiceKind;
use tombolo_engine::service::nat64::Nat64;

/// A NAT64 with this prefix, with `more` at the end of its service.
fn nat64(prefix: &str, more: &str) -> String {
    format!(
        "[[service]]\nkind = \"nat64\"\nprefix = \"{prefix}\"\npool = [{{ addresses = \"192.0.2.0/28\" }}]\n{more}\n"
    )
}

#[track_caller]
fn accepted(text: &str) -> Configuration {
    match parse("gateway.toml", text) {
        Ok(configuration) => configuration,
        Err(error) => panic!("refused: {error}"),
    }
}

/// The whole error for a text, without the name of the file.
#[track_caller]
fn refused(text: &str) -> Vec<String> {
    match parse("gateway.toml", text) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.problems().iter().map(|problem| problem.to_string().replace("gateway.toml:", "")).collect(),
    }
}

fn service(configuration: &Configuration) -> &Nat64 {
    match &configuration.plan.services[0].kind {
        ServiceKind::Nat64(nat64) => nat64,
        other => panic!("a {}", other.name()),
    }
}

#[test]
fn the_hosts_of_a_nat64_are_those_that_inside_names() {
    let anybody = accepted(&nat64("64:ff9b::/96", ""));
    assert!(service(&anybody).inside.is_empty());
    let some = accepted(&nat64("64:ff9b::/96", "inside = [\"2001:db8:1::/48\", \"fd00::7\"]"));
    let is_inside = |text: &str| service(&some).inside.contains(text.parse::<Ipv6Addr>().unwrap());
    assert!(is_inside("2001:db8:1::2") && is_inside("fd00::7"));
    assert!(!is_inside("2001:db8:2::2") && !is_inside("fd00::8"));
}

#[test]
fn who_is_named_has_to_be_a_host_that_can_send() {
    for (inside, expected) in [
        (
            "[]",
            "5: service[0].inside = []: nobody may use the service; add the prefix of those who may, as \"2001:db8::/32\", or remove the key",
        ),
        (
            "\"2001:db8::/32\"",
            "5: service[0].inside = \"2001:db8::/32\": is of the type string; an array is expected, in brackets",
        ),
        ("[\"10.0.0.0/8\"]", "5: service[0].inside[0] = \"10.0.0.0/8\": \"10.0.0.0/8\" is not a prefix"),
        (
            "[\"2001:db8:64::1:0/112\"]",
            "5: service[0].inside[0] = \"2001:db8:64::1:0/112\": lies in the prefix of the service and would loop; name the hosts' own prefix",
        ),
    ] {
        let found = refused(&nat64("2001:db8:64::/96", &format!("inside = {inside}")));
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    }
    // The hosts of a network that the prefix is a part of.
    accepted(&nat64("2001:db8:64::/96", "inside = [\"2001:db8::/32\"]"));
}

#[test]
fn a_prefix_that_is_routed_on_the_internet_is_an_open_relay_unless_hosts_are_named() {
    let warnings = |prefix: &str, more: &str| -> Vec<String> {
        accepted(&nat64(prefix, more)).warnings.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        warnings("2a00:1450:64::/96", ""),
        [
            "gateway.toml:3: service[0].prefix = \"2a00:1450:64::/96\": is routed on the Internet, so that anybody may get here and use the pool (an open relay); name those who may: inside = [\"2001:db8::/32\"]"
        ]
    );
    assert_eq!(warnings("2a00:1450:64::/96", "inside = [\"2a00:1450::/32\"]"), [""; 0]);
    // Whoever wants an open relay says so.
    assert_eq!(warnings("2a00:1450:64::/96", "inside = [\"::/0\"]"), [""; 0]);
    for prefix in ["64:ff9b::/96", "64:ff9b:1::/96", "fd00:64::/96", "2001:db8:64::/96", "3fff:64::/96"] {
        assert_eq!(warnings(prefix, ""), [""; 0], "{prefix}");
    }
}

#[test]
fn a_server_and_a_share_are_for_who_is_inside() {
    let inside = "inside = [\"2001:db8:1::/48\"]\n";
    let server = "static = [{ inside = \"[2001:db8:2::2]:80\", outside = \"192.0.2.1:80\", protocol = \"tcp\" }]";
    assert_eq!(
        refused(&nat64("64:ff9b::/96", &format!("{inside}{server}"))),
        [
            "6: service[0].static[0].inside = \"[2001:db8:2::2]:80\": 2001:db8:2::2 is not inside; add it to the key \"inside\", or use a host there"
        ]
    );
    let shares = |prefix: &str| {
        let more =
            format!("subscriber_prefix = 56\nallocation = {{ mode = \"deterministic\", inside = \"{prefix}\" }}");
        nat64("64:ff9b::/96", &format!("{inside}{more}"))
    };
    accepted(&shares("2001:db8:1::/48"));
    assert_eq!(
        refused(&shares("2001:db8:2::/48")),
        [
            "7: service[0].allocation.inside = \"2001:db8:2::/48\": lies in no prefix of the service's \"inside\", whose hosts alone may use it; give both the same"
        ]
    );
}

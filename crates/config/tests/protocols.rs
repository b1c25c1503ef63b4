//! Which protocols a service translates besides TCP, UDP and ICMP.

#![allow(clippy::unwrap_used, reason = "a test may")]

use tombolo_config::Configuration;
use tombolo_engine::mapping::pool::PortSpace;

mod reading;

use reading::{accepted, refused};

fn nat44(more: &str) -> String {
    format!(
        "[[service]]\nkind = \"nat44\"\ninside = [\"10.0.0.0/24\"]\npool = [{{ addresses = \"192.0.2.0/24\", ports = \"2000-3000\" }}]\n{more}\n"
    )
}

fn further(configuration: &Configuration) -> Vec<&'static str> {
    let policy = &configuration.plan.services[0].kind.nat().unwrap().policy;
    policy.protocols.iter().skip(PortSpace::WITH_SLOTS.len()).map(PortSpace::name).collect()
}

#[test]
fn those_with_ports_are_translated_unless_the_file_says_otherwise() {
    assert_eq!(further(&accepted(&nat44(""))), ["sctp", "dccp", "udp-lite"]);
    assert_eq!(further(&accepted(&nat44("further_protocols = []"))), [""; 0]);
    let all = accepted(&nat44("further_protocols = [\"gre\", \"esp\", \"udp-lite\"]"));
    assert_eq!(further(&all), ["udp-lite", "esp", "gre"]);
    // Port 0 stands for the host that has the address.
    assert_eq!(all.plan.services[0].kind.pool().unwrap().ranges()[0].span, 0..=3000);
    assert_eq!(accepted(&nat44("")).plan.services[0].kind.pool().unwrap().ranges()[0].span, 2000..=3000);
}

/// RFC 5382 REQ-6.
#[test]
fn no_service_helps_unless_it_is_told_to() {
    let helpers = |more: &str| accepted(&nat44(more)).plan.services[0].kind.nat().unwrap().policy.helpers;
    assert_eq!(helpers("").names().count(), 0);
    assert_eq!(helpers("helpers = [\"ftp\"]").names().collect::<Vec<_>>(), ["ftp"]);
}

#[test]
fn an_address_of_the_host_is_shared_for_tcp_udp_and_icmp_alone() {
    let shared = |more: &str| {
        format!("[[service]]\nkind = \"nat44\"\ninside = [\"10.0.0.0/24\"]\nmasquerade = \"eth0\"\n{more}")
    };
    assert_eq!(further(&accepted(&shared(""))), [""; 0]);
    assert_eq!(further(&accepted(&nat44("masquerade = false"))), ["sctp", "dccp", "udp-lite"]);
    assert_eq!(
        refused(&shared("further_protocols = [\"sctp\"]")),
        [
            "5: service[0].further_protocols = [\"sctp\"]: an address of the host itself is shared for TCP, UDP and ICMP alone; use an address that is the gateway's"
        ]
    );
    let fixed = "static = [{ inside = \"10.0.0.2:80\", outside = \"eth0:80\", protocol = \"sctp\" }]";
    assert!(refused(&shared(fixed))[0].contains("is shared for TCP, UDP and ICMP alone"));
}

#[test]
fn mistakes_are_named_with_their_fix() {
    let fixed = |protocol: &str, inside: u16, outside: u16, rest: &str| {
        format!(
            "static = [{{ inside = \"10.0.0.2:{inside}\", outside = \"192.0.2.1:{outside}\", protocol = \"{protocol}\"{rest} }}]"
        )
    };
    for (more, expected) in [
        (
            "further_protocols = [\"tcp\"]",
            "service[0].further_protocols[0] = \"tcp\": is translated in any case; remove it",
        ),
        (
            "further_protocols = [\"ah\"]",
            "service[0].further_protocols[0] = \"ah\": unknown; use \"tcp\" or \"udp\" or \"icmp\" or \"sctp\" or \"dccp\" or \"udp-lite\" or \"esp\" or \"gre\"",
        ),
        (
            "further_protocols = [\"esp\"]\nallocation = { mode = \"blocks\" }",
            "service[0].further_protocols = [\"esp\"]: esp has no ports, so that blocks and shares of ports do not say who has sent it; remove it, or the allocation",
        ),
        (
            &fixed("esp", 0, 0, ""),
            "esp is not translated by this service; add it to further_protocols, or remove the binding",
        ),
        (&fixed("gre", 0, 47, ""), "gre has no ports; write port 0"),
        (&fixed("sctp", 0, 80, ""), "port 0 cannot be used"),
        (
            &format!("further_protocols = [\"gre\"]\n{}", fixed("gre", 0, 0, ", count = 2")),
            "count = 2: out of range; use 1",
        ),
    ] {
        let lines = refused(&nat44(more));
        assert!(lines.len() == 1 && lines[0].contains(expected), "{more}: {lines:#?}");
    }
    // Two protocols at one port, where they have it in common.
    let two = "static = [{ inside = \"10.0.0.2:80\", outside = \"192.0.2.1:80\", protocol = \"tcp\" },\n{ inside = \"10.0.0.2:80\", outside = \"192.0.2.1:80\", protocol = \"sctp\" }]";
    assert_eq!(
        refused(&nat44(two)),
        ["6: service[0].static[1]: has the same outside endpoint as static[0]; remove one of them"]
    );
    let _ = accepted(&nat44(&two.replace("sctp", "udp-lite")));
    let _ = accepted(&nat44(&format!("further_protocols = [\"esp\"]\n{}", fixed("esp", 0, 0, ""))));
}

//! What files with MAP become, and the exact words for each mistake.

use tombolo_engine::mechanism::napt::Filtering;
use tombolo_engine::mechanism::softwire::{DontFragment, Fragments};
use tombolo_engine::plan::ServiceKind;

mod reading;

use reading::{accepted, refused};

const RULE: &str = "ipv6 = \"2001:db8::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16";

fn br(rules: &str) -> String {
    format!("[[service]]\nkind = \"map-t\"\nrole = \"br\"\ndmr = \"2001:db8:ffff::/64\"\nrules = [\n{rules}\n]\n")
}

fn ce(more: &str) -> String {
    format!(
        "[[service]]\nkind = \"map-e\"\nrole = \"ce\"\nbr = \"2001:db8:ffff::1\"\nrules = [{{ {RULE} }}]\n\
         end_user_prefix = \"2001:db8:12:3400::/56\"\ninside = [\"10.0.0.0/24\"]\n{more}\n"
    )
}

#[test]
fn an_edge_gets_every_range_of_its_port_set() {
    let configuration = accepted(&ce(
        "ipv6_mtu = 1400\nhop_limit = 9\ntraffic_class = 0\ndont_fragment = \"override\"\nfragments = \"inner\"\nipv4_mtu = 1300",
    ));
    assert_eq!(configuration.warnings, []);
    let ServiceKind::MapECe(ce) = &configuration.plan.services[0].kind else { panic!("no edge") };
    assert_eq!(ce.edge.ce.address().to_string(), "2001:db8:12:3400:0:c000:212:34");
    let napt = ce.edge.napt.as_ref().unwrap();
    assert_eq!((napt.inside_mtu, napt.nat.policy.filtering), (1300, Filtering::AddressDependent.into()));
    let ports = &napt.nat.pool.ranges()[0].ports;
    assert!(ports.iter().all(|ports| ports.len() == 252 && ports.ranges().len() == 63));
    assert_eq!((ce.softwire.mtu(), ce.softwire.hop_limit), (1360, 9));
    assert_eq!((ce.softwire.dont_fragment, ce.softwire.fragments), (DontFragment::Override, Fragments::Inner));
    assert!(ce.edge.mesh.rules().is_empty(), "hub and spoke unless a rule says otherwise");
}

#[test]
fn the_rule_with_the_longest_prefix_is_the_edges_own() {
    let rules = format!(
        "{{ {RULE}, forwarding = true }}, {{ ipv6 = \"2001:db8:12::/48\", ipv4 = \"203.0.113.7\", ea_bits = 8, psid_offset = 4 }}"
    );
    let configuration = accepted(&ce("").replace(&format!("{{ {RULE} }}"), &rules));
    let ServiceKind::MapECe(ce) = &configuration.plan.services[0].kind else { panic!("no edge") };
    assert_eq!(ce.edge.ce.ipv4().to_string(), "203.0.113.7/32");
    assert_eq!(ce.edge.mesh.rules().len(), 1);
}

#[test]
fn a_relay_takes_given_psids_on_one_address() {
    let configuration = accepted(&br(
        "{ ipv6 = \"2001:db8:1::/56\", ipv4 = \"192.0.2.1\", ea_bits = 0, psid_length = 8, psid = 0x34 },\n\
         { ipv6 = \"2001:db8:2::/56\", ipv4 = \"192.0.2.1\", ea_bits = 0, psid_length = 8, psid = 0x35 }",
    ));
    let ServiceKind::MapTBr(br) = &configuration.plan.services[0].kind else { panic!("no relay") };
    assert_eq!(br.domain.rules().len(), 2);
    assert_eq!(configuration.plan.services[0].kind.routed().ipv4.len(), 1, "one address, one route");
}

#[test]
fn what_is_against_the_advice_of_the_rfcs_is_a_warning() {
    let warnings = |text: &str| -> Vec<String> {
        accepted(text).warnings.iter().map(|warning| warning.to_string().replace("gateway.toml:", "")).collect()
    };
    assert_eq!(
        warnings(&ce("").replace("12:3400::/56", "12:34a0::/60")),
        [
            "6: service[0].end_user_prefix = \"2001:db8:12:34a0::/60\": bits behind the EA bits are set, so that others cannot compute this edge's address and nothing reaches it (RFC 7597 section 5.3); take the first such prefix"
        ]
    );
    let low = ce("").replace("ea_bits = 16", "ea_bits = 16, psid_offset = 0").replace("12:3400", "12:0200");
    assert_eq!(
        warnings(&low),
        [
            "6: service[0].end_user_prefix = \"2001:db8:12:0200::/56\": its port set has well-known ports, which nobody should share (RFC 7597 section 5.1); use a psid_offset of 6"
        ]
    );
    assert_eq!(
        warnings(&br(&format!("{{ {RULE} }}")).replace("ffff::/64", "ffff::/96")),
        [
            "4: service[0].dmr = \"2001:db8:ffff::/96\": should have 64 bits (RFC 7599 section 5.1); other ends may know no other length"
        ]
    );
}

#[test]
fn a_mistake_in_a_rule_is_named_with_its_fix() {
    let cases = [
        (
            "{ ipv4 = \"192.0.2.0/24\", ea_bits = 16 }",
            "6: service[0].rules[0].ipv6: missing; add ipv6 = \"2001:db8::/40\"",
        ),
        (
            "{ ipv6 = \"2001:db8::1/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16 }",
            "6: service[0].rules[0].ipv6 = \"2001:db8::1/40\": 2001:db8::1/40 has host bits set; the prefix is 2001:db8::/40; write the prefix without host bits",
        ),
        (
            "{ ipv6 = \"2001:db8::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 49 }",
            "6: service[0].rules[0].ea_bits = 49: out of range; use 0 to 48",
        ),
        (
            "{ ipv6 = \"2001:db8::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 20 }",
            "6: service[0].rules[0]: 6 offset bits and 12 PSID bits do not fit the 16 bits of a port; use fewer of either",
        ),
        (
            "{ ipv6 = \"2001:db8::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 0, psid_length = 8, psid = 1 }",
            "6: service[0].rules[0]: a PSID can be given only to a rule of one whole IPv4 address (/32) without EA bits (RFC 7597 section 5.2)",
        ),
        (
            "{ ipv6 = \"2001:db8::/56\", ipv4 = \"192.0.2.1\", ea_bits = 0, psid_length = 4, psid = 16 }",
            "6: service[0].rules[0]: PSID 16 does not fit 4 bits; use at most 15",
        ),
        (
            "{ ipv6 = \"2001:db8::/56\", ipv4 = \"192.0.2.1\", ea_bits = 0, psid = 1 }",
            "6: service[0].rules[0]: psid and psid_length belong together; give both or neither",
        ),
        (
            "{ ipv6 = \"2001:db8::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16, forwarding = true }",
            "6: service[0].rules[0].forwarding = true: a border relay forwards by every rule; remove the key",
        ),
        (
            "{ ipv6 = \"2001:db8::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16 },\n{ ipv6 = \"2001:db8::/40\", ipv4 = \"192.0.3.0/24\", ea_bits = 16 }",
            "7: service[0].rules[1]: has the IPv6 prefix 2001:db8::/40 of service[0].rules[0]; remove one of them",
        ),
        (
            "{ ipv6 = \"2001:db8::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16 },\n{ ipv6 = \"2001:db9::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16 }",
            "7: service[0].rules[1]: has the IPv4 prefix 192.0.2.0/24 of service[0].rules[0], and ports of its own do not tell them apart; remove one of them, or give both PSIDs of the same length and offset (RFC 7597 section 5.1)",
        ),
    ];
    for (rules, expected) in cases {
        assert_eq!(refused(&br(rules)), [expected]);
    }
    assert_eq!(
        refused(&br("")),
        [
            "5: service[0].rules = [...: no rule; add { ipv6 = \"2001:db8::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16 }"
        ]
    );
}

#[test]
fn a_mistake_in_an_end_is_named_with_its_fix() {
    let relay = br(&format!("{{ {RULE} }}"));
    let cases = [
        (relay.replace("role = \"br\"\n", ""), "1: service[0].role: missing; add role = \"br\""),
        (relay.replace("\"br\"", "\"aftr\""), "3: service[0].role = \"aftr\": unknown; use \"br\" or \"ce\""),
        (
            format!("{relay}inside = [\"10.0.0.0/24\"]\n"),
            "8: service[0].inside = [\"10.0.0.0/24\"]: a border relay has no hosts inside; remove the key, or use role = \"ce\"",
        ),
        (
            relay.replace("ffff::/64", "ffff::/60"),
            "4: service[0].dmr = \"2001:db8:ffff::/60\": prefix length 60 is not 32, 40, 48, 56, 64 or 96 (RFC 6052 section 2.2); choose one of these lengths",
        ),
        (
            ce("").replace("12:3400::/56", "12::/48"),
            "6: service[0].end_user_prefix = \"2001:db8:12::/48\": the prefix has 48 bits; with the rule's EA bits it has 56 at least",
        ),
        (
            ce("").replace("db8:12:3400", "db9:12:3400"),
            "6: service[0].end_user_prefix = \"2001:db9:12:3400::/56\": lies in the IPv6 prefix of no rule; add its rule, or correct the prefix",
        ),
        (
            ce("").replace("\"2001:db8:ffff::1\"", "\"2001:db8:ffff::1/128\""),
            "4: service[0].br = \"2001:db8:ffff::1/128\": not an IPv6 address; write it without a prefix length, as \"2001:db8:ffff::1\"",
        ),
        (
            ce("").replace("\"2001:db8:ffff::1\"", "\"fe80::1\""),
            "4: service[0].br = \"fe80::1\": no relay can have this address; use a global or unique local one",
        ),
        (
            ce("napt = false"),
            "7: service[0].inside = [\"10.0.0.0/24\"]: there is no NAPT to use it; remove the key, or napt = false",
        ),
        (
            ce("").replace("ea_bits = 16", "ea_bits = 4").replace("12:3400::/56", "10::/44"),
            "6: service[0].end_user_prefix = \"2001:db8:10::/44\": gives a whole IPv4 prefix (192.0.2.16/28), which hosts can have without NAPT; set napt = false",
        ),
        (
            ce("static = [{ inside = \"10.0.0.2:80\", outside = \"192.0.2.18:80\", protocol = \"tcp\" }]"),
            "8: service[0].static = [{ inside = \"10.0.0.2:80\", outside = \"192.0.2.18:80\", protoc...: port 80 of 192.0.2.18 is another subscriber's; this edge has 1232-1235, 2256-2259, 3280-3283, ... (\"tombolo map calc\" lists all)",
        ),
        (
            format!("{relay}{}", relay.replace("2001:db8::/40", "2001:dba::/40")),
            "11: service[1].dmr = \"2001:db8:ffff::/64\": is the prefix of service[0] (2001:db8:ffff::/64); give each service a prefix of its own",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refused(&text), [expected], "{text}");
    }
}

#[test]
fn a_clat_may_leave_its_prefix_to_the_network_and_serve_its_own_host() {
    let clat = "[[service]]\nkind = \"clat\"\nprefix = \"auto\"\nhost = \"192.0.0.1\"\n\
                eam = [{ ipv4 = \"192.0.0.1\", ipv6 = \"2001:db8::464\" }]\n";
    let configuration = accepted(clat);
    let ServiceKind::Siit(siit) = &configuration.plan.services[0].kind else { panic!("no CLAT") };
    assert!(siit.awaits_prefix());
    assert_eq!(configuration.host.addresses, ["192.0.0.1".parse::<std::net::Ipv4Addr>().unwrap()]);
    let cases = [
        (
            clat.replace("\"clat\"", "\"siit\""),
            2,
            "3: service[0].prefix = \"auto\": not an IPv6 prefix; write it as \"64:ff9b::/96\"",
        ),
        (
            clat.replace("host = \"192.0.0.1\"", "host = \"192.0.0.2\""),
            1,
            "4: service[0].host = \"192.0.0.2\": no explicit mapping has this address; add one to eam",
        ),
        (
            clat.replace("host = \"192.0.0.1\"", "host = \"clat\""),
            1,
            "4: service[0].host = \"clat\": not an IPv4 address; write it as \"192.0.0.1\" (RFC 7335)",
        ),
    ];
    for (text, count, expected) in cases {
        let problems = refused(&text);
        assert!(problems.len() == count && problems.contains(&expected.to_owned()), "{problems:?}");
    }
}

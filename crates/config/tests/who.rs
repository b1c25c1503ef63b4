//! Who may use a service, and with what: `inside` of a NAT64, `for` of its pool, ports that are not translated, and
//! what contradicts them.

use std::net::Ipv6Addr;

use tombolo_config::{Configuration, InsideInterfaces};
use tombolo_engine::plan::ServiceKind;
use tombolo_engine::service::nat64::Nat64;
use tombolo_tables::subscriber::SubscriberKey;

mod reading;

use reading::{accepted, refused};

/// A NAT64 with this prefix, with `more` at the end of its service.
fn nat64(prefix: &str, more: &str) -> String {
    format!(
        "[[service]]\nkind = \"nat64\"\nprefix = \"{prefix}\"\npool = [{{ addresses = \"192.0.2.0/28\" }}]\n{more}\n"
    )
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
        ("[\"10.0.0.0/8\"]", "5: service[0].inside[0] = \"10.0.0.0/8\": \"10.0.0.0/8\" is not an address or a prefix"),
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
    // Of a stateless translator, where it lends addresses to whoever has none.
    let lending = |pool: &str| {
        let text = format!("[[service]]\nkind = \"siit\"\nprefix = \"2a00:1450:64::/96\"\n{pool}");
        accepted(&text).warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(lending("embedded_hosts = [\"192.0.2.0/24\"]"), [""; 0]);
    assert_eq!(
        lending("dynamic_pool = \"192.0.2.0/24\""),
        [
            "gateway.toml:4: service[0].dynamic_pool = \"192.0.2.0/24\": the prefix is routed on the Internet, so that anybody may get here and is lent an address; let a firewall pass those alone who may"
        ]
    );
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

/// A service whose pool has these items, with `more` at the end.
fn pooled(kind: &str, pool: &str, more: &str) -> String {
    let own = match kind {
        "nat64" => "prefix = \"64:ff9b::/96\"",
        "nat44" => "inside = [\"10.0.0.0/8\"]",
        _ => "address = \"2001:db8:ffff::1\"\nb4s = [\"2001:db8:1000::/36\"]",
    };
    format!("[[service]]\nkind = \"{kind}\"\n{own}\npool = [{pool}]\n{more}\n")
}

#[test]
fn addresses_are_for_those_whom_they_name() {
    let item = |last: u8, hosts: &str| format!("{{ addresses = \"192.0.2.{last}\"{hosts} }}, ");
    for (kind, hosts, host, stranger) in [
        ("nat64", "2001:db8:1::/48", "2001:db8:1::7", "2001:db8:2::7"),
        ("nat44", "10.1.0.0/16", "10.1.2.3", "10.2.2.3"),
        ("aftr", "2001:db8:1000::/48", "2001:db8:1000::b4", "2001:db8:1001::b4"),
    ] {
        let items = item(1, "") + &item(2, &format!(", for = [\"{hosts}\"]"));
        let configuration = accepted(&pooled(kind, &items, ""));
        let pool = configuration.plan.services[0].kind.pool().cloned().unwrap_or_default();
        let address_of = |host: &str| {
            let key = match host.parse() {
                Ok(std::net::IpAddr::V6(ipv6)) => SubscriberKey { ipv6: ipv6.octets(), ..SubscriberKey::default() },
                Ok(std::net::IpAddr::V4(ipv4)) => SubscriberKey { ipv4: ipv4.octets(), ..SubscriberKey::default() },
                Err(_) => SubscriberKey::default(),
            };
            (pool.addresses_for(&key), pool.address_for(&key, 0).map(|address| address.octets()[3]))
        };
        assert_eq!((address_of(host), address_of(stranger)), ((1, Some(2)), (1, Some(1))), "{kind}");
    }
}

#[test]
fn addresses_are_for_hosts_that_the_service_has() {
    let item = |hosts: &str| format!("{{ addresses = \"192.0.2.1\", for = {hosts} }}");
    for (kind, item, more, expected) in [
        (
            "nat64",
            item("[]"),
            "",
            "4: service[0].pool[0].for = []: names nobody, so that nobody gets these addresses; name hosts, or remove the key",
        ),
        (
            "nat64",
            item("[\"2001:db8:1:1::/64\"]"),
            "subscriber_prefix = 56",
            "4: service[0].pool[0].for[0] = \"2001:db8:1:1::/64\": is a part of a subscriber, whose prefix has 56 bits; write a shorter one, or raise \"subscriber_prefix\"",
        ),
        (
            "nat64",
            item("[\"2001:db8:2::/48\"]"),
            "inside = [\"2001:db8:1::/48\"]",
            "4: service[0].pool[0].for[0] = \"2001:db8:2::/48\": is not inside; add it to the key \"inside\", or name hosts there",
        ),
        (
            "aftr",
            item("[\"2001:db8:2000::/48\"]"),
            "",
            "5: service[0].pool[0].for[0] = \"2001:db8:2000::/48\": is not inside; add it to the key \"b4s\", or name hosts there",
        ),
        (
            "nat44",
            item("[\"172.16.0.0/12\"]"),
            "",
            "4: service[0].pool[0].for[0] = \"172.16.0.0/12\": is not inside; add it to the key \"inside\", or name hosts there",
        ),
        (
            "nat64",
            item("[\"2001:db8::/64\"]"),
            "allocation = { mode = \"deterministic\", inside = \"2001:db8::/120\" }",
            "4: service[0].pool[0].for = [\"2001:db8::/64\"]: shares are computed over all addresses of the pool; use a service of its own for these hosts, or \"blocks\"",
        ),
        (
            "nat64",
            "{ interface = \"eth0\", for = [\"2001:db8::/32\"] }".to_owned(),
            "",
            "4: service[0].pool[0].for = [\"2001:db8::/32\"]: the address of an interface is for all hosts; remove the key, or name addresses",
        ),
        (
            "nat64",
            "{ addresses = \"192.0.2.1\", protocols = [\"tcp\"], for = [\"2001:db8::/32\"] }, { addresses = \"192.0.2.1\", protocols = [\"udp\"] }".to_owned(),
            "",
            "4: service[0].pool[1].addresses = \"192.0.2.1\": its addresses are for other hosts in another item, and an address is for the same ones with every protocol; give both the same \"for\"",
        ),
    ] {
        assert_eq!(refused(&pooled(kind, &item, more)), [expected]);
    }
}

#[test]
fn ports_of_destinations_may_be_reached_as_they_are() {
    let untranslated = "untranslated = [\"198.51.100.0/24\", { addresses = \"203.0.113.7\", ports = \"53, 853\" }, { addresses = \"203.0.113.8-203.0.113.9\", ports = \"123\", protocols = [\"udp\"] }]";
    let configuration = accepted(&pooled("nat44", "{ addresses = \"192.0.2.1\" }", untranslated));
    let ServiceKind::Nat44(nat44) = &configuration.plan.services[0].kind else { panic!("no NAT44") };
    assert_eq!(nat44.untranslated.count(), 256);
    let [dns, time] = &nat44.exempt.0[..] else { panic!("{:?}", nat44.exempt) };
    assert_eq!(
        (dns.tcp.ranges(), dns.udp.ranges()),
        ([53..=53, 853..=853].as_slice(), [53..=53, 853..=853].as_slice())
    );
    assert_eq!((time.tcp.ranges(), time.udp.ranges()), ([].as_slice(), [123..=123].as_slice()));
    // Only whole destinations go past the gateway.
    assert_eq!(configuration.plan.services[0].kind.routed().exempt.len(), 1);
    for (item, expected) in [
        ("{ addresses = \"203.0.113.7\" }", "5: service[0].untranslated[0].ports: missing; add ports = \"53, 853\""),
        ("{ ports = \"53\" }", "5: service[0].untranslated[0].addresses: missing; add addresses = \"203.0.113.7\""),
        (
            "{ addresses = \"203.0.113.7\", ports = \"dns\" }",
            "5: service[0].untranslated[0].ports = \"dns\": \"dns\" is not a port; write numbers from 1 to 65535 as \"80, 1024-65535\"",
        ),
        (
            "{ addresses = \"203.0.113.7\", ports = \"53\", protocols = [\"icmp\"] }",
            "5: service[0].untranslated[0].protocols[0] = \"icmp\": unknown; use \"tcp\" or \"udp\"",
        ),
        (
            "{ addresses = \"203.0.113.7\", ports = \"53\", protocols = [] }",
            "5: service[0].untranslated[0].protocols = []: no protocol; name some, or leave the key out",
        ),
    ] {
        let text = pooled("nat44", "{ addresses = \"192.0.2.1\" }", &format!("untranslated = [{item}]"));
        assert_eq!(refused(&text), [expected]);
    }
}

#[test]
fn a_service_may_say_where_its_hosts_come_in() {
    let said = |interfaces: &str| {
        let configuration = accepted(&nat64("64:ff9b::/96", &format!("inside_interfaces = {interfaces}")));
        configuration.host.service_interfaces["nat64"].clone()
    };
    assert_eq!(said("[\"lan0\", \"lan1\"]"), InsideInterfaces::Listed(vec!["lan0".into(), "lan1".into()]));
    assert_eq!((said("\"any\""), said("\"by-route\"")), (InsideInterfaces::Any, InsideInterfaces::ByRoute));
    assert!(accepted(&nat64("64:ff9b::/96", "")).host.service_interfaces.is_empty());
    for (said, expected) in [
        ("[]", "5: service[0].inside_interfaces = []: names no interface"),
        ("\"lan0\"", "5: service[0].inside_interfaces = \"lan0\": \"lan0\" means nothing here"),
        ("[\"a/b\"]", "5: service[0].inside_interfaces[0] = \"a/b\": cannot be the name of a device"),
    ] {
        let found = refused(&nat64("64:ff9b::/96", &format!("inside_interfaces = {said}")));
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }
}

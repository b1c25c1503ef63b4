//! Times of UDP by port.

use tombolo_config::parse;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_tables::tick::{Tick, ticks};
use tombolo_wire::Port;

fn file(timeouts: &str) -> String {
    format!(
        "[timeouts]\n{timeouts}\n[[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\npool = [{{ addresses = \"192.0.2.1\" }}]\n"
    )
}

#[test]
fn ports_have_times_of_their_own() {
    let configuration = parse("gateway.toml", &file("udp = 200\nudp_ports = { 53 = 30, 123 = 60 }")).ok();
    let configuration = configuration.as_ref();
    assert_eq!(configuration.map(|found| found.warnings.len()), Some(0));
    let ports = configuration.map(|found| found.plan.times.short_ports).unwrap_or_default();
    for (port, seconds) in [(53, 30), (123, 60), (5353, 200)] {
        let counts_as = ports.counts_as(PortSpace::Udp, Port(port), Tick(1000));
        assert_eq!(counts_as, Tick(1000 - (ticks(200) - ticks(seconds))), "{port}");
    }
}

#[test]
fn what_is_no_port_or_no_shorter_time_is_refused() {
    for (timeouts, expected) in [
        ("udp_ports = 53", "2: timeouts.udp_ports = 53: is of the type integer; a table is expected, in braces"),
        ("udp_ports = { dns = 30 }", "2: timeouts.udp_ports.dns = 30: not a port; write it as { 53 = 30 }"),
        ("udp_ports = { 0 = 30 }", "2: timeouts.udp_ports.0 = 30: not a port; write it as { 53 = 30 }"),
        ("udp_ports = { 65536 = 30 }", "2: timeouts.udp_ports.65536 = 30: not a port; write it as { 53 = 30 }"),
        ("udp_ports = { 53 = 0 }", "2: timeouts.udp_ports.53 = 0: out of range; use 1 to 315360000"),
        (
            "udp_ports = { 53 = 301 }",
            "2: timeouts.udp_ports.53 = 301: longer than the 300 seconds that other ports have (\"udp\"), and no port may have more; raise that, or lower this",
        ),
        (
            "udp_ports = { 1 = 9, 2 = 9, 3 = 9, 4 = 9, 5 = 9, 6 = 9, 7 = 9, 8 = 9, 9 = 9 }",
            "2: timeouts.udp_ports: 9 ports are too many; use at most 8",
        ),
    ] {
        let error = parse("gateway.toml", &file(timeouts)).err().map(|error| error.to_string());
        assert_eq!(error, Some(format!("gateway.toml:{expected}")));
    }
}

#[test]
fn short_times_are_for_well_known_ports() {
    let warnings = |timeouts: &str| {
        let configuration = parse("gateway.toml", &file(timeouts)).ok();
        configuration.map(|found| found.warnings.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(warnings("udp_ports = { 1023 = 20, 5353 = 120 }"), Some(Vec::new()));
    assert_eq!(
        warnings("udp_ports = { 5353 = 20 }"),
        Some(vec![
            "gateway.toml:2: timeouts.udp_ports.5353 = 20: less than 120 seconds are for ports up to 1023 alone (RFC 4787 REQ-5 (a))".to_owned()
        ])
    );
}

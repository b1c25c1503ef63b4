//! The speeds. Rows named by a gateway and a quantity are those of `cargo bench -p tombolo-fastpath`,
//! which compares within rounds.

use std::ops::RangeInclusive;

use super::bar::{Bar, By};

const FASTPATH: &str = "make bench-fastpath";
const SESSIONS: &str = "make bench-sessions";
const MEMORY: &str = "make bench-memory";
const LOOKUP: &str = "tombolo bench route-lookup";
const PAIRS: &str = "tombolo bench tcp --gateways plain-pair,464xlat,ds-lite,lw4o6,map-e,map-t";
const ENGINE: &str = "tombolo bench tcp --settings 'gateway.fastpath = \"off\"'";
const PAIRS_ENGINE: &str =
    "tombolo bench tcp --gateways plain-pair,ds-lite,lw4o6,map-e --settings 'gateway.fastpath = \"off\"'";
const LOOKUP_4: &str = "route lookup, IPv4, 100000 routes";
const LOOKUP_6: &str = "route lookup, IPv6, 100000 routes";

/// All of them, in the order of the design.
pub(super) const BARS: &[Bar] = &[
    least(
        "NAT64, 20,000 homes, outwards: over plain forwarding",
        1.1,
        &[value("nat64", "homes nat64 over plain6"), over_plain("throughput", "nat64", 20_000..=u64::MAX, 0)],
        FASTPATH,
    ),
    least(
        "NAT64, 20,000 homes, inwards: over plain forwarding",
        1.1,
        &[value("nat64", "homes nat64 inward over plain4")],
        FASTPATH,
    ),
    least(
        "NAT44, 20,000 homes, outwards: over plain forwarding",
        1.1,
        &[value("nat44", "homes nat44 over plain4"), over_plain("throughput", "nat44", 20_000..=u64::MAX, 0)],
        FASTPATH,
    ),
    least(
        "NAT44, 20,000 homes, inwards: over plain forwarding",
        1.1,
        &[value("nat44", "homes nat44 inward over plain4")],
        FASTPATH,
    ),
    least(
        "NAT64, 20,000 homes, TCP, outwards: over plain forwarding",
        1.1,
        &[value("nat64", "homes tcp nat64 over plain6")],
        FASTPATH,
    ),
    least(
        "NAT64, 20,000 homes, TCP, inwards: over plain forwarding",
        1.1,
        &[value("nat64", "homes tcp nat64 inward over plain4")],
        FASTPATH,
    ),
    least(
        "NAT44, 20,000 homes, TCP, outwards: over plain forwarding",
        1.1,
        &[value("nat44", "homes tcp nat44 over plain4")],
        FASTPATH,
    ),
    least(
        "NAT44, 20,000 homes, TCP, inwards: over plain forwarding",
        1.1,
        &[value("nat44", "homes tcp nat44 inward over plain4")],
        FASTPATH,
    ),
    least(
        "NAT64, every packet a new binding, homes: over plain forwarding",
        0.65,
        &[value("nat64", "homes new bindings over plain6")],
        FASTPATH,
    ),
    least(
        "NAT44, every packet a new binding, homes: over plain forwarding",
        0.65,
        &[value("nat44", "homes new bindings over plain4")],
        FASTPATH,
    ),
    least(
        "NAT64, every packet a new binding, homes with blocks of ports: over port by port",
        0.9,
        &[value("nat64-blocks", "homes new bindings in blocks over nat64")],
        FASTPATH,
    ),
    least(
        "NAT44, every packet a new binding, homes with blocks of ports: over port by port",
        0.9,
        &[value("nat44-blocks", "homes new bindings in blocks over nat44")],
        FASTPATH,
    ),
    least(
        "NAT64, 1 M UDP sessions of one subscriber: over plain forwarding",
        1.4,
        &[value("nat64", "nat64 over plain6"), over_plain("throughput", "nat64", 1..=1, 1_000_000)],
        FASTPATH,
    ),
    least(
        "NAT64, 1 M UDP sessions of one subscriber: over iptables",
        6.0,
        &[value("nat64", "nat64 over iptables")],
        FASTPATH,
    ),
    least(
        "NAT44, 1 M UDP sessions of one subscriber: over plain forwarding",
        1.4,
        &[value("nat44", "nat44 over plain4"), over_plain("throughput", "nat44", 1..=1, 1_000_000)],
        FASTPATH,
    ),
    least(
        "NAT44, 1 M UDP sessions of one subscriber: over iptables",
        6.0,
        &[value("nat44", "nat44 over iptables")],
        FASTPATH,
    ),
    least("NAT64, 100 M UDP sessions over 1 M", 0.95, &[value("nat64", "100 M sessions over 1 M")], SESSIONS),
    least("NAT44, 100 M UDP sessions over 1 M", 0.95, &[value("nat44", "100 M sessions over 1 M")], SESSIONS),
    least(
        "NAT64, every packet a new session: over plain forwarding",
        1.3,
        &[value("nat64", "new sessions over plain6"), over_plain("connection-rate", "nat64", 1..=1, 0)],
        FASTPATH,
    ),
    least(
        "NAT44, every packet a new session: over plain forwarding",
        1.3,
        &[value("nat44", "new sessions over plain4"), over_plain("connection-rate", "nat44", 1..=1, 0)],
        FASTPATH,
    ),
    least(
        "SIIT, outwards: over plain forwarding",
        1.6,
        &[value("siit", "siit over plain6"), over_plain("throughput", "siit", 0..=u64::MAX, 0)],
        FASTPATH,
    ),
    least("SIIT, outwards: over the ceiling, bare redirect", 0.8, &[value("siit", "siit over redirect6")], FASTPATH),
    least(
        "Lightweight 4over6, relay, outwards: over plain forwarding",
        1.6,
        &[value("lwaftr", "lwaftr over plain6"), over_plain("throughput", "lwaftr", 0..=u64::MAX, 0)],
        FASTPATH,
    ),
    least(
        "Lightweight 4over6, relay, outwards: over the ceiling, bare redirect",
        0.8,
        &[value("lwaftr", "lwaftr over redirect6")],
        FASTPATH,
    ),
    least(
        "MAP-E, relay, outwards: over plain forwarding",
        1.6,
        &[value("map-e br", "map-e over plain6"), over_plain("throughput", "map-e-br", 0..=u64::MAX, 0)],
        FASTPATH,
    ),
    least(
        "MAP-E, relay, outwards: over the ceiling, bare redirect",
        0.8,
        &[value("map-e br", "map-e over redirect6")],
        FASTPATH,
    ),
    least(
        "MAP-T, relay, outwards: over plain forwarding",
        1.6,
        &[value("map-t br", "map-t over plain6"), over_plain("throughput", "map-t-br", 0..=u64::MAX, 0)],
        FASTPATH,
    ),
    least(
        "MAP-T, relay, outwards: over the ceiling, bare redirect",
        0.8,
        &[value("map-t br", "map-t over redirect6")],
        FASTPATH,
    ),
    least(
        "TCP through NAT64 in TC: over plain forwarding",
        0.95,
        &[streams("tombolo", false)],
        "tombolo bench tcp --flows 1,10",
    ),
    least("TCP, both ends of 464xlat: over plain forwarding", 0.8, &[streams("464xlat", false)], PAIRS),
    least("TCP, both ends of ds-lite: over plain forwarding", 0.8, &[streams("ds-lite", false)], PAIRS),
    least("TCP, both ends of lw4o6: over plain forwarding", 0.8, &[streams("lw4o6", false)], PAIRS),
    least("TCP, both ends of map-e: over plain forwarding", 0.8, &[streams("map-e", false)], PAIRS),
    least("TCP, both ends of map-t: over plain forwarding", 0.8, &[streams("map-t", false)], PAIRS),
    least("TCP through NAT64, engine alone: over plain forwarding", 0.5, &[streams("tombolo", true)], ENGINE),
    least(
        "TCP, both ends of ds-lite, engine alone: over plain forwarding",
        0.3,
        &[streams("ds-lite", true)],
        PAIRS_ENGINE,
    ),
    least("TCP, both ends of lw4o6, engine alone: over plain forwarding", 0.3, &[streams("lw4o6", true)], PAIRS_ENGINE),
    least("TCP, both ends of map-e, engine alone: over plain forwarding", 0.3, &[streams("map-e", true)], PAIRS_ENGINE),
    least(
        "NAT64, two cores over one",
        1.9,
        &[
            value("nat64", "two cores over one"),
            quotient(("throughput, 2 cores", "tombolo"), ("throughput, 1 core", "tombolo")),
        ],
        FASTPATH,
    ),
    least("NAT44, two cores over one", 1.9, &[value("nat44", "two cores over one")], FASTPATH),
    least("SIIT, two cores over one", 1.9, &[value("siit", "two cores over one")], FASTPATH),
    most(
        "bytes of a binding with its first TCP session",
        96.0,
        &[each("tables", "bytes of a binding with its first TCP session")],
        MEMORY,
    ),
    most("bytes of a session in the table", 24.0, &[each("tables", "bytes of a session in the table")], MEMORY),
    least(
        "tear-down of the whole table, connections/s",
        50e6,
        &[value("tombolo", "connection tear-down rate")],
        "tombolo bench teardown --dut tombolo",
    ),
    most(
        "longest-prefix match, 100,000 routes: IPv6 over IPv4",
        1.2,
        &[quotient((LOOKUP_6, "tombolo"), (LOOKUP_4, "tombolo"))],
        LOOKUP,
    ),
    most(
        "longest-prefix match, 100,000 routes: IPv4 over the kernel's",
        0.1,
        &[quotient((LOOKUP_4, "tombolo"), (LOOKUP_4, "kernel"))],
        LOOKUP,
    ),
    most(
        "longest-prefix match, 100,000 routes: IPv6 over the kernel's",
        0.1,
        &[quotient((LOOKUP_6, "tombolo"), (LOOKUP_6, "kernel"))],
        LOOKUP,
    ),
    least(
        "engine in memory, stateless translation, packets/s",
        10e6,
        &[each("engine", "stateless translation")],
        MEMORY,
    ),
    least(
        "engine in memory, with 100,000 mappings, packets/s",
        10e6,
        &[each("engine", "with 100,000 mappings")],
        MEMORY,
    ),
];

const fn least(what: &'static str, asked: f64, by: &'static [By], command: &'static str) -> Bar {
    Bar { what, asked, is_most: false, by, command }
}

const fn most(what: &'static str, asked: f64, by: &'static [By], command: &'static str) -> Bar {
    Bar { what, asked, is_most: true, by, command }
}

const fn over_plain(
    procedure: &'static str,
    technology: &'static str,
    hosts: RangeInclusive<u64>,
    least_tuples: u64,
) -> By {
    By::OverPlain { procedure, technology, hosts, least_tuples }
}

const fn value(gateway: &'static str, quantity: &'static str) -> By {
    By::Value { gateway, quantity }
}

const fn each(gateway: &'static str, quantity: &'static str) -> By {
    By::Each { gateway, quantity }
}

const fn quotient(over: (&'static str, &'static str), under: (&'static str, &'static str)) -> By {
    By::Quotient { over, under }
}

const fn streams(gateway: &'static str, is_engine_alone: bool) -> By {
    By::Streams { gateway, is_engine_alone }
}

//! The mirror of routes and neighbours against the kernel, in a lab of its own.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::net::IpAddr;
use std::time::Duration;

use tombolo_io::netlink::{BY_GATEWAY, Hop, Mirror, MirrorError, MirroredRoute, ON_LINK, RouteKind};
use tombolo_lab::{Lab, Namespace, Topology, wait_until};
use tombolo_tables::memory::Heap;

/// A lab's router, in whose namespace the mirror and the commands run.
struct Router {
    namespace: Namespace,
    _lab: Lab,
}

impl Router {
    fn new() -> Self {
        let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
        Self { namespace: lab.node("gateway").unwrap().clone(), _lab: lab }
    }

    fn ip(&self, arguments: &str) {
        self.namespace.command("ip").args(arguments.split(' ')).run().unwrap().success().unwrap();
    }

    fn batch(&self, lines: String) {
        self.namespace.command("ip").args(["-batch", "-"]).stdin(lines).run().unwrap().success().unwrap();
    }

    fn mirror(&self, routes: usize, buffer: u32) -> Mirror {
        self.namespace.run(|| Mirror::open_with_buffer(&mut Heap, routes, buffer)).unwrap().unwrap()
    }

    fn index(&self, interface: &str) -> u32 {
        self.namespace.index_of(interface).unwrap()
    }

    /// The mirror follows what was done so far and then has what a new mirror has. Neighbours come
    /// by themselves, when hosts of the lab look for each other.
    fn agrees(&self, mirror: &mut Mirror) {
        let fresh = wait_until("both have the same neighbours", Duration::from_secs(5), || {
            mirror.follow(Duration::from_millis(100)).unwrap();
            let fresh = self.mirror(10_000, 1 << 20);
            (mirror.neighbour_count() == fresh.neighbour_count()).then_some(fresh)
        });
        let fresh = fresh.unwrap();
        let all = |mirror: &Mirror| mirror.routes().collect::<Vec<MirroredRoute>>();
        assert_eq!(all(mirror), all(&fresh));
        assert_eq!(mirror.target_count(), fresh.target_count());
        for route in fresh.routes() {
            assert_eq!(mirror.lookup(route.prefix.addr()), fresh.lookup(route.prefix.addr()));
        }
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn skipped(test: &str) -> bool {
    tombolo_lab::skip_without(test, &["ip"])
}

#[test]
fn neighbours_that_come_and_go_leave_next_hops_as_they_are() {
    if skipped("neighbours that come and go") {
        return;
    }
    let router = Router::new();
    let mut mirror = router.mirror(10_000, 1 << 20);
    let mut changes = |command: &str| {
        router.ip(command);
        let mut changed = false;
        for _ in 0..5 {
            changed |= mirror.follow(Duration::from_millis(50)).unwrap();
        }
        changed
    };
    // What the lab's hosts do at its beginning; duplicate address detection takes them up to two
    // seconds in which nothing is heard.
    let mut quiet = 0;
    while quiet < 10 {
        quiet = if changes("link show") { 0 } else { quiet + 1 };
    }
    assert!(!changes("neigh add 198.51.100.77 lladdr 02:00:00:00:00:77 dev outside0"), "a new one");
    assert!(!changes("neigh change 198.51.100.77 nud stale dev outside0"), "another state");
    assert!(changes("neigh change 198.51.100.77 lladdr 02:00:00:00:00:78 dev outside0"), "another address");
    assert!(!changes("neigh del 198.51.100.77 dev outside0"), "a dead one");
    assert!(changes("route add 203.0.113.0/24 via 198.51.100.2"), "a route");
}

#[test]
fn routes_and_neighbours_come_change_and_go() {
    if skipped("the mirror of routes") {
        return;
    }
    let router = Router::new();
    let mut mirror = router.mirror(10_000, 1 << 20);
    let outside = router.index("outside0");
    assert_eq!(mirror.interface_name(outside), Some("outside0"));
    assert_eq!(mirror.lookup(ip("203.0.113.9")), None);
    assert_eq!(mirror.lookup(ip("10.0.0.1")).unwrap().target.kind, RouteKind::Local);

    router.ip("route add 203.0.113.0/24 via 198.51.100.2");
    router.ip("-6 route add 2001:db8:99::/48 via 2001:db8:2::2 metric 7");
    router.ip("route add blackhole 203.0.113.128/25");
    router.agrees(&mut mirror);
    let found = mirror.lookup(ip("203.0.113.9")).unwrap();
    let hop = Hop { interface: outside, gateway: Some(ip("198.51.100.2")), weight: 1 };
    assert_eq!((found.prefix.to_string().as_str(), found.target.hops.as_slice()), ("203.0.113.0/24", &[hop][..]));
    assert_eq!(mirror.lookup(ip("203.0.113.200")).unwrap().target.kind, RouteKind::Blackhole);
    assert_eq!(mirror.lookup(ip("2001:db8:99::1")).unwrap().metric, 7);

    router.ip("route replace 203.0.113.0/24 via 10.0.0.2");
    router.ip("route add 203.0.113.0/24 via 198.51.100.2 metric 50");
    router.ip("-6 route append 2001:db8:99::/48 via 2001:db8:1::2 metric 7");
    router.agrees(&mut mirror);
    assert_eq!(mirror.lookup(ip("203.0.113.9")).unwrap().target.hops[0].gateway, Some(ip("10.0.0.2")));
    assert_eq!(mirror.lookup(ip("2001:db8:99::1")).unwrap().target.hops.len(), 2);

    // The better route goes: the other one to the same prefix takes over.
    router.ip("route del 203.0.113.0/24 via 10.0.0.2");
    router.ip("-6 route del 2001:db8:99::/48 via 2001:db8:1::2 metric 7");
    router.agrees(&mut mirror);
    assert_eq!(mirror.lookup(ip("203.0.113.9")).unwrap().metric, 50);
    assert_eq!(mirror.lookup(ip("2001:db8:99::1")).unwrap().target.hops.len(), 1);

    router.ip("neigh add 198.51.100.77 lladdr 02:00:00:00:00:77 dev outside0");
    router.agrees(&mut mirror);
    assert_eq!(mirror.neighbour(outside, ip("198.51.100.77")).unwrap().link_address, [2, 0, 0, 0, 0, 0x77]);
    router.ip("neigh del 198.51.100.77 dev outside0");
    router.ip("route del 203.0.113.0/24 metric 50");
    router.ip("route del blackhole 203.0.113.128/25");
    router.agrees(&mut mirror);
    assert_eq!(mirror.lookup(ip("203.0.113.200")), None);
    assert_eq!(mirror.statistics().overruns, 0);
}

#[test]
fn routes_of_an_interface_that_vanishes_go_with_it() {
    if skipped("the mirror and a vanishing interface") {
        return;
    }
    let router = Router::new();
    let mut mirror = router.mirror(10_000, 1 << 20);
    router.ip("route add 203.0.113.0/24 via 198.51.100.2");
    router.ip("route add 192.0.2.0/24 via 10.0.0.2");
    router.agrees(&mut mirror);
    // The kernel tells of no IPv4 route that it drops here.
    router.ip("link set outside0 down");
    router.agrees(&mut mirror);
    assert_eq!(mirror.lookup(ip("203.0.113.9")), None);
    router.ip("link del outside0");
    router.agrees(&mut mirror);
    assert!(mirror.lookup(ip("192.0.2.9")).is_some(), "another interface's routes stay");
}

fn many(action: &str, count: u32) -> String {
    let line = |index: u32| format!("route {action} 203.{}.{}.0/24 via 198.51.100.2\n", index >> 8, index & 255);
    (0..count).map(line).collect()
}

#[test]
fn what_an_overrun_lost_is_read_again() {
    if skipped("the mirror after an overrun") {
        return;
    }
    let router = Router::new();
    // Room for a few events only.
    let mut mirror = router.mirror(10_000, 4096);
    router.batch(many("add", 3000));
    router.agrees(&mut mirror);
    assert!(mirror.statistics().overruns > 0, "the socket held 3000 events");
    assert!(mirror.lookup(ip("203.11.100.1")).is_some());
    router.batch(many("del", 3000));
    router.agrees(&mut mirror);
    assert_eq!(mirror.lookup(ip("203.11.100.1")), None);
}

#[test]
fn a_table_that_is_too_small_says_so_keeps_what_fits_and_fills_up_later() {
    if skipped("the mirror with a small table") {
        return;
    }
    let router = Router::new();
    let mut mirror = router.mirror(1, 1 << 20);
    let lines = |action: &str| -> String {
        // Far apart: a node for each.
        (1..4000u32)
            .map(|index| format!("route {action} {}.{}.7.1/32 via 198.51.100.2\n", 1 + index % 9, index % 251))
            .collect()
    };
    router.batch(lines("replace"));
    match mirror.follow(Duration::from_millis(100)) {
        Err(MirrorError::Full { missing, .. }) => assert!(missing > 0),
        other => panic!("{other:?}"),
    }
    assert!(mirror.lookup(ip("10.0.0.2")).is_some(), "what fits is there");
    router.batch(lines("del").lines().take(2000).fold(String::new(), |all, line| all + line + "\n"));
    // Removing makes room; a change of a link makes the mirror read everything again.
    let _ = mirror.follow(Duration::from_millis(100));
    router.ip("link set inside0 down");
    router.agrees(&mut mirror);
}

#[test]
fn a_next_hop_tells_what_the_destination_alone_decides() {
    if skipped("certain routes") {
        return;
    }
    let router = Router::new();
    let mut mirror = router.mirror(10_000, 1 << 20);
    let mut certain = |changes: &str, address: [u8; 4]| {
        router.batch(changes.replace("; ", "\n") + "\n");
        mirror.follow(Duration::from_millis(100)).unwrap();
        let mut reader = mirror.ipv4_reader();
        reader.pin().lookup(u32::from_be_bytes(address)).unwrap().next_hop().number() & (BY_GATEWAY | ON_LINK)
    };
    let inside = [203, 0, 113, 9];
    assert_eq!(certain("route add 203.0.113.0/24 via 198.51.100.2", inside), BY_GATEWAY);
    assert_eq!(certain("route add 203.0.113.0/24 via 10.0.0.2 metric 5", inside), 0, "two routes");
    assert_eq!(certain("route del 203.0.113.0/24 via 10.0.0.2 metric 5", inside), BY_GATEWAY);
    assert_eq!(certain("route add 203.0.113.0/24 tos 8 via 10.0.0.2", inside), 0, "by type of service");
    assert_eq!(certain("route del 203.0.113.0/24 tos 8 via 10.0.0.2", inside), BY_GATEWAY);
    for (what, change, expected) in [
        ("path MTU", "via 198.51.100.2 mtu 1400", 0),
        ("two gateways", "nexthop via 198.51.100.2 nexthop via 10.0.0.2", 0),
        ("no gateway", "dev outside0", ON_LINK),
    ] {
        let (there, back) =
            (format!("route replace 203.0.113.0/24 {change}"), "route replace 203.0.113.0/24 via 10.0.0.2");
        assert_eq!(certain(&there, inside), expected, "{what}");
        assert_eq!(certain(back, inside), BY_GATEWAY, "after {what}");
    }
    assert_eq!(certain("route add blackhole 203.0.113.9", inside), 0);
    assert_eq!(certain("route add 0.0.0.0/0 via 198.51.100.2", [8, 8, 8, 8]), BY_GATEWAY);
    assert_eq!(certain("nexthop add id 7 via 198.51.100.2 dev outside0; route add 8.8.0.0/16 nhid 7", [8, 8, 8, 8]), 0);
    assert_eq!(certain("route add 192.0.2.0/24 via 10.0.0.2", [10, 0, 0, 1]), 0, "the router's own");
    assert_eq!(certain("route add 192.0.2.128/25 via 10.0.0.2", [10, 0, 0, 7]), ON_LINK, "a neighbour's");
}

#[test]
fn the_mirror_says_when_destinations_alone_do_not_decide() {
    if skipped("what the mirror does not tell") {
        return;
    }
    let router = Router::new();
    let mut mirror = router.mirror(10_000, 1 << 20);
    let mut short = |change: &str| {
        router.ip(change);
        mirror.follow(Duration::from_millis(100)).unwrap();
        mirror.falls_short().is_some()
    };
    assert!(!short("route add 203.0.113.0/24 via 198.51.100.2"));
    assert!(!short("rule add from 10.0.0.0/8 table 84 protocol 84"), "the gateway's own");
    for (there, back) in [
        ("rule add from 10.0.0.0/8 table 100", "rule del from 10.0.0.0/8 table 100"),
        ("-6 rule add fwmark 1 table 100", "-6 rule del fwmark 1 table 100"),
        ("rule add pref 10 table main", "rule del pref 10 table main"),
        ("route add local 192.0.2.0/24 dev lo", "route del local 192.0.2.0/24 dev lo"),
        ("-6 route add local 2001:db8:77::/64 dev lo", "-6 route del local 2001:db8:77::/64 dev lo"),
    ] {
        assert!(short(there), "{there}");
        assert!(!short(back), "{back}");
    }
}

//! The programs on interfaces, between real hosts: no engine runs, so what arrives came through
//! them.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tombolo_engine::Plan;
use tombolo_engine::mapping::networks::Networks;
use tombolo_engine::mapping::pool::{Owner, Pool, PoolRange, PortRanges};
use tombolo_engine::mechanism::TranslateSettings;
use tombolo_engine::mechanism::napt::{Nat, Policy, Times};
use tombolo_engine::plan::{OwnAddresses, Service, ServiceKind};
use tombolo_engine::service::nat64::Nat64;
use tombolo_fastpath::{Attached, FastPath, Mode, PinnedMemory, Routes, Settings, TcKind};
use tombolo_io::netfilter::{Entrance, Entrances};
use tombolo_lab::{Lab, Peer, Topology};
use tombolo_tables::hash::HashKey;
use tombolo_tables::subscriber::{Subscriber, SubscriberKey};
use tombolo_tables::tables::Capacity;
use tombolo_tables::tick::Tick;
use tombolo_tables::{Tables, audit};
use tombolo_wire::Prefix64;

const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SERVER: &str = "64:ff9b::198.51.100.2";

struct Bed {
    tables: Tables,
    memory: PinnedMemory,
    plan: Plan,
    directory: PathBuf,
    lab: Lab,
}

impl Bed {
    /// Three hosts, tables and one subscriber that was admitted; `None` (said loudly) without root.
    fn new() -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIPPED: network namespaces need root");
            return None;
        }
        let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
        let directory = PathBuf::from(format!("/sys/fs/bpf/{}", lab.id()));
        let mut memory = PinnedMemory::open(&directory, "lab").unwrap();
        let plan = plan();
        let tables = Tables::new(&mut memory, plan.capacity, HashKey::new([1, 2, 3, 4])).unwrap();
        let key = SubscriberKey {
            ipv6: [0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
            ..SubscriberKey::default()
        };
        let subscriber = Subscriber { key, outside_ipv4: POOL.octets() };
        tables.admit(&subscriber, Tick(1)).unwrap();
        Some(Self { tables, memory, plan, directory, lab })
    }

    fn fast_path(&self, mode: Mode) -> (FastPath, Attached) {
        let mut fast_path = FastPath::load(&self.memory, &self.tables, &self.plan, settings()).unwrap();
        let gateway = self.lab.node("gateway").unwrap();
        let attached = gateway
            .run(|| {
                fast_path.attach("inside0", mode).unwrap();
                fast_path.attach("outside0", mode).unwrap()
            })
            .unwrap();
        (fast_path, attached)
    }

    fn pings(&self) -> bool {
        self.pings_to(SERVER)
    }

    fn pings_to(&self, address: &str) -> bool {
        self.ping(&["-c", "3", address]).is_some()
    }

    /// What ping printed, if it was answered.
    fn ping(&self, arguments: &[&str]) -> Option<String> {
        let client = self.lab.node("client").unwrap();
        let output =
            client.command("ping").args(["-n", "-i", "0.1", "-W", "1"]).args(arguments.to_vec()).run().unwrap();
        output.status.success().then_some(output.stdout)
    }

    fn ip(&self, node: &str, arguments: &str) {
        self.lab.node(node).unwrap().command("ip").args(arguments.split(' ')).run().unwrap().success().unwrap();
    }

    /// A veth takes redirected frames only while its peer polls, which receive offload makes it do.
    fn take_redirected(&self) {
        for (node, interface) in [("client", "inside0"), ("server", "outside0")] {
            self.lab.node(node).unwrap().set_offload(interface, tombolo_lab::Offload::Gro, true).unwrap();
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = PinnedMemory::remove(&self.directory);
    }
}

fn plan() -> Plan {
    let ports = PortRanges::new([1024..=65535]);
    let range = PoolRange {
        first: POOL,
        last: POOL,
        ports: [ports.clone(), ports.clone(), ports],
        span: 1024..=65535,
        first_slot: 0,
        owner: Owner::Gateway,
    };
    let kind = ServiceKind::Nat64(Nat64 {
        prefix: Prefix64::WELL_KNOWN,
        inside: Networks::default(),
        well_known_prefix_strict: false,
        nat: Nat { pool: Pool::new(vec![range]), policy: Policy::default(), static_bindings: Vec::new() },
        translate: TranslateSettings::default(),
    });
    let mut plan = Plan {
        services: vec![Service::new(0, "lab", kind)],
        retired: Vec::new(),
        cluster: None,
        rows: tombolo_engine::row::Rows::default(),
        times: Times::default(),
        capacity: Capacity { subscribers: 10, bindings: 1000, sessions: 1000, outside_slots: 0, leases: 0 },
        pcp: Default::default(),
        own: OwnAddresses::default(),
    };
    plan.capacity.outside_slots = plan.outside_slots().unwrap();
    plan
}

/// Packets passed on for that reason.
fn passed(fast_path: &FastPath, reason: &str) -> u64 {
    let counters = fast_path.counters().unwrap();
    counters.passed().find(|(miss, _)| miss.name() == reason).map_or(0, |(_, count)| count)
}

/// Meanwhile the routes are confirmed: on a slow machine pings outlast a confirmation.
fn while_followed<T>(routes: &mut Routes, what: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                routes.follow(Duration::from_millis(50)).unwrap();
            }
        });
        let result = what();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Its version's first two numbers.
fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// As the daemon has them by default.
fn settings() -> Settings {
    Settings { entrances: Entrances { others: Some(Entrance::ByRoute), ..Entrances::default() }, ..Settings::default() }
}

#[test]
fn pings_and_tcp_cross_through_tc_and_every_binding_is_in_the_tables() {
    let Some(bed) = Bed::new() else { return };
    let (mut fast_path, attached) = bed.fast_path(Mode::Tc);
    assert!(!attached.xdp && attached.tc.is_some(), "{attached:?}");
    assert!(bed.pings(), "{:?}", fast_path.counters());
    let server = bed.lab.node("server").unwrap();
    let address: SocketAddr = "198.51.100.2:8080".parse().unwrap();
    let body = vec![b'x'; 3_000_000];
    let _peer = Peer::http(server, address, body).unwrap();
    let client = bed.lab.node("client").unwrap();
    let url = format!("http://[{SERVER}]:8080/");
    let got = client
        .command("curl")
        .args(["-s", "-m", "5", "-o", "/dev/null", "-w", "%{size_download}", &url])
        .run()
        .unwrap();
    assert_eq!(got.stdout.trim(), "3000000", "{:?}", fast_path.counters());
    let counters = fast_path.counters().unwrap();
    assert!(counters.forwarded().packets.iter().all(|&packets| packets > 5), "{counters:?}");
    let bindings = bed.tables.bindings.iter().map(|id| bed.tables.bindings.read(id).unwrap().0);
    let made: Vec<_> = bindings.map(|binding| (binding.inside.protocol, binding.outside_ipv4)).collect();
    assert!(made.contains(&(1, POOL.octets())) && made.contains(&(6, POOL.octets())), "{made:?}");
    assert_eq!(made.len() as u64, counters.bindings_made);
    assert_eq!(audit::check(&bed.tables), Vec::<String>::new());
    bed.lab
        .node("gateway")
        .unwrap()
        .run(|| {
            fast_path.detach("inside0").unwrap();
            fast_path.detach("outside0").unwrap();
        })
        .unwrap();
    assert!(!bed.pings(), "nothing forwards any more");
}

#[test]
fn what_is_attached_outlives_its_process_and_is_replaced_by_the_next() {
    let Some(bed) = Bed::new() else { return };
    let (fast_path, attached) = bed.fast_path(Mode::Tc);
    assert!(bed.pings());
    drop(fast_path);
    assert!(bed.pings(), "known sessions are forwarded without the process");
    let (fast_path, _) = bed.fast_path(Mode::Tc);
    assert!(bed.pings());
    let counters = fast_path.counters().unwrap();
    assert_eq!(counters.bindings_made, 3, "one identifier each: {counters:?}");
    assert!(counters.forwarded().packets[0] >= 9, "counted on: {counters:?}");
    assert_eq!(attached.tc, Some(if kernel() >= (6, 6) { TcKind::Link } else { TcKind::Filter }), "{:?}", kernel());
}

#[test]
fn xdp_sends_to_resolved_neighbours_and_leaves_the_rest_to_tc() {
    let Some(bed) = Bed::new() else { return };
    bed.take_redirected();
    let (mut fast_path, attached) = bed.fast_path(Mode::Xdp);
    assert!(attached.xdp);
    assert!(bed.pings(), "{:?}", fast_path.counters());
    assert!(bed.pings(), "{:?}", fast_path.counters());
    bed.lab.node("gateway").unwrap().run(|| fast_path.update(&bed.plan, settings()).unwrap()).unwrap();
    assert!(bed.pings(), "after a reload: {:?}", fast_path.counters());
    let no_next_hop = fast_path.counters().unwrap().passed().find(|(miss, _)| miss.name() == "no-next-hop");
    println!("{no_next_hop:?}");
}

/// Packets that the stack would route with certainty leave without it, and look the same.
#[test]
fn tc_sends_what_has_a_certain_next_hop_and_leaves_the_rest_to_the_stack() {
    let Some(bed) = Bed::new() else { return };
    let mut routes = bed.lab.node("gateway").unwrap().run(|| Routes::open(&bed.memory).unwrap()).unwrap();
    let (fast_path, _) = bed.fast_path(Mode::Tc);
    bed.ip("server", "address add 203.0.113.8/32 dev lo");
    let mut crosses = |change: &str, address: &str| {
        if !change.is_empty() {
            bed.ip("gateway", change);
        }
        if change.starts_with("neigh del") {
            // Neighbours come and go all the time, so a next hop is remembered for the rest of its tick.
            std::thread::sleep(Duration::from_millis(1200));
        }
        routes.follow(Duration::from_millis(200)).unwrap();
        let before = fast_path.counters().unwrap().to_stack;
        let printed = while_followed(&mut routes, || bed.ping(&["-c", "3", address]));
        assert!(printed.is_none_or(|text| text.contains("ttl=63")), "one hop");
        fast_path.counters().unwrap().to_stack - before
    };
    assert!(crosses("", SERVER) > 0, "it resolves the neighbours");
    // Else the server asks for the gateway some time, and the gateway knows it again by that.
    bed.ip("server", "neigh change 198.51.100.1 dev outside0 nud permanent");
    assert_eq!(crosses("", SERVER), 0, "on the link");
    let far = "64:ff9b::203.0.113.8";
    assert_eq!(crosses("route add 203.0.113.0/24 via 198.51.100.2", far), 0, "by a gateway");
    for (uncertain, certain) in [
        (
            "route add 203.0.113.8/32 nexthop via 198.51.100.2 nexthop via 198.51.100.2 weight 2",
            "route del 203.0.113.8/32",
        ),
        ("route add blackhole 203.0.113.8/32", "route del blackhole 203.0.113.8/32"),
        ("route add 203.0.113.8/32 via 198.51.100.2 mtu 1400", "route del 203.0.113.8/32"),
        ("rule add from 10.9.9.9 table 100", "rule del from 10.9.9.9 table 100"),
        ("neigh del 198.51.100.2 dev outside0", "neigh replace 198.51.100.9 lladdr 02:00:00:00:00:09 dev outside0"),
    ] {
        assert!(crosses(uncertain, far) > 0, "{uncertain}");
        assert_eq!(crosses(certain, far), 0, "{certain}");
    }
    // What does not fit is refused by the stack.
    bed.ip("gateway", "link set outside0 mtu 1400");
    routes.follow(Duration::from_millis(200)).unwrap();
    let before = fast_path.counters().unwrap().to_stack;
    assert_eq!(bed.ping(&["-c", "2", "-M", "do", "-s", "1400", far]), None);
    assert!(fast_path.counters().unwrap().to_stack > before);
    bed.ip("gateway", "link set outside0 mtu 1500");
    drop(routes);
    std::thread::sleep(Duration::from_millis(2200));
    let before = fast_path.counters().unwrap().to_stack;
    assert!(bed.pings_to(far));
    assert!(fast_path.counters().unwrap().to_stack > before, "nobody confirms the routes");
}

/// The programs write the neighbour's address themselves; the kernel must not think that nobody
/// wants the neighbour.
#[test]
fn the_kernel_goes_on_asking_for_the_neighbour() {
    let Some(bed) = Bed::new() else { return };
    bed.take_redirected();
    let mut routes = bed.lab.node("gateway").unwrap().run(|| Routes::open(&bed.memory).unwrap()).unwrap();
    for mode in [Mode::Xdp, Mode::Tc] {
        let (fast_path, _) = bed.fast_path(mode);
        assert!(bed.pings(), "{:?}", fast_path.counters());
        bed.ip("gateway", "neigh change 198.51.100.2 dev outside0 nud stale");
        let before = fast_path.counters().unwrap();
        let mut state = || {
            routes.follow(Duration::from_millis(1)).unwrap();
            assert!(bed.pings(), "{:?}", fast_path.counters());
            let show = ["neigh", "show", "198.51.100.2"];
            bed.lab.node("gateway").unwrap().command("ip").args(show).run().unwrap().success().unwrap().stdout
        };
        // A packet uses the kernel's table every eight ticks.
        let is_asked = || (!state().contains("STALE")).then_some(());
        tombolo_lab::wait_until("it is asked", Duration::from_secs(20), is_asked).unwrap();
        let counters = fast_path.counters().unwrap();
        assert!(mode == Mode::Tc || passed(&fast_path, "neighbour") > 0, "{counters:?}");
        assert_eq!(mode == Mode::Tc, counters.passed().eq(before.passed()), "{counters:?}");
        assert_eq!(counters.to_stack, before.to_stack, "{counters:?}");
    }
}

/// A veth whose other end does not poll takes nothing from XDP, and the program does not learn it.
#[test]
fn where_xdp_cannot_send_tc_does_and_what_the_kernel_loses_is_counted() {
    let Some(bed) = Bed::new() else { return };
    if kernel() < (6, 3) {
        println!("SKIPPED: this kernel does not say what takes redirected frames");
        return;
    }
    let gateway = bed.lab.node("gateway").unwrap();
    let (mut fast_path, attached) = bed.fast_path(Mode::Xdp);
    gateway.run(|| fast_path.count_losses().unwrap()).unwrap();
    assert!(attached.xdp);
    assert_eq!((fast_path.xdp_sends("inside0"), fast_path.xdp_sends("outside0")), (Some(false), Some(false)));
    assert!(bed.pings(), "{:?}", fast_path.counters());
    assert!(passed(&fast_path, "no-next-hop") > 0, "TC sends: {:?}", fast_path.counters());

    bed.take_redirected();
    gateway.run(|| fast_path.refresh().unwrap()).unwrap();
    assert_eq!((fast_path.xdp_sends("inside0"), fast_path.xdp_sends("outside0")), (Some(true), Some(true)));
    // A next hop is remembered for a tick.
    std::thread::sleep(Duration::from_millis(1200));
    assert!(bed.pings(), "{:?}", fast_path.counters());
    let before = passed(&fast_path, "no-next-hop");
    assert!(bed.pings(), "{:?}", fast_path.counters());
    assert_eq!(passed(&fast_path, "no-next-hop"), before, "XDP sends");
    assert_eq!(fast_path.losses().unwrap(), Some(0));

    for (node, interface) in [("client", "inside0"), ("server", "outside0")] {
        bed.lab.node(node).unwrap().set_offload(interface, tombolo_lab::Offload::Gro, false).unwrap();
    }
    // TC takes a packet whose neighbour is just being asked for.
    assert!((0..5).any(|_| !bed.pings()), "nobody has looked yet: {:?}", fast_path.counters());
    assert!(fast_path.losses().unwrap() >= Some(1), "{:?}", fast_path.losses());
    gateway.run(|| fast_path.refresh().unwrap()).unwrap();
    assert_eq!(fast_path.xdp_sends("outside0"), Some(false));
    std::thread::sleep(Duration::from_millis(1200));
    assert!(bed.pings(), "TC again: {:?}", fast_path.counters());
}

/// Two hosts behind one router: packets to both leave by it, and follow the route as soon as
/// it changes.
#[test]
fn xdp_sends_by_the_gateway_of_a_route_and_follows_what_changes() {
    let Some(bed) = Bed::new() else { return };
    bed.take_redirected();
    let gateway = bed.lab.node("gateway").unwrap();
    let mut routes = gateway.run(|| Routes::open(&bed.memory).unwrap()).unwrap();
    assert_eq!(routes.falls_short(), None);
    let (fast_path, _) = bed.fast_path(Mode::Xdp);
    let no_next_hop = || passed(&fast_path, "no-next-hop");
    for host in ["203.0.113.8", "203.0.113.9"] {
        bed.ip("server", &format!("address add {host}/32 dev lo"));
    }
    let (one, other) = ("64:ff9b::203.0.113.8", "64:ff9b::203.0.113.9");
    let mut after = |change: &str| {
        bed.ip("gateway", change);
        routes.follow(Duration::from_millis(200)).unwrap();
        routes.falls_short()
    };
    after("route add 203.0.113.0/24 via 198.51.100.2");
    // The first ones resolve the neighbours.
    assert!(bed.pings_to(one) && bed.pings_to(other), "{:?}", fast_path.counters());
    let before = no_next_hop();
    after("neigh replace 198.51.100.3 lladdr 02:00:00:00:00:03 dev outside0 nud permanent");
    assert!(bed.pings_to(one) && bed.pings_to(other), "{:?}", fast_path.counters());
    assert_eq!(no_next_hop(), before, "XDP sent everything");

    after("route replace 203.0.113.0/24 via 198.51.100.3");
    assert!(!bed.pings_to(one) && !bed.pings_to(other), "the new gateway gets them, and is nobody");
    assert_eq!(no_next_hop(), before, "XDP sent everything");
    after("route add 203.0.113.9/32 via 198.51.100.2");
    assert!(!bed.pings_to(one) && bed.pings_to(other), "the longer route has another next hop");
    after("route replace 203.0.113.0/24 via 198.51.100.2");
    assert!(bed.pings_to(one), "{:?}", fast_path.counters());
    assert_eq!(no_next_hop(), before, "XDP sent everything");
    after("route add blackhole 203.0.113.8/32");
    assert!(!bed.pings_to(one) && bed.pings_to(other));
    assert!(no_next_hop() > before, "a hole is no next hop");

    after("route del blackhole 203.0.113.8/32");
    assert!(after("rule add from 10.9.9.9 table 100").is_some(), "a rule makes it ask for each destination");
    assert!(bed.pings_to(one) && bed.pings_to(other), "{:?}", fast_path.counters());
    assert!(after("rule del from 10.9.9.9 table 100").is_none());
    assert!(bed.pings_to(one) && bed.pings_to(other), "{:?}", fast_path.counters());
    drop(routes);
    assert!(bed.pings_to(one) && bed.pings_to(other), "without the mirror: {:?}", fast_path.counters());
}

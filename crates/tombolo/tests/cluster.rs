//! Three nodes that serve the same services, with BIRD on all routers: what a subscriber sees when a node loses its
//! power, its process or a link, fragments that arrive apart, and packets of services with bindings that come to
//! a node that does not have them. Needs root and BIRD, and skips loudly without.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tombolo_lab::{Lab, Peer, Process, Scenario, skip_without, wait_until};

mod flows;
mod running;

use flows::EndOnDrop;
use running::{PATIENCE, TOMBOLO, rows};

const SERVER: &str = "198.51.100.2:7";
/// Who sends, and to where: by MAP-T, by Lightweight 4over6, and by SIIT.
const SENDERS: [(&str, &str); 3] =
    [("client", SERVER), ("neighbour", SERVER), ("web", "[2001:db8:64::198.51.100.2]:7")];
/// Flows of each.
const FLOWS: usize = 8;
/// From one datagram of a flow to the next.
const PACE: Duration = Duration::from_millis(4);
/// What section 12 of the design allows for a node that is gone without a word.
const SILENCE: Duration = Duration::from_millis(400);

/// A node that comes back announces nothing before it has routes itself, so that what is lost is lost while routes change.
const RETURN: Duration = Duration::from_millis(100);
/// Routers move flows of the others, too. Nothing is lost by that, but for once: seven datagrams within 9 ms, on a busy
/// machine.
const MOVED: Duration = Duration::from_millis(25);

struct Cluster {
    // Dropped first.
    gateways: BTreeMap<&'static str, Process>,
    _routers: Vec<Process>,
    echo: Peer,
    lab: Lab,
    scenario: Scenario,
}

impl Cluster {
    fn up() -> Self {
        Self::of(Scenario::named("cluster").unwrap())
    }

    /// The same, where backups have copies of the bindings.
    fn with_copies() -> Self {
        let mut scenario = Scenario::named("cluster").unwrap();
        let certificates = format!("{}/../cluster/tests/certificates", env!("CARGO_MANIFEST_DIR"));
        for (node, text) in scenario.gateways.iter_mut().filter(|(node, _)| node.starts_with('n')) {
            text.push_str(&format!(
                "[cluster.replication]\naddresses = {{ n1 = \"2001:db8:c::1\", n2 = \"2001:db8:c::2\", n3 = \"2001:db8:c::3\" }}\n\
                 ca = \"{certificates}/ca.pem\"\ncertificate = \"{certificates}/{node}.pem\"\nkey = \"{certificates}/{node}.key\"\n"
            ));
        }
        Self::of(scenario)
    }

    fn of(scenario: Scenario) -> Self {
        let lab = Lab::create(&scenario.topology).unwrap();
        let routers = scenario.routers.iter().map(|(node, text)| lab.start_router(node, text).unwrap()).collect();
        let echo = Peer::udp_echo(lab.node("server").unwrap(), SERVER.parse().unwrap()).unwrap();
        let mut cluster = Self { gateways: BTreeMap::new(), _routers: routers, echo, lab, scenario };
        for node in ["cpe", "cpe2", "b4", "n1", "n2", "n3"] {
            cluster.start(node);
        }
        cluster.wait_for_all();
        cluster
    }

    fn start(&mut self, node: &'static str) {
        let (_, text) = self.scenario.gateways.iter().find(|(name, _)| *name == node).unwrap();
        let gateway = self.lab.start_gateway(node, TOMBOLO, text).unwrap_or_else(|error| panic!("{node}: {error:?}"));
        self.gateways.insert(node, gateway);
    }

    fn command(&self, node: &str, line: &str) -> String {
        let command = self.lab.node(node).unwrap().command("sh").args(["-c", line]);
        command.run().unwrap().success().unwrap().stdout
    }

    /// Waits until both routers spread packets over this many nodes, and the nodes know of each other.
    fn wait_for(&self, nodes: usize) {
        let spread = |router: &str, prefix: &str| {
            self.command(router, &format!("ip route show {prefix}")).matches("dev ").count() == nodes
        };
        let know = |node: &str| {
            let shown = self.lab.node(node).unwrap().command(TOMBOLO).args(["show", "peers", "--json"]).run().unwrap();
            shown.status.success()
                && rows(&shown.stdout).iter().filter(|row| row["state"] == "serving").count() + 1 == nodes
        };
        let all = || {
            let are_spread = ["192.0.2.0/24", "203.0.113.0/28", "203.0.113.130"].iter().all(|at| spread("r2", at))
                && ["2001:db8:ffff::/64", "2001:db8:fffe::1", "2001:db8:64::/96"]
                    .iter()
                    .all(|at| self.command("r1", &format!("ip -6 route show {at}")).matches("dev ").count() == nodes);
            let has_both_sides = |node: &str| {
                self.command(node, "ip route show default").contains("outside0")
                    && self.command(node, "ip -6 route show 2001:db8:4612:3400::/56").contains("inside0")
            };
            let serving = ["n1", "n2", "n3"].iter().filter(|node| know(node) && has_both_sides(node)).count();
            (are_spread && serving >= nodes).then_some(())
        };
        let found = wait_until(&format!("{nodes} nodes"), PATIENCE, all);
        found.unwrap_or_else(|error| {
            panic!("{error}\n{}{}", self.command("r2", "ip route"), self.command("r1", "ip -6 route"))
        });
    }

    fn wait_for_all(&self) {
        self.wait_for(3);
    }

    /// Waits until the outside router brings a node nothing of what any node serves.
    fn wait_for_routes_without(&self, node: &str) {
        let address = format!("198.18.0.{}", &node[1..]);
        let routes = "for to in 192.0.2.0/24 203.0.113.0/28 203.0.113.130; do ip route show $to; done";
        let gone = || (!self.command("r2", routes).contains(&address)).then_some(());
        wait_until("routers to hear of it", PATIENCE, gone).unwrap();
    }

    /// Switches the ports of a node on or off: no router sees its link go.
    fn plug(&self, node: &str, switches: &[&str], on: bool) {
        for switch in switches {
            let switch = self.lab.node(switch).unwrap();
            if on { switch.set_up(node).unwrap() } else { switch.set_down(node).unwrap() }
        }
    }

    /// Datagrams that a node has received by its interfaces to both sides.
    fn received(&self, node: &str) -> u64 {
        let text = self.command(node, "cat /proc/net/dev");
        let packets = |interface: &str| -> u64 {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':')).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        packets("inside0") + packets("outside0")
    }
}

/// A flow: numbered datagrams to the server, and what comes back.
struct Flow {
    name: String,
    socket: UdpSocket,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    sent: Vec<Instant>,
    back: BTreeMap<usize, Instant>,
}

/// What a fault did to a flow.
struct Effect {
    name: String,
    lost: usize,
    silence: Duration,
    by_the_node: bool,
}

impl Flow {
    fn all(lab: &Lab) -> Vec<Self> {
        let flows = SENDERS.iter().flat_map(|&(node, to)| {
            (0..FLOWS).map(move |number| {
                let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
                let socket = lab.node(node).unwrap().run(|| UdpSocket::bind(any).unwrap()).unwrap();
                socket.connect(to.parse::<SocketAddr>().unwrap()).unwrap();
                socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
                Self { name: format!("{node} {number}"), socket, seen: Mutex::default() }
            })
        });
        flows.collect()
    }

    fn send(&self) {
        let mut seen = self.seen.lock().unwrap();
        let number = seen.sent.len();
        if self.socket.send(&number.to_be_bytes()).is_ok() {
            seen.sent.push(Instant::now());
        }
    }

    fn receive(&self) -> bool {
        let mut bytes = [0; 8];
        let Ok(8) = self.socket.recv(&mut bytes) else { return false };
        self.seen.lock().unwrap().back.entry(usize::from_be_bytes(bytes)).or_insert_with(Instant::now);
        true
    }

    /// The longest time without an answer, of those that were sent from `since` on, and how many were not answered.
    fn effect(&self, since: Instant, by_the_node: bool) -> Effect {
        let seen = self.seen.lock().unwrap();
        let sent = seen.sent.iter().enumerate().filter(|(_, at)| **at >= since);
        let lost = sent.clone().filter(|(number, _)| !seen.back.contains_key(number)).count();
        // Of lost ones in a row, from the first to the next that is answered.
        let (mut silence, mut quiet_since) = (Duration::ZERO, None);
        for (number, at) in sent {
            match (seen.back.contains_key(&number), quiet_since) {
                (false, None) => quiet_since = Some(*at),
                (true, Some(from)) => {
                    silence = silence.max(*at - from);
                    quiet_since = None;
                }
                _ => {}
            }
        }
        if let Some((from, last)) = quiet_since.zip(seen.sent.last()) {
            silence = silence.max(*last - from);
        }
        Effect { name: self.name.clone(), lost, silence, by_the_node }
    }
}

/// Which flows pass a node, in either direction.
fn flows_by(cluster: &Cluster, flows: &[Flow], node: &str) -> Vec<bool> {
    let passes = |flow: &Flow| {
        let before = cluster.received(node);
        for _ in 0..60 {
            flow.send();
            assert!(flow.receive(), "{}: no answer while all is well", flow.name);
        }
        cluster.received(node) - before >= 50
    };
    flows.iter().map(passes).collect()
}

/// What each flow notices of a fault of a node, which `recovers` within a second or two.
fn during(cluster: &mut Cluster, node: &str, fault: impl FnOnce(&mut Cluster)) -> Vec<Effect> {
    let flows = Flow::all(&cluster.lab);
    let by_the_node = flows_by(cluster, &flows, node);
    under_load(cluster, &flows, &by_the_node, fault)
}

/// The same of these flows, of which some pass the node.
fn under_load(
    cluster: &mut Cluster,
    flows: &[Flow],
    by_the_node: &[bool],
    fault: impl FnOnce(&mut Cluster),
) -> Vec<Effect> {
    let stop = AtomicBool::new(false);
    let since = Instant::now();
    std::thread::scope(|scope| {
        let _ends = EndOnDrop(&stop);
        let stop = &stop;
        for flow in flows {
            scope.spawn(move || while flow.receive() || !stop.load(Ordering::Acquire) {});
        }
        scope.spawn(move || {
            while !stop.load(Ordering::Acquire) {
                let began = Instant::now();
                flows.iter().for_each(Flow::send);
                std::thread::sleep(PACE.saturating_sub(began.elapsed()));
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        fault(cluster);
        std::thread::sleep(Duration::from_millis(1500));
    });
    flows.iter().zip(by_the_node).map(|(flow, by)| flow.effect(since, *by)).collect()
}

/// Says what was seen, for the figures of the documentation.
fn report(what: &str, effects: &[Effect]) {
    for by in [true, false] {
        let of = effects.iter().filter(|effect| effect.by_the_node == by);
        let (count, lost) = (of.clone().count(), of.clone().map(|effect| effect.lost).sum::<usize>());
        let silence = of.map(|effect| effect.silence).max().unwrap_or_default();
        let whose = if by { "through the node" } else { "past it" };
        eprintln!("{what}: {count} flows {whose}: {lost} datagrams lost, longest silence {silence:?}");
    }
}

/// Flows through the node are silent for `limit` at most; the others hardly notice.
fn check(what: &str, effects: &[Effect], limit: Duration) {
    report(what, effects);
    assert!(effects.iter().filter(|effect| effect.by_the_node).count() >= 4, "{what}: the routers spread nothing");
    for Effect { name, lost, silence, by_the_node } in effects {
        if *by_the_node {
            assert!(*silence <= limit, "{what}: {name} was silent for {silence:?}");
        } else {
            let why = "which does not pass the node";
            assert!(*silence <= MOVED, "{what}: {name}, {why}, lost {lost} and was silent for {silence:?}");
        }
    }
}

#[test]
fn what_happens_to_a_node_is_its_flows_alone_and_not_for_long() {
    if skip_without("what_happens_to_a_node_is_its_flows_alone_and_not_for_long", &["bird", "ip"]) {
        return;
    }
    let mut cluster = Cluster::up();
    let all = ["inside", "core", "outside"];

    let effects = during(&mut cluster, "n2", |cluster| cluster.plug("n2", &all, false));
    check("n2 loses power", &effects, SILENCE);
    assert!(effects.iter().any(|effect| effect.lost > 0), "nothing was lost, so nothing was tried");
    let effects = during(&mut cluster, "n2", |cluster| {
        cluster.plug("n2", &all, true);
        cluster.wait_for_all();
    });
    report("n2 comes back", &effects);
    let silence = effects.iter().map(|effect| effect.silence).max().unwrap_or_default();
    assert!(silence <= RETURN, "n2 comes back, and flows are silent for {silence:?}");

    let effects = during(&mut cluster, "n3", |cluster| cluster.plug("n3", &["outside"], false));
    check("n3 loses its link to the outside", &effects, SILENCE);
    cluster.plug("n3", &["outside"], true);
    cluster.wait_for_all();

    let effects = during(&mut cluster, "n1", |cluster| drop(cluster.gateways.remove("n1")));
    check("n1's gateway is killed", &effects, SILENCE);
    cluster.start("n1");
    cluster.wait_for_all();

    let effects = during(&mut cluster, "n1", |cluster| {
        let mut gateway = cluster.gateways.remove("n1").unwrap();
        gateway.signal(Signal::SIGTERM).unwrap();
        gateway.wait(PATIENCE).unwrap().success().unwrap();
    });
    check("n1's gateway is stopped", &effects, Duration::ZERO);
    cluster.start("n1");
    cluster.wait_for_all();

    let effects = during(&mut cluster, "n3", |cluster| {
        cluster.command("n3", &format!("{TOMBOLO} drain"));
        cluster.wait_for_routes_without("n3");
    });
    check("n3 is drained", &effects, Duration::ZERO);
    cluster.command("n3", &format!("{TOMBOLO} drain --off"));
    cluster.wait_for_all();
}

/// A router that spreads first fragments by their ports and the others without: to different nodes.
const APART: &str = "
    nft add table ip apart
    nft 'add chain ip apart fragments { type filter hook prerouting priority -350; }'
    nft 'add rule ip apart fragments iifname server0 ip frag-off & 0x1fff != 0 meta mark set 7'
    ip rule add pref 100 fwmark 7 lookup 107
    ip route add default via 198.18.0.2 table 107
    ip rule add pref 101 iif server0 lookup 108
    ip route add default via 198.18.0.1 table 108
";
const APART_INSIDE: &str = "
    nft add table ip6 apart
    nft 'add chain ip6 apart fragments { type filter hook prerouting priority -350; }'
    nft 'add rule ip6 apart fragments iifname home* frag frag-off != 0 meta mark set 7'
    ip -6 rule add pref 100 fwmark 7 lookup 107
    ip -6 route add default via 2001:db8:a::3 table 107
    ip -6 rule add pref 101 iif home1 lookup 108
    ip -6 rule add pref 101 iif home2 lookup 108
    ip -6 route add default via 2001:db8:a::1 table 108
";

#[test]
fn fragments_that_arrive_apart_meet() {
    if skip_without("fragments_that_arrive_apart_meet", &["bird", "ip", "nft", "ping"]) {
        return;
    }
    let cluster = Cluster::up();
    cluster.command("r2", &format!("set -e{APART}"));
    cluster.command("r1", &format!("set -e{APART_INSIDE}"));
    for sender in ["client", "neighbour"] {
        let said = cluster.command(sender, "ping -c 20 -i 0.05 -W 2 -s 3000 198.51.100.2");
        assert!(said.contains("20 received"), "{sender}: {said}");
    }
    for node in ["n1", "n2", "n3"] {
        let shown = rows(&cluster.command(node, &format!("{TOMBOLO} show peers --json")));
        let moved: u64 = shown
            .iter()
            .map(|row| row["redirected_to"].as_u64().unwrap() + row["redirected_by"].as_u64().unwrap())
            .sum();
        assert!(moved > 20, "{node}: {shown:?}");
    }
}

/// Who sends through a NAT64, a NAT44 and an AFTR: host, first part of its addresses, how many, and to where.
const BOUND: [(&str, &str, u8, &str); 3] = [
    ("phone", "2001:db8:6::", 8, "[2001:db8:6464::198.51.100.2]"),
    ("lan", "100.64.0.", 8, "198.51.100.2"),
    ("home", "10.", 3, "198.51.100.2"),
];
/// Bytes that each host sends over TCP.
const STREAM: usize = 1_000_000;

impl Cluster {
    /// Waits until the outside router knows the owner of each slice of the three pools, and the inside one all nodes.
    fn wait_for_slices(&self) {
        let all = || {
            let slices = self.command("r2", "ip route show").matches("/31 via").count();
            let entrances = self.command("r1", "ip route show default").matches("dev ").count();
            (slices == 24 && entrances == 3).then_some(())
        };
        let found = wait_until("slices", PATIENCE, all);
        found.unwrap_or_else(|error| panic!("{error}\n{}", self.command("r2", "ip route")));
    }

    /// Has everything from these hosts come to one node.
    fn enter_by(&self, node: u8) {
        let line = format!(
            "set -e
            ip -6 route replace default via 2001:db8:a::{node} table 109
            ip route replace default via 10.254.0.{node} table 109
            for home in home4 home6; do ip -6 rule add pref 90 iif $home lookup 109 2>/dev/null || true; done
            ip rule add pref 90 iif home5 lookup 109 2>/dev/null || true"
        );
        self.command("r1", &line);
    }

    /// A socket for each subscriber, which speaks to the server.
    fn subscribers(&self) -> Vec<Flow> {
        let flows = BOUND.iter().flat_map(|&(host, network, count, to)| {
            (0..count).map(move |number| {
                let address = match host {
                    "home" => format!("10.{}.0.2", number + 1),
                    _ => format!("{network}{}", number + 2),
                };
                let address: IpAddr = address.parse().unwrap();
                let bind = || UdpSocket::bind(SocketAddr::new(address, 4000)).unwrap();
                let socket = self.lab.node(host).unwrap().run(bind).unwrap();
                socket.connect(format!("{to}:7").parse::<SocketAddr>().unwrap()).unwrap();
                socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
                Flow { name: format!("{host} {number}"), socket, seen: Mutex::default() }
            })
        });
        flows.collect()
    }

    /// What the server sees of a subscriber, if it hears of it at all.
    fn endpoint(&self, flow: &Flow, tries: u8) -> Option<SocketAddr> {
        (0..tries).find_map(|_| {
            flow.send();
            flow.receive().then(|| self.echo.last_client()).flatten()
        })
    }

    /// A counter of `show peers`, over all nodes.
    fn peers_total(&self, counter: &str) -> u64 {
        let of = |node: &str| -> u64 {
            let shown = rows(&self.command(node, &format!("{TOMBOLO} show peers --json")));
            shown.iter().map(|row| row[counter].as_u64().unwrap()).sum()
        };
        ["n1", "n2", "n3"].into_iter().map(of).sum()
    }
}

#[test]
fn any_node_is_an_entrance_of_services_with_bindings() {
    if skip_without("any_node_is_an_entrance_of_services_with_bindings", &["bird", "ip"]) {
        return;
    }
    let mut cluster = Cluster::up();
    cluster.wait_for_slices();
    let flows = cluster.subscribers();
    let mut endpoints: Vec<SocketAddr> = Vec::new();
    for node in 1..=3 {
        cluster.enter_by(node);
        let before = cluster.peers_total("redirected_to");
        let seen = flows.iter().map(|flow| {
            cluster.endpoint(flow, 10).unwrap_or_else(|| panic!("{} gets no answer by n{node}", flow.name))
        });
        let seen: Vec<SocketAddr> = seen.collect();
        if endpoints.is_empty() {
            endpoints.clone_from(&seen);
        }
        assert_eq!(seen, endpoints, "a subscriber has one outside endpoint, also by n{node}");
        assert!(cluster.peers_total("redirected_to") > before, "n{node} has not everything itself");
    }
    let bindings = ["n1", "n2", "n3"]
        .map(|node| rows(&cluster.command(node, &format!("{TOMBOLO} show bindings --protocol udp --json"))).len());
    assert!(bindings.iter().all(|count| *count > 0) && bindings.iter().sum::<usize>() == flows.len(), "{bindings:?}");
    let slices = rows(&cluster.command("n2", &format!("{TOMBOLO} show slices --json")));
    let states: Vec<_> = slices.iter().map(|row| row["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["redirected", "own", "redirected"], "{slices:?}");
    streams_pass(&cluster);
    programs_redirect(&cluster);
    one_owner_less(&mut cluster, &flows, &endpoints);
    a_narrow_core_keeps_a_node_out(&mut cluster);
}

/// Full-size segments of TCP pass the network between the nodes.
fn streams_pass(cluster: &Cluster) {
    let listen = || TcpListener::bind("198.51.100.2:9").unwrap();
    let listener = cluster.lab.node("server").unwrap().run(listen).unwrap();
    for node in 1..=3 {
        cluster.enter_by(node);
        for (host, _, _, to) in BOUND {
            let to: SocketAddr = format!("{to}:9").parse().unwrap();
            let connect = || TcpStream::connect_timeout(&to, PATIENCE).unwrap();
            let mut stream = cluster.lab.node(host).unwrap().run(connect).unwrap();
            let (mut other, _) = listener.accept().unwrap();
            other.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            let began = Instant::now();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    stream.write_all(&vec![0x5a; STREAM]).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                });
                let mut bytes = Vec::new();
                other.read_to_end(&mut bytes).unwrap();
                assert_eq!(bytes.len(), STREAM, "{host} by n{node}");
            });
            eprintln!("{host} by n{node}: {STREAM} bytes in {:?}", began.elapsed());
        }
    }
}

/// What is plain the programs in the kernel redirect, and serve when it comes so.
fn programs_redirect(cluster: &Cluster) {
    for node in ["n1", "n2", "n3"] {
        let [redirected, taken] = ["redirected", "taken-inside"].map(|name| cluster.counted_in_kernel(node, name));
        eprintln!("{node}: {redirected} packets redirected in the kernel");
        // Of a stream few: a super-packet counts once.
        assert!(redirected > 20 && taken > 20, "{node}: {redirected} redirected, {taken} taken");
    }
}

/// A node whose gateway is dead has nobody in its place; it knows its subscribers when it comes back.
fn one_owner_less(cluster: &mut Cluster, flows: &[Flow], endpoints: &[SocketAddr]) {
    cluster.enter_by(1);
    drop(cluster.gateways.remove("n3"));
    let is_known = || {
        let slices = rows(&cluster.command("n1", &format!("{TOMBOLO} show slices --json")));
        slices.iter().any(|row| row["state"] == "unowned").then_some(())
    };
    wait_until("n1 to know of it", PATIENCE, is_known).unwrap();
    let served = flows.iter().map(|flow| cluster.endpoint(flow, 2)).collect::<Vec<_>>();
    let lost = served.iter().filter(|endpoint| endpoint.is_none()).count();
    assert!(lost > 0 && lost < flows.len(), "{lost} of {} have no answer", flows.len());
    let kept = served.iter().zip(endpoints).all(|(now, before)| now.is_none_or(|now| now == *before));
    assert!(kept, "the others keep their endpoints: {served:?}");
    let drops = rows(&cluster.command("n1", &format!("{TOMBOLO} show drops --json")));
    assert!(drops.iter().any(|row| row["reason"] == "slice-unowned"), "{drops:?}");
    cluster.start("n3");
    cluster.wait_for_all();
    cluster.wait_for_slices();
    let again: Vec<_> = flows.iter().filter_map(|flow| cluster.endpoint(flow, 10)).collect();
    assert_eq!(again, endpoints, "the tables were kept");
}

/// A node that could not redirect packets of full size announces nothing, says why, and comes when that is mended.
fn a_narrow_core_keeps_a_node_out(cluster: &mut Cluster) {
    drop(cluster.gateways.remove("n3").map(Process::stop));
    cluster.command("n3", "ip link set core0 mtu 1500");
    cluster.start("n3");
    let says_why = || {
        let status = cluster.command("n3", &format!("{TOMBOLO} show status --json"));
        status.contains("packets of 1580 bytes do not reach node n1").then_some(())
    };
    wait_until("n3 to say why it announces nothing", PATIENCE, says_why).unwrap();
    let announced = cluster.command("n3", "ip route show table 8464; ip -6 route show table 8464");
    assert_eq!(announced.trim(), "", "nothing is announced");
    cluster.command("n3", "ip link set core0 mtu 1600");
    cluster.wait_for_all();
    cluster.wait_for_slices();
}

/// How long each stream of a comparison lasts, and how many there are of each kind.
const EACH: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;

/// TCP by the node that has the subscriber's bindings, and by another one that redirects it there: for section 14 of the
/// design. `cargo test --release --test cluster -- --ignored --nocapture redirected_tcp` on a machine that does nothing else.
#[test]
#[ignore = "a measurement, of half a minute and more"]
fn redirected_tcp_beside_direct() {
    if skip_without("redirected_tcp_beside_direct", &["bird", "ip"]) {
        return;
    }
    let cluster = Cluster::up();
    cluster.wait_for_slices();
    let flows = cluster.subscribers();
    let listener = cluster.lab.node("server").unwrap().run(|| TcpListener::bind("198.51.100.2:9").unwrap()).unwrap();
    for (host, _, _, to) in BOUND {
        let flow = flows.iter().find(|flow| flow.name.starts_with(host)).unwrap();
        let address = flow.socket.local_addr().unwrap().ip();
        let owner = (1..=3).find(|&node| {
            cluster.enter_by(node);
            let before = cluster.peers_total("redirected_to");
            cluster.endpoint(flow, 10).unwrap();
            cluster.peers_total("redirected_to") == before
        });
        let owner = owner.unwrap_or_else(|| panic!("no node has {}", flow.name));
        let other = owner % 3 + 1;
        let mut ratios: Vec<f64> = Vec::new();
        for _ in 0..ROUNDS {
            let [direct, redirected] = [owner, other].map(|node| {
                cluster.enter_by(node);
                cluster.throughput(host, address, &format!("{to}:9"), &listener)
            });
            ratios.push(redirected / direct);
            eprintln!("{host}: direct {:.2}, redirected {:.2} Gbit/s", direct / 1e9, redirected / 1e9);
        }
        ratios.sort_by(f64::total_cmp);
        eprintln!(
            "{host}: redirected over direct {:.2} ({:.2} to {:.2})",
            ratios[ROUNDS / 2],
            ratios[0],
            ratios[ROUNDS - 1]
        );
    }
}

impl Cluster {
    /// Bits a second of a stream that a host sends from an address of its own.
    fn throughput(&self, host: &str, from: IpAddr, to: &str, listener: &TcpListener) -> f64 {
        let to: SocketAddr = to.parse().unwrap();
        let mut stream = self.lab.node(host).unwrap().run(|| connected(SocketAddr::new(from, 0), to)).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        other.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let began = Instant::now();
        let received = std::thread::scope(|scope| {
            scope.spawn(move || {
                let bytes = vec![0x5a; 1 << 17];
                while began.elapsed() < EACH {
                    stream.write_all(&bytes).unwrap();
                }
            });
            let mut bytes = vec![0; 1 << 17];
            let mut received = 0_usize;
            while let Ok(count @ 1..) = other.read(&mut bytes) {
                received += count;
            }
            received
        });
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let bits = received as f64 * 8.0;
        bits / began.elapsed().as_secs_f64()
    }
}

/// A connection from an address that the host chooses.
fn connected(from: SocketAddr, to: SocketAddr) -> TcpStream {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, socket};
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::empty(), None).unwrap();
    bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrStorage::from(from)).unwrap();
    connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrStorage::from(to)).unwrap();
    TcpStream::from(socket)
}

/// Connections of each host.
const CONNECTIONS: usize = 5;

impl Cluster {
    /// Waits until each backup has a complete copy.
    fn wait_for_copies(&self) {
        let are_complete = |node: &str| {
            let shown = rows(&self.command(node, &format!("{TOMBOLO} show peers --json")));
            let count = |key: &str| shown.iter().filter(|row| row[key] == "complete").count();
            count("copy_there") == 1 && count("copy_here") == 1 && shown.iter().all(|row| row["pending"] == 0)
        };
        let all = || ["n1", "n2", "n3"].iter().all(|node| are_complete(node)).then_some(());
        let found = wait_until("copies", PATIENCE, all);
        found
            .unwrap_or_else(|error| panic!("{error}\n{}", self.command("n1", &format!("{TOMBOLO} show peers --json"))));
    }

    /// Connections of all hosts to a server that says what it hears.
    fn connections(&self) -> Vec<(String, TcpStream)> {
        let listener = self.lab.node("server").unwrap().run(|| TcpListener::bind("198.51.100.2:9").unwrap()).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut bytes = [0; 64];
                    while let Ok(count @ 1..) = stream.read(&mut bytes) {
                        if stream.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        let mut connections = Vec::new();
        for (host, network, count, to) in BOUND {
            for number in 0..count {
                let address = match host {
                    "home" => format!("10.{}.0.2", number + 1),
                    _ => format!("{network}{}", number + 2),
                };
                let (address, to): (IpAddr, SocketAddr) =
                    (address.parse().unwrap(), format!("{to}:9").parse().unwrap());
                for _ in 0..CONNECTIONS {
                    let from = SocketAddr::new(address, 0);
                    let stream = self.lab.node(host).unwrap().run(|| connected(from, to)).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    stream.set_write_timeout(Some(PATIENCE)).unwrap();
                    connections.push((format!("{host} {number}"), stream));
                }
            }
        }
        connections
    }
}

/// How many of them are alive, which is tried on all of them at once.
fn alive(connections: &[(String, TcpStream)]) -> usize {
    for (_, stream) in connections {
        let mut stream = stream;
        let _ = stream.write_all(b"are you there?");
    }
    let answers = |(_, stream): &&(String, TcpStream)| {
        let mut stream: &TcpStream = stream;
        let mut bytes = [0; 14];
        stream.read_exact(&mut bytes).is_ok() && &bytes == b"are you there?"
    };
    connections.iter().filter(answers).count()
}

const ALL: [&str; 3] = ["inside", "core", "outside"];

impl Cluster {
    /// A node loses power: all its ports, and all that its host keeps in memory.
    fn kill_host(&mut self, node: &'static str) {
        self.plug(node, &ALL, false);
        drop(self.gateways.remove(node));
        // What its programs in the kernel have.
        self.command(node, "rm -r /sys/fs/bpf/tombolo/tombolo@$(stat -Lc %i /proc/self/ns/net)");
    }

    /// A counter of `show fastpath`.
    fn counted_in_kernel(&self, node: &str, name: &str) -> u64 {
        let shown = rows(&self.command(node, &format!("{TOMBOLO} show fastpath --json")));
        let row = shown.iter().find(|row| row["name"] == name);
        row.map_or(0, |row| row["value"].as_str().unwrap().parse().unwrap())
    }

    /// Which slices a node serves, by ranges of slices in the file.
    fn states(&self, node: &str) -> Vec<String> {
        let slices = rows(&self.command(node, &format!("{TOMBOLO} show slices --json")));
        slices.iter().map(|row| row["state"].as_str().unwrap().to_owned()).collect()
    }
}

/// The flows are silent for so long at most, and connections live on.
fn check_all(what: &str, effects: &[Effect], limit: Duration, connections: &[(String, TcpStream)]) {
    report(what, effects);
    for Effect { name, silence, .. } in effects {
        assert!(*silence <= limit, "{what}: {name} was silent for {silence:?}");
    }
    let began = Instant::now();
    let (there, all) = (alive(connections), connections.len());
    eprintln!("{what}: {there} of {all} connections live, after {:?}", began.elapsed());
    assert_eq!(there, all, "{what}");
}

#[test]
fn known_hosts_go_on_when_the_owner_of_their_slices_loses_its_power() {
    if skip_without("known_hosts_go_on_when_the_owner_of_their_slices_loses_its_power", &["bird", "ip"]) {
        return;
    }
    let mut cluster = Cluster::with_copies();
    cluster.wait_for_slices();
    let flows = cluster.subscribers();
    let endpoints = |cluster: &Cluster| -> Vec<SocketAddr> {
        let seen = flows
            .iter()
            .map(|flow| cluster.endpoint(flow, 10).unwrap_or_else(|| panic!("{} gets no answer", flow.name)));
        seen.collect()
    };
    let known = endpoints(&cluster);
    let connections = cluster.connections();
    assert_eq!(alive(&connections), connections.len());
    cluster.wait_for_copies();
    let by_all = vec![true; flows.len()];

    // Its network is gone, and it lives on without.
    let effects = under_load(&mut cluster, &flows, &by_all, |cluster| cluster.plug("n2", &ALL, false));
    assert!(effects.iter().any(|effect| effect.lost > 0), "nothing was lost, so nothing was tried");
    check_all("the owner of a third of the slices is cut off", &effects, SILENCE, &connections);
    // Programs in the kernel act as well.
    let before = cluster.counted_in_kernel("n3", "policy");
    for _ in 0..100 {
        assert_eq!(endpoints(&cluster), known);
    }
    let left = cluster.counted_in_kernel("n3", "policy") - before;
    eprintln!("{left} packets were left to the engine");
    assert!(left < 50, "{left} packets were left to the engine");
    assert_eq!(
        (endpoints(&cluster), cluster.states("n3")),
        (known.clone(), vec!["redirected".to_owned(), "acting".to_owned(), "own".to_owned()])
    );
    let effects = under_load(&mut cluster, &flows, &by_all, |cluster| {
        cluster.plug("n2", &ALL, true);
        cluster.wait_for_all();
    });
    check_all("it comes back with its tables", &effects, RETURN, &connections);
    cluster.wait_for_slices();
    cluster.wait_for_copies();
    assert_eq!(endpoints(&cluster), known);

    // Power is gone, and all that it had.
    let effects = under_load(&mut cluster, &flows, &by_all, |cluster| cluster.kill_host("n2"));
    check_all("the owner loses power", &effects, SILENCE, &connections);
    let effects = under_load(&mut cluster, &flows, &by_all, |cluster| {
        cluster.start("n2");
        cluster.plug("n2", &ALL, true);
        cluster.wait_for_all();
        cluster.wait_for_slices();
    });
    check_all("it comes back without its tables", &effects, RETURN, &connections);
    assert_eq!(
        (endpoints(&cluster), cluster.states("n2")),
        (known, vec!["redirected".to_owned(), "own".to_owned(), "redirected".to_owned()])
    );
    let peers = rows(&cluster.command("n2", &format!("{TOMBOLO} show peers --json")));
    assert!(peers.iter().any(|row| row["returned"].as_u64().unwrap() > 20), "{peers:?}");
    cluster.wait_for_copies();
}

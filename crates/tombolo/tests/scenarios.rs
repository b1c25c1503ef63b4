//! MAP-E, MAP-T and 464XLAT as users run them: hosts behind a customer's edge and a server behind
//! the provider's end, with real traffic between them, in a lab. Needs root and skips loudly
//! without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::{Ipv6MulticastHops, TcpMaxSeg};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, getsockopt, sendto, setsockopt, socket,
};
use tombolo_lab::{Lab, Namespace, Peer, Process, Scenario, skip_without, wait_until};
use tombolo_wire::Pref64Option;

mod names;

use names::Names;

const TOMBOLO: &str = env!("CARGO_BIN_EXE_tombolo");
const PATIENCE: Duration = Duration::from_secs(20);
const SERVER: &str = "198.51.100.2";

struct Setup {
    // Dropped first.
    gateways: Vec<(String, Process)>,
    lab: Lab,
}

impl Setup {
    fn of(scenario: &Scenario) -> Self {
        let lab = Lab::create(&scenario.topology).unwrap();
        let start = |(node, text): &(&str, String)| {
            let text = format!("{}{text}", fast_path());
            let gateway = lab.start_gateway(node, TOMBOLO, &text).unwrap_or_else(|error| panic!("{node}: {error:?}"));
            ((*node).to_owned(), gateway)
        };
        let gateways = scenario.gateways.iter().map(start).collect();
        Self { gateways, lab }
    }

    fn node(&self, name: &str) -> &Namespace {
        self.lab.node(name).unwrap()
    }

    /// Ends a gateway; what it says at its end.
    fn stop(&mut self, node: &str) -> String {
        let place = self.gateways.iter().position(|(name, _)| name == node).unwrap();
        let (_, mut gateway) = self.gateways.remove(place);
        gateway.signal(nix::sys::signal::Signal::SIGTERM).unwrap();
        gateway.wait(PATIENCE).unwrap().success().unwrap().stderr
    }
}

/// Everything has to work with the kernel's fast path as without it.
fn fast_path() -> &'static str {
    if has_fast_path() { "[gateway]\nfastpath = \"tc\"\n\n" } else { "[gateway]\nfastpath = \"off\"\n\n" }
}

fn has_fast_path() -> bool {
    module_path!().ends_with("with_tc")
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Bytes that are the same nowhere else in the stream.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| u8::try_from((n * 31 + n / 251) % 256).unwrap()).collect()
}

/// One echo: of several, ping waits for the last one no longer than twice what the others took.
fn ping(from: &Namespace, arguments: &[&str]) -> String {
    from.command("ping").args(["-c", "1", "-W", "5"]).args(arguments.to_vec()).run().unwrap().stdout
}

#[track_caller]
fn assert_pings(from: &Namespace, arguments: &[&str]) {
    let words = ping(from, arguments);
    assert!(words.contains(" 0% packet loss"), "{words}");
}

/// The length of what comes back. The kernel sends datagrams with DF until it has learned the path
/// MTU, at the price of the first of them on either side.
fn udp_round_trip(from: &Namespace, to: SocketAddr, length: usize) -> Option<usize> {
    let payload = pattern(length);
    let attempt = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        socket.send_to(&payload, to).ok()?;
        let mut answer = vec![0; 65_536];
        let (length, from) = socket.recv_from(&mut answer).ok()?;
        assert_eq!(from, to);
        assert!(answer[..length] == payload, "the datagram of {length} bytes came back different");
        Some(length)
    };
    from.run(|| (0..4).find_map(|_| attempt())).unwrap()
}

fn fetch(from: &Namespace, to: SocketAddr) -> Vec<u8> {
    from.run(|| {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let body = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        answer.split_off(body)
    })
    .unwrap()
}

/// Where a peer has seen its last client; it notes that after it has answered.
#[track_caller]
fn expect_client(peer: &Peer, is_expected: impl Fn(SocketAddr) -> bool) {
    let found = wait_until("the client", PATIENCE, || peer.last_client().filter(|&client| is_expected(client)));
    assert!(found.is_ok(), "the last client was {:?}", peer.last_client());
}

/// Throughput in both directions, with what iperf3 itself verifies.
fn iperf3(from: &Namespace, arguments: &[&str]) {
    let command = from.command("iperf3").args(["-c", SERVER, "-t", "2", "--connect-timeout", "5000"]);
    let output = command.args(arguments.to_vec()).limit(PATIENCE).run().unwrap();
    assert!(output.stdout.contains("receiver"), "{arguments:?}: {}\n{}", output.stdout, output.stderr);
}

/// Hosts agree on TCP segments of `size` bytes, with timestamps, without anybody having to tell
/// them that more do not fit.
fn agree_on_segments(client: &Namespace, server: &Namespace, size: u32) {
    let listener = server.run(|| TcpListener::bind("198.51.100.2:8888").unwrap()).unwrap();
    let connect = || TcpStream::connect_timeout(&address("198.51.100.2:8888"), PATIENCE).unwrap();
    let ends = [client.run(connect).unwrap(), listener.accept().unwrap().0];
    for end in ends {
        assert_eq!(getsockopt(&end, TcpMaxSeg).unwrap(), size);
    }
}

/// What every technology has to carry. `outside` is where the server must see the client.
fn carries_everything(setup: &Setup, outside: &str, overhead: u16, is_own_port: impl Fn(u16) -> bool) {
    let (client, server) = (setup.node("client"), setup.node("server"));
    assert_pings(client, &[SERVER]);
    // 1500 less what the network adds, 40 of headers and 12 of timestamps.
    agree_on_segments(client, server, u32::from(1500 - overhead - 40 - 12));
    let web = Peer::http(server, address("198.51.100.2:80"), pattern(3_000_000)).unwrap();
    for _ in 0..5 {
        assert!(fetch(client, address("198.51.100.2:80")) == pattern(3_000_000));
        expect_client(&web, |seen| seen.ip().to_string().starts_with(outside) && is_own_port(seen.port()));
    }
    let echo = Peer::udp_echo(server, address("198.51.100.2:7")).unwrap();
    for length in [0, 1, 512, 1200, 1472, 5000, 20_000] {
        assert_eq!(udp_round_trip(client, address("198.51.100.2:7"), length), Some(length));
        expect_client(&echo, |seen| seen.ip().to_string().starts_with(outside) && is_own_port(seen.port()));
    }
    let mut iperf = server.command("iperf3").args(["-s", "--forceflush"]).spawn().unwrap();
    iperf.wait_for_text("Server listening", PATIENCE).unwrap();
    iperf3(client, &[]);
    iperf3(client, &["-R"]);
    iperf3(client, &["-u", "-b", "50M"]);
    iperf3(client, &["-u", "-b", "50M", "-R"]);
    traces_the_route(client);
}

/// Each hop answers: the edge, the provider's end, and then the server. Routers without IPv4
/// address count, too.
fn traces_the_route(client: &Namespace) {
    for ttl in 1..10 {
        let words = ping(client, &["-t", &ttl.to_string(), SERVER]);
        if words.contains(" 0% packet loss") {
            // What TC forwards passes one router less at either end.
            let fewest = if has_fast_path() { 2 } else { 3 };
            assert!(ttl >= fewest, "only {} hops on the way", ttl - 1);
            return;
        }
        assert!(words.contains("Time to live exceeded"), "hop {ttl}: {words}");
    }
    panic!("the server is not reached");
}

/// A line that is narrower than both ends think: what is too big is reported, and then fits.
/// `largest_echo` is the largest packet whose echo comes back: a CLAT cannot translate fragments of
/// ICMP (RFC 7915 section 1.2).
fn discovers_the_path_mtu(setup: &Setup, overhead: u16, largest_echo: u16) {
    let (client, cpe, gateway) = (setup.node("client"), setup.node("cpe"), setup.node("gateway"));
    cpe.set_mtu("core0", 1400).unwrap();
    gateway.set_mtu("core0", 1400).unwrap();
    let largest = 1400 - overhead;
    let words = ping(client, &["-M", "do", "-s", &(1460 - 28).to_string(), SERVER]);
    let expected = format!("Frag needed and DF set (mtu = {largest})");
    assert!(words.contains(&expected), "no {expected}: {words}");
    assert_pings(client, &["-M", "do", "-s", &(largest.min(largest_echo) - 28).to_string(), SERVER]);
    let web = Peer::http(setup.node("server"), address("198.51.100.2:8081"), pattern(1_000_000)).unwrap();
    assert!(fetch(client, address("198.51.100.2:8081")) == pattern(1_000_000));
    drop(web);
}

/// True for ports of PSID 0x34 with 6 offset bits and 8 PSID bits.
fn is_of_psid(port: u16, psid: u16) -> bool {
    port >= 1024 && port >> 2 & 0xff == psid
}

fn map_works(name: &str, overhead: u16) {
    if skip_without(name, &["ping", "iperf3"]) {
        return;
    }
    let mut setup = Setup::of(&Scenario::named(name).unwrap());
    carries_everything(&setup, "192.0.2.18", overhead, |port| is_of_psid(port, 0x34));
    uses_every_port_range(&setup);
    reaches_the_neighbour(&setup);
    discovers_the_path_mtu(&setup, overhead, u16::MAX);
    let words = setup.stop("cpe");
    assert!(words.contains("stopped"), "{words}");
}

/// More connections than one range has ports (four): the known defect of other edges.
fn uses_every_port_range(setup: &Setup) {
    let server = setup.node("server").run(|| UdpSocket::bind("198.51.100.2:9").unwrap()).unwrap();
    std::thread::spawn(move || {
        let mut ignored = [0; 16];
        while let Ok((_, client)) = server.recv_from(&mut ignored) {
            let _ = server.send_to(&client.port().to_be_bytes(), client);
        }
    });
    let seen = setup.node("client").run(|| {
        let sockets: Vec<_> = (0..100).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect();
        let mut ports = std::collections::HashSet::new();
        for socket in &sockets {
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket.send_to(b"port", address("198.51.100.2:9")).unwrap();
            let mut answer = [0; 2];
            assert_eq!(socket.recv(&mut answer).unwrap(), 2);
            ports.insert(u16::from_be_bytes(answer));
        }
        ports
    });
    let seen = seen.unwrap();
    assert_eq!(seen.len(), 100);
    assert!(seen.iter().all(|&port| is_of_psid(port, 0x34)), "{seen:?}");
    let ranges: std::collections::HashSet<u16> = seen.iter().map(|port| port >> 10).collect();
    assert!(ranges.len() > 20, "{ranges:?}");
}

/// From edge to edge by the Forwarding Mapping Rules, and to the own address by way of the edge's
/// hairpin.
fn reaches_the_neighbour(setup: &Setup) {
    let neighbour = setup.node("neighbour");
    let web = Peer::http(neighbour, address("10.0.1.2:80"), pattern(500_000)).unwrap();
    assert!(fetch(setup.node("client"), address("192.0.2.19:1236")) == pattern(500_000));
    expect_client(&web, |seen| seen.ip().to_string() == "192.0.2.18" && is_of_psid(seen.port(), 0x34));
    assert!(fetch(setup.node("server"), address("192.0.2.19:1236")) == pattern(500_000));
    expect_client(&web, |seen| seen.ip().to_string() == SERVER);
    assert!(fetch(neighbour, address("192.0.2.19:1236")) == pattern(500_000));
    expect_client(&web, |seen| seen.ip().to_string() == "192.0.2.19");
}

#[test]
fn map_e_carries_ipv4_between_hosts_and_servers() {
    map_works("map-e", 40);
}

#[test]
fn map_t_carries_ipv4_between_hosts_and_servers() {
    map_works("map-t", 20);
}

/// The interface identifiers of draft-ietf-softwire-map-03, at all ends.
#[test]
fn map_e_of_the_third_draft_carries_ipv4() {
    if skip_without("map_e_of_the_third_draft_carries_ipv4", &["ping"]) {
        return;
    }
    let mut scenario = Scenario::named("map-e").unwrap();
    for (_, text) in &mut scenario.gateways {
        *text = text.replace("kind = \"map-e\"", "kind = \"map-e\"\ndraft = 3");
    }
    let setup = Setup::of(&scenario);
    assert_pings(setup.node("client"), &[SERVER]);
    reaches_the_neighbour(&setup);
    let routes = setup.node("cpe").command("ip").args(["-6", "route", "show", "proto", "84"]).run().unwrap().stdout;
    assert!(routes.contains("2001:db8:4612:3400:c0:2:1200:3400"), "{routes}");
}

/// Without Forwarding Mapping Rules what is for the neighbour goes through the relay, and turns
/// round there.
fn hub_and_spoke_works(name: &str) {
    let test = format!("{name} hub and spoke");
    if skip_without(&test, &["ping"]) {
        return;
    }
    let mut scenario = Scenario::named(name).unwrap();
    for (_, text) in &mut scenario.gateways {
        *text = text.replace(", forwarding = true", "");
    }
    let setup = Setup::of(&scenario);
    reaches_the_neighbour(&setup);
    assert_pings(setup.node("neighbour"), &[SERVER]);
}

#[test]
fn map_e_subscribers_reach_each_other_through_the_relay() {
    hub_and_spoke_works("map-e");
}

#[test]
fn map_t_subscribers_reach_each_other_through_the_relay() {
    hub_and_spoke_works("map-t");
}

/// The kernel's NAPT in front of our edge, which only checks what it is given.
fn kernel_napt_works(name: &str) {
    let test = format!("{name} behind nftables");
    if skip_without(&test, &["ping", "iperf3", "nft"]) {
        return;
    }
    let mut scenario = Scenario::named(name).unwrap();
    let (_, text) = scenario.gateways.iter_mut().find(|(node, _)| *node == "cpe").unwrap();
    *text = text.replace("inside = [\"10.0.0.0/24\"]", "napt = false");
    let setup = Setup::of(&scenario);
    // One range of the set is all that a rule of nftables can name.
    let rules = "table ip edge {\n chain out {\n type nat hook postrouting priority srcnat;\n\
                 oifname \"tombolo\" ip protocol { tcp, udp, icmp } snat to 192.0.2.18:1232-1235\n }\n}\n";
    setup.node("cpe").command("nft").args(["-f", "-"]).stdin(rules).run().unwrap().success().unwrap();
    let (client, server) = (setup.node("client"), setup.node("server"));
    assert_pings(client, &[SERVER]);
    let web = Peer::http(server, address("198.51.100.2:80"), pattern(1_000_000)).unwrap();
    assert!(fetch(client, address("198.51.100.2:80")) == pattern(1_000_000));
    expect_client(&web, |seen| seen.ip().to_string() == "192.0.2.18" && (1232..=1235).contains(&seen.port()));
    let _echo = Peer::udp_echo(server, address("198.51.100.2:7")).unwrap();
    assert_eq!(udp_round_trip(client, address("198.51.100.2:7"), 5000), Some(5000));
}

#[test]
fn map_e_works_behind_the_napt_of_the_kernel() {
    kernel_napt_works("map-e");
}

#[test]
fn map_t_works_behind_the_napt_of_the_kernel() {
    kernel_napt_works("map-t");
}

#[test]
fn a_clat_and_a_nat64_carry_ipv4_between_hosts_and_servers() {
    if skip_without("a_clat_and_a_nat64_carry_ipv4_between_hosts_and_servers", &["ping", "iperf3"]) {
        return;
    }
    let setup = Setup::of(&Scenario::named("464xlat").unwrap());
    carries_everything(&setup, "192.0.2.", 20, |port| port >= 1024);
    discovers_the_path_mtu(&setup, 20, 1260);
    assert_pings(setup.node("client"), &["2001:db8:2::2"]);
}

#[test]
fn a_clat_finds_its_prefix_by_dns_and_serves_its_own_host() {
    if skip_without("a_clat_finds_its_prefix_by_dns_and_serves_its_own_host", &["ping"]) {
        return;
    }
    let scenario = Scenario::named("464xlat").unwrap();
    let lab = Lab::create(&scenario.topology).unwrap();
    let cpe = lab.node("cpe").unwrap();
    let text = "[[service]]\nkind = \"clat\"\nprefix = \"auto\"\nwell_known_prefix_strict = false\nhost = \"192.0.0.1\"\n\
                eam = [{ ipv4 = \"10.0.0.0/24\", ipv6 = \"2001:db8:464::a00:0/120\" }, \
                { ipv4 = \"192.0.0.1\", ipv6 = \"2001:db8:464::1\" }]\n";
    let plat = scenario.gateways[0].1.replace("64:ff9b::/96", "2001:db8:64::/96");
    let _plat = lab.start_gateway("gateway", TOMBOLO, &plat).unwrap();
    // It waits until somebody knows one, and says so; its hosts are told at once.
    let mut clat = lab.start_gateway("cpe", TOMBOLO, text).unwrap();
    let waiting = clat.log_tail(30);
    assert!(waiting.contains("ipv4only.arpa") && waiting.contains("/etc/resolv.conf"), "{waiting}");
    let status = || cpe.command(TOMBOLO).args(["show", "status"]).run().unwrap().success().unwrap().stdout;
    let says = wait_until("it says what it waits for", PATIENCE, || {
        let status = status();
        (status.contains("degraded") && status.contains("waits for the prefix of its PLAT")).then_some(())
    });
    assert!(says.is_ok(), "{}\n{}", status(), clat.log_tail(30));
    let refused = ping(lab.node("client").unwrap(), &[SERVER]);
    assert!(refused.contains("100% packet loss") && refused.contains("+1 errors"), "{refused}");
    let names = Names::serve(cpe);
    names.set("ipv4only.arpa", &["2001:db8:64::c000:aa", "2001:db8:64::c000:ab"]);
    clat.wait_for_text("2001:db8:64::/96", PATIENCE).unwrap();
    wait_until("it is as it should be", PATIENCE, || status().contains("ready").then_some(())).unwrap();
    assert_pings(lab.node("client").unwrap(), &[SERVER]);
    // The CLAT's own host has IPv4, too (RFC 7335).
    assert_pings(cpe, &["-I", "192.0.0.1", SERVER]);
    assert_pings(cpe, &[SERVER]);
}

/// A router that answers solicitations, and speaks up unasked ten times a second, with a prefix for
/// NAT64. It ends when it is dropped.
struct Router {
    prefix: Arc<Mutex<Pref64Option>>,
    ends: Arc<AtomicBool>,
}

impl Router {
    fn start(namespace: &Namespace, interface: &'static str, prefix: &str) -> Self {
        let option = |prefix: &str| Pref64Option { prefix: prefix.parse().unwrap(), lifetime: 600 };
        let router = Self { prefix: Arc::new(Mutex::new(option(prefix))), ends: Arc::default() };
        let (socket, all_nodes) = namespace
            .run(|| {
                let socket =
                    socket(AddressFamily::Inet6, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::IcmpV6).unwrap();
                setsockopt(&socket, Ipv6MulticastHops, &255).unwrap();
                let index = nix::net::if_::if_nametoindex(interface).unwrap();
                (socket, SockaddrIn6::from(SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, index)))
            })
            .unwrap();
        let (prefix, ends) = (Arc::clone(&router.prefix), Arc::clone(&router.ends));
        std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                // No default router, no hop limit: only the option.
                let mut message = vec![134, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                message.extend(prefix.lock().unwrap().emit());
                sendto(socket.as_raw_fd(), &message, &all_nodes, MsgFlags::empty()).unwrap();
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        router
    }

    fn lives_for(&self, seconds: u16) {
        self.prefix.lock().unwrap().lifetime = seconds;
    }

    fn advertise(&self, prefix: &str) {
        self.prefix.lock().unwrap().prefix = prefix.parse().unwrap();
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_clat_follows_the_prefix_that_routers_advertise() {
    if skip_without("a_clat_follows_the_prefix_that_routers_advertise", &["ping"]) {
        return;
    }
    let scenario = Scenario::named("464xlat").unwrap();
    let lab = Lab::create(&scenario.topology).unwrap();
    // Behind the uplink only: what a host inside advertises is nothing to the CLAT.
    let _liar = Router::start(lab.node("client").unwrap(), "inside0", "2001:db8:bad::/96");
    let router = Router::start(lab.node("gateway").unwrap(), "core0", "2001:db8:64::/96");
    let plat = |prefix: &str| scenario.gateways[0].1.replace("64:ff9b::/96", prefix);
    let first = lab.start_gateway("gateway", TOMBOLO, &plat("2001:db8:64::/96")).unwrap();
    let text = scenario.gateways[1].1.replace("\"64:ff9b::/96\"", "\"auto\"");
    let mut clat = lab.start_gateway("cpe", TOMBOLO, &text).unwrap();
    let log = clat.log_tail(30);
    assert!(log.contains("2001:db8:64::/96") && log.contains("router advertisement"), "{log}");
    assert_pings(lab.node("client").unwrap(), &[SERVER]);

    drop(first);
    let _second = lab.start_gateway("gateway", TOMBOLO, &plat("2001:db8:65::/96")).unwrap();
    router.advertise("2001:db8:65::/96");
    clat.wait_for_text("2001:db8:65::/96", PATIENCE).unwrap();
    wait_until("the new prefix", PATIENCE, || {
        ping(lab.node("client").unwrap(), &[SERVER]).contains(" 0% packet loss").then_some(())
    })
    .unwrap();
    assert!(!clat.log_tail(60).contains("2001:db8:bad::"), "{}", clat.log_tail(60));

    // The routers take it back: nothing is sent to where no PLAT is. It comes again, within five seconds.
    let pings = || ping(lab.node("client").unwrap(), &["-W", "0.5", SERVER]).contains(" 0% packet loss");
    router.lives_for(0);
    let began = Instant::now();
    clat.wait_for_text("waits for the prefix of its PLAT", PATIENCE).unwrap();
    println!("the prefix was out of use after {:?}", began.elapsed());
    assert!(!pings());
    router.lives_for(600);
    let began = Instant::now();
    wait_until("the prefix is back", PATIENCE, || pings().then_some(())).unwrap();
    println!("the prefix was used again after {:?}", began.elapsed());
}

#[test]
fn a_scenario_goes_up_by_its_name_and_down() {
    if skip_without("a_scenario_goes_up_by_its_name_and_down", &["ping", "ip"]) {
        return;
    }
    let name = format!("scenario{}", std::process::id());
    let run = |arguments: &[&str]| std::process::Command::new(TOMBOLO).args(arguments).output().unwrap();
    let up = run(&["lab", "up", "map-t", "--as", &name]);
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let client = format!("tombolo-{name}-client");
    let ping = std::process::Command::new("ip").args(["netns", "exec", &client, "ping", "-c", "1", SERVER]).output();
    let ping = ping.unwrap();
    let down = run(&["lab", "down", &name]);
    assert!(ping.status.success(), "{ping:?}");
    assert!(down.status.success(), "{down:?}");
    assert!(!std::path::Path::new("/run/netns").join(client).exists());
}

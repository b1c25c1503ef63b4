//! DS-Lite and Lightweight 4over6 as users run them: homes with the same private addresses behind
//! their ends, a server behind the provider's, with real traffic between them, in a lab. Needs root
//! and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::socket::{getsockopt, sockopt::TcpMaxSeg};
use tombolo_lab::{Lab, Namespace, Peer, Process, Scenario, skip_without, wait_until};

const TOMBOLO: &str = env!("CARGO_BIN_EXE_tombolo");
const PATIENCE: Duration = Duration::from_secs(20);
const SERVER: &str = "198.51.100.2";
const TOOLS: &[&str] = &["ping", "iperf3", "traceroute", "ip"];

struct Setup {
    // Dropped first.
    gateways: Vec<(String, Process)>,
    lab: Lab,
}

impl Setup {
    /// The scenario of that name, without the gateways in `except`.
    fn of(name: &str, except: &[&str]) -> Self {
        let scenario = Scenario::named(name).unwrap();
        let lab = Lab::create(&scenario.topology).unwrap();
        let wanted = scenario.gateways.iter().filter(|(node, _)| !except.contains(node));
        let start = |(node, text): &(&str, String)| {
            let text = format!("{}{text}", fast_path());
            let gateway = lab.start_gateway(node, TOMBOLO, &text).unwrap_or_else(|error| panic!("{node}: {error:?}"));
            ((*node).to_owned(), gateway)
        };
        let gateways = wanted.map(start).collect();
        Self { gateways, lab }
    }

    fn node(&self, name: &str) -> &Namespace {
        self.lab.node(name).unwrap()
    }

    fn gateway(&mut self, node: &str) -> &mut Process {
        &mut self.gateways.iter_mut().find(|(name, _)| name == node).unwrap().1
    }

    /// Ends a gateway; what it says at its end.
    fn stop(&mut self, node: &str) -> String {
        let place = self.gateways.iter().position(|(name, _)| name == node).unwrap();
        let (_, mut gateway) = self.gateways.remove(place);
        gateway.signal(Signal::SIGTERM).unwrap();
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
    let command = from.command("ping").args(["-n", "-c", "1", "-W", "5"]).args(arguments.to_vec());
    let output = command.run().unwrap();
    output.stdout + &output.stderr
}

#[track_caller]
fn assert_pings(from: &Namespace, arguments: &[&str]) {
    let words = ping(from, arguments);
    assert!(words.contains(" 0% packet loss"), "{words}");
}

/// Sends a datagram of `length` bytes to an echo; true if the same comes back. Linux sets DF, so
/// the first one may only bring the path MTU home, in either direction: then it is sent again, as
/// any application of UDP would.
fn udp_round_trip(from: &Namespace, to: SocketAddr, length: usize) -> bool {
    let payload = pattern(length);
    from.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut answer = vec![0; 65_536];
        (0..4).any(|_| {
            socket.send_to(&payload, to).unwrap();
            socket.recv_from(&mut answer).is_ok_and(|(length, from)| from == to && answer[..length] == payload)
        })
    })
    .unwrap()
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

/// A stream of iperf3, which has to arrive. Gives the share of it that did, of datagrams.
fn iperf3(from: &Namespace, arguments: &[&str]) {
    let command = from.command("iperf3").args(["-c", SERVER, "-t", "1", "--connect-timeout", "5000"]);
    let output = command.args(arguments.to_vec()).limit(PATIENCE).run().unwrap();
    let line = output.stdout.lines().find(|line| line.contains("receiver")).unwrap_or_default();
    let carried = !line.is_empty() && !line.contains(" 0.00 Bytes");
    assert!(carried, "{arguments:?}: {}\n{}", output.stdout, output.stderr);
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

/// What every softwire has to carry. `is_own` says where the server may see the client.
fn carries_everything(setup: &Setup, from: &str, is_own: impl Fn(SocketAddr) -> bool) {
    let (client, server) = (setup.node(from), setup.node("server"));
    assert_pings(client, &[SERVER]);
    // The softwire's 1460 less 40 of headers and 12 of timestamps.
    agree_on_segments(client, server, 1408);
    let web = Peer::http(server, address("198.51.100.2:80"), pattern(3_000_000)).unwrap();
    for _ in 0..3 {
        assert!(fetch(client, address("198.51.100.2:80")) == pattern(3_000_000));
        let seen = web.last_client().unwrap();
        assert!(is_own(seen), "{seen}");
    }
    let echo = Peer::udp_echo(server, address("198.51.100.2:7")).unwrap();
    // The last three are fragments, within IPv4 and around the softwire.
    for length in [0, 1, 512, 1432, 1472, 5000, 20_000] {
        assert!(udp_round_trip(client, address("198.51.100.2:7"), length), "{length} bytes");
        let seen = echo.last_client().unwrap();
        assert!(is_own(seen), "{seen}");
    }
    let mut iperf = server.command("iperf3").args(["-s", "--forceflush"]).spawn().unwrap();
    iperf.wait_for_text("Server listening", PATIENCE).unwrap();
    iperf3(client, &[]);
    iperf3(client, &["-R"]);
    iperf3(client, &["-u", "-b", "50M"]);
    iperf3(client, &["-u", "-b", "50M", "-R"]);
}

/// What the hops say, from the first on, until the server is reached.
fn hops(from: &Namespace) -> Vec<String> {
    let command = from.command("traceroute").args(["-n", "-q", "1", "-w", "5,0,0", "-m", "8", SERVER]);
    let text = command.run().unwrap().success().unwrap().stdout;
    let hops = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
    hops.map(str::to_owned).collect()
}

/// A line that is narrower than both ends think: what is too big is reported, and then fits. Both
/// ways.
fn discovers_the_path_mtu(setup: &Setup) {
    let client = setup.node("client");
    // The softwire itself, as configured.
    let tells = |told: &str, mtu| told.contains(&format!("mtu={mtu}")) || told.contains(&format!("(mtu = {mtu})"));
    let told = ping(client, &["-M", "do", "-s", "1433", SERVER]);
    assert!(tells(&told, 1460), "{told}");
    assert_pings(client, &["-M", "do", "-s", "1432", SERVER]);
    // A router on the way has less.
    setup.node("gateway").set_mtu("core0", 1400).unwrap();
    setup.node("cpe").set_mtu("core0", 1400).unwrap();
    let learned = wait_until("the path MTU", PATIENCE, || {
        tells(&ping(client, &["-M", "do", "-s", "1432", SERVER]), 1360).then_some(())
    });
    learned.unwrap();
    assert_pings(client, &["-M", "do", "-s", "1332", SERVER]);
    // Nobody can be told about what may be fragmented: each end learns of the path and cuts to it.
    for size in ["1432", "5000"] {
        let crosses = || ping(client, &["-M", "dont", "-s", size, SERVER]).contains(" 0% packet loss").then_some(());
        wait_until(&format!("{size} bytes over the smaller path"), PATIENCE, crosses).unwrap();
    }
    // The server learns it too: what it sends is too big on the gateway's line.
    let _web = Peer::http(setup.node("server"), address("198.51.100.2:80"), pattern(300_000)).unwrap();
    assert!(fetch(client, address("198.51.100.2:80")) == pattern(300_000));
}

#[test]
fn homes_with_the_same_addresses_reach_a_server_through_ds_lite() {
    if skip_without("homes_with_the_same_addresses_reach_a_server_through_ds_lite", TOOLS) {
        return;
    }
    let mut setup = Setup::of("ds-lite", &[]);
    let is_own = |seen: SocketAddr| seen.ip().to_string().starts_with("192.0.2.") && seen.port() >= 1024;
    carries_everything(&setup, "client", is_own);
    carries_everything(&setup, "neighbour", is_own);
    // By the fast path and by the engine alike.
    let found = hops(setup.node("client"));
    assert_eq!(found, ["10.0.0.1", "192.0.0.2", "192.0.0.1", "198.51.100.1", SERVER]);
    discovers_the_path_mtu(&setup);
    // The tunnel addresses answer.
    assert_pings(setup.node("cpe"), &["2001:db8:ffff::1"]);
    assert_pings(setup.node("gateway"), &["-s", "3000", "2001:db8:1000:200::b4"]);
    for node in ["cpe", "cpe2", "gateway"] {
        let words = setup.stop(node);
        assert!(!words.contains("no-headroom") && !words.contains("malformed"), "{node}: {words}");
    }
}

/// Starts the AFTR of the scenario with other ways to hand out its pool.
fn start_aftr(setup: &mut Setup, settings: &str) {
    let text = format!(
        "{}[[service]]\nkind = \"aftr\"\naddress = \"2001:db8:ffff::1\"\nb4s = [\"2001:db8:1000::/36\"]\n\
         pool = [{{ addresses = \"192.0.2.0/28\", ports = \"1024-65535\" }}]\n{settings}",
        fast_path()
    );
    let gateway = setup.lab.start_gateway("gateway", TOMBOLO, &text).unwrap();
    setup.gateways.push(("gateway".to_owned(), gateway));
}

/// The endpoints that the server sees `from` at, over ten connections.
fn seen_at_the_server(setup: &Setup, from: &str) -> Vec<SocketAddr> {
    let web = Peer::http(setup.node("server"), address("198.51.100.2:80"), pattern(1000)).unwrap();
    let seen = |_| {
        assert!(fetch(setup.node(from), address("198.51.100.2:80")) == pattern(1000));
        web.last_client().unwrap()
    };
    (0..10).map(seen).collect()
}

#[test]
fn an_aftr_hands_out_blocks_and_shares_and_serves_homes_from_outside() {
    if skip_without("an_aftr_hands_out_blocks_and_shares_and_serves_homes_from_outside", TOOLS) {
        return;
    }
    let mut setup = Setup::of("ds-lite", &["gateway"]);
    start_aftr(
        &mut setup,
        "allocation = { mode = \"blocks\", block_size = 256, blocks = 1 }\n\
         static = [{ softwire = \"2001:db8:1000:200::b4\", inside = \"10.0.0.2:80\", outside = \"192.0.2.1:80\", \
         protocol = \"tcp\" }]\n",
    );
    // One block each, and each its own.
    let blocks = |seen: Vec<SocketAddr>| {
        let mut blocks: Vec<_> = seen.iter().map(|end| (end.ip(), end.port() / 256)).collect();
        blocks.dedup();
        assert_eq!(blocks.len(), 1, "{seen:?}");
        blocks[0]
    };
    let client = blocks(seen_at_the_server(&setup, "client"));
    assert_ne!(client, blocks(seen_at_the_server(&setup, "neighbour")));

    // A server in the second home; the first home has the same addresses.
    let home = Peer::http(setup.node("neighbour"), address("10.0.0.2:80"), pattern(100_000)).unwrap();
    assert!(fetch(setup.node("server"), address("192.0.2.1:80")) == pattern(100_000));
    assert_eq!(home.last_client().unwrap().ip(), address(&format!("{SERVER}:0")).ip());
    assert!(fetch(setup.node("client"), address("192.0.2.1:80")) == pattern(100_000));
    assert_eq!(home.last_client().map(|end| (end.ip(), end.port() / 256)), Some(client));
    drop(home);
    setup.stop("gateway");

    // 256 prefixes on 16 addresses: 16 each, with 4032 ports each.
    start_aftr(&mut setup, "allocation = { mode = \"deterministic\", inside = \"2001:db8:1000::/48\" }\n");
    for (home, number) in [("client", 1), ("neighbour", 2)] {
        let first = 1024 + 4032 * number;
        for seen in seen_at_the_server(&setup, home) {
            assert_eq!(seen.ip(), address("192.0.2.0:0").ip(), "{home}");
            assert!((first..first + 4032).contains(&seen.port()), "{home}: {seen}, not from {first} on");
        }
    }
    setup.stop("gateway");
}

#[test]
fn homes_share_an_address_through_lightweight_4over6() {
    if skip_without("homes_share_an_address_through_lightweight_4over6", TOOLS) {
        return;
    }
    let mut setup = Setup::of("lw4o6", &[]);
    let own = |first: u16| {
        move |seen: SocketAddr| seen.ip().to_string() == "192.0.2.10" && (first..first + 1024).contains(&seen.port())
    };
    carries_everything(&setup, "client", own(4096));
    carries_everything(&setup, "neighbour", own(5120));
    let found = hops(setup.node("client"));
    assert_eq!(found.last().map(String::as_str), Some(SERVER), "{found:?}");
    let hops = if has_fast_path() { 3..=5 } else { 5..=5 };
    assert!(!found.contains(&"*".to_owned()) && hops.contains(&found.len()), "{found:?}");

    // A server at home, from outside and from the other home, which has the same public address.
    let home = Peer::http(setup.node("neighbour"), address("10.0.0.2:80"), pattern(100_000)).unwrap();
    assert!(fetch(setup.node("server"), address("192.0.2.10:5200")) == pattern(100_000));
    assert_eq!(home.last_client().unwrap().ip(), address("198.51.100.2:0").ip());
    assert!(fetch(setup.node("client"), address("192.0.2.10:5200")) == pattern(100_000));
    assert!(own(4096)(home.last_client().unwrap()), "{:?}", home.last_client());
    discovers_the_path_mtu(&setup);
    for node in ["cpe", "cpe2", "gateway"] {
        let words = setup.stop(node);
        assert!(!words.contains("no-headroom") && !words.contains("malformed"), "{node}: {words}");
    }
}

#[test]
fn an_edge_of_map_e_and_its_relay_find_out_the_path_mtu() {
    if skip_without("an_edge_of_map_e_and_its_relay_find_out_the_path_mtu", TOOLS) {
        return;
    }
    discovers_the_path_mtu(&Setup::of("map-e", &[]));
}

/// The longest frame that arrives at an interface while something is done.
fn longest_frame(at: &Namespace, interface: &str, action: impl FnOnce()) -> usize {
    let frames = at.frames(interface).unwrap();
    action();
    let mut buffer = vec![0; 70_000];
    std::iter::from_fn(|| frames.receive(&mut buffer)).max().unwrap()
}

/// Each segment that entered singly is in the stream, once and in its place: what the hosts compare.
#[test]
fn segments_out_of_a_softwire_arrive_as_super_packets() {
    if skip_without("segments_out_of_a_softwire_arrive_as_super_packets", TOOLS) {
        return;
    }
    for name in ["ds-lite", "lw4o6", "map-e"] {
        let setup = Setup::of(name, &[]);
        let (client, server) = (setup.node("client"), setup.node("server"));
        let _web = Peer::http(server, address("198.51.100.2:80"), pattern(20_000_000)).unwrap();
        let download = || assert!(fetch(client, address("198.51.100.2:80")) == pattern(20_000_000));
        assert!(longest_frame(client, "inside0", download) > 2 * 1514, "{name}");
        let mut iperf = server.command("iperf3").args(["-s", "--forceflush"]).spawn().unwrap();
        iperf.wait_for_text("Server listening", PATIENCE).unwrap();
        assert!(longest_frame(server, "outside0", || iperf3(client, &[])) > 2 * 1514, "{name}");
    }
}

#[test]
fn a_table_of_softwires_is_read_again_without_losing_a_packet() {
    if skip_without("a_table_of_softwires_is_read_again_without_losing_a_packet", TOOLS) {
        return;
    }
    let mut setup = Setup::of("lw4o6", &["gateway"]);
    let directory = setup.lab.directory().unwrap();
    let first = "2001:db8:1000:100:0:c000:20a:4,192.0.2.10,0,6,4\n";
    let second = "2001:db8:1000:200:0:c000:20a:5,192.0.2.10,0,6,5,2001:db8:ffff::1\n";
    // As one replaces a file that others read: whole.
    let write = |text: String| {
        let new = directory.join("softwires.new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, directory.join("softwires.csv")).unwrap();
    };
    write(format!("# of two homes\n{first}"));
    let text = "[[service]]\nkind = \"lwaftr\"\naddresses = [\"2001:db8:ffff::1\"]\nipv4 = [\"192.0.2.0/28\"]\n\
                softwires_file = \"softwires.csv\"\n";
    let gateway = setup.lab.start_gateway("gateway", TOMBOLO, text).unwrap();
    setup.gateways.push(("gateway".to_owned(), gateway));
    assert_pings(setup.node("client"), &[SERVER]);
    assert!(ping(setup.node("neighbour"), &["-W", "1", SERVER]).contains("100% packet loss"));

    // A ping every 10 ms from the first home, while the second is added.
    let flood = setup.node("client").command("ping").args(["-n", "-i", "0.01", "-c", "300", "-W", "5", SERVER]);
    let mut flood = flood.spawn().unwrap();
    flood.wait_for_text("bytes from", PATIENCE).unwrap();
    for _ in 0..5 {
        write(format!("{first}{second}"));
        setup.gateway("gateway").signal(Signal::SIGHUP).unwrap();
    }
    setup.gateway("gateway").wait_for_text("configuration reloaded", PATIENCE).unwrap();
    wait_until("the second home", PATIENCE, || {
        ping(setup.node("neighbour"), &[SERVER]).contains(" 0% packet loss").then_some(())
    })
    .unwrap();
    let words = flood.wait(PATIENCE).unwrap().success().unwrap().stdout;
    assert!(words.contains("300 packets transmitted, 300 received"), "{words}");

    // A mistake keeps the table that is in force.
    write(format!("{first}{first}"));
    setup.gateway("gateway").signal(Signal::SIGHUP).unwrap();
    setup.gateway("gateway").wait_for_text("has the same address and port set as line 1", PATIENCE).unwrap();
    assert_pings(setup.node("neighbour"), &[SERVER]);
}

/// The kernel's own B4 in front of our AFTR, where the kernel has one.
#[test]
fn a_kernel_tunnel_is_served_by_the_aftr() {
    const NAME: &str = "a_kernel_tunnel_is_served_by_the_aftr";
    if skip_without(NAME, TOOLS) {
        return;
    }
    let setup = Setup::of("ds-lite", &["cpe"]);
    let cpe = setup.node("cpe");
    let ip = |arguments: &str| cpe.command("ip").args(arguments.split(' ')).run().unwrap();
    ip("addr add 2001:db8:1000:100::b4/128 dev core0").success().unwrap();
    let tunnel =
        "link add dslite type ip6tnl mode ipip6 local 2001:db8:1000:100::b4 remote 2001:db8:ffff::1 encaplimit none";
    let made = ip(tunnel);
    let reason = made.stderr.trim().to_owned();
    if made.success().is_err() {
        // Past the test harness's capture, so that skips can be counted.
        let line = format!("SKIP: {NAME}: this kernel has no ip6_tunnel ({reason}); fix: modprobe ip6_tunnel\n");
        drop(std::io::stderr().write_all(line.as_bytes()));
        return;
    }
    ip("link set dslite up mtu 1460").success().unwrap();
    ip("route add default dev dslite").success().unwrap();
    let is_own = |seen: SocketAddr| seen.ip().to_string().starts_with("192.0.2.");
    carries_everything(&setup, "client", is_own);
}

//! Links of different MTUs on both sides of SIIT, NAT64 and CLAT: what the hosts find out about the
//! path, TCP that has nothing else to go by, datagrams in fragments, traceroute; and captures in
//! which tshark finds nothing wrong. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use tombolo_lab::{Capture, Lab, Peer, Process, Topology, skip_without, wait_until};

const TOMBOLO: &str = env!("CARGO_BIN_EXE_tombolo");
const PATIENCE: Duration = Duration::from_secs(20);
const TOOLS: [&str; 7] = ["ip", "ping", "traceroute", "tracepath", "tcpdump", "tshark", "ethtool"];

/// Without clamping, so that TCP has to find out.
const SIIT: &str = r#"
[[service]]
kind = "siit"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
eam = [{ ipv4 = "192.0.2.2", ipv6 = "2001:db8:1::2" }]
tcp_mss = "off"
"#;

const NAT64: &str = r#"
[[service]]
kind = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
pool = [{ addresses = "192.0.2.0/28" }]
static = [{ inside = "[INSIDE]:5000", outside = "192.0.2.1:5000", protocol = "tcp" }]
tcp_mss = "off"
"#;

const NAT44: &str = r#"
[[service]]
kind = "nat44"
inside = ["10.0.0.0/24"]
pool = [{ addresses = "192.0.2.1" }]
static = [
    { inside = "10.0.0.2:5000", outside = "192.0.2.1:5000", protocol = "tcp" },
    { inside = "10.0.0.2:53", outside = "192.0.2.1:53", protocol = "udp" },
]
tcp_mss = "off"
"#;

const CLAT: &str = r#"
[[service]]
kind = "clat"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
eam = [{ ipv4 = "10.0.0.2", ipv6 = "2001:db8:464::2" }]
tcp_mss = "off"
"#;

fn shell(lab: &Lab, node: &str, command: &str) -> String {
    let mut words = command.split_ascii_whitespace();
    let command = lab.node(node).unwrap().command(words.next().unwrap()).args(words).limit(Duration::from_secs(60));
    let output = command.run().unwrap();
    format!("{}{}", output.stdout, output.stderr)
}

/// A lab with these MTUs, in which no checksum is left to a card that is none: captures show what a
/// wire would.
fn lab(topology: &Topology, mtus: &[(&str, u32)]) -> Lab {
    let lab = Lab::create(topology).unwrap();
    for link in &topology.links {
        for end in &link.ends {
            let node = lab.node(&end.node).unwrap();
            if let Some((_, mtu)) = mtus.iter().find(|(interface, _)| *interface == end.interface) {
                node.set_mtu(&end.interface, *mtu).unwrap();
            }
            shell(&lab, &end.node, &format!("ethtool -K {} tx off tso off gso off gro off", end.interface));
        }
    }
    for node in &topology.nodes {
        // Every probe of a traceroute is to be answered.
        let node = lab.node(&node.name).unwrap();
        for (key, value) in [("net.ipv4.icmp_ratelimit", "0"), ("net.ipv6.icmp.ratelimit", "0")] {
            node.set_sysctl(key, value).unwrap();
        }
    }
    lab
}

fn start(lab: &Lab, node: &str, configuration: &str) -> Process {
    let file = lab.directory().unwrap().join(format!("{node}.toml"));
    fs::write(&file, configuration).unwrap();
    let command = lab.node(node).unwrap().command(TOMBOLO).args(["run", "-c"]).arg(file.display().to_string());
    let mut gateway = command.spawn().unwrap();
    gateway.wait_for_text("ready", PATIENCE).unwrap();
    gateway
}

/// Captures of a node's interfaces, to be looked through at the end.
struct Captures(Vec<Capture>);

impl Captures {
    fn start(lab: &Lab, places: &[(&str, &str)]) -> Self {
        let capture = |(node, interface): &(&str, &str)| {
            let file = lab.directory().unwrap().join(format!("{node}-{interface}.pcap"));
            lab.node(node).unwrap().capture(interface, &file, "ip or ip6").unwrap()
        };
        Self(places.iter().map(capture).collect())
    }

    fn assert_clean(self) {
        for capture in self.0 {
            let file = capture.finish().unwrap();
            // Linux, where no card does it, writes 0xffff for a TCP checksum of 0
            // (skb_checksum_help); tshark objects.
            let bad =
                tshark(&file, "(_ws.malformed or _ws.expert.group == \"Checksum\") and not tcp.checksum == 0xffff");
            assert_eq!(bad, "", "{}", file.display());
            assert!(tshark(&file, "ip or ipv6").lines().count() > 20, "{} has next to nothing in it", file.display());
        }
    }
}

fn tshark(file: &PathBuf, filter: &str) -> String {
    let checks = ["ip", "tcp", "udp"].map(|protocol| format!("-o{protocol}.check_checksum:TRUE"));
    // What applications might mean by the bytes is not the translator's business.
    let plain = ["-d", "tcp.port==1-65535,data", "-d", "udp.port==1-65535,data"];
    let mut command = std::process::Command::new("tshark");
    command.arg("-r").arg(file).args(checks).args(plain).args(["-Y", filter]);
    let output = command.output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn socket(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A megabyte there and back.
fn tcp(lab: &Lab, from: &str, to: &str, at: &str, listen: &str) {
    const BYTES: usize = 1_000_000;
    let (to, listen) = (socket(to), socket(listen));
    let (ready, is_ready) = std::sync::mpsc::channel();
    let server = lab.node(at).unwrap().spawn(move || {
        let listener = TcpListener::bind(listen).unwrap();
        ready.send(()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = vec![0; BYTES];
        stream.read_exact(&mut received).unwrap();
        stream.write_all(&received).unwrap();
    });
    let server = server.unwrap();
    is_ready.recv_timeout(PATIENCE).unwrap();
    let sent: Vec<u8> = (0..BYTES).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let back = lab.node(from).unwrap().run(|| {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&sent).unwrap();
        let mut back = vec![0; BYTES];
        stream.read_exact(&mut back).unwrap();
        back
    });
    assert!(back.unwrap() == sent);
    server.join().unwrap().unwrap();
}

/// Datagrams of many sizes there and back. What the path does not take whole may be lost until the
/// host knows.
fn udp(lab: &Lab, from: &str, to: &str, at: &str, listen: &str) {
    let _echo = Peer::udp_echo(lab.node(at).unwrap(), socket(listen)).unwrap();
    for length in [1, 1200, 1232, 1233, 1252, 1372, 1452, 1472, 3000, 20_000] {
        let payload = vec![0x42; length];
        let to = socket(to);
        let exchange = || {
            lab.node(from)
                .unwrap()
                .run(|| {
                    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).unwrap();
                    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                    // The host may have learned that the path is narrower than the packet.
                    socket.send_to(&payload, to).ok()?;
                    let mut answer = vec![0; 65_536];
                    let (received, _) = socket.recv_from(&mut answer).ok()?;
                    (answer[..received] == payload).then_some(())
                })
                .unwrap()
        };
        wait_until(&format!("{length} bytes are echoed to {from}"), PATIENCE, exchange).unwrap();
    }
}

/// What a host finds out by packets that may not be fragmented.
fn path_mtu(lab: &Lab, from: &str, to: &str) -> u32 {
    let family = if to.contains(':') { "-6" } else { "-4" };
    let found = shell(lab, from, &format!("tracepath {family} -n -m 12 {to}"));
    let resume = found.lines().find(|line| line.contains("Resume: pmtu")).unwrap_or_else(|| panic!("{found}"));
    assert!(resume.contains("hops"), "the destination did not answer: {found}");
    resume.split_ascii_whitespace().nth(2).and_then(|mtu| mtu.parse().ok()).unwrap_or_else(|| panic!("{found}"))
}

/// Every hop answers, the last one is the destination, and no address comes twice behind another.
fn hops(lab: &Lab, from: &str, to: &str, kind: &str) -> Vec<String> {
    let family = if to.contains(':') { "-6" } else { "-4" };
    let trace = shell(lab, from, &format!("traceroute {family} {kind} -n -q 1 -w 5,0,0 -m 12 {to}"));
    assert!(!trace.contains('*'), "{trace}");
    let hops: Vec<String> =
        trace.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().nth(1)).map(str::to_owned).collect();
    assert_eq!(hops.last().map(String::as_str), Some(to), "{trace}");
    hops
}

/// Echoes as large as the path takes whole, and in fragments where the service translates those: a
/// stateless one does not (RFC 7915 section 1.2).
fn ping(lab: &Lab, from: &str, to: &str, mtu: u32, largest: u32) {
    let headers = if to.contains(':') { 48 } else { 28 };
    for size in [56, 1000, mtu - headers, largest].into_iter().filter(|size| *size <= largest.max(mtu - headers)) {
        let how = if size <= mtu - headers { "do" } else { "dont" };
        let text = shell(lab, from, &format!("ping -n -c 1 -W 5 -M {how} -s {size} {to}"));
        assert!(text.contains(" 0% packet loss"), "{size} bytes: {text}");
    }
}

#[test]
fn siit_between_links_of_different_mtus() {
    if skip_without("siit_between_links_of_different_mtus", &TOOLS) {
        return;
    }
    for (inside, outside) in [(1500, 1280), (1280, 1500), (1500, 1400), (1400, 1500), (1400, 1280)] {
        let lab = lab(&Topology::client_gateway_server(), &[("inside0", inside), ("outside0", outside)]);
        let gateway = start(&lab, "gateway", SIIT);
        let captures = Captures::start(&lab, &[("gateway", "inside0"), ("gateway", "outside0")]);
        let (server, client) = ("64:ff9b::c633:6402", "192.0.2.2");

        let (outward, inward) = (inside.min(outside + 20), outside.min(inside - 20));
        assert_eq!(path_mtu(&lab, "client", server), outward, "{inside} and {outside}, outward");
        assert_eq!(path_mtu(&lab, "server", client), inward, "{inside} and {outside}, inward");
        ping(&lab, "client", server, outward, 0);
        ping(&lab, "server", client, inward, 0);
        let hops_out = hops(&lab, "client", server, "-U");
        assert!(hops_out.len() >= 3 && hops_out[0] == "2001:db8:1::1", "{hops_out:?}");
        let hops_in = hops(&lab, "server", client, "-U");
        assert!(hops_in.len() >= 3 && hops_in[0] == "198.51.100.1", "{hops_in:?}");

        tcp(&lab, "client", "[64:ff9b::c633:6402]:5000", "server", "198.51.100.2:5000");
        tcp(&lab, "server", "192.0.2.2:5000", "client", "[2001:db8:1::2]:5000");
        udp(&lab, "client", "[64:ff9b::c633:6402]:7", "server", "198.51.100.2:7");
        udp(&lab, "server", "192.0.2.2:7", "client", "[2001:db8:1::2]:7");
        // The same with DF clear: now the translator has to see to it that packets get through.
        lab.node("server").unwrap().set_sysctl("net.ipv4.ip_no_pmtu_disc", "1").unwrap();
        udp(&lab, "server", "192.0.2.2:8", "client", "[2001:db8:1::2]:8");
        tcp(&lab, "server", "192.0.2.2:5001", "client", "[2001:db8:1::2]:5001");
        captures.assert_clean();
        drop(gateway);
    }
}

/// A path below `lowest_ipv6_mtu` breaks its promise: packets without DF are lost until their sender has heard of it. A Linux
/// host listens though it leaves DF clear, and makes fragments itself from then on.
#[test]
fn a_path_below_the_lowest_ipv6_mtu_is_learned_by_hosts_that_clear_df() {
    if skip_without("a_path_below_the_lowest_ipv6_mtu_is_learned_by_hosts_that_clear_df", &TOOLS) {
        return;
    }
    let siit = format!("{SIIT}lowest_ipv6_mtu = 1500\n");
    let nat64 = NAT64.replace("INSIDE", "2001:db8:1::2").replace("192.0.2.0/28", "192.0.2.1");
    let nat64 = format!("{nat64}lowest_ipv6_mtu = 1500\n");
    for (configuration, address) in [(siit, "192.0.2.2"), (nat64, "192.0.2.1")] {
        let lab = lab(&Topology::client_gateway_server(), &[("inside0", 1400), ("outside0", 1500)]);
        lab.node("server").unwrap().set_sysctl("net.ipv4.ip_no_pmtu_disc", "1").unwrap();
        let gateway = start(&lab, "gateway", &configuration);
        let learned = || shell(&lab, "server", &format!("ip route get {address}"));
        assert!(!learned().contains("mtu"), "{}", learned());
        tcp(&lab, "server", &format!("{address}:5000"), "client", "[2001:db8:1::2]:5000");
        if address == "192.0.2.2" {
            udp(&lab, "server", "192.0.2.2:7", "client", "[2001:db8:1::2]:7");
        } else {
            // The answers are what does not fit.
            udp(&lab, "client", "[64:ff9b::c633:6402]:7", "server", "198.51.100.2:7");
        }
        assert!(learned().contains("mtu"), "{}", learned());
        drop(gateway);
    }
}

#[test]
fn nat64_between_links_of_different_mtus() {
    if skip_without("nat64_between_links_of_different_mtus", &TOOLS) {
        return;
    }
    // A link of 1000 bytes has no IPv6: the kernel switches it off.
    for (inside, outside) in [(1500, 1280), (1280, 1500), (1500, 1400), (1500, 1000)] {
        let lab = lab(&Topology::client_gateway_server(), &[("inside0", inside), ("outside0", outside)]);
        let gateway = start(&lab, "gateway", &NAT64.replace("INSIDE", "2001:db8:1::2"));
        let captures = Captures::start(&lab, &[("gateway", "inside0"), ("gateway", "outside0")]);
        let server = "64:ff9b::c633:6402";

        // No IPv6 host is told less than 1280 (RFC 8021).
        let outward = inside.min((outside + 20).max(1280));
        assert_eq!(path_mtu(&lab, "client", server), outward, "{inside} and {outside}");
        ping(&lab, "client", server, outward, 3000);
        assert!(hops(&lab, "client", server, "-U").len() >= 3);
        assert!(hops(&lab, "client", server, "-I").len() >= 3);
        tcp(&lab, "client", "[64:ff9b::c633:6402]:5000", "server", "198.51.100.2:5000");
        tcp(&lab, "server", "192.0.2.1:5000", "client", "[2001:db8:1::2]:5000");
        udp(&lab, "client", "[64:ff9b::c633:6402]:7", "server", "198.51.100.2:7");
        lab.node("server").unwrap().set_sysctl("net.ipv4.ip_no_pmtu_disc", "1").unwrap();
        udp(&lab, "client", "[64:ff9b::c633:6402]:8", "server", "198.51.100.2:8");
        captures.assert_clean();
        drop(gateway);
    }
}

/// A NAT44 that takes its links for wider than they are: the kernel refuses what is too large for the next one, behind the
/// translation, and its errors reach who has sent it all the same. So do those about hop limits.
#[test]
fn nat44_between_links_that_are_narrower_than_it_knows() {
    if skip_without("nat44_between_links_that_are_narrower_than_it_knows", &TOOLS) {
        return;
    }
    for (mode, inside, outside) in [("off", 1500, 1400), ("off", 1400, 1500), ("tc", 1500, 1000), ("tc", 1280, 1500)] {
        let lab = lab(&Topology::client_gateway_server(), &[("inside0", inside), ("outside0", outside)]);
        let gateway = start(&lab, "gateway", &format!("[gateway]\nfastpath = \"{mode}\"\n{NAT44}"));
        let server = "198.51.100.2";

        assert_eq!(path_mtu(&lab, "client", server), inside.min(outside), "{mode}, {inside} and {outside}");
        assert_eq!(hops(&lab, "client", server, "-U").len(), 4, "{mode}");
        let hops_in = hops(&lab, "server", "192.0.2.1", "-U");
        assert_eq!(hops_in, ["198.51.100.1", "198.51.100.1", "192.0.2.1", "192.0.2.1"], "{mode}");
        tcp(&lab, "client", "198.51.100.2:5000", "server", "198.51.100.2:5000");
        tcp(&lab, "server", "192.0.2.1:5000", "client", "10.0.0.2:5000");
        udp(&lab, "client", "198.51.100.2:7", "server", "198.51.100.2:7");
        drop(gateway);
    }
}

#[test]
fn clat_and_plat_with_links_of_different_mtus() {
    if skip_without("clat_and_plat_with_links_of_different_mtus", &TOOLS) {
        return;
    }
    for (core, outside) in [(1280, 1500), (1400, 1500), (1500, 1280), (1500, 1500)] {
        let lab = lab(&Topology::client_cpe_gateway_server(), &[("core0", core), ("outside0", outside)]);
        shell(&lab, "gateway", "ip route add 2001:db8:464::/48 via 2001:db8:c::2");
        let plat = start(&lab, "gateway", &NAT64.replace("INSIDE", "2001:db8:464::2"));
        let clat = start(&lab, "cpe", CLAT);
        let captures = Captures::start(&lab, &[("cpe", "inside0"), ("cpe", "core0"), ("gateway", "outside0")]);
        let server = "198.51.100.2";

        let outward = 1500.min(core - 20).min(outside);
        assert_eq!(path_mtu(&lab, "client", server), outward, "{core} and {outside}");
        // Larger echoes come back without DF, leave the PLAT in fragments, and no CLAT translates
        // those.
        ping(&lab, "client", server, outward.min(1260), 0);
        let hops = hops(&lab, "client", server, "-U");
        assert!(hops.len() >= 4 && hops[0] == "10.0.0.1", "{hops:?}");
        tcp(&lab, "client", "198.51.100.2:5000", "server", "198.51.100.2:5000");
        tcp(&lab, "server", "192.0.2.1:5000", "client", "10.0.0.2:5000");
        udp(&lab, "client", "198.51.100.2:7", "server", "198.51.100.2:7");
        lab.node("client").unwrap().set_sysctl("net.ipv4.ip_no_pmtu_disc", "1").unwrap();
        udp(&lab, "client", "198.51.100.2:8", "server", "198.51.100.2:8");
        tcp(&lab, "client", "198.51.100.2:5001", "server", "198.51.100.2:5001");
        captures.assert_clean();
        drop((plat, clat));
    }
}

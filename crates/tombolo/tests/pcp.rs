//! Hosts inside open, renew and close ports with a client of PCP that is not ours (crab_nat), and traffic from
//! outside comes in through them: NAT44, NAT64, and an AFTR through the B4s; at addresses of PCP's own and at their
//! default router's, which announces itself when it has lost its state. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod running;

use std::collections::BTreeSet;
use std::fs;
use std::future::Future;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, UdpSocket};
use std::num::NonZeroU16;
use std::time::Duration;

use crab_nat::pcp::{self, BaseMapRequest, Failure};
use crab_nat::{InternetProtocol, PortMapping, PortMappingOptions, PortMappingType, TimeoutConfig};
use running::{PATIENCE, TOMBOLO, end, kill, rows, run, show};
use serde_json::Value;
use tombolo_lab::{Lab, Namespace, Scenario, Topology, is_installed, skip_without, wait_until};

const SERVICES: &str = r#"
[capacity]
bindings = 10000

[[service]]
kind   = "nat44"
inside = ["10.0.0.0/24"]
pool   = [{ addresses = "192.0.2.16/28", ports = "1024-65535" }]
filtering = "address-dependent"
pcp    = { mappings_per_subscriber = 4, shortest_lifetime = 1 }

[[service]]
kind   = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
inside = ["2001:db8:1::/64"]
pool   = [{ addresses = "192.0.2.1", ports = "1024-65535" }]
inbound_tcp = "denied"
pcp    = { mappings_per_subscriber = 4, shortest_lifetime = 1 }
"#;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Runs what the client does, in its node.
fn in_node<T: Send>(node: &Namespace, work: impl Future<Output = T> + Send) -> T {
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    node.run(run).unwrap()
}

fn options(port: Option<u16>, seconds: u32) -> PortMappingOptions {
    let timeout = TimeoutConfig {
        initial_timeout: Duration::from_millis(500),
        max_retries: 5,
        max_retry_timeout: Some(Duration::from_secs(2)),
    };
    PortMappingOptions {
        external_port: port.and_then(NonZeroU16::new),
        lifetime_seconds: Some(seconds),
        timeout_config: Some(timeout),
    }
}

/// A host inside, and where it asks for ports.
struct Host<'l> {
    node: &'l Namespace,
    address: IpAddr,
    server: IpAddr,
}

impl Host<'_> {
    fn base(&self, port: u16) -> BaseMapRequest {
        self.base_of(InternetProtocol::Udp, port)
    }

    fn base_of(&self, protocol: InternetProtocol, port: u16) -> BaseMapRequest {
        BaseMapRequest::new(self.server.into(), self.address, protocol, NonZeroU16::new(port).unwrap())
    }

    fn map(&self, port: u16, seconds: u32) -> Result<PortMapping, Failure> {
        let (base, options) = (self.base(port), options(None, seconds));
        in_node(self.node, pcp::port_mapping(base, None, None, options))
    }

    /// A socket at a port of the host.
    fn socket(&self, port: u16) -> UdpSocket {
        let socket = self.node.run(|| UdpSocket::bind((self.address, port)).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        socket
    }
}

fn outside(mapping: &PortMapping) -> SocketAddr {
    let PortMappingType::Pcp { external_ip, .. } = mapping.mapping_type() else { panic!("{mapping:?}") };
    (external_ip, mapping.external_port().get()).into()
}

/// Whether a datagram from the server to `to` comes to `socket`; tried until it is as it is `expected`.
fn expect_open(lab: &Lab, to: SocketAddr, socket: &UdpSocket, expected: bool) {
    let sender = lab.node("server").unwrap().run(|| UdpSocket::bind("198.51.100.2:0").unwrap()).unwrap();
    let what = if expected { "a datagram from outside" } else { "silence" };
    let arrives = || {
        sender.send_to(b"knock", to).unwrap();
        let mut bytes = [0; 16];
        socket.recv_from(&mut bytes).is_ok_and(|(length, _)| &bytes[..length] == b"knock")
    };
    wait_until(what, PATIENCE, || (arrives() == expected).then_some(())).unwrap();
}

/// What is shown of the bindings that were asked for.
fn asked_for(lab: &Lab) -> Vec<Value> {
    show(lab, "bindings").into_iter().filter(|row| row["origin"] == "pcp").collect()
}

#[test]
fn hosts_open_renew_and_close_ports_of_a_nat44_and_a_nat64() {
    if skip_without("hosts_open_renew_and_close_ports_of_a_nat44_and_a_nat64", &["ip"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let directory = lab.directory().unwrap();
    let (file, log) = (directory.join("gateway.toml"), directory.join("bindings.jsonl"));
    // The kernel keeps the tables when the gateway is killed.
    let settings = format!("[gateway]\nfastpath = \"tc\"\nbinding_log = \"{}\"\n", log.display());
    fs::write(&file, format!("{settings}{SERVICES}")).unwrap();
    let mut gateway = run(TOMBOLO, &lab, &file);
    let client = lab.node("client").unwrap();
    let ipv4 = Host { node: client, address: address("10.0.0.2"), server: address("192.0.0.9") };
    let ipv6 = Host { node: client, address: address("2001:db8:1::2"), server: address("2001:1::1") };
    let sockets = [ipv4.socket(5000), ipv6.socket(5000)];

    // Opened, and open to whoever sends.
    let mut mappings = [&ipv4, &ipv6].map(|host| host.map(5000, 600).unwrap());
    for (mapping, socket) in mappings.iter().zip(&sockets) {
        assert_eq!(mapping.lifetime(), 600);
        expect_open(&lab, outside(mapping), socket, true);
    }
    let shown = asked_for(&lab);
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown.iter().all(|row| (590..=602).contains(&row["expires"].as_u64().unwrap())), "{shown:?}");
    let again: Vec<u16> = mappings.iter().map(|mapping| mapping.external_port().get()).collect();

    // Renewed, also after the gateway was killed: it knows who holds what, and says so by its epoch.
    let epoch = mappings[0].gateway_epoch();
    kill(&mut gateway);
    drop(gateway);
    let mut gateway = run(TOMBOLO, &lab, &file);
    for mapping in &mut mappings {
        in_node(client, mapping.renew()).unwrap();
        assert!(mapping.gateway_epoch() >= epoch, "{} after {epoch}", mapping.gateway_epoch());
    }
    let renewed: Vec<u16> = mappings.iter().map(|mapping| mapping.external_port().get()).collect();
    assert_eq!(renewed, again);
    expect_open(&lab, outside(&mappings[0]), &sockets[0], true);
    let stranger = in_node(client, pcp::port_mapping(ipv4.base(5000), Some([7; 3]), None, options(None, 600)));
    assert!(matches!(stranger, Err(Failure::NotAuthorized(1..=603))), "{stranger:?}");

    // Within its limits.
    let more: Vec<PortMapping> = (5001..5004).map(|port| ipv4.map(port, 2).unwrap()).collect();
    assert!(matches!(ipv4.map(5004, 60), Err(Failure::UserExceededQuota(30))));
    let suggested = outside(&mappings[0]).port();
    let peer =
        pcp::peer_mapping(ipv6.base(5000), None, None, "[64:ff9b::c633:6402]:7".parse().unwrap(), options(None, 60));
    let peer = in_node(client, peer).unwrap();
    assert_eq!((peer.external_port(), peer.lifetime_seconds()), (mappings[1].external_port(), 60));
    in_node(client, peer.try_drop()).unwrap();
    assert_ne!(more[0].external_port().get(), suggested);
    // Two seconds are over.
    wait_until("short mappings end", PATIENCE, || (asked_for(&lab).len() == 2).then_some(())).unwrap();

    // A reload that takes the permission away leaves what is there.
    fs::write(&file, format!("{settings}{}", SERVICES.replace("pcp    =", "#"))).unwrap();
    let reload = || lab.node("gateway").unwrap().command(TOMBOLO).arg("reload").run().unwrap().success().unwrap();
    reload();
    let refused = in_node(
        client,
        pcp::port_mapping(
            ipv4.base(6000),
            None,
            None,
            PortMappingOptions {
                timeout_config: Some(TimeoutConfig {
                    initial_timeout: Duration::from_millis(100),
                    max_retries: 1,
                    max_retry_timeout: None,
                }),
                ..options(None, 60)
            },
        ),
    );
    assert!(refused.is_err(), "{refused:?}");
    expect_open(&lab, outside(&mappings[0]), &sockets[0], true);
    fs::write(&file, format!("{settings}{SERVICES}")).unwrap();
    reload();

    // Clients that know NAT-PMP alone hear that it is not spoken.
    if is_installed("natpmpc") {
        let output = client.command("natpmpc").args(["-g", "192.0.0.9"]).run().unwrap();
        assert!(output.success().is_err(), "there is no NAT-PMP here");
    }

    // Closed.
    for (mapping, socket) in mappings.into_iter().zip(&sockets) {
        let to = outside(&mapping);
        in_node(client, mapping.try_drop()).unwrap();
        expect_open(&lab, to, socket, false);
    }
    let logged = rows(&fs::read_to_string(&log).unwrap());
    // After a crash the log may say again what it has said, and says what it had not said yet.
    let begins = |row: &&Value| row["event"] == "created" || row["event"] == "adopted";
    let begun = logged.iter().filter(begins).filter(|row| row["origin"] == "pcp");
    let begun: BTreeSet<u64> = begun.filter_map(|row| row["outside_port"].as_u64()).collect();
    assert_eq!(begun.len(), 5, "{logged:?}");
    wait_until("all ends are logged", PATIENCE, || {
        let logged = rows(&fs::read_to_string(&log).unwrap());
        let ended = logged.iter().filter(|row| row["event"] == "removed" && row["origin"] == "pcp").count();
        (ended >= 4).then_some(())
    })
    .unwrap();
    gateway.signal(nix::sys::signal::Signal::SIGTERM).unwrap();
    gateway.wait(PATIENCE).unwrap().success().unwrap();
}

#[test]
fn homes_behind_b4s_ask_their_aftr() {
    if skip_without("homes_behind_b4s_ask_their_aftr", &["ip"]) {
        return;
    }
    let scenario = Scenario::named("ds-lite").unwrap();
    let lab = Lab::create(&scenario.topology).unwrap();
    let start = |(node, text): &(&str, String)| {
        let pcp = if *node == "gateway" { "pcp = true\n" } else { "" };
        lab.start_gateway(node, TOMBOLO, &format!("{text}{pcp}")).unwrap_or_else(|error| panic!("{node}: {error:?}"))
    };
    let gateways: Vec<_> = scenario.gateways.iter().map(start).collect();
    let mut taken = Vec::new();
    // The same address in two homes; the AFTR's own address, and the one of any server.
    for (home, server) in [("client", "192.0.0.1"), ("neighbour", "192.0.0.9")] {
        let host = Host { node: lab.node(home).unwrap(), address: address("10.0.0.2"), server: address(server) };
        let socket = host.socket(5000);
        let mut mapping = host.map(5000, 600).unwrap();
        expect_open(&lab, outside(&mapping), &socket, true);
        let before = outside(&mapping);
        in_node(host.node, mapping.renew()).unwrap();
        assert_eq!(outside(&mapping), before);
        let shown = asked_for(&lab);
        assert!(
            shown.iter().any(|row| row["outside_port"] == before.port() && row["softwire"].is_string()),
            "{shown:?}"
        );
        taken.push(before);
        in_node(host.node, mapping.try_drop()).unwrap();
        expect_open(&lab, before, &socket, false);
    }
    assert_ne!(taken[0], taken[1]);
    drop(gateways);
}

/// A MAP request for UDP, as bytes.
fn request(client: Ipv6Addr, port: u16) -> Vec<u8> {
    let mut bytes = vec![2, 1, 0, 0, 0, 0, 0, 60];
    bytes.extend(client.octets());
    bytes.extend(b"twelve bytes");
    bytes.extend([17, 0, 0, 0]);
    bytes.extend([port.to_be_bytes(), [0; 2]].concat());
    bytes.extend(Ipv6Addr::UNSPECIFIED.octets());
    bytes
}

/// Sends a request from an address of a node; the response, if one comes soon.
fn ask(node: &Namespace, from: SocketAddr, to: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
    let socket = node.run(|| UdpSocket::bind(from).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    socket.send_to(bytes, to).unwrap();
    let mut response = [0; 1200];
    let (length, asked) = socket.recv_from(&mut response).ok()?;
    assert_eq!((asked.ip(), asked.port()), (to.ip(), to.port()));
    Some(response[..length].to_vec())
}

/// The link-local address of an interface, with its number as `node` sees the link from there.
fn link_local(lab: &Lab, node: &str, seen_from: &str) -> SocketAddr {
    let in_node = |node: &str, words: &[&str]| {
        lab.node(node).unwrap().command("ip").args(words.to_vec()).run().unwrap().success().unwrap().stdout
    };
    let shown = in_node(node, &["-6", "-o", "address", "show", "dev", "inside0", "scope", "link"]);
    let own = shown.split_whitespace().find_map(|word| word.strip_suffix("/64")).unwrap();
    let index = in_node(seen_from, &["-o", "link", "show", "dev", "inside0"]);
    let index = index.split(':').next().unwrap().trim().parse().unwrap();
    SocketAddrV6::new(own.parse().unwrap(), 5351, 0, index).into()
}

/// A web server with one page, in a node, until the test ends.
fn serve_pages(node: &Namespace, at: SocketAddr) {
    let listener = node.run(|| TcpListener::bind(at).unwrap()).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let length = stream.read(&mut [0; 1000]).unwrap_or(0);
            if length > 0 {
                stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").unwrap();
            }
        }
    });
}

/// What is announced to a host within a time: who says it, and the epoch.
fn announced(socket: &UdpSocket, limit: Duration) -> Option<(SocketAddr, u32)> {
    socket.set_read_timeout(Some(limit)).unwrap();
    let mut bytes = [0; 1200];
    let (length, from) = socket.recv_from(&mut bytes).ok()?;
    // Version 2, ANNOUNCE as a response, success; a header alone.
    assert_eq!((length, &bytes[..4], from.port()), (24, &[2, 0x80, 0, 0][..], 5351));
    Some((from, u32::from_be_bytes(bytes[8..12].try_into().unwrap())))
}

#[test]
fn hosts_ask_their_default_router_and_hear_when_it_has_lost_its_state() {
    if skip_without("hosts_ask_their_default_router_and_hear_when_it_has_lost_its_state", &["ip", "curl"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let file = lab.directory().unwrap().join("gateway.toml");
    fs::write(&file, format!("[gateway]\nfastpath = \"tc\"\n{SERVICES}")).unwrap();
    let client = lab.node("client").unwrap();
    let router = link_local(&lab, "gateway", "client");
    let SocketAddr::V6(own) = link_local(&lab, "client", "client") else { unreachable!() };
    let all_hosts = SocketAddrV6::new("ff02::1".parse().unwrap(), 5350, 0, own.scope_id());
    let heard = ["224.0.0.1:5350".parse().unwrap(), SocketAddr::from(all_hosts)]
        .map(|at| client.run(|| UdpSocket::bind(at).unwrap()).unwrap());

    // Somebody else has the port: that is said, and changes when it is free.
    let other = lab.node("gateway").unwrap().run(|| UdpSocket::bind("10.0.0.1:5351").unwrap()).unwrap();
    let mut gateway = run(TOMBOLO, &lab, &file);
    wait_until("the fault is said", PATIENCE, || {
        show(&lab, "status").iter().any(|row| row.to_string().contains("UDP port 5351")).then_some(())
    })
    .unwrap();
    drop(other);

    // It says that it knows nothing yet, to the hosts of both families.
    for (socket, from) in heard.iter().zip([address("10.0.0.1"), router.ip()]) {
        let (said_by, epoch) = announced(socket, PATIENCE).unwrap();
        assert!(said_by.ip() == from && epoch < 30, "{said_by} {epoch}");
    }

    // A server behind each, opened by its default router, for TCP.
    let mut taken = Vec::new();
    for (own, router) in [("10.0.0.2", "10.0.0.1"), ("2001:db8:1::2", "2001:db8:1::1")] {
        let host = Host { node: client, address: address(own), server: address(router) };
        let port = if host.address.is_ipv4() { 8044 } else { 8064 };
        serve_pages(client, (host.address, port).into());
        let mapping = pcp::port_mapping(host.base_of(InternetProtocol::Tcp, port), None, None, options(None, 600));
        let mut mapping = in_node(client, mapping).unwrap();
        let before = outside(&mapping);
        let url = format!("http://{before}/page");
        let fetch = || lab.node("server").unwrap().command("curl").args(["-s", "-m", "2", &url]).run().unwrap();
        wait_until("the page", PATIENCE, || fetch().success().ok().filter(|got| got.stdout == "hello")).unwrap();
        in_node(client, mapping.renew()).unwrap();
        assert_eq!(outside(&mapping), before);
        assert!(asked_for(&lab).iter().any(|row| row["outside_port"] == before.port() && row["protocol"] == "tcp"));
        taken.push((mapping, url));
    }
    for (mapping, url) in taken {
        in_node(client, mapping.try_drop()).unwrap();
        let fetched = lab.node("server").unwrap().command("curl").args(["-s", "-m", "1", &url]).run().unwrap();
        assert!(fetched.success().is_err(), "{url} is closed");
    }

    // By the router's link-local address, from an address that is not; and not for one that is.
    let global: Ipv6Addr = "2001:db8:1::2".parse().unwrap();
    let response = ask(client, (global, 0).into(), router, &request(global, 7000)).unwrap();
    assert_eq!(response[..4], [2, 0x81, 0, 0]);
    let from = SocketAddrV6::new(*own.ip(), 0, 0, own.scope_id());
    assert_eq!(ask(client, from.into(), router, &request(*own.ip(), 7001)), None);

    // In the name of a host inside, from outside: no answer, and no mapping.
    let stranger = lab.node("server").unwrap();
    let add = ["address", "add", "10.0.0.99/32", "dev", "lo"];
    stranger.command("ip").args(add).run().unwrap().success().unwrap();
    let before = asked_for(&lab).len();
    let spoofed: std::net::Ipv4Addr = "10.0.0.99".parse().unwrap();
    let asked = request(spoofed.to_ipv6_mapped(), 7002);
    assert_eq!(ask(stranger, (spoofed, 0).into(), "198.51.100.1:5351".parse().unwrap(), &asked), None);
    assert_eq!((before, asked_for(&lab).len()), (1, 1));

    // After a crash it knows what it knew, and says nothing; after a stop it does not.
    let is_told = || heard.each_ref().map(|socket| announced(socket, Duration::from_millis(700)).is_some());
    kill(&mut gateway);
    drop(gateway);
    while is_told() != [false; 2] {}
    let gateway = run(TOMBOLO, &lab, &file);
    assert_eq!(is_told(), [false; 2]);
    end(gateway);
    let gateway = run(TOMBOLO, &lab, &file);
    assert_eq!(is_told(), [true; 2]);
    end(gateway);
}

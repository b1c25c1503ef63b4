//! `tombolo tayga` in the place of Tayga: the configurations that its documentation gives as
//! examples, with the commands around them that the documentation gives too, and real traffic both
//! ways. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use tombolo_lab::{Lab, Peer, Process, Topology, skip_without, wait_until};

const TOMBOLO: &str = env!("CARGO_BIN_EXE_tombolo");
const PATIENCE: Duration = Duration::from_secs(20);
const TOOLS: [&str; 3] = ["ip", "ping", "traceroute"];

/// A host of the IPv4 Internet: the well-known prefix is not for addresses that are not global.
const GLOBAL: &str = "8.8.8.8";

/// The example of Tayga 0.9.2 and 0.9.6, without its comments.
const EXAMPLE: &str = "\
tun-device nat64
ipv4-addr 192.168.255.1
prefix 2001:db8:1:ffff::/96
dynamic-pool 192.168.255.0/24
";

/// `docs/nat64/nat64-dynpool.conf`.
const DYNAMIC_POOL: &str = "\
tun-device nat64
# Dynamic pool range for clients
dynamic-pool 192.168.240.0/20
ipv4-addr 192.168.240.1
ipv6-addr 2001:db8:beef:6464::1
prefix 64:ff9b::/96
";

/// `docs/nat64/nat64-static.conf`.
const STATIC_POOL: &str = "\
tun-device nat64
ipv4-addr 192.0.2.0
ipv6-addr 2001:db8:0:6464::1
map 203.0.113.0/24 fd64::/120
prefix 64:ff9b::/96
";

/// `docs/clat/clat.conf`.
const CLAT: &str = "\
tun-device clat
ipv4-addr 192.0.0.2
ipv6-addr 2001:db8:feed::6
map 192.0.0.1 2001:db8:feed::7
prefix 64:ff9b::/96
";

/// `docs/siit/siit-br.conf`, with three of its servers.
const BORDER: &str = "\
tun-device nat64
ipv4-addr 192.51.0.0
ipv6-addr 2001:db8:beef:6464::1
prefix 64:ff9b::/96
map 192.51.0.1   2001:db8:beef::6b97
map 192.51.0.2   2001:db8:beef::29d2
map 192.51.0.27  2001:db8:beef::ff92
# Mapping for the Edge Router, which needs a /29 (corresponds to /125)
map 192.51.0.64/29 \t2001:db8:beef::420/125";

/// `docs/siit/siit-er.conf`.
const EDGE: &str = "\
tun-device siit
ipv4-addr 192.0.0.2
ipv6-addr 2001:db8:beef::420
prefix 64:ff9b::/96
map 192.51.0.64/29 \t2001:db8:beef::420/125";

/// `docs/siit/siit-er-node.conf`.
const EDGE_NODE: &str = "\
tun-device siit
ipv4-addr 192.0.0.2
ipv6-addr 2001:db8:beef::1679
prefix 64:ff9b::/96
map 192.51.0.27 2001:db8:beef::ff92";

/// Runs commands in a node, one a line.
fn shell(lab: &Lab, node: &str, commands: &str) {
    for line in commands.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.split_ascii_whitespace();
        let command = lab.node(node).unwrap().command(words.next().unwrap()).args(words);
        command.run().unwrap().success().unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

/// Makes the device as the documentation does (`--mktun`, then the commands), and starts the
/// gateway on it.
fn start(lab: &Lab, node: &str, configuration: &str, commands: &str) -> Process {
    let file = lab.directory().unwrap().join(format!("{node}.conf"));
    fs::write(&file, configuration).unwrap();
    start_file(lab, node, &file, commands)
}

fn start_file(lab: &Lab, node: &str, file: &Path, commands: &str) -> Process {
    let file = file.display().to_string();
    let made =
        lab.node(node).unwrap().command(TOMBOLO).args(["tayga", "--mktun", "-c"]).arg(file.clone()).run().unwrap();
    assert!(made.success().unwrap().stdout.contains("Created persistent tun device"));
    shell(lab, node, commands);
    serve(lab, node, &file, &[])
}

fn serve(lab: &Lab, node: &str, file: &str, more: &[&str]) -> Process {
    let command = lab.node(node).unwrap().command(TOMBOLO).args(["tayga", "-d", "-c"]).arg(file);
    let mut gateway = command.args(more.iter().copied()).spawn().unwrap();
    gateway.wait_for_text("ready", PATIENCE).unwrap();
    gateway
}

/// One end of a test: where it listens, and what the other end sees.
struct End<'a> {
    node: &'a str,
    own: &'a str,
    seen_as: &'a str,
}

fn socket(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// Ping, TCP, UDP and traceroute from one end to the other.
fn reaches(lab: &Lab, from: &End<'_>, to: &End<'_>) {
    let node = lab.node(from.node).unwrap();
    let ping = node.command("ping").args(["-c", "2", "-i", "0.2", "-W", "5", "-I", from.own, to.seen_as]);
    ping.run().unwrap().success().unwrap_or_else(|error| panic!("{} to {}: {error}", from.node, to.node));

    let echo = Peer::udp_echo(lab.node(to.node).unwrap(), socket(to.own, 7)).unwrap();
    for length in [1, 700, 3000] {
        let payload = vec![0x5a; length];
        let (own, seen_as) = (socket(from.own, 0), socket(to.seen_as, 7));
        let answer = node.run(|| {
            let socket = UdpSocket::bind(own).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send_to(&payload, seen_as).unwrap();
            let mut answer = vec![0; 65_536];
            let (length, _) = socket.recv_from(&mut answer).unwrap();
            answer.truncate(length);
            answer
        });
        assert!(answer.unwrap() == payload, "{length} bytes");
    }
    assert_eq!(echo.last_client().unwrap().ip(), from.seen_as.parse::<IpAddr>().unwrap());
    drop(echo);
    transfer(lab, from, to);

    let family = if to.seen_as.contains(':') { "-6" } else { "-4" };
    let trace = node
        .command("traceroute")
        .args([family, "-n", "-q", "1", "-w", "5,0,0", "-m", "9", "-s", from.own, to.seen_as]);
    let hops = trace.run().unwrap().stdout;
    let last = hops.lines().last().unwrap_or_default();
    assert!(!hops.contains('*') && last.contains(&format!(" {} ", to.seen_as)), "{hops}");
}

/// Two megabytes there and back.
fn transfer(lab: &Lab, from: &End<'_>, to: &End<'_>) {
    const BYTES: usize = 2_000_000;
    let sent: Vec<u8> = (0..BYTES).map(|n| u8::try_from((n * 31 + n / 251) % 256).unwrap()).collect();
    let listen = socket(to.own, 5000);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let server = lab.node(to.node).unwrap().spawn(move || {
        let listener = TcpListener::bind(listen).unwrap();
        ready.send(()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = vec![0; BYTES];
        stream.read_exact(&mut received).unwrap();
        stream.write_all(&received).unwrap();
    });
    let server = server.unwrap();
    is_ready.recv_timeout(PATIENCE).unwrap();
    let (own, target) = (socket(from.own, 0), socket(to.seen_as, 5000));
    let back = lab.node(from.node).unwrap().run(|| {
        let mut stream = connect(own, target);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&sent).unwrap();
        let mut back = vec![0; BYTES];
        stream.read_exact(&mut back).unwrap();
        back
    });
    assert!(back.unwrap() == sent, "the bytes that came back are not those that were sent");
    server.join().unwrap().unwrap();
}

/// A connection from an address of one's choice, which the standard library has no way to ask for.
fn connect(own: SocketAddr, target: SocketAddr) -> TcpStream {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, sockopt};
    let family = if target.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = nix::sys::socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    setsockopt(&socket, sockopt::SendTimeout, &nix::sys::time::TimeVal::new(PATIENCE.as_secs().cast_signed(), 0))
        .unwrap();
    bind(socket.as_raw_fd(), &SockaddrStorage::from(own)).unwrap();
    connect(socket.as_raw_fd(), &SockaddrStorage::from(target)).unwrap();
    TcpStream::from(socket)
}

fn both_ways(lab: &Lab, a: &End<'_>, b: &End<'_>) {
    reaches(lab, a, b);
    reaches(lab, b, a);
}

/// client - gateway - server, with a global address for the server.
fn lab() -> Lab {
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    shell(&lab, "server", &format!("ip addr add {GLOBAL}/32 dev outside0"));
    shell(&lab, "gateway", &format!("ip route add {GLOBAL} via 198.51.100.2"));
    lab
}

/// The address that the gateway has lent to the client.
fn lent(lab: &Lab, server: &str) -> String {
    let echo = Peer::udp_echo(lab.node("server").unwrap(), socket("198.51.100.2", 7)).unwrap();
    let to = socket(server, 7);
    let send = || {
        let socket = UdpSocket::bind("[2001:db8:1::2]:0").unwrap();
        socket.send_to(b"who am I?", to).unwrap();
    };
    let ask = || {
        lab.node("client").unwrap().run(send).unwrap();
        echo.last_client()
    };
    wait_until("the server hears the client", PATIENCE, ask).unwrap().ip().to_string()
}

#[test]
fn the_example_configuration_runs() {
    if skip_without("the_example_configuration_runs", &TOOLS) {
        return;
    }
    let lab = lab();
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let routes = "ip link set nat64 up
        ip route add 2001:db8:1:ffff::/96 dev nat64
        ip route add 192.168.255.0/24 dev nat64";
    let mut gateway = start(&lab, "gateway", &format!("{EXAMPLE}data-dir {}\n", data.display()), routes);
    let server = "2001:db8:1:ffff::c633:6402";
    let address = lent(&lab, server);
    assert!(address.starts_with("192.168.255."), "{address}");
    let client = End { node: "client", own: "2001:db8:1::2", seen_as: &address };
    both_ways(&lab, &client, &End { node: "server", own: "198.51.100.2", seen_as: server });
    // Tayga answers for itself.
    shell(&lab, "client", "ping -c 1 -W 5 2001:db8:1:ffff::c0a8:ff01");
    shell(&lab, "server", "ping -c 1 -W 5 192.168.255.1");

    // What was lent outlives the process, in Tayga's own format.
    gateway.signal(Signal::SIGTERM).unwrap();
    gateway.wait(PATIENCE).unwrap().success().unwrap();
    let map = fs::read_to_string(data.join("dynamic.map")).unwrap();
    assert!(map.contains(&format!("{address}\t2001:db8:1::2\t")), "{map}");
    fs::write(data.join("dynamic.map"), map.replace(&address, "192.168.255.77")).unwrap();
    let file = lab.directory().unwrap().join("gateway.conf").display().to_string();
    let gateway = serve(&lab, "gateway", &file, &[]);
    assert_eq!(lent(&lab, server), "192.168.255.77");
    drop(gateway);
    shell(&lab, "gateway", &format!("{TOMBOLO} tayga --rmtun -c {file}"));
    assert!(
        lab.node("gateway").unwrap().command("ip").args(["link", "show", "nat64"]).run().unwrap().success().is_err()
    );
}

#[test]
fn the_example_that_debian_installs_runs_as_it_is() {
    let installed = Path::new("/usr/share/doc/tayga/tayga.conf.example");
    if skip_without("the_example_that_debian_installs_runs_as_it_is", &["tayga", "unshare", "ping"]) {
        return;
    }
    if !installed.exists() {
        println!("SKIP: the_example_that_debian_installs_runs_as_it_is: {} is not there", installed.display());
        return;
    }
    let lab = lab();
    // Its data-dir is hidden behind an empty file system, so that the host's own is left alone. The
    // device is made by Tayga itself: one queue, no virtio header.
    let file = installed.display().to_string();
    shell(&lab, "gateway", &format!("tayga --mktun -c {file}"));
    shell(
        &lab,
        "gateway",
        "ip link set nat64 up
        ip route add 2001:db8:1:ffff::/96 dev nat64
        ip route add 192.168.255.0/24 dev nat64",
    );
    let script = format!("mount -t tmpfs none /var/spool && exec {TOMBOLO} tayga -d -c {file}");
    let command = lab.node("gateway").unwrap().command("unshare").args(["-m", "sh", "-c"]).arg(script);
    let mut gateway = command.spawn().unwrap();
    gateway.wait_for_text("ready", PATIENCE).unwrap();
    let server = "2001:db8:1:ffff::c633:6402";
    let address = lent(&lab, server);
    let client = End { node: "client", own: "2001:db8:1::2", seen_as: &address };
    both_ways(&lab, &client, &End { node: "server", own: "198.51.100.2", seen_as: server });
}

#[test]
fn the_dynamic_pool_example_runs() {
    if skip_without("the_dynamic_pool_example_runs", &TOOLS) {
        return;
    }
    let lab = lab();
    let routes = "ip link set dev nat64 up
        ip route add 192.168.240.0/20 dev nat64
        ip addr add 2001:db8:beef:6464::/64 dev nat64
        ip route add 64:ff9b::/96 dev nat64";
    let _gateway = start(&lab, "gateway", DYNAMIC_POOL, routes);
    let echo = Peer::udp_echo(lab.node("server").unwrap(), socket(GLOBAL, 7)).unwrap();
    shell(&lab, "client", "ping -c 1 -W 5 64:ff9b::8.8.8.8");
    let to = socket("64:ff9b::808:808", 7);
    let send = || UdpSocket::bind("[2001:db8:1::2]:0").unwrap().send_to(b"?", to).unwrap();
    let ask = || {
        lab.node("client").unwrap().run(send).unwrap();
        echo.last_client()
    };
    let address = wait_until("the server hears the client", PATIENCE, ask).unwrap().ip().to_string();
    drop(echo);
    assert!(address.starts_with("192.168.24") || address.starts_with("192.168.25"), "{address}");
    let client = End { node: "client", own: "2001:db8:1::2", seen_as: &address };
    both_ways(&lab, &client, &End { node: "server", own: GLOBAL, seen_as: "64:ff9b::808:808" });
}

#[test]
fn the_static_pool_example_runs() {
    if skip_without("the_static_pool_example_runs", &TOOLS) {
        return;
    }
    let lab = lab();
    // The example's hosts get their addresses of fd64::/120 from a NAT66; here one has it itself.
    shell(&lab, "client", "ip addr add fd64::5/128 dev inside0");
    let routes = "ip link set dev nat64 up
        ip route add 203.0.113.0/24 dev nat64
        ip route add 192.0.2.0/32 dev nat64
        ip addr add 2001:db8:0:6464::/64 dev nat64
        ip route add fd64::/64 via 2001:db8:1::2
        ip route add 64:ff9b::/96 dev nat64";
    let _gateway = start(&lab, "gateway", STATIC_POOL, routes);
    let client = End { node: "client", own: "fd64::5", seen_as: "203.0.113.5" };
    both_ways(&lab, &client, &End { node: "server", own: GLOBAL, seen_as: "64:ff9b::808:808" });
}

#[test]
fn the_clat_example_runs_behind_a_border_router() {
    if skip_without("the_clat_example_runs_behind_a_border_router", &TOOLS) {
        return;
    }
    let lab = lab();
    let _border = start(
        &lab,
        "gateway",
        "tun-device plat\nipv4-addr 192.51.0.0\nipv6-addr 2001:db8:beef:6464::1\nprefix 64:ff9b::/96\n\
         map 192.51.0.9 2001:db8:feed::7\n",
        "ip link set plat up
        ip route add 192.51.0.0/24 dev plat
        ip route add 2001:db8:feed::/64 via 2001:db8:1::2
        ip route add 64:ff9b::/96 dev plat",
    );
    shell(&lab, "client", "sysctl -qw net.ipv6.conf.all.forwarding=1");
    let _clat = start(
        &lab,
        "client",
        CLAT,
        "ip link set dev clat up
        ip addr add 192.0.0.1/29 dev clat
        ip route replace default via 192.0.0.2 dev clat mtu 1260
        ip route add 2001:db8:feed::6/127 dev clat",
    );
    let client = End { node: "client", own: "192.0.0.1", seen_as: "192.51.0.9" };
    both_ways(&lab, &client, &End { node: "server", own: GLOBAL, seen_as: GLOBAL });
}

#[test]
fn the_border_router_example_runs() {
    if skip_without("the_border_router_example_runs", &TOOLS) {
        return;
    }
    let lab = lab();
    shell(&lab, "client", "ip addr add 2001:db8:beef::6b97/128 dev inside0");
    let _gateway = start(&lab, "gateway", BORDER, BORDER_COMMANDS);
    let client = End { node: "client", own: "2001:db8:beef::6b97", seen_as: "192.51.0.1" };
    both_ways(&lab, &client, &End { node: "server", own: GLOBAL, seen_as: "64:ff9b::808:808" });
}

/// As `docs/siit/siit-br.sh` has them, and the way to the servers.
const BORDER_COMMANDS: &str = "ip link set dev nat64 up
    ip route add 192.51.0.0/24 dev nat64
    ip addr add 2001:db8:beef:6464::/64 dev nat64
    ip route add 2001:db8:beef::/64 via 2001:db8:1::2
    ip route add 64:ff9b::/96 dev nat64";

#[test]
fn the_edge_router_example_runs_on_a_node_behind_the_border_router() {
    if skip_without("the_edge_router_example_runs_on_a_node_behind_the_border_router", &TOOLS) {
        return;
    }
    let lab = lab();
    let _border = start(&lab, "gateway", BORDER, BORDER_COMMANDS);
    shell(&lab, "client", "sysctl -qw net.ipv6.conf.all.forwarding=1");
    let _edge = start(
        &lab,
        "client",
        EDGE_NODE,
        "ip link set dev siit up
        ip addr add 192.51.0.27/32 dev siit
        ip route replace default dev siit
        ip route add 2001:db8:beef::ff92/128 dev siit
        ip route add 2001:db8:beef::1679/128 dev siit",
    );
    let client = End { node: "client", own: "192.51.0.27", seen_as: "192.51.0.27" };
    both_ways(&lab, &client, &End { node: "server", own: GLOBAL, seen_as: GLOBAL });
}

#[test]
fn the_edge_router_example_runs_for_an_island_behind_the_border_router() {
    if skip_without("the_edge_router_example_runs_for_an_island_behind_the_border_router", &TOOLS) {
        return;
    }
    let lab = Lab::create(&Topology::client_cpe_gateway_server()).unwrap();
    shell(&lab, "server", &format!("ip addr add {GLOBAL}/32 dev outside0"));
    shell(&lab, "gateway", &format!("ip route add {GLOBAL} via 198.51.100.2"));
    let (cpe, gateway) = ("2001:db8:c::2", "2001:db8:c::1");
    let _border = start(
        &lab,
        "gateway",
        BORDER,
        &BORDER_COMMANDS.replace("2001:db8:beef::/64 via 2001:db8:1::2", &format!("2001:db8:beef::/64 via {cpe}")),
    );
    // The island: 192.51.0.64/29, with the edge router as its first host.
    shell(
        &lab,
        "client",
        "ip addr add 192.51.0.66/29 dev inside0
        ip route replace default via 192.51.0.65",
    );
    let _edge = start(
        &lab,
        "cpe",
        EDGE,
        &format!(
            "ip link set dev siit up
        ip addr add 192.51.0.65/29 dev inside0
        ip route replace default dev siit
        ip route add 2001:db8:beef::420/125 dev siit
        ip route replace 64:ff9b::/96 via {gateway}"
        ),
    );
    let client = End { node: "client", own: "192.51.0.66", seen_as: "192.51.0.66" };
    both_ways(&lab, &client, &End { node: "server", own: GLOBAL, seen_as: GLOBAL });
}

#[test]
fn sighup_reads_the_map_file_again_and_user_and_chroot_are_taken() {
    if skip_without("sighup_reads_the_map_file_again_and_user_and_chroot_are_taken", &["ip", "ping"]) {
        return;
    }
    let lab = lab();
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    fs::create_dir(&data).unwrap();
    for directory in [home.path(), &data] {
        fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    fs::write(data.join("static.map"), "# nobody yet\n").unwrap();
    let configuration = format!(
        "tun-device nat64\nipv4-addr 192.0.2.1\nipv6-addr 2001:db8:9::1\nprefix 2001:db8:1:ffff::/96\n\
         dynamic-pool 192.0.2.128/25\ndata-dir {}\nmap-file static.map\n\
         tun-up yes\ntun-ip 192.0.2.254/32\ntun-route 192.0.2.0/24\ntun-route 2001:db8:1:ffff::/96\nlog drop dyn\n\
         workers 1\nmap 192.0.2.8 2001:db8:1::8\n",
        data.display()
    );
    let file = lab.directory().unwrap().join("gateway.conf");
    fs::write(&file, configuration).unwrap();
    let pidfile = home.path().join("pid");
    let more = ["-u", "nobody", "-g", "nogroup", "-r", "-p", pidfile.to_str().unwrap()];
    let mut gateway = serve(&lab, "gateway", &file.display().to_string(), &more);
    let pid = fs::read_to_string(&pidfile).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap();
    assert!(status.contains("Uid:\t65534\t65534"), "{status}");
    assert_eq!(fs::read_link(format!("/proc/{}/root", pid.trim())).unwrap(), fs::canonicalize(&data).unwrap());

    let ping = |expected: bool| {
        let ping = lab.node("server").unwrap().command("ping").args(["-c", "1", "-W", "2", "192.0.2.9"]).run().unwrap();
        assert_eq!(ping.success().is_ok(), expected);
    };
    ping(false);
    fs::write(data.join("static.map"), "map 192.0.2.9 2001:db8:1::2\n").unwrap();
    gateway.signal(Signal::SIGHUP).unwrap();
    gateway.wait_for_text("configuration reloaded", PATIENCE).unwrap();
    ping(true);
    // A bad line is skipped and said; the rest is used.
    fs::write(data.join("static.map"), "map 192.0.2.9\nmap 192.0.2.9 2001:db8:1::2\n").unwrap();
    gateway.signal(Signal::SIGHUP).unwrap();
    gateway.wait_for_text("takes 2 arguments", PATIENCE).unwrap();
    ping(true);
}

#[test]
fn it_goes_into_the_background_as_tayga_does() {
    if skip_without("it_goes_into_the_background_as_tayga_does", &["ip", "ping"]) {
        return;
    }
    let lab = lab();
    let file = lab.directory().unwrap().join("gateway.conf");
    fs::write(&file, format!("{EXAMPLE}tun-up yes\ntun-route 2001:db8:1:ffff::/96\ntun-route 192.168.255.0/24\n"))
        .unwrap();
    let pidfile = lab.directory().unwrap().join("pid");
    let arguments = ["tayga", "-c", file.to_str().unwrap(), "-p", pidfile.to_str().unwrap()];
    lab.node("gateway").unwrap().command(TOMBOLO).args(arguments).run().unwrap().success().unwrap();
    let pid: i32 = wait_until("the process number is there", PATIENCE, || {
        fs::read_to_string(&pidfile).ok().and_then(|text| text.trim().parse().ok())
    })
    .unwrap();
    let ping = || {
        let ping = ["-c", "1", "-W", "1", "2001:db8:1:ffff::198.51.100.2"];
        lab.node("client").unwrap().command("ping").args(ping).run().unwrap().success().ok()
    };
    wait_until("packets cross", PATIENCE, ping).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    wait_until("the process is gone", PATIENCE, || (!Path::new(&format!("/proc/{pid}")).exists()).then_some(()))
        .unwrap();
}

#[test]
fn an_imported_configuration_is_one_for_run() {
    let home = tempfile::tempdir().unwrap();
    for (configuration, kind) in [
        (EXAMPLE, "siit"),
        (DYNAMIC_POOL, "siit"),
        (STATIC_POOL, "siit"),
        (CLAT, "clat"),
        (BORDER, "siit"),
        (EDGE, "siit"),
    ] {
        let (tayga, toml) = (home.path().join("tayga.conf"), home.path().join("gateway.toml"));
        fs::write(&tayga, configuration).unwrap();
        let run = |arguments: &[&str]| std::process::Command::new(TOMBOLO).args(arguments).output().unwrap();
        let printed = run(&["import", "tayga", tayga.to_str().unwrap()]);
        assert!(printed.status.success(), "{printed:?}");
        assert!(String::from_utf8_lossy(&printed.stdout).contains(&format!("kind = \"{kind}\"")), "{printed:?}");
        fs::write(&toml, printed.stdout).unwrap();
        let checked = run(&["check", "-c", toml.to_str().unwrap()]);
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}

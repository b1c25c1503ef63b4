//! The control socket, `tombolo show` and their kin, the metrics and the log of bindings, with real
//! traffic in a lab. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;
use tempfile::TempDir;
use tombolo_lab::{Lab, Peer, Process, Topology, skip_without, wait_until};

const TOMBOLO: &str = env!("CARGO_BIN_EXE_tombolo");
const PATIENCE: Duration = Duration::from_secs(20);
const SERVICE: &str = r#"
[[service]]
kind   = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
pool   = [{ addresses = "192.0.2.1", ports = "1024-65535" }]
static = [{ inside = "[2001:db8:1::2]:8080", outside = "192.0.2.1:8080", protocol = "tcp" }]
sessions = "kept"
"#;
const SERVER: &str = "[64:ff9b::c633:6402]";

/// A gateway in a lab, with a run directory of its own.
struct Setup {
    lab: Lab,
    gateway: Process,
    home: TempDir,
}

impl Setup {
    fn new(gateway: &str) -> Self {
        Self::with(gateway, "")
    }

    /// With more settings of the gateway, and of the service.
    fn with(gateway: &str, service: &str) -> Self {
        let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
        let home = tempfile::tempdir().unwrap();
        let file = lab.directory().unwrap().join("gateway.toml");
        let directory = home.path().display();
        // Included by fastpath.rs under this name, everything runs with the fast path.
        let fastpath = if module_path!().ends_with("with_tc") { "fastpath = \"tc\"\n" } else { "fastpath = \"off\"\n" };
        let text = format!("[gateway]\nrun_directory = \"{directory}\"\n{fastpath}{gateway}{SERVICE}{service}");
        fs::write(&file, text).unwrap();
        let gateway = start(&lab);
        Self { lab, gateway, home }
    }

    fn tombolo(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(TOMBOLO);
        command.args(arguments).arg("--gateway").arg(self.home.path()).stdin(Stdio::null());
        command
    }

    fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.tombolo(arguments).stdout).unwrap()
    }

    /// What a command refuses to do, and why.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn rows(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.text(&[arguments, &["--json"]].concat());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn connect(&self, port: u16) -> TcpStream {
        let to = address(&format!("{SERVER}:{port}"));
        let client = self.lab.node("client").unwrap();
        client.run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().unwrap()
    }

    fn listen(&self, at: &str) -> TcpListener {
        self.lab.node("server").unwrap().run(|| TcpListener::bind(at).unwrap()).unwrap()
    }

    fn socket(&self) -> UnixStream {
        let socket = UnixStream::connect(self.home.path().join("control.sock")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }
}

fn start(lab: &Lab) -> Process {
    let file = lab.directory().unwrap().join("gateway.toml");
    let command = lab.node("gateway").unwrap().command(TOMBOLO).args(["run", "-c"]);
    let mut gateway = command.arg(file.display().to_string()).spawn().unwrap();
    gateway.wait_for_text("ready", PATIENCE).unwrap();
    gateway
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn port(row: &Value, key: &str) -> u16 {
    u16::try_from(row[key].as_u64().unwrap()).unwrap()
}

/// Inside port, state and remote port of each row.
fn flows(rows: &[Value]) -> BTreeSet<(u16, String, u16)> {
    let flow = |row: &Value| {
        assert_eq!((&row["inside"], &row["service"]), (&"2001:db8:1::2".into(), &"nat64".into()), "{row}");
        assert_eq!((&row["outside"], &row["remote"]), (&"192.0.2.1".into(), &"198.51.100.2".into()), "{row}");
        (port(row, "inside_port"), row["state"].as_str().unwrap().to_owned(), port(row, "remote_port"))
    };
    let flows: BTreeSet<_> = rows.iter().map(flow).collect();
    assert_eq!(flows.len(), rows.len(), "no session is shown twice");
    flows
}

/// Connections of the client, and the endpoints that the server sees.
fn connections(setup: &Setup, listener: &TcpListener, count: usize) -> Vec<(TcpStream, TcpStream, SocketAddr)> {
    let port = listener.local_addr().unwrap().port();
    let pair = |_| {
        let client = setup.connect(port);
        let (server, seen) = listener.accept().unwrap();
        (client, server, seen)
    };
    (0..count).map(pair).collect()
}

fn say(open: &mut [(TcpStream, TcpStream, SocketAddr)], word: &[u8; 3]) {
    for (client, server, _) in open {
        client.write_all(word).unwrap();
        let mut heard = [0; 3];
        server.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, word);
    }
}

/// Ends a connection with RST, after which no kernel says anything more about it.
fn abort(client: TcpStream, mut server: TcpStream) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(&client, sockopt::Linger, &at_once).unwrap();
    drop(client);
    assert_eq!(server.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn what_is_open_is_what_is_shown() {
    if skip_without("what_is_open_is_what_is_shown", &[]) {
        return;
    }
    let setup = Setup::new("");
    let listener = setup.listen("198.51.100.2:5000");
    let open = connections(&setup, &listener, 20);
    let sockets: Vec<UdpSocket> = (0..10)
        .map(|n| {
            let client = setup.lab.node("client").unwrap();
            let socket = client.run(|| UdpSocket::bind("[::]:0").unwrap()).unwrap();
            socket.send_to(b"hello", address(&format!("{SERVER}:{}", 6000 + n))).unwrap();
            socket
        })
        .collect();
    let tcp: BTreeSet<_> =
        open.iter().map(|(c, ..)| (c.local_addr().unwrap().port(), "established".to_owned(), 5000)).collect();
    let udp: BTreeSet<_> =
        (6000..).zip(&sockets).map(|(to, s)| (s.local_addr().unwrap().port(), "udp".to_owned(), to)).collect();
    let all = tcp.union(&udp).cloned().collect();
    let shown = wait_until("all sessions are shown", PATIENCE, || {
        let shown = flows(&setup.rows(&["show", "sessions"]));
        (shown.len() == 30).then_some(shown)
    });
    assert_eq!(shown.unwrap(), all);

    for (filter, expected) in [
        (vec!["--protocol", "tcp"], &tcp),
        (vec!["--state", "udp"], &udp),
        (vec!["--address", "2001:db8:1::/48"], &all),
        (vec!["--remote", "198.51.100.0/24", "--port", "5000"], &tcp),
        (vec!["--service", "nat64", "--idle-under", "3600"], &all),
        (vec!["--address", "203.0.113.0/24"], &BTreeSet::new()),
        (vec!["--idle-over", "3600"], &BTreeSet::new()),
    ] {
        let arguments: Vec<_> = ["show", "sessions"].into_iter().chain(filter).collect();
        assert_eq!(&flows(&setup.rows(&arguments)), expected, "{arguments:?}");
    }
    assert_eq!(setup.rows(&["show", "sessions", "--limit", "7"]).len(), 7);
    let csv = setup.text(&["show", "sessions", "--csv"]);
    let heading =
        "service,protocol,inside,inside_port,softwire,outside,outside_port,remote,remote_port,state,idle,expires";
    assert_eq!((csv.lines().next(), csv.lines().count()), (Some(heading), 31));
    let table = setup.text(&["show", "sessions", "--protocol", "udp"]);
    assert!(table.starts_with("SERVICE  PROTOCOL  INSIDE") && table.contains("198.51.100.2:6003"), "{table}");

    // Who the server sees is who the gateway says.
    for (client, _, seen) in &open {
        let who = setup.rows(&["binding", "who", "192.0.2.1", &seen.port().to_string(), "--protocol", "tcp"]);
        assert_eq!((who.len(), port(&who[0], "inside_port")), (1, client.local_addr().unwrap().port()), "{who:?}");
        let bindings = setup.rows(&["show", "bindings", "--port", &seen.port().to_string(), "--protocol", "tcp"]);
        assert!(bindings.iter().any(|row| row["inside_port"] == who[0]["inside_port"]), "{bindings:?}");
    }
    assert_eq!(setup.rows(&["show", "bindings"]).len(), 31, "and the configured one");
    assert_eq!(setup.rows(&["show", "bindings", "--origin", "configured"]).len(), 1);
    let subscribers = setup.rows(&["show", "subscribers"]);
    assert_eq!((subscribers.len(), &subscribers[0]["bindings"]), (1, &30.into()));
    let services = setup.rows(&["show", "services"]);
    let expected = (&Value::from("nat64"), &31.into(), &30.into(), &1.into());
    let service = &services[0];
    assert_eq!((&service["kind"], &service["bindings"], &service["sessions"], &service["subscribers"]), expected);
    let pools = setup.rows(&["show", "pools"]);
    let taken: Vec<_> =
        pools.iter().map(|row| (row["protocol"].as_str().unwrap(), row["taken"].as_u64().unwrap())).collect();
    assert_eq!(taken, [("tcp", 21), ("udp", 10), ("icmp", 0)]);
    assert!(pools.iter().all(|row| row["ports"] == 64_512));
    let counters = setup.rows(&["show", "counters"]);
    let forwarded = counters.iter().filter(|row| row["counter"] == "forwarded" && row["side"] == "inside");
    let forwarded: u64 = forwarded.map(|row| row["value"].as_u64().unwrap()).sum();
    assert!(forwarded >= 50, "{forwarded}");
    let status = setup.rows(&["show", "status"]);
    assert_eq!((&status[0]["bindings"], &status[0]["draining"]), (&31.into(), &false.into()));
}

#[test]
fn an_operator_adds_and_removes_bindings_flushes_and_drains() {
    if skip_without("an_operator_adds_and_removes_bindings_flushes_and_drains", &[]) {
        return;
    }
    let mut setup = Setup::new("");
    // Bindings that come and go, and stay over a reload and a restart.
    let inside = setup.lab.node("client").unwrap().run(|| TcpListener::bind("[2001:db8:1::2]:22").unwrap()).unwrap();
    setup.tombolo(&["binding", "add", "tcp", "[2001:db8:1::2]:22", "192.0.2.1:2222"]);
    let knock_for = |setup: &Setup, seconds| {
        let server = setup.lab.node("server").unwrap();
        server.run(|| TcpStream::connect_timeout(&address("192.0.2.1:2222"), Duration::from_secs(seconds))).unwrap()
    };
    let knock = |setup: &Setup| {
        // Longer than the second after which a SYN that was lost is sent again.
        let server = knock_for(setup, 5).unwrap();
        abort(inside.accept().unwrap().0, server);
    };
    knock(&setup);
    assert!(setup.refused(&["binding", "add", "tcp", "[2001:db8:1::3]:22", "192.0.2.1:2222"]).contains("taken"));
    assert!(
        setup
            .refused(&["binding", "add", "tcp", "10.0.0.1:22", "192.0.2.1:2223"])
            .contains("known by their IPv6 addresses")
    );
    assert!(setup.refused(&["binding", "add", "tcp", "[2001:db8::1]:22", "203.0.113.1:22"]).contains("no pool has"));
    assert!(setup.refused(&["binding", "remove", "tcp", "192.0.2.1:8080"]).contains("in the configuration"));
    assert!(setup.text(&["reload"]).contains("reloaded"));
    knock(&setup);
    setup.gateway.signal(Signal::SIGKILL).unwrap();
    wait_until("the gateway is gone", PATIENCE, || (!setup.gateway.is_running()).then_some(())).unwrap();
    assert!(setup.refused(&["show", "status"]).contains("nobody listens any more"));
    setup.gateway = start(&setup.lab);
    knock(&setup);
    setup.tombolo(&["binding", "remove", "tcp", "192.0.2.1:2222"]);
    assert!(knock_for(&setup, 1).is_err());
    assert!(setup.rows(&["show", "sessions", "--port", "2222"]).is_empty(), "its sessions went with it");

    // A drain: what is open goes on, nothing new begins, until it is over.
    let listener = setup.listen("198.51.100.2:5000");
    let mut open = connections(&setup, &listener, 3);
    let answer = setup.text(&["drain"]);
    assert!(answer.starts_with("nothing new begins; 3 sessions"), "{answer}");
    say(&mut open, b"one");
    let to = address(&format!("{SERVER}:5000"));
    let client = setup.lab.node("client").unwrap();
    let refused = client.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(2))).unwrap();
    assert!(refused.is_err());
    assert!(setup.text(&["show", "counters"]).contains("draining"));
    assert!(setup.refused(&["drain", "--wait", "1"]).contains("sessions are left"));
    setup.tombolo(&["reload"]);
    assert_eq!(setup.rows(&["show", "status"])[0]["draining"], true, "a reload does not end it");
    setup.tombolo(&["drain", "--off"]);
    open.extend(connections(&setup, &listener, 1));
    say(&mut open, b"two");
    for (client, server, _) in open {
        abort(client, server);
    }

    // A flush: everything but static bindings.
    assert!(setup.refused(&["flush", "--service", "nat46"]).contains("there is nat64"));
    let text = setup.text(&["flush", "--service", "nat64"]);
    assert!(text.contains("4 dynamic bindings"), "{text}");
    assert_eq!(setup.rows(&["show", "sessions"]), Vec::<Value>::new());
    assert_eq!(setup.rows(&["show", "bindings"]).len(), 1);
    setup.tombolo(&["drain", "--wait", "5"]);

    // A bad file changes nothing and is told.
    fs::write(setup.lab.directory().unwrap().join("gateway.toml"), "[[service]]\nkind = \"nonsense\"\n").unwrap();
    let reason = setup.refused(&["reload"]);
    assert!(reason.contains("the old configuration stays in force") && reason.contains("nonsense"), "{reason}");
    setup.gateway.signal(Signal::SIGTERM).unwrap();
    wait_until("the gateway is gone", PATIENCE, || (!setup.gateway.is_running()).then_some(())).unwrap();
    assert!(!setup.home.path().join("control.sock").exists(), "the socket goes with the gateway");
}

/// A subscriber with what it has and may have, and who has most.
#[test]
fn a_subscriber_is_shown_with_its_ports_and_limits() {
    if skip_without("a_subscriber_is_shown_with_its_ports_and_limits", &[]) {
        return;
    }
    let limits = "allocation = { mode = \"blocks\", block_size = 64, blocks = 1 }\nlimits = { sessions = 2 }\n";
    let setup = Setup::with("", limits);
    let _listener = setup.listen("198.51.100.2:80");
    let _streams = [setup.connect(80), setup.connect(80)];
    let row = setup.rows(&["show", "subscriber", "2001:db8:1::2"]).remove(0);
    assert_eq!((&row["bindings"], &row["tcp"], &row["udp"]), (&2.into(), &2.into(), &0.into()), "{row:#}");
    assert_eq!(
        (&row["sessions"], &row["most_sessions"], &row["most_blocks"]),
        (&2.into(), &2.into(), &1.into()),
        "{row:#}"
    );
    assert_eq!(row["reached"].to_string(), "[\"sessions\",\"blocks\"]", "{row:#}");
    let block = row["blocks"][0].as_str().unwrap();
    let (first, last) = block.strip_prefix("192.0.2.1:").unwrap().split_once('-').unwrap();
    let ports = first.parse::<u16>().unwrap()..=last.parse().unwrap();
    let bindings = setup.rows(&["show", "bindings", "--origin", "dynamic"]);
    assert!(bindings.iter().all(|row| ports.contains(&port(row, "outside_port"))), "{ports:?}: {bindings:#?}");
    let top = setup.rows(&["show", "top"]);
    assert_eq!((top.len(), &top[0]["inside"], &top[0]["bindings"]), (1, &row["inside"], &2.into()), "{top:#?}");
    assert!(setup.text(&["show", "subscriber", "2001:db8:1::/64"]).contains(block));
    assert!(setup.rows(&["show", "subscriber", "2001:db8:9::2"]).is_empty());
    // Again and again, until the reader has seen enough.
    let mut watch = setup.command(&["show", "top", "--watch=1", "--csv"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert_eq!(lines.take(4).filter(|line| line.as_ref().unwrap().starts_with("nat64,")).count(), 2);
    assert!(watch.wait().unwrap().success());
    assert!(setup.refused(&["show", "subscriber", "nobody"]).contains("neither an address nor a prefix"));
}

/// The story of a packet against the tables of a running gateway, which stay as they are.
#[test]
fn what_would_become_of_a_packet_is_told_and_nothing_changes() {
    if skip_without("what_would_become_of_a_packet_is_told_and_nothing_changes", &[]) {
        return;
    }
    let setup = Setup::new("");
    let listener = setup.listen("198.51.100.2:80");
    let stream = setup.connect(80);
    drop(listener.accept().unwrap());
    let binding = setup.rows(&["show", "bindings", "--origin", "dynamic"]).remove(0);
    let state = || {
        let shown = ["bindings", "sessions", "subscribers"].map(|what| setup.rows(&["show", what]));
        let counted = setup.rows(&["show", "counters", "--all"]);
        // What hosts say to their link comes to the device as well, and times go on.
        let of_packets = ["received", "queue-received", "to-host"];
        let is_quiet = |row: &Value| !of_packets.iter().any(|name| row["counter"].as_str().unwrap().starts_with(name));
        let counted = counted.into_iter().filter(is_quiet);
        let mut rows: Vec<Value> = shown.concat().into_iter().chain(counted).collect();
        for row in rows.iter_mut().filter_map(Value::as_object_mut) {
            ["age", "idle", "expires"].into_iter().for_each(|key| drop(row.remove(key)));
        }
        rows
    };
    let explain = |words: &[&str]| -> Value {
        let arguments = [&["explain", "--live", "--json"], words].concat();
        serde_json::from_str(&setup.text(&arguments)).unwrap()
    };
    let before = state();
    let host = format!("[2001:db8:1::2]:{}", stream.local_addr().unwrap().port());
    let outside = format!("192.0.2.1:{}", port(&binding, "outside_port"));
    let out = explain(&["tcp", &host, "198.51.100.2:80", "--later"]);
    assert_eq!(out["verdict"], "forward", "{out:#}");
    assert!(out["sent"][0]["packet"].as_str().unwrap().starts_with("IPv4 192.0.2.1 to 198.51.100.2"), "{out:#}");
    assert!(out["known"].to_string().contains(&outside.replace(':', " port ")), "{out:#}");
    let back = explain(&["tcp", "198.51.100.2:80", &outside, "--later"]);
    assert!(back["sent"][0]["packet"].as_str().unwrap().contains("to 2001:db8:1::2"), "{back:#}");
    let new = explain(&["udp", "[2001:db8:1::2]:9", "198.51.100.2:53"]);
    assert_eq!(new["verdict"], "forward", "{new:#}");
    let scan = explain(&["udp", "198.51.100.2:53", "192.0.2.1:5353"]);
    assert_eq!(scan["reason"]["name"], "no-binding", "{scan:#}");
    assert_eq!(state(), before);
    let text = setup.text(&["explain", "--live", "tcp", &host, "198.51.100.2:80", "--later"]);
    assert!(text.contains("in the tables: nat64: tcp 2001:db8:1::2") && text.contains("RFC 6146"), "{text}");
    for wrong in [&["explain", "--live", "ipip", "[::1]:1", "192.0.2.1:1"][..], &["explain", "--live", "xyz"]] {
        assert!(!setup.refused(wrong).contains("panic"));
    }
}

/// Makes 16 x 65535 sessions: datagrams to every port of the server, with a round trip in between
/// so that none is lost.
fn fill(setup: &Setup) -> usize {
    let echo = Peer::udp_echo(setup.lab.node("server").unwrap(), address("198.51.100.2:7")).unwrap();
    let made = setup.lab.node("client").unwrap().run(|| {
        let sockets: Vec<UdpSocket> = (0..16).map(|_| UdpSocket::bind("[::]:0").unwrap()).collect();
        let clock = UdpSocket::bind("[::]:0").unwrap();
        for to in 1..=u16::MAX {
            for socket in &sockets {
                // The server's "port unreachable" comes back as an error of a later send.
                while socket.send_to(b"", address(&format!("{SERVER}:{to}"))).is_err() {}
            }
            if to % 16 == 0 {
                round_trip(&clock);
            }
        }
        sockets.len() * usize::from(u16::MAX) + 1
    });
    drop(echo);
    made.unwrap()
}

fn round_trip(clock: &UdpSocket) -> Duration {
    clock.set_read_timeout(Some(PATIENCE)).unwrap();
    let began = Instant::now();
    clock.send_to(b"tick", address(&format!("{SERVER}:7"))).unwrap();
    clock.recv_from(&mut [0; 8]).unwrap();
    began.elapsed()
}

/// Kilobytes of memory that a process has for itself.
fn anonymous_memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Rows of an answer read from the socket itself, and its last line.
fn read_answer(socket: UnixStream) -> (usize, String) {
    let mut lines = BufReader::new(socket);
    let (mut count, mut line) = (0, String::new());
    loop {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the answer has an end");
        if line.starts_with("{\"end\"") || line.starts_with("{\"error\"") {
            return (count, line);
        }
        count += 1;
    }
}

#[test]
fn a_million_sessions_are_streamed_while_packets_flow() {
    if skip_without("a_million_sessions_are_streamed_while_packets_flow", &[]) {
        return;
    }
    let mut setup = Setup::with("queues = 1\n", "[capacity]\nsessions = 2_000_000\n");
    let made = fill(&setup);
    let _echo = Peer::udp_echo(setup.lab.node("server").unwrap(), address("198.51.100.2:7")).unwrap();
    let before = anonymous_memory(setup.gateway.id());
    let done = AtomicBool::new(false);
    let (shown, slowest, most) = std::thread::scope(|scope| {
        let clock = setup.lab.node("client").unwrap().run(|| UdpSocket::bind("[::]:0").unwrap()).unwrap();
        let (setup, done) = (&setup, &done);
        let packets = scope.spawn(move || {
            let mut slowest = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                slowest = slowest.max(round_trip(&clock));
                std::thread::sleep(Duration::from_millis(1));
            }
            slowest
        });
        let memory = scope.spawn(move || {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(anonymous_memory(setup.gateway.id()));
                std::thread::sleep(Duration::from_millis(20));
            }
            most
        });
        // Somebody who asks and never reads, and two who do, at once.
        let mut silent = setup.socket();
        silent.write_all(b"{\"command\":\"sessions\"}\n").unwrap();
        let counted = scope.spawn(|| {
            let mut socket = setup.socket();
            socket.write_all(b"{\"command\":\"sessions\"}\n").unwrap();
            read_answer(socket)
        });
        let began = Instant::now();
        let shown = setup.tombolo(&["show", "sessions", "--json"]).stdout.iter().filter(|&&byte| byte == b'\n').count();
        println!("{shown} sessions shown in {:?}", began.elapsed());
        let (rows, end) = counted.join().unwrap();
        assert!(end.contains(&rows.to_string()), "{end}");
        assert!(rows >= made, "{rows}");
        done.store(true, Ordering::Relaxed);
        drop(silent);
        (shown, packets.join().unwrap(), memory.join().unwrap())
    });
    let began = Instant::now();
    let told = setup.text(&["explain", "--live", "udp", "[2001:db8:1::2]:9", "198.51.100.2:53"]);
    println!("among {made} sessions a packet is explained in {:?}", began.elapsed());
    assert!(told.contains("forward") && began.elapsed() < Duration::from_secs(2), "{:?}: {told}", began.elapsed());
    println!("{shown} rows; slowest round trip {slowest:?}; {before} kB before, {most} kB at most");
    assert!(shown >= made && shown <= made + 2, "{shown} of {made}");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    assert!(most < before + 8000, "{before} kB before, {most} kB at most");

    // A reader who has seen enough is no error.
    let mut head = setup.command(&["show", "sessions"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(head.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("SERVICE"));
    drop(lines);
    let output = head.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let counted = setup.rows(&["show", "services"])[0]["sessions"].as_u64().unwrap();
    assert!(counted.abs_diff(shown as u64) <= 2, "{counted} sessions counted, {shown} shown");

    // Whoever asks nonsense is told, and harms nobody.
    for (request, code) in [
        (&b"\n"[..], "malformed"),
        (b"hello\n", "malformed"),
        (b"{\"command\":\"sesions\"}\n", "malformed"),
        (b"\xff\xfe\x00\n", "malformed"),
        (&[b'x'; 100_000], "too-long"),
        (&[b'x'; 16_384], "too-long"),
        (b"{\"comm", "incomplete"),
        (b"{\"command\":\"flush\",\"service\":\"nobody\"}\n", "refused"),
    ] {
        let mut socket = setup.socket();
        // The gateway may hang up before it has read all.
        let _ = socket.write_all(request);
        let _ = socket.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        if request.len() < 100_000 {
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer["code"], code, "{answer}");
        }
    }
    assert_eq!(setup.rows(&["show", "status"]).len(), 1);

    // Nor does a client that never reads keep the gateway from stopping.
    let mut silent = setup.socket();
    silent.write_all(b"{\"command\":\"sessions\"}\n").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    setup.gateway.signal(Signal::SIGTERM).unwrap();
    setup.gateway.wait(PATIENCE).unwrap().success().unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// What Prometheus thinks of metrics, where `scripts/tools.sh` has unpacked its tool.
fn promtool(page: &str) {
    let Some(tools) = std::env::var_os("TOMBOLO_TOOLS") else {
        return tombolo_lab::skip("promtool", "it is not there: TOMBOLO_TOOLS=$(scripts/tools.sh)");
    };
    let program = Path::new(&tools).join("usr/bin/promtool");
    if !program.exists() {
        return tombolo_lab::skip("promtool", "scripts/tools.sh could not download it");
    }
    let mut command = std::process::Command::new(&program);
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = command.spawn().unwrap();
    check.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}\n{page}", String::from_utf8_lossy(&said));
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/prometheus/alerts.yml");
    let output = std::process::Command::new(&program).args(["check", "rules"]).arg(&rules).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Rules and dashboard ask for metrics that there are, or could be.
    let optional = ["tombolo_collector_lost_lines_total", "tombolo_fastpath_left_packets_total"];
    let dashboard = rules.with_file_name("../grafana/tombolo.json");
    for file in [rules, dashboard] {
        let text = fs::read_to_string(&file).unwrap();
        let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        let names = text.split(|letter: char| !is_part(letter)).filter(|word| word.starts_with("tombolo_"));
        for name in names {
            let is_there = page.contains(&format!("# TYPE {name} ")) || optional.contains(&name);
            assert!(is_there, "{}: {name}", file.display());
        }
    }
}

#[test]
fn metrics_and_the_log_of_bindings_tell_what_happened() {
    if skip_without("metrics_and_the_log_of_bindings_tell_what_happened", &["curl"]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("bindings.jsonl");
    let more = format!("metrics = \"127.0.0.1:9464\"\nbinding_log = \"{}\"\n", log.display());
    let mut setup = Setup::new(&more);
    let listener = setup.listen("198.51.100.2:5000");
    let open = connections(&setup, &listener, 5);
    let scrape = |path: &str| {
        let node = setup.lab.node("gateway").unwrap();
        let url = format!("http://127.0.0.1:9464{path}");
        node.command("curl").args(["-s", "-w", "%{http_code}"]).arg(url).run().unwrap().stdout
    };
    let page = scrape("/metrics");
    assert!(page.ends_with("200"), "{page}");
    assert!(page.contains("\ntombolo_bindings{service=\"nat64\",protocol=\"tcp\"} 6\n"), "{page}");
    assert!(page.contains("\ntombolo_dropped_packets_total{reason=\"no_binding\"} 0\n"), "{page}");
    assert!(page.contains("\ntombolo_received_packets_total{side=\"inside\",path=\"engine\"} "), "{page}");
    // There is one service, and every packet that was forwarded is its.
    for (side, path) in [("inside", "engine"), ("outside", "engine"), ("inside", "kernel"), ("outside", "kernel")] {
        let value = |name: &str, service: &str| -> u64 {
            let sample = format!("\n{name}{{side=\"{side}\",path=\"{path}\"{service}}} ");
            let found = page.split_once(&sample).unwrap_or_else(|| panic!("no {sample:?} in {page}"));
            found.1.lines().next().unwrap().parse().unwrap()
        };
        let of_service = value("tombolo_service_forwarded_packets_total", ",service=\"nat64\"");
        assert_eq!(of_service, value("tombolo_forwarded_packets_total", ""), "{side}, {path}");
        assert!(path == "kernel" || of_service > 0, "{side}, {path}");
    }
    for line in page.lines().filter(|line| line.starts_with("tombolo_") || line.starts_with("process_")) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let family = name.split('{').next().unwrap();
        assert!(page.contains(&format!("# TYPE {family} ")) && value.parse::<f64>().is_ok(), "{line}");
        assert!(!name.contains('-') || name.contains("version=") || name.contains("collector="), "{line}");
    }
    assert!(page.contains("\nprocess_resident_memory_bytes ") && page.contains("\nprocess_open_fds "), "{page}");
    let taken = "tombolo_pool_ports{service=\"nat64\",protocol=\"tcp\",state=\"taken\"} 6\n";
    assert!(page.contains(taken), "{page}");
    promtool(&page[..page.len() - 3]);
    assert!(scrape("/nowhere").ends_with("404") && scrape("/").contains("<title>Tombolo</title>"));
    assert_eq!((scrape("/healthz"), scrape("/readyz").split('\n').next()), ("lives\n200".into(), Some("ready")));
    let figures = scrape("/status.json");
    let figures: Value = serde_json::from_str(&figures[..figures.len() - 3]).unwrap();
    assert_eq!((&figures["health"], &figures["bindings"]), (&"ready".into(), &6.into()), "{figures}");
    // The static one is nobody's.
    assert_eq!((&figures["top"][0]["bindings"], &figures["pools"][0]["taken"]), (&5.into(), &6.into()), "{figures}");
    setup.tombolo(&["drain"]);
    assert!(scrape("/readyz").ends_with("503"));
    setup.tombolo(&["drain", "--off"]);
    assert!(scrape("/readyz").ends_with("200"));

    // The log has each binding when it was made and when it went, and names no destination.
    let (_, _, seen) = &open[0];
    let lines = |log: &Path| -> Vec<Value> {
        let text = fs::read_to_string(log).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let created = wait_until("all are logged", PATIENCE, || {
        let bindings: Vec<Value> = lines(&log).into_iter().filter(|line| line["service"].is_string()).collect();
        (bindings.len() >= 6).then_some(bindings)
    });
    let created = created.unwrap();
    assert!(created.iter().all(|line| line["event"] == "created" && line["remote"].is_null()), "{created:?}");
    let about: Vec<Value> = lines(&log).iter().take(2).map(|line| line["event"].clone()).collect();
    assert_eq!(about, ["begin", "start"]);
    let of = |lines: &[Value], event: &str| {
        lines.iter().find(|line| line["event"] == event && line["outside_port"] == seen.port()).cloned()
    };
    let inside = of(&created, "created").unwrap()["inside_port"].clone();
    assert_eq!(inside, open[0].0.local_addr().unwrap().port());
    // Rotation: the file is moved away and a new one is made.
    let old = log.with_extension("old");
    fs::rename(&log, &old).unwrap();
    setup.tombolo(&["flush"]);
    let removed = wait_until("the removals are logged", PATIENCE, || of(&lines(&log), "removed")).unwrap();
    assert_eq!((&removed["inside_port"], removed["created"].is_string()), (&inside, true), "{removed}");
    // Who had it then: the log knows.
    let since = removed["created"].as_str().unwrap();
    let who = setup.rows(&["binding", "who", "192.0.2.1", &seen.port().to_string(), since, "--protocol", "tcp"]);
    assert_eq!((&who[0]["inside_port"], &who[0]["source"]), (&inside, &"log".into()), "{who:?}");
    let who = |time: &str| setup.refused(&["binding", "who", "192.0.2.1", &seen.port().to_string(), time]);
    let before = who("2001-01-01T00:00:00Z");
    assert!(before.contains("it is not certain who had") && before.contains("the log begins at"), "{before}");
    assert!(who("2101-01-01T00:00:00Z").contains("has not come yet"));

    setup.gateway.signal(Signal::SIGTERM).unwrap();
    setup.gateway.wait(PATIENCE).unwrap().success().unwrap();

    // What lies there is what was written, over the rotation; whoever changes it is found out. It tells who
    // had the port without a gateway.
    let files = [old.display().to_string(), log.display().to_string()];
    let tombolo = |arguments: &[&str]| {
        let output = std::process::Command::new(TOMBOLO).args(arguments).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr))
    };
    let (is_whole, said) = tombolo(&["log", "verify", &files[0], &files[1]]);
    assert!(is_whole && said.contains("nothing was changed"), "{said}");
    let (is_certain, said) =
        tombolo(&["binding", "who", "192.0.2.1", &seen.port().to_string(), since, "--log", &files[0], &files[1]]);
    assert!(is_certain && said.contains(&format!(":{inside}")), "{said}");
    let text = fs::read_to_string(&old).unwrap();
    fs::write(&old, text.replacen("\"inside_port\":", "\"inside_port\":1", 1)).unwrap();
    let (is_whole, said) = tombolo(&["log", "verify", &files[0], &files[1]]);
    assert!(!is_whole && said.contains("was changed"), "{said}");
}

#[test]
fn what_the_device_refuses_is_counted() {
    if skip_without("what_the_device_refuses_is_counted", &["curl"]) {
        return;
    }
    // The gateway sends an ICMP error six seconds after a SYN that nobody answers. By then its
    // device is down, since somebody sets it down again and again.
    let service = "filtering = \"address-dependent\"\nunsolicited_syn = \"hold\"\n";
    let mut setup = Setup::with("metrics = \"127.0.0.1:9464\"\n", service);
    let server = setup.lab.node("server").unwrap();
    let to = address("192.0.2.1:9999");
    let attempt = server.run(|| TcpStream::connect_timeout(&to, Duration::from_millis(200))).unwrap();
    assert_eq!(attempt.unwrap_err().kind(), ErrorKind::TimedOut);
    let counter = |name: &str, reason: Option<&str>| {
        let rows = setup.rows(&["show", "counters"]);
        rows.into_iter().find(|row| row["counter"] == name && row["reason"].as_str() == reason)
    };
    // The kernel's own multicast goes there, too.
    assert!(counter("queue-received", None).unwrap()["value"].as_u64() >= Some(1));
    assert!(counter("queue-received-bytes", None).unwrap()["value"].as_u64() >= Some(60));
    let refused = || counter("dropped", Some("device-down"));
    assert_eq!(refused(), None);
    let gateway = setup.lab.node("gateway").unwrap();
    let refused = wait_until("the error is refused", PATIENCE, || {
        gateway.set_down("tombolo").unwrap();
        refused()
    });
    let refused = refused.unwrap();
    assert_eq!(refused["value"], 1, "{refused}");
    assert!(refused["remedy"].as_str().unwrap().contains("ip link set"), "{refused}");
    // No answer has left, and no other reason has the packet.
    let others: Vec<_> = setup.rows(&["show", "counters"]);
    let others: Vec<_> =
        others.iter().filter(|row| row["counter"] == "dropped" || row["counter"] == "replied").collect();
    assert_eq!(others.len(), 1, "{others:?}");
    let drops = setup.rows(&["show", "drops"]);
    assert_eq!((drops.len(), &drops[0]["reason"], &drops[0]["service"]), (1, &"device-down".into(), &"nat64".into()));
    let page = gateway.command("curl").args(["-s", "http://127.0.0.1:9464/metrics"]).run().unwrap().stdout;
    let line = |start: &str| page.lines().find(|line| line.starts_with(start)).map(str::to_owned);
    assert_eq!(
        line("tombolo_dropped_packets_total{reason=\"device_down\"}").as_deref(),
        Some("tombolo_dropped_packets_total{reason=\"device_down\"} 1"),
        "{page}"
    );
    setup.gateway.signal(Signal::SIGTERM).unwrap();
    setup.gateway.wait(PATIENCE).unwrap().success().unwrap();
}

#[test]
fn without_a_gateway_the_commands_say_so() {
    let home = tempfile::tempdir().unwrap();
    for arguments in
        [&["show", "sessions"][..], &["reload"], &["flush"], &["drain"], &["binding", "who", "192.0.2.1", "80"]]
    {
        let output = Command::new(TOMBOLO).args(arguments).arg("--gateway").arg(home.path()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && text.contains("no gateway runs at"), "{arguments:?}: {text}");
    }
    let wrong = Command::new(TOMBOLO).args(["binding", "who", "192.0.2.1", "70000"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

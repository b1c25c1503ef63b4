//! The log of bindings as collectors of others read it: nfcapd and rsyslogd where they are unpacked
//! (`scripts/tools.sh`), and the dissectors of tshark. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tombolo_lab::{Lab, Namespace, Peer, Process, Topology, skip, skip_without, wait_until};

mod flows;
mod running;

use flows::ask;
use running::{PATIENCE, TOMBOLO, end, rows, run};

const SERVICES: &str = r#"
[capacity]
subscribers = 100
bindings = 10000
sessions = 10000

[[service]]
kind   = "nat64"
name   = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
pool   = [{ addresses = "192.0.2.1" }]

[[service]]
kind   = "nat44"
name   = "cgn"
inside = ["10.0.0.0/24"]
pool   = [{ addresses = "192.0.2.16/30" }]
allocation = { mode = "blocks", block_size = 512 }
"#;

const COLLECTORS: &str = r#"["ipfix+udp://198.51.100.2:4739", "ipfix+tcp://198.51.100.2:4740", "syslog+udp://198.51.100.2:514", "syslog+tcp://198.51.100.2:601"]"#;

/// A program that `scripts/tools.sh` has unpacked, and where its libraries are.
fn tool(path: &str) -> Option<(String, String)> {
    let folder = PathBuf::from(std::env::var_os("TOMBOLO_TOOLS")?);
    let program = folder.join(path);
    let libraries = folder.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    program.exists().then(|| (program.display().to_string(), libraries.display().to_string()))
}

/// Everything that comes to a port, for as long as the test lasts.
fn take_stream(node: &Namespace, address: &'static str) -> Arc<Mutex<Vec<u8>>> {
    let listener = node.run(move || TcpListener::bind(address).unwrap()).unwrap();
    let taken = Arc::<Mutex<Vec<u8>>>::default();
    let all = Arc::clone(&taken);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut piece) {
                all.lock().unwrap().extend_from_slice(&piece[..length]);
            }
        }
    });
    taken
}

/// A socket that nobody reads, so that nothing is refused.
fn hold(node: &Namespace, address: &'static str) -> UdpSocket {
    node.run(move || UdpSocket::bind(address).unwrap()).unwrap()
}

const ENDPOINTS: &[&str] = &["inside", "inside_port", "outside", "outside_port"];

/// What the log has of bindings, sessions and blocks, as those who read it elsewhere should have it: the number of the
/// event in RFC 8158, inside and outside.
fn events(log: &Path) -> BTreeSet<Vec<String>> {
    let of = |line: &Value, keys: &[&str]| -> Vec<String> {
        keys.iter().map(|key| line[key].as_str().map_or_else(|| line[key].to_string(), str::to_owned)).collect()
    };
    let lines = rows(&fs::read_to_string(log).unwrap());
    let numbered = lines.iter().filter_map(|line| {
        let is_ipv6 = line["inside"].as_str()?.contains(':');
        let (number, keys): (_, &[&str]) = match line["event"].as_str()? {
            "block-allocated" => ("16", &["inside", "outside", "first_port", "last_port"]),
            "block-released" => ("17", &["inside", "outside", "first_port", "last_port"]),
            "created" => (if is_ipv6 { "10" } else { "8" }, ENDPOINTS),
            "session-created" => (if is_ipv6 { "6" } else { "4" }, ENDPOINTS),
            "session-removed" => (if is_ipv6 { "7" } else { "5" }, ENDPOINTS),
            "removed" => (if is_ipv6 { "11" } else { "9" }, ENDPOINTS),
            _ => return None,
        };
        let remote = if line["remote"].is_null() { Vec::new() } else { of(line, &["remote", "remote_port"]) };
        Some([vec![number.to_owned()], of(line, keys), remote].concat())
    });
    numbered.collect()
}

/// A gateway whose log goes to collectors of all kinds, with bindings and blocks that begin and end.
struct Setup {
    lab: Lab,
    gateway: Process,
    log: PathBuf,
}

impl Setup {
    fn start(lab: Lab, collectors: &str) -> Self {
        let directory = lab.directory().unwrap();
        let (file, log) = (directory.join("gateway.toml"), directory.join("bindings.jsonl"));
        let own = format!("binding_log = \"{}\"\nbinding_log_collectors = {collectors}\n", log.display());
        fs::write(&file, format!("[gateway]\n{own}\n{SERVICES}")).unwrap();
        let gateway = run(TOMBOLO, &lab, &file);
        Self { lab, gateway, log }
    }

    fn flush(&self) {
        let node = self.lab.node("gateway").unwrap();
        node.command(TOMBOLO).arg("flush").run().unwrap().success().unwrap();
    }

    fn wait_for(&self, what: &str, count: usize) {
        wait_until(what, PATIENCE, || {
            let lines = rows(&fs::read_to_string(&self.log).unwrap());
            (lines.iter().filter(|line| line["event"] == what).count() >= count).then_some(())
        })
        .unwrap();
    }
}

#[test]
fn collectors_of_others_read_the_right_addresses_and_ports() {
    let name = "collectors_of_others_read_the_right_addresses_and_ports";
    if skip_without(name, &["tshark"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let directory = lab.directory().unwrap().to_owned();
    let server = lab.node("server").unwrap();
    let _echo = Peer::udp_echo(server, "198.51.100.2:7".parse().unwrap()).unwrap();
    let capture = directory.join("capture.pcap");
    let words = ["-i", "any", "-w", &capture.display().to_string(), "port 4739 or port 4740 or port 514 or port 601"];
    let mut tshark = server.command("tshark").args(words).spawn().unwrap();
    tshark.wait_for_text("Capturing on", PATIENCE).unwrap();
    let nfcapd = Nfcapd::start(server, &directory);
    let rsyslogd = Rsyslogd::start(server, &directory);
    let _ipfix = nfcapd.is_none().then(|| hold(server, "198.51.100.2:4739"));
    let _syslog = rsyslogd.is_none().then(|| hold(server, "198.51.100.2:514"));
    let stream = take_stream(server, "198.51.100.2:4740");
    let messages = rsyslogd.is_none().then(|| take_stream(server, "198.51.100.2:601"));

    let setup = Setup::start(lab, COLLECTORS);
    for to in ["[64:ff9b::c633:6402]:7", "198.51.100.2:7"] {
        ask(&setup.lab, to);
    }
    setup.wait_for("created", 2);
    setup.wait_for("block-allocated", 1);
    setup.flush();
    setup.wait_for("removed", 2);
    let Setup { lab, gateway, log } = setup;
    end(gateway);
    let expected = events(&log);
    assert!(expected.len() >= 5, "{expected:?}");

    // The datagrams and the stream as tshark reads them.
    std::thread::sleep(Duration::from_millis(500));
    tshark.signal(nix::sys::signal::Signal::SIGINT).unwrap();
    tshark.wait(PATIENCE).unwrap();
    for port in ["udp.port == 4739", "tcp.port == 4740"] {
        assert_eq!(flows(&lab, &capture, port), expected, "{port}");
    }
    assert_eq!(&stream.lock().unwrap()[..2], [0, 10], "version 10");
    let lines: Vec<String> = fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(syslog_lines(&lab, &capture), lines);
    if let Some(messages) = messages {
        let text = String::from_utf8(messages.lock().unwrap().clone()).unwrap();
        assert!(lines.iter().all(|line| text.contains(line)), "{text}");
    }

    // And as those do who are made for it.
    let server = lab.node("server").unwrap();
    match nfcapd {
        Some(nfcapd) => {
            let bindings = expected.iter().filter(|event| is_binding(event));
            assert_eq!(nfcapd.finish(server), bindings.map(|event| event[1..].to_vec()).collect());
        }
        None => skip(name, "nfcapd is not there: TOMBOLO_TOOLS=$(scripts/tools.sh)"),
    }
    match rsyslogd {
        Some(rsyslogd) => {
            let (datagrams, stream) = rsyslogd.finish();
            assert_eq!((datagrams, stream), (lines.clone(), lines));
        }
        None => skip(name, "rsyslogd is not there: TOMBOLO_TOOLS=$(scripts/tools.sh)"),
    }
}

/// Everything that comes to a port, connection by connection.
fn take_streams(node: &Namespace, address: &'static str) -> Arc<Mutex<Vec<String>>> {
    let listener = node.run(move || TcpListener::bind(address).unwrap()).unwrap();
    let taken = Arc::<Mutex<Vec<String>>>::default();
    let all = Arc::clone(&taken);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let place = all.lock().unwrap().len();
            all.lock().unwrap().push(String::new());
            let all = Arc::clone(&all);
            std::thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut piece) {
                    all.lock().unwrap()[place].push_str(&String::from_utf8_lossy(&piece[..length]));
                }
            });
        }
    });
    taken
}

#[test]
fn what_is_logged_where_changes_while_packets_pass() {
    let name = "what_is_logged_where_changes_while_packets_pass";
    if skip_without(name, &["curl"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let directory = lab.directory().unwrap().to_owned();
    let server = lab.node("server").unwrap();
    let _echo = Peer::udp_echo(server, "198.51.100.2:7".parse().unwrap()).unwrap();
    let _syslog = hold(server, "198.51.100.2:514");
    let stays = take_streams(server, "198.51.100.2:601");
    let comes = take_streams(server, "198.51.100.2:4740");
    let one = "[\"syslog+tcp://198.51.100.2:601\"]";
    let setup = Setup::start(lab, one);
    let node = setup.lab.node("gateway").unwrap();
    let (file, first, second) = (directory.join("gateway.toml"), setup.log.clone(), directory.join("second.jsonl"));
    let command = |words: &[&str]| {
        let output = node.command(TOMBOLO).args(words.iter().copied()).run().unwrap();
        (format!("{}{}", output.stdout, output.stderr), output.status.success())
    };
    let configure = |settings: &str| fs::write(&file, format!("[gateway]\n{settings}\n{SERVICES}")).unwrap();
    let reload = |settings: &str, keys: &[&str]| {
        configure(settings);
        let (said, worked) = command(&["reload"]);
        let are_named = keys.iter().all(|key| said.contains(&format!("gateway.{key}: ")));
        assert!(worked && are_named, "{said}\n{}", setup.gateway.stderr());
        let is_logged = |key: &&str| setup.gateway.stderr().contains(&format!("changed: gateway.{key}: "));
        wait_until("the log names them", PATIENCE, || keys.iter().all(is_logged).then_some(())).unwrap();
    };
    let events = |path: &Path| -> Vec<String> {
        let lines = rows(&fs::read_to_string(path).unwrap());
        lines.iter().map(|line| line["event"].as_str().unwrap().to_owned()).collect()
    };
    let count = |path: &Path, event: &str| events(path).iter().filter(|name| *name == event).count();
    let wait = |path: &Path, event: &str, wanted: usize| {
        wait_until(event, PATIENCE, || (count(path, event) >= wanted).then_some(())).unwrap();
    };
    ask(&setup.lab, "198.51.100.2:7");
    setup.wait_for("created", 1);

    // Another file, other collectors, and blocks alone: one log ends and the next begins, in one chain.
    let log = |path: &Path| format!("binding_log = \"{}\"\n", path.display());
    let both =
        format!("binding_log_collectors = [{}, \"syslog+tcp://198.51.100.2:4740\"]\n", one.trim_matches(['[', ']']));
    let blocks = format!("{}{both}binding_log_detail = \"blocks\"\nbinding_log_rate = 500\n", log(&second));
    reload(&blocks, &["binding_log", "binding_log_collectors", "binding_log_detail", "binding_log_rate"]);
    assert_eq!(events(&first).last().unwrap(), "stop");
    assert_eq!(events(&second)[..2], ["begin", "start"]);
    wait(&second, "block-adopted", 1);
    ask(&setup.lab, "[64:ff9b::c633:6402]:7");
    wait(&second, "created", 1);
    assert_eq!(count(&second, "adopted"), 0, "it is in a block");

    // Each binding again.
    let collectors = format!("binding_log_collectors = {one}\n");
    reload(&format!("{}{collectors}", log(&second)), &["binding_log_detail", "binding_log_collectors"]);
    wait(&second, "adopted", 2);
    let (said, worked) = command(&["log", "verify", &first.display().to_string(), &second.display().to_string()]);
    assert!(worked, "{said}");

    // No log at all, and one again. What goes meanwhile is in none, and nobody is named for that time.
    reload("", &["binding_log", "binding_log_collectors"]);
    assert_eq!(events(&second).last().unwrap(), "stop");
    let lines = fs::read_to_string(&second).unwrap();
    assert!(lines.lines().last().unwrap().contains("\"state\":\"in-use\""), "{lines}");
    let (said, worked) = command(&["flush"]);
    assert!(worked, "{said}");
    std::thread::sleep(Duration::from_millis(1500));
    let meanwhile = node.command("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]).run().unwrap().stdout.trim().to_owned();
    assert_eq!(fs::read_to_string(&second).unwrap(), lines);
    reload(&format!("{}{collectors}", log(&second)), &["binding_log", "binding_log_collectors"]);
    wait(&second, "complete", 1);
    let adopted = rows(&lines).into_iter().rfind(|line| line["event"] == "adopted").unwrap();
    let (address, port) = (adopted["outside"].as_str().unwrap(), adopted["outside_port"].to_string());
    let (from, to) = (first.display().to_string(), second.display().to_string());
    let (said, worked) =
        command(&["binding", "who", address, &port, &meanwhile, "--protocol", "udp", "--log", &from, &to]);
    assert!(!worked && said.contains("the log was switched off"), "{said}");
    let (said, worked) = command(&["log", "verify", &first.display().to_string(), &second.display().to_string()]);
    assert!(worked, "{said}");

    // What the process may not write to is refused by its name, and nothing is changed.
    let elsewhere = tempfile::tempdir().unwrap();
    let third = elsewhere.path().join("third.jsonl");
    let before = fs::read_to_string(&second).unwrap();
    for (settings, key) in [
        (format!("{}{collectors}mtu = 1400\n", log(&third)), "gateway.binding_log"),
        (format!("{}{collectors}metrics = \"127.0.0.1:9465\"\n", log(&second)), "gateway.metrics"),
        (format!("{}{}", log(&second), collectors.replace("601", "6010")), "gateway.binding_log_collectors"),
    ] {
        configure(&settings);
        let (said, worked) = command(&["reload"]);
        assert!(!worked && said.contains(&format!("{key} cannot be followed, and nothing was changed")), "{said}");
        assert!(said.contains("may not") && said.contains("a restart takes it"), "{said}");
        assert!(!third.exists() && fs::read_to_string(&second).unwrap().starts_with(&before));
    }
    let device = node.command("ip").args(["link", "show", "tombolo"]).run().unwrap().stdout;
    assert!(device.contains("mtu 65535"), "{device}");

    // Metrics come, move, and go.
    let fetch = |address: &str| {
        let page = node.command("curl").args(["-sg", &format!("http://{address}:9464/metrics")]).run().unwrap().stdout;
        page.contains("tombolo_collector_sent_lines_total{collector=\"syslog+tcp://198.51.100.2:601\"}")
    };
    let metrics = |address: &str| format!("{}{collectors}metrics = \"{address}:9464\"\n", log(&second));
    reload(&metrics("127.0.0.1"), &["metrics"]);
    assert!(fetch("127.0.0.1"));
    reload(&metrics("[::1]"), &["metrics"]);
    assert!(fetch("[::1]") && !fetch("127.0.0.1"));
    reload(&format!("{}{collectors}", log(&second)), &["metrics"]);
    assert!(!fetch("[::1]"));

    // A collector that was in the list all the time has had one connection, until there was no log.
    assert_eq!(comes.lock().unwrap().len(), 1);
    assert!(comes.lock().unwrap()[0].contains("\"start\""), "{comes:?}");
    wait_until("it is connected again", PATIENCE, || (stays.lock().unwrap().len() == 2).then_some(())).unwrap();
    let text = fs::read_to_string(&first).unwrap();
    assert!(text.lines().all(|line| stays.lock().unwrap()[0].contains(line)), "{text}\n{stays:?}");
    end(setup.gateway);
}

#[test]
fn sessions_are_logged_with_their_remotes_where_that_is_asked_for() {
    let name = "sessions_are_logged_with_their_remotes_where_that_is_asked_for";
    if skip_without(name, &["tshark"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let directory = lab.directory().unwrap().to_owned();
    let server = lab.node("server").unwrap();
    let _echo = Peer::udp_echo(server, "198.51.100.2:7".parse().unwrap()).unwrap();
    let _other = Peer::udp_echo(server, "198.51.100.2:77".parse().unwrap()).unwrap();
    let _ipfix = hold(server, "198.51.100.2:4739");
    let capture = directory.join("capture.pcap");
    let words = ["-i", "any", "-w", &capture.display().to_string(), "port 4739"];
    let mut tshark = server.command("tshark").args(words).spawn().unwrap();
    tshark.wait_for_text("Capturing on", PATIENCE).unwrap();
    // It says so before it does; templates come first.
    let has_begun = || fs::metadata(&capture).is_ok_and(|found| found.len() > 0).then_some(());
    wait_until("tshark captures", PATIENCE, has_begun).unwrap();

    // What the programs in the kernel have made is logged like everything else.
    let file = directory.join("gateway.toml");
    let log = directory.join("bindings.jsonl");
    let settings = format!(
        "fastpath = \"tc\"\nbinding_log = \"{}\"\nbinding_log_detail = \"sessions\"\n\
         binding_log_collectors = [\"ipfix+udp://198.51.100.2:4739\"]\n",
        log.display()
    );
    fs::write(&file, format!("[gateway]\n{settings}\n{SERVICES}")).unwrap();
    let gateway = run(TOMBOLO, &lab, &file);
    let setup = Setup { lab, gateway, log };
    let node = setup.lab.node("client").unwrap();
    let socket = node.run(|| UdpSocket::bind("10.0.0.2:4000").unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    for to in ["198.51.100.2:7", "198.51.100.2:77"] {
        socket.send_to(b"x", to).unwrap();
        socket.recv(&mut [0; 8]).unwrap();
    }
    ask(&setup.lab, "[64:ff9b::c633:6402]:7");
    setup.wait_for("session-created", 3);
    setup.wait_for("created", 2);
    setup.flush();
    setup.wait_for("session-removed", 3);
    let Setup { lab, gateway, log } = setup;
    let said = end(gateway);
    let lines = rows(&fs::read_to_string(&log).unwrap());
    let of_host: BTreeSet<u64> = lines
        .iter()
        .filter(|line| line["event"] == "session-removed" && line["inside_port"] == 4000)
        .map(|line| line["remote_port"].as_u64().unwrap())
        .collect();
    assert_eq!(of_host, BTreeSet::from([7, 77]), "{lines:?}\n{said}");
    assert!(lines.iter().filter(|line| line["event"] == "created").count() <= 3, "{lines:?}");

    std::thread::sleep(Duration::from_millis(500));
    tshark.signal(nix::sys::signal::Signal::SIGINT).unwrap();
    tshark.wait(PATIENCE).unwrap();
    assert_eq!(flows(&lab, &capture, "udp.port == 4739"), events(&log));
}

fn is_binding(event: &[String]) -> bool {
    ["8", "9", "10", "11"].contains(&event[0].as_str())
}

/// Events of IPFIX in a capture.
fn flows(lab: &Lab, capture: &Path, filter: &str) -> BTreeSet<Vec<String>> {
    let command =
        lab.node("server").unwrap().command("tshark").args(["-r", &capture.display().to_string(), "-Y", filter]);
    let command =
        command.args(["-d", "udp.port==4739,cflow", "-d", "tcp.port==4740,cflow", "-T", "json", "--no-duplicate-keys"]);
    let text = command.run().unwrap().success().unwrap().stdout;
    let packets: Value = serde_json::from_str(&text).unwrap();
    let mut found = BTreeSet::new();
    collect(&packets, &mut found);
    found
}

/// Everything that has an event, wherever in the tree of a dissector.
fn collect(tree: &Value, found: &mut BTreeSet<Vec<String>>) {
    match tree {
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(members) => {
            if members.get("cflow.nat_event").is_some_and(Value::is_string)
                && !members.contains_key("cflow.template_id")
            {
                let one =
                    |keys: &[&str]| keys.iter().find_map(|key| members.get(*key)?.as_str()).unwrap_or("-").to_owned();
                let event = one(&["cflow.nat_event"]);
                let inside = one(&["cflow.srcaddr", "cflow.srcaddrv6"]);
                let outside = one(&["cflow.post_natsource_ipv4_address"]);
                let ports = ["16", "17"].contains(&event.as_str());
                found.insert(if ports {
                    vec![event, inside, outside, one(&["cflow.port_range_start"]), one(&["cflow.port_range_end"])]
                } else {
                    let (from, to) = (one(&["cflow.srcport"]), one(&["cflow.post_naptsource_transport_port"]));
                    let remote = one(&["cflow.dstaddr", "cflow.post_natdestination_ipv4_address"]);
                    let port = one(&["cflow.dstport", "cflow.post_naptdestination_transport_port"]);
                    let is_session = ["4", "5", "6", "7"].contains(&event.as_str());
                    let remote = if is_session { vec![remote, port] } else { Vec::new() };
                    [vec![event, inside, from, outside, to], remote].concat()
                });
            }
            members.values().for_each(|member| collect(member, found));
        }
        _ => {}
    }
}

/// Messages of syslog over UDP in a capture, which are lines of the log.
fn syslog_lines(lab: &Lab, capture: &Path) -> Vec<String> {
    let command = lab.node("server").unwrap().command("tshark").args(["-r", &capture.display().to_string()]);
    let command = command.args([
        "-Y",
        "udp.port == 514",
        "-T",
        "fields",
        "-e",
        "syslog.facility",
        "-e",
        "syslog.appname",
        "-e",
        "syslog.msg",
    ]);
    let text = command.run().unwrap().success().unwrap().stdout;
    let messages = text.lines().map(|line| {
        let mut fields = line.splitn(3, '\t');
        assert_eq!((fields.next(), fields.next()), (Some("16"), Some("tombolo")), "{line}");
        let message = fields.next().unwrap();
        // tshark writes quotes with a backslash, and leaves the structured data before the message.
        let message = message.replace("\\\"", "\"");
        message[message.find('{').unwrap()..].to_owned()
    });
    messages.collect()
}

/// A collector of IPFIX.
struct Nfcapd {
    process: Process,
    folder: PathBuf,
}

impl Nfcapd {
    fn start(server: &Namespace, directory: &Path) -> Option<Self> {
        let (program, libraries) = tool("usr/bin/nfcapd")?;
        let folder = directory.join("flows");
        fs::create_dir(&folder).unwrap();
        let command = server.command(program).env("LD_LIBRARY_PATH", libraries);
        let process =
            command.args(["-b", "198.51.100.2", "-p", "4739", "-w", &folder.display().to_string()]).spawn().unwrap();
        wait_for_socket(server, "198.51.100.2:4739");
        Some(Self { process, folder })
    }

    /// Inside and outside of what it has written, read by nfdump.
    fn finish(mut self, server: &Namespace) -> BTreeSet<Vec<String>> {
        self.process.signal(nix::sys::signal::Signal::SIGTERM).unwrap();
        self.process.wait(PATIENCE).unwrap();
        let (program, libraries) = tool("usr/bin/nfdump").unwrap();
        let command = server.command(program).env("LD_LIBRARY_PATH", libraries);
        let command = command.args([
            "-R",
            &self.folder.display().to_string(),
            "-q",
            "-N",
            "-6",
            "-o",
            "fmt:%nevt,%sa,%sp,%nsa,%nsp",
        ]);
        let text = command.run().unwrap().success().unwrap().stdout;
        // Version 1.7.1 has no names for these events, and no columns for blocks of ports.
        let lines = text.lines().map(|line| line.split(',').skip(1).map(|word| word.trim().to_owned()).collect());
        lines.filter(|words: &Vec<String>| words.len() == 4 && words[1] != "0").collect()
    }
}

/// A collector of syslog.
struct Rsyslogd {
    process: Process,
    files: [PathBuf; 2],
}

impl Rsyslogd {
    fn start(server: &Namespace, directory: &Path) -> Option<Self> {
        let (program, libraries) = tool("usr/sbin/rsyslogd")?;
        let files = ["udp.log", "tcp.log"].map(|name| directory.join(name));
        let [udp, tcp] = files.each_ref().map(|file| file.display().to_string());
        let configuration = format!(
            "module(load=\"imudp\")\nmodule(load=\"imtcp\")\n\
             template(name=\"line\" type=\"string\" string=\"%msg:::drop-last-lf%\\n\")\n\
             ruleset(name=\"udp\") {{ if $app-name == \"tombolo\" then action(type=\"omfile\" file=\"{udp}\" template=\"line\") }}\n\
             ruleset(name=\"tcp\") {{ if $app-name == \"tombolo\" then action(type=\"omfile\" file=\"{tcp}\" template=\"line\") }}\n\
             input(type=\"imudp\" address=\"198.51.100.2\" port=\"514\" ruleset=\"udp\")\n\
             input(type=\"imtcp\" address=\"198.51.100.2\" port=\"601\" ruleset=\"tcp\")\n"
        );
        let file = directory.join("rsyslog.conf");
        fs::write(&file, configuration).unwrap();
        let modules = format!("{libraries}/rsyslog");
        let command = server.command(program).env("LD_LIBRARY_PATH", libraries);
        let pid = directory.join("rsyslogd.pid").display().to_string();
        let process =
            command.args(["-n", "-f", &file.display().to_string(), "-i", &pid, "-M", &modules]).spawn().unwrap();
        wait_for_socket(server, "198.51.100.2:514");
        Some(Self { process, files })
    }

    /// What came by UDP, and what by TCP.
    fn finish(mut self) -> (Vec<String>, Vec<String>) {
        self.process.signal(nix::sys::signal::Signal::SIGTERM).unwrap();
        self.process.wait(PATIENCE).unwrap();
        let [udp, tcp] = self.files.map(|file| {
            let text = fs::read_to_string(file).unwrap_or_default();
            text.lines().map(|line| line.trim().to_owned()).collect()
        });
        (udp, tcp)
    }
}

fn wait_for_socket(node: &Namespace, address: &str) {
    wait_until("the collector listens", PATIENCE, || {
        node.command("ss").args(["-Hlnu"]).run().unwrap().stdout.contains(address).then_some(())
    })
    .unwrap();
}

#[test]
fn a_collector_that_is_gone_delays_nothing_and_gets_what_waits() {
    if skip_without("a_collector_that_is_gone_delays_nothing_and_gets_what_waits", &[]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let _echo = Peer::udp_echo(lab.node("server").unwrap(), "198.51.100.2:7".parse().unwrap()).unwrap();
    let setup = Setup::start(lab, "[\"syslog+tcp://198.51.100.2:601\", \"syslog+udp://198.51.100.9:514\"]");
    ask(&setup.lab, "198.51.100.2:7");
    setup.wait_for("created", 1);
    let status = || {
        let node = setup.lab.node("gateway").unwrap();
        rows(&node.command(TOMBOLO).args(["show", "status", "--json"]).run().unwrap().stdout).remove(0)
    };
    let fault = "syslog+tcp://198.51.100.2:601 gets no lines";
    wait_until("it is said", PATIENCE, || status()["faults"].to_string().contains(fault).then_some(())).unwrap();
    let messages = take_stream(setup.lab.node("server").unwrap(), "198.51.100.2:601");
    let lines = || fs::read_to_string(&setup.log).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    wait_until("it gets all of it", PATIENCE, || {
        let text = String::from_utf8(messages.lock().unwrap().clone()).ok()?;
        lines().iter().all(|line| text.contains(line)).then_some(())
    })
    .unwrap();
    wait_until("all is well", PATIENCE, || (!status()["faults"].to_string().contains(fault)).then_some(())).unwrap();
    end(setup.gateway);
}

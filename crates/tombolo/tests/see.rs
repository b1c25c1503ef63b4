//! What an operator sees of a running gateway: packets as they pass, drops as they happen. In a lab with
//! real traffic; needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tombolo_io::pcap::CaptureReader;
use tombolo_io::queue::Buffer;
use tombolo_lab::{Lab, Offload, Peer, Process, Topology, skip_without, wait_until};

mod flows;
mod running;

use flows::ask;
use running::{PATIENCE, SERVICES, TOMBOLO, rows, run};

const HOST: &str = "2001:db8:1::2";
const ECHO: &str = "[64:ff9b::c633:6402]:7";

/// A gateway with the fast path, between a client and a server that echoes.
struct Setup {
    lab: Lab,
    gateway: Process,
    home: TempDir,
    _echo: Peer,
}

impl Setup {
    fn new(settings: &str) -> Self {
        let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
        // Else nothing takes what XDP redirects.
        for (node, interface) in [("client", "inside0"), ("server", "outside0")] {
            lab.node(node).unwrap().set_offload(interface, Offload::Gro, true).unwrap();
        }
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("gateway.toml");
        let directory = home.path().display();
        fs::write(&file, format!("[gateway]\nrun_directory = \"{directory}\"\n{settings}{SERVICES}")).unwrap();
        let gateway = run(TOMBOLO, &lab, &file);
        let echo = Peer::udp_echo(lab.node("server").unwrap(), "198.51.100.2:7".parse().unwrap()).unwrap();
        Self { lab, gateway, home, _echo: echo }
    }

    /// A command that goes on.
    fn spawn(&self, arguments: &[&str]) -> Process {
        let command = self.lab.node("gateway").unwrap().command(TOMBOLO).args(arguments.to_vec());
        command.args(["--gateway", self.home.path().to_str().unwrap()]).spawn().unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        self.spawn(arguments).wait(PATIENCE).unwrap().success().unwrap().stdout
    }

    fn socket(&self) -> UnixStream {
        let socket = UnixStream::connect(self.home.path().join("control.sock")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// By what the programs of the fast path are known that the gateway holds.
    fn programs(&self) -> BTreeSet<String> {
        let directory = PathBuf::from(format!("/proc/{}/fdinfo", self.gateway.id()));
        let files = fs::read_dir(directory).unwrap().flatten();
        let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
        let is_ours = |text: &String| ["prog_type:\t3\n", "prog_type:\t6\n"].iter().any(|kind| text.contains(kind));
        let tag = |text: String| text.lines().find_map(|line| line.strip_prefix("prog_tag:").map(str::to_owned));
        texts.filter(is_ours).filter_map(tag).collect()
    }

    /// Sends datagrams from the client, and waits for the answer of the last.
    fn send(&self, count: usize) {
        let client = self.lab.node("client").unwrap();
        let socket = client.run(|| UdpSocket::bind("[::]:0").unwrap()).unwrap();
        socket.connect(ECHO.parse::<SocketAddr>().unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        for _ in 0..count {
            socket.send(b"anybody?").unwrap();
            socket.recv(&mut [0; 8]).unwrap();
        }
    }
}

/// Rows of packets: without what is said of the rest.
fn packets(text: &str) -> Vec<Value> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    rows(whole).into_iter().filter(|row| row["verdict"].is_string()).collect()
}

#[test]
fn packets_are_shown_as_they_pass_and_the_programs_are_as_before() {
    if skip_without("packets_are_shown_as_they_pass_and_the_programs_are_as_before", &[]) {
        return;
    }
    let setup = Setup::new("fastpath = \"tc\"\n");
    let before = setup.programs();
    assert!(!before.is_empty());
    let began = Instant::now();
    let mut trace = setup.spawn(&["trace", "--inside", HOST, "-o", "json"]);
    trace.wait_for_text("begun", PATIENCE).unwrap();
    println!("a trace begins in {:?}", began.elapsed());
    ask(&setup.lab, ECHO);
    setup.send(3);
    // Somebody else's packets are not shown.
    ask(&setup.lab, "198.51.100.2:7");
    let seen = wait_until("packets of both paths", PATIENCE, || {
        let seen = packets(&trace.stdout());
        let forwarded = |path: &str, side: &str| {
            seen.iter().any(|row| row["path"] == path && row["side"] == side && row["verdict"] == "forward")
        };
        (forwarded("engine", "inside") && forwarded("tc", "inside") && forwarded("tc", "outside"))
            .then_some(seen.clone())
    });
    let seen = seen.unwrap();
    println!("the first line comes after {:?}", began.elapsed());
    // The kernel says why it left the first packet to the engine, and what it took afterwards.
    let left = seen.iter().find(|row| row["verdict"] == "pass").unwrap();
    assert_eq!(
        (&left["path"], &left["reason"], &left["interface"]),
        (&"tc".into(), &"no-subscriber".into(), &"inside0".into())
    );
    let out = seen.iter().find(|row| row["path"] == "tc" && row["side"] == "inside").unwrap();
    let of = |row: &Value, keys: [&str; 4]| keys.map(|key| row[key].clone());
    let ends = of(out, ["source", "destination", "sent_source", "sent_destination"]);
    assert_eq!(ends, [HOST, "64:ff9b::c633:6402", "192.0.2.1", "198.51.100.2"].map(Value::from));
    assert_eq!(
        of(out, ["protocol", "service", "length", "sent_length"]),
        [Value::from("udp"), "nat64".into(), 56.into(), 36.into()]
    );
    // Its answer went the same way back.
    let is_back = |row: &&Value| row["path"] == "tc" && row["destination_port"] == out["sent_source_port"];
    let back = seen.iter().find(is_back).unwrap();
    assert_eq!((&back["side"], &back["source_port"]), (&"outside".into(), &7.into()));
    assert_eq!((&back["sent_destination"], &back["sent_destination_port"]), (&HOST.into(), &out["source_port"]));
    assert!(
        seen.iter().all(|row| [&row["source"], &row["sent_destination"]].contains(&&Value::from(HOST))),
        "{seen:?}"
    );
    let times: Vec<&str> = seen.iter().map(|row| row["time"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_ne!(setup.programs(), before, "the programs of a trace are others");
    // A reload meanwhile changes nothing for who looks on.
    setup.text(&["reload"]);
    let lines = trace.stdout().lines().count();
    setup.send(3);
    wait_until("more of it", PATIENCE, || (trace.stdout().lines().count() >= lines + 6).then_some(())).unwrap();
    // Whoever is gone, however, leaves nothing behind.
    trace.signal(Signal::SIGKILL).unwrap();
    wait_until("the programs as before", PATIENCE, || (setup.programs() == before).then_some(())).unwrap();
    setup.send(3);

    // So many, and no more.
    let mut counted =
        setup.spawn(&["trace", "--remote", "198.51.100.2", "--protocol", "udp", "--port", "7", "--count", "4"]);
    counted.wait_for_text("SENT FROM", PATIENCE).unwrap();
    // The table begins before the gateway does.
    wait_until("its end", PATIENCE, || {
        setup.send(1);
        (!counted.is_running()).then_some(())
    })
    .unwrap();
    let text = counted.wait(PATIENCE).unwrap().success().unwrap().stdout;
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.contains("[2001:db8:1::2]:") && text.contains("forward"), "{text}");
}

#[test]
fn xdp_shows_what_it_takes_and_what_it_leaves() {
    if skip_without("xdp_shows_what_it_takes_and_what_it_leaves", &["ping"]) {
        return;
    }
    let setup = Setup::new("fastpath = \"xdp\"\n");
    // Of datagrams that never were on a wire XDP sees no checksum.
    let ping = || {
        let ping =
            setup.lab.node("client").unwrap().command("ping").args(["-c", "2", "-i", "0.2", "64:ff9b::198.51.100.2"]);
        ping.run().unwrap().success().unwrap();
    };
    ping();
    let mut trace = setup.spawn(&["trace", "--outside", "192.0.2.1", "--protocol", "icmp", "--json"]);
    trace.wait_for_text("begun", PATIENCE).unwrap();
    let seen = wait_until("packets that XDP forwards", PATIENCE, || {
        ping();
        let seen = packets(&trace.stdout());
        let taken = |side: &str| {
            seen.iter().any(|row| row["path"] == "xdp" && row["side"] == side && row["verdict"] == "forward")
        };
        (taken("inside") && taken("outside")).then_some(seen)
    });
    for row in seen.unwrap().iter().filter(|row| row["path"] == "xdp" && row["side"] == "inside") {
        assert_eq!(
            (&row["source"], &row["sent_source"], &row["sent_length"]),
            (&HOST.into(), &"192.0.2.1".into(), &84.into())
        );
    }
}

#[test]
fn drops_are_shown_as_they_happen_and_kept_in_a_capture() {
    if skip_without("drops_are_shown_as_they_happen_and_kept_in_a_capture", &[]) {
        return;
    }
    let setup = Setup::new("fastpath = \"tc\"\n");
    let before = setup.programs();
    let capture = setup.home.path().join("drops.pcap");
    let follow = ["show", "drops", "--follow", "--json", "--pcap", capture.to_str().unwrap()];
    let mut drops = setup.spawn(&follow);
    drops.wait_for_text("begun", PATIENCE).unwrap();
    assert_eq!(setup.programs(), before, "what drops nothing is not asked");
    let server = setup.lab.node("server").unwrap();
    let stranger = server.run(|| UdpSocket::bind("198.51.100.2:0").unwrap()).unwrap();
    for port in 0..3 {
        stranger.send_to(b"let me in", format!("192.0.2.1:{}", 5000 + port).parse::<SocketAddr>().unwrap()).unwrap();
    }
    ask(&setup.lab, ECHO);
    wait_until("three drops", PATIENCE, || (packets(&drops.stdout()).len() >= 3).then_some(())).unwrap();
    drops.signal(Signal::SIGINT).unwrap();
    wait_until("its end", PATIENCE, || (!drops.is_running()).then_some(())).unwrap();
    let seen = packets(&drops.stdout());
    let strangers: Vec<&Value> = seen.iter().filter(|row| row["source"] == "198.51.100.2").collect();
    assert_eq!(strangers.len(), 3, "{seen:?}");
    for row in strangers {
        assert_eq!(
            (&row["reason"], &row["service"], &row["length"]),
            (&"no-binding".into(), &"nat64".into(), &37.into())
        );
        assert!(row["remedy"].as_str().unwrap().contains("static binding") && row["packet"].is_null(), "{row}");
    }
    let mut reader = CaptureReader::open(&capture).unwrap();
    let mut buffer = Buffer::new();
    let mut payloads = 0;
    while let Some((_, packet)) = reader.next_packet(&mut buffer).unwrap() {
        payloads += usize::from(packet.bytes().ends_with(b"let me in"));
    }
    assert_eq!(payloads, 3);
    let counted = rows(&setup.text(&["show", "drops", "-o", "json"]));
    let row = counted.iter().find(|row| row["reason"] == "no-binding").unwrap();
    assert_eq!((&row["service"], &row["packets"]), (&"nat64".into(), &3.into()));
    assert!(setup.text(&["show", "drops"]).contains("static binding"));
}

#[test]
fn a_slow_reader_loses_lines_that_are_counted_and_no_packets() {
    if skip_without("a_slow_reader_loses_lines_that_are_counted_and_no_packets", &[]) {
        return;
    }
    let setup = Setup::new("fastpath = \"off\"\n");
    let mut slow = setup.socket();
    let request = format!("{{\"command\":\"trace\",\"inside\":\"{HOST}\",\"rate\":20000,\"seconds\":600}}\n");
    slow.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(slow).lines();
    assert!(lines.next().unwrap().unwrap().contains("begun"));
    // Beside one who gets few.
    let few = setup.spawn(&["trace", "--inside", HOST, "--rate", "5", "--seconds", "2", "--json"]);
    setup.send(4000);
    let few = few.wait(PATIENCE).unwrap().success().unwrap().stdout;
    let shown = packets(&few).len();
    assert!((1..=15).contains(&shown) && few.contains("not_shown"), "{shown} lines");
    // All 8000 packets were shown or are counted.
    let (mut shown, mut lost) = (0, 0);
    while shown + lost < 8000 {
        let row: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        shown += u64::from(row["verdict"].is_string());
        lost += row["not_shown"].as_u64().unwrap_or(0);
    }
    println!("a slow reader gets {shown} lines, and {lost} are counted");
    assert!(lost > 0 && shown > 100, "{shown} lines, {lost} lost");
    assert_eq!(shown + lost, 8000);
    // There is room for so many, and then it is said.
    let open: Vec<UnixStream> = (0..8)
        .map(|_| {
            let mut socket = setup.socket();
            socket.write_all(b"{\"command\":\"trace\"}\n").unwrap();
            socket
        })
        .collect();
    let mut refused = open.iter().filter(|socket| {
        let mut line = String::new();
        BufReader::new(*socket).read_line(&mut line).unwrap();
        line.contains("refused")
    });
    assert!(refused.next().is_some() && refused.next().is_none(), "seven find room beside the first");
    drop(open);
    setup.send(3);
    std::thread::sleep(Duration::from_millis(200));
    assert!(
        setup.text(&["trace", "--seconds", "1", "-o", "csv"]).starts_with("time,path,interface,side,service,verdict")
    );
}

#[test]
fn what_happens_is_told_and_programs_can_read_all_of_it() {
    if skip_without("what_happens_is_told_and_programs_can_read_all_of_it", &[]) {
        return;
    }
    let setup = Setup::new("fastpath = \"off\"\n");
    events_are_told(&setup);
    answers_are_for_people_and_programs(&setup);
    requests_follow_each_other_on_one_connection(&setup);
    clients_that_have_had_an_answer_make_room(&setup);
}

fn events_are_told(setup: &Setup) {
    let mut follow = setup.spawn(&["events", "--follow", "--bindings", "--json"]);
    follow.wait_for_text("begun", PATIENCE).unwrap();
    ask(&setup.lab, ECHO);
    follow.wait_for_text("\"event\":\"created\"", PATIENCE).unwrap();
    setup.text(&["drain"]);
    setup.text(&["drain", "--off"]);
    setup.text(&["flush"]);
    let file = setup.home.path().join("gateway.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("[gateway]", "[gateway]\nlog_level = \"debug\"")).unwrap();
    setup.text(&["reload"]);
    let wanted = ["draining", "flushed", "removed", "changed: gateway.log_level", "configuration reloaded"];
    wait_until("all of it", PATIENCE, || wanted.iter().all(|words| follow.stdout().contains(words)).then_some(()))
        .unwrap();
    let seen = rows(&follow.stdout());
    let binding = seen.iter().find(|row| row["event"] == "created").unwrap();
    assert_eq!((&binding["part"], &binding["details"]["inside"]), (&"bindings".into(), &HOST.into()), "{binding}");
    let made = seen.iter().filter(|row| row["event"] == "created").count();
    let ended = seen.iter().filter(|row| row["event"] == "removed").count();
    assert_eq!((made, ended), (1, 1), "each once: {seen:?}");
    drop(follow);
    // The last ones are kept, in the same words as in the log.
    let kept = rows(&setup.text(&["events", "-o", "json"]));
    let reloaded = kept.iter().find(|row| row["event"] == "configuration reloaded").unwrap();
    assert_eq!((&reloaded["level"], &reloaded["part"]), (&"info".into(), &"running".into()));
    let is_logged = || setup.gateway.stderr().contains("configuration reloaded").then_some(());
    wait_until("the log has it", PATIENCE, is_logged).unwrap();
    assert_eq!(rows(&setup.text(&["events", "--limit", "2", "--json"])).len(), 2);
    assert!(setup.text(&["events"]).lines().any(|line| line.contains("draining") && line.contains("on=yes")));
}

fn answers_are_for_people_and_programs(setup: &Setup) {
    let csv = setup.text(&["show", "services", "-o", "csv"]);
    assert!(csv.starts_with("service,kind,inside,outside"), "{csv}");
    assert_eq!(
        rows(&setup.text(&["show", "services", "-o", "json"])),
        rows(&setup.text(&["show", "services", "--json"]))
    );
    let one = |arguments: &[&str]| -> Value {
        let text = setup.text(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    assert_eq!(one(&["flush"])["bindings"].as_u64(), Some(0));
    assert_eq!(one(&["drain"])["draining"], true);
    assert_eq!(one(&["drain", "--off"])["draining"], false);
    let added = one(&["binding", "add", "tcp", "[2001:db8:1::2]:22", "192.0.2.1:2222"]);
    assert_eq!((&added["service"], &added["outside"]), (&"nat64".into(), &"192.0.2.1:2222".into()));
    let who = one(&["binding", "who", "192.0.2.1", "2222", "--protocol", "tcp"]);
    assert_eq!(who["inside"], HOST);
    assert_eq!(one(&["binding", "remove", "tcp", "192.0.2.1:2222"])["protocol"], "tcp");
    let told = one(&["explain", "--live", "tcp", "[2001:db8:1::2]:22", "198.51.100.2:80"]);
    assert_eq!(told["verdict"], "forward");
    let flat = setup.text(&["explain", "--live", "tcp", "[2001:db8:1::2]:22", "198.51.100.2:80", "--csv"]);
    assert_eq!(flat.lines().count(), 2, "{flat}");
    assert!(setup.text(&["plan", "--json"]).is_empty());
    // What goes wrong has a code.
    let refused = |arguments: &[&str]| -> Value {
        let output = setup.spawn(&[arguments, &["-o", "json"]].concat()).wait(PATIENCE).unwrap();
        assert_eq!((output.status.code(), output.stdout.as_str()), (Some(1), ""), "{arguments:?}");
        serde_json::from_str(&output.stderr).unwrap_or_else(|error| panic!("{error}: {}", output.stderr))
    };
    assert_eq!(refused(&["flush", "--service", "nobody"])["code"], "refused");
    assert!(refused(&["trace", "--inside", "here"])["error"].as_str().unwrap().contains("neither an address"));
    let node = setup.lab.node("gateway").unwrap();
    let nobody = node.command(TOMBOLO).args(["show", "status", "--json", "--gateway", "/nowhere"]).run().unwrap();
    let error: Value = serde_json::from_str(&nobody.stderr).unwrap();
    assert_eq!((nobody.status.code(), &error["code"]), (Some(1), &"no-gateway".into()));
}

fn requests_follow_each_other_on_one_connection(setup: &Setup) {
    const REQUESTS: usize = 10_000;
    let socket = setup.socket();
    let mut writer = socket.try_clone().unwrap();
    let began = Instant::now();
    let written = std::thread::spawn(move || {
        for _ in 0..REQUESTS {
            writer.write_all(b"{\"command\":\"hello\"}\n").unwrap();
        }
    });
    let mut lines = BufReader::new(socket).lines().map(Result::unwrap);
    for _ in 0..REQUESTS {
        let row: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        assert_eq!(row["protocol"], 1);
        assert_eq!(lines.next().unwrap(), "{\"end\":{\"rows\":1}}");
    }
    written.join().unwrap();
    println!("{REQUESTS} requests on one connection in {:?}", began.elapsed());
    // Nonsense is answered, and the connection goes on.
    let mut socket = setup.socket();
    let mut lines = BufReader::new(socket.try_clone().unwrap()).lines().map(Result::unwrap);
    for (request, code) in [
        (&b"hello\n"[..], Some("malformed")),
        (b"\xff\xfe\x00\n", Some("malformed")),
        (b"{\"command\":\"hello\"}\n", None),
        (&[&[b'x'; 100_000][..], b"\n"].concat(), Some("too-long")),
        (b"{\"command\":\"flush\",\"service\":\"nobody\"}\n", Some("refused")),
        (b"{\"command\":\"hel", None),
    ] {
        socket.write_all(request).unwrap();
        if !request.ends_with(b"\n") {
            continue;
        }
        let answer: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        match code {
            Some(code) => assert_eq!(answer["code"], code, "{answer}"),
            None => assert!(lines.next().unwrap().starts_with("{\"end\"")),
        }
    }
    // The rest of a line comes later; and who says nothing more still gets its answer.
    std::thread::sleep(Duration::from_millis(50));
    socket.write_all(b"lo\"}\n").unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(lines.next().unwrap().contains("protocol") && lines.next().unwrap().starts_with("{\"end\""));
    assert_eq!(lines.next(), None);
}

fn clients_that_have_had_an_answer_make_room(setup: &Setup) {
    // Whoever is kept from saying what it wants for a fifth of a second, on a busy machine, may have to make room itself.
    let served = || {
        let mut socket = setup.socket();
        socket.write_all(b"{\"command\":\"hello\"}\n").ok()?;
        let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
        let end = lines.nth(1)?.ok()?;
        assert!(end.starts_with("{\"end\""), "{end}");
        Some(socket)
    };
    let idle: Vec<UnixStream> = (0..32).map(|_| wait_until("an answer", PATIENCE, served).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(400));
    for _ in 0..5 {
        assert_eq!(rows(&setup.text(&["show", "status", "--json"])).len(), 1);
    }
    drop(idle);
}

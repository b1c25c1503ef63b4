//! Labs on the real kernel. They need root and skip loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tombolo_lab::{
    Lab, LabError, Offload, Peer, Topology, list, remove_named, remove_stale, skip, skip_without, topology, wait_until,
};

fn ping(lab: &Lab, from: &str, to: &str, more: &[&str]) -> Result<String, LabError> {
    let command = lab.node(from)?.command("ping").args(["-c", "1", "-W", "2"]);
    Ok(command.args(more.iter().copied()).arg(to).run()?.success()?.stdout)
}

/// What is left of a lab: its namespaces and its record.
fn remains(id: &str) -> Vec<String> {
    let directories = ["/run/netns", "/run/tombolo/labs"].map(Path::new);
    let entries = directories.iter().filter_map(|path| fs::read_dir(path).ok()).flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // Exactly this lab: `tombolo-7-1` is not `tombolo-7-12`.
    names.filter(|name| ["-", "."].iter().any(|after| name.starts_with(&format!("{id}{after}")))).collect()
}

#[test]
fn plain_forwarding_works_in_both_protocols() {
    if skip_without("plain_forwarding_works_in_both_protocols", &["ping"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    ping(&lab, "client", "198.51.100.2", &[]).unwrap();
    ping(&lab, "client", "2001:db8:2::2", &[]).unwrap();
    ping(&lab, "server", "10.0.0.2", &[]).unwrap();
    ping(&lab, "server", "2001:db8:1::2", &[]).unwrap();
    // Nothing translates in a plain lab, but the prefix is routed to the gateway, which has no
    // route onwards.
    let error = ping(&lab, "client", "64:ff9b::198.51.100.2", &[]).unwrap_err();
    assert!(error.to_string().contains("exited with status 1"), "{error}");
}

#[test]
fn a_longer_chain_has_an_ipv6_only_core() {
    if skip_without("a_longer_chain_has_an_ipv6_only_core", &["ping"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_cpe_gateway_server()).unwrap();
    ping(&lab, "client", "2001:db8:2::2", &[]).unwrap();
    ping(&lab, "client", "198.51.100.2", &[]).unwrap_err();
}

#[test]
fn nothing_is_left_after_a_drop() {
    if skip_without("nothing_is_left_after_a_drop", &["ping"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let id = lab.id().to_owned();
    fs::write(lab.directory().unwrap().join("a.conf"), "b").unwrap();
    assert_eq!(remains(&id).len(), 5, "three namespaces, the record and the directory");
    let sleeper = lab.node("client").unwrap().command("sleep").arg("1000").spawn().unwrap();
    let process = format!("/proc/{}", sleeper.id());
    drop(lab);
    assert_eq!(remains(&id), [""; 0]);
    // Killed by the lab; reaped when its own handle goes.
    drop(sleeper);
    assert!(!Path::new(&process).exists());
}

#[test]
fn nothing_is_left_after_a_panic() {
    if skip_without("nothing_is_left_after_a_panic", &["ping"]) {
        return;
    }
    let (tell, told) = std::sync::mpsc::channel();
    let outcome = std::panic::catch_unwind(move || {
        let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
        tell.send(lab.id().to_owned()).unwrap();
        panic!("on purpose");
    });
    assert!(outcome.is_err());
    assert_eq!(remains(&told.recv().unwrap()), [""; 0]);
}

#[test]
fn nothing_is_left_when_building_fails_halfway() {
    if skip_without("nothing_is_left_when_building_fails_halfway", &["ping"]) {
        return;
    }
    let mut topology = Topology::client_gateway_server();
    // No link leads to that gateway, which only the kernel finds out.
    topology.node_mut("server").unwrap().routes[0].via = "203.0.113.1".parse().unwrap();
    let before = list().unwrap();
    let error = Lab::create(&topology).unwrap_err();
    assert!(error.to_string().contains("via 203.0.113.1"), "{error}");
    let mine = |id: &str| id.starts_with(&format!("tombolo-{}-", std::process::id()));
    for record in list().unwrap() {
        // Other tests of this process may have labs of their own meanwhile; a failed one would have
        // no namespaces.
        assert!(before.contains(&record) || !mine(&record.id) || remains(&record.id).len() > 1);
    }
}

/// Not a test: the child of the two tests below, which end it from outside.
#[test]
#[ignore = "run by other tests, which end it"]
fn holds_a_lab_until_it_is_ended() {
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let sleeper = lab.node("server").unwrap().command("sleep").arg("1000").spawn().unwrap();
    // Past the harness's capture.
    writeln!(std::io::stdout(), "\nlab {} {}", lab.id(), sleeper.id()).unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

/// Starts a process with a lab; returns it, the lab's id and the id of a process inside.
fn start_holder() -> (std::process::Child, String, u32) {
    let mut holder = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holds_a_lab_until_it_is_ended", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.starts_with("lab ")).unwrap();
    let mut words = line.split(' ').skip(1);
    let id = words.next().unwrap().to_owned();
    (holder, id, words.next().unwrap().parse().unwrap())
}

#[test]
fn nothing_is_left_after_sigint() {
    if skip_without("nothing_is_left_after_sigint", &["ping"]) {
        return;
    }
    let (mut holder, id, inside) = start_holder();
    assert_eq!(remains(&id).len(), 4);
    kill(Pid::from_raw(holder.id().cast_signed()), Signal::SIGINT).unwrap();
    let status = holder.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(2), "{status}");
    assert_eq!(remains(&id), [""; 0]);
    wait_until("the process inside to end", Duration::from_secs(5), || gone(inside)).unwrap();
}

#[test]
fn what_sigkill_left_is_stale_and_removable() {
    if skip_without("what_sigkill_left_is_stale_and_removable", &["ping"]) {
        return;
    }
    let (mut holder, id, inside) = start_holder();
    let record = list().unwrap().into_iter().find(|record| record.id == id).unwrap();
    assert!(!record.is_orphan());
    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_until("the process inside to end", Duration::from_secs(5), || gone(inside)).unwrap();
    assert!(record.is_orphan());
    assert_eq!(remains(&id).len(), 4);
    // Another test's sweep may have been faster; what counts is that nothing is left.
    remove_stale(false).unwrap();
    assert_eq!(remains(&id), [""; 0]);
}

/// Ended: no such process, or a zombie that init has not reaped yet.
fn gone(process: u32) -> Option<()> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    (stat.is_empty() || stat.contains(") Z ")).then_some(())
}

#[test]
fn a_named_lab_stays_until_it_is_removed() {
    if skip_without("a_named_lab_stays_until_it_is_removed", &["ping"]) {
        return;
    }
    let name = format!("test{}", std::process::id());
    let record = Lab::create_named(&name, &Topology::client_gateway_server()).unwrap();
    assert!(list().unwrap().contains(&record));
    let taken = Lab::create_named(&name, &Topology::client_gateway_server()).unwrap_err();
    assert!(taken.to_string().contains("there is a lab of that name"), "{taken}");
    assert_eq!(remains(&record.id).len(), 4, "the refused one has removed nothing");
    assert!(remove_named(&name).unwrap());
    assert!(!remove_named(&name).unwrap());
    assert_eq!(remains(&record.id), [""; 0]);
}

/// As a gateway, a test or a benchmark leaves it that was killed with `kill -9`.
#[test]
fn what_was_pinned_in_a_lab_goes_with_it_and_nothing_else() {
    const NAME: &str = "what_was_pinned_in_a_lab_goes_with_it_and_nothing_else";
    if skip_without(NAME, &["ping"]) {
        return;
    }
    if !fs::read_to_string("/proc/self/mounts").unwrap().contains(" /sys/fs/bpf bpf ") {
        return skip(NAME, "the BPF file system is not mounted");
    }
    let (mut holder, id, inside) = start_holder();
    let namespace = fs::metadata(format!("/run/netns/{id}-gateway")).unwrap();
    let number = std::os::unix::fs::MetadataExt::ino(&namespace);
    let made = |names: [String; 3]| {
        let pins = names.map(|name| Path::new("/sys/fs/bpf").join(name));
        pins.iter().for_each(|path| fs::create_dir_all(path).unwrap());
        pins
    };
    let own = made([id.clone(), format!("{id}-gateway"), format!("tombolo/tombolo@{number}")]);
    let others = made([format!("{id}0"), format!("tombolo/{id}"), format!("tombolo/tombolo@0{number}0")]);
    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_until("the process inside to end", Duration::from_secs(5), || gone(inside)).unwrap();
    remove_stale(false).unwrap();
    assert_eq!(remains(&id), [""; 0]);
    let are_there = |pins: &[PathBuf; 3]| pins.each_ref().map(|path| path.exists());
    let found = (are_there(&own), are_there(&others));
    others.iter().for_each(|path| fs::remove_dir(path).unwrap());
    assert_eq!(found, ([false; 3], [true; 3]));
}

#[test]
fn a_delayed_link_delays_and_carries_tcp() {
    if skip_without("a_delayed_link_delays_and_carries_tcp", &["ping"]) {
        return;
    }
    let mut topology = Topology::client_gateway_server();
    topology.links[1].delay = Duration::from_millis(20);
    let lab = Lab::create(&topology).unwrap();
    // The first exchange resolves neighbours as well.
    ping(&lab, "client", "198.51.100.2", &[]).unwrap();
    let times = ping(&lab, "client", "198.51.100.2", &["-q"]).unwrap();
    let summary = times.lines().find(|line| line.starts_with("rtt")).unwrap();
    let shortest: f64 = summary.split(" = ").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
    assert!((40.0..80.0).contains(&shortest), "{summary}");

    let server = lab.node("server").unwrap();
    let listener = server.run(|| TcpListener::bind("[2001:db8:2::2]:7")).unwrap().unwrap();
    let sent: Vec<u8> = (0_u32..1 << 18).flat_map(|word| word.to_be_bytes()).collect();
    let client = lab.node("client").unwrap();
    let received = std::thread::scope(|scope| {
        scope.spawn(|| listener.accept().unwrap().0.write_all(&sent).unwrap());
        client.run(|| {
            let mut stream = TcpStream::connect("[2001:db8:2::2]:7").unwrap();
            let mut received = Vec::new();
            std::io::Read::read_to_end(&mut stream, &mut received).unwrap();
            received
        })
    });
    assert!(received.unwrap() == sent, "a mebibyte arrives as it was sent, super-packets included");
}

#[test]
fn the_mtu_of_a_link_is_honoured() {
    if skip_without("the_mtu_of_a_link_is_honoured", &["ping"]) {
        return;
    }
    let mut topology = Topology::client_gateway_server();
    topology.links[1].mtu = Some(1280);
    let lab = Lab::create(&topology).unwrap();
    // 20 bytes IPv4 and 8 bytes ICMP around the data.
    ping(&lab, "client", "198.51.100.2", &["-M", "do", "-s", "1252"]).unwrap();
    let error = ping(&lab, "client", "198.51.100.2", &["-M", "do", "-s", "1253"]).unwrap_err();
    assert!(error.to_string().contains("exited with status 1"), "{error}");
    lab.node("gateway").unwrap().set_mtu("outside0", 1500).unwrap();
    lab.node("server").unwrap().set_mtu("outside0", 1500).unwrap();
    // To another address: the client remembers the path to the first for ten minutes.
    ping(&lab, "client", "198.51.100.1", &["-M", "do", "-s", "1253"]).unwrap();
}

#[test]
fn a_capture_has_the_packets() {
    if skip_without("a_capture_has_the_packets", &["ping", "tcpdump"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let gateway = lab.node("gateway").unwrap();
    gateway.set_offload("outside0", Offload::Gro, false).unwrap();
    let file = directory.path().join("outside.pcap");
    let capture = gateway.capture("outside0", &file, "icmp").unwrap();
    ping(&lab, "client", "198.51.100.2", &[]).unwrap();
    let bytes = || fs::metadata(&file).map(|file| file.len()).unwrap_or_default();
    // File header 24, and twice: record header 16, Ethernet 14, IPv4 20, ICMP 8, data 56.
    let whole = 24 + 2 * (16 + 14 + 20 + 8 + 56);
    wait_until("both packets", Duration::from_secs(5), || (bytes() >= whole).then_some(())).unwrap();
    capture.finish().unwrap();
    assert_eq!(bytes(), whole);
}

#[test]
fn commands_are_limited_in_time_and_report_failures() {
    if skip_without("commands_are_limited_in_time_and_report_failures", &["ping"]) {
        return;
    }
    let lab = Lab::create(&Topology::chain("alone", &["host"])).unwrap();
    let host = lab.node("host").unwrap();
    let begun = Instant::now();
    let error = host.command("sleep").arg("1000").limit(Duration::from_millis(100)).run().unwrap_err();
    assert!(matches!(error, LabError::TimedOut { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5));

    let failure = host.command("sh").args(["-c", "echo why >&2; exit 3"]).run().unwrap();
    let text = failure.success().unwrap_err().to_string();
    assert!(text.contains("exited with status 3\n    why"), "{text}");

    let missing = host.command("no-such-tool").run().unwrap_err();
    assert_eq!(missing.to_string(), "`no-such-tool` is not installed; fix: apt-get install no-such-tool");

    let echoed = host.command("cat").stdin("abc").run().unwrap();
    assert_eq!(echoed.stdout, "abc");

    let mut talker = host.command("sh").args(["-c", "echo ready; sleep 1000"]).spawn().unwrap();
    talker.wait_for_text("ready", Duration::from_secs(5)).unwrap();
    assert!(talker.is_running());
    assert!(!talker.stop().status.success());
}

#[test]
fn closures_run_inside_and_sysctls_are_per_node() {
    if skip_without("closures_run_inside_and_sysctls_are_per_node", &["ping"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let client = lab.node("client").unwrap();
    assert_eq!(client.sysctl("net.ipv4.ip_forward").unwrap(), "0");
    assert_eq!(lab.node("gateway").unwrap().sysctl("net.ipv4.ip_forward").unwrap(), "1");
    let address = (topology::CLIENT_V4, 0);
    client.run(move || TcpListener::bind(address)).unwrap().unwrap();
    let outside = TcpListener::bind(address);
    assert!(outside.is_err(), "the client's address exists in the client only");
    let unknown = lab.node("moon").unwrap_err().to_string();
    assert_eq!(unknown, "the lab has no node `moon`; it has client, gateway, server");
}

#[test]
fn peers_answer_over_http_and_udp() {
    if skip_without("peers_answer_over_http_and_udp", &["curl"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let (client, server) = (lab.node("client").unwrap(), lab.node("server").unwrap());
    let http = Peer::http(server, (topology::SERVER_V4, 80).into(), b"a page".to_vec()).unwrap();
    let page = client.command("curl").args(["-sS", "http://198.51.100.2/"]).run().unwrap().success().unwrap();
    assert_eq!(page.stdout, "a page");
    assert_eq!(http.last_client().unwrap().ip(), topology::CLIENT_V4);

    let echo = Peer::udp_echo(server, (topology::SERVER_V6, 7).into()).unwrap();
    let answer = client.run(|| {
        let socket = UdpSocket::bind((topology::CLIENT_V6, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket.send_to(b"ahoy", echo.address()).unwrap();
        let mut buffer = [0; 16];
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        (buffer[..length].to_vec(), from)
    });
    assert_eq!(answer.unwrap(), (b"ahoy".to_vec(), echo.address()));
}

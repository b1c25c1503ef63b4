//! Starts that fail, hosts that change, and ends of every kind, in a lab. Needs root and skips loudly
//! without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use serde_json::Value;
use tombolo_daemon::fault;
use tombolo_lab::{Lab, Process, Topology, skip_without, wait_until};

mod running;

use running::{PATIENCE, SERVICES, TOMBOLO, end, kill, named_for, rows, run, settings_of_engine, takes};

/// Within which the gateway follows its host.
const SOON: Duration = Duration::from_secs(4);

struct Host {
    lab: Lab,
    home: tempfile::TempDir,
}

impl Host {
    fn new(settings: &str) -> Self {
        let host =
            Self { lab: Lab::create(&Topology::client_gateway_server()).unwrap(), home: tempfile::tempdir().unwrap() };
        host.configure(settings);
        host
    }

    fn configure(&self, settings: &str) {
        fs::write(self.file(), settings_of_engine(settings) + SERVICES).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("gateway.toml")
    }

    fn spawn(&self, fault: &str) -> Process {
        let command = self.lab.node("gateway").unwrap().command(TOMBOLO).args(["run", "-c"]);
        command.arg(self.file().display().to_string()).env("TOMBOLO_FAULT", fault).spawn().unwrap()
    }

    fn start(&self) -> Process {
        run(TOMBOLO, &self.lab, &self.file())
    }

    /// What a command in the gateway's namespace prints.
    fn run(&self, command: &str) -> String {
        let mut words = command.split(' ');
        let program = words.next().unwrap();
        let output = self.lab.node("gateway").unwrap().command(program).args(words).run().unwrap();
        output.success().unwrap().stdout
    }

    fn tombolo(&self, words: &[&str]) -> String {
        let output = self.lab.node("gateway").unwrap().command(TOMBOLO).args(words.iter().copied()).run().unwrap();
        output.success().unwrap().stdout
    }

    fn down(&self) -> String {
        self.tombolo(&["down", "-c", self.file().to_str().unwrap()])
    }

    fn show(&self, what: &str) -> Vec<Value> {
        rows(&self.tombolo(&["show", what, "--json"]))
    }

    /// How the gateway does, and what is wrong.
    fn health(&self) -> (String, String) {
        let status = &self.show("status")[0];
        (status["health"].as_str().unwrap().to_owned(), status["faults"].to_string())
    }

    /// What is attached to an interface, if it is known.
    fn takes(&self, interface: &str) -> Option<String> {
        takes(&self.show("fastpath"), interface)
    }

    fn taken_inside(&self) -> u64 {
        let rows = self.show("fastpath");
        let row = rows.iter().find(|row| row["name"] == "taken-inside").unwrap();
        row["value"].as_str().unwrap().parse().unwrap()
    }

    fn client(&self, command: &str) -> bool {
        let mut words = command.split(' ');
        let program = words.next().unwrap();
        self.lab.node("client").unwrap().command(program).args(words).run().unwrap().status.success()
    }

    fn pings(&self) -> bool {
        self.client("ping -c 1 -W 1 64:ff9b::198.51.100.2") && self.client("ping -c 1 -W 1 198.51.100.2")
    }

    /// Everything that a gateway changes on its host, a line each.
    fn state(&self) -> Vec<String> {
        let mut state = Vec::new();
        for line in self.run("ip -o link").lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let mtu = words.iter().skip_while(|word| **word != "mtu").nth(1).unwrap();
            state.push(format!("{} mtu {mtu} up {}", words[1], words[2].contains("UP")));
        }
        for what in ["-o addr", "route show table all", "-6 route show table all", "rule", "-6 rule"] {
            for line in self.run(&format!("ip {what}")).lines() {
                // What the kernel adds by itself, sooner or later, and what it notes of links.
                let is_of_an_address =
                    what.starts_with("-6") && line.starts_with("local ") && line.contains("proto kernel");
                if !is_of_an_address && !["fe80", "ff00", "anycast"].iter().any(|word| line.contains(word)) {
                    let line = line.split('\\').next().unwrap();
                    state.push(line.replace(" linkdown", "").replace(" tentative", "").replace(" [detached]", ""));
                }
            }
        }
        for directory in [named_for(&self.lab, "/sys/fs/bpf/tombolo"), named_for(&self.lab, "/run/tombolo")].concat() {
            state.push(format!("directory {}", directory.display()));
        }
        let run = fs::read_dir(self.home.path().join("run")).into_iter().flatten().flatten();
        state.extend(run.map(|entry| format!("file {}", entry.path().display())));
        state.sort();
        state
    }
}

/// Fails with what is on one side only.
fn assert_same(found: &[String], wanted: &[String], when: &str) {
    let more: Vec<_> = found.iter().filter(|line| !wanted.contains(line)).collect();
    let less: Vec<_> = wanted.iter().filter(|line| !found.contains(line)).collect();
    assert!(more.is_empty() && less.is_empty(), "{when}: too much {more:#?}, missing {less:#?}");
}

#[test]
fn a_start_that_fails_leaves_the_host_as_it_was() {
    if skip_without("a_start_that_fails_leaves_the_host_as_it_was", &["ip"]) {
        return;
    }
    let host = Host::new("");
    let log = host.home.path().join("log");
    let run = host.home.path().join("run");
    host.configure(&format!(
        "fastpath = \"tc\"\nrun_directory = \"{}\"\nmetrics = \"127.0.0.1:9464\"\nbinding_log = \"{}\"\n",
        run.display(),
        log.display()
    ));
    let before = host.state();
    for (number, step) in fault::START.into_iter().enumerate() {
        let kind = ["error", "enospc", "eperm"][number % 3];
        let output = host.spawn(&format!("{step}={kind}")).wait(PATIENCE).unwrap();
        assert_eq!(output.status.code(), Some(1), "{step}: {}", output.stderr);
        assert!(output.stderr.contains(&format!("{step} failed")), "{step}: {}", output.stderr);
        assert_same(&host.state(), &before, &format!("after {kind} at {step}"));
    }
    for (number, step) in fault::START.into_iter().enumerate() {
        let output = host.spawn(&format!("{step}=kill")).wait(PATIENCE).unwrap();
        assert_eq!(output.status.code(), None, "{step}: {}", output.stderr);
        // The next start takes over whatever there is: the next one that is killed, or a good one.
        if number % 3 == 2 {
            let gateway = host.start();
            assert!(host.pings(), "after a kill at {step}");
            end(gateway);
            host.down();
            fs::remove_dir_all(&run).unwrap();
            assert_same(&host.state(), &before, &format!("after kills up to {step}, a start, an end and a removal"));
        }
    }
    println!("{} faults", 2 * fault::START.len());
}

#[test]
fn an_end_that_is_cut_short_is_made_up_for() {
    if skip_without("an_end_that_is_cut_short_is_made_up_for", &["ip"]) {
        return;
    }
    let host = Host::new("fastpath = \"tc\"\n");
    let before = host.state();
    for step in fault::END {
        let mut gateway = host.spawn(&format!("{step}=kill"));
        gateway.wait_for_text("ready", PATIENCE).unwrap();
        gateway.signal(Signal::SIGTERM).unwrap();
        assert_eq!(gateway.wait(PATIENCE).unwrap().status.code(), None, "{step}");
        let gateway = host.start();
        assert!(host.pings(), "after a kill at {step}");
        end(gateway);
        host.down();
        assert_same(&host.state(), &before, step);
    }
}

#[test]
fn a_gateway_that_is_refused_does_not_touch_another_one() {
    if skip_without("a_gateway_that_is_refused_does_not_touch_another_one", &["ip"]) {
        return;
    }
    let host = Host::new("fastpath = \"tc\"\nmetrics = \"127.0.0.1:9464\"\n");
    let gateway = host.start();
    assert!(host.pings());
    let before = host.state();
    let second = host.home.path().join("second.toml");
    let other = SERVICES.replace("192.0.2.", "203.0.113.").replace("64:ff9b::/96", "2001:db8:64::/96");
    for (settings, reason) in [
        // Metrics at an address that is taken; a routing table, and a prefix, of somebody else.
        (
            "device = \"other\"\ntable = 85\nfastpath = \"tc\"\nmetrics = \"127.0.0.1:9464\"\n",
            "metrics cannot be served",
        ),
        ("device = \"other\"\nfastpath = \"tc\"\n", "routing table 84 has a default route already"),
    ] {
        fs::write(&second, settings_of_engine(settings) + &other).unwrap();
        let command = host.lab.node("gateway").unwrap().command(TOMBOLO).args(["run", "-c"]);
        let output = command.arg(second.display().to_string()).run().unwrap();
        assert!(!output.status.success() && output.stderr.contains(reason), "{reason}: {}", output.stderr);
        assert_same(&host.state(), &before, reason);
    }
    fs::write(&second, format!("[gateway]\ndevice = \"other\"\ntable = 85\nfastpath = \"tc\"\n{SERVICES}")).unwrap();
    let command = host.lab.node("gateway").unwrap().command(TOMBOLO).args(["run", "-c"]);
    let output = command.arg(second.display().to_string()).run().unwrap();
    assert!(output.stderr.contains("is routed to tombolo already"), "{}", output.stderr);
    assert_same(&host.state(), &before, "a prefix of somebody else");
    assert!(host.pings());
    end(gateway);
}

#[test]
fn private_sources_do_not_leave_while_no_gateway_runs() {
    if skip_without("private_sources_do_not_leave_while_no_gateway_runs", &["ip", "ping", "nft"]) {
        return;
    }
    let host = Host::new("");
    let before = host.state();
    // The kernel sends six errors at once to a host, then one a second.
    host.lab.node("gateway").unwrap().set_sysctl("net.ipv4.icmp_ratelimit", "0").unwrap();
    let rules = "table ip leak { counter seen {}; chain out { type filter hook postrouting priority 300; \
                 oifname outside0 ip saddr 10.0.0.0/24 counter name seen; }; }";
    host.lab.node("gateway").unwrap().command("nft").args([rules]).run().unwrap().success().unwrap();
    let leaked = || {
        let shown: Value = serde_json::from_str(&host.run("nft --json list counters")).unwrap();
        let items = shown["nftables"].as_array().unwrap();
        items.iter().find_map(|item| item["counter"]["packets"].as_u64()).unwrap()
    };
    let answer = || {
        let ping =
            host.lab.node("client").unwrap().command("ping").args(["-c", "2", "-i", "0.2", "-W", "1", "198.51.100.2"]);
        ping.run().unwrap().stdout
    };
    answer();
    assert!(leaked() > 0, "nothing keeps them in before the first start");
    let mut gateway = host.start();
    let leaked_before = leaked();
    assert!(answer().contains(" 0% packet loss"));
    kill(&mut gateway);
    let text = answer();
    assert!(text.contains("Packet filtered"), "after a kill: {text}");
    // Hosts inside still reach the gateway's host, and each other.
    assert!(host.client("ping -c 1 -W 1 10.0.0.1"));
    let gateway = host.start();
    assert!(answer().contains(" 0% packet loss"), "the next one takes over");
    end(gateway);
    let text = answer();
    assert!(text.contains("Packet filtered"), "after a clean end: {text}");
    assert_eq!(leaked(), leaked_before, "not one packet left with its private source");
    // Of other sources, those of before are let go.
    let file = fs::read_to_string(host.file()).unwrap();
    fs::write(host.file(), file.replace("10.0.0.0/24", "10.9.0.0/24")).unwrap();
    let gateway = host.start();
    let shown = host.run("ip rule");
    assert!(shown.contains("from 10.9.0.0/24 lookup 84") && !shown.contains("from 10.0.0.0/24"), "{shown}");
    let output = host.lab.node("gateway").unwrap().command(TOMBOLO).args(["down"]).run().unwrap();
    assert!(output.stderr.contains("a gateway runs with the device tombolo"), "{}", output.stderr);
    end(gateway);
    let text = host.down();
    assert!(text.contains("2 rules, 2 routes and 0 answers for neighbours removed"), "{text}");
    assert_same(&host.state(), &before, "after tombolo down");
}

#[test]
fn an_interface_that_vanishes_takes_nothing_from_the_others() {
    if skip_without("an_interface_that_vanishes_takes_nothing_from_the_others", &["ip", "ping"]) {
        return;
    }
    let host = Host::new("fastpath = \"tc\"\n");
    let mut gateway = host.start();
    for round in 0..5 {
        host.run("ip link add late0 type veth peer name late1");
        wait_until("late0 is served", SOON, || host.takes("late0").filter(|takes| takes == "tc")).unwrap();
        // The reload comes before the gateway has noticed, or after.
        host.run("ip link del late0");
        if round % 2 == 1 {
            std::thread::sleep(Duration::from_millis(400));
        }
        host.tombolo(&["reload"]);
        assert_eq!(host.takes("inside0").as_deref(), Some("tc"), "{}", gateway.stderr());
        wait_until("late0 is forgotten", SOON, || host.takes("late0").is_none().then_some(())).unwrap();
    }
    assert!(host.pings());
    let before = host.taken_inside();
    assert!(host.pings() && host.taken_inside() > before, "the fast path serves on");
    assert_eq!(host.health().0, "ready", "{:?}", host.health());
    let links = fs::read_dir(&named_for(&host.lab, "/sys/fs/bpf/tombolo")[0]).unwrap().flatten();
    let links = links.filter(|entry| entry.file_name().to_string_lossy().starts_with("link-")).count();
    assert_eq!(
        links,
        host.show("fastpath").iter().filter(|row| row["value"] == "tc").count(),
        "and no link is left over"
    );
    assert!(!gateway.stderr().contains("fast path is off"), "{}", gateway.stderr());
    gateway.signal(Signal::SIGTERM).unwrap();
    gateway.wait(PATIENCE).unwrap().success().unwrap();
}

#[test]
fn an_interface_may_have_another_name_address_and_mtu() {
    if skip_without("an_interface_may_have_another_name_address_and_mtu", &["ip", "ping"]) {
        return;
    }
    let host = Host::new("fastpath = \"tc\"\n");
    let gateway = host.start();
    let goes_through_the_kernel = || {
        let before = host.taken_inside();
        (host.pings() && host.taken_inside() >= before + 2).then_some(())
    };
    wait_until("packets go through the kernel", PATIENCE, goes_through_the_kernel).unwrap();

    host.run("ip link set inside0 address 02:00:00:00:be:ef");
    std::thread::sleep(Duration::from_secs(1));
    // The client asks for the new address when it needs it.
    host.client("ip neigh flush dev inside0");
    wait_until("the new address is the gateway's", PATIENCE, goes_through_the_kernel).unwrap();

    host.run("ip link property add dev inside0 altname another");
    host.run("ip link set inside0 down");
    host.run("ip link set inside0 name renamed0");
    host.run("ip link set renamed0 up");
    host.run("ip addr replace 2001:db8:1::1/64 dev renamed0 nodad");
    wait_until("the new name is known", SOON, || host.takes("renamed0").filter(|takes| takes == "tc")).unwrap();
    assert_eq!(host.takes("inside0"), None);
    wait_until("packets go through the kernel again", PATIENCE, goes_through_the_kernel).unwrap();
    host.tombolo(&["reload"]);
    assert_eq!(host.takes("renamed0").as_deref(), Some("tc"));

    host.run("ip link set outside0 mtu 1400");
    let large = || !host.client("ping -c 1 -W 1 -M do -s 1432 64:ff9b::198.51.100.2");
    wait_until("packets that are too big now are refused", SOON, || large().then_some(())).unwrap();
    assert!(host.client("ping -c 1 -W 2 -M do -s 1332 64:ff9b::198.51.100.2"));
    end(gateway);
}

#[test]
fn what_somebody_takes_from_the_host_is_put_back() {
    if skip_without("what_somebody_takes_from_the_host_is_put_back", &["ip", "ping"]) {
        return;
    }
    let host = Host::new("metrics = \"127.0.0.1:9464\"\n");
    let mut gateway = host.start();
    assert!(host.pings());
    let before = host.state();
    for (number, command) in [
        "ip link set tombolo down",
        "ip route flush table 84",
        "ip -6 route del 64:ff9b::/96",
        "ip rule del from 10.0.0.0/24 table 84",
        "ip link set tombolo mtu 1300",
    ]
    .into_iter()
    .enumerate()
    {
        host.run(command);
        let began = Instant::now();
        if wait_until(command, SOON, || (host.state() == before).then_some(())).is_err() {
            assert_same(&host.state(), &before, command);
        }
        println!("{command}: put back after {:?}", began.elapsed());
        assert!(host.pings(), "{command}");
        assert!(host.show("status")[0]["put_back"].as_u64().unwrap() > number as u64);
    }
    wait_until("it is ready", SOON, || (host.health().0 == "ready").then_some(())).unwrap();
    assert!(gateway.stderr().contains("put back: "), "{}", gateway.stderr());

    // Against somebody who goes on the gateway does not struggle, but says so.
    wait_until("the gateway gives in", PATIENCE, || {
        host.run("ip link set tombolo down");
        (host.health().0 == "degraded").then_some(())
    })
    .unwrap();
    assert!(host.health().1.contains("device tombolo, which is down"), "{:?}", host.health());
    let lines = gateway.stderr().lines().filter(|line| line.contains("put back: ")).count();
    assert!(lines <= 12, "{lines} lines");
    wait_until("it is ready again", PATIENCE, || (host.health().0 == "ready").then_some(())).unwrap();

    // What somebody else has taken is named.
    host.run("ip route replace 192.0.2.1 dev outside0");
    let named = || host.health().1.contains("192.0.2.1/32 is routed to outside0 already");
    wait_until("it is named", PATIENCE, || named().then_some(())).unwrap();
    let page = host.run("curl -s http://127.0.0.1:9464/metrics");
    assert!(page.contains("tombolo_health{state=\"degraded\"} 1"), "{page}");
    gateway.signal(Signal::SIGTERM).unwrap();
    gateway.wait(PATIENCE).unwrap().success().unwrap();
}

#[test]
fn an_address_that_somebody_takes_from_the_device_is_put_back() {
    if skip_without("an_address_that_somebody_takes_from_the_device_is_put_back", &["ip"]) {
        return;
    }
    let host = Host::new("");
    let clat = "[[service]]\nkind = \"clat\"\nprefix = \"2001:db8:64::/96\"\nhost = \"192.0.0.1\"\n\
                eam = [{ ipv4 = \"192.0.0.1\", ipv6 = \"2001:db8:464::1\" }]\n";
    host.set_up("", clat);
    let gateway = host.start();
    let before = host.state();
    assert!(before.iter().any(|line| line.contains("192.0.0.1/32")), "{before:#?}");
    // With the address go the routes that have it as their source.
    host.run("ip addr del 192.0.0.1/32 dev tombolo");
    if wait_until("the address is there again", SOON, || (host.state() == before).then_some(())).is_err() {
        assert_same(&host.state(), &before, &gateway.stderr());
    }
    end(gateway);
}

/// A file system in memory of a few megabytes, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(path: &Path, size: &str) -> Self {
        fs::create_dir(path).unwrap();
        mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), Some(format!("size={size},mode=700").as_str()))
            .unwrap();
        Self(path.to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_run_directory_without_room_or_that_others_may_write_is_refused() {
    if skip_without("a_run_directory_without_room_or_that_others_may_write_is_refused", &["ip"]) {
        return;
    }
    let host = Host::new("");
    let run = host.home.path().join("disk");
    host.configure(&format!("run_directory = \"{}\"\n", run.display()));
    let refused = || {
        let output = host.spawn("").wait(PATIENCE).unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
        output.stderr
    };
    let before = host.state();
    let disk = SmallDisk::new(&run, "4m");
    let text = refused();
    assert!(text.contains("has no room for it") && text.contains("lower [capacity]"), "{text}");
    assert_eq!(fs::read_dir(&run).unwrap().count(), 1, "the lock alone is left");
    drop(disk);
    // With room for the tables and nothing else the gateway lives, whatever it has to write.
    let disk = SmallDisk::new(&host.home.path().join("larger"), "80m");
    fs::remove_dir(&run).unwrap();
    host.configure(&format!("run_directory = \"{}\"\n", disk.0.display()));
    let mut gateway = host.start();
    let fill = fs::write(disk.0.join("filler"), vec![1; 80 << 20]);
    assert!(fill.is_err(), "the disk is full now");
    assert!(host.pings() && gateway.is_running());
    end(gateway);

    fs::remove_file(disk.0.join("filler")).unwrap();
    let table =
        fs::read_dir(&disk.0).unwrap().flatten().find(|entry| entry.path().extension().is_some_and(|e| e == "table"));
    fs::OpenOptions::new().write(true).open(table.unwrap().path()).unwrap().set_len(8192).unwrap();
    let text = refused();
    assert!(text.contains("it was truncated, or is not the gateway's"), "{text}");
    fs::set_permissions(&disk.0, fs::Permissions::from_mode(0o777)).unwrap();
    let text = refused();
    assert!(text.contains("chmod go-w"), "{text}");
    host.down();
    assert_same(&host.state(), &before, "at the end");
}

#[test]
fn under_ip_netns_exec_known_sessions_go_on_after_a_kill_or_it_is_said_that_they_do_not() {
    let name = "under_ip_netns_exec_known_sessions_go_on_after_a_kill_or_it_is_said_that_they_do_not";
    if skip_without(name, &["ip", "ping", "unshare"]) {
        return;
    }
    let host = Host::new("fastpath = \"tc\"\n");
    // What `ip netns exec` does: a mount namespace of its own with a /sys of its own.
    let script =
        format!("umount -l /sys && mount -t sysfs sysfs /sys && exec {TOMBOLO} run -c {}", host.file().display());
    let command = host.lab.node("gateway").unwrap().command("unshare").args(["--mount", "sh", "-c", &script]);
    let mut gateway = command.spawn().unwrap();
    gateway.wait_for_text("ready", PATIENCE).unwrap();
    let before = host.taken_inside();
    let through = || {
        assert!(host.pings());
        (host.taken_inside() > before).then_some(())
    };
    wait_until("packets go through the kernel", PATIENCE, through).unwrap();
    // Where process 1 may not be looked into, as in some containers, nothing can be done.
    let lasts = fs::metadata("/proc/1/root/sys/fs/bpf").is_ok();
    let said = if lasts { "the fast path uses that of process 1" } else { "the fast path ends with this process" };
    assert!(gateway.stderr().contains(said), "{}", gateway.stderr());
    let client = host.lab.node("client").unwrap();
    let socket = client.run(|| std::net::UdpSocket::bind("[::]:0").unwrap()).unwrap();
    let _echo =
        tombolo_lab::Peer::udp_echo(host.lab.node("server").unwrap(), "198.51.100.2:7".parse().unwrap()).unwrap();
    socket.connect("[64:ff9b::c633:6402]:7".parse::<std::net::SocketAddr>().unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let round_trip = || socket.send(b"x").is_ok() && socket.recv(&mut [0; 8]).is_ok();
    assert!(round_trip() && round_trip() && round_trip());
    kill(&mut gateway);
    if lasts {
        assert!(round_trip(), "{said}");
    } else {
        wait_until("the pins are gone with the mount namespace", PATIENCE, || (!round_trip()).then_some(())).unwrap();
    }
    host.down();
    assert_eq!(named_for(&host.lab, "/sys/fs/bpf/tombolo"), Vec::<PathBuf>::new());
}

#[test]
fn programs_that_are_filters_go_when_nobody_wants_them_any_more() {
    let name = "programs_that_are_filters_go_when_nobody_wants_them_any_more";
    if skip_without(name, &["ip", "ping", "tc"]) {
        return;
    }
    let host = Host::new("");
    let run = host.home.path().join("run");
    let files = format!("run_directory = \"{}\"\n", run.display());
    let kernel = format!("{files}fastpath = \"tc\"\n");
    let filters = || ["inside0", "outside0"].map(|name| host.run(&format!("tc filter show dev {name} ingress")));
    let attached = || filters().iter().filter(|shown| shown.contains("tombolo_tc")).count();
    let flow = Flow::new(&host);
    // A kernel without links for TC, as before Linux 6.6.
    let filtered_and_killed = || {
        host.configure(&kernel);
        let mut gateway = host.spawn("tcx=error");
        gateway.wait_for_text("ready", PATIENCE).unwrap();
        let said = gateway.stderr();
        assert!(attached() == 2 && said.contains("tc (filter)"), "{:?}\n{said}", filters());
        // A reload replaces them.
        host.tombolo(&["reload", "--gateway", run.to_str().unwrap()]);
        assert!(attached() == 2 && flow.goes(), "{:?}", filters());
        let known = host.bindings(Some(&run));
        assert_eq!(known.len(), 1, "{}", gateway.stderr());
        kill(&mut gateway);
        assert!(attached() == 2 && flow.goes(), "it goes on in the kernel");
        known
    };
    filtered_and_killed();
    let known = filtered_and_killed();
    host.configure(&files);
    let gateway = host.start();
    assert_eq!(attached(), 0, "{:?}\n{}", filters(), gateway.stderr());
    assert!(flow.goes() && host.bindings(Some(&run)) == known, "the engine goes on: {}", gateway.stderr());
    end(gateway);
    filtered_and_killed();
    host.down();
    assert_eq!(attached(), 0, "{:?}", filters());
    let known = filtered_and_killed();
    let gateway = host.start();
    assert!(attached() == 0 && host.bindings(Some(&run)) == known && flow.goes(), "links: {:?}", filters());
    end(gateway);
}

#[test]
fn threads_that_die_are_noticed() {
    if skip_without("threads_that_die_are_noticed", &["ip", "ping"]) {
        return;
    }
    let host = Host::new("");
    let log = host.home.path().join("log");
    host.configure(&format!("binding_log = \"{}\"\nfastpath = \"tc\"\n", log.display()));
    let mut gateway = host.spawn("thread-maintenance=panic-once");
    gateway.wait_for_text("the thread maintenance panicked and is started again", PATIENCE).unwrap();
    gateway.wait_for_text("ready", PATIENCE).unwrap();
    wait_until("it sweeps", PATIENCE, || host.show("status")[0]["sessions"].as_u64()).unwrap();
    end(gateway);
    for thread in ["maintenance", "log", "lookout", "upkeep", "worker"] {
        let output = host.spawn(&format!("thread-{thread}=panic")).wait(PATIENCE).unwrap();
        assert_eq!(output.status.code(), Some(1), "{thread}: {}", output.stderr);
        assert!(output.stderr.contains("panicked; this is a defect"), "{thread}: {}", output.stderr);
    }
}

#[test]
fn signals_that_mean_nothing_change_nothing_and_a_reload_that_hangs_keeps_nobody() {
    let name = "signals_that_mean_nothing_change_nothing_and_a_reload_that_hangs_keeps_nobody";
    if skip_without(name, &["ip", "ping"]) {
        return;
    }
    let host = Host::new("");
    let mut gateway = host.spawn("reload-prepared=hang");
    gateway.wait_for_text("ready", PATIENCE).unwrap();
    for signal in
        [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGALRM, Signal::SIGVTALRM, Signal::SIGPROF, Signal::SIGXFSZ]
    {
        gateway.signal(signal).unwrap();
        gateway.wait_for_text(&format!("{} means nothing here", signal.as_str()), PATIENCE).unwrap();
    }
    assert!(host.pings());
    gateway.signal(Signal::SIGHUP).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(host.pings());
    let began = Instant::now();
    end(gateway);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn directories_of_gateways_that_were_killed_do_not_pile_up() {
    if skip_without("directories_of_gateways_that_were_killed_do_not_pile_up", &["ip"]) {
        return;
    }
    let killed = Host::new("");
    let mut gateway = killed.start();
    let left = named_for(&killed.lab, "/run/tombolo");
    assert_eq!(left.len(), 1);
    kill(&mut gateway);
    let other = Host::new("");
    let gateway = other.start();
    assert!(!left[0].exists(), "the next start removes it");
    assert_eq!(named_for(&other.lab, "/run/tombolo").len(), 1);
    end(gateway);
    assert_eq!(named_for(&other.lab, "/run/tombolo"), Vec::<PathBuf>::new());
}

/// Room for more, and more addresses for those who do not have one yet.
fn changed() -> String {
    SERVICES
        .replace("bindings = 10000", "bindings = 12000")
        .replace("192.0.2.16/28\"", "192.0.2.32/28\" }, { addresses = \"192.0.2.16/28\"")
}

/// A flow through the gateway, and the endpoint that it has.
struct Flow {
    socket: std::net::UdpSocket,
    _echo: tombolo_lab::Peer,
}

impl Flow {
    fn new(host: &Host) -> Self {
        let server = host.lab.node("server").unwrap();
        let echo = tombolo_lab::Peer::udp_echo(server, "198.51.100.2:7".parse().unwrap()).unwrap();
        let client = host.lab.node("client").unwrap();
        let socket = client.run(|| std::net::UdpSocket::bind("[::]:0").unwrap()).unwrap();
        socket.connect("[64:ff9b::c633:6402]:7".parse::<std::net::SocketAddr>().unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        Self { socket, _echo: echo }
    }

    fn goes(&self) -> bool {
        let ask = || (self.socket.send(b"x").is_ok() && self.socket.recv(&mut [0; 8]).is_ok()).then_some(());
        wait_until("an answer", PATIENCE, ask).is_ok()
    }
}

impl Host {
    fn set_up(&self, settings: &str, services: &str) {
        fs::write(self.file(), settings_of_engine(settings) + services).unwrap();
    }

    /// Endpoints of the bindings of UDP, as the gateway shows them.
    fn bindings(&self, directory: Option<&Path>) -> Vec<String> {
        let directory = directory.map(|path| path.display().to_string());
        let gateway = directory.iter().flat_map(|path| ["--gateway", path]);
        let words: Vec<&str> = ["show", "bindings", "--json"].into_iter().chain(gateway).collect();
        let rows = self.tombolo(&words);
        let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let rows = rows.filter(|row| row["protocol"] == "udp");
        let fields = ["service", "inside", "inside_port", "outside", "outside_port"];
        let mut found: Vec<String> = rows.map(|row| fields.map(|field| row[field].to_string()).join(" ")).collect();
        found.sort();
        found
    }

    /// A start at which a step fails or kills: its end, or the gateway if it runs nevertheless.
    fn try_start(&self, fault: &str) -> Option<Process> {
        let mut gateway = self.spawn(fault);
        let runs = || match gateway.stderr().contains("ready") {
            true => Some(true),
            false => (!gateway.is_running()).then_some(false),
        };
        wait_until("it runs or has ended", PATIENCE, runs).unwrap();
        // One that dies does so before the next step, which may come after it says that it is ready.
        std::thread::sleep(Duration::from_millis(200));
        gateway.is_running().then_some(gateway)
    }
}

/// A start that finds state of an earlier process is cut short at a step, by an error and by a kill.
/// After the error everything is as before, or the gateway runs; and after both the next start has
/// the state, and leaves nothing else.
fn cut_short(settings: &str, run: Option<&Path>, steps: &[&str], home: &Host, plans: [&str; 2]) -> usize {
    home.set_up(settings, plans[0]);
    let flow = Flow::new(home);
    let mut gateway = home.start();
    assert!(flow.goes());
    let mut known = home.bindings(run);
    assert_eq!(known.len(), 1, "{known:?}");
    kill(&mut gateway);
    let mut faults = 0;
    for (number, step) in steps.iter().enumerate() {
        for kind in [["error", "enospc", "eperm"][number % 3], "kill"] {
            faults += 1;
            let when = format!("after {kind} at {step}");
            home.set_up(settings, plans[faults % 2]);
            let before = home.tables(run);
            match home.try_start(&format!("{step}={kind}")) {
                Some(gateway) => {
                    assert!(kind != "kill", "{when}: {}", gateway.stderr());
                    assert!(flow.goes(), "{when}: {}", gateway.stderr());
                    assert_eq!(home.bindings(run), known, "{when}: {}", gateway.stderr());
                    end(gateway);
                }
                None if kind != "kill" => assert_eq!(home.tables(run), before, "{when}"),
                None => {}
            }
            let mut gateway = home.start();
            if *step == "seal" && kind != "kill" {
                // Tables that could not be marked as complete: the one loss, which the log tells.
                assert_eq!(home.bindings(run), Vec::<String>::new(), "{when}: {}", gateway.stderr());
                assert!(flow.goes(), "{when}: {}", gateway.stderr());
                known = home.bindings(run);
            }
            assert_eq!(home.bindings(run), known, "{when}: {}", gateway.stderr());
            assert!(flow.goes(), "{when}: {}", gateway.stderr());
            let left = home.tables(run).into_iter().filter(|path| path.contains("former")).collect::<Vec<_>>();
            assert_eq!(left, Vec::<String>::new(), "{when}");
            kill(&mut gateway);
        }
    }
    faults
}

impl Host {
    /// Where tables are, of which kind, and how many links.
    fn tables(&self, run: Option<&Path>) -> Vec<String> {
        let mut found = Vec::new();
        let mut directories: Vec<PathBuf> = named_for(&self.lab, "/sys/fs/bpf/tombolo");
        directories.extend(run.map(Path::to_owned));
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    directories.push(entry.path());
                }
                found.push(entry.path().display().to_string());
            }
        }
        found.retain(|path| !path.ends_with(".sock") && !path.ends_with("/lock"));
        found.sort();
        found
    }
}

/// Both, with these settings besides; `forget` takes away what a gateway has left.
fn changes_and_adoptions_are_made_up_for(settings: &str, forget: impl Fn(&Host, &Path)) {
    let host = Host::new("");
    let run = host.home.path().join("run");
    let settings = format!("run_directory = \"{}\"\n{settings}", run.display());
    let before = host.state();
    let (services, changed) = (SERVICES.to_owned(), changed());
    let mut faults = cut_short(&settings, Some(&run), &fault::MIGRATION, &host, [&services, &changed]);
    forget(&host, &run);
    faults += cut_short(&settings, Some(&run), &fault::ADOPTION, &host, [&services, &services]);
    println!("{faults} faults");
    host.down();
    fs::remove_dir_all(&run).unwrap();
    assert_same(&host.state(), &before, "at the end");
}

#[test]
fn a_change_or_adoption_that_is_cut_short_is_made_up_for_in_files() {
    if skip_without("a_change_or_adoption_that_is_cut_short_is_made_up_for_in_files", &["ip"]) {
        return;
    }
    changes_and_adoptions_are_made_up_for("", |_, run| fs::remove_dir_all(run).unwrap());
}

#[test]
fn a_change_or_adoption_that_is_cut_short_is_made_up_for_in_the_kernel() {
    if skip_without("a_change_or_adoption_that_is_cut_short_is_made_up_for_in_the_kernel", &["ip"]) {
        return;
    }
    changes_and_adoptions_are_made_up_for("fastpath = \"tc\"\n", |host, _| drop(host.down()));
}

#[test]
fn a_move_into_the_kernel_or_out_of_it_that_is_cut_short_is_made_up_for() {
    if skip_without("a_move_into_the_kernel_or_out_of_it_that_is_cut_short_is_made_up_for", &["ip"]) {
        return;
    }
    let host = Host::new("");
    let run = host.home.path().join("run");
    let files = format!("run_directory = \"{}\"\n", run.display());
    let kernel = format!("{files}fastpath = \"tc\"\n");
    let before = host.state();
    host.set_up(&files, SERVICES);
    let flow = Flow::new(&host);
    let mut gateway = host.start();
    assert!(flow.goes());
    let mut known = host.bindings(Some(&run));
    kill(&mut gateway);
    for (number, step) in
        [fault::ELSEWHERE, "old-programs", "carry-over-last", "seal", "sealed"].into_iter().enumerate()
    {
        for kind in ["eperm", "kill"] {
            let when = format!("after {kind} at {step}");
            host.set_up(if number % 2 == 0 { &kernel } else { &files }, SERVICES);
            if let Some(gateway) = host.try_start(&format!("{step}={kind}")) {
                assert!(flow.goes() && host.bindings(Some(&run)) == known, "{when}: {}", gateway.stderr());
                end(gateway);
            }
            if kind == "kill" || step == "seal" {
                let mut gateway = host.start();
                if kind != "kill" {
                    assert!(host.bindings(Some(&run)).is_empty() && flow.goes(), "{when}: the one loss");
                    known = host.bindings(Some(&run));
                }
                assert_eq!(host.bindings(Some(&run)), known, "{when}: {}", gateway.stderr());
                assert!(flow.goes(), "{when}");
                kill(&mut gateway);
            }
        }
    }
    host.down();
    fs::remove_dir_all(&run).unwrap();
    assert_same(&host.state(), &before, "at the end");
}

#[test]
fn a_reload_that_is_cut_short_is_made_up_for() {
    if skip_without("a_reload_that_is_cut_short_is_made_up_for", &["ip", "ping"]) {
        return;
    }
    let host = Host::new("");
    let settings = "fastpath = \"tc\"\n";
    // Other pools, and a service more in front of the others.
    let more = "[[service]]\nkind = \"nat64\"\nname = \"more\"\nprefix = \"2001:db8:64::/96\"\npool = [{ addresses = \"192.0.2.9\" }]\n";
    let larger = SERVICES.replace("192.0.2.16/28", "192.0.2.16-192.0.2.47").replacen(
        "[[service]]",
        &format!("{more}[[service]]"),
        1,
    );
    let other = format!("{larger}\n[timeouts]\nudp = 200\n");
    let before = host.state();
    let flow = Flow::new(&host);
    let mut known = None;
    for (number, step) in fault::RELOAD.into_iter().enumerate() {
        let is_refused = ["reload-read", "reload-host"].contains(&step);
        let fails = is_refused || ["reload-programs", "reload-link"].contains(&step);
        let kind = ["error", "enospc", "eperm"][number % 3];
        for kind in [kind, "kill"].into_iter().filter(|kind| fails || *kind == "kill") {
            let when = format!("after {kind} at {step}");
            host.set_up(settings, SERVICES);
            let mut gateway = host.spawn(&format!("{step}={kind}"));
            gateway.wait_for_text("ready", PATIENCE).unwrap();
            assert!(flow.goes(), "{when}");
            let found = host.bindings(None);
            assert_eq!(known.get_or_insert_with(|| found.clone()), &found, "{when}");
            host.set_up(settings, &other);
            let reload = host.lab.node("gateway").unwrap().command(TOMBOLO).args(["reload"]).run().unwrap();
            if kind == "kill" {
                wait_until("it is gone", PATIENCE, || (!gateway.is_running()).then_some(())).unwrap();
                assert!(flow.goes(), "{when}: the kernel's programs go on");
            } else {
                let said = format!("{}{}", reload.stdout, reload.stderr);
                let expected = if is_refused { "nothing was changed" } else { "fast path" };
                assert!(said.contains(expected), "{when}: {said}");
                assert!(flow.goes() && host.pings(), "{when}: the engine takes them");
                assert_eq!(host.health().0, if is_refused { "ready" } else { "degraded" }, "{when}");
                kill(&mut gateway);
            }
            let mut gateway = host.start();
            assert_eq!(Some(host.bindings(None)), known, "{when}: {}", gateway.stderr());
            assert!(flow.goes() && host.health().0 == "ready", "{when}");
            kill(&mut gateway);
        }
    }
    host.down();
    assert_same(&host.state(), &before, "at the end");
}

//! What a running gateway may still do, and that it does all it is there for with that, in a lab. Needs
//! root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tombolo_lab::{Lab, Process, Topology, skip_without, wait_until};

mod running;

use running::{PATIENCE, SERVICES, TOMBOLO, end, kill, pins, rows, settings_of_engine, takes};

const SOON: Duration = Duration::from_secs(4);
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;
const NOBODY: &str = "65534";

/// A gateway's host. The directories are apart: what lies beside them is none of the gateway's business.
struct Host {
    lab: Lab,
    home: tempfile::TempDir,
}

impl Host {
    fn new(settings: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        for directory in ["etc", "log"] {
            fs::create_dir(home.path().join(directory)).unwrap();
        }
        let host = Self { lab: Lab::create(&Topology::client_gateway_server()).unwrap(), home };
        host.configure(settings, SERVICES);
        host
    }

    /// `HOME` in the settings is the directory that everything is in.
    fn configure(&self, settings: &str, services: &str) {
        let settings = settings.replace("HOME", &self.home.path().display().to_string());
        fs::write(self.file(), settings_of_engine(&settings) + services).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("etc/gateway.toml")
    }

    fn start_with(&self, variables: &[(&str, &str)]) -> Process {
        let command = self.lab.node("gateway").unwrap().command(TOMBOLO).args(["run", "-c"]);
        let mut command = command.arg(self.file().display().to_string());
        for (name, value) in variables {
            command = command.env(*name, *value);
        }
        let mut gateway = command.spawn().unwrap();
        gateway.wait_for_text("ready", PATIENCE).unwrap();
        gateway
    }

    fn start(&self) -> Process {
        self.start_with(&[])
    }

    fn run(&self, node: &str, program: &str, words: &str) -> String {
        let words = words.split(' ').filter(|word| !word.is_empty());
        let output = self.lab.node(node).unwrap().command(program).args(words).run().unwrap();
        output.success().unwrap().stdout
    }

    /// A command to the gateway.
    fn tombolo(&self, words: &str) -> String {
        self.run("gateway", TOMBOLO, &format!("{words} --gateway {}/run", self.home.path().display()))
    }

    fn show(&self, what: &str) -> Vec<Value> {
        rows(&self.tombolo(&format!("show {what} --json")))
    }

    fn takes(&self, interface: &str) -> Option<String> {
        takes(&self.show("fastpath"), interface)
    }

    fn pings(&self) -> bool {
        ["64:ff9b::198.51.100.2", "198.51.100.2"].iter().all(|address| {
            let ping = self.lab.node("client").unwrap().command("ping").args(["-c", "1", "-W", "1", address]);
            ping.run().unwrap().status.success()
        })
    }

    /// The gateway's own; `HOME` as above.
    fn owner(&self, path: &str) -> u32 {
        fs::metadata(self.home.path().join(path)).unwrap().uid()
    }
}

/// What `/proc/PID/status` of each thread says under a name.
fn of_threads(gateway: &Process, name: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{}/task", gateway.id())).unwrap();
    let statuses = threads.filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("status")).ok());
    let value = |status: String| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        line[name.len() + 1..].split_whitespace().next().unwrap().to_owned()
    };
    statuses.map(value).collect()
}

fn assert_threads(gateway: &Process, name: &str, wanted: &str) {
    let found = of_threads(gateway, name);
    assert!(found.len() > 3 && found.iter().all(|value| value == wanted), "{name}: {found:?}, not {wanted}");
}

/// What all threads have, and no more.
fn assert_confined(gateway: &Process, user: &str, capabilities: u64) {
    for name in ["Uid", "Gid"] {
        assert_threads(gateway, name, user);
    }
    for name in ["CapEff", "CapPrm"] {
        assert_threads(gateway, name, &format!("{capabilities:016x}"));
    }
    for (name, value) in [("CapInh", 0), ("CapAmb", 0), ("CapBnd", capabilities)] {
        assert_threads(gateway, name, &format!("{value:016x}"));
    }
    assert_threads(gateway, "NoNewPrivs", "1");
    assert_threads(gateway, "Seccomp", "2");
}

#[test]
fn forbidden_calls_are_refused_in_every_thread() {
    if skip_without("forbidden_calls_are_refused_in_every_thread", &["ip", "ping"]) {
        return;
    }
    let host = Host::new("");
    let decoy = host.home.path().join("decoy");
    fs::write(&decoy, "somebody else's").unwrap();
    let (name, port) = (format!("tombolo-decoy-{}", std::process::id()), 7777);
    let node = host.lab.node("gateway").unwrap();
    let listeners = node.run(|| {
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        (UnixListener::bind_addr(&address).unwrap(), std::net::TcpListener::bind(("127.0.0.1", port)).unwrap())
    });
    let _listeners = listeners.unwrap();
    let decoys = format!("{},{name},{port}", decoy.display());
    let user = format!("user = \"{NOBODY}\"\n");
    for (thread, settings) in [
        ("ready", ""),
        ("ready", user.as_str()),
        ("thread-worker", ""),
        ("thread-upkeep", user.as_str()),
        ("thread-log", "binding_log = \"HOME/log/bindings\"\n"),
        ("thread-lookout", "fastpath = \"tc\"\n"),
    ] {
        host.configure(settings, SERVICES);
        let fault = format!("{thread}=forbidden");
        let mut gateway = host.start_with(&[("TOMBOLO_FAULT", &fault), ("TOMBOLO_DECOY", &decoys)]);
        gateway.wait_for_text("forbidden calls tried", PATIENCE).unwrap();
        assert!(host.pings(), "{thread}: the gateway goes on");
        let log = end(gateway);
        let tried = log.lines().filter(|line| line.contains("forbidden call ")).count();
        assert!(tried > 30, "{log}");
        for line in log.lines().filter(|line| line.contains("forbidden call ")) {
            let is_refused = ["Operation not permitted", "Permission denied"].iter().any(|word| line.contains(word));
            assert!(is_refused, "{thread}: {line}");
        }
        assert_eq!(fs::read_to_string(&decoy).unwrap(), "somebody else's");
    }
}

/// What a gateway does for its users, each after it has given up its privileges.
fn everything_works(host: &Host, settings: &str, mode: &str) {
    let mut gateway = host.start();
    assert!(host.pings(), "{}", gateway.stderr());
    // Reload, by the socket and by the signal, with other services.
    host.configure(settings, &SERVICES.replace("bindings = 10000", "bindings = 20000"));
    let refused = host.lab.node("gateway").unwrap().command(TOMBOLO).args(["reload", "--gateway"]);
    let refused = refused.arg(host.home.path().join("run").display().to_string()).run().unwrap();
    assert!(refused.stderr.contains("takes a restart"), "{}", refused.stderr);
    host.configure(settings, &format!("{SERVICES}filtering = {{ tcp = \"address-dependent\" }}\n"));
    host.tombolo("reload");
    gateway.signal(Signal::SIGHUP).unwrap();
    wait_until("the second reload", PATIENCE, || {
        (gateway.stderr().matches("configuration reloaded").count() == 2).then_some(())
    })
    .unwrap();
    host.tombolo("drain");
    host.tombolo("drain --off");
    assert!(host.pings(), "after a reload: {}", gateway.stderr());
    if mode != "off" {
        let taken = if mode == "xdp" { "xdp+tc" } else { "tc" };
        assert_eq!(host.takes("inside0").as_deref(), Some(taken), "{}", gateway.stderr());
        host.run("gateway", "ip", "link add late0 type veth peer name late1");
        wait_until("late0 is served", SOON, || host.takes("late0").filter(|takes| takes != "off")).unwrap();
        host.run("gateway", "ip", "link del late0");
        wait_until("late0 is forgotten", SOON, || host.takes("late0").is_none().then_some(())).unwrap();
    }
    // What somebody takes from the host is put back.
    host.run("gateway", "ip", "link set tombolo down");
    host.run("gateway", "ip", "rule flush table 84");
    wait_until("the host is as it should be", SOON, || host.pings().then_some(())).unwrap();
    // A log that was rotated is made again; metrics; the health is what it should be.
    let log = host.home.path().join("log/bindings");
    fs::rename(&log, log.with_extension("1")).unwrap();
    wait_until("the log is made again", SOON, || log.exists().then_some(())).unwrap();
    let metrics = host.run("gateway", "curl", "-s -g http://127.0.0.1:9464/metrics");
    assert!(metrics.contains("tombolo_health{state=\"ready\"} 1"), "{metrics}");
    assert!(metrics.contains("tombolo_received") || metrics.contains("tombolo_packets"), "{metrics}");
    let status = &host.show("status")[0];
    assert_eq!(status["health"], "ready", "{status}");
    // Killed and adopted; then a clean end, of which nothing is left.
    kill(&mut gateway);
    let mut gateway = host.start();
    assert!(gateway.stderr().contains("state of the last run adopted"), "{}", gateway.stderr());
    assert!(host.pings());
    gateway.signal(Signal::SIGTERM).unwrap();
    let output = gateway.wait(PATIENCE).unwrap().success().unwrap();
    assert!(!output.stderr.contains("cannot be removed"), "{}", output.stderr);
    let left = host.run("gateway", "ip", "-o link");
    assert!(!left.contains(": tombolo:") && !left.contains("xdp"), "{left}");
    assert!(!host.home.path().join("run/control.sock").exists(), "the control socket goes");
    let links = pins(&host.lab).into_iter().flat_map(|pins| fs::read_dir(pins).unwrap().flatten());
    let links: Vec<_> = links.filter(|entry| entry.file_name().to_string_lossy().starts_with("link-")).collect();
    assert!(links.is_empty(), "{links:?}");
    host.run("gateway", TOMBOLO, &format!("down -c {}", host.file().display()));
    assert!(host.run("gateway", "ip", "rule").lines().count() <= 3, "rules are left");
}

fn mode_works(test: &str, mode: &str, user: &str) {
    if skip_without(test, &["ip", "ping", "curl"]) {
        return;
    }
    let user_line = if user == "0" { String::new() } else { format!("user = \"{user}\"\n") };
    let settings = format!(
        "fastpath = \"{mode}\"\n{user_line}run_directory = \"HOME/run\"\nbinding_log = \"HOME/log/bindings\"\n\
         metrics = \"127.0.0.1:9464\"\n"
    );
    let host = Host::new(&settings);
    open_to(host.home.path(), user);
    let kernels = if mode == "off" { 0 } else { CAP_BPF | CAP_PERFMON };
    let gateway = host.start();
    assert_confined(&gateway, user, CAP_NET_ADMIN | kernels);
    assert_eq!(host.owner("run").to_string(), user);
    end(gateway);
    everything_works(&host, &settings, mode);
}

/// The user may look into the directories, and the log's is its own.
fn open_to(home: &Path, user: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(home, fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(home.join("log"), user.parse().ok(), user.parse().ok()).unwrap();
}

#[test]
fn the_engine_works_with_what_is_left() {
    mode_works("the_engine_works_with_what_is_left", "off", "0");
}

#[test]
fn tc_works_with_what_is_left() {
    mode_works("tc_works_with_what_is_left", "tc", "0");
}

#[test]
fn xdp_works_with_what_is_left() {
    mode_works("xdp_works_with_what_is_left", "xdp", "0");
}

#[test]
fn an_unprivileged_user_serves_without_the_fast_path() {
    mode_works("an_unprivileged_user_serves_without_the_fast_path", "off", NOBODY);
}

#[test]
fn an_unprivileged_user_serves_with_tc() {
    mode_works("an_unprivileged_user_serves_with_tc", "tc", NOBODY);
}

#[test]
fn an_unprivileged_user_serves_with_xdp() {
    mode_works("an_unprivileged_user_serves_with_xdp", "xdp", NOBODY);
}

#[test]
fn the_sandbox_can_be_switched_off_and_a_user_must_be_there() {
    if skip_without("the_sandbox_can_be_switched_off_and_a_user_must_be_there", &["ip", "ping"]) {
        return;
    }
    let host = Host::new("sandbox = false\n");
    let gateway = host.start();
    assert!(host.pings());
    assert_threads(&gateway, "CapEff", &format!("{CAP_NET_ADMIN:016x}"));
    assert_threads(&gateway, "NoNewPrivs", "1");
    assert_threads(&gateway, "Seccomp", "0");
    let log = end(gateway);
    assert!(log.contains("seccomp=\"off\" landlock=\"off\""), "{log}");
    host.configure("user = \"nobody-of-that-name\"\n", SERVICES);
    let command = host.lab.node("gateway").unwrap().command(TOMBOLO).args(["run", "-c"]);
    let output = command.arg(host.file().display().to_string()).run().unwrap();
    assert!(output.stderr.contains("there is no user nobody-of-that-name"), "{}", output.stderr);
}

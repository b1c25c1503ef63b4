//! A gateway under a service manager: what it tells it, and how it logs. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::cell::RefCell;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use tombolo_lab::{Lab, Process, Topology, skip_without, wait_until};

mod running;

use running::{PATIENCE, SERVICES, TOMBOLO, end, kill};

/// A service manager that remembers what it was told.
struct Manager {
    socket: UnixDatagram,
    told: RefCell<Vec<String>>,
}

impl Manager {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, told: RefCell::default() }
    }

    /// All messages until now.
    fn told(&self) -> Vec<String> {
        let mut buffer = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            self.told.borrow_mut().push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        }
        self.told.borrow().clone()
    }

    /// How often it was told something that begins so.
    fn count(&self, beginning: &str) -> usize {
        self.told().iter().filter(|message| message.starts_with(beginning)).count()
    }

    #[track_caller]
    fn hears(&self, beginning: &str) {
        let heard = wait_until(beginning, PATIENCE, || (self.count(beginning) > 0).then_some(()));
        heard.unwrap_or_else(|error| panic!("{error}; told: {:?}", self.told()));
    }
}

/// Starts a gateway under a manager, whose patience is two seconds.
fn start(lab: &Lab, file: &Path) -> (Manager, Process) {
    let path = lab.directory().unwrap().join("notify");
    let _ = fs::remove_file(&path);
    let manager = Manager::at(&path);
    let settings = [format!("NOTIFY_SOCKET={}", path.display()), "WATCHDOG_USEC=2000000".into()];
    let command = lab.node("gateway").unwrap().command("env").args(settings).args([TOMBOLO, "run", "-c"]);
    let mut gateway = command.arg(file.display().to_string()).spawn().unwrap();
    gateway.wait_for_text("ready", PATIENCE).unwrap();
    (manager, gateway)
}

fn configuration(lab: &Lab, gateway: &str) -> std::path::PathBuf {
    let file = lab.directory().unwrap().join("gateway.toml");
    fs::write(&file, format!("[gateway]\nlog_format = \"journal\"\n{gateway}\n{SERVICES}")).unwrap();
    file
}

#[test]
fn a_service_manager_is_told_how_the_gateway_does() {
    if skip_without("a_service_manager_is_told_how_the_gateway_does", &[]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let file = configuration(&lab, "");
    let (manager, mut gateway) = start(&lab, &file);
    manager.hears("READY=1");
    manager.hears("STATUS=ready");
    assert_eq!(manager.count("RELOADING=1"), 0);

    // It hears of a fault that shows, and of its end.
    lab.node("gateway")
        .unwrap()
        .command("sysctl")
        .args(["-q", "net.ipv4.ip_forward=0"])
        .run()
        .unwrap()
        .success()
        .unwrap();
    manager.hears("STATUS=degraded; ");
    lab.node("gateway")
        .unwrap()
        .command("sysctl")
        .args(["-q", "net.ipv4.ip_forward=1"])
        .run()
        .unwrap()
        .success()
        .unwrap();
    let ready = || (manager.count("STATUS=ready") > 1).then_some(());
    wait_until("it is ready again", PATIENCE, ready).unwrap();

    gateway.signal(Signal::SIGHUP).unwrap();
    manager.hears("RELOADING=1\nMONOTONIC_USEC=");
    wait_until("the reload is complete", PATIENCE, || (manager.count("READY=1") > 1).then_some(())).unwrap();

    // Every second, also after it has given up its privileges.
    let before = manager.count("WATCHDOG=1");
    std::thread::sleep(Duration::from_secs(4));
    let signs = manager.count("WATCHDOG=1") - before;
    assert!((3..=8).contains(&signs), "{signs} signs of life in four seconds");

    end(gateway);
    assert_eq!(manager.count("STOPPING=1"), 1);
}

#[test]
fn a_manager_that_goes_away_ends_nothing() {
    if skip_without("a_manager_that_goes_away_ends_nothing", &[]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let file = configuration(&lab, "");
    let (manager, mut gateway) = start(&lab, &file);
    drop(manager);
    gateway.signal(Signal::SIGHUP).unwrap();
    gateway.wait_for_text("configuration reloaded", PATIENCE).unwrap();
    kill(&mut gateway);
    // One that was never there is said.
    let nobody = lab.node("gateway").unwrap().command("env").arg("NOTIFY_SOCKET=/nowhere/notify");
    let mut gateway = nobody.args([TOMBOLO, "run", "-c"]).arg(file.display().to_string()).spawn().unwrap();
    gateway.wait_for_text("NOTIFY_SOCKET cannot be reached", PATIENCE).unwrap();
    gateway.wait_for_text("ready", PATIENCE).unwrap();
    end(gateway);
}

#[test]
fn the_log_has_the_level_and_the_form_that_the_file_says_and_a_reload_changes_the_level() {
    if skip_without("the_log_has_the_level_and_the_form_that_the_file_says_and_a_reload_changes_the_level", &[]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let file = configuration(&lab, "log_level = \"warn\"");
    let command = lab.node("gateway").unwrap().command("env").args(["-u", "RUST_LOG", TOMBOLO, "run", "-c"]);
    let mut gateway = command.arg(file.display().to_string()).spawn().unwrap();
    wait_until("it runs", PATIENCE, || {
        let shown = lab.node("gateway").unwrap().command(TOMBOLO).args(["show", "status"]).run().ok()?;
        shown.success().ok()
    })
    .unwrap();
    configuration(&lab, "log_level = \"info\"");
    gateway.signal(Signal::SIGHUP).unwrap();
    gateway.wait_for_text("configuration reloaded", PATIENCE).unwrap();
    let log = end(gateway);
    assert!(!log.contains("device made"), "{log}");
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("<6>") || line.starts_with("<4>")), "{log}");
}

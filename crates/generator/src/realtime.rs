//! Threads that go before the machine's other work, and the kernel's limit for them.
//!
//! Where a real-time thread has had 0.95 s of a second (`/proc/sys/kernel/sched_rt_runtime_us` of
//! `sched_rt_period_us`), kernels before 6.12, and those with `CONFIG_RT_GROUP_SCHED`, stop it for
//! the rest of that second, whether or not anybody else wants the core: 50 ms without a frame in
//! each second of a trial, of the sender and of the gateway's threads. While a [`Rig`](crate::Rig)
//! is open the limit is out of force; neither Ctrl-C nor `kill -9` leaves a machine without it.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::undo::Undo;

/// Microseconds of each period that real-time threads may have; -1 is all.
const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const PERIOD: &str = "/proc/sys/kernel/sched_rt_period_us";
/// From this release on a server of deadlines gives ordinary threads their part of a core where they
/// want it, so that the machine lives on without the limit.
const HAS_FAIR_SERVER: (u32, u32) = (6, 12);
/// What is left to others before it, microseconds a period: less than a tick.
const LEFT_US: i64 = 1_000;

/// Makes a thread real-time (0 is the calling thread) with a priority from 1 (lowest) to 99, so
/// that other work on the machine does not share its core: niceness would not do, for Linux divides
/// a core among sessions first (autogroup). The kernel's own limit for all of
/// them, 95 % of each second, is lifted while a [`Rig`](crate::Rig) is open.
///
/// # Errors
/// Without `CAP_SYS_NICE`. The thread stays as it is and is late more often.
pub fn become_realtime(thread: i32, priority: i32) -> io::Result<()> {
    set_policy(thread, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority)
}

/// The same, but among threads of the same priority each has its turn: the kernel's slice is
/// `kernel.sched_rr_timeslice_ms`. Threads and processes that it starts are so, too.
///
/// # Errors
/// As [`become_realtime`].
pub fn become_round_robin(thread: i32, priority: i32) -> io::Result<()> {
    set_policy(thread, libc::SCHED_RR, priority)
}

fn set_policy(thread: i32, policy: libc::c_int, priority: i32) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: a system call on integers; the parameter outlives it.
    let set = unsafe { libc::sched_setscheduler(thread, policy, &raw const parameter) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// While it lives, the calling thread goes before the sending threads, so that it can stop them. It
/// sleeps nearly always.
pub(crate) struct Overseer;

impl Overseer {
    pub(crate) fn begin() -> Overseer {
        let _ = become_realtime(0, 3);
        Overseer
    }
}

impl Drop for Overseer {
    fn drop(&mut self) {
        let _ = set_policy(0, libc::SCHED_OTHER, 0);
    }
}

/// While it lives, real-time threads of the machine may work without being stopped.
#[derive(Debug)]
pub struct Unlimited {
    /// Puts the limit back; absent where there was none to lift.
    undo: Option<Undo>,
    words: String,
}

impl Unlimited {
    /// Lifts the limit, once for all who ask in this process.
    ///
    /// # Errors
    /// In words, where it stays in force: without rights to write it, in a container for instance.
    pub fn begin() -> Result<Arc<Unlimited>, String> {
        static SHARED: Mutex<Weak<Unlimited>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        // Another process that had lifted it may have ended since.
        if let Some(unlimited) = shared.upgrade().filter(|_| !is_in_force(&read(RUNTIME), &read(PERIOD))) {
            return Ok(unlimited);
        }
        let runtime = if has_fair_server() { -1 } else { number(&read(PERIOD)).unwrap_or(1_000_000) - LEFT_US };
        let unlimited = Arc::new(Unlimited::lift(Path::new(RUNTIME), &read(PERIOD), runtime)?);
        *shared = Arc::downgrade(&unlimited);
        Ok(unlimited)
    }

    /// The same with the file at `path`, and another limit.
    fn lift(path: &Path, period: &str, runtime: i64) -> Result<Unlimited, String> {
        let in_words = |error: io::Error| format!("{}: {error}", path.display());
        let before = fs::read_to_string(path).map_err(in_words)?.trim().to_owned();
        if !is_in_force(&before, period) {
            return Ok(Unlimited { undo: None, words: format!("{}: {before} already", path.display()) });
        }
        // First who puts it back, then the deed.
        let mut undo = Undo::begin("tombolo-realtime-limit").map_err(in_words)?;
        undo.write_unless_changed(path, &before, &runtime.to_string()).map_err(in_words)?;
        let unlimited = Unlimited {
            undo: Some(undo),
            words: format!("{}: {runtime} in place of {before} while it measures", path.display()),
        };
        // Dropped where this fails, with nothing to put back.
        fs::write(path, runtime.to_string()).map_err(in_words)?;
        Ok(unlimited)
    }

    /// What was done, for results.
    #[must_use]
    pub fn in_words(&self) -> &str {
        &self.words
    }
}

impl Drop for Unlimited {
    fn drop(&mut self) {
        // This is what puts it back.
        drop(self.undo.take());
    }
}

/// Whether real-time threads are stopped for longer than a tick of each period.
fn is_in_force(runtime: &str, period: &str) -> bool {
    let period = number(period).unwrap_or(1_000_000);
    number(runtime).is_some_and(|runtime| runtime >= 0 && runtime < period - LEFT_US)
}

fn has_fair_server() -> bool {
    release_of(&read("/proc/sys/kernel/osrelease")).is_some_and(|release| release >= HAS_FAIR_SERVER)
}

/// The first two numbers of a kernel's release.
fn release_of(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn number(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    const PERIOD: &str = "1000000\n";

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn the_limit_is_lifted_and_put_back() {
        let file = file("950000\n");
        let unlimited = Unlimited::lift(file.path(), PERIOD, -1).unwrap();
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "-1");
        assert!(unlimited.in_words().ends_with(": -1 in place of 950000 while it measures"));
        drop(unlimited);
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "950000\n");
    }

    #[test]
    fn what_an_administrator_has_set_meanwhile_stays() {
        let file = file("950000\n");
        let unlimited = Unlimited::lift(file.path(), PERIOD, -1).unwrap();
        fs::write(file.path(), "800000\n").unwrap();
        drop(unlimited);
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "800000\n");
    }

    #[test]
    fn a_machine_without_a_limit_stays_without() {
        for none in ["-1\n", "1000000\n", "999000\n"] {
            let file = file(none);
            let unlimited = Unlimited::lift(file.path(), PERIOD, -1).unwrap();
            assert!(unlimited.in_words().ends_with("already") && unlimited.undo.is_none());
            drop(unlimited);
            assert_eq!(fs::read_to_string(file.path()).unwrap(), none);
        }
    }

    #[test]
    fn what_cannot_be_written_is_said_and_nobody_is_left_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let missing = Unlimited::lift(&directory.path().join("sched_rt_runtime_us"), PERIOD, -1).unwrap_err();
        assert!(missing.contains("sched_rt_runtime_us: No such file"), "{missing}");
    }

    /// Named by the test below, for the process that it kills.
    const LIFTED: &str = "TOMBOLO_TEST_LIFTED";

    /// The process that the next test kills.
    #[test]
    fn lifted_until_killed() {
        let Some(path) = std::env::var_os(LIFTED) else { return };
        let _unlimited = Unlimited::lift(Path::new(&path), PERIOD, -1).unwrap();
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn a_process_that_is_killed_leaves_the_limit_as_it_was() {
        for signal in ["-KILL", "-INT", "-TERM"] {
            let file = file("950000\n");
            let text = || fs::read_to_string(file.path()).unwrap();
            let waits_for = |wanted: &str| {
                let until = Instant::now() + Duration::from_secs(20);
                while text() != wanted && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(2));
                }
                assert_eq!(text(), wanted, "{signal}");
            };
            // Of a shell's background these tests inherit that SIGINT is ignored.
            let mut child = Command::new("env")
                .arg("--default-signal=INT,TERM")
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", "realtime::tests::lifted_until_killed"])
                .env(LIFTED, file.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()
                .unwrap();
            waits_for("-1");
            // The whole group, as a terminal's Ctrl-C; the shell waits on all the same.
            let group = if signal == "-KILL" { child.id().to_string() } else { format!("-{}", child.id()) };
            assert!(Command::new("kill").args([signal, "--", &group]).status().unwrap().success());
            let until = Instant::now() + Duration::from_secs(20);
            while child.try_wait().unwrap().is_none() {
                if Instant::now() > until {
                    child.kill().unwrap();
                    panic!("{signal} did not end the process");
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            waits_for("950000\n");
        }
    }

    #[test]
    fn releases() {
        assert_eq!(release_of("6.12.3-amd64\n"), Some((6, 12)));
        assert_eq!(release_of("6.1.0-28"), Some((6, 1)));
        assert_eq!(release_of("linux"), None);
        assert!((6, 12) > release_of("6.1.0").unwrap() && (6, 12) < release_of("10.0").unwrap());
    }
}

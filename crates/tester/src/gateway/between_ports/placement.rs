//! Whose core: packets of a veth pair are processed on the core that sent them, so a gateway in the
//! kernel would run on the tester's core and slow it down instead of dropping. Its ports are
//! therefore switched to threaded NAPI, and those threads, and every process in the gateway's
//! namespace, are put on the cores given.
//!
//! All of them, in the kernel and out of it, of whichever gateway, have one policy and priority:
//! real-time, so that other programs of the machine do not share the gateway's cores (Linux divides
//! a core among sessions first, autogroup), and round robin with the shortest slice, so that of two
//! that both have work neither waits for the other to run out of it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tombolo_generator::{become_round_robin, pin_to};
use tombolo_lab::{Namespace, wait_until};

/// Above the fault injector's, which polls without end.
const PRIORITY: i32 = 2;
/// How long a round-robin thread runs before others of its priority have their turn; the least that
/// a scheduler's tick allows.
pub(super) const SLICE: (&str, &str) = ("/proc/sys/kernel/sched_rr_timeslice_ms", "1");

/// Gives these threads the cores in turn, one each, and the policy of all.
///
/// # Errors
/// If the kernel refuses to pin one.
pub(crate) fn spread(threads: &BTreeSet<i32>, cores: &[usize]) -> io::Result<()> {
    for (thread, core) in threads.iter().zip(cores.iter().cycle()) {
        pin_to(*thread, &[*core])?;
        let _ = become_round_robin(*thread, PRIORITY);
    }
    Ok(())
}

/// Switches these interfaces to threaded NAPI; returns the new threads.
///
/// # Errors
/// If the kernel refuses; it names the interface.
pub(crate) fn napi_threads(node: &Namespace, interfaces: &[&str], queues: u32) -> io::Result<BTreeSet<i32>> {
    let before = threads_named("napi/");
    for interface in interfaces {
        let line = format!("echo 1 > /sys/class/net/{interface}/threaded");
        // `ip netns exec` mounts the namespace's own /sys.
        let output = Command::new("ip").args(["netns", "exec", node.name(), "sh", "-c", &line]).output()?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(io::Error::other(format!("{interface}: {words}")));
        }
    }
    let started = || {
        let new: BTreeSet<i32> = threads_named("napi/").difference(&before).copied().collect();
        (new.len() >= interfaces.len() * queues as usize).then_some(new)
    };
    Ok(wait_until("the NAPI threads", Duration::from_secs(2), started).unwrap_or_default())
}

/// Pins all threads of all processes in the namespace, this one's excepted, and gives them the
/// policy of all.
///
/// # Errors
/// If a thread that still runs cannot be pinned.
pub(crate) fn pin_inhabitants(node: &Namespace, cores: &[usize]) -> io::Result<()> {
    for thread in inhabitants(node) {
        match pin_to(thread, cores) {
            // The thread ended meanwhile.
            Err(e) if e.raw_os_error() == Some(3) => {}
            other => other?,
        }
        let _ = become_round_robin(thread, PRIORITY);
    }
    Ok(())
}

/// Time that processors have spent on these threads, and on those of the namespaces' processes,
/// nanoseconds.
pub(super) fn worked_ns<'a>(threads: &BTreeSet<i32>, nodes: impl Iterator<Item = &'a Namespace>) -> u64 {
    let all = threads.iter().copied().chain(nodes.flat_map(inhabitants));
    all.filter_map(processor_ns).sum()
}

/// Time that a thread has run, from the first field of its schedstat.
pub(crate) fn processor_ns(thread: i32) -> Option<u64> {
    fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?.split(' ').next()?.parse().ok()
}

/// All threads of all processes in the namespace.
fn inhabitants(node: &Namespace) -> Vec<i32> {
    let here = fs::metadata(node.path()).map(|file| (file.dev(), file.ino())).ok();
    let own = std::process::id().to_string();
    numbers_in(Path::new("/proc"))
        .filter(|path| !path.ends_with(&own))
        .filter(|path| fs::metadata(path.join("ns/net")).map(|file| (file.dev(), file.ino())).ok() == here)
        .flat_map(|path| numbers_in(&path.join("task")).collect::<Vec<_>>())
        .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
        .collect()
}

/// Entries of a directory of /proc whose names are numbers.
fn numbers_in(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries
        .filter(|path| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit())))
}

fn threads_named(prefix: &str) -> BTreeSet<i32> {
    numbers_in(Path::new("/proc"))
        .filter(|path| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.starts_with(prefix)))
        .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
        .collect()
}

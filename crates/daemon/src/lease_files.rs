//! What dynamic pools have lent, in a file that outlives the gateway: Tayga's `dynamic.map`.
//!
//! ```text
//! # comment
//! 192.168.255.17 <tab> 2001:db8:1::2 <tab> 1750000000      address, host, last packet in seconds since 1970
//! ```
//!
//! The file is written when something was lent, but not again for a while (`Pace`), once an hour,
//! and at the end; always whole, beside the old one, which it then replaces when the disk has it. A
//! thread of its own does that, so no packet waits for a disk.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tombolo_engine::counters::{Counters, Totals};
use tombolo_engine::mapping::dynamic_pool::{DynamicPool, Lent};
use tombolo_engine::plan::ServiceKind;
use tombolo_engine::{DropReason, Now, Plan};
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::worker::StopSignal;
use tombolo_tables::tick::{Tick, ticks};

use crate::utc::Utc;

const SECOND: Duration = Duration::from_secs(1);
/// Seconds between two writings for the sake of the times in the file.
const REFRESH: u64 = 3600;
/// Seconds between two writings because something was lent. What was lent since the last one is
/// forgotten if the gateway is killed.
const REST: u64 = 10;
/// A writing takes at most one part in so many of the time.
const SHARE: u64 = 50;
/// Seconds between two reports of packets.
const REPORT: u64 = 10;
/// Assignments that are logged one by one each second.
const LOGGED: usize = 20;

/// What is logged while the gateway runs.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Each address that is lent.
    pub assignments: bool,
    /// How many packets were not translated, and why, every ten seconds.
    pub drops: bool,
}

/// A pool, and where what it lends is kept.
#[derive(Debug, Clone)]
struct LeasedPool {
    pool: Arc<DynamicPool>,
    file: Option<PathBuf>,
}

/// The pools of a plan, and the thread that keeps their files.
#[derive(Debug)]
pub struct LeaseFiles {
    pools: Vec<LeasedPool>,
    thread: Option<JoinHandle<()>>,
}

impl LeaseFiles {
    /// Gives the pools of `plan` their secret, and reads what they have lent before, from `files`,
    /// which are by place of the service. What is not right in a file is logged and left out.
    #[must_use]
    pub fn load(plan: &Plan, files: &[(usize, PathBuf)], secret: [u64; 4]) -> Self {
        let mut pools = Vec::new();
        for (place, service) in plan.services.iter().enumerate() {
            let ServiceKind::Siit(siit) = &service.kind else { continue };
            let Some(pool) = &siit.dynamic else { continue };
            let file = files.iter().find(|(of, _)| *of == place).map(|(_, path)| path);
            if !pool.with_secret(secret) {
                tracing::error!(pool = %pool.addresses(), "was used before it got its secret");
            }
            pools.push(LeasedPool { pool: Arc::clone(pool), file: file.cloned() });
            let Some(path) = file else {
                tracing::info!(pool = %pool.addresses(), "what is lent is forgotten at the end: no file is named");
                continue;
            };
            let is_taken = |address| siit.mapping.explicit.contains_ipv4(address) || plan.own.ipv4 == Some(address);
            match std::fs::read_to_string(path) {
                Ok(text) => restore(pool, &path.display().to_string(), &text, is_taken),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::error!(path = %path.display(), "what was lent before is not known: {error}"),
            }
        }
        Self { pools, thread: None }
    }

    /// Starts the thread; it ends when `stop` is given. There is none if there is nothing to do for
    /// it.
    #[must_use]
    pub fn start(mut self, report: Report, counters: Vec<Arc<Counters>>, stop: StopSignal) -> Self {
        if self.pools.is_empty() && !report.drops {
            return self;
        }
        let pools = self.pools.clone();
        self.thread = Some(std::thread::spawn(move || keep(&pools, &report, &counters, &stop)));
        self
    }

    /// Waits for the end of the thread, which has then written everything.
    pub fn join(self) {
        if let Some(thread) = self.thread {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn keep(pools: &[LeasedPool], report: &Report, counters: &[Arc<Counters>], stop: &StopSignal) {
    let mut known: Vec<HashSet<_>> = vec![HashSet::new(); pools.len()];
    let mut paces = vec![Pace::default(); pools.len()];
    let mut seen = Totals::default();
    for (LeasedPool { pool, .. }, known) in pools.iter().zip(&mut known) {
        known.extend(pool.list(now()).into_iter().map(|lent| (lent.ipv4, lent.ipv6)));
    }
    for second in 1_u64.. {
        std::thread::park_timeout(SECOND);
        let is_over = stop.is_given();
        for ((LeasedPool { pool, file }, known), pace) in pools.iter().zip(&mut known).zip(&mut paces) {
            if pace.is_due(second, pool.take_changed()) || is_over {
                let begin = Instant::now();
                let list = pool.list(now());
                if report.assignments {
                    log_new(&list, known);
                }
                if let Some(file) = file {
                    save(file, &list);
                }
                pace.wrote(second, begin.elapsed());
            }
        }
        if report.drops && (is_over || second.is_multiple_of(REPORT)) {
            log_drops(counters, &mut seen);
        }
        if is_over {
            return;
        }
    }
}

/// When a file is written: at once after a change, if it was left alone for [`REST`], and longer
/// where writing takes long.
#[derive(Debug, Clone, Default)]
struct Pace {
    is_changed: bool,
    not_before: u64,
}

impl Pace {
    fn is_due(&mut self, second: u64, changed: bool) -> bool {
        self.is_changed |= changed;
        self.is_changed && second >= self.not_before || second.is_multiple_of(REFRESH)
    }

    fn wrote(&mut self, second: u64, took: Duration) {
        self.is_changed = false;
        self.not_before = second + REST.max(took.as_secs().saturating_mul(SHARE));
    }
}

fn log_new(list: &[Lent], known: &mut HashSet<(std::net::Ipv4Addr, std::net::Ipv6Addr)>) {
    let new: Vec<_> = list.iter().filter(|lent| known.insert((lent.ipv4, lent.ipv6))).collect();
    for lent in new.iter().take(LOGGED) {
        tracing::info!(address = %lent.ipv4, host = %lent.ipv6, "address lent");
    }
    if new.len() > LOGGED {
        tracing::info!(more = new.len() - LOGGED, "addresses lent");
    }
}

fn log_drops(counters: &[Arc<Counters>], seen: &mut Totals) {
    let mut totals = Totals::default();
    counters.iter().for_each(|counters| counters.add_to(&mut totals));
    let before: Vec<(DropReason, u64)> = seen.drops().collect();
    for (reason, count) in totals.drops() {
        let old = before.iter().find(|(other, _)| *other == reason).map_or(0, |(_, count)| *count);
        if count > old {
            tracing::info!(reason = reason.name(), packets = count - old, "not translated");
        }
    }
    *seen = totals;
}

fn now() -> Tick {
    Now(monotonic_nanos()).tick()
}

/// Enters the lines of a file.
fn restore(pool: &DynamicPool, name: &str, text: &str, is_taken: impl Fn(std::net::Ipv4Addr) -> bool) {
    let (mut count, mut refused) = (0, 0);
    let (clock, wall) = (now(), Utc::now().0);
    for (number, line) in (1..).zip(text.lines()) {
        let words: Vec<&str> = line.split_ascii_whitespace().take_while(|word| !word.starts_with('#')).collect();
        if words.is_empty() {
            continue;
        }
        match parse(&words, clock, wall) {
            Some(lent) if pool.restore(lent, &is_taken) => count += 1,
            Some(lent) => {
                refused += 1;
                tracing::warn!(
                    "{name}:{number}: {} is not lent to {}: it is taken, or not of the pool",
                    lent.ipv4,
                    lent.ipv6
                );
            }
            None => {
                refused += 1;
                tracing::warn!("{name}:{number}: not \"address host seconds\"; the line is left out");
            }
        }
    }
    tracing::info!(file = name, count, refused, "what was lent before");
}

/// A line. A last packet before the system's start counts as one at its start: the clock knows no
/// earlier time.
fn parse(words: &[&str], clock: Tick, wall: u64) -> Option<Lent> {
    let &[ipv4, ipv6, seconds] = words else { return None };
    let last_use: u64 = seconds.parse().ok().filter(|&seconds| seconds > 0)?;
    // What is dated in the future was written by another clock.
    let age = u32::try_from(wall.saturating_sub(last_use)).unwrap_or(u32::MAX);
    Some(Lent {
        ipv4: ipv4.parse().ok()?,
        ipv6: ipv6.parse().ok()?,
        last_use: Tick(clock.0.saturating_sub(if age == 0 { 0 } else { ticks(age) - 2 }).max(1)),
    })
}

fn save(path: &Path, list: &[Lent]) {
    let (clock, wall) = (now(), Utc::now().0);
    let mut text = String::from(
        "# Addresses of the dynamic pool: address, host, last packet in seconds since 1970.\n\
         # To be edited only while the gateway is stopped.\n",
    );
    for lent in list {
        let age = (u64::from(clock.since(lent.last_use)) << Tick::SHIFT) / 1_000_000_000;
        let _ = writeln!(text, "{}\t{}\t{}", lent.ipv4, lent.ipv6, wall.saturating_sub(age).max(1));
    }
    if let Err(error) = replace(path, &text) {
        tracing::error!(path = %path.display(), "what is lent is not saved: {error}");
    }
}

/// Another process sees the old content or the new, and nothing between; so does the next start,
/// also after a power cut.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("map~~");
    let mut file = File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_engine::mapping::dynamic_pool::Lease;
    use tombolo_engine::mapping::eam::parse_prefix;

    fn pool() -> DynamicPool {
        DynamicPool::new(parse_prefix("192.0.2.0/24").unwrap(), Lease::default()).unwrap()
    }

    #[test]
    fn what_was_lent_comes_back_from_the_file() {
        let file = std::env::temp_dir().join(format!("tombolo-leases-{}.map", std::process::id()));
        let before = pool();
        let host = "2001:db8::7".parse().unwrap();
        let address = before.lend(host, now(), |_| false).unwrap();
        save(&file, &before.list(now()));
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let after = pool();
        restore(&after, "dynamic.map", &text, |_| false);
        assert_eq!(after.address_of(host, now()), Some(address));
    }

    #[test]
    fn a_file_is_written_at_once_and_then_left_alone_for_a_while() {
        let mut pace = Pace::default();
        let mut written = Vec::new();
        for second in 1..=200 {
            // Something is lent each second up to the hundredth.
            if pace.is_due(second, second <= 100) {
                written.push(second);
                let took = if second > 50 { Duration::from_secs(1) } else { Duration::ZERO };
                pace.wrote(second, took);
            }
        }
        assert_eq!(written, [1, 11, 21, 31, 41, 51, 101]);
        assert!(pace.is_due(REFRESH, false), "for the sake of the times");
    }

    #[test]
    fn taygas_own_file_is_read_and_bad_lines_are_left_out() {
        let text = format!(
            "###\n### TAYGA dynamic map database\n###\n\n192.0.2.9\t2001:db8::9\t{}\nnonsense\n\
             198.51.100.1\t2001:db8::1\t1\n192.0.2.10\t2001:db8::10\t0\n192.0.2.11\t2001:db8::11\t99999999999\n",
            Utc::now().0 - 10
        );
        let pool = pool();
        restore(&pool, "dynamic.map", &text, |_| false);
        let hosts: Vec<_> = pool.list(now()).iter().map(|lent| lent.ipv6.to_string()).collect();
        assert_eq!(hosts, ["2001:db8::9", "2001:db8::11"]);
    }

    #[test]
    fn old_assignments_sleep_until_their_host_comes() {
        let (clock, wall) = (Tick(1_000_000), 2_000_000);
        let lent = parse(&["192.0.2.9", "2001:db8::9", "1990000"], clock, wall).unwrap();
        assert!((9_300..9_330).contains(&clock.since(lent.last_use)), "{lent:?}");
        assert_eq!(parse(&["192.0.2.9", "2001:db8::9", "1"], Tick(5), wall).unwrap().last_use, Tick(1));
    }
}

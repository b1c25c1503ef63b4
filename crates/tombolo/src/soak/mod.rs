//! `tombolo lab soak`: everything at once for as long as one likes, and then every invariant.
//!
//! A gateway with a NAT64 (ports in blocks) and a NAT44 (port by port, with limits) in a lab; its
//! timeouts are short, so that state comes and goes all the time. Hosts open, use, close and
//! forget; somebody scans from outside, somebody floods from inside, from one address and from
//! invented ones; the configuration is read again and the gateway is killed and started again in
//! between. Then it is stopped, its tables are adopted, checked, and swept until nothing may be
//! left: what is left leaked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::Serialize;

mod aftermath;
mod bed;
mod configuration;
mod failures;
mod traffic;

use aftermath::Aftermath;
use bed::{Bed, prepare};
use failures::Failures;
use traffic::Traffic;

/// How often the gateway is killed and started again.
const KILLS: u32 = 3;
/// Private memory may grow by this much while tables, buffers and logs settle.
const GROWTH_KB: u64 = 4096;

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Seconds of traffic.
    pub(crate) seconds: u64,
    /// Times that the gateway was killed and started again.
    pub(crate) kills: u32,
    /// Longest time from starting the gateway to its being ready, in milliseconds.
    pub(crate) slowest_start_ms: u128,
    /// What the hosts did.
    pub(crate) traffic: traffic::Totals,
    /// Private memory of the last gateway process, soon after its start and in the end, in kB.
    pub(crate) private_kb: [u64; 2],
    /// What was found in the tables afterwards.
    pub(crate) aftermath: Aftermath,
    /// Everything that should not have been; empty if all is well.
    pub(crate) failures: Vec<String>,
}

/// Runs traffic for `seconds`; `progress` hears of each.
pub(crate) fn run(seconds: u64, mut progress: impl FnMut(u64)) -> anyhow::Result<Report> {
    let lab = prepare()?;
    let mut bed = Bed::start(&lab)?;
    let failures = Arc::new(Failures::default());
    let traffic = Traffic::start(&lab, &failures)?;
    let begin = Instant::now();
    let elapsed = || begin.elapsed().as_secs();
    let (mut kills, mut slowest_start) = (0, bed.ready_in);
    while elapsed() < seconds && !tombolo_lab::interrupted() {
        std::thread::sleep(Duration::from_secs(1));
        progress(elapsed());
        if !bed.gateway.is_running() {
            failures.add(format!("the gateway ended: {}", bed.gateway.log_tail(5)));
            break;
        }
        bed.sample();
        if elapsed() % 20 == 19 {
            bed.gateway.signal(Signal::SIGHUP)?;
        }
        if elapsed() > seconds * u64::from(kills + 1) / u64::from(KILLS + 1) {
            bed = bed.kill_and_start(&lab)?;
            slowest_start = slowest_start.max(bed.ready_in);
            kills += 1;
        }
    }
    let totals = traffic.stop(&failures);
    for idle in totals.idle() {
        failures.add(format!("{idle}: there was none"));
    }
    let private_kb = bed.private_kb;
    if private_kb[1] > private_kb[0] + GROWTH_KB {
        failures.add(format!("private memory grew from {} to {} kB", private_kb[0], private_kb[1]));
    }
    let aftermath = bed.finish(&failures)?;
    Ok(Report {
        seconds: elapsed(),
        kills,
        slowest_start_ms: slowest_start.as_millis(),
        traffic: totals,
        private_kb,
        aftermath,
        failures: failures.take(),
    })
}

//! `tombolo lab soak`: everything at once for as long as one likes, and then every invariant.
//!
//! A gateway with a NAT64 (ports in blocks) and a NAT44 (port by port, with limits) in a lab; its
//! timeouts are short, so that state comes and goes all the time. Hosts open, use, close and
//! forget (`traffic`). Phase after phase somebody attacks, or something befalls the host (`phase`,
//! `attacker`, `forged`, `mishap`), and witnesses that have done nothing say what they lost
//! (`witness`): no more than the links dropped. Then the gateway is stopped, its tables are adopted,
//! checked, and swept until nothing may be left (`aftermath`): what is left leaked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

mod aftermath;
mod attacker;
mod bed;
mod configuration;
mod failures;
mod forged;
mod known;
mod mishap;
mod phase;
mod siege;
mod traffic;
mod witness;

use aftermath::Aftermath;
use bed::{Bed, prepare};
use failures::Failures;
use phase::Seen;
use siege::Siege;
use traffic::Traffic;

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
    /// Attacks and mishaps, and what flows lost meanwhile that lived before.
    pub(crate) phases: Vec<Seen>,
    /// Private memory of the last gateway process, soon after its start and in the end, in kB.
    pub(crate) private_kb: [u64; 2],
    /// What was found in the tables afterwards.
    pub(crate) aftermath: Aftermath,
    /// Everything that should not have been; empty if all is well.
    pub(crate) failures: Vec<String>,
}

/// Runs traffic for `seconds`; `progress` hears of each, and of the phase that is on.
pub(crate) fn run(seconds: u64, mut progress: impl FnMut(u64, &str)) -> anyhow::Result<Report> {
    let lab = prepare()?;
    let mut bed = Bed::start(&lab)?;
    let failures = Arc::new(Failures::default());
    let traffic = Traffic::start(&lab, &failures)?;
    let begin = Instant::now();
    let mut siege = Siege::start(&lab, &failures, Duration::from_secs(seconds))?;
    while begin.elapsed().as_secs() < seconds && !tombolo_lab::interrupted() {
        progress(begin.elapsed().as_secs(), siege.name());
        bed = siege.phase(&lab, bed, &traffic)?;
        if !bed.gateway.is_running() {
            failures.add(format!("the gateway ended: {}", bed.gateway.log_tail(5)));
            break;
        }
    }
    let (phases, kills, slowest_start) = siege.finish();
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
        seconds: begin.elapsed().as_secs(),
        kills,
        slowest_start_ms: slowest_start.as_millis(),
        traffic: totals,
        phases,
        private_kb,
        aftermath,
        failures: failures.take(),
    })
}

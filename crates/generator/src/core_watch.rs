//! Whether a core was there: a real-time thread on it that sleeps a millisecond at a time, and
//! notes when it was woken much later than it asked for.
//!
//! It has a higher priority than anything that a tester puts on its gateway's cores, so what keeps
//! it from running is not the gateway: the hypervisor, an interrupt, or real-time work of somebody
//! else. It takes some 0.3 % of the core.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::realtime::become_realtime;
use crate::sender::{monotonic_ns, pin_to};

/// How long it sleeps.
const PERIOD: Duration = Duration::from_millis(1);
/// Woken so much later, it was kept away.
const AWAY_NS: u64 = 500_000;
/// Above senders, gateways and their overseers.
const PRIORITY: i32 = 50;

/// A time in which a core was not there for its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    /// The core.
    pub core: usize,
    /// Since when at the latest, ns of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
}

impl Absence {
    /// How long it was at least.
    pub fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// Watches cores until it is ended or dropped.
pub struct CoreWatch {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Absence>>>,
}

impl CoreWatch {
    /// Begins to watch these cores. Without the privileges for real-time threads it watches
    /// nothing, for then any other work would keep it away.
    pub fn begin(cores: &[usize]) -> CoreWatch {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = cores.iter().map(|core| {
            let (core, stop) = (*core, Arc::clone(&stop));
            thread::spawn(move || watch(core, &stop))
        });
        let threads = threads.collect();
        CoreWatch { stop, threads }
    }

    /// Ends it, and tells when the cores were away.
    pub fn end(mut self) -> Vec<Absence> {
        self.finish()
    }

    fn finish(&mut self) -> Vec<Absence> {
        self.stop.store(true, Ordering::Release);
        let mut absences: Vec<Absence> =
            self.threads.drain(..).filter_map(|thread| thread.join().ok()).flatten().collect();
        absences.sort_by_key(|absence| absence.from_ns);
        absences
    }
}

impl Drop for CoreWatch {
    fn drop(&mut self) {
        self.finish();
    }
}

fn watch(core: usize, stop: &AtomicBool) -> Vec<Absence> {
    let mut absences = Vec::new();
    if pin_to(0, &[core]).is_err() || become_realtime(0, PRIORITY).is_err() {
        return absences;
    }
    while !stop.load(Ordering::Acquire) {
        let due = monotonic_ns() + u64::try_from(PERIOD.as_nanos()).unwrap_or(0);
        thread::sleep(PERIOD);
        let woken = monotonic_ns();
        if woken > due + AWAY_NS {
            absences.push(Absence { core, from_ns: due, to_ns: woken });
        }
    }
    absences
}

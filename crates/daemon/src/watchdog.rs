//! The thread that sees whether the workers live. One that stands still keeps the packets of its
//! queue, and nobody else gets to know.
//!
//! It also tells whoever supervises the process that it lives, and how it does.
//!
//! Time is counted in looks of this thread: while the whole process stands still, stopped by a
//! debugger or with its virtual machine, it does not look either.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tombolo_io::supervisor::Supervisor;
use tombolo_io::worker::StopSignal;

use crate::health::Health;
use crate::worker::Pulse;

const LOOK: Duration = Duration::from_millis(200);
/// Looks, of a second in all, between two looks at the workers.
const A_SECOND: u32 = 5;
/// Seconds without a round after which is said that a worker stands still. One has a round a second
/// if there is nothing to do.
const STILL: u32 = 10;
/// Seconds after which the gateway ends, so that whoever supervises it starts another one.
const DEAD: u32 = 30;

/// Starts it; it ends when `stop` is given, and calls `ended` then.
pub(crate) fn start(
    pulses: Vec<Pulse>,
    health: Arc<Health>,
    supervisor: Arc<Supervisor>,
    stop: StopSignal,
    ended: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("watchdog".into()).spawn(move || {
        let mut workers: Vec<Seen> = pulses.iter().map(|pulse| Seen { count: pulse.count(), since: 0 }).collect();
        let mut report = Report::to(supervisor);
        for look in 1_u32.. {
            if stop.is_given() {
                break;
            }
            report.send(&health);
            std::thread::park_timeout(LOOK);
            if look.is_multiple_of(A_SECOND) {
                judge(&pulses, &mut workers, &health, &stop);
            }
        }
        ended();
    })
}

/// What the supervisor has been told.
struct Report {
    to: Arc<Supervisor>,
    status: String,
    /// When it heard last that the process lives.
    alive: Option<Instant>,
}

impl Report {
    const fn to(supervisor: Arc<Supervisor>) -> Self {
        Self { to: supervisor, status: String::new(), alive: None }
    }

    /// Tells what is new, and that the process lives where that is due.
    fn send(&mut self, health: &Health) {
        let (state, faults) = health.report();
        let status = [vec![state.name().to_owned()], faults].concat().join("; ");
        if status != self.status {
            self.to.status(&status);
            self.status = status;
        }
        if let Some(pulse) = self.to.pulse()
            && self.alive.is_none_or(|last| last.elapsed() + LOOK >= pulse)
        {
            self.to.alive();
            self.alive = Some(Instant::now());
        }
    }
}

/// What was seen of a worker.
struct Seen {
    count: u64,
    /// Seconds since it was another one.
    since: u32,
}

fn judge(pulses: &[Pulse], workers: &mut [Seen], health: &Health, stop: &StopSignal) {
    let mut faults = Vec::new();
    for (number, (pulse, seen)) in pulses.iter().zip(workers).enumerate() {
        let count = pulse.count();
        seen.since = if count == seen.count { seen.since + 1 } else { 0 };
        seen.count = count;
        if seen.since >= DEAD {
            health.fail(&format!("worker-{number} has stood still for {DEAD} s; this is a defect, report it"));
            stop.stop();
        } else if seen.since >= STILL {
            faults.push(format!("worker-{number} stands still: the packets of its queue wait"));
        }
    }
    health.set("workers", faults);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_stands_still_is_told_and_then_ends_the_gateway() {
        let (health, stop) = (Health::default(), StopSignal::new().unwrap());
        let pulses = [Pulse::default()];
        let mut seen = [Seen { count: 0, since: 0 }];
        for _ in 1..STILL {
            judge(&pulses, &mut seen, &health, &stop);
        }
        assert_eq!(health.report().0.name(), "ready");
        judge(&pulses, &mut seen, &health, &stop);
        assert_eq!(health.report().0.name(), "degraded");
        for _ in STILL..DEAD {
            judge(&pulses, &mut seen, &health, &stop);
        }
        assert!(stop.is_given() && health.report().0.name() == "failed");
    }
}

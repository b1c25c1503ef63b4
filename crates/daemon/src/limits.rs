//! The thread that says in the log which limits are reached: once, and again while it goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tombolo_engine::DropReason;
use tombolo_engine::counters::Totals;
use tombolo_io::worker::StopSignal;

use crate::running::Running;
use crate::threads::{self, Guarded};

/// How often is looked.
const PERIOD: Duration = Duration::from_secs(1);
/// The same limit is not spoken of again before.
const PAUSE: Duration = Duration::from_secs(60);

/// Something that there is not more of, or may not be.
const LIMITS: [DropReason; 8] = [
    DropReason::PoolExhausted,
    DropReason::BindingTableFull,
    DropReason::SessionTableFull,
    DropReason::SubscriberTableFull,
    DropReason::SubscriberLimit,
    DropReason::UnansweredLimit,
    DropReason::RateLimited,
    DropReason::FragmentMemory,
];

/// The running thread.
#[derive(Debug)]
pub(crate) struct Limits(JoinHandle<()>);

impl Limits {
    /// Starts it; it ends when `stop` is given.
    ///
    /// # Errors
    /// If there are no more threads.
    pub(crate) fn start(running: &Arc<Running>, stop: StopSignal) -> std::io::Result<Self> {
        let guarded = Guarded { name: "limits", stop: stop.clone(), health: Arc::clone(&running.health) };
        let running = Arc::clone(running);
        let thread = threads::spawn(guarded, move || {
            let mut said = Said::default();
            while !stop.is_given() {
                for (reason, packets) in said.look(&running.totals(), Instant::now()) {
                    let (limit, remedy) = (reason.name(), reason.remedy());
                    tracing::warn!(limit, packets, remedy, "a limit is reached: packets were dropped");
                }
                std::thread::park_timeout(PERIOD);
            }
        })?;
        Ok(Self(thread))
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        self.0.thread().unpark();
        let _ = self.0.join();
    }
}

/// What was said of each limit: of how many packets, and when.
#[derive(Debug, Default)]
struct Said(BTreeMap<DropReason, (u64, Instant)>);

impl Said {
    /// Limits that are to be spoken of, with the packets that they have cost since.
    fn look(&mut self, totals: &Totals, now: Instant) -> Vec<(DropReason, u64)> {
        let mut reached = Vec::new();
        for reason in LIMITS {
            let count = totals.drops[reason as usize];
            let said = self.0.get(&reason).copied();
            let before = said.map_or(0, |(count, _)| count);
            if count > before && said.is_none_or(|(_, at)| now.duration_since(at) >= PAUSE) {
                self.0.insert(reason, (count, now));
                reached.push((reason, count - before));
            }
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_spoken_of_at_once_and_then_once_a_minute() {
        let (mut said, mut totals, began) = (Said::default(), Totals::default(), Instant::now());
        assert!(said.look(&totals, began).is_empty());
        totals.drops[DropReason::PoolExhausted as usize] = 3;
        totals.drops[DropReason::NoBinding as usize] = 9;
        assert_eq!(said.look(&totals, began), [(DropReason::PoolExhausted, 3)]);
        totals.drops[DropReason::PoolExhausted as usize] = 10;
        totals.drops[DropReason::RateLimited as usize] = 1;
        let soon = began + Duration::from_secs(5);
        assert_eq!(said.look(&totals, soon), [(DropReason::RateLimited, 1)]);
        assert_eq!(said.look(&totals, began + PAUSE), [(DropReason::PoolExhausted, 7)]);
        assert!(said.look(&totals, began + 3 * PAUSE).is_empty());
    }
}

//! The thread that keeps what the gateway has set up on its host: a device that was set down,
//! addresses, routes and rules that somebody has removed are put back.
//!
//! At a bounded rate, for there may be somebody who removes them again and again: then the gateway
//! says so, and the other one wins most of the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tombolo_io::host::{Answers, Forwarding, Host, Subject, Watch};
use tombolo_io::worker::StopSignal;

use crate::error_chain::in_one_line;
use crate::health::Health;
use crate::provided::Provided;
use crate::threads::{self, Guarded};

/// How long is waited for something to happen, at most; a gateway that ends waits as long.
const WAIT: Duration = Duration::from_millis(250);
/// From the first change until is looked what is missing: tools make several changes at once.
const SETTLE: Duration = Duration::from_millis(100);
/// How often is looked although nothing was heard.
const PERIOD: Duration = Duration::from_secs(10);
/// So many times things are put back at once,
const AT_ONCE: u32 = 5;
/// and once more after so long.
const PACE: Duration = Duration::from_secs(5);
/// The same is not said again for so long.
const QUIET: Duration = Duration::from_secs(60);

/// The running thread.
#[derive(Debug)]
pub(crate) struct Upkeep(JoinHandle<()>);

impl Upkeep {
    /// Starts it for the host that `provided` holds; it ends when `stop` is given. Counts in `put_back`.
    ///
    /// # Errors
    /// If the kernel does not announce changes, or if there are no more threads.
    pub(crate) fn start(
        provided: Arc<Provided>,
        device: String,
        guarded: Guarded,
        put_back: Arc<AtomicU64>,
    ) -> std::io::Result<Option<Self>> {
        let Some(watch) = provided.with(|host| Watch::open(host)) else { return Ok(None) };
        let watch = watch?;
        let (stop, health) = (guarded.stop.clone(), Arc::clone(&guarded.health));
        let mut keeper = Keeper { provided, watch, device, health, put_back, budget: Budget::new(), said: None };
        Ok(Some(Self(threads::spawn(guarded, move || keeper.keep(&stop))?)))
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        self.0.thread().unpark();
        let _ = self.0.join();
    }
}

/// Sees to it that neighbours are answered for what lies behind the gateway.
pub(crate) fn answer_neighbours(host: &mut Host, device: &str, health: &Health) {
    let Answers { begun, ended, faults } = host
        .answer_neighbours(device)
        .unwrap_or_else(|error| Answers { faults: vec![in_one_line(&error)], ..Answers::default() });
    for (what, addresses) in
        [("neighbours are answered for", begun), ("neighbours are not answered any more for", ended)]
    {
        match addresses.as_slice() {
            [] => {}
            [first, .., last] => tracing::info!(addresses = addresses.len(), "{what} {first} to {last}"),
            [address] => tracing::info!("{what} {address}"),
        }
    }
    health.set("neighbours", faults);
}

struct Keeper {
    provided: Arc<Provided>,
    watch: Watch,
    device: String,
    health: Arc<Health>,
    put_back: Arc<AtomicU64>,
    budget: Budget,
    said: Option<(Instant, String)>,
}

impl Keeper {
    fn keep(&mut self, stop: &StopSignal) {
        let mut due = Instant::now() + PERIOD;
        while !stop.is_given() {
            let heard = self.watch.wait(WAIT.min(due.saturating_duration_since(Instant::now()))).unwrap_or_else(|_| {
                std::thread::sleep(WAIT);
                true
            });
            tombolo_io::fault::trip("thread-upkeep");
            if heard {
                due = due.min(Instant::now() + SETTLE);
            }
            if Instant::now() >= due && !stop.is_given() {
                let complete = self.look(stop);
                due = Instant::now() + if complete { PERIOD } else { PACE.min(self.budget.wait()).max(WAIT) };
            }
        }
    }

    /// Puts back what is missing, as far as it may. True if nothing is missing.
    fn look(&mut self, stop: &StopSignal) -> bool {
        let provided = Arc::clone(&self.provided);
        provided.with(|host| self.look_at(host, stop)).unwrap_or(true)
    }

    fn look_at(&mut self, host: &mut Host, stop: &StopSignal) -> bool {
        self.watch.follow(host);
        answer_neighbours(host, &self.device, &self.health);
        let mut faults: Vec<String> =
            Forwarding::read().remedies().iter().map(|remedy| format!("the host does not forward: {remedy}")).collect();
        let advice = faults.len();
        let mut done = Vec::new();
        match host.missing() {
            // The device goes with the threads that end.
            _ if stop.is_given() => return true,
            Err(error) => faults.push(in_one_line(&error)),
            Ok(missing) if missing.is_empty() => {}
            Ok(missing) if !self.budget.take() => {
                faults.extend(missing.iter().map(|missing| {
                    let also = if missing.subject == Subject::Device { "" } else { " is missing" };
                    format!("{missing}{also}; somebody removes it again and again")
                }));
            }
            Ok(missing) => {
                for missing in missing {
                    match host.put_back(&missing) {
                        Ok(()) => done.push(missing.to_string()),
                        Err(error) => faults.push(format!("{missing} cannot be put back: {}", in_one_line(&error))),
                    }
                }
                self.put_back.fetch_add(done.len() as u64, Ordering::Relaxed);
            }
        }
        if stop.is_given() {
            return true;
        }
        self.say(&done.join(", "));
        let complete = faults.len() == advice;
        self.health.set("host", faults);
        complete
    }

    /// Once, and not again while somebody goes on removing the same.
    fn say(&mut self, what: &str) {
        if what.is_empty() {
            return;
        }
        let is_new = self.said.as_ref().is_none_or(|(at, said)| said != what || at.elapsed() > QUIET);
        if is_new {
            tracing::warn!("somebody has removed what the gateway needs; put back: {what}");
            self.said = Some((Instant::now(), what.to_owned()));
        }
    }
}

/// How often things may be put back.
struct Budget {
    left: u32,
    /// When one was added last.
    since: Instant,
}

impl Budget {
    fn new() -> Self {
        Self { left: AT_ONCE, since: Instant::now() }
    }

    fn take(&mut self) -> bool {
        while self.left < AT_ONCE && self.since.elapsed() >= PACE {
            self.left += 1;
            self.since += PACE;
        }
        if self.left == AT_ONCE {
            self.since = Instant::now();
        }
        let has = self.left > 0;
        self.left = self.left.saturating_sub(1);
        has
    }

    /// How long until there is one.
    fn wait(&self) -> Duration {
        if self.left > 0 { Duration::ZERO } else { PACE.saturating_sub(self.since.elapsed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_bounded() {
        let mut budget = Budget::new();
        let at_once = (0..100).filter(|_| budget.take()).count();
        assert_eq!(at_once, AT_ONCE as usize);
        assert!(budget.wait() > PACE / 2);
    }
}

//! How the gateway does: what it lacks of what it was set up with.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How the gateway does, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It has all that it needs.
    Ready,
    /// It serves packets, but not all, or not as fast, or not for long.
    Degraded,
    /// It serves none, or ends.
    Failed,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ready, Self::Degraded, Self::Failed];

    /// The word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        }
    }
}

/// What is wrong, as those that look after a part report it.
#[derive(Debug, Default)]
pub struct Health(Mutex<Reported>);

#[derive(Debug, Default)]
struct Reported {
    /// By part.
    faults: BTreeMap<&'static str, Vec<String>>,
    /// What nobody puts right.
    fatal: Option<String>,
}

impl Health {
    /// What is wrong with a part of the gateway from now on: `faults` takes the place of what was
    /// said of it before. Says in the log what is new, once.
    pub fn set(&self, part: &'static str, faults: Vec<String>) {
        let mut reported = self.lock();
        let before = reported.faults.insert(part, faults.clone()).unwrap_or_default();
        for fault in faults.iter().filter(|fault| !before.contains(fault)) {
            tracing::warn!(part, "degraded: {fault}");
        }
        if faults.is_empty() && !before.is_empty() {
            tracing::info!(part, "as it should be again");
        }
    }

    /// The gateway cannot go on, and why; the first such reason counts.
    pub fn fail(&self, why: &str) {
        tracing::error!("failed: {why}");
        self.lock().fatal.get_or_insert_with(|| why.to_owned());
    }

    /// Why the gateway cannot go on, if it cannot.
    #[must_use]
    pub fn fatal(&self) -> Option<String> {
        self.lock().fatal.clone()
    }

    /// How the gateway does, and what is wrong.
    #[must_use]
    pub fn report(&self) -> (State, Vec<String>) {
        let reported = self.lock();
        let faults: Vec<String> = reported.fatal.iter().chain(reported.faults.values().flatten()).cloned().collect();
        let state = match (&reported.fatal, faults.is_empty()) {
            (Some(_), _) => State::Failed,
            (None, false) => State::Degraded,
            (None, true) => State::Ready,
        };
        (state, faults)
    }

    fn lock(&self) -> MutexGuard<'_, Reported> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_speaks_for_itself_and_what_is_fatal_stays() {
        let health = Health::default();
        assert_eq!(health.report(), (State::Ready, vec![]));
        health.set("host", vec!["a route is missing".into()]);
        health.set("threads", vec![]);
        assert_eq!(health.report(), (State::Degraded, vec!["a route is missing".into()]));
        health.set("host", vec![]);
        assert_eq!(health.report().0, State::Ready);
        health.fail("first");
        health.fail("second");
        assert_eq!(health.report(), (State::Failed, vec!["first".into()]));
    }
}

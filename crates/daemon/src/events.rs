//! What has happened lately, in the words of the log: kept in memory, for those who ask.
//!
//! The log of the process is one, and so is this. Whoever sets up the log hands each of its lines over
//! ([`note`]).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde_json::{Map, Value};

/// Events that are kept.
pub const KEPT: usize = 1000;
/// Bytes of its words that are kept.
const LONGEST: usize = 1000;

/// Something has happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When.
    pub time: SystemTime,
    /// How grave it is: `error`, `warn` or `info`.
    pub level: &'static str,
    /// The part of the gateway that says so.
    pub part: String,
    /// What, in words.
    pub words: String,
    /// More about it, by name.
    pub details: Map<String, Value>,
}

#[derive(Debug, Default)]
struct Recent {
    events: VecDeque<Arc<Event>>,
    /// Events before the first that is kept.
    forgotten: u64,
}

static RECENT: Mutex<Recent> = Mutex::new(Recent { events: VecDeque::new(), forgotten: 0 });

fn recent() -> MutexGuard<'static, Recent> {
    RECENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an event, in the place of the oldest.
pub fn note(mut event: Event) {
    if let Some((end, _)) = event.words.char_indices().find(|(at, _)| *at >= LONGEST) {
        event.words.truncate(end);
    }
    let mut recent = recent();
    if recent.events.len() >= KEPT {
        recent.events.pop_front();
        recent.forgotten += 1;
    }
    recent.events.push_back(Arc::new(event));
}

/// How many there have been.
#[must_use]
pub fn count() -> u64 {
    let recent = recent();
    recent.forgotten + recent.events.len() as u64
}

/// Those from number `from` on, as far as they are kept, and how many of them are not.
#[must_use]
pub fn since(from: u64) -> (Vec<Arc<Event>>, u64) {
    let recent = recent();
    let forgotten = recent.forgotten.saturating_sub(from);
    let skipped = usize::try_from(from.saturating_sub(recent.forgotten)).unwrap_or(usize::MAX);
    (recent.events.iter().skip(skipped).cloned().collect(), forgotten)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_and_others_counted() {
        let event = |number: usize| Event {
            time: SystemTime::now(),
            level: "info",
            part: "test".into(),
            words: format!("{number} {}", "ä".repeat(LONGEST)),
            details: Map::new(),
        };
        let began = count();
        (0..KEPT + 5).for_each(|number| note(event(number)));
        let (events, forgotten) = since(began);
        assert_eq!((events.len(), forgotten), (KEPT, 5));
        assert!(events[0].words.starts_with("5 ") && events[0].words.len() <= LONGEST + 1);
        assert_eq!(since(count() - 1).0.len(), 1);
        assert_eq!(since(count()), (vec![], 0));
    }
}

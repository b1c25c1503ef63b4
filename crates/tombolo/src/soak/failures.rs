//! What should not have been.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// So many are kept.
const MOST_FAILURES: usize = 20;

/// What should not have been, with the second in which it was found.
#[derive(Debug)]
pub(crate) struct Failures {
    begin: Instant,
    found: Mutex<Vec<String>>,
}

impl Default for Failures {
    fn default() -> Self {
        Self { begin: Instant::now(), found: Mutex::default() }
    }
}

impl Failures {
    pub(crate) fn add(&self, text: String) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() < MOST_FAILURES {
            found.push(format!("second {}: {text}", self.begin.elapsed().as_secs()));
        }
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

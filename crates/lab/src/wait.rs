//! Waiting for something to become true.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::{LabError, interrupted};

/// How often a condition is looked at. Short against what is awaited, long against one look.
const INTERVAL: Duration = Duration::from_millis(5);

/// By how much all limits are longer on a machine that is known to be slow, such as an emulated one: `TOMBOLO_PATIENCE`, a whole number.
static PATIENCE: LazyLock<u32> = LazyLock::new(|| match std::env::var("TOMBOLO_PATIENCE") {
    Ok(factor) => factor.parse().expect("TOMBOLO_PATIENCE is a whole number"),
    Err(_) => 1,
});

/// Polls `condition` until it gives a value or `limit` is over, which `TOMBOLO_PATIENCE` multiplies; `what` names it in the error.
///
/// # Errors
/// [`LabError::TimedOut`] after `limit`, [`LabError::Interrupted`] when a signal ends the lab.
pub fn wait_until<T>(what: &str, limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Result<T, LabError> {
    let limit = limit * *PATIENCE;
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        if interrupted() {
            return Err(LabError::Interrupted);
        }
        if started.elapsed() >= limit {
            return Err(LabError::TimedOut { what: what.to_owned(), limit, output: String::new() });
        }
        std::thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_value_once_there_is_one() {
        let mut looks = 0;
        let value = wait_until("the third look", Duration::from_secs(5), || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(value.unwrap(), 3);
    }

    #[test]
    fn names_what_never_came() {
        let error = wait_until("spring", Duration::ZERO, || None::<()>).unwrap_err();
        assert_eq!(error.to_string(), "waited 0 ms for spring in vain");
    }
}

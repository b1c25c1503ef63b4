//! How long a port may take nothing before it counts as stopped.

use std::io;
use std::time::{Duration, Instant};

const LONGEST: Duration = Duration::from_secs(2);
/// The machine may have kept the thread away all that time: so many attempts were made in vain as well.
const ATTEMPTS: u32 = 10_000;

/// One wait for a port.
pub(crate) struct Patience {
    since: Instant,
    attempts: u32,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience { since: Instant::now(), attempts: 0 }
    }

    /// One attempt more in vain.
    ///
    /// # Errors
    /// `TimedOut` when it has been enough of them for long enough.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts < ATTEMPTS || self.since.elapsed() < LONGEST {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the port takes no more frames"))
    }
}

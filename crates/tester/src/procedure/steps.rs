//! What takes turns with others ([`turns`](super::turns)): a measurement that somebody else makes go on.

use super::known::Known;
use super::measured::Measured;
use crate::bench::{Bench, BenchError, Observer};

/// A measurement under way, whose trials are made one at a time.
pub(super) trait Steps {
    /// Makes a trial; false if the measurement has ended.
    ///
    /// # Errors
    /// If it cannot be run.
    fn try_once(&mut self, bench: &mut Bench, observer: &mut dyn Observer) -> Result<bool, BenchError>;

    /// What came of it.
    fn end(self: Box<Self>, known: &mut Known) -> Measured;
}

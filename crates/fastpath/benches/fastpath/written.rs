//! The same as lines of a result file, of which `tombolo report --bars` reads the ratios.

use tombolo_tester::figures::{Figure, Figures};
use tombolo_tester::procedure::Bound;

/// A result file, if one is asked for.
pub(crate) struct Written(Figures);

impl Written {
    /// Begins a run in the file that the arguments ask for.
    pub(crate) fn to(arguments: &mut Vec<String>) -> Written {
        let comparable = "one core sends, forwards and receives; ratios are of interleaved rounds";
        Written(Figures::asked_for(arguments, "fast path in XDP", comparable).unwrap())
    }

    /// Frames a second of each round.
    pub(crate) fn rate(&mut self, gateway: &str, quantity: &str, rounds: &[f64]) {
        self.add(gateway, quantity, "frames/s", rounds, None);
    }

    /// One over another, within rounds.
    pub(crate) fn ratio(&mut self, gateway: &str, quantity: &str, over: &[f64], under: &[f64]) {
        self.add(gateway, quantity, "ratio", &ratios(over, under), None);
    }

    /// As a ratio, which is no less than what was asked for.
    pub(crate) fn ratio_at_most(&mut self, gateway: &str, quantity: &str, over: &[f64], under: &[f64], why: &str) {
        self.add(gateway, quantity, "ratio", &ratios(over, under), Some((Bound::AtMost, why)));
    }

    fn add(&mut self, of: &str, quantity: &str, unit: &str, values: &[f64], bound: Option<(Bound, &str)>) {
        self.0.add(&Figure { of, quantity, unit, higher_is_better: true, values, bound }).unwrap();
    }
}

/// One over another, round by round.
pub(crate) fn ratios(over: &[f64], under: &[f64]) -> Vec<f64> {
    over.iter().zip(under).map(|(over, under)| over / under).collect()
}

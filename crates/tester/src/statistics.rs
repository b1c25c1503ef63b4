//! Medians and ratios of few samples.

use serde::{Deserialize, Serialize};

/// The middle and the ends of a set of samples, in the samples' unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle sample; of an even number, the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many.
    pub samples: usize,
}

impl Spread {
    /// Summarises samples; `None` without any.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (lower, upper) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self { median: f64::midpoint(lower, upper), min, max, samples: sorted.len() })
    }
}

/// The median of the ratios of samples taken in the same round. Ratios survive a machine whose
/// speed drifts between rounds, which the ratio of medians does not. Rounds in which either is
/// missing do not count.
#[must_use]
pub fn median_ratio(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Option<f64> {
    let pairs = ours.iter().zip(theirs).filter_map(|(ours, theirs)| Some((*ours)? / (*theirs)?));
    let ratios: Vec<f64> = pairs.filter(|ratio| ratio.is_finite()).collect();
    Spread::of(&ratios).map(|spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0, samples: 3 }));
        assert_eq!(Spread::of(&[4.0, 1.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn ratios_pair_the_rounds() {
        // The machine halves its speed in the second round; the ratio stays.
        assert_eq!(median_ratio(&[Some(9.0), Some(4.5)], &[Some(10.0), Some(5.0)]), Some(0.9));
        assert_eq!(median_ratio(&[None, Some(4.0)], &[Some(10.0), Some(5.0)]), Some(0.8));
        assert_eq!(median_ratio(&[Some(1.0)], &[Some(0.0)]), None);
    }
}

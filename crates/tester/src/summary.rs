//! The summary of repeated measurements (RFC 8219 section 7: median, 1st and 99th percentile).
//!
//! Percentiles are nearest-rank, as RFC 2330 section 11.3 defines them: the smallest value that at
//! least the given fraction of all values does not exceed. With fewer than 100 repetitions the 1st
//! and 99th percentile *are* the minimum and maximum, so both are always reported with the count.

use serde::{Deserialize, Serialize};

/// Median, dispersion and range of one set of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of values.
    pub count: usize,
    /// Middle value, or the mean of the two middle values.
    pub median: f64,
    /// 1st percentile.
    pub p1: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation; 0 for a single value.
    pub standard_deviation: f64,
}

impl Summary {
    /// The summary of the values; `None` if there are none. NaN values are left out.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len();
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let squares: f64 = sorted.iter().map(|v| (v - mean) * (v - mean)).sum();
        Some(Summary {
            count,
            median: median(&sorted),
            p1: nearest_rank(&sorted, 1),
            p99: nearest_rank(&sorted, 99),
            min,
            max,
            mean,
            standard_deviation: if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 },
        })
    }

    /// Half of the range over the median: how far apart repetitions are, as a fraction.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / 2.0 / self.median }
    }
}

/// An interval that contains the median of what the values are drawn from in 95 of 100 such draws, by
/// order statistics; none for fewer than six values, of which no two are far enough apart.
pub fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    // The part of all draws with fewer than `rank` values below the median: a binomial distribution.
    let (mut term, mut below, mut rank) = (0.5f64.powi(i32::try_from(n).ok()?), 0.0, 0);
    while 2.0 * (below + term) <= 0.05 && rank < n / 2 {
        below += term;
        term *= (n - rank) as f64 / (rank + 1) as f64;
        rank += 1;
    }
    (rank > 0).then(|| (sorted[rank - 1], sorted[n - rank]))
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], sorted[middle]) } else { sorted[middle] }
}

fn nearest_rank(sorted: &[f64], percent: usize) -> f64 {
    let rank = (percent * sorted.len()).div_ceil(100).max(1);
    sorted[rank - 1]
}

/// The value at a percentile given in thousandths (999: the 99.9th) of integers, by nearest rank.
pub fn percentile(values: &mut [u64], thousandths: usize) -> Option<u64> {
    values.sort_unstable();
    let rank = (thousandths * values.len()).div_ceil(1000).max(1);
    values.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_the_median_is_between_the_tabulated_ranks() {
        let values = |n: u32| (1..=n).map(f64::from).collect::<Vec<f64>>();
        // Ranks as tables of the binomial distribution have them.
        assert_eq!(median_interval(&values(20)), Some((6.0, 15.0)));
        assert_eq!(median_interval(&values(10)), Some((2.0, 9.0)));
        assert_eq!(median_interval(&values(6)), Some((1.0, 6.0)));
        assert_eq!(median_interval(&values(5)), None);
    }

    #[test]
    fn percentiles_of_few_values_are_the_extremes() {
        let s = Summary::of(&[3.0, 1.0, 2.0, 4.0]).unwrap();
        assert_eq!((s.p1, s.median, s.p99, s.min, s.max), (1.0, 2.5, 4.0, 1.0, 4.0));
        assert!((s.standard_deviation - 1.290_994).abs() < 1e-6);
    }

    #[test]
    fn two_hundred_values_have_inner_percentiles() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        let s = Summary::of(&values).unwrap();
        assert_eq!((s.p1, s.p99), (2.0, 198.0));
    }

    #[test]
    fn nothing_has_no_summary_and_one_value_no_deviation() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN]), None);
        assert_eq!(Summary::of(&[7.0]).unwrap().standard_deviation, 0.0);
    }

    #[test]
    fn the_worst_of_five_hundred_is_the_99_9th_percentile() {
        let mut values: Vec<u64> = (1..=500).collect();
        assert_eq!(percentile(&mut values, 999), Some(500));
        let mut values: Vec<u64> = (1..=2000).collect();
        assert_eq!(percentile(&mut values, 999), Some(1998));
    }
}

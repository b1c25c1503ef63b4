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

/// The middle of ratios that lie evenly around it, and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Centre {
    /// The median of the geometric means of all pairs of ratios, each with itself too (Hodges and Lehmann 1963).
    pub estimate: f64,
    /// In which the middle is in 95 of 100 such draws: Wilcoxon's signed-rank test rejects none of it.
    pub interval: (f64, f64),
}

impl Centre {
    /// Of ratios; none for fewer than six. Unlike [`median_interval`] it asks that a ratio be as likely as its inverse around the middle,
    /// as where two alike are compared; for that every ratio counts, not the middle ones alone.
    pub fn of_ratios(ratios: &[f64]) -> Option<Centre> {
        let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).filter(|l| l.is_finite()).collect();
        let mut means: Vec<f64> = Vec::new();
        for (at, one) in logarithms.iter().enumerate() {
            means.extend(logarithms[..=at].iter().map(|other| f64::midpoint(*one, *other)));
        }
        means.sort_by(f64::total_cmp);
        let rank = signed_rank(logarithms.len());
        let interval = || (means[rank - 1].exp(), means[means.len() - rank].exp());
        (rank > 0).then(|| Centre { estimate: median(&means).exp(), interval: interval() })
    }
}

/// How many sums of signed ranks of so many values are so small that they, and as many large ones, are seen in at most 5 of 100
/// draws.
fn signed_rank(values: usize) -> usize {
    // The part of all choices of signs whose positive ranks add up to each sum.
    let mut parts = vec![0.0; values * (values + 1) / 2 + 1];
    parts[0] = 1.0;
    for rank in 1..=values {
        for sum in (0..parts.len()).rev() {
            let without = if sum >= rank { parts[sum - rank] } else { 0.0 };
            parts[sum] = f64::midpoint(parts[sum], without);
        }
    }
    let mut below = 0.0;
    let sums = parts.iter().take_while(|part| {
        below += **part;
        2.0 * below <= 0.05
    });
    sums.count()
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
    use crate::random::part;

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
    fn signed_ranks_are_those_that_are_tabulated() {
        // One more than the critical values of Wilcoxon's test, two-sided at 5 %.
        let ranks = [5, 6, 8, 10, 12, 15, 20, 25].map(signed_rank);
        assert_eq!(ranks, [0, 1, 4, 9, 14, 26, 53, 90]);
    }

    #[test]
    fn the_centre_of_ratios_turns_with_them_and_rests_on_all_of_them() {
        let ratios: [f64; 10] = [4, 9, 0, 1, 7, 3, 2, 8, 6, 5].map(|power| 1.01f64.powi(power));
        let Centre { estimate, interval: (low, high) } = Centre::of_ratios(&ratios).unwrap();
        // Of the 55 means of two powers the 28th, and the ninth from below and from above.
        let is = |ratio: f64, power: f64| (ratio.ln() / 1.01f64.ln() - power).abs() < 1e-9;
        assert!(is(estimate, 4.5) && is(low, 2.0) && is(high, 7.0), "{estimate} {low} {high}");
        let turned = Centre::of_ratios(&ratios.map(|ratio| 1.0 / ratio)).unwrap();
        assert!((turned.estimate * estimate - 1.0).abs() < 1e-9 && (turned.interval.0 * high - 1.0).abs() < 1e-9);
        assert_eq!(Centre::of_ratios(&ratios[..5]), None);
    }

    /// It is where it says in 95 of 100 draws, and narrower than the median's.
    #[test]
    fn the_centre_is_in_its_interval_as_often_as_is_said() {
        let mut state = 1_u64;
        let mut random = move || part(&mut state);
        let (mut within, mut width, mut width_of_median) = (0, 0.0, 0.0);
        for _ in 0..2000 {
            // The sum of four is near enough to normal.
            let ratios: Vec<f64> =
                (0..20).map(|_| (0.02 * (random() + random() + random() + random() - 2.0)).exp()).collect();
            let (low, high) = Centre::of_ratios(&ratios).unwrap().interval;
            within += usize::from(low <= 1.0 && high >= 1.0);
            width += high - low;
            width_of_median += median_interval(&ratios).map(|(low, high)| high - low).unwrap();
        }
        assert!((1870..=1930).contains(&within), "{within}");
        assert!(width < 0.9 * width_of_median, "{width} {width_of_median}");
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

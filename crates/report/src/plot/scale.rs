//! An axis that is marked where somebody wants to read it: at round numbers, or at the points that were
//! measured.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// Where values stand on a line of pixels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scale {
    from: f64,
    to: f64,
    is_logarithmic: bool,
    marks: Vec<f64>,
}

/// More than this from the smallest to the largest value: equal steps are equal ratios.
const WIDE: f64 = 12.0;

impl Scale {
    /// From zero to the largest value, or, where values are far apart, over their powers of ten.
    pub(crate) fn of_values(values: impl Iterator<Item = f64>) -> Scale {
        let (lowest, highest, smallest) = extent(values);
        if lowest >= 0.0 && smallest > 0.0 && highest / smallest > WIDE && lowest > 0.0 {
            return Scale::logarithmic(smallest, highest);
        }
        let (from, to) = (lowest.min(0.0), highest.max(0.0));
        let to = if to > from { to } else { from + 1.0 };
        let step = round_step((to - from) / 5.0);
        let (first, last) = ((from / step).floor() * step, (to / step * 1.02).ceil() * step);
        Scale { from: first, to: last, is_logarithmic: false, marks: steps(first, last, step) }
    }

    /// Marked at the points themselves, with some room on both sides.
    pub(crate) fn of_points(points: impl Iterator<Item = f64>) -> Scale {
        let mut marks: Vec<f64> = points.filter(|point| point.is_finite()).collect();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
        let (Some(&first), Some(&last)) = (marks.first(), marks.last()) else {
            return Scale::of_values([1.0].into_iter());
        };
        // Points on such axes are doubled or multiplied from one to the next.
        let is_logarithmic = first > 0.0 && marks.len() > 1;
        let (from, to) = match is_logarithmic {
            true => (first / (last / first).powf(0.06), last * (last / first).powf(0.06)),
            false => (first - 0.5 * first.abs().max(1.0), last + 0.5 * last.abs().max(1.0)),
        };
        let scale = Scale { from, to, is_logarithmic, marks: Vec::new() };
        let marks = scale.apart(marks);
        Scale { marks, ..scale }
    }

    fn logarithmic(smallest: f64, highest: f64) -> Scale {
        let decade = |value: f64| 10f64.powf(value.log10().floor());
        let round = |value: f64| [1.0, 2.0, 5.0, 10.0].map(|part| part * decade(value));
        let from = round(smallest).into_iter().rfind(|mark| *mark <= smallest * 1.000_1).unwrap_or(smallest);
        let to = round(highest).into_iter().find(|mark| *mark >= highest * 0.999_9).unwrap_or(highest);
        let within: &[f64] = if to / from <= 500.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let mut marks = Vec::new();
        let mut begin = decade(from);
        while begin <= to * 1.000_1 {
            let all = within.iter().map(|part| part * begin);
            marks.extend(all.filter(|mark| (from * 0.999_9..=to * 1.000_1).contains(mark)));
            begin *= 10.0;
        }
        Scale { from, to, is_logarithmic: true, marks }
    }

    /// Those marks whose labels do not run into each other: the last one stays.
    fn apart(&self, marks: Vec<f64>) -> Vec<f64> {
        const LABEL: f64 = 0.075;
        let mut kept: Vec<f64> = Vec::new();
        for mark in marks.into_iter().rev() {
            if kept.last().is_none_or(|next| (self.part(*next) - self.part(mark)).abs() >= LABEL) {
                kept.push(mark);
            }
        }
        kept.reverse();
        kept
    }

    /// 0 at the beginning, 1 at the end.
    fn part(&self, value: f64) -> f64 {
        match self.is_logarithmic {
            true => (value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        }
    }

    /// The first value on it.
    pub(crate) fn start(&self) -> f64 {
        self.from
    }
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = self.part(*value).clamp(-0.02, 1.02);
        #[expect(clippy::cast_possible_truncation, reason = "a pixel")]
        let pixel = (f64::from(limit.0) + part * f64::from(limit.1 - limit.0)).round() as i32;
        pixel
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

/// Lowest, highest, and smallest above zero.
fn extent(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let start = (f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY);
    let (low, high, small) = values.filter(|value| value.is_finite()).fold(start, |(low, high, small), value| {
        (low.min(value), high.max(value), if value > 0.0 { small.min(value) } else { small })
    });
    if low > high { (0.0, 1.0, 1.0) } else { (low, high, small) }
}

/// 1, 2 or 5 times a power of ten, at least this.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|part| part * power).into_iter().find(|step| *step >= least * 0.999).unwrap_or(power)
}

fn steps(first: f64, last: f64, step: f64) -> Vec<f64> {
    let next = |mark: &f64| Some(mark + step).filter(|next| *next <= last + step / 1000.0);
    // What is next to nothing is zero.
    let rounded = |mark: f64| (mark / step).round() * step;
    std::iter::successors(Some(first), next).map(rounded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_close_begin_at_zero_and_others_are_multiplied() {
        let close = Scale::of_values([300.0, 870.0].into_iter());
        assert_eq!((close.is_logarithmic, close.marks.clone()), (false, vec![0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]));
        let far = Scale::of_values([24.4, 23_030.9].into_iter());
        assert_eq!((far.is_logarithmic, far.marks.clone()), (true, vec![100.0, 1000.0, 10_000.0]));
        assert_eq!((far.from.round(), far.to.round()), (20.0, 50_000.0));
        assert_eq!(Scale::of_values([0.0, 0.0].into_iter()).map(&0.0, (100, 0)), 100);
        assert!(Scale::of_values([-3.0, 5.0].into_iter()).from <= -3.0);
    }

    #[test]
    fn points_are_marked_where_they_are_and_do_not_run_into_each_other() {
        let cores = Scale::of_points([1.0, 2.0, 4.0, 8.0, 16.0, 2.0].into_iter());
        assert_eq!(cores.marks, [1.0, 2.0, 4.0, 8.0, 16.0]);
        let crowded = Scale::of_points([1.0, 1000.0, 1001.0].into_iter());
        assert_eq!(crowded.marks, [1.0, 1001.0]);
        let alone = Scale::of_points([1.0].into_iter());
        assert_eq!((alone.marks.clone(), alone.map(&1.0, (0, 100))), (vec![1.0], 50));
    }
}

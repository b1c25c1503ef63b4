//! What the repetitions of a series came to, and their summaries: medians, ranges, ratios within
//! repetitions, and every mark that a value carries.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::procedure::{Bound, Measured, Point};
use crate::summary::{Centre, Summary, median_interval};

/// What one repetition came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    value: Option<f64>,
    bound: Option<Bound>,
    doubts: Vec<String>,
    unit: String,
    point: Option<Point>,
    higher_is_better: bool,
}

impl Reading {
    pub(crate) fn of(measured: &Measured) -> Reading {
        Reading {
            value: measured.value,
            bound: measured.bound,
            doubts: measured.doubts.clone(),
            unit: measured.unit.to_owned(),
            point: measured.point.clone(),
            higher_is_better: measured.higher_is_better,
        }
    }

    /// What a line of a result file says; `None` where it has no value, so that it is measured
    /// again.
    pub(crate) fn from_line(line: &Value) -> Option<Reading> {
        Some(Reading {
            value: Some(line["value"].as_f64()?),
            bound: serde_json::from_value(line["bound"].clone()).unwrap_or_default(),
            doubts: serde_json::from_value(line["doubts"].clone()).unwrap_or_default(),
            unit: line["unit"].as_str().unwrap_or_default().to_owned(),
            point: serde_json::from_value(line["point"].clone()).unwrap_or_default(),
            higher_is_better: line["higher_is_better"].as_bool().unwrap_or(true),
        })
    }
}

/// By gateway, quantity and repetition.
pub(crate) type Readings = BTreeMap<(String, String), BTreeMap<u32, Reading>>;

/// All repetitions of one quantity of one gateway.
#[derive(Clone, Debug, Serialize)]
pub struct GatewaySummary {
    record: &'static str,
    /// The gateway.
    pub gateway: String,
    /// What was measured.
    pub quantity: String,
    /// Unit of all values.
    pub unit: String,
    /// Where it stands among others of its kind.
    pub point: Option<Point>,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// Median, percentiles, range; absent where no repetition has a value.
    pub summary: Option<Summary>,
    /// Half of the range over the median.
    pub spread: f64,
    /// Repetitions without a value.
    pub missing: usize,
    /// The values are bounds, in at least one repetition.
    pub bound: Option<Bound>,
    /// Median, smallest and largest ratio to the first gateway, within repetitions.
    pub ratio: Option<Summary>,
    /// Between these the median of the ratios is, in 95 of 100 such series; absent below six ratios.
    pub ratio_interval: Option<(f64, f64)>,
    /// Their middle, if they lie evenly around it; absent below six ratios.
    pub ratio_centre: Option<Centre>,
    /// The ratios are bounds, in at least one repetition.
    pub ratio_bound: Option<Bound>,
    /// Why values are bounds, missing, or not all that their name says; each reason once.
    pub doubts: Vec<String>,
}

/// The summaries of all gateways, in this order; ratios are to the first.
pub(crate) fn summarise(readings: &Readings, gateways: &[String]) -> Vec<GatewaySummary> {
    let mut summaries = Vec::new();
    for gateway in gateways {
        for ((_, quantity), repetitions) in readings.iter().filter(|((name, _), _)| name == gateway) {
            let base = readings.get(&(gateways[0].clone(), quantity.clone())).filter(|_| *gateway != gateways[0]);
            summaries.push(summary_of(gateway, quantity, repetitions, base));
        }
    }
    summaries
}

fn summary_of(
    gateway: &str,
    quantity: &str,
    repetitions: &BTreeMap<u32, Reading>,
    base: Option<&BTreeMap<u32, Reading>>,
) -> GatewaySummary {
    let values: Vec<f64> = repetitions.values().filter_map(|reading| reading.value).collect();
    let pairs: Vec<(&Reading, &Reading)> =
        repetitions.iter().filter_map(|(repetition, reading)| Some((reading, base?.get(repetition)?))).collect();
    let ratio =
        |(over, under): &(&Reading, &Reading)| Some(over.value? / under.value?).filter(|ratio| ratio.is_finite());
    let paired = pairs.iter().filter(|pair| ratio(pair).is_some());
    let mut doubts: Vec<String> = repetitions.values().flat_map(|reading| reading.doubts.clone()).collect();
    doubts.sort();
    doubts.dedup();
    let summary = Summary::of(&values);
    let first = repetitions.values().next().cloned().unwrap_or_default();
    let ratios: Vec<f64> = pairs.iter().filter_map(ratio).collect();
    GatewaySummary {
        record: "summary",
        gateway: gateway.to_owned(),
        quantity: quantity.to_owned(),
        unit: first.unit,
        point: first.point,
        higher_is_better: first.higher_is_better,
        summary,
        spread: summary.map_or(0.0, |summary| summary.spread()),
        missing: repetitions.len() - values.len(),
        bound: Bound::of_all(repetitions.values().map(|reading| reading.bound)),
        ratio: Summary::of(&ratios),
        ratio_interval: median_interval(&ratios),
        ratio_centre: Centre::of_ratios(&ratios),
        ratio_bound: Bound::of_all(paired.map(|(over, under)| Bound::of_ratio(over.bound, under.bound))),
        doubts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(all: &[(Option<f64>, Option<Bound>)]) -> BTreeMap<u32, Reading> {
        let reading = |(value, bound): &(Option<f64>, Option<Bound>)| Reading {
            value: *value,
            bound: *bound,
            doubts: value.is_none().then(|| "the trial is invalid".to_owned()).into_iter().collect(),
            unit: "frames/s".to_owned(),
            ..Reading::default()
        };
        (1..).zip(all.iter().map(reading)).collect()
    }

    #[test]
    fn a_ratio_to_a_bound_is_marked_and_a_missing_value_is_counted() {
        let base = readings(&[(Some(100.0), None), (Some(100.0), Some(Bound::AtLeast)), (None, None)]);
        let own = readings(&[(Some(90.0), None), (Some(90.0), None), (Some(80.0), None)]);
        let against = summary_of("own", "throughput", &own, Some(&base));
        assert_eq!((against.ratio.unwrap().count, against.ratio_bound, against.bound), (2, Some(Bound::AtMost), None));
        let itself = summary_of("base", "throughput", &base, None);
        assert_eq!((itself.missing, itself.bound, itself.ratio), (1, Some(Bound::AtLeast), None));
        assert_eq!(itself.doubts, ["the trial is invalid"]);
    }

    #[test]
    fn without_any_value_there_is_a_reason_and_no_summary() {
        let none = summary_of("own", "throughput", &readings(&[(None, None), (None, None)]), None);
        assert_eq!((none.summary, none.missing, none.doubts.len()), (None, 2, 1));
    }
}

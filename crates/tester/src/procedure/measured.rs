//! What a procedure comes to: a value, and how far it is to be trusted.
//!
//! One rule for all procedures: a value from a trial that was invalid, censored or clamped carries
//! a mark and the reason; where nothing supports a value there is none, with the reason.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::search::Found;

/// The value is a bound of what was to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The true value is this or more.
    AtLeast,
    /// The true value is this or less.
    AtMost,
    /// It may be either.
    Unknown,
}

impl Bound {
    /// The sign before the value.
    pub fn sign(self) -> &'static str {
        match self {
            Bound::AtLeast => ">=",
            Bound::AtMost => "<=",
            Bound::Unknown => "?",
        }
    }

    /// The bound of a ratio, from those of its two parts.
    pub fn of_ratio(over: Option<Bound>, under: Option<Bound>) -> Option<Bound> {
        use Bound::{AtLeast, AtMost, Unknown};
        match (over, under) {
            (None, None) => None,
            (Some(AtLeast), None | Some(AtMost)) | (None, Some(AtMost)) => Some(AtLeast),
            (Some(AtMost), None | Some(AtLeast)) | (None, Some(AtLeast)) => Some(AtMost),
            _ => Some(Unknown),
        }
    }

    /// That of the value with the other sign.
    pub(crate) fn opposite(self) -> Bound {
        match self {
            Bound::AtLeast => Bound::AtMost,
            Bound::AtMost => Bound::AtLeast,
            Bound::Unknown => Bound::Unknown,
        }
    }

    /// The bound of several values together.
    pub fn of_all(bounds: impl Iterator<Item = Option<Bound>>) -> Option<Bound> {
        bounds.flatten().reduce(|one, other| if one == other { one } else { Bound::Unknown })
    }
}

/// Where on an axis a value stands, of a quantity that is measured at several points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// The quantity, whichever the point.
    pub quantity: String,
    /// What varies: sessions, cores, flows, routes, threads.
    pub axis: String,
    /// How much of it.
    pub at: u64,
}

impl Point {
    /// A point of this quantity.
    pub fn new(quantity: impl Into<String>, axis: &str, at: u64) -> Point {
        Point { quantity: quantity.into(), axis: axis.to_owned(), at }
    }
}

/// One value of one measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What it is.
    pub quantity: String,
    /// How much; absent where no trial supports a value.
    pub value: Option<f64>,
    /// Of what.
    pub unit: &'static str,
    /// Where it stands among others of its kind.
    pub point: Option<Point>,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// The value is only a bound.
    pub bound: Option<Bound>,
    /// Why it is a bound, is absent, or is not all that its name says.
    pub doubts: Vec<String>,
    /// Everything else that the procedure has to report.
    pub details: Value,
}

impl Measured {
    /// A value of which more is better.
    pub fn rate(quantity: impl Into<String>, value: f64, unit: &'static str, details: Value) -> Measured {
        Measured {
            quantity: quantity.into(),
            value: Some(value),
            unit,
            point: None,
            higher_is_better: true,
            bound: None,
            doubts: Vec::new(),
            details,
        }
    }

    /// A value of which less is better.
    pub fn cost(quantity: impl Into<String>, value: f64, unit: &'static str, details: Value) -> Measured {
        Measured { higher_is_better: false, ..Measured::rate(quantity, value, unit, details) }
    }

    /// The same as a point on an axis; its name then says where.
    #[must_use]
    pub fn at(self, axis: &str, at: u64, words: &str) -> Measured {
        let quantity = format!("{}, {words}", self.quantity);
        Measured { point: Some(Point::new(self.quantity, axis, at)), quantity, ..self }
    }

    /// The same without a value, and why there is none.
    #[must_use]
    pub fn without_value(self, why: impl Into<String>) -> Measured {
        Measured { value: None, bound: None, ..self }.doubted(why)
    }

    /// The same, with a reason for doubt.
    #[must_use]
    pub fn doubted(mut self, why: impl Into<String>) -> Measured {
        self.doubts.push(why.into());
        self
    }

    /// The same as a bound, and why.
    #[must_use]
    pub fn bounded(self, bound: Bound, why: impl Into<String>) -> Measured {
        Measured { bound: Some(bound), ..self }.doubted(why)
    }

    /// The same, marked with what a search for the highest passing value says of itself.
    #[must_use]
    pub fn searched(self, found: &Found) -> Measured {
        match (found.limited_by_tester, found.lowest_not_passing) {
            (true, next) => {
                let next = next.map_or_else(String::new, |next| format!(" at {next}"));
                self.bounded(Bound::AtLeast, format!("the trials{next} were invalid: the tester set the limit"))
            }
            (false, None) => self.bounded(Bound::AtLeast, "the highest that was tried passed"),
            (false, Some(_)) => self,
        }
    }
}

/// The name of a quantity whose trials may lose so many percent of their frames.
pub(super) fn tolerating(quantity: &str, percent: f64) -> String {
    if percent > 0.0 { format!("{quantity} with up to {percent} % lost") } else { quantity.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::Bound::{AtLeast, AtMost, Unknown};
    use super::*;

    #[test]
    fn a_ratio_to_a_bound_is_a_bound() {
        let of = Bound::of_ratio;
        assert_eq!(
            [of(None, None), of(Some(AtLeast), None), of(None, Some(AtLeast))],
            [None, Some(AtLeast), Some(AtMost)]
        );
        assert_eq!([of(Some(AtLeast), Some(AtLeast)), of(Some(AtMost), Some(AtLeast))], [Some(Unknown), Some(AtMost)]);
    }

    #[test]
    fn a_search_that_the_tester_limited_is_marked_with_the_reason() {
        let found = |limited_by_tester, lowest_not_passing| Found {
            highest_passing: 7,
            lowest_not_passing,
            limited_by_tester,
            trials: 3,
        };
        let marked = |found: &Found| Measured::rate("throughput", 7.0, "frames/s", Value::Null).searched(found);
        assert_eq!((marked(&found(false, Some(8))).bound, marked(&found(false, None)).bound), (None, Some(AtLeast)));
        let invalid = marked(&found(true, Some(8)));
        assert_eq!((invalid.bound, invalid.doubts.len()), (Some(AtLeast), 1));
    }
}

//! What a procedure comes to.

use serde::Serialize;
use serde_json::Value;

/// One value of one measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What it is.
    pub quantity: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// The tester set the limit: the gateway may be better.
    pub limited_by_tester: bool,
    /// Everything else that the procedure has to report.
    pub details: Value,
}

impl Measured {
    /// A value of which more is better.
    pub fn rate(quantity: impl Into<String>, value: f64, unit: &'static str, details: Value) -> Measured {
        Measured { quantity: quantity.into(), value, unit, higher_is_better: true, limited_by_tester: false, details }
    }

    /// A value of which less is better.
    pub fn cost(quantity: impl Into<String>, value: f64, unit: &'static str, details: Value) -> Measured {
        Measured { quantity: quantity.into(), value, unit, higher_is_better: false, limited_by_tester: false, details }
    }
}

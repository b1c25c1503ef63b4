//! The same as lines of a result file, of which `tombolo report --bars` reads the ratios.

use std::path::Path;

use serde_json::json;
use tombolo_tester::{machine::Machine, results::ResultFile, summary::Summary};

/// A result file, if one is asked for.
pub(crate) struct Written(Option<ResultFile>);

impl Written {
    /// Begins a run in this file.
    pub(crate) fn to(file: Option<&str>) -> Written {
        let file = file.map(|file| ResultFile::open(Path::new(file)).unwrap());
        let mut written = Written(file);
        written.line(&json!({
            "record": "run", "procedure": "fast path in XDP", "machine": Machine::describe(&[]), "gateways": [],
            "comparable": "one core sends, forwards and receives; ratios are of interleaved rounds",
        }));
        written
    }

    /// Frames a second of each round.
    pub(crate) fn rate(&mut self, gateway: &str, quantity: &str, rounds: &[f64]) {
        self.summary(gateway, quantity, "frames/s", rounds);
    }

    /// One over another, within rounds.
    pub(crate) fn ratio(&mut self, gateway: &str, quantity: &str, over: &[f64], under: &[f64]) {
        let ratios: Vec<f64> = over.iter().zip(under).map(|(over, under)| over / under).collect();
        self.summary(gateway, quantity, "ratio", &ratios);
    }

    fn summary(&mut self, gateway: &str, quantity: &str, unit: &str, values: &[f64]) {
        self.line(&json!({
            "record": "summary", "gateway": gateway, "quantity": quantity, "unit": unit,
            "higher_is_better": true, "summary": Summary::of(values),
        }));
    }

    fn line(&mut self, line: &serde_json::Value) {
        self.0.iter_mut().for_each(|file| file.write(line).unwrap());
    }
}

//! What earlier runs found on this machine: how many connections a second each gateway makes, on which
//! the time of a full form depends most.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Rates of connections, by gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates(BTreeMap<String, f64>);

impl Rates {
    /// Those of the result files of quick forms in a directory; the lowest of each gateway.
    #[must_use]
    pub fn in_directory(directory: &Path) -> Rates {
        let files = fs::read_dir(directory).into_iter().flatten().flatten().map(|file| file.path());
        let quick = files.filter(|file| file.to_string_lossy().ends_with("-quick.jsonl"));
        let mut rates = Rates::default();
        quick.filter_map(|file| fs::read_to_string(file).ok()).for_each(|text| rates.take(&text));
        rates
    }

    fn take(&mut self, text: &str) {
        for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let is_rate = line["record"] == "summary"
                && line["quantity"].as_str().is_some_and(|name| name.starts_with("connection establishment rate"));
            let found = line["gateway"].as_str().zip(line["summary"]["median"].as_f64());
            let Some((gateway, rate)) = found.filter(|_| is_rate) else { continue };
            let known = self.0.entry(gateway.to_owned()).or_insert(rate);
            *known = known.min(rate);
        }
    }

    /// That of a gateway.
    pub(super) fn of(&self, gateway: &str) -> Option<f64> {
        self.0.get(gateway).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_rate_of_a_gateway_counts_and_other_lines_do_not() {
        let line = |quantity: &str, rate: f64| {
            format!(
                r#"{{"record":"summary","gateway":"iptables","quantity":"{quantity}","summary":{{"median":{rate}}}}}"#
            )
        };
        let mut rates = Rates::default();
        rates.take(
            &[
                line("connection establishment rate, 1563 sessions", 9.0),
                line("connection establishment rate, 25000 sessions", 7.0),
                line("throughput, 1563 sessions", 1.0),
                "half a li".to_owned(),
            ]
            .join("\n"),
        );
        assert_eq!((rates.of("iptables"), rates.of("jool")), (Some(7.0), None));
    }
}

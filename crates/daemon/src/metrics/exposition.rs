//! Prometheus' text format 0.0.4 (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::{Display, Write as _};

/// A page of metrics under construction.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    /// A counter, whose name ends with its unit and `_total`.
    pub(super) fn counter<V: Display>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) {
        debug_assert!(name.ends_with("_total"), "{name}");
        self.family(name, "counter", help, samples);
    }

    /// A value that goes up and down.
    pub(super) fn gauge<V: Display>(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (Labels, V)>) {
        self.family(name, "gauge", help, samples);
    }

    fn family<V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (Labels(labels), value) in samples {
            let braces = if labels.is_empty() { ["", ""] } else { ["{", "}"] };
            let _ = writeln!(self.0, "{name}{}{labels}{} {value}", braces[0], braces[1]);
        }
    }

    /// The page.
    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Labels of a sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Labels(String);

impl Labels {
    /// One more. Values are words: hyphens become underscores where `value` is one of ours.
    pub(super) fn and(mut self, name: &str, value: impl Display) -> Self {
        let comma = if self.0.is_empty() { "" } else { "," };
        let value = value.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(self.0, "{comma}{name}=\"{value}\"");
        self
    }

    /// One more, whose value is a word of ours, in snake case.
    pub(super) fn word(self, name: &str, value: &str) -> Self {
        self.and(name, value.replace('-', "_"))
    }
}

/// A sample without labels.
pub(super) fn one<V>(value: V) -> [(Labels, V); 1] {
    [(Labels::default(), value)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stand_below_their_help_and_what_would_break_out_is_escaped() {
        let mut page = Page::default();
        let labels = Labels::default().and("service", "a\"b\\c\nd").word("reason", "no-binding");
        page.counter("tombolo_dropped_packets_total", "Packets dropped.", [(labels, 3)]);
        page.gauge("tombolo_sessions", "Sessions.", one(0.5));
        page.gauge("tombolo_absent", "Nothing is known.", None::<(Labels, u64)>);
        assert_eq!(
            page.finish(),
            "# HELP tombolo_dropped_packets_total Packets dropped.\n# TYPE tombolo_dropped_packets_total counter\n\
             tombolo_dropped_packets_total{service=\"a\\\"b\\\\c\\nd\",reason=\"no_binding\"} 3\n\
             # HELP tombolo_sessions Sessions.\n# TYPE tombolo_sessions gauge\ntombolo_sessions 0.5\n"
        );
    }
}

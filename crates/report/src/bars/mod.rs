//! The speeds that the design asks for, and whether result files show them.
//!
//! Each is a ratio within one run, so that it means the same on any machine. It is judged with its
//! spread: *met* where the whole range of the repetitions reaches it, *not met* where none of it does.
//! Where several rows of a gateway say it, the worst one counts; of several gateways and runs the best
//! one. What no run of the files measured is not measured, and says by which command it would be.

mod bar;
mod list;

use std::collections::BTreeMap;

use crate::document::{Cell, Document, Mark, Table};
use crate::number;
use crate::results::{Bound, Results, Row, Run, Summary, word};

use bar::{Bar, By};

/// What came of a speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All values reach it.
    Met,
    /// No value does.
    NotMet,
    /// Some do.
    WithinSpread,
    /// All that is known is a bound, and that on the other side of it.
    Undecided,
    /// No run of the files has it.
    NotMeasured,
}

impl Verdict {
    /// In words.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::NotMet => "not met",
            Verdict::WithinSpread => "within the spread",
            Verdict::Undecided => "undecided",
            Verdict::NotMeasured => "not measured",
        }
    }

    fn mark(self) -> Mark {
        match self {
            Verdict::Met => Mark::Better,
            Verdict::NotMet => Mark::Worse,
            Verdict::WithinSpread | Verdict::Undecided => Mark::Doubtful,
            Verdict::NotMeasured => Mark::Missing,
        }
    }
}

/// A speed, judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The speed.
    pub what: String,
    /// What is asked for.
    pub asked: String,
    /// What came of it.
    pub verdict: Verdict,
    /// The figure with its spread, or the command that would measure it.
    pub figure: String,
    /// Who, on what.
    pub measured: String,
}

/// Every speed, judged by the best that the files have of it.
#[must_use]
pub fn judge(results: &Results) -> Vec<Judged> {
    list::BARS.iter().map(|bar| bar.judge(results)).collect()
}

/// As a page.
#[must_use]
pub fn document(judged: &[Judged], title: &str) -> Document {
    let mut page = Document { title: title.to_owned(), ..Document::default() };
    page.text(
        "Speeds that the design asks for, as ratios within one run where nothing else is said. Met: all values reach it; within the spread: some do. Of several rows of a gateway the worst counts, of several gateways and runs the best.",
    );
    page.text(tally(judged));
    let mut table = Table::new("", &["speed", "asked for", "verdict", "figure (min to max)", "measured"]);
    for one in judged {
        table.rows.push(vec![
            one.what.clone().into(),
            one.asked.clone().into(),
            Cell::marked(one.verdict.in_words(), Some(one.verdict.mark())),
            one.figure.clone().into(),
            one.measured.clone().into(),
        ]);
    }
    page.table(table);
    page
}

/// How many of each verdict.
#[must_use]
pub fn tally(judged: &[Judged]) -> String {
    use Verdict::{Met, NotMeasured, NotMet, Undecided, WithinSpread};
    let count = |verdict: Verdict| judged.iter().filter(|one| one.verdict == verdict).count();
    let all = [Met, WithinSpread, NotMet, Undecided, NotMeasured].map(|verdict| (count(verdict), verdict.in_words()));
    let said: Vec<String> =
        all.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    format!("{} speeds: {}.", judged.len(), said.join(", "))
}

/// A value that may decide a bar.
#[derive(Clone)]
struct Found {
    value: Summary,
    bound: Option<Bound>,
    gateway: String,
    who: String,
}

impl Bar {
    fn judge(&self, results: &Results) -> Judged {
        let sign = if self.is_most { "\u{2264}" } else { "\u{2265}" };
        let asked = format!("{sign} {}", number::count(self.asked));
        let runs = results.runs().flat_map(|run| self.by.iter().flat_map(move |by| self.worst_of_each(by.found(run))));
        let Some(found) = runs.reduce(|one, other| if self.is_worse(&one, &other) { other } else { one }) else {
            let figure = format!("`{}`", self.command);
            let verdict = Verdict::NotMeasured;
            return Judged { what: self.what.to_owned(), asked, verdict, figure, measured: String::new() };
        };
        let Summary { median, min, max, count } = found.value;
        let sign = found.bound.map_or("", Bound::sign);
        let [median, min, max] = [median, min, max].map(|value| number::short(value, ""));
        let values = if count == 1 { "one value".to_owned() } else { format!("{count} values") };
        Judged {
            what: self.what.to_owned(),
            asked,
            verdict: self.verdict(&found),
            figure: format!("{sign}{median} ({min} to {max}, {values})"),
            measured: found.who,
        }
    }

    fn verdict(&self, found: &Found) -> Verdict {
        let reaches = |value: f64| if self.is_most { value <= self.asked } else { value >= self.asked };
        let (all, any) = (
            reaches(found.value.min) && reaches(found.value.max),
            reaches(found.value.min) || reaches(found.value.max),
        );
        // A bound decides only the way that it bounds.
        match (found.bound, all, any, self.is_most) {
            (None, true, _, _) => Verdict::Met,
            (None, false, false, _) => Verdict::NotMet,
            (None, false, true, _) => Verdict::WithinSpread,
            (Some(Bound::AtLeast), true, _, false) | (Some(Bound::AtMost), true, _, true) => Verdict::Met,
            (Some(Bound::AtMost), _, false, false) | (Some(Bound::AtLeast), _, false, true) => Verdict::NotMet,
            _ => Verdict::Undecided,
        }
    }

    fn is_worse(&self, one: &Found, other: &Found) -> bool {
        // What is no better than its figure is not better than one that is what it says.
        let is_ceiling = |found: &Found| found.bound == Some(if self.is_most { Bound::AtLeast } else { Bound::AtMost });
        if is_ceiling(one) != is_ceiling(other) {
            return is_ceiling(one);
        }
        if self.is_most { one.value.median > other.value.median } else { one.value.median < other.value.median }
    }

    /// Of each gateway the row that is the worst. A bound on the other side is none: it is as good as it
    /// bounds, at least, so that of such ones the best counts, if all are.
    fn worst_of_each(&self, found: Vec<Found>) -> Vec<Found> {
        let mut worst: BTreeMap<String, Found> = BTreeMap::new();
        let is_open = |one: &Found| self.verdict(one) == Verdict::Undecided;
        for one in found {
            match worst.get(&one.gateway) {
                Some(known) if is_open(&one) && (!is_open(known) || self.is_worse(&one, known)) => {}
                Some(known) if !is_open(&one) && !is_open(known) && !self.is_worse(&one, known) => {}
                _ => {
                    worst.insert(one.gateway.clone(), one);
                }
            }
        }
        worst.into_values().collect()
    }
}

impl By {
    fn found(&self, run: &Run) -> Vec<Found> {
        let machine = &run.asked["machine"];
        let on = format!("{}, Linux {}", word(machine, "cpu"), word(machine, "kernel"));
        let found = |row: &Row, value: Option<Summary>, bound: Option<Bound>| {
            let why = row.bound.map(|_| format!(" ({})", row.doubts.join("; ")));
            let who = format!("{}, {}{}; {on}", row.gateway, row.quantity, why.unwrap_or_default());
            Some(Found { value: value?, bound, gateway: row.gateway.clone(), who })
        };
        let ratio_of = |row: &Row| found(row, row.ratio, row.ratio_bound);
        let is_plain = run.names().first().is_some_and(|first| first.starts_with("plain"));
        match self {
            By::Value { gateway, quantity } => {
                let rows = run.rows.iter().filter(|row| named(row, quantity) && is_of(row, gateway));
                rows.filter_map(|row| found(row, row.summary, row.bound)).collect()
            }
            By::Each { gateway, quantity } => {
                let rows = run.rows.iter().filter(|row| row.quantity.starts_with(quantity) && is_of(row, gateway));
                rows.filter_map(|row| found(row, row.summary, row.bound)).collect()
            }
            By::Streams { gateway, is_engine_alone } => {
                let rows = run.rows.iter().filter(|row| row.quantity.starts_with("TCP goodput") && is_plain);
                let own = rows.filter(|row| row.gateway == *gateway && is_alone(run, gateway) == *is_engine_alone);
                own.filter_map(ratio_of).collect()
            }
            By::OverPlain { procedure, technology, hosts, least_tuples } => {
                let fits = |gateway: &serde_json::Value| {
                    word(gateway, "technology") == *technology
                        && hosts.contains(&gateway["inside_hosts"].as_u64().unwrap_or(1))
                        && gateway["tuples"].as_u64().unwrap_or(0) >= *least_tuples
                        && word(gateway, "gateway").starts_with(OURS)
                };
                let fitting: Vec<String> =
                    run.gateways.iter().filter(|g| fits(g)).map(|g| word(g, "gateway")).collect();
                let same = run.procedure == *procedure || run.procedure == format!("stateful-{procedure}");
                let rows = run
                    .rows
                    .iter()
                    .filter(|row| same && is_plain && row.point.is_none() && fitting.contains(&row.gateway));
                rows.filter_map(ratio_of).collect()
            }
            By::Quotient { over, under } => {
                let find = |(quantity, gateway): &(&str, &str)| {
                    run.rows.iter().find(|row| row.quantity.starts_with(quantity) && is_of(row, gateway))
                };
                let both =
                    find(over).zip(find(under)).filter(|(over, under)| over.bound.is_none() && under.bound.is_none());
                let value = both.and_then(|(over, under)| Some((over, quotient(over.summary?, under.summary?)?)));
                value.and_then(|(row, value)| found(row, Some(value), None)).into_iter().collect()
            }
        }
    }
}

const OURS: &str = "tombolo";

fn quotient(over: Summary, under: Summary) -> Option<Summary> {
    let value = Summary {
        count: over.count.min(under.count),
        median: over.median / under.median,
        min: over.min / under.max,
        max: over.max / under.min,
    };
    value.median.is_finite().then_some(value)
}

/// The gateway, in whichever mode.
fn is_of(row: &Row, gateway: &str) -> bool {
    row.gateway.split(':').next() == Some(gateway)
}

/// Whether a gateway of streams was told to do without the programs in the kernel.
fn is_alone(run: &Run, gateway: &str) -> bool {
    let gateways = run.asked["gateways"].as_array();
    let own = gateways.into_iter().flatten().find(|one| word(one, "gateway") == gateway);
    own.is_some_and(|one| word(one, "settings").contains("\"off\""))
}

/// The quantity, alone or as a point of a series.
fn named(row: &Row, quantity: &str) -> bool {
    row.point.as_ref().map_or(&row.quantity, |point| &point.quantity) == quantity
}

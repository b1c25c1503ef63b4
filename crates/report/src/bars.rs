//! The speeds that the design asks for, and whether result files show them.
//!
//! Each is a ratio within one run, so that it means the same on any machine. What no run of the files
//! measured is not measured, and says by which command it would be; a bound or a doubtful value decides
//! nothing that it does not.

use crate::document::{Cell, Document, Mark, Table};
use crate::number;
use crate::results::{Bound, Results, Row, Run, Summary, word};

/// One speed, and what it is judged by.
struct Bar {
    what: &'static str,
    asked: f64,
    is_most: bool,
    by: By,
    command: &'static str,
}

/// Which rows say it.
enum By {
    /// The ratio to plain forwarding of a procedure's rows for a technology and so many hosts.
    OverPlain {
        procedure: &'static str,
        technologies: &'static [&'static str],
        hosts: std::ops::RangeInclusive<u64>,
        least_tuples: u64,
    },
    /// A value itself.
    Value { quantity: &'static str },
    /// One value over another of the same run.
    Quotient { over: (&'static str, &'static str), under: (&'static str, &'static str) },
    /// The ratio of streams to plain forwarding.
    Streams { gateways: &'static [&'static str] },
    /// Not by result files.
    Elsewhere,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The speed.
    pub what: String,
    /// What is asked for.
    pub asked: String,
    /// Met, or not; absent where nothing measured it.
    pub is_met: Option<bool>,
    /// The figure with its spread, or the command that would measure it.
    pub figure: String,
    /// Who, on what.
    pub measured: String,
}

const OURS: &str = "tombolo";
const STATELESS: &[&str] = &["siit", "lwaftr", "map-e-br", "map-t-br", "map-e-ce", "map-t-ce", "lwb4", "clat"];
const PAIRS: &[&str] = &["464xlat", "ds-lite", "lw4o6", "map-e", "map-t"];

const BARS: &[Bar] = &[
    over_plain(
        "NAT64 and NAT44, 20,000 subscribers",
        1.1,
        &["nat64", "nat44"],
        20_000,
        u64::MAX,
        0,
        "bench throughput --dut plain --against tombolo:xdp --technology nat64 --inside-hosts 20000 --inside-ports 50 --outside-ports 1 --outside-hosts 32",
    ),
    Bar {
        what: "every packet a new session",
        asked: 1.3,
        is_most: false,
        by: By::OverPlain {
            procedure: "connection-rate",
            technologies: &["nat64", "nat44"],
            hosts: 1..=1,
            least_tuples: 0,
        },
        command: "bench connection-rate --dut plain --against tombolo:xdp --technology nat64",
    },
    over_plain(
        "1 M UDP sessions of one subscriber",
        1.4,
        &["nat64", "nat44"],
        1,
        1,
        1_000_000,
        "bench stateful-throughput --dut plain --against tombolo:xdp --technology nat44 --inside-ports 10000 --outside-ports 100",
    ),
    over_plain(
        "stateless translation and softwires",
        1.6,
        STATELESS,
        0,
        u64::MAX,
        0,
        "bench throughput --dut plain --against tombolo:xdp --technology siit",
    ),
    Bar {
        what: "TCP through TC",
        asked: 0.95,
        is_most: false,
        by: By::Streams { gateways: &[OURS] },
        command: "bench tcp",
    },
    Bar {
        what: "TCP, both ends of a technology",
        asked: 0.8,
        is_most: false,
        by: By::Streams { gateways: PAIRS },
        command: "bench tcp --gateways plain-pair,464xlat,ds-lite,lw4o6,map-e,map-t",
    },
    Bar {
        what: "two cores over one",
        asked: 1.9,
        is_most: false,
        by: By::Quotient { over: ("throughput, 2 cores", OURS), under: ("throughput, 1 core", OURS) },
        command: "bench scalability --gateway-cores 1,2",
    },
    Bar {
        what: "tear-down of the whole table, connections/s",
        asked: 50e6,
        is_most: false,
        by: By::Value { quantity: "connection tear-down rate" },
        command: "bench teardown --dut tombolo",
    },
    Bar {
        what: "longest-prefix match, 100,000 routes: IPv6 over IPv4",
        asked: 1.2,
        is_most: true,
        by: By::Quotient { over: (LOOKUP_6, OURS), under: (LOOKUP_4, OURS) },
        command: "bench route-lookup",
    },
    Bar {
        what: "longest-prefix match, 100,000 routes: IPv4 over the kernel's",
        asked: 0.1,
        is_most: true,
        by: By::Quotient { over: (LOOKUP_4, OURS), under: (LOOKUP_4, "kernel") },
        command: "bench route-lookup",
    },
    Bar {
        what: "longest-prefix match, 100,000 routes: IPv6 over the kernel's",
        asked: 0.1,
        is_most: true,
        by: By::Quotient { over: (LOOKUP_6, OURS), under: (LOOKUP_6, "kernel") },
        command: "bench route-lookup",
    },
    Bar {
        what: "100 M UDP sessions over 1 M",
        asked: 0.95,
        is_most: false,
        by: By::Elsewhere,
        command: "cargo bench -p tombolo-daemon --bench state",
    },
    Bar {
        what: "bytes of a binding with its first TCP session",
        asked: 96.0,
        is_most: true,
        by: By::Elsewhere,
        command: "cargo bench -p tombolo-daemon --bench state",
    },
    Bar {
        what: "engine in memory, stateless translation, packets/s",
        asked: 10e6,
        is_most: false,
        by: By::Elsewhere,
        command: "cargo bench -p tombolo-engine",
    },
];
const LOOKUP_4: &str = "route lookup, IPv4, 100000 routes";
const LOOKUP_6: &str = "route lookup, IPv6, 100000 routes";

const fn over_plain(
    what: &'static str,
    asked: f64,
    technologies: &'static [&'static str],
    fewest: u64,
    most: u64,
    least_tuples: u64,
    command: &'static str,
) -> Bar {
    let by = By::OverPlain { procedure: "throughput", technologies, hosts: fewest..=most, least_tuples };
    Bar { what, asked, is_most: false, by, command }
}

/// Every speed, judged by the best that the files have of it.
#[must_use]
pub fn judge(results: &Results) -> Vec<Judged> {
    BARS.iter().map(|bar| bar.judge(results)).collect()
}

/// As a page.
#[must_use]
pub fn document(judged: &[Judged], title: &str) -> Document {
    let mut page = Document { title: title.to_owned(), ..Document::default() };
    page.text("Speeds that the design asks for, as ratios within one run where nothing else is said; the best gateway of the files counts.");
    let mut table = Table::new("", &["speed", "asked for", "verdict", "figure (min to max)", "measured"]);
    for one in judged {
        let (verdict, mark) = match one.is_met {
            Some(true) => ("met", Some(Mark::Better)),
            Some(false) => ("not met", Some(Mark::Worse)),
            None => ("not measured", Some(Mark::Missing)),
        };
        let verdict = Cell::marked(verdict, mark);
        table.rows.push(vec![
            one.what.clone().into(),
            one.asked.clone().into(),
            verdict,
            one.figure.clone().into(),
            one.measured.clone().into(),
        ]);
    }
    page.table(table);
    page
}

/// A value that may decide a bar.
struct Found {
    value: Summary,
    bound: Option<Bound>,
    who: String,
}

impl Bar {
    fn judge(&self, results: &Results) -> Judged {
        let sign = if self.is_most { "\u{2264}" } else { "\u{2265}" };
        let asked = format!("{sign} {}", number::count(self.asked));
        let better = |one: &Found, other: &Found| {
            let order = one.value.median.total_cmp(&other.value.median);
            if self.is_most { order.reverse() } else { order }
        };
        let best = results.runs().flat_map(|run| self.found(run)).max_by(better);
        let Some(found) = best else {
            let figure =
                format!("`{}{}`", if self.command.starts_with("bench") { "tombolo " } else { "" }, self.command);
            return Judged { what: self.what.to_owned(), asked, is_met: None, figure, measured: String::new() };
        };
        let Summary { median, min, max, .. } = found.value;
        let reached = if self.is_most { median <= self.asked } else { median >= self.asked };
        // A bound decides only the way that it bounds.
        let is_met = match (found.bound, reached, self.is_most) {
            (None, reached, _) => Some(reached),
            (Some(Bound::AtLeast), true, false) | (Some(Bound::AtMost), true, true) => Some(true),
            (Some(Bound::AtMost), false, false) | (Some(Bound::AtLeast), false, true) => Some(false),
            _ => None,
        };
        let sign = found.bound.map_or("", Bound::sign);
        let [median, min, max] = [median, min, max].map(|value| number::short(value, ""));
        Judged {
            what: self.what.to_owned(),
            asked,
            is_met,
            figure: format!("{sign}{median} ({min} to {max})"),
            measured: found.who,
        }
    }

    fn found(&self, run: &Run) -> Vec<Found> {
        let machine = &run.asked["machine"];
        let on = format!("{}, Linux {}", word(machine, "cpu"), word(machine, "kernel"));
        let ratio_of = |row: &Row| {
            Some(Found {
                value: row.ratio?,
                bound: row.ratio_bound,
                who: format!("{}, {}; {on}", row.gateway, row.quantity),
            })
        };
        let is_plain = run.names().first().is_some_and(|first| first.starts_with("plain"));
        match &self.by {
            By::Elsewhere => Vec::new(),
            By::Value { quantity } => {
                let rows = run.rows.iter().filter(|row| named(row, quantity) && row.gateway.starts_with(OURS));
                rows.filter_map(|row| {
                    Some(Found { value: row.summary?, bound: row.bound, who: format!("{}; {on}", row.gateway) })
                })
                .collect()
            }
            By::Streams { gateways } => {
                let rows = run.rows.iter().filter(|row| row.quantity.starts_with("TCP goodput") && is_plain);
                rows.filter(|row| gateways.contains(&row.gateway.as_str())).filter_map(ratio_of).collect()
            }
            By::OverPlain { procedure, technologies, hosts, least_tuples } => {
                let fits = |gateway: &serde_json::Value| {
                    technologies.contains(&word(gateway, "technology").as_str())
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
                    run.rows.iter().find(|row| {
                        row.quantity.starts_with(quantity) && row.gateway.split(':').next() == Some(gateway)
                    })
                };
                let quotient = |over: &Row, under: &Row| {
                    let (over, under) = (over.summary?, under.summary?);
                    let of = |over: f64, under: f64| over / under;
                    let value = Summary {
                        count: over.count.min(under.count),
                        median: of(over.median, under.median),
                        min: of(over.min, under.max),
                        max: of(over.max, under.min),
                    };
                    value.median.is_finite().then_some(value)
                };
                let both =
                    find(over).zip(find(under)).filter(|(over, under)| over.bound.is_none() && under.bound.is_none());
                let value = both.and_then(|(over, under)| quotient(over, under));
                value.map(|value| Found { value, bound: None, who: on }).into_iter().collect()
            }
        }
    }
}

/// The quantity, alone or as a point of a series.
fn named(row: &Row, quantity: &str) -> bool {
    row.point.as_ref().map_or(&row.quantity, |point| &point.quantity) == quantity
}

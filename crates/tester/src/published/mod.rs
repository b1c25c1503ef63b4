//! Figures that others have published, to stand beside ours: one data file each, as they are printed
//! there, with where they are from and what they were measured on.
//!
//! What a file says twice (a rate and the times that it follows from, a percentage and its two
//! parts) is compared by the tests, so that a slip of the hand does not become a reference.

use serde::{Deserialize, Serialize};

/// The figures of one document's table or figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Document, and table or figure.
    pub source: String,
    /// What it was measured on.
    pub hardware: String,
    /// What was measured, and with what.
    pub software: String,
    /// How.
    pub method: String,
    /// What a reader has to know of these figures.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The tables.
    #[serde(default, rename = "table")]
    pub tables: Vec<Table>,
    /// Features, where the document has a list of them.
    #[serde(default, rename = "feature")]
    pub features: Vec<Feature>,
}

/// Figures over one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its title.
    pub title: String,
    /// What varies: cores, sessions, flows, routes, threads, configuration.
    pub axis: String,
    /// The points on the axis.
    pub at: Vec<u64>,
    /// What else was different from point to point.
    #[serde(default, rename = "parameter")]
    pub parameters: Vec<Parameter>,
    /// One for each contender and quantity.
    pub series: Vec<Series>,
}

/// Something that varied with the axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// One for each point.
    pub values: Vec<f64>,
}

/// One contender's values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Who; by the name that result files have for it, where they have one.
    pub contender: String,
    /// What; by the name that result files have for it, where they have one.
    pub quantity: String,
    /// Of what, after the values were multiplied with `scale`.
    pub unit: String,
    /// What one of the printed values stands for.
    #[serde(default = "one")]
    pub scale: f64,
    /// One for each point, as printed.
    pub median: Vec<f64>,
    /// Smallest values, where printed.
    #[serde(default)]
    pub min: Vec<f64>,
    /// Largest values, where printed.
    #[serde(default)]
    pub max: Vec<f64>,
}

/// A feature, and which programs have it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// Its name in the document.
    pub name: String,
    /// What it is.
    pub description: String,
    /// By program.
    pub status: std::collections::BTreeMap<String, String>,
}

/// The data files, by the names that presets call them.
const FILES: &[(&str, &str)] = &[
    ("draft-figure-2", include_str!("draft_figure_2.toml")),
    ("draft-figure-4", include_str!("draft_figure_4.toml")),
    ("draft-figure-5", include_str!("draft_figure_5.toml")),
    ("draft-figure-7", include_str!("draft_figure_7.toml")),
    ("draft-figure-8", include_str!("draft_figure_8.toml")),
    ("draft-figure-9", include_str!("draft_figure_9.toml")),
    ("nsd", include_str!("nsd.toml")),
    ("route-lookup", include_str!("route_lookup.toml")),
    ("thesis-tcp", include_str!("thesis_tcp.toml")),
    ("thesis-udp", include_str!("thesis_udp.toml")),
    ("thesis-features", include_str!("thesis_features.toml")),
    ("jool-issue", include_str!("jool_issue.toml")),
];

impl Published {
    /// The figures of this name; `None` where there are none. The tests read every file.
    #[must_use]
    pub fn named(name: &str) -> Option<Published> {
        let (_, text) = FILES.iter().find(|(known, _)| *known == name)?;
        toml::from_str(text).ok()
    }

    /// What was published for this contender and quantity at this point of an axis.
    #[must_use]
    pub fn value(&self, contender: &str, quantity: &str, axis: &str, at: u64) -> Option<f64> {
        self.tables.iter().filter(|table| table.axis == axis).find_map(|table| {
            let place = table.at.iter().position(|point| *point == at)?;
            let series = table.series.iter().find(|s| s.contender == contender && s.quantity == quantity)?;
            series.median.get(place).map(|value| value * series.scale)
        })
    }
}

fn one() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Published {
        let (_, text) = FILES.iter().find(|(known, _)| *known == name).unwrap();
        toml::from_str(text).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    fn medians<'a>(table: &'a Table, contender: &str, quantity: &str) -> &'a [f64] {
        let found = table.series.iter().find(|s| s.contender == contender && s.quantity == quantity);
        &found.unwrap_or_else(|| panic!("{}: no {quantity} of {contender}", table.title)).median
    }

    fn assert_close(what: &str, one: &[f64], other: &[f64], tolerance: f64) {
        assert_eq!(one.len(), other.len(), "{what}");
        for (one, other) in one.iter().zip(other) {
            assert!((one - other).abs() <= tolerance * other.abs(), "{what}: {one} and {other}");
        }
    }

    #[test]
    fn every_file_has_a_source_hardware_and_as_many_values_as_points() {
        for (name, _) in FILES {
            let published = named(name);
            assert!(!published.source.is_empty() && !published.hardware.is_empty(), "{name}");
            assert!(!published.tables.is_empty() || !published.features.is_empty(), "{name}");
            for table in &published.tables {
                assert!(table.at.is_sorted() && table.parameters.iter().all(|p| p.values.len() == table.at.len()));
                for series in &table.series {
                    let place = format!("{name}, {}, {}, {}", table.title, series.contender, series.quantity);
                    assert_eq!(series.median.len(), table.at.len(), "{place}");
                    for (bounds, below) in [(&series.min, true), (&series.max, false)] {
                        assert!(bounds.is_empty() || bounds.len() == table.at.len(), "{place}");
                        let holds =
                            |(bound, median): (&f64, &f64)| if below { bound <= median } else { bound >= median };
                        assert!(bounds.iter().zip(&series.median).all(holds), "{place}");
                    }
                }
            }
        }
    }

    #[test]
    fn scale_ups_follow_from_the_rates_beside_them() {
        for (name, contenders) in [("draft-figure-2", &["iptables", "plain"][..]), ("draft-figure-7", &["jool"])] {
            let table = &named(name).tables[0];
            for contender in contenders {
                for quantity in ["connection establishment rate", "throughput"] {
                    if (*contender, quantity) == ("plain", "connection establishment rate") {
                        continue;
                    }
                    let rates = medians(table, contender, quantity);
                    let printed = medians(table, contender, &format!("relative scale-up of {quantity}"));
                    let computed: Vec<f64> =
                        rates.iter().zip(&table.at).map(|(rate, cores)| rate / (*cores as f64 * rates[0])).collect();
                    assert_close(&format!("{name} {contender} {quantity}"), &computed, printed, 0.004);
                }
            }
        }
        let table = &named("draft-figure-2").tables[0];
        let (nat, plain) = (medians(table, "iptables", "throughput"), medians(table, "plain", "throughput"));
        let percent: Vec<f64> = nat.iter().zip(plain).map(|(nat, plain)| 100.0 * nat / plain).collect();
        assert_close(
            "iptables over plain",
            &percent,
            medians(table, "iptables", "throughput over plain forwarding"),
            0.003,
        );
        let servers = &named("nsd").tables[0];
        let rates = medians(servers, "nsd", "resolution rate");
        assert!((rates[1] / rates[0] - 8.2).abs() < 0.01 && (rates[1] / rates[0] / 16.0 - 0.52).abs() < 0.01);
    }

    #[test]
    fn tear_down_rates_follow_from_the_times() {
        for (name, contender, scale) in [("draft-figure-5", "iptables", 1.0), ("draft-figure-9", "jool", 1e6)] {
            let table = &named(name).tables[0];
            let of = |quantity| medians(table, contender, quantity);
            let (full, empty) = (of("deletion of the full table"), of("deletion of an empty table"));
            let computed: Vec<f64> =
                (0..table.at.len()).map(|i| table.at[i] as f64 / (full[i] - empty[i]) / scale).collect();
            assert_close(name, &computed, of("connection tear-down rate"), 0.005);
        }
    }

    #[test]
    fn connections_are_the_products_of_the_ports() {
        for name in ["draft-figure-4", "draft-figure-8"] {
            let table = &named(name).tables[0];
            let [source, destination] = [0, 1].map(|i| &table.parameters[i].values);
            let product: Vec<f64> = source.iter().zip(destination).map(|(s, d)| s * d).collect();
            let at: Vec<f64> = table.at.iter().map(|at| *at as f64).collect();
            assert_close(name, &product, &at, 0.0);
            if let [_, _, _, hash, load] = &table.parameters[..] {
                let computed: Vec<f64> = at.iter().zip(&hash.values).map(|(at, bits)| at / bits.exp2()).collect();
                assert_close("connections for each hash", &computed, &load.values, 0.001);
            }
        }
    }

    #[test]
    fn what_came_through_is_what_was_sent_less_what_was_lost() {
        for table in named("thesis-udp").tables {
            for contender in ["tayga", "jool", "p4-netfpga"] {
                let direction = if table.title.contains("IPv6 to") { "6to4" } else { "4to6" };
                let of = |quantity: &str| medians(&table, contender, &format!("{quantity}, {direction}"));
                let (sent, loss, goodput) = (of("UDP sent"), of("UDP loss"), of("UDP goodput"));
                for i in 0..sent.len() {
                    // Losses are printed in whole percents.
                    let computed = sent[i] * (1.0 - loss[i] / 100.0);
                    assert!(
                        (computed - goodput[i]).abs() <= sent[i] * 0.006,
                        "{contender} {}: {computed}",
                        table.title
                    );
                }
            }
        }
    }

    #[test]
    fn elapsed_time_is_that_of_each_thread_over_their_number() {
        let published = named("route-lookup");
        for routes in ["1 route", "100000 routes"] {
            let each = medians(&published.tables[1], "linux-4.4", &format!("route lookup, IPv6, {routes}"));
            let total =
                medians(&published.tables[2], "linux-4.4", &format!("route lookup, all threads, IPv6, {routes}"));
            let computed: Vec<f64> = each.iter().zip(&published.tables[1].at).map(|(ns, n)| ns / *n as f64).collect();
            assert_close(routes, &computed, total, 0.012);
        }
        assert_eq!(published.value("linux-4.4", "route lookup, IPv4", "routes", 100_000), Some(190.0));
        assert_eq!(published.value("linux-4.4", "route lookup, IPv4", "routes", 7), None);
    }
}

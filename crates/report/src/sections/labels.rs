//! Who has which colour and shape, the same in every drawing of a page.

use std::collections::BTreeMap;

use crate::plot::Dress;
use crate::results::{Part, Results, Run};

/// The slots of all that is drawn.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels {
    slots: BTreeMap<String, usize>,
}

/// Plain forwarding is grey; those who stand beside it most often are the same on every page.
const KNOWN: &[(&str, usize)] = &[
    ("plain", YARDSTICK),
    ("plain4", YARDSTICK),
    ("plain-pair", YARDSTICK),
    ("iptables", 1),
    ("nftables", 2),
    ("tayga", 3),
    ("jool", 4),
    ("linux-4.4", 5),
    ("kernel", 7),
];
const YARDSTICK: usize = 6;
/// Four shapes of eight colours.
const SLOTS: usize = 32;

impl Labels {
    /// Each name has one on the whole page; who is never drawn beside one another may look alike.
    #[must_use]
    pub(super) fn of(results: &Results) -> Labels {
        let companies: Vec<Vec<String>> = results.parts.iter().map(company).collect();
        let mut labels = Labels::default();
        for (name, slot) in KNOWN {
            labels.slots.insert((*name).to_owned(), *slot);
        }
        for name in companies.iter().flatten() {
            if !labels.slots.contains_key(name) {
                let beside = companies.iter().filter(|company| company.contains(name)).flatten();
                let taken: Vec<Dress> =
                    beside.filter_map(|other| labels.slots.get(other)).map(|slot| dress(*slot)).collect();
                labels.slots.insert(name.clone(), free_slot(&taken, name.starts_with("tombolo")));
            }
        }
        labels
    }

    /// That of a gateway.
    #[must_use]
    pub(super) fn dress(&self, gateway: &str) -> Dress {
        dress(self.slots.get(gateway).copied().unwrap_or(SLOTS - 1))
    }

    /// That of somebody's published figures.
    #[must_use]
    pub(super) fn published(&self, contender: &str) -> Dress {
        Dress { is_published: true, ..self.dress(contender) }
    }
}

/// Who is drawn together: the measured ones, then those that are only published.
fn company(part: &Part) -> Vec<String> {
    let measured = part.runs.iter().flat_map(Run::names);
    let published = part.preset.iter().filter_map(|preset| preset.published.as_ref());
    let published = published.flat_map(|p| &p.tables).flat_map(|table| &table.series).map(|s| s.contender.clone());
    measured.chain(published).collect()
}

/// A slot whose colour nobody beside it has, or at least not with its shape. The first one is this
/// project's, plain forwarding's grey nobody's.
fn free_slot(taken: &[Dress], is_ours: bool) -> usize {
    let clash = |slot: usize| {
        let own = dress(slot);
        let same_colour = taken.iter().filter(|other| other.colour() == own.colour());
        let same_shape = same_colour.clone().filter(|other| other.shape() == own.shape());
        (same_shape.count(), same_colour.count(), slot)
    };
    let slots = (0..SLOTS).filter(|slot| dress(*slot).colour() != YARDSTICK && (is_ours || *slot != 0));
    slots.min_by_key(|slot| clash(*slot)).unwrap_or(0)
}

fn dress(slot: usize) -> Dress {
    Dress { slot, is_published: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Preset, Published, PublishedSeries, PublishedTable, Row};

    fn part(measured: &[&str], published: &[&str]) -> Part {
        let row = |name: &&str| Row { gateway: (*name).to_owned(), ..serde_json::from_str(ROW).unwrap() };
        let series = |name: &&str| PublishedSeries { contender: (*name).to_owned(), ..PublishedSeries::default() };
        let table = PublishedTable { series: published.iter().map(series).collect(), ..PublishedTable::default() };
        let figures = Published { tables: vec![table], ..Published::default() };
        Part {
            preset: Some(Preset { published: Some(figures), ..Preset::default() }),
            file: String::new(),
            runs: vec![Run { rows: measured.iter().map(row).collect(), ..Run::default() }],
        }
    }

    const ROW: &str = r#"{ "gateway": "", "quantity": "q", "unit": "frames/s", "summary": null }"#;

    #[test]
    fn nobody_looks_like_somebody_beside_it() {
        let many: Vec<String> = (0..20).map(|n| format!("table {n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let parts = vec![part(&many, &["linux-4.4"]), part(&["plain", "tombolo", "tayga"], &["tayga", "p4-netfpga"])];
        let labels = Labels::of(&Results { parts: parts.clone() });
        for part in &parts {
            let mut seen = std::collections::BTreeSet::new();
            let mut names = company(part);
            names.sort();
            names.dedup();
            for name in &names {
                let dress = labels.dress(name);
                assert!(seen.insert((dress.colour(), dress.shape())), "{name}: {seen:?}");
            }
        }
        assert_eq!((labels.dress("tombolo").slot, labels.dress("plain").slot), (0, YARDSTICK));
        assert_ne!(labels.dress("p4-netfpga").colour(), labels.dress("tayga").colour());
    }
}

//! Who has which colour and shape, the same in every drawing of a page.

use std::collections::BTreeMap;

use crate::plot::Dress;
use crate::results::Results;

/// The slots of all that is drawn.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels {
    slots: BTreeMap<String, usize>,
}

/// Colours and shapes that there are.
const SLOTS: usize = 8;
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

impl Labels {
    /// This project's first one, then the others in the order in which they were measured, then those
    /// that are only published.
    #[must_use]
    pub(super) fn of(results: &Results) -> Labels {
        let mut labels = Labels::default();
        for (name, slot) in KNOWN {
            labels.slots.insert((*name).to_owned(), *slot);
        }
        let measured = results.runs().flat_map(|run| run.names());
        let published = results.parts.iter().filter_map(|part| part.preset.as_ref()?.published.as_ref());
        let published = published.flat_map(|p| &p.tables).flat_map(|table| &table.series).map(|s| s.contender.clone());
        let names: Vec<String> = measured.chain(published).collect();
        let own =
            names.iter().find(|name| name.starts_with("tombolo")).cloned().unwrap_or_else(|| "tombolo".to_owned());
        labels.slots.insert(own, 0);
        // Colours come again, with another shape.
        let mut free = (SLOTS..).filter(|slot| ![0, YARDSTICK].contains(&(slot % SLOTS)));
        for name in names {
            if let (false, Some(slot)) = (labels.slots.contains_key(&name), free.next()) {
                labels.slots.insert(name, slot);
            }
        }
        labels
    }

    /// That of a gateway.
    #[must_use]
    pub(super) fn dress(&self, gateway: &str) -> Dress {
        Dress { slot: self.slots.get(gateway).copied().unwrap_or(SLOTS - 1), is_published: false }
    }

    /// That of somebody's published figures.
    #[must_use]
    pub(super) fn published(&self, contender: &str) -> Dress {
        Dress { is_published: true, ..self.dress(contender) }
    }
}

//! Two runs of the same, one before and one after: what became slower, what faster, and what is too
//! close to tell.
//!
//! Each value is a median with a range. Where the ranges of the two meet, or either is a bound or in
//! doubt, nothing is claimed. Where both runs have the gateway that others are compared with, ratios to
//! it are compared, not the values: they survive that the machine was slower on one of the two days.

use crate::document::{Cell, Document, Mark, Table};
use crate::number;
use crate::results::{Results, Row, Summary};

/// One quantity of one gateway, before and after.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Procedure.
    pub procedure: String,
    /// Who.
    pub gateway: String,
    /// What.
    pub quantity: String,
    /// Of what.
    pub unit: String,
    /// Whether ratios to the first gateway are compared.
    pub is_of_ratios: bool,
    /// Before.
    pub old: Summary,
    /// After.
    pub new: Summary,
    /// What follows.
    pub finding: Finding,
}

/// What follows from two values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finding {
    /// The ranges meet.
    WithinSpread,
    /// Better, by this factor.
    Better(f64),
    /// Worse, by this factor.
    Worse(f64),
    /// One of the two is a bound or in doubt.
    InDoubt,
}

/// Two values with fewer repetitions than this have no spread to speak of.
const REPETITIONS: usize = 3;

impl Comparison {
    /// All that both have, in the order of the new.
    #[must_use]
    pub fn all(old: &Results, new: &Results) -> Vec<Comparison> {
        let mut all = Vec::new();
        for run in new.runs() {
            for row in &run.rows {
                let same = |before: &&Row| before.gateway == row.gateway && before.quantity == row.quantity;
                let before = old
                    .runs()
                    .filter(|other| other.procedure == run.procedure && other.frame_bytes() == run.frame_bytes())
                    .flat_map(|other| &other.rows)
                    .find(same);
                all.extend(before.and_then(|before| Comparison::of(&run.procedure, before, row)));
            }
        }
        all
    }

    fn of(procedure: &str, before: &Row, after: &Row) -> Option<Comparison> {
        let ratios = before.ratio.zip(after.ratio);
        let (old, new) = ratios.or(before.summary.zip(after.summary))?;
        let is_in_doubt = [before, after].iter().any(|row| {
            row.bound.is_some()
                || row.ratio_bound.is_some() && ratios.is_some()
                || !row.doubts.is_empty()
                || row.missing > 0
        });
        let finding = if is_in_doubt { Finding::InDoubt } else { find(&old, &new, after.higher_is_better) };
        Some(Comparison {
            procedure: procedure.to_owned(),
            gateway: after.gateway.clone(),
            quantity: after.quantity.clone(),
            unit: after.unit.clone(),
            is_of_ratios: ratios.is_some(),
            old,
            new,
            finding,
        })
    }

    /// In words: `within spread`, `slower by 1.08`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let (less, more) = match self.unit.as_str() {
            unit if unit.ends_with("/s") => ("slower", "faster"),
            _ => ("worse", "better"),
        };
        match self.finding {
            Finding::WithinSpread => "within spread".to_owned(),
            Finding::Worse(factor) => format!("{less} by {}", percent(factor)),
            Finding::Better(factor) => format!("{more} by {}", percent(factor)),
            Finding::InDoubt => "in doubt: one of the two is a bound or has a note".to_owned(),
        }
    }
}

fn percent(factor: f64) -> String {
    if factor < 2.0 { format!("{:.1} %", (factor - 1.0) * 100.0) } else { format!("{factor:.2} times") }
}

fn find(old: &Summary, new: &Summary, higher_is_better: bool) -> Finding {
    let apart = new.max < old.min || new.min > old.max;
    let enough = old.count >= REPETITIONS && new.count >= REPETITIONS;
    let factor = new.median / old.median;
    if !apart || !enough || !factor.is_finite() || factor <= 0.0 {
        return Finding::WithinSpread;
    }
    let factor = if higher_is_better { factor } else { 1.0 / factor };
    if factor > 1.0 { Finding::Better(factor) } else { Finding::Worse(1.0 / factor) }
}

/// The comparison as a page.
#[must_use]
pub fn document(comparisons: &[Comparison], title: &str) -> Document {
    let mut page = Document { title: title.to_owned(), ..Document::default() };
    page.text(
        "Medians with their ranges. Where both runs have a yardstick, the ratio to it is compared. Ranges that meet, and fewer \
         than three repetitions, are within spread: nothing is claimed.",
    );
    let columns = [
        "procedure",
        "gateway",
        "quantity",
        "of",
        "#before (min to max)",
        "#after (min to max)",
        "#after / before",
        "finding",
    ];
    let mut table = Table::new("", &columns);
    for one in comparisons {
        let mark = match one.finding {
            Finding::Worse(_) => Some(Mark::Worse),
            Finding::Better(_) => Some(Mark::Better),
            Finding::InDoubt => Some(Mark::Doubtful),
            Finding::WithinSpread => None,
        };
        let of = if one.is_of_ratios { "ratio".to_owned() } else { one.unit.clone() };
        table.rows.push(vec![
            one.procedure.clone().into(),
            one.gateway.clone().into(),
            one.quantity.clone().into(),
            of.into(),
            range(&one.old).into(),
            range(&one.new).into(),
            number::plain(one.new.median / one.old.median).into(),
            Cell::marked(one.in_words(), mark),
        ]);
    }
    if table.rows.is_empty() {
        page.text("The two have no gateway and quantity in common.");
    }
    page.table(table);
    page
}

fn range(summary: &Summary) -> String {
    let [median, min, max] = [summary.median, summary.min, summary.max].map(number::plain);
    format!("{median} ({min} to {max})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(min: f64, median: f64, max: f64) -> Summary {
        Summary { count: 3, median, min, max }
    }

    #[test]
    fn ranges_that_meet_say_nothing() {
        let old = summary(95.0, 100.0, 105.0);
        assert_eq!(find(&old, &summary(90.0, 94.0, 96.0), true), Finding::WithinSpread);
        assert_eq!(find(&old, &summary(78.0, 80.0, 82.0), true), Finding::Worse(1.25));
        assert_eq!(find(&old, &summary(78.0, 80.0, 82.0), false), Finding::Better(1.25));
        let few = Summary { count: 2, ..summary(78.0, 80.0, 82.0) };
        assert_eq!(find(&old, &few, true), Finding::WithinSpread);
    }
}

//! Ours beside what was published: point by point, each with its ratio to plain forwarding on the same
//! machine.

use super::cells::median;
use super::labels::Labels;
use super::series::in_words;
use crate::document::{Cell, Document, Mark, Table};
use crate::number;
use crate::plot::Dot;
use crate::results::{Bound, Published, PublishedSeries, PublishedTable, Row, Run};

/// The yardsticks, by the names that result files have for them.
const PLAIN: [&str; 3] = ["plain", "plain4", "plain-pair"];

/// A table for each published one that something of ours stands beside.
pub(super) fn tables(page: &mut Document, published: &Published, runs: &[Run]) {
    let tables: Vec<Table> = published
        .tables
        .iter()
        .flat_map(|table| quantities(table).into_iter().map(move |q| (table, q)))
        .map(|(table, quantity)| beside(table, &quantity, runs))
        .collect();
    if tables.is_empty() {
        return;
    }
    page.heading(3, "Beside the published figures");
    if runs.iter().all(is_beside_plain) {
        page.text("In brackets: over plain forwarding of the same run, there and here.");
    }
    tables.into_iter().for_each(|table| page.table(table));
}

fn is_beside_plain(run: &Run) -> bool {
    run.names().first().is_some_and(|first| PLAIN.contains(&first.as_str()))
}

fn quantities(table: &PublishedTable) -> Vec<String> {
    let mut quantities: Vec<String> = Vec::new();
    for series in &table.series {
        if !quantities.contains(&series.quantity) {
            quantities.push(series.quantity.clone());
        }
    }
    quantities
}

fn beside(table: &PublishedTable, quantity: &str, runs: &[Run]) -> Table {
    if table.at.len() == 1 {
        return one_below_the_other(table, quantity, runs);
    }
    let theirs: Vec<&PublishedSeries> = table.series.iter().filter(|series| series.quantity == quantity).collect();
    let unit = theirs.first().map(|series| series.unit.clone()).unwrap_or_default();
    let ours = Ours::of(runs, quantity, &table.axis);
    let mut columns = vec![format!("{}, published", in_words(&table.axis))];
    columns.extend(theirs.iter().map(|series| format!("#{}, published", series.contender)));
    columns.extend((!ours.names.is_empty()).then(|| format!("{}, here", in_words(&table.axis))));
    columns.extend(ours.names.iter().map(|name| format!("#{name}, here")));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let of = if unit == "ratio" { String::new() } else { format!(", {unit}") };
    let mut shown = Table::new(format!("{}: {quantity}{of}", table.title), &columns);
    for (there, here) in ours.pairs(&table.at) {
        let mut cells: Vec<Cell> = vec![there.map_or_else(Cell::missing, |i| number::count(table.at[i] as f64).into())];
        cells.extend(theirs.iter().map(|series| there.map_or_else(Cell::missing, |i| theirs_at(table, series, i))));
        if !ours.names.is_empty() {
            cells.push(here.map_or_else(Cell::missing, |at| number::count(at as f64).into()));
        }
        cells.extend(ours.names.iter().map(|name| {
            here.and_then(|at| ours.at(name, at)).map_or_else(Cell::missing, |row| ours_at(row, ours.is_beside_plain))
        }));
        shown.rows.push(cells);
    }
    shown
}

/// Configurations instead of points: a row each.
fn one_below_the_other(table: &PublishedTable, quantity: &str, runs: &[Run]) -> Table {
    let unit = table.series.first().map(|series| series.unit.clone()).unwrap_or_default();
    let ours = Ours::of(runs, quantity, &table.axis);
    let mut shown = Table::new(format!("{}: {quantity}, {unit}", table.title), &["", "#published", "#here"]);
    for series in table.series.iter().filter(|series| series.quantity == quantity) {
        let here = ours.at(&series.contender, 1).map_or_else(Cell::missing, |row| ours_at(row, ours.is_beside_plain));
        shown.rows.push(vec![series.contender.clone().into(), theirs_at(table, series, 0), here]);
    }
    let published = |name: &str| table.series.iter().any(|series| series.contender == name);
    for name in ours.names.iter().filter(|name| !published(name)) {
        let here = ours.at(name, 1).map_or_else(Cell::missing, |row| ours_at(row, ours.is_beside_plain));
        shown.rows.push(vec![name.clone().into(), Cell::missing(), here]);
    }
    shown
}

fn theirs_at(table: &PublishedTable, series: &PublishedSeries, index: usize) -> Cell {
    let Some(value) = series.median.get(index) else { return Cell::missing() };
    let plain = table.series.iter().find(|other| {
        PLAIN.contains(&other.contender.as_str())
            && other.quantity == series.quantity
            && other.contender != series.contender
    });
    let plain = plain.and_then(|plain| Some(plain.median.get(index)? * plain.scale)).filter(|plain| *plain > 0.0);
    let ratio = plain.map_or_else(String::new, |plain| format!(" ({})", number::plain(value * series.scale / plain)));
    let value = number::short(value * series.scale, &series.unit);
    Cell::marked(format!("{value}{ratio}"), Some(Mark::Published))
}

fn ours_at(row: &Row, is_beside_plain: bool) -> Cell {
    let cell = median(row, |value| number::short(value, &row.unit));
    let ratio = row.ratio.filter(|_| is_beside_plain).map_or_else(String::new, |ratio| {
        format!(" ({}{})", row.ratio_bound.map_or("", Bound::sign), number::plain(ratio.median))
    });
    Cell::marked(format!("{}{ratio}", cell.text), cell.mark)
}

/// What was measured here of one quantity.
struct Ours<'a> {
    names: Vec<String>,
    rows: Vec<(u64, &'a Row)>,
    /// Gateways were compared with plain forwarding.
    is_beside_plain: bool,
}

impl<'a> Ours<'a> {
    fn of(runs: &'a [Run], quantity: &str, axis: &str) -> Ours<'a> {
        let at = |row: &'a Row| match &row.point {
            Some(point) => (point.quantity == quantity && point.axis == axis).then_some((point.at, row)),
            None => (row.quantity == quantity).then_some((1, row)),
        };
        let rows: Vec<(u64, &Row)> = runs.iter().flat_map(|run| &run.rows).filter_map(at).collect();
        let mut names: Vec<String> = Vec::new();
        for (_, row) in &rows {
            if !names.contains(&row.gateway) {
                names.push(row.gateway.clone());
            }
        }
        Ours { names, rows, is_beside_plain: runs.iter().all(is_beside_plain) }
    }

    fn at(&self, gateway: &str, at: u64) -> Option<&'a Row> {
        self.rows.iter().find(|(point, row)| *point == at && row.gateway == gateway).map(|(_, row)| *row)
    }

    /// Published points beside ours: the same ones, or, where ours are scaled down, the n-th beside the
    /// n-th; then those that only one side has.
    fn pairs(&self, published: &[u64]) -> Vec<(Option<usize>, Option<u64>)> {
        let mut own: Vec<u64> = self.rows.iter().map(|(at, _)| *at).collect();
        own.sort_unstable();
        own.dedup();
        let smallest = published.first().copied().unwrap_or(0);
        let is_scaled = own.len() <= published.len() && own.iter().all(|at| *at < smallest);
        let mut pairs: Vec<(Option<usize>, Option<u64>)> = (0..published.len())
            .map(|i| {
                let same = own.contains(&published[i]).then(|| published[i]);
                (Some(i), if is_scaled { own.get(i).copied() } else { same })
            })
            .collect();
        let alone = own.iter().filter(|at| !is_scaled && !published.contains(at));
        pairs.extend(alone.map(|at| (None, Some(*at))));
        pairs
    }
}

/// Published values of a quantity that has no axis.
pub(super) fn dots(published: Option<&Published>, quantity: &str, unit: &str, labels: &Labels) -> Vec<Dot> {
    let tables = published.iter().flat_map(|p| &p.tables).filter(|table| table.at.len() == 1);
    let same = tables.flat_map(|table| &table.series).filter(|s| s.quantity == quantity && s.unit == unit);
    same.map(|series| Dot {
        name: format!("{}, published", series.contender),
        dress: labels.published(&series.contender),
        value: series.median.first().map(|value| value * series.scale),
        range: None,
        bound: None,
    })
    .collect()
}

/// Which features work: ours, and what was published of others.
pub(super) fn features(page: &mut Document, run: &Run, published: Option<&Published>) {
    if run.features.is_empty() {
        return;
    }
    let mut gateways: Vec<&str> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for tried in &run.features {
        for (known, name) in [(&mut gateways, &tried.gateway), (&mut names, &tried.feature)] {
            if !known.contains(&name.as_str()) {
                known.push(name);
            }
        }
    }
    let theirs: Vec<&String> =
        published.iter().flat_map(|p| &p.features).take(1).flat_map(|f| f.status.keys()).collect();
    let mut columns = vec!["feature".to_owned()];
    columns.extend(gateways.iter().map(|name| (*name).to_owned()));
    columns.extend(theirs.iter().map(|name| format!("{name}, published")));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new("Features", &columns);
    for &name in &names {
        let known = published.iter().flat_map(|p| &p.features).find(|feature| feature.name == name);
        let described = known.map_or_else(String::new, |feature| format!(": {}", feature.description));
        let mut cells: Vec<Cell> = vec![format!("{name}{described}").into()];
        for gateway in &gateways {
            let tried = run.features.iter().find(|tried| tried.feature == name && tried.gateway == *gateway);
            cells.push(match tried.and_then(|tried| tried.works) {
                Some(true) => Cell::marked("works", Some(Mark::Better)),
                Some(false) => Cell::marked("does not work", Some(Mark::Worse)),
                None => Cell::missing(),
            });
        }
        cells.extend(theirs.iter().map(|program| {
            let status = known.and_then(|feature| feature.status.get(*program));
            status.map_or_else(Cell::missing, |status| Cell::marked(status.clone(), Some(Mark::Published)))
        }));
        table.rows.push(cells);
    }
    page.table(table);
    page.list(names.iter().flat_map(|name| evidence(run, name)).collect());
}

/// What was seen of a feature, and of whom.
fn evidence(run: &Run, feature: &str) -> Vec<String> {
    let mut seen: Vec<(&str, Vec<&str>)> = Vec::new();
    for tried in run.features.iter().filter(|tried| tried.feature == feature) {
        match seen.iter_mut().find(|(how, _)| *how == tried.how) {
            Some((_, gateways)) => gateways.push(&tried.gateway),
            None => seen.push((&tried.how, vec![&tried.gateway])),
        }
    }
    seen.into_iter().map(|(how, gateways)| format!("{feature}: {how} ({}).", gateways.join(", "))).collect()
}

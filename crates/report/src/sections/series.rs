//! Values over an axis: a table with a column each gateway, and lines.

use serde_json::json;

use super::cells::{better, median};
use super::labels::Labels;
use crate::document::{Cell, Document, Table};
use crate::number;
use crate::plot::{Line, Lines, Sample};
use crate::results::{Point, Published, PublishedSeries, ReportError, Row, Run};

/// A quantity over an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    quantity: String,
    axis: String,
    unit: String,
    higher_is_better: bool,
}

/// Every series of a run.
pub(super) fn show(
    page: &mut Document,
    run: &Run,
    published: Option<&Published>,
    labels: &Labels,
) -> Result<(), ReportError> {
    for kind in kinds(run) {
        let names: Vec<String> = run.names().into_iter().filter(|name| !points(run, &kind, name).is_empty()).collect();
        let mut lines: Vec<Line> = names.iter().map(|name| line(run, &kind, name, labels)).collect();
        lines.extend(published_lines(published, &kind, labels));
        let mut at: Vec<u64> = lines.iter().flat_map(|line| &line.samples).map(|sample| whole(sample.x)).collect();
        at.sort_unstable();
        at.dedup();
        let title = format!("{} against {} ({})", kind.quantity, in_words(&kind.axis), better(kind.higher_is_better));
        if at.len() > 1 {
            let lines = Lines {
                title: title.clone(),
                x: in_words(&kind.axis).to_owned(),
                y: with_unit(&kind.quantity, &kind.unit),
                lines,
                is_marked_at_points: true,
                is_dense: false,
            };
            page.figure(title, lines.svg()?);
        }
        page.table(table(run, &kind, &names));
    }
    Ok(())
}

fn with_unit(quantity: &str, unit: &str) -> String {
    if unit == "ratio" { quantity.to_owned() } else { format!("{quantity}, {unit}") }
}

/// Series in the order in which they were measured.
fn kinds(run: &Run) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for row in &run.rows {
        let Some(point) = &row.point else { continue };
        let kind = Kind {
            quantity: point.quantity.clone(),
            axis: point.axis.clone(),
            unit: row.unit.clone(),
            higher_is_better: row.higher_is_better,
        };
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

/// The points of one gateway, from left to right.
fn points<'a>(run: &'a Run, kind: &Kind, gateway: &str) -> Vec<(u64, &'a Row)> {
    let own = run.rows.iter().filter(|row| row.gateway == gateway);
    let at = |row: &'a Row| {
        let point = row.point.as_ref()?;
        (point.quantity == kind.quantity && point.axis == kind.axis).then_some((point.at, row))
    };
    let mut points: Vec<(u64, &Row)> = own.filter_map(at).collect();
    points.sort_by_key(|(at, _)| *at);
    points
}

/// A point without a value is no point: the line ends before it and goes on behind it, the table says
/// why.
fn line(run: &Run, kind: &Kind, gateway: &str, labels: &Labels) -> Line {
    let (mut samples, mut is_after_gap) = (Vec::new(), false);
    for (at, row) in points(run, kind, gateway) {
        if let Some(summary) = row.summary {
            let range = Some((summary.min, summary.max));
            samples.push(Sample { x: at as f64, y: summary.median, range, bound: row.bound, is_after_gap });
        }
        is_after_gap = row.summary.is_none();
    }
    Line { name: gateway.to_owned(), dress: labels.dress(gateway), samples }
}

fn published_lines(published: Option<&Published>, kind: &Kind, labels: &Labels) -> Vec<Line> {
    let tables = published.iter().flat_map(|p| &p.tables).filter(|table| table.axis == kind.axis);
    let all = tables.flat_map(|table| table.series.iter().map(move |series| (table, series)));
    let same = all.filter(|(_, series)| series.quantity == kind.quantity && series.unit == kind.unit);
    same.map(|(table, series)| Line {
        name: format!("{}, published", series.contender),
        dress: labels.published(&series.contender),
        samples: (0..).zip(&table.at).filter_map(|(i, at)| published_sample(series, i, *at)).collect(),
    })
    .collect()
}

fn published_sample(series: &PublishedSeries, index: usize, at: u64) -> Option<Sample> {
    let scaled = |values: &[f64]| values.get(index).map(|value| value * series.scale);
    let range = scaled(&series.min).zip(scaled(&series.max));
    Some(Sample { x: at as f64, y: scaled(&series.median)?, range, bound: None, is_after_gap: false })
}

fn table(run: &Run, kind: &Kind, names: &[String]) -> Table {
    let mut columns = vec![format!("#{}", in_words(&kind.axis))];
    columns.extend(names.iter().map(|name| format!("#{name}")));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let caption = format!("{}: median \u{b1} half of the range", with_unit(&kind.quantity, &kind.unit));
    let mut table = Table::new(caption, &columns);
    let by_gateway: Vec<Vec<(u64, &Row)>> = names.iter().map(|name| points(run, kind, name)).collect();
    let mut all: Vec<u64> = by_gateway.iter().flatten().map(|(at, _)| *at).collect();
    all.sort_unstable();
    all.dedup();
    for at in all {
        let cells = by_gateway.iter().map(|points| match points.iter().find(|(point, _)| *point == at) {
            Some((_, row)) => with_range(row),
            None => Cell::missing(),
        });
        table.rows.push(std::iter::once(number::count(at as f64).into()).chain(cells).collect());
    }
    table
}

/// Median with its marks, and half of the range in percent of it where there are several values.
fn with_range(row: &Row) -> Cell {
    let cell = median(row, |value| number::short(value, &row.unit));
    match row.summary.filter(|summary| summary.count > 1 && summary.median > 0.0) {
        Some(summary) => {
            let percent = (summary.max - summary.min) / 2.0 / summary.median * 100.0;
            let digits = if percent < 9.95 { 1 } else { 0 };
            Cell::marked(format!("{} \u{b1} {percent:.digits$} %", cell.text), cell.mark)
        }
        None => cell,
    }
}

pub(super) fn in_words(axis: &str) -> &str {
    match axis {
        "sessions" => "connections",
        "flows" => "parallel flows",
        "routes" => "routes in the table",
        "bytes" => "bytes of a frame",
        other => other,
    }
}

/// Runs of one procedure with several lengths of frames, as one run over the lengths.
pub(super) fn over_frame_sizes(runs: &[Run]) -> Vec<Run> {
    let mut procedures: Vec<&str> = runs.iter().map(|run| run.procedure.as_str()).collect();
    procedures.dedup();
    procedures.iter().filter_map(|procedure| over_sizes_of(runs, procedure)).collect()
}

fn over_sizes_of(runs: &[Run], procedure: &str) -> Option<Run> {
    let sized: Vec<(u64, &Run)> = runs
        .iter()
        .filter(|run| run.procedure == procedure)
        .filter_map(|run| Some((run.frame_bytes()?, run)))
        .collect();
    let (first, run) = sized.first()?;
    if sized.iter().all(|(bytes, _)| bytes == first) {
        return None;
    }
    let at = |(bytes, run): &(u64, &Run)| {
        let point = |row: &Row| Point { quantity: row.quantity.clone(), axis: "bytes".to_owned(), at: *bytes };
        let alone = run.rows.iter().filter(|row| row.point.is_none());
        alone.map(|row| Row { point: Some(point(row)), ..row.clone() }).collect::<Vec<_>>()
    };
    let rows = sized.iter().flat_map(at).collect();
    let asked = json!({ "over_frame_sizes": true, "parameters": { "effort": run.asked["parameters"]["effort"] } });
    Some(Run { procedure: procedure.to_owned(), asked, rows, ..Run::default() })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was a whole number before")]
fn whole(x: f64) -> u64 {
    x as u64
}

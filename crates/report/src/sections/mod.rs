//! What is shown in which order: first what it was measured on and how to read it, then each part with
//! what was asked, what was found, and what was published of the same.

mod beside;
mod cells;
mod curves;
mod labels;
mod method;
mod series;

use crate::document::{Cell, Document, Table};
use crate::number;
use crate::plot::{Dot, Dots};
use crate::results::{Part, Preset, ReportError, Results, Row, Run, Summary};

use cells::{better, count, median, ratio};
use labels::Labels;

/// The page.
///
/// # Errors
/// If a plot cannot be drawn.
pub fn document(results: &Results, title: &str) -> Result<Document, ReportError> {
    let mut page = Document { title: title.to_owned(), ..Document::default() };
    let labels = Labels::of(results);
    page.heading(2, "Machine and method");
    method::machines(&mut page, results);
    page.heading(3, "How to read it");
    page.list(method::marks());
    for part in &results.parts {
        section(&mut page, part, &labels)?;
    }
    Ok(page)
}

fn section(page: &mut Document, part: &Part, labels: &Labels) -> Result<(), ReportError> {
    match &part.preset {
        Some(preset) => introduce(page, preset, part),
        None => page.heading(2, part.file.clone()),
    }
    let sizes = series::over_frame_sizes(&part.runs);
    for run in part.runs.iter().chain(&sizes) {
        one_run(page, run, part.preset.as_ref(), labels)?;
    }
    if let Some(published) = part.preset.as_ref().and_then(|preset| preset.published.as_ref()) {
        beside::tables(page, published, &part.runs);
    }
    Ok(())
}

fn introduce(page: &mut Document, preset: &Preset, part: &Part) {
    page.heading(2, format!("{}: {}", preset.name, preset.title));
    page.text(preset.asks.clone());
    if let Some(published) = &preset.published {
        let fact = |name: &str, what: &str| (name.to_owned(), what.to_owned());
        page.facts(vec![
            fact("Published in", &published.source),
            fact("Measured there", &published.software),
            fact("On", &published.hardware),
            fact("How", &published.method),
        ]);
        page.list(published.notes.iter().map(|note| format!("Of the published figures: {note}.")).collect());
    }
    if !preset.deviations.is_empty() {
        // What was tried and not measured has no scale.
        let is_scaled = preset.form != "full" && part.runs.iter().any(|run| run.features.is_empty());
        let form = if !is_scaled { "" } else { " Scaled to this machine: not comparable." };
        page.text(format!("Where this run's method is another than the published one:{form}"));
        page.list(preset.deviations.iter().map(|deviation| format!("{deviation}.")).collect());
    }
}

fn one_run(page: &mut Document, run: &Run, preset: Option<&Preset>, labels: &Labels) -> Result<(), ReportError> {
    page.heading(3, method::heading(run));
    method::describe(page, run);
    let published = preset.and_then(|preset| preset.published.as_ref());
    series::show(page, run, published, labels)?;
    values(page, run);
    dots(page, run, published, labels)?;
    curves::loss(page, run, labels)?;
    curves::delays(page, run, labels)?;
    beside::features(page, run, published);
    page.list(method::footnotes(run));
    Ok(())
}

/// The values that stand alone.
fn values(page: &mut Document, run: &Run) {
    let first = run.names().first().cloned().unwrap_or_default();
    let over = format!("#over {first} (min to max)");
    let mut table = Table::new("", &["gateway", "quantity", "#median", "#min", "#max", "unit", &over, "#n"]);
    for row in run.rows.iter().filter(|row| row.point.is_none()) {
        let of = |value: fn(&Summary) -> f64| match &row.summary {
            Some(summary) => number::plain(value(summary)).into(),
            None => Cell::missing(),
        };
        table.rows.push(vec![
            row.gateway.clone().into(),
            row.quantity.clone().into(),
            median(row, number::plain),
            of(|summary| summary.min),
            of(|summary| summary.max),
            row.unit.clone().into(),
            ratio(row, &first),
            count(row),
        ]);
    }
    page.table(table);
}

/// A drawing for each quantity that several gateways have, or that somebody has published.
fn dots(
    page: &mut Document,
    run: &Run,
    published: Option<&crate::results::Published>,
    labels: &Labels,
) -> Result<(), ReportError> {
    let mut quantities: Vec<&Row> = Vec::new();
    for row in run.rows.iter().filter(|row| row.point.is_none()) {
        if !quantities.iter().any(|known| known.quantity == row.quantity) {
            quantities.push(row);
        }
    }
    for first in quantities {
        let own = run.rows.iter().filter(|row| row.point.is_none() && row.quantity == first.quantity);
        let mut rows: Vec<Dot> = own.map(|row| dot(row, labels)).collect();
        rows.extend(beside::dots(published, &first.quantity, &first.unit, labels));
        if rows.len() < 2 {
            continue;
        }
        let x = format!("{}, {}", first.quantity, first.unit);
        let title = format!("{} ({})", first.quantity, better(first.higher_is_better));
        let dots = Dots { title: title.clone(), x, unit: first.unit.clone(), rows };
        page.figure(title, dots.svg()?);
    }
    Ok(())
}

fn dot(row: &Row, labels: &Labels) -> Dot {
    Dot {
        name: row.gateway.clone(),
        dress: labels.dress(&row.gateway),
        value: row.summary.map(|summary| summary.median),
        range: row.summary.map(|summary| (summary.min, summary.max)),
        bound: row.bound,
    }
}

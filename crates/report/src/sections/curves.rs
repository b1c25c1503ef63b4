//! Curves that one measurement gives: loss over the rate, and how many frames took how long.

use serde_json::Value;

use super::labels::Labels;
use crate::document::Document;
use crate::plot::{Line, Lines, Sample};
use crate::results::{ReportError, Run};

/// Loss against the rate; points that the tester could not send in order are left out.
pub(super) fn loss(page: &mut Document, run: &Run, labels: &Labels) -> Result<(), ReportError> {
    let lines: Vec<Line> = of_gateways(run, labels, |_, details| {
        let points = details["points"].as_array()?;
        let valid = points.iter().filter(|point| point["valid"].as_bool() == Some(true));
        let sample = |point: &Value| Some(sample(point["rate"].as_f64()?, point["loss_percent"].as_f64()?));
        Some(valid.filter_map(sample).collect())
    });
    let (x, y) = ("offered in each direction, frames/s", "lost, %");
    show(page, "Loss against the offered rate (last repetition)", x, y, lines, false)
}

/// Which part of the frames took at most how long, for each direction.
pub(super) fn delays(page: &mut Document, run: &Run, labels: &Labels) -> Result<(), ReportError> {
    for direction in ["forward", "reverse"] {
        let name = format!("typical latency, {direction}");
        let lines = of_gateways(run, labels, |quantity, details| {
            let buckets = details["histogram_us"].as_array().filter(|_| quantity == name)?;
            let counted: Vec<(f64, f64)> = buckets.iter().filter_map(bucket).collect();
            let all: f64 = counted.iter().map(|(_, count)| count).sum();
            let mut until = 0.0;
            Some(
                counted
                    .iter()
                    .map(|(to, count)| {
                        until += count;
                        sample(*to, 100.0 * until / all.max(1.0))
                    })
                    .collect(),
            )
        });
        let title = format!("Frames that took at most so long, {direction} (last repetition)");
        show(page, &title, "delay, us", "part of the frames, %", lines, true)?;
    }
    Ok(())
}

/// `[from, to, count]`.
fn bucket(value: &Value) -> Option<(f64, f64)> {
    Some((value[1].as_f64()?, value[2].as_f64()?))
}

fn sample(x: f64, y: f64) -> Sample {
    Sample { x, y, range: None, bound: None, is_after_gap: false }
}

fn of_gateways(run: &Run, labels: &Labels, samples: impl Fn(&str, &Value) -> Option<Vec<Sample>>) -> Vec<Line> {
    let mut lines = Vec::new();
    for gateway in run.names() {
        let own = run.details.iter().filter(|((name, _), _)| *name == gateway);
        for samples in own.filter_map(|((_, quantity), details)| samples(quantity, details)) {
            let mut samples = samples;
            samples.sort_by(|one, other| one.x.total_cmp(&other.x));
            lines.push(Line { name: gateway.clone(), dress: labels.dress(&gateway), samples });
        }
    }
    lines
}

fn show(
    page: &mut Document,
    title: &str,
    x: &str,
    y: &str,
    lines: Vec<Line>,
    is_dense: bool,
) -> Result<(), ReportError> {
    if lines.iter().all(|line| line.samples.len() < 2) {
        return Ok(());
    }
    let (x, y) = (x.to_owned(), y.to_owned());
    let lines = Lines { title: title.to_owned(), x, y, lines, is_marked_at_points: false, is_dense };
    page.figure(title, lines.svg()?);
    Ok(())
}

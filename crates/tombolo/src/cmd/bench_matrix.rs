//! `tombolo bench matrix`: every technology by every procedure that applies to it.

use std::{path::PathBuf, time::SystemTime};

use anyhow::{Context as _, bail};
use clap::Args;
use tombolo_tester::{
    bench::BenchError,
    gateway::{Spec, Technology},
    matrix::{MatrixPlan, Row},
    procedure::{Measured, packet::Procedure},
    results::ResultFile,
    series::SeriesPlan,
};

use super::bench_progress::Live;
use super::bench_summary::{number, sign};
use super::print;

/// Arguments of `tombolo bench matrix`.
#[derive(Debug, Args)]
#[command(after_help = "\
A cell is the first value of its procedure, measured once, in a form that is shorter than --quick: a survey of what\n\
works and of the order of size, and no figures to quote. -: no value (the line below the table says why).")]
pub(crate) struct Arguments {
    /// The gateways; each is measured as all of the technologies that it does
    #[arg(long, value_name = "GATEWAY", num_args = 1.., value_delimiter = ' ', default_value = "tombolo:tc")]
    dut: Vec<Spec>,
    /// The technologies [default: all, without plain forwarding]
    #[arg(long, value_name = "TECHNOLOGY", value_delimiter = ',')]
    technologies: Vec<Technology>,
    /// The procedures [default: all]
    #[arg(long, value_name = "PROCEDURE", value_delimiter = ',')]
    procedures: Vec<Procedure>,
    /// Settings for tombolo's configuration, before its service
    #[arg(long, value_name = "TOML", default_value = "")]
    settings: String,
    /// Result file (JSON Lines), appended to
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the table as Markdown
    #[arg(long)]
    markdown: bool,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let output = arguments.output.clone().unwrap_or_else(default_output);
    let markdown = arguments.markdown;
    let plan = arguments.plan()?;
    let mut results =
        ResultFile::open(&output).with_context(|| format!("cannot open the result file {}", output.display()))?;
    let mut progress = Live::new();
    let rows = plan.run(&mut results, &mut progress);
    progress.clear();
    let rows = match rows {
        Err(BenchError::Interrupted) => bail!("interrupted; what was measured is in {}", output.display()),
        other => other?,
    };
    let columns: Vec<Procedure> = plan.procedures;
    print::line(&if markdown { in_markdown(&columns, &rows) } else { in_a_table(&columns, &rows) })?;
    print::line(&notes(&rows))?;
    print::line(&format!("every trial and the machine: {}", output.display()))
}

impl Arguments {
    fn plan(self) -> anyhow::Result<MatrixPlan> {
        let forwards = |technology: &Technology| matches!(technology, Technology::Forward4 | Technology::Forward6);
        let or_all = |chosen: Vec<Technology>| match chosen.is_empty() {
            true => Technology::ALL.into_iter().filter(|technology| !forwards(technology)).collect(),
            false => chosen,
        };
        let tombolo = std::env::current_exe().context("cannot find the program that is running")?;
        let base = SeriesPlan {
            settings: self.settings,
            ..SeriesPlan::new(Procedure::Throughput, self.dut, MatrixPlan::EFFORT, tombolo)
        };
        let procedures = if self.procedures.is_empty() { Procedure::ALL.to_vec() } else { self.procedures };
        Ok(MatrixPlan { base, technologies: or_all(self.technologies), procedures })
    }
}

fn default_output() -> PathBuf {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    format!("results/matrix-{}.jsonl", now.map_or(0, |since| since.as_secs())).into()
}

fn heading(procedure: Procedure) -> String {
    let unit = match procedure {
        Procedure::Latency | Procedure::Pdv | Procedure::Ipdv => "us",
        Procedure::FrameLoss => "%",
        Procedure::Reset | Procedure::Recovery => "ms",
        Procedure::BackToBack => "frames",
        Procedure::ConnectionRate | Procedure::Teardown => "k/s",
        Procedure::Capacity => "k",
        _ => "kfps",
    };
    format!("{procedure}, {unit}")
}

/// The first value, in thousands where the heading says so.
fn cell(cell: Option<&Result<Vec<Measured>, String>>) -> String {
    let Some(measured) = cell else { return String::new() };
    let Some(first) = measured.as_ref().ok().and_then(|all| all.first()) else { return "-".to_owned() };
    let Some(value) = first.value else { return "-".to_owned() };
    let in_thousands = ["frames/s", "connections/s", "connections"].contains(&first.unit);
    let mark = if first.doubts.is_empty() || first.bound.is_some() { "" } else { " *" };
    format!("{}{}{mark}", sign(first.bound), number(if in_thousands { value / 1000.0 } else { value }))
}

fn names(row: &Row) -> [String; 2] {
    [row.technology.to_string(), row.gateway.to_string()]
}

fn in_a_table(columns: &[Procedure], rows: &[Row]) -> String {
    let header: Vec<String> =
        ["technology", "gateway"].map(str::to_owned).into_iter().chain(columns.iter().map(|c| heading(*c))).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = print::table(&header);
    for row in rows {
        table.add_row(names(row).into_iter().chain(columns.iter().map(|c| cell(row.cells.get(c.name())))));
    }
    table.to_string()
}

fn in_markdown(columns: &[Procedure], rows: &[Row]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let header: Vec<String> =
        ["technology", "gateway"].map(str::to_owned).into_iter().chain(columns.iter().map(|c| heading(*c))).collect();
    let rule = format!("|{}\n", "---|".repeat(header.len()));
    let body = rows
        .iter()
        .map(|row| line(names(row).into_iter().chain(columns.iter().map(|c| cell(row.cells.get(c.name())))).collect()));
    line(header) + &rule + &body.collect::<String>()
}

/// Why cells are empty or marked, each reason once, and how long everything took.
fn notes(rows: &[Row]) -> String {
    let mut reasons: Vec<String> = Vec::new();
    for row in rows {
        for (procedure, cell) in &row.cells {
            let why = match cell {
                Err(error) => error.clone(),
                Ok(measured) => match measured.first() {
                    Some(first) if !first.doubts.is_empty() => first.doubts.join("; "),
                    Some(_) => continue,
                    None => "it came to nothing".to_owned(),
                },
            };
            reasons.push(format!("* {}, {}, {procedure}: {why}", row.technology, row.gateway));
        }
    }
    let seconds: f64 = rows.iter().map(|row| row.took.as_secs_f64()).sum();
    reasons.push(format!("{} rows in {:.1} min", rows.len(), seconds / 60.0));
    reasons.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_its_mark_or_says_that_there_is_no_value() {
        let rate = Measured::rate("throughput", 1_234_567.0, "frames/s", serde_json::json!({}));
        let of = |measured: Measured| cell(Some(&Ok(vec![measured])));
        assert_eq!(of(rate.clone()), "1,235");
        assert_eq!(of(rate.clone().doubted("a lossy stream")), "1,235 *");
        assert_eq!(of(rate.without_value("no rate passed")), "-");
        assert_eq!((cell(Some(&Err("no".to_owned()))), cell(None)), ("-".to_owned(), String::new()));
    }
}

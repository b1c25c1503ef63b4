//! What the matrix came to: a table for the terminal, and a page for documents.

use tombolo_tester::{
    machine::Machine,
    matrix::{MatrixPlan, Row},
    procedure::{Measured, packet::Procedure},
};

use super::bench_summary::{number, sign};
use super::print;

fn heading(procedure: Procedure) -> String {
    let unit = match procedure {
        Procedure::Latency | Procedure::Pdv | Procedure::Ipdv => "us",
        Procedure::FrameLoss | Procedure::Overload | Procedure::OverloadIncremental => "%",
        Procedure::Reset | Procedure::Recovery => "ms",
        Procedure::BackToBack => "frames",
        Procedure::ConnectionRate | Procedure::Teardown | Procedure::Scalability => "k/s",
        Procedure::Capacity => "k",
        _ => "kfps",
    };
    format!("{procedure}, {unit}")
}

/// What a cell shows of what a procedure came to: its first value, and of overload what all flows
/// together take from the throughput of one.
fn telling(procedure: Procedure, measured: &[Measured]) -> Option<&Measured> {
    match procedure {
        Procedure::Overload | Procedure::OverloadIncremental => {
            measured.iter().rfind(|one| one.quantity.starts_with("throughput degradation"))
        }
        _ => measured.first(),
    }
}

/// The value, in thousands where the heading says so.
fn cell(procedure: Procedure, row: &Row) -> String {
    if !MatrixPlan::applies(procedure, row.technology) {
        return "n/a".to_owned();
    }
    let Some(measured) = row.cells.get(procedure.name()) else { return String::new() };
    let Some(first) = measured.as_ref().ok().and_then(|all| telling(procedure, all)) else { return "-".to_owned() };
    let Some(value) = first.value else { return "-".to_owned() };
    let in_thousands = ["frames/s", "connections/s", "connections"].contains(&first.unit);
    let mark = if first.doubts.is_empty() || first.bound.is_some() { "" } else { " *" };
    format!("{}{}{mark}", sign(first.bound), number(if in_thousands { value / 1000.0 } else { value }))
}

fn names(row: &Row) -> [String; 2] {
    [row.technology.to_string(), row.gateway.to_string()]
}

pub(super) fn in_a_table(columns: &[Procedure], rows: &[Row]) -> String {
    let header: Vec<String> =
        ["technology", "gateway"].map(str::to_owned).into_iter().chain(columns.iter().map(|c| heading(*c))).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = print::table(&header);
    for row in rows {
        table.add_row(names(row).into_iter().chain(columns.iter().map(|c| cell(*c, row))));
    }
    table.to_string()
}

pub(super) fn in_markdown(columns: &[Procedure], rows: &[Row]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let header: Vec<String> =
        ["technology", "gateway"].map(str::to_owned).into_iter().chain(columns.iter().map(|c| heading(*c))).collect();
    let rule = format!("|{}\n", "---|".repeat(header.len()));
    let body =
        rows.iter().map(|row| line(names(row).into_iter().chain(columns.iter().map(|c| cell(*c, row))).collect()));
    line(header) + &rule + &body.collect::<String>()
}

/// Why cells are empty or marked, each reason once, and how long everything took.
pub(super) fn notes(rows: &[Row]) -> String {
    let mut reasons: Vec<String> = Vec::new();
    for row in rows {
        for (procedure, cell) in &row.cells {
            let why = match cell {
                Err(error) => error.clone(),
                Ok(measured) => match procedure.parse().ok().and_then(|procedure| telling(procedure, measured)) {
                    Some(first) if !first.doubts.is_empty() => first.doubts.join("; "),
                    Some(_) => continue,
                    None => "it came to nothing".to_owned(),
                },
            };
            reasons.push(format!("* {}, {}, {procedure}: {why}", row.technology, row.gateway));
        }
    }
    let seconds: f64 = rows.iter().map(|row| row.took.as_secs_f64()).sum();
    reasons.push(format!("All of it took {:.1} min.", seconds / 60.0));
    reasons.join("\n")
}

/// Columns of the page's first table: those about frames; the others are about connections and many
/// flows.
fn is_about_frames(procedure: &Procedure) -> bool {
    !procedure.needs_state()
        && !matches!(procedure, Procedure::Scalability | Procedure::Overload | Procedure::OverloadIncremental)
}

/// The page.
pub(super) fn page(columns: &[Procedure], rows: &[Row], machine: &Machine) -> String {
    let (frames, others): (Vec<Procedure>, Vec<Procedure>) = columns.iter().partition(|c| is_about_frames(c));
    let tables = [frames, others].into_iter().filter(|columns| !columns.is_empty());
    let tables: Vec<String> = tables.map(|columns| in_markdown(&columns, rows)).collect();
    format!(
        "# Every technology by every procedure\n\n\
         `make matrix` measures each technology once by each procedure that applies to it, in a form shorter than `--quick`: a survey of what works\n\
         and of the order of size, and **no figures to quote**. [How the tester measures](../testing-methodology.md).\n\n\
         {} processors of {}{}, Linux {}; tester and gateway share them.\n\n\
         `>=`, `<=`: the value is a bound. `*`: a note below. `-`: no value, and a note says why. `n/a`: the procedure is about connections, and\n\
         the technology keeps none. Overload is what all flows together take from the throughput of one.\n\n{}\n{}\n",
        machine.cpus,
        machine.cpu,
        if machine.virtual_machine { " in a virtual machine" } else { "" },
        machine.kernel,
        tables.join("\n"),
        notes(rows)
    )
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use serde_json::json;
    use tombolo_tester::gateway::{Spec, Technology};

    use super::*;

    fn row(technology: Technology, procedure: Procedure, measured: Vec<Measured>) -> Row {
        let cells = BTreeMap::from([(procedure.name(), Ok(measured))]);
        Row { technology, gateway: Spec::PLAIN, cells, took: Duration::from_secs(60) }
    }

    #[test]
    fn a_cell_has_its_mark_or_says_that_there_is_no_value() {
        let rate = Measured::rate("throughput", 1_234_567.0, "frames/s", json!({}));
        let of =
            |measured| cell(Procedure::Throughput, &row(Technology::Lwaftr, Procedure::Throughput, vec![measured]));
        assert_eq!(of(rate.clone()), "1,235");
        assert_eq!(of(rate.clone().doubted("a lossy stream")), "1,235 *");
        assert_eq!(of(rate.without_value("no rate passed")), "-");
    }

    #[test]
    fn a_page_says_what_does_not_apply_and_why_a_value_is_missing() {
        let none = Measured::rate("throughput", 1.0, "frames/s", json!({})).without_value("no rate passed");
        let rows = [row(Technology::Lwaftr, Procedure::Throughput, vec![none])];
        let columns = [Procedure::Throughput, Procedure::ConnectionRate];
        let text = page(&columns, &rows, &Machine::describe(&[]));
        assert!(text.contains("| lwaftr | plain | - |\n") && text.contains("| lwaftr | plain | n/a |\n"), "{text}");
        assert!(text.contains("* lwaftr, plain, throughput: no rate passed"));
        assert!(text.contains("All of it took 1.0 min."));
    }

    #[test]
    fn overload_shows_what_all_flows_take() {
        let lost = |percent| Measured::cost("throughput degradation, 100 flows", percent, "%", json!({}));
        let first = Measured::rate("throughput, 1 flow", 9.0, "frames/s", json!({}));
        let row = row(Technology::Lwaftr, Procedure::Overload, vec![first, lost(3.0), lost(12.0)]);
        assert_eq!(cell(Procedure::Overload, &row), number(12.0));
    }
}

//! Rows of an answer as a table for people, as JSON Lines, or as comma-separated values.
//!
//! Rows are written as they come, in constant memory, however many there are: the widths of a
//! table's columns are those of its first rows, and a wider cell later on only shifts its own row.
//! A reader who has seen enough ends it all.

use std::io::{self, BufWriter, Write};

use serde_json::Value;
use tombolo_daemon::control::client::Answer;

use super::print;

/// Rows that the widths of the columns are taken from.
const MEASURED: usize = 200;

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Json,
    Csv,
}

impl Format {
    pub(crate) fn new(json: bool, csv: bool) -> Self {
        match (json, csv) {
            (true, _) => Self::Json,
            (_, true) => Self::Csv,
            _ => Self::Table,
        }
    }
}

/// A column, and the keys of the row that it is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cell {
    /// As it is.
    Text(&'static str),
    /// To the right.
    Number(&'static str),
    /// A time span.
    Seconds(&'static str),
    /// Address and port.
    Endpoint { name: &'static str, address: &'static str, port: &'static str },
    /// A host inside, which may be behind a softwire.
    Host { name: &'static str, address: &'static str, port: Option<&'static str>, softwire: &'static str },
}

impl Cell {
    fn heading(&self) -> &'static str {
        match self {
            Self::Text(name) | Self::Number(name) | Self::Seconds(name) => name,
            Self::Endpoint { name, .. } | Self::Host { name, .. } => name,
        }
    }

    fn is_right(&self) -> bool {
        matches!(self, Self::Number(_) | Self::Seconds(_))
    }

    /// The keys, for comma-separated values.
    fn keys(&self) -> Vec<&'static str> {
        match *self {
            Self::Text(name) | Self::Number(name) | Self::Seconds(name) => vec![name],
            Self::Endpoint { address, port, .. } => vec![address, port],
            Self::Host { address, port, softwire, .. } => {
                std::iter::once(address).chain(port).chain([softwire]).collect()
            }
        }
    }

    fn text(&self, row: &Value) -> String {
        match *self {
            Self::Text(key) | Self::Number(key) => plain(&row[key]),
            Self::Seconds(key) => row[key].as_u64().map_or_else(|| plain(&row[key]), span),
            Self::Endpoint { address, port, .. } => endpoint(&row[address], Some(&row[port])),
            Self::Host { address, port, softwire, .. } => {
                let host = endpoint(&row[address], port.map(|port| &row[port]));
                match &row[softwire] {
                    Value::String(softwire) => format!("{host} via {softwire}"),
                    _ => host,
                }
            }
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

fn endpoint(address: &Value, port: Option<&Value>) -> String {
    let address = plain(address);
    match port {
        None => address,
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
    }
}

fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Writes all rows of an answer to standard output; says how many there were.
pub(crate) fn print_rows(answer: Answer, cells: &[Cell], format: Format) -> anyhow::Result<u64> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match write_rows(answer, cells, format, &mut out) {
        Err(Ended::Reader) => Ok(0),
        Err(Ended::Error(error)) => {
            // What came until then is shown all the same.
            let _ = out.flush();
            Err(error)
        }
        Ok(rows) => match out.flush() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(rows),
        },
    }
}

/// Writes rows that are there already as a table.
pub(crate) fn print_table(rows: &[&Value], cells: &[Cell]) -> anyhow::Result<()> {
    let mut out = Vec::new();
    let mut table = Table::new(cells);
    for row in rows {
        table.row(cells.iter().map(|cell| cell.text(row)).collect(), &mut out)?;
    }
    table.end(&mut out)?;
    print::line(String::from_utf8_lossy(&out).trim_end())
}

enum Ended {
    /// The reader has seen enough.
    Reader,
    Error(anyhow::Error),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Reader } else { Self::Error(error.into()) }
    }
}

fn write_rows(mut answer: Answer, cells: &[Cell], format: Format, out: &mut impl Write) -> Result<u64, Ended> {
    let mut table = Table::new(cells);
    let mut rows = 0;
    if format == Format::Csv {
        let keys: Vec<_> = cells.iter().flat_map(Cell::keys).collect();
        writeln!(out, "{}", keys.join(","))?;
    }
    while let Some(line) = answer.next_row().map_err(|error| Ended::Error(error.into()))? {
        rows += 1;
        if format == Format::Json {
            out.write_all(line)?;
            out.write_all(b"\n")?;
            continue;
        }
        let row: Value = serde_json::from_slice(line).map_err(|error| Ended::Error(error.into()))?;
        match format {
            Format::Csv => csv(cells, &row, out)?,
            _ => table.row(cells.iter().map(|cell| cell.text(&row)).collect(), out)?,
        }
    }
    if format == Format::Table {
        table.end(out)?;
    }
    Ok(rows)
}

fn csv(cells: &[Cell], row: &Value, out: &mut impl Write) -> io::Result<()> {
    for (number, key) in cells.iter().flat_map(Cell::keys).enumerate() {
        let text = plain(&row[key]);
        let comma = if number > 0 { "," } else { "" };
        if text.contains([',', '"', '\n']) {
            write!(out, "{comma}\"{}\"", text.replace('"', "\"\""))?;
        } else {
            write!(out, "{comma}{text}")?;
        }
    }
    writeln!(out)
}

/// A table under construction.
struct Table<'c> {
    cells: &'c [Cell],
    waiting: Vec<Vec<String>>,
    widths: Option<Vec<usize>>,
}

impl<'c> Table<'c> {
    fn new(cells: &'c [Cell]) -> Self {
        Self { cells, waiting: Vec::new(), widths: None }
    }

    fn row(&mut self, row: Vec<String>, out: &mut impl Write) -> io::Result<()> {
        if let Some(widths) = &self.widths {
            return line(self.cells, widths, &row, out);
        }
        self.waiting.push(row);
        if self.waiting.len() >= MEASURED { self.begin(out) } else { Ok(()) }
    }

    /// Writes the heading, and the rows that waited for the widths.
    fn begin(&mut self, out: &mut impl Write) -> io::Result<()> {
        let heading: Vec<String> =
            self.cells.iter().map(|cell| cell.heading().replace('_', " ").to_uppercase()).collect();
        let width = |column: usize| {
            let cells = self.waiting.iter().chain([&heading]).map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.cells.len()).map(width).collect();
        line(self.cells, &widths, &heading, out)?;
        for row in std::mem::take(&mut self.waiting) {
            line(self.cells, &widths, &row, out)?;
        }
        self.widths = Some(widths);
        Ok(())
    }

    fn end(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.widths.is_none() { self.begin(out) } else { Ok(()) }
    }
}

fn line(cells: &[Cell], widths: &[usize], row: &[String], out: &mut impl Write) -> io::Result<()> {
    let mut text = String::new();
    for ((cell, &width), value) in cells.iter().zip(widths).zip(row) {
        let padding = " ".repeat(width.saturating_sub(value.chars().count()));
        let (before, after) = if cell.is_right() { (padding.as_str(), "") } else { ("", padding.as_str()) };
        text.push_str(&format!("{before}{value}{after}  "));
    }
    writeln!(out, "{}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CELLS: &[Cell] = &[
        Cell::Text("service"),
        Cell::Host { name: "inside", address: "inside", port: Some("inside_port"), softwire: "softwire" },
        Cell::Seconds("idle"),
    ];

    #[test]
    fn a_table_is_as_wide_as_its_first_rows() {
        let mut out = Vec::new();
        let mut table = Table::new(CELLS);
        for (inside, idle) in [("2001:db8::2", 5), ("10.0.0.1", 200_000)] {
            let row = json!({ "service": "nat64", "inside": inside, "inside_port": 80, "idle": idle });
            table.row(CELLS.iter().map(|cell| cell.text(&row)).collect(), &mut out).unwrap();
        }
        table.end(&mut out).unwrap();
        let expected =
            "SERVICE  INSIDE            IDLE\nnat64    [2001:db8::2]:80   5 s\nnat64    10.0.0.1:80        2 d\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn comma_separated_values_are_quoted_where_they_must_be() {
        let mut out = Vec::new();
        let row =
            json!({ "service": "a,\"b\"", "inside": "10.0.0.1", "inside_port": 80, "softwire": "::1", "idle": 3 });
        csv(CELLS, &row, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\"a,\"\"b\"\"\",10.0.0.1,80,::1,3\n");
    }

    #[test]
    fn spans_are_told_in_the_unit_that_fits() {
        assert_eq!([0, 119, 120, 7199, 7200, 172_800].map(span), ["0 s", "119 s", "2 min", "119 min", "2 h", "2 d"]);
    }
}

//! Rows of an answer as a table for people, as JSON Lines, or as comma-separated values.
//!
//! Rows are written as they come, in constant memory, however many there are: the widths of a
//! table's columns are those of its first rows, and a wider cell later on only shifts its own row.
//! A reader who has seen enough ends it all.

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use serde_json::Value;
use tombolo_daemon::control::client::Answer;

use super::format::Format;
use super::output::{csv_line, plain};
use super::print;

/// Rows that the widths of the columns are taken from.
const MEASURED: usize = 200;

/// A column, and the keys of the row that it is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cell {
    /// As it is.
    Text(&'static str),
    /// To the right.
    Number(&'static str),
    /// A time span.
    Seconds(&'static str),
    /// A moment, of which people want the time of day.
    Time(&'static str),
    /// Address and port.
    Endpoint { name: &'static str, address: &'static str, port: &'static str },
    /// A host inside, which may be behind a softwire.
    Host { name: &'static str, address: &'static str, port: Option<&'static str>, softwire: &'static str },
}

impl Cell {
    fn heading(&self) -> &'static str {
        match self {
            Self::Text(name) | Self::Number(name) | Self::Seconds(name) | Self::Time(name) => name,
            Self::Endpoint { name, .. } | Self::Host { name, .. } => name,
        }
    }

    /// How wide its cells mostly are, for rows that are not waited for.
    fn usual_width(&self) -> usize {
        let cells = match self {
            Self::Text(_) | Self::Seconds(_) => 8,
            Self::Number(_) => 6,
            Self::Time(_) => 15,
            Self::Endpoint { .. } | Self::Host { .. } => 26,
        };
        cells.max(self.heading().len())
    }

    fn is_right(&self) -> bool {
        matches!(self, Self::Number(_) | Self::Seconds(_))
    }

    /// The keys, for comma-separated values.
    fn keys(&self) -> Vec<&'static str> {
        match *self {
            Self::Text(name) | Self::Number(name) | Self::Seconds(name) | Self::Time(name) => vec![name],
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
            Self::Time(key) => time_of_day(&plain(&row[key])),
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

fn endpoint(address: &Value, port: Option<&Value>) -> String {
    let address = plain(address);
    match port {
        None | Some(Value::Null) => address,
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
    }
}

/// `21:04:55.123456` of `2026-11-21T21:04:55.123456Z`.
fn time_of_day(moment: &str) -> String {
    let time = moment.split_once('T').map_or(moment, |(_, time)| time);
    time.strip_suffix('Z').unwrap_or(time).to_owned()
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
    let written = write_rows(answer, cells, format, &mut out);
    ended(written, &mut out)
}

/// Writes rows as they come, each at once, until the answer ends. `note` gets each row first, and says
/// whether it is one for people's eyes alone, which it has dealt with; programs get all.
pub(crate) fn follow_rows(
    mut answer: Answer,
    cells: &[Cell],
    format: Format,
    note: &mut dyn FnMut(&mut Value) -> anyhow::Result<bool>,
) -> anyhow::Result<u64> {
    end_with_reader();
    let mut out = io::stdout().lock();
    let mut table = Table { widths: Some(cells.iter().map(Cell::usual_width).collect()), ..Table::new(cells) };
    let mut follow = || -> Result<u64, Ended> {
        let mut rows = 0;
        match format {
            Format::Csv => writeln!(out, "{}", heading(cells))?,
            Format::Table => table.heading(&mut out)?,
            Format::Json => {}
        }
        while let Some(line) = answer.next_row().map_err(|error| Ended::Error(error.into()))? {
            let mut row: Value = serde_json::from_slice(line).map_err(|error| Ended::Error(error.into()))?;
            let is_note = note(&mut row).map_err(Ended::Error)?;
            match format {
                Format::Json => writeln!(out, "{row}")?,
                _ if is_note => continue,
                Format::Csv => csv(cells, &row, &mut out)?,
                Format::Table => table.row(cells.iter().map(|cell| cell.text(&row)).collect(), &mut out)?,
            }
            rows += u64::from(!is_note);
            out.flush()?;
        }
        Ok(rows)
    };
    let followed = follow();
    ended(followed, &mut out)
}

/// Ends the process when nobody reads its output any more, though there is nothing to be written.
fn end_with_reader() {
    std::thread::spawn(|| {
        while print::is_read() {
            std::thread::sleep(Duration::from_millis(250));
        }
        std::process::exit(0)
    });
}

/// What came of it. A reader who has seen enough is no error.
fn ended(written: Result<u64, Ended>, out: &mut impl Write) -> anyhow::Result<u64> {
    match written {
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

/// The first line of comma-separated values.
fn heading(cells: &[Cell]) -> String {
    csv_line(cells.iter().flat_map(Cell::keys))
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
        writeln!(out, "{}", heading(cells))?;
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
    let texts: Vec<String> = cells.iter().flat_map(Cell::keys).map(|key| plain(&row[key])).collect();
    writeln!(out, "{}", csv_line(texts.iter().map(String::as_str)))
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
        let headings = self.headings();
        let width = |column: usize| {
            let cells = self.waiting.iter().chain([&headings]).map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        self.widths = Some((0..self.cells.len()).map(width).collect());
        self.heading(out)?;
        std::mem::take(&mut self.waiting).into_iter().try_for_each(|row| self.row(row, out))
    }

    fn headings(&self) -> Vec<String> {
        self.cells.iter().map(|cell| cell.heading().replace('_', " ").to_uppercase()).collect()
    }

    fn heading(&self, out: &mut impl Write) -> io::Result<()> {
        line(self.cells, self.widths.as_deref().unwrap_or_default(), &self.headings(), out)
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
    fn of_a_moment_people_see_the_time_of_day() {
        assert_eq!(time_of_day("2026-11-21T21:04:55.123456Z"), "21:04:55.123456");
        assert_eq!(endpoint(&json!("2001:db8::1"), Some(&Value::Null)), "2001:db8::1");
    }

    #[test]
    fn spans_are_told_in_the_unit_that_fits() {
        assert_eq!([0, 119, 120, 7199, 7200, 172_800].map(span), ["0 s", "119 s", "2 min", "119 min", "2 h", "2 d"]);
    }
}

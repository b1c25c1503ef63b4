//! A configuration as it is being made: tables in order, each with its keys, and its TOML.

use std::fmt::Write as _;

use crate::outcome::{Imported, Left};

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(u64),
    Switch(bool),
    Texts(Vec<String>),
    Numbers(Vec<u64>),
    Row(Row),
    Rows(Vec<Row>),
}

/// A table in one line.
pub(crate) type Row = Vec<(&'static str, Value)>;

impl Value {
    pub(crate) fn text(text: impl ToString) -> Self {
        Self::Text(text.to_string())
    }

    pub(crate) fn texts<T: ToString>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::Texts(texts.into_iter().map(|text| text.to_string()).collect())
    }

    fn toml(&self) -> String {
        match self {
            Self::Text(text) => toml::Value::String(text.clone()).to_string(),
            Self::Number(number) => number.to_string(),
            Self::Switch(switch) => switch.to_string(),
            Self::Texts(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| Self::Text(text.clone()).toml()).collect();
                format!("[{}]", texts.join(", "))
            }
            Self::Numbers(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
                format!("[{}]", numbers.join(", "))
            }
            Self::Row(row) => inline(row),
            Self::Rows(rows) => {
                let rows: Vec<String> = rows.iter().map(|row| format!("    {},\n", inline(row))).collect();
                format!("[\n{}]", rows.concat())
            }
        }
    }
}

fn inline(row: &Row) -> String {
    let cells: Vec<String> = row.iter().map(|(key, value)| format!("{key} = {}", value.toml())).collect();
    format!("{{ {} }}", cells.join(", "))
}

/// A table of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table(Row);

impl Table {
    /// A service of a kind.
    pub(crate) fn service(kind: &str) -> Self {
        Self::default().with("kind", Value::text(kind))
    }

    pub(crate) fn with(mut self, key: &'static str, value: Value) -> Self {
        self.set(key, value);
        self
    }

    /// Gives the service a name, which stands behind its kind.
    pub(crate) fn name(&mut self, name: impl ToString) {
        self.0.insert(1, ("name", Value::text(name)));
    }

    /// Gives `key` this value, in the place of one that it has.
    pub(crate) fn set(&mut self, key: &'static str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key, value)),
        }
    }

    /// The same, if there is one.
    pub(crate) fn set_if(&mut self, key: &'static str, value: Option<Value>) {
        value.into_iter().for_each(|value| self.set(key, value));
    }

    /// Adds rows to those of `key`, which is left out as long as there are none.
    pub(crate) fn add_rows(&mut self, key: &'static str, rows: impl IntoIterator<Item = Row>) {
        for row in rows {
            match self.0.iter_mut().find(|(known, _)| *known == key) {
                Some((_, Value::Rows(known))) => known.push(row),
                _ => self.set(key, Value::Rows(vec![row])),
            }
        }
    }

    fn write(&self, header: &str, text: &mut String) {
        if self.0.is_empty() {
            return;
        }
        let _ = writeln!(text, "\n{header}");
        for (key, value) in &self.0 {
            let _ = writeln!(text, "{key} = {}", value.toml());
        }
    }
}

/// A file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draft {
    pub(crate) gateway: Table,
    pub(crate) timeouts: Table,
    pub(crate) services: Vec<Table>,
    left: Vec<Left>,
}

impl Draft {
    /// Something is not carried.
    pub(crate) fn leave(&mut self, place: impl ToString, what: impl ToString, why: impl ToString) {
        self.left.push(Left { place: place.to_string(), what: what.to_string(), why: why.to_string() });
    }

    /// The file, which says where it comes from. What is left comes in the order of the lines, and what has none behind it.
    pub(crate) fn finish(mut self, origin: &str) -> Imported {
        self.left.sort_by_key(|left| line(&left.place).unwrap_or(usize::MAX));
        let mut toml = format!("# Made from {origin}. \"tombolo check -c FILE\" says what it means.\n");
        self.gateway.write("[gateway]", &mut toml);
        self.timeouts.write("[timeouts]", &mut toml);
        self.services.iter().for_each(|service| service.write("[[service]]", &mut toml));
        Imported { toml, left: self.left }
    }
}

/// The number in `line 7` and in `nftables[7]`.
fn line(place: &str) -> Option<usize> {
    let number = place.strip_prefix("line ").or_else(|| place.strip_prefix("nftables["))?;
    number.split(|end: char| !end.is_ascii_digit()).next()?.parse().ok()
}

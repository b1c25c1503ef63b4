//! How commands print what they have to say: for people, or for programs. One set of options for all of
//! them, errors included.

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use super::format::Format;
use super::print;

/// The options of all commands that print rows or an answer.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Output {
    /// How it is printed; with `json`, errors are JSON as well
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", default_value_t, hide_default_value = true)]
    output: Format,
    /// As `-o json`
    #[arg(long, global = true, conflicts_with_all = ["output", "csv"])]
    json: bool,
    /// As `-o csv`
    #[arg(long, global = true, conflicts_with = "output")]
    csv: bool,
}

impl Output {
    pub(crate) fn format(self) -> Format {
        match (self.json, self.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => self.output,
        }
    }

    /// Prints one answer. For people `words` do.
    pub(crate) fn answer(
        self,
        answer: &impl Serialize,
        words: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match self.format() {
            Format::Table => words(),
            Format::Json => print::json(answer),
            Format::Csv => {
                let mut facts = Map::new();
                flatten("", serde_json::to_value(answer)?, &mut facts);
                let names: Vec<&str> = facts.keys().map(String::as_str).collect();
                print::line(&csv_line(names.into_iter()))?;
                print::line(&csv_line(facts.values().map(plain).collect::<Vec<_>>().iter().map(String::as_str)))
            }
        }
    }

    /// Prints rows, which all have the same members or fewer. For people `words` says each.
    pub(crate) fn rows<T: Serialize>(self, rows: &[T], words: impl Fn(&T) -> anyhow::Result<()>) -> anyhow::Result<()> {
        match self.format() {
            Format::Table => rows.iter().try_for_each(words),
            Format::Json => rows.iter().try_for_each(|row| print::line(&serde_json::to_string(row)?)),
            Format::Csv => {
                let flat = |row| {
                    let mut facts = Map::new();
                    flatten("", serde_json::to_value(row)?, &mut facts);
                    Ok(facts)
                };
                let rows = rows.iter().map(flat).collect::<anyhow::Result<Vec<_>>>()?;
                let mut names: Vec<&str> = Vec::new();
                for name in rows.iter().flat_map(Map::keys) {
                    if !names.contains(&name.as_str()) {
                        names.push(name);
                    }
                }
                print::line(&csv_line(names.iter().copied()))?;
                rows.iter().try_for_each(|row| {
                    let cells: Vec<String> =
                        names.iter().map(|name| row.get(*name).map_or_else(String::new, plain)).collect();
                    print::line(&csv_line(cells.iter().map(String::as_str)))
                })
            }
        }
    }
}

/// Members of members, by names with dots. Lists stay what they are.
fn flatten(name: &str, value: Value, facts: &mut Map<String, Value>) {
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                let dot = if name.is_empty() { "" } else { "." };
                flatten(&format!("{name}{dot}{member}"), value, facts);
            }
        }
        value => drop(facts.insert(name.to_owned(), value)),
    }
}

/// A value without quotes.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// A line of comma-separated values, in quotes where they must be (RFC 4180).
pub(crate) fn csv_line<'t>(cells: impl Iterator<Item = &'t str>) -> String {
    let cell = |text: &str| match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    cells.map(cell).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_of_members_have_names_with_dots() {
        let mut facts = Map::new();
        flatten("", json!({ "a": 1, "b": { "c": [1, 2], "d": { "e": "x" } } }), &mut facts);
        assert_eq!(Value::Object(facts), json!({ "a": 1, "b.c": [1, 2], "b.d.e": "x" }));
    }

    #[test]
    fn values_are_quoted_where_they_must_be() {
        assert_eq!(csv_line(["a,b", "\"", "c"].into_iter()), "\"a,b\",\"\"\"\",c");
    }
}

//! Figures of a benchmark that has no gateway around it, as lines of a result file: what `tombolo
//! report --bars` reads.

use std::{io, path::Path};

use serde_json::json;

use crate::{machine::Machine, procedure::Bound, results::ResultFile, summary::Summary};

/// The argument that asks for a file.
const OPTION: &str = "--results";

/// A result file, if one is asked for.
#[derive(Debug)]
pub struct Figures(Option<ResultFile>);

/// One quantity with its repetitions.
#[derive(Clone, Copy, Debug)]
pub struct Figure<'a> {
    /// Whose.
    pub of: &'a str,
    /// What.
    pub quantity: &'a str,
    /// Of what.
    pub unit: &'a str,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// One for each repetition.
    pub values: &'a [f64],
    /// They are bounds of the quantity, and why.
    pub bound: Option<(Bound, &'a str)>,
}

impl Figures {
    /// Begins a run of `procedure` in the file that follows `--results` among the arguments of a
    /// benchmark, of which both are taken away.
    ///
    /// # Errors
    /// If the file cannot be written, or none follows.
    pub fn asked_for(arguments: &mut Vec<String>, procedure: &str, comparable: &str) -> io::Result<Figures> {
        let Some(place) = arguments.iter().position(|word| word == OPTION) else { return Ok(Figures(None)) };
        let asked = arguments.drain(place..(place + 2).min(arguments.len())).nth(1);
        let file = asked.ok_or_else(|| io::Error::other(format!("{OPTION} wants the name of a file")))?;
        let mut figures = Figures(Some(ResultFile::open(Path::new(&file))?));
        figures.line(&json!({
            "record": "run", "procedure": procedure, "machine": Machine::describe(&[]), "gateways": [],
            "comparable": comparable,
        }))?;
        Ok(figures)
    }

    /// Adds a line.
    ///
    /// # Errors
    /// As writing has them.
    pub fn add(&mut self, figure: &Figure<'_>) -> io::Result<()> {
        self.line(&json!({
            "record": "summary", "gateway": figure.of, "quantity": figure.quantity, "unit": figure.unit,
            "higher_is_better": figure.higher_is_better, "summary": Summary::of(figure.values),
            "bound": figure.bound.map(|(bound, _)| bound),
            "doubts": figure.bound.iter().map(|(_, why)| why).collect::<Vec<_>>(),
        }))
    }

    fn line(&mut self, line: &serde_json::Value) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), |file| file.write(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn figures_are_lines_of_the_file_that_is_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("new/figures.jsonl");
        let mut words = arguments(&["10", "--results", file.to_str().unwrap(), "100"]);
        let mut figures = Figures::asked_for(&mut words, "memory", "bytes").unwrap();
        assert_eq!(words, ["10", "100"]);
        let figure = Figure {
            of: "tables",
            quantity: "bytes",
            unit: "bytes",
            higher_is_better: false,
            values: &[20.0, 22.0, 21.0],
            bound: Some((Bound::AtMost, "half of it")),
        };
        figures.add(&figure).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["record"], &lines[0]["procedure"]), (&json!("run"), &json!("memory")));
        assert_eq!((&lines[1]["summary"]["median"], &lines[1]["bound"]), (&json!(21.0), &json!("at-most")));
        assert_eq!(lines[1]["doubts"], json!(["half of it"]));
    }

    #[test]
    fn without_a_file_nothing_is_written_and_without_a_name_nothing_begins() {
        let mut words = arguments(&["1", "10"]);
        assert!(Figures::asked_for(&mut words, "memory", "").unwrap().0.is_none());
        assert_eq!(words, ["1", "10"]);
        assert!(Figures::asked_for(&mut arguments(&["--results"]), "memory", "").is_err());
    }
}

//! Result files, read: lines of JSON, of which one says what was measured on what (`run`), one each
//! gateway, and one each summary. A line that nobody knows is left out, half a line at the end too:
//! a run that was interrupted is shown as far as it came.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file has no line of a run.
    #[error("{} is no result file: none of its lines says what was measured; `tombolo bench` writes such", path.display())]
    NoRun {
        /// The file.
        path: PathBuf,
    },
    /// A plot could not be drawn.
    #[error("cannot draw `{title}`: {why}")]
    Plot {
        /// Its title.
        title: String,
        /// What the library says.
        why: String,
    },
}

/// Everything that was measured, file after file.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The parts: a preset with its runs, or runs of one file.
    pub parts: Vec<Part>,
}

/// Runs that belong together.
#[derive(Clone, Debug)]
pub struct Part {
    /// The preset that they are of.
    pub preset: Option<Preset>,
    /// The file that they are from.
    pub file: String,
    /// The runs.
    pub runs: Vec<Run>,
}

/// What a preset says of itself and of what it stands beside.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// What it is, in a line.
    pub title: String,
    /// What was asked.
    pub asks: String,
    /// The form: quick or full.
    pub form: String,
    /// Where this run's method is another than the published one.
    pub deviations: Vec<String>,
    /// The published figures.
    pub published: Option<Published>,
}

/// Published figures; as the tester's data files have them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Published {
    /// Document, and table or figure.
    pub source: String,
    /// What it was measured on.
    pub hardware: String,
    /// What was measured.
    pub software: String,
    /// How.
    pub method: String,
    /// What a reader has to know of these figures.
    pub notes: Vec<String>,
    /// The tables.
    #[serde(rename = "table")]
    pub tables: Vec<PublishedTable>,
    /// Features, where the document has a list of them.
    #[serde(rename = "feature")]
    pub features: Vec<Feature>,
}

/// Published figures over one axis.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PublishedTable {
    /// Its title.
    pub title: String,
    /// What varies.
    pub axis: String,
    /// The points.
    pub at: Vec<u64>,
    /// One for each contender and quantity.
    pub series: Vec<PublishedSeries>,
}

/// One contender's published values.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PublishedSeries {
    /// Who.
    pub contender: String,
    /// What.
    pub quantity: String,
    /// Of what, after scaling.
    pub unit: String,
    /// What one of the printed values stands for.
    #[serde(default = "one")]
    pub scale: f64,
    /// One for each point, as printed.
    pub median: Vec<f64>,
    /// Smallest values, where printed.
    pub min: Vec<f64>,
    /// Largest values, where printed.
    pub max: Vec<f64>,
}

/// A feature, and which published programs have it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: String,
    /// By program.
    pub status: BTreeMap<String, String>,
}

/// One procedure with its gateways.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The procedure.
    pub procedure: String,
    /// The line that says what was asked, on what.
    pub asked: Value,
    /// What each gateway is and where it ran.
    pub gateways: Vec<Value>,
    /// What was found.
    pub rows: Vec<Row>,
    /// By gateway and quantity, the details of the last repetition.
    pub details: BTreeMap<(String, String), Value>,
    /// Gateways that could not be measured, and why.
    pub failures: Vec<(String, String)>,
    /// What gateways do to frames that they should not.
    pub deviations: Vec<(String, String)>,
    /// What the machine did to the trials, by gateway and repetition.
    pub tallies: BTreeMap<(String, u64), Tally>,
    /// Features that were tried, by gateway.
    pub features: Vec<Tried>,
}

/// What the machine did to the trials of a gateway.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Tally {
    /// Trials.
    pub trials: u64,
    /// Of which invalid.
    pub invalid: u64,
    /// Longest pause of the sending core, microseconds.
    pub longest_pause_us: f64,
}

/// One feature of one gateway, tried.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Tried {
    /// Who.
    pub gateway: String,
    /// What.
    pub feature: String,
    /// Whether it works; absent where it could not be tried.
    pub works: Option<bool>,
    /// How it was tried, or what was seen instead.
    pub how: String,
}

/// A bound instead of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The true value is this or more.
    AtLeast,
    /// The true value is this or less.
    AtMost,
    /// It may be either.
    Unknown,
}

impl Bound {
    /// The sign before the value.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Bound::AtLeast => "\u{2265} ",
            Bound::AtMost => "\u{2264} ",
            Bound::Unknown => "? ",
        }
    }
}

/// Median and range.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Summary {
    /// Values.
    pub count: usize,
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// Where on an axis a value stands.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Point {
    /// The quantity, whichever the point.
    pub quantity: String,
    /// What varies.
    pub axis: String,
    /// How much of it.
    pub at: u64,
}

/// All repetitions of one quantity of one gateway.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Row {
    /// Who.
    pub gateway: String,
    /// What.
    pub quantity: String,
    /// Of what.
    pub unit: String,
    /// Where it stands among others of its kind.
    #[serde(default)]
    pub point: Option<Point>,
    /// Whether more is better.
    #[serde(default = "yes")]
    pub higher_is_better: bool,
    /// Median and range; absent where no repetition has a value.
    pub summary: Option<Summary>,
    /// Repetitions without a value.
    #[serde(default)]
    pub missing: usize,
    /// The values are bounds.
    #[serde(default)]
    pub bound: Option<Bound>,
    /// Ratio to the first gateway, within repetitions.
    #[serde(default)]
    pub ratio: Option<Summary>,
    /// The ratios are bounds.
    #[serde(default)]
    pub ratio_bound: Option<Bound>,
    /// Why values are bounds, missing, or not all that their name says.
    #[serde(default)]
    pub doubts: Vec<String>,
}

fn one() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

impl Results {
    /// Reads the files, in this order.
    ///
    /// # Errors
    /// [`ReportError`] where one cannot be read or holds no run.
    pub fn read(files: &[PathBuf]) -> Result<Results, ReportError> {
        let mut results = Results::default();
        for path in files {
            let text =
                fs::read_to_string(path).map_err(|source| ReportError::Unreadable { path: path.clone(), source })?;
            let parts = parts_of(path, &text);
            if parts.iter().all(|part| part.runs.is_empty()) {
                return Err(ReportError::NoRun { path: path.clone() });
            }
            results.parts.extend(parts);
        }
        Ok(results)
    }

    /// All runs.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.parts.iter().flat_map(|part| &part.runs)
    }
}

fn parts_of(path: &Path, text: &str) -> Vec<Part> {
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut parts: Vec<Part> = Vec::new();
    for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        match line["record"].as_str() {
            Some("preset") => {
                let preset = serde_json::from_value(line).unwrap_or_default();
                parts.push(Part { preset: Some(preset), file: file.clone(), runs: Vec::new() });
            }
            Some("run") => {
                if parts.is_empty() {
                    parts.push(Part { preset: None, file: file.clone(), runs: Vec::new() });
                }
                if let Some(part) = parts.last_mut() {
                    let procedure = word(&line, "procedure");
                    part.runs.push(Run { procedure, asked: line, ..Run::default() });
                }
            }
            Some(record) => {
                if let Some(run) = parts.last_mut().and_then(|part| part.runs.last_mut()) {
                    run.take(record, &line);
                }
            }
            None => {}
        }
    }
    parts.into_iter().map(merged).collect()
}

/// A run that was resumed is one run: what comes later holds what came before.
fn merged(part: Part) -> Part {
    let mut runs: Vec<Run> = Vec::new();
    for run in part.runs {
        let same = |earlier: &Run| {
            earlier.procedure == run.procedure
                && earlier.asked["parameters"] == run.asked["parameters"]
                && earlier.asked["gateways"] == run.asked["gateways"]
                && earlier.rows.is_empty()
                && earlier.failures.is_empty()
        };
        match runs.pop_if(|earlier| same(earlier) && !run.asked["parameters"].is_null()) {
            Some(earlier) => {
                let mut details = earlier.details;
                details.extend(run.details.clone());
                runs.push(Run { details, ..run });
            }
            None => runs.push(run),
        }
    }
    Part { runs, ..part }
}

impl Run {
    fn take(&mut self, record: &str, line: &Value) {
        match record {
            "gateway" => self.gateways.push(line.clone()),
            "summary" => self.rows.extend(serde_json::from_value::<Row>(line.clone())),
            "result" => self.take_result(line),
            "failure" => self.failures.push((word(line, "gateway"), word(line, "error"))),
            "feature" => self.features.extend(serde_json::from_value::<Tried>(line.clone())),
            _ => {}
        }
    }

    fn take_result(&mut self, line: &Value) {
        let gateway = word(line, "gateway");
        self.details.insert((gateway.clone(), word(line, "quantity")), line["details"].clone());
        if let (Some(repetition), Ok(tally)) =
            (line["repetition"].as_u64(), serde_json::from_value(line["tally"].clone()))
        {
            self.tallies.insert((gateway.clone(), repetition), tally);
        }
        for said in line["deviations"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let deviation = (gateway.clone(), said.to_owned());
            if !self.deviations.contains(&deviation) {
                self.deviations.push(deviation);
            }
        }
    }

    /// Trials of a gateway over all repetitions, and its longest pause.
    #[must_use]
    pub fn tally(&self, gateway: &str) -> Option<Tally> {
        let own = self.tallies.iter().filter(|((name, _), _)| name == gateway).map(|(_, tally)| *tally);
        own.reduce(|one, other| Tally {
            trials: one.trials + other.trials,
            invalid: one.invalid + other.invalid,
            longest_pause_us: one.longest_pause_us.max(other.longest_pause_us),
        })
    }

    /// The gateways that have values, in the order in which they were measured.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for row in &self.rows {
            if !names.contains(&row.gateway) {
                names.push(row.gateway.clone());
            }
        }
        names
    }

    /// Bytes of a frame, where they were asked for.
    #[must_use]
    pub fn frame_bytes(&self) -> Option<u64> {
        self.asked["parameters"]["frame_bytes"].as_str()?.parse().ok()
    }
}

/// A text of a line; empty where it is not there.
pub(crate) fn word(line: &Value, key: &str) -> String {
    line[key].as_str().unwrap_or_default().to_owned()
}

//! `tombolo check`: validates a configuration and prints the plan that it becomes.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};
use tombolo_config::Configuration;
use tombolo_engine::description::{Description, Fact};

use super::output::Output;
use super::print;

/// Items of a list that the text names; JSON has all of them.
const ITEMS_PRINTED: usize = 5;

/// The configuration file.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Configuration file (TOML)
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    pub(super) output: Output,
}

#[derive(Serialize)]
struct Report {
    device: String,
    run_directory: Option<PathBuf>,
    capacity: Capacity,
    services: Vec<Service>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Capacity {
    subscribers: u32,
    bindings: u32,
    sessions: u64,
    outside_endpoints: u32,
    megabytes_when_full: u64,
}

#[derive(Serialize)]
struct Service {
    name: String,
    kind: &'static str,
    #[serde(flatten)]
    facts: Map<String, Value>,
}

/// Validates, and prints the plan.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let report = Report::of(&tombolo_config::load(&arguments.config)?);
    arguments.output.answer(&report, || print_tables(&report))
}

fn print_tables(report: &Report) -> anyhow::Result<()> {
    for warning in &report.warnings {
        print::line(&format!("warning: {warning}"))?;
    }
    for Service { name, kind, facts } in &report.services {
        print::line(&format!("{name} ({kind})"))?;
        for (name, value) in facts.iter().filter(|(_, value)| !is_empty(value)) {
            print::line(&format!("  {}: {}", name.replace('_', " "), words(value)))?;
        }
    }
    let Capacity { subscribers, bindings, sessions, outside_endpoints, megabytes_when_full } = report.capacity;
    print::line(&format!(
        "room for {subscribers} subscribers, {bindings} bindings, {sessions} sessions, {outside_endpoints} outside \
         endpoints: {megabytes_when_full} MB when full"
    ))?;
    let kept = report.run_directory.as_ref().map(|path| path.display().to_string());
    print::line(&format!("device {}, state kept in {}", report.device, kept.as_deref().unwrap_or("the process")))
}

/// Nothing to be said in words.
fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// A value for people.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(is_on) => if *is_on { "yes" } else { "no" }.into(),
        Value::Array(items) => {
            let more = if items.len() > ITEMS_PRINTED { ", ..." } else { "" };
            let first: Vec<_> = items.iter().take(ITEMS_PRINTED).map(words).collect();
            format!("{}{more}", first.join(", "))
        }
        Value::Object(facts) => {
            let pairs: Vec<_> =
                facts.iter().map(|(name, value)| format!("{} {}", name.replace('_', " "), words(value))).collect();
            pairs.join("; ")
        }
        other => other.to_string(),
    }
}

impl Report {
    fn of(configuration: &Configuration) -> Self {
        let capacity = configuration.plan.capacity;
        Self {
            device: configuration.host.device.clone(),
            run_directory: configuration.host.run_directory.clone(),
            capacity: Capacity {
                subscribers: capacity.subscribers,
                bindings: capacity.bindings,
                sessions: capacity.sessions,
                outside_endpoints: capacity.outside_slots,
                megabytes_when_full: capacity.bytes().div_ceil(1_000_000),
            },
            services: configuration.plan.services.iter().map(Service::of).collect(),
            warnings: configuration.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Service {
    fn of(service: &tombolo_engine::plan::Service) -> Self {
        Self { name: service.name.clone(), kind: service.kind.name(), facts: record(&service.kind.describe()) }
    }
}

fn record(description: &Description) -> Map<String, Value> {
    description.facts().map(|(name, fact)| (name.to_owned(), value(fact))).collect()
}

fn value(fact: &Fact) -> Value {
    match fact {
        Fact::None => Value::Null,
        Fact::Text(text) => Value::String(text.clone()),
        Fact::Number(number) => (*number).into(),
        Fact::Switch(is_on) => Value::Bool(*is_on),
        Fact::List(items) => Value::Array(items.iter().map(value).collect()),
        Fact::Record(facts) => Value::Object(record(facts)),
    }
}

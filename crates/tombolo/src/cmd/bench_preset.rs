//! `tombolo bench preset`: the published tables and figures, measured again.

use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde_json::json;
use tombolo_report::{Results, markdown};
use tombolo_tester::{
    bench::BenchError,
    preset::{self, Form, Preset, Rates, Setup},
    results::ResultFile,
};

use super::bench_progress::Live;
use super::print;

/// Arguments of `tombolo bench preset`.
#[derive(Debug, Args)]
#[command(after_help = "\
The quick form is scaled to this machine, takes minutes, and is not comparable with what was published; the full one has the published\n\
numbers of connections and lengths of trials. Each result stands beside the published one, with the ratio to plain forwarding on both\n\
sides; what differs in method is named. `tombolo report FILE` makes a page of it.")]
pub(crate) struct Arguments {
    /// The presets; `all` for all of them
    #[arg(value_name = "NAME", required_unless_present = "list")]
    names: Vec<String>,
    /// What presets there are, and what time, memory and cores each form takes
    #[arg(long, conflicts_with = "names")]
    list: bool,
    /// Some minutes on two cores (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// As published: hours to weeks
    #[arg(long)]
    full: bool,
    /// Directory of the result files, one each preset: NAME-quick.jsonl
    #[arg(long, short, value_name = "DIRECTORY", default_value = "results")]
    output: PathBuf,
    /// JSON instead of a table, of --list
    #[arg(long, requires = "list")]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.list {
        return list(arguments);
    }
    let form = if arguments.full { Form::Full } else { Form::Quick };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let setup =
        Setup { tombolo: std::env::current_exe().context("cannot find the program that is running")?, processors };
    let rates = Rates::in_directory(&arguments.output);
    let mut failures = Vec::new();
    for preset in chosen(&arguments.names)? {
        eprintln!("{}: {}; about {}", preset.name, preset.title, preset.needs(form, gateway_cores(processors), &rates));
        failures.extend(one(preset, form, &setup, arguments)?);
    }
    match failures.first() {
        Some((gateway, error)) => bail!("{} measurements have no result; {gateway}: {error}", failures.len()),
        None => Ok(()),
    }
}

/// The tester has one core, the gateway the others.
fn gateway_cores(processors: usize) -> usize {
    processors.saturating_sub(1).max(1)
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Preset>> {
    if names.iter().any(|name| name == "all") {
        return Ok(preset::list::ALL.iter().collect());
    }
    let known = || preset::list::ALL.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ");
    names
        .iter()
        .map(|name| preset::named(name).with_context(|| format!("no preset is called `{name}`; there are {}", known())))
        .collect()
}

/// Measures one anew, and prints it beside what was published.
fn one(preset: &Preset, form: Form, setup: &Setup, arguments: &Arguments) -> anyhow::Result<Vec<(String, String)>> {
    let file = arguments.output.join(format!("{}-{}.jsonl", preset.name, form.name()));
    if file.exists() {
        std::fs::remove_file(&file).with_context(|| format!("cannot replace {}", file.display()))?;
    }
    let mut results =
        ResultFile::open(&file).with_context(|| format!("cannot open the result file {}", file.display()))?;
    let mut progress = Live::new();
    let outcome = preset.run(form, setup, &mut results, &mut progress);
    progress.clear();
    let outcome = match outcome {
        Err(BenchError::Interrupted) => bail!("interrupted; what was measured is in {}", file.display()),
        other => other?,
    };
    let measured = Results::read(std::slice::from_ref(&file));
    if let (Err(_), Some((_, why))) = (&measured, outcome.failures.first()) {
        bail!("nothing was measured: {why}");
    }
    let page = tombolo_report::document(&measured?, preset.title)?;
    let (text, _) = markdown::page(&page, preset.name);
    ensure!(!text.is_empty(), "there is nothing to show");
    // Drawings are for pages.
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("![")).collect();
    print::line(&lines.join("\n"))?;
    print::line(&format!("\nevery trial and the machine: {}", file.display()))?;
    Ok(outcome.failures)
}

fn list(arguments: &Arguments) -> anyhow::Result<()> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = gateway_cores(processors);
    let rates = Rates::in_directory(&arguments.output);
    let needs = |preset: &Preset, form| preset.needs(form, cores, &rates);
    if arguments.json {
        let all: Vec<_> = preset::list::ALL
            .iter()
            .map(|preset| {
                json!({ "name": preset.name, "title": preset.title, "asks": preset.asks,
                    "quick": needs(preset, Form::Quick), "full": needs(preset, Form::Full) })
            })
            .collect();
        return print::json(&all);
    }
    let mut table = print::table(&["preset", "what", "quick", "full"]);
    for preset in preset::list::ALL {
        let [quick, full] = [Form::Quick, Form::Full].map(|form| needs(preset, form).to_string());
        table.add_row([preset.name.to_owned(), preset.title.to_owned(), quick, full]);
    }
    print::line(&table.to_string())?;
    print::line(&format!(
        "time on this machine with {processors} processors, memory, and processors that the published figures had; rates of connections are\n\
         those of the quick results in {}, where there are any",
        arguments.output.display()
    ))
}

//! What it was measured on, how, and what is to be known of the values.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::document::Document;
use crate::number;
use crate::results::{Results, Run, word};

/// The machines, each once.
pub(super) fn machines(page: &mut Document, results: &Results) {
    let mut shown: Vec<Vec<(String, String)>> = Vec::new();
    for run in results.runs().filter(|run| run.asked["machine"].is_object()) {
        let facts = machine(&run.asked["machine"]);
        if !shown.contains(&facts) {
            shown.push(facts);
        }
    }
    shown.into_iter().for_each(|facts| page.facts(facts));
}

fn machine(machine: &Value) -> Vec<(String, String)> {
    let virtual_machine = if machine["virtual_machine"] == true { ", a virtual machine" } else { "" };
    let gibibytes = machine["memory_kib"].as_f64().unwrap_or_default() / 1024.0 / 1024.0;
    let cpus = machine["cpus"].as_u64().unwrap_or_default();
    let fact = |name: &str, what: String| (name.to_owned(), what);
    let mut facts = vec![
        fact("Processor", format!("{}, {cpus} of its threads{virtual_machine}", word(machine, "cpu"))),
        fact("Memory", format!("{gibibytes:.1} GiB")),
        fact("System", format!("{}, Linux {}", word(machine, "system"), word(machine, "kernel"))),
    ];
    facts.push(fact(
        "Mitigations",
        match machine["mitigations"].as_object() {
            Some(all) if all.is_empty() => "the kernel names no weakness of this processor".to_owned(),
            Some(all) => all
                .iter()
                .map(|(name, said)| format!("{name}: {}", said.as_str().unwrap_or_default()))
                .collect::<Vec<_>>()
                .join("; "),
            None => "not recorded".to_owned(),
        },
    ));
    facts
}

/// What marks mean.
pub(super) fn marks() -> Vec<String> {
    [
        "Values are medians of the repetitions; bars and brackets go from the smallest to the largest value.",
        "\u{2265}, \u{2264}: a bound; the true value is that or more, or less. ?: it may be either.",
        "*: the value is not all that its name says, or there is none (\u{2013}); the notes below the table say why.",
        "Ratios are taken within repetitions, which measure one gateway after the other, so that the drift of the machine meets all alike.",
        "Published figures are hollow, dashed and in italics. They are from another machine: compare shapes and ratios, not heights.",
    ]
    .map(str::to_owned)
    .to_vec()
}

pub(super) fn heading(run: &Run) -> String {
    let technologies = run.gateways.iter().filter_map(|gateway| gateway["technology"].as_str());
    let technologies: BTreeSet<&str> = technologies.filter(|name| !name.starts_with("forward")).collect();
    let technology = technologies.first().filter(|_| technologies.len() == 1);
    let technology = technology.map_or_else(String::new, |technology| format!(", {technology}"));
    let bytes = run.frame_bytes().map_or_else(String::new, |bytes| format!(", frames of {bytes} bytes"));
    let over = if run.asked["over_frame_sizes"] == true { ", over the length of frames" } else { "" };
    format!("{}{technology}{bytes}{over}", run.procedure)
}

/// What was asked, in sentences.
pub(super) fn describe(page: &mut Document, run: &Run) {
    let asked = &run.asked;
    let effort = if asked["effort"].is_object() { &asked["effort"] } else { &asked["parameters"]["effort"] };
    let mut sentences = Vec::new();
    if let (Some(seconds), Some(repetitions)) = (effort["trial_seconds"].as_f64(), effort["repetitions"].as_u64()) {
        let percent = effort["resolution"].as_f64().unwrap_or_default() * 100.0;
        sentences.push(format!(
            "{} form: {repetitions} repetitions, trials of {seconds} s, searches end within {percent} % of the value found.",
            capital(&word(effort, "form"))
        ));
    }
    if let Some(seconds) = asked["seconds"].as_u64() {
        let (rounds, warm_up) = (&asked["rounds"], &asked["warm_up_seconds"]);
        sentences.push(format!(
            "{rounds} rounds of {seconds} s after {warm_up} s of warm-up; {}; {}.",
            word(asked, "link"),
            word(asked, "order")
        ));
    }
    if let Some(comparable) = asked["comparable"].as_str() {
        sentences.push(match comparable.strip_prefix("no: ") {
            Some(why) => format!("Not comparable with published figures: {why}."),
            None => format!("{}.", capital(comparable)),
        });
    }
    if let (Some(sending), Some(gateway)) = (cores(&asked["sending_cores"]), cores(&asked["gateway_cores"])) {
        let sharing = if asked["sharing"] == "together" { ", shared with the tester" } else { "" };
        sentences.push(format!("The tester sends on core {sending}, the gateway has {gateway}{sharing}."));
    }
    if let Some(rate) = asked["tester_self_test"]["highest_rate"].as_f64() {
        let unit = if run.procedure == "dns64" { "queries/s" } else { "frames/s" };
        sentences.push(format!("The tester itself reaches {}.", number::with_unit(rate, unit)));
    }
    let tuples = run.gateways.iter().filter_map(|gateway| gateway["tuples"].as_u64()).max();
    if let Some(tuples) = tuples {
        sentences.push(format!("{} four tuples.", number::count(tuples as f64)));
    }
    if !sentences.is_empty() {
        page.text(sentences.join(" "));
    }
    let versions = run.gateways.iter().filter_map(|gateway| {
        let version = gateway["description"]["version"].as_str()?;
        // Files of before had them with every gateway of a run.
        let is_ours = word(gateway, "gateway").starts_with("tombolo");
        let settings = gateway["description"]["settings"].as_str().filter(|_| is_ours).unwrap_or_default().trim();
        let settings = if settings.is_empty() { String::new() } else { format!(" ({settings})") };
        Some(format!("{}: {version}{settings}", word(gateway, "gateway")))
    });
    let versions: Vec<String> = versions.collect();
    if !versions.is_empty() {
        page.text(format!("Gateways: {}.", versions.join("; ")));
    }
}

fn cores(value: &Value) -> Option<String> {
    let list: Vec<String> = value.as_array()?.iter().map(Value::to_string).collect();
    (!list.is_empty()).then(|| list.join(", "))
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Every reason for a mark, every gateway that could not be measured, and what the machine did.
pub(super) fn footnotes(run: &Run) -> Vec<String> {
    let mut notes = Vec::new();
    for row in run.rows.iter().filter(|row| !row.doubts.is_empty()) {
        notes.push(format!("* {}, {}: {}.", row.gateway, row.quantity, row.doubts.join("; ")));
    }
    notes.extend(run.failures.iter().map(|(gateway, error)| format!("{gateway} could not be measured: {error}.")));
    if run.rows.is_empty() && run.features.is_empty() && run.failures.is_empty() {
        notes.push("This run was interrupted before its end: it has no summary.".to_owned());
    }
    notes.extend(run.deviations.iter().map(|(gateway, deviation)| format!("{gateway}: {deviation}.")));
    for gateway in run.names() {
        let Some(tally) = run.tally(&gateway).filter(|tally| tally.invalid > 0) else { continue };
        notes.push(format!(
            "{gateway}: {} of {} trials were invalid and repeated; the longest pause of the sending core was {:.1} ms.",
            tally.invalid,
            tally.trials,
            tally.longest_pause_us / 1000.0
        ));
    }
    notes
}

//! `tombolo lab soak cluster`: its table.

use anyhow::bail;

use super::print;
use crate::cluster_soak::{self, Report, Seen};

/// Runs the soak for `seconds` and prints what came of it.
pub(crate) fn run(seconds: u64, seed: u64, json: bool) -> anyhow::Result<()> {
    let progress = print::Progress::new(usize::try_from(seconds).unwrap_or(usize::MAX));
    let advance = |elapsed, fault: &str| progress.advance(usize::try_from(elapsed).unwrap_or(0), fault);
    let report = cluster_soak::run(seconds, seed, advance);
    drop(progress);
    let report = report?;
    print::report(&report, json, in_words)?;
    match report.failures.first() {
        Some(first) => bail!("{} things are not as they should be; the first: {first}", report.failures.len()),
        None => Ok(()),
    }
}

fn in_words(report: &Report) -> String {
    let header = ["fault", "times", "known hosts silent, ms", "over TCP, ms", "mended until protected, ms"];
    let mut table = print::table(&header);
    for (fault, Seen { times, silence_ms, tcp_silence_ms, protected_ms }) in &report.faults {
        let numbers =
            [u128::from(*times), *silence_ms, *tcp_silence_ms, *protected_ms].map(|number| number.to_string());
        table.add_row([&[(*fault).to_owned()][..], &numbers].concat());
    }
    let [served, refused] = report.guests;
    let [begin, end] = report.epochs;
    let failures: String = report.failures.iter().map(|failure| format!("\nFAILED: {failure}")).collect();
    let history: String = report.history.iter().map(|written| format!("\nin etcd: {written}")).collect();
    format!(
        "{table}\n{} s, seed {}; guests: {served} served at once, {refused} not; slices have changed hands {} times; {} claims of blocks in the \
         logs and {} endpoints in the tables of all nodes{history}{failures}",
        report.seconds,
        report.seed,
        end.saturating_sub(begin),
        report.claims,
        report.endpoints
    )
}

//! `tombolo lab soak`: the soak's table.

use anyhow::bail;

use super::print;
use crate::soak::{self, Report};

/// Runs the soak for `seconds` and prints what came of it.
pub(crate) fn run(seconds: u64, json: bool) -> anyhow::Result<()> {
    let progress = print::Progress::new(usize::try_from(seconds).unwrap_or(usize::MAX));
    let report = soak::run(seconds, |elapsed, phase| progress.advance(usize::try_from(elapsed).unwrap_or(0), phase));
    drop(progress);
    let report = report?;
    print::report(&report, json, in_words)?;
    if report.failures.is_empty() {
        return Ok(());
    }
    bail!("{} things are not as they should be; the first: {}", report.failures.len(), report.failures[0])
}

fn in_words(report: &Report) -> String {
    let traffic = &report.traffic;
    let mut table = print::table(&["what", "how much"]);
    let pair = |[done, not]: [u64; 2]| format!("{done}, and {not} not answered");
    for (what, how_much) in [
        ("seconds", report.seconds.to_string()),
        ("kills and restarts", report.kills.to_string()),
        ("slowest start, ms", report.slowest_start_ms.to_string()),
        ("answers of steady flows", traffic.steady_answers.to_string()),
        ("short flows", pair(traffic.short_flows)),
        ("answers in fragments", traffic.large_answers.to_string()),
        ("TCP connections", pair(traffic.connections)),
        ("silent connections that lived", traffic.silent_connections.to_string()),
        ("scanned ports", traffic.scans.to_string()),
        ("packets of floods, one host and many", format!("{}, {}", traffic.floods[0], traffic.floods[1])),
        ("private memory, kB", format!("{} to {}", report.private_kb[0], report.private_kb[1])),
        ("subscribers in the end", report.aftermath.subscribers.to_string()),
        ("bindings in the end", report.aftermath.bindings.to_string()),
        ("sessions in the end", report.aftermath.sessions.to_string()),
    ] {
        table.add_row([what, &how_much]);
    }
    for (reason, count) in &report.aftermath.dropped {
        table.add_row([&format!("dropped: {reason}"), &count.to_string()]);
    }
    let mut phases = print::table(&[
        "phase",
        "packets or times",
        "datagrams of old flows",
        "lost",
        "dropped by links",
        "exchanges of old connections",
        "new flows",
        "not opened",
        "back after, ms",
    ]);
    for seen in &report.phases {
        let numbers =
            [seen.acts, seen.asked, seen.lost, seen.dropped_by_links, seen.exchanges, seen.opened, seen.refused];
        let back = seen.back_after_ms.map_or_else(String::new, |ms| ms.to_string());
        phases.add_row([&[seen.name.to_owned()][..], &numbers.map(|n| n.to_string()), &[back]].concat());
    }
    let failures: String = report.failures.iter().map(|failure| format!("\nFAILED: {failure}")).collect();
    format!("{phases}\n\n{table}{failures}")
}

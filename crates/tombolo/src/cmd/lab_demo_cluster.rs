//! `tombolo lab demo cluster`: its table.

use anyhow::bail;

use super::print;
use crate::cluster_demo::{self, Phase, Report, STEPS};

/// Shows how a cluster loses a node.
pub(crate) fn run(json: bool) -> anyhow::Result<()> {
    let progress = print::Progress::new(STEPS);
    let report = cluster_demo::run(|done, what| progress.advance(done, what));
    drop(progress);
    let report = report?;
    print::report(&report, json, in_words)?;
    match report.failures().first() {
        Some(first) => bail!("{first}"),
        None => Ok(()),
    }
}

fn in_words(report: &Report) -> String {
    let mut table = print::table(&[
        "when",
        "what happens",
        "known hosts silent",
        "over TCP, hosts and server",
        "connections",
        "new hosts wait",
        "slices owned",
        "state",
    ]);
    for phase in &report.phases {
        table.add_row(row(phase));
    }
    format!(
        "{table}\n{} of three nodes lost its power under the load of a host of each of {} slices; {:.0} s in all\n\
         Next:  tombolo lab up cluster    the same boxes, to play with    docs/cluster.md    what is promised",
        report.killed, report.slices, report.seconds
    )
}

fn row(phase: &Phase) -> [String; 8] {
    let Phase { silence_ms, lost, tcp_silence_ms: [hosts, server], connections: [alive, all], acting, .. } = phase;
    let owners: Vec<String> = phase.owners.iter().map(|(node, slices)| format!("{node}: {slices}")).collect();
    let acting = if *acting == 0 { String::new() } else { format!("; {acting} by their backups") };
    [
        phase.phase.to_owned(),
        phase.what.to_owned(),
        if *lost == 0 { "not at all".to_owned() } else { format!("{silence_ms} ms ({lost} lost)") },
        format!("{hosts} and {server} ms"),
        format!("{alive} of {all} live"),
        phase.new_hosts_wait_ms.map_or_else(String::new, |wait| format!("{wait} ms")),
        owners.join(", "),
        format!("{}{acting}", phase.state),
    ]
}

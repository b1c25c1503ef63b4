//! `tombolo log`: the log of bindings, as it lies there.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use tombolo_daemon::binding_log::verify::{Verdict, Verifier};

use super::output::Output;
use super::print;

/// Arguments of `tombolo log`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    pub(super) output: Output,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Whether no line was changed, removed or inserted since it was written, by number and hash
    Verify {
        /// Files of one log, the oldest first
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

/// Looks at the files of a log. An error if something is wrong with them.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let What::Verify { files } = &arguments.what;
    let mut verifier = Verifier::default();
    for path in files {
        let read = File::open(path)
            .and_then(|file| verifier.file(&path.display().to_string(), BufReader::with_capacity(1 << 16, file)));
        read.with_context(|| format!("{} cannot be read", path.display()))?;
    }
    let verdict = verifier.verdict();
    arguments.output.answer(&verdict, || print::line(&in_words(&verdict)))?;
    anyhow::ensure!(verdict.lines > 0, "there are no lines of a log");
    anyhow::ensure!(verdict.wrong == 0, "the log is not as it was written");
    Ok(())
}

fn in_words(verdict: &Verdict) -> String {
    let Verdict { lines, first, last, chain, lost, starts, torn, faults, wrong } = verdict;
    let mut text: Vec<String> =
        faults.iter().map(|fault| format!("{}:{}: {}", fault.file, fault.line, fault.what)).collect();
    let more = wrong.saturating_sub(faults.len() as u64);
    text.extend((more > 0).then(|| format!("and {more} more")));
    let number = |number: &Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    text.push(format!("{lines} lines, numbers {} to {}, of {starts} starts", number(first), number(last)));
    text.extend((*lost > 0).then(|| format!("{lost} events are not in it, as it says itself")));
    text.extend((*torn > 0).then(|| format!("{torn} lines were not completed by gateways that ended within them")));
    text.extend(chain.as_ref().map(|hash| format!("hash of the last line: {hash}")));
    if *wrong == 0 {
        text.push("whole: nothing was changed, removed or inserted after the first line".to_owned());
    }
    text.join("\n")
}

//! `tombolo bench matrix`: every technology by every procedure that applies to it.

use std::{fs, path::PathBuf, time::SystemTime};

use anyhow::{Context as _, bail};
use clap::Args;
use tombolo_tester::{
    bench::BenchError,
    gateway::{Spec, Technology},
    machine::Machine,
    matrix::MatrixPlan,
    procedure::packet::Procedure,
    results::ResultFile,
    series::SeriesPlan,
};

use super::bench_matrix_page::{in_a_table, in_markdown, notes, page};
use super::bench_progress::Live;
use super::print;

/// Arguments of `tombolo bench matrix`.
#[derive(Debug, Args)]
#[command(after_help = "\
A cell is the first value of its procedure, measured once, in a form that is shorter than --quick: a survey of what\n\
works and of the order of size, and no figures to quote. -: no value (the line below the table says why); n/a: the\n\
procedure is about connections, and the technology keeps none.")]
pub(crate) struct Arguments {
    /// The gateways; each is measured as all of the technologies that it does
    #[arg(long, value_name = "GATEWAY", num_args = 1.., value_delimiter = ' ', default_value = "tombolo:tc")]
    dut: Vec<Spec>,
    /// The technologies [default: all, without plain forwarding]
    #[arg(long, value_name = "TECHNOLOGY", value_delimiter = ',')]
    technologies: Vec<Technology>,
    /// The procedures [default: all]
    #[arg(long, value_name = "PROCEDURE", value_delimiter = ',')]
    procedures: Vec<Procedure>,
    /// Settings for tombolo's configuration, before its service
    #[arg(long, value_name = "TOML", default_value = "")]
    settings: String,
    /// Result file (JSON Lines), appended to
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the table as Markdown
    #[arg(long)]
    markdown: bool,
    /// Write a page for documents as well: the tables, the machine, and why cells are empty
    #[arg(long, value_name = "FILE.md")]
    page: Option<PathBuf>,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let output = arguments.output.clone().unwrap_or_else(default_output);
    let (markdown, document) = (arguments.markdown, arguments.page.clone());
    let plan = arguments.plan()?;
    let mut results =
        ResultFile::open(&output).with_context(|| format!("cannot open the result file {}", output.display()))?;
    let mut progress = Live::new();
    let rows = plan.run(&mut results, &mut progress);
    progress.clear();
    let rows = match rows {
        Err(BenchError::Interrupted) => bail!("interrupted; what was measured is in {}", output.display()),
        other => other?,
    };
    let columns: Vec<Procedure> = plan.procedures;
    if let Some(file) = document {
        let text = page(&columns, &rows, &Machine::describe(&[]));
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    print::line(&if markdown { in_markdown(&columns, &rows) } else { in_a_table(&columns, &rows) })?;
    print::line(&notes(&rows))?;
    print::line(&format!("every trial and the machine: {}", output.display()))
}

impl Arguments {
    fn plan(self) -> anyhow::Result<MatrixPlan> {
        let forwards = |technology: &Technology| matches!(technology, Technology::Forward4 | Technology::Forward6);
        let or_all = |chosen: Vec<Technology>| match chosen.is_empty() {
            true => Technology::ALL.into_iter().filter(|technology| !forwards(technology)).collect(),
            false => chosen,
        };
        let tombolo = std::env::current_exe().context("cannot find the program that is running")?;
        let base = SeriesPlan {
            settings: self.settings,
            ..SeriesPlan::new(Procedure::Throughput, self.dut, MatrixPlan::EFFORT, tombolo)
        };
        let procedures = if self.procedures.is_empty() { Procedure::ALL.to_vec() } else { self.procedures };
        Ok(MatrixPlan { base, technologies: or_all(self.technologies), procedures })
    }
}

fn default_output() -> PathBuf {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    format!("results/matrix-{}.jsonl", now.map_or(0, |since| since.as_secs())).into()
}

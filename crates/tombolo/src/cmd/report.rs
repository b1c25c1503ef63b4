//! `tombolo report`: result files as one page, and two of them side by side.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use tombolo_report::{
    Comparison, Results, bars, compare, compare::Finding, document::Document, drawings, html, markdown, plot,
};

use super::print;

/// Arguments of `tombolo report`.
#[derive(Debug, Args)]
#[command(after_help = "\
The page needs nothing beside it: no scripts, no style sheets, no network. Markdown has its drawings in files beside it.\n\
What differs between two files is compared by the ratios to the first gateway where both have them; where ranges meet, nothing is claimed.")]
pub(crate) struct Arguments {
    /// Result files that `tombolo bench` has written
    #[arg(value_name = "RESULTS", required_unless_present = "compare", conflicts_with = "compare")]
    results: Vec<PathBuf>,
    /// What became slower, what faster, and what is too close to tell
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"])]
    compare: Option<Vec<PathBuf>>,
    /// The speeds that the design asks for, judged with their spread: met, not met, within the
    /// spread, not measured by these files
    #[arg(long, conflicts_with = "compare")]
    bars: bool,
    /// The page: a name that ends with .html or .md [default: report.html; of --compare and
    /// --bars: a table on standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Its drawings as files of their own (SVG), into this directory
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["compare", "bars"])]
    plots: Option<PathBuf>,
    /// Its title
    #[arg(long, default_value = "Measurements of IPv4/IPv6 gateways")]
    title: String,
    /// Exit with status 1 where something became slower
    #[arg(long, requires = "compare")]
    fail_if_slower: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match arguments.compare.as_deref() {
        Some([old, new]) => compare_two(old, new, arguments),
        _ if arguments.bars => judge(arguments),
        _ => {
            let results = Results::read(&arguments.results)?;
            let page = tombolo_report::document(&results, &arguments.title)?;
            let output = arguments.output.clone().unwrap_or_else(|| "report.html".into());
            write(&page, &output)?;
            arguments.plots.iter().try_for_each(|directory| draw(&page, directory))?;
            print::line(&format!("{} runs: {}", results.runs().count(), output.display()))
        }
    }
}

/// Speeds are no pass or fail of the command: what is not measured is most of them.
fn judge(arguments: &Arguments) -> anyhow::Result<()> {
    let judged = bars::judge(&Results::read(&arguments.results)?);
    if let Some(output) = &arguments.output {
        write(&bars::document(&judged, &arguments.title), output)?;
        return print::line(&format!("{} speeds: {}", judged.len(), output.display()));
    }
    let tally = bars::tally(&judged);
    let mut table = print::table(&["speed", "asked for", "", "figure (min to max)", "measured"]);
    for one in judged {
        table.add_row([one.what, one.asked, one.verdict.in_words().to_owned(), one.figure, one.measured]);
    }
    print::line(&table.to_string())?;
    print::line(&tally)
}

fn compare_two(old: &Path, new: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    let [old, new] = [old, new].map(|file| Results::read(&[file.to_owned()]));
    let comparisons = Comparison::all(&old?, &new?);
    ensure!(!comparisons.is_empty(), "the two have no gateway and quantity in common");
    match &arguments.output {
        Some(output) => {
            write(&compare::document(&comparisons, &arguments.title), output)?;
            print::line(&format!("{} values: {}", comparisons.len(), output.display()))?;
        }
        None => print::line(&tabulate(&comparisons))?,
    }
    let slower = comparisons.iter().filter(|one| matches!(one.finding, Finding::Worse(_))).count();
    ensure!(!arguments.fail_if_slower || slower == 0, "{slower} of {} values became worse", comparisons.len());
    Ok(())
}

/// The page in the form that the file's name asks for.
fn write(page: &Document, output: &Path) -> anyhow::Result<()> {
    let save =
        |path: &Path, text: &str| fs::write(path, text).with_context(|| format!("cannot write {}", path.display()));
    match output.extension().and_then(|extension| extension.to_str()) {
        Some("html") => save(output, &html::page(page)),
        Some("md") => {
            let stem = output.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
            let (text, figures) = markdown::page(page, &stem);
            for (name, svg) in figures {
                save(&output.with_file_name(name), &plot::standalone(&svg))?;
            }
            save(output, &text)
        }
        _ => bail!("{}: a page is HTML or Markdown; give a name that ends with .html or .md", output.display()),
    }
}

fn draw(page: &Document, directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    drawings::files(page).iter().try_for_each(|(name, svg)| {
        let file = directory.join(format!("{name}.svg"));
        fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))
    })
}

fn tabulate(comparisons: &[Comparison]) -> String {
    let mut table = print::table(&["procedure", "gateway", "quantity", "of", "before", "after", "after / before", ""]);
    for one in comparisons {
        let value = |value: f64| if value.abs() < 1000.0 { format!("{value:.3}") } else { format!("{value:.0}") };
        table.add_row([
            one.procedure.clone(),
            one.gateway.clone(),
            one.quantity.clone(),
            if one.is_of_ratios { "ratio".to_owned() } else { one.unit.clone() },
            value(one.old.median),
            value(one.new.median),
            value(one.new.median / one.old.median),
            one.in_words(),
        ]);
    }
    table.to_string()
}

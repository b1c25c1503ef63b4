//! `tombolo man`: the manual pages, of all commands and of the configuration file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use tombolo_config::reference::{Key, SECTIONS, Section};

/// Where they go.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder to write them into; it is made if it is missing
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

/// Writes a page for `command`, one for each of its subcommands, and `tombolo.toml.5`.
pub(crate) fn run(arguments: &Arguments, command: Command) -> anyhow::Result<()> {
    let folder = &arguments.to;
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    clap_mangen::generate_to(command, folder).with_context(|| format!("{} cannot be written to", folder.display()))?;
    write(&folder.join("tombolo.toml.5"), &configuration().to_roff())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}

/// tombolo.toml(5), from the list of all keys.
fn configuration() -> Roff {
    let mut page = Roff::new();
    page.control("TH", ["tombolo.toml", "5", "", concat!("tombolo ", env!("CARGO_PKG_VERSION")), ""]);
    page.control("SH", ["NAME"]);
    page.text([roman("tombolo.toml - configuration of the gateway tombolo(1)")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        roman("One TOML file, which "),
        bold("tombolo check -c"),
        roman(" "),
        italic("FILE"),
        roman(" validates, and whose plan it prints. Every mistake comes with file, line, key, value, reason and fix."),
    ]);
    for section in SECTIONS.iter().skip(1) {
        describe(section, &mut page);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("tombolo"), roman("(1)")]);
    page
}

fn describe(section: &Section, page: &mut Roff) {
    page.control("SH", [section.path]);
    page.text(words(section.about));
    for key in section.keys() {
        page.control("TP", []);
        page.text([bold(key.name), roman(" = "), italic(key.kind), roman(default_of(key))]);
        page.text(words(key.about));
    }
}

fn default_of(key: &Key) -> String {
    if key.default.is_empty() { " (required)".into() } else { format!(" (default: {})", key.default) }
}

/// Text whose code stands between backquotes.
fn words(text: &str) -> Vec<Inline> {
    let style = |(number, part): (usize, &str)| if number % 2 == 0 { roman(part) } else { bold(part) };
    text.split('`').enumerate().map(style).collect()
}

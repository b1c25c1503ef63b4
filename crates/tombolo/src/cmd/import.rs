//! `tombolo import`: other gateways' configurations, as files for `tombolo run`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::print;

/// What to import.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    /// Tayga's tayga.conf, with its map-file
    Tayga {
        /// The file
        #[arg(value_name = "FILE", default_value = tombolo_config::tayga::DEFAULT_FILE)]
        file: PathBuf,
    },
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let From::Tayga { file } = &arguments.from;
    let tayga = tombolo_config::tayga::load(file, None)?;
    let loaded = tayga.load_map_file()?;
    for warning in tayga.warnings.iter().chain(&loaded.skipped) {
        eprintln!("warning: {warning}");
    }
    print::line(tayga.to_toml(&loaded.maps).trim_end())
}

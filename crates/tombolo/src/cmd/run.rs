//! `tombolo run`.

use std::path::PathBuf;

use clap::Args;

use crate::log::Log;

/// The configuration file.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Configuration file (TOML)
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
}

/// The gateway, in the foreground.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let configuration = tombolo_config::load(&arguments.config)?;
    let log = Log::start(configuration.host.log_level, configuration.host.log_format);
    Ok(tombolo_daemon::run(&arguments.config, configuration, move |level| log.set_level(level))?)
}

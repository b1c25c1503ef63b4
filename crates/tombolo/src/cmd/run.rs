//! `tombolo run`.

use std::path::PathBuf;

use clap::Args;

/// The configuration file.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Configuration file (TOML)
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
}

/// The gateway, in the foreground.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr)
        .init();
    Ok(tombolo_daemon::run(&arguments.config)?)
}

//! `tombolo completions`: what a shell needs to complete the command line.

use clap::{Args, Command};
use clap_complete::Shell;

/// Which shell.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

/// Prints those of `command`.
pub(crate) fn run(arguments: &Arguments, mut command: Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "tombolo", &mut script);
    super::print::line(String::from_utf8(script)?.trim_end())
}

//! The `tombolo` command: thin subcommands over the crates that do the work.
//!
//! Exit status: 0 when it worked, 1 when it did not, 2 when the command line is wrong.

use std::process::ExitCode;

use clap::Parser as _;

#[cfg(feature = "tester")]
mod cluster_demo;
#[cfg(feature = "tester")]
mod cluster_hosts;
#[cfg(feature = "tester")]
mod cluster_soak;
mod cmd;
#[cfg(feature = "tester")]
mod demo;
#[cfg(feature = "tester")]
mod live;
mod log;
#[cfg(feature = "tester")]
mod numbers;
mod offline;
#[cfg(feature = "tester")]
mod soak;

fn main() -> ExitCode {
    let arguments = cmd::Arguments::parse();
    let format = arguments.format();
    match arguments.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cmd::print::error(&error, format);
            ExitCode::FAILURE
        }
    }
}

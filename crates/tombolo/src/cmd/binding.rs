//! `tombolo binding`: who has an outside endpoint.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::binding_who;

/// Arguments of `tombolo binding`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Whose an outside port is, computed from a configuration with a deterministic mapping
    Who {
        /// Outside address
        address: Ipv4Addr,
        /// Outside port, or identifier of ICMP echo
        port: u16,
        /// Configuration file (TOML) that was in force at the time in question
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// For machines
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.action {
        Action::Who { address, port, config, json } => binding_who::run(config, *address, *port, *json),
    }
}

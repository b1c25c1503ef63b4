//! `tombolo down`: removes what a gateway has left on this host.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tombolo_config::Host;
use tombolo_daemon::down::{Removed, down};

use super::output::Output;
use super::print;

/// Which gateway it was.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Configuration file of the gateway (TOML)
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["device", "table"])]
    config: Option<PathBuf>,
    /// Its device, without a file [default: tombolo]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Its routing table, without a file [default: 84]
    #[arg(long, value_name = "NUMBER")]
    table: Option<u32>,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Removes rules, routes, and what of the fast path is in the kernel.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut settings = match &arguments.config {
        Some(file) => tombolo_config::load(file)?.host,
        None => Host::default(),
    };
    if let Some(device) = &arguments.device {
        settings.device.clone_from(device);
    }
    settings.table = arguments.table.unwrap_or(settings.table);
    let Removed { leftovers, pins } = down(&settings)?;
    let (rules, routes, answers) = (leftovers.rules, leftovers.routes, leftovers.answers);
    let answer = json!({ "rules": rules, "routes": routes, "answers": answers, "programs": pins });
    arguments.output.answer(&answer, || {
        if let Some(pins) = &pins {
            print::line(&format!("programs and tables of the fast path removed: {}", pins.display()))?;
        }
        print::line(&format!("{rules} rules, {routes} routes and {answers} answers for neighbours removed"))
    })
}

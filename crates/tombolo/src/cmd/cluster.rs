//! `tombolo cluster`: what nodes agree on in etcd.

use clap::{Args, Subcommand};
use serde_json::Value;
use tombolo_daemon::ownership::overview::{self, Overview};

use super::cluster_file::File;
use super::cluster_wishes::{self, Wish};
use super::output::Output;
use super::print;
use super::rows::{Cell, print_table};

/// Arguments of `tombolo cluster`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    pub(super) output: Output,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write into etcd, once, how many slices there are, and their secret; for ever
    Init {
        #[command(flatten)]
        file: File,
        /// So many, a power of two up to 256; as many as the smallest range of a pool allows for, if it is not said
        #[arg(long, value_name = "COUNT")]
        slices: Option<u16>,
    },
    /// How the cluster stands, in a word and why, and who has which slice
    Status {
        #[command(flatten)]
        file: File,
    },
    #[command(flatten)]
    Wish(Wish),
}

const NODES: &[Cell] = &[
    Cell::Text("node"),
    Cell::Text("state"),
    Cell::Text("drain"),
    Cell::Number("owns"),
    Cell::Number("backs_up"),
    Cell::Text("software"),
];

const SLICES: &[Cell] = &[
    Cell::Number("first"),
    Cell::Number("last"),
    Cell::Text("owner"),
    Cell::Text("backup"),
    Cell::Text("pinned"),
    Cell::Number("epoch"),
    Cell::Text("status"),
    Cell::Text("reason"),
];

/// Does what is asked for.
pub(crate) fn run(Arguments { action, output }: &Arguments) -> anyhow::Result<()> {
    match action {
        Action::Init { file: File { config }, slices } => {
            let count = overview::begin(config, &tombolo_config::load(config)?, *slices)?;
            output.answer(&serde_json::json!({ "slices": count }), || {
                print::line(&format!("{count} slices; start the nodes"))
            })
        }
        Action::Status { file: File { config } } => {
            let overview = overview::look(config, &tombolo_config::load(config)?)?;
            output.answer(&overview, || print_overview(&overview))
        }
        Action::Wish(wish) => cluster_wishes::run(wish, *output),
    }
}

fn print_overview(overview: &Overview) -> anyhow::Result<()> {
    let all = serde_json::to_value(overview)?;
    print::line(&format!("{}: {}", all["status"].as_str().unwrap_or_default(), overview.reason))?;
    if overview.is_held {
        print::line("held: nothing moves for the sake of balance until `tombolo cluster release`")?;
    }
    for (rows, cells) in [(&all["nodes"], NODES), (&all["slices"], SLICES)] {
        let rows: Vec<&Value> = rows.as_array().into_iter().flatten().collect();
        print::line("")?;
        print_table(&rows, cells)?;
    }
    Ok(())
}

//! `tombolo cluster drain`, `undrain`, `move`, `assume`, `hold` and `release`: what an operator wants of the cluster, written into
//! etcd and waited for.

use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use tombolo_daemon::ownership::overview::OverviewError;
use tombolo_daemon::ownership::wishes::{Operator, Waiting};

use super::cluster_file::File;
use super::output::Output;
use super::print;

/// What is wanted.
#[derive(Debug, Subcommand)]
pub(super) enum Wish {
    /// Give the slices of a node to others, eight at a time and without loss, until it is undrained
    Drain {
        /// The node's name
        node: String,
        #[command(flatten)]
        how: How,
    },
    /// Give a node its share of the slices again
    Undrain {
        /// The node's name
        node: String,
        #[command(flatten)]
        how: How,
    },
    /// Give a slice to a node, and keep it there, whatever that one's share is
    Move {
        /// The slice's number
        slice: u16,
        /// The node's name
        #[arg(required_unless_present = "free", conflicts_with = "free")]
        node: Option<String>,
        /// Keep it nowhere any more: it is of whichever node has room
        #[arg(long)]
        free: bool,
        #[command(flatten)]
        how: How,
    },
    /// Have vacant slices taken at once, with empty tables: their owners and backups are gone for good
    Assume {
        /// Numbers, or ranges of them, as 3 or 0-7
        #[arg(required = true, value_parser = parse_range)]
        slices: Vec<Range>,
        #[command(flatten)]
        how: How,
    },
    /// Have nothing moved for the sake of balance until it is released: drains, moves to nodes and takeovers go on
    Hold {
        #[command(flatten)]
        file: File,
    },
    /// Share slices out again that were held
    Release {
        #[command(flatten)]
        how: How,
    },
}

/// Where etcd is, and how long is waited.
#[derive(Debug, Args)]
pub(super) struct How {
    #[command(flatten)]
    file: File,
    /// Wait for so many seconds until it is so; 0: only write it
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    wait: u64,
}

/// Slices in a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range(u16, u16);

fn parse_range(text: &str) -> anyhow::Result<Range> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse().with_context(|| format!("{text} is no number of a slice"));
    let (first, last) = (number(first)?, number(last)?);
    anyhow::ensure!(first <= last, "{first} comes after {last}");
    Ok(Range(first, last))
}

/// Writes what is wanted, and waits for it.
pub(super) fn run(wish: &Wish, output: Output) -> anyhow::Result<()> {
    match wish {
        Wish::Drain { node, how } => {
            let operator = how.operator()?;
            operator.drain(node)?;
            how.wait(|waiting| operator.wait_until_drained(node, waiting))?;
            how.say(output, &format!("{node} is drained"), &format!("{node} is to be drained"), &operator)
        }
        Wish::Undrain { node, how } => {
            let operator = how.operator()?;
            operator.undrain(node)?;
            if operator.look()?.is_held {
                let later = format!("{node} is to have its share once slices are released");
                return how.say(output, &later, &later, &operator);
            }
            how.wait(|waiting| operator.wait_until_balanced(waiting))?;
            how.say(output, &format!("{node} has its share"), &format!("{node} is to have its share"), &operator)
        }
        Wish::Move { slice, node, how, .. } => {
            let operator = how.operator()?;
            operator.pin(*slice, node.as_deref())?;
            let Some(node) = node else {
                let free = format!("slice {slice} is kept nowhere");
                return how.say(output, &free, &free, &operator);
            };
            how.wait(|waiting| operator.wait_until_owned(*slice, node, waiting))?;
            let [is_there, is_to_be] = ["is", "is to be"].map(|verb| format!("slice {slice} {verb} {node}'s"));
            how.say(output, &is_there, &is_to_be, &operator)
        }
        Wish::Assume { slices, how } => {
            let operator = how.operator()?;
            let slices: Vec<u16> = slices.iter().flat_map(|Range(first, last)| *first..=*last).collect();
            operator.assume(&slices)?;
            how.wait(|waiting| operator.wait_until_served(&slices, waiting))?;
            let [are_served, are_to_be] =
                ["are served", "are given up"].map(|state| format!("{} slices {state}", slices.len()));
            how.say(output, &are_served, &are_to_be, &operator)
        }
        Wish::Hold { file } => {
            let operator = operator_of(file)?;
            operator.hold(true)?;
            output.answer(&operator.look()?, || print::line("slices are held: nothing moves for the sake of balance"))
        }
        Wish::Release { how } => {
            let operator = how.operator()?;
            operator.hold(false)?;
            how.wait(|waiting| operator.wait_until_balanced(waiting))?;
            how.say(output, "slices are released, and all nodes have their shares", "slices are released", &operator)
        }
    }
}

fn operator_of(File { config }: &File) -> anyhow::Result<Operator> {
    Ok(Operator::of(config, &tombolo_config::load(config)?)?)
}

impl How {
    fn operator(&self) -> anyhow::Result<Operator> {
        operator_of(&self.file)
    }

    fn wait(&self, until: impl FnOnce(Waiting<'_>) -> Result<(), OverviewError>) -> anyhow::Result<()> {
        if self.wait > 0 {
            let say = |stands: &str| print::warning(stands);
            until(Waiting { limit: Duration::from_secs(self.wait), say: &say })?;
        }
        Ok(())
    }

    /// Says that it is so, or that it is to be so where nobody has waited; for programs, how the cluster stands.
    fn say(&self, output: Output, is_so: &str, is_to_be: &str, operator: &Operator) -> anyhow::Result<()> {
        let overview = operator.look()?;
        output.answer(&overview, || print::line(if self.wait > 0 { is_so } else { is_to_be }))
    }
}

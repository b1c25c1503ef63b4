//! `tombolo import`: other gateways' configurations, as files for `tombolo run`.

use std::fs;
use std::io::{self, Read as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use ipnet::IpNet;
use tombolo_import::{Gateway, Hints};

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
    /// The JSON file of `jool file handle`: a NAT64
    Jool(File),
    /// The JSON file of `jool_siit file handle`
    JoolSiit(File),
    /// What `iptables-save` prints
    IptablesSave(File),
    /// What `nft -j list ruleset` prints
    Nft(File),
    /// Lines of VPP's command line, as `exec` reads them
    Vpp(File),
    /// The configuration of Snabb's lwAFTR
    Snabb(File),
}

#[derive(Debug, Args)]
struct File {
    /// The file; `-` is the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What masquerading stands for, and whatever else goes by the address of an interface
    #[arg(long, value_name = "ADDRESS")]
    outside: Option<Ipv4Addr>,
    /// Where hosts or B4s inside are, if the file does not say it; may be repeated
    #[arg(long, value_name = "PREFIX")]
    inside: Vec<IpNet>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.from {
        From::Tayga { file } => tayga(file),
        From::Jool(from) => import(Gateway::Jool, from),
        From::JoolSiit(from) => import(Gateway::JoolSiit, from),
        From::IptablesSave(from) => import(Gateway::Iptables, from),
        From::Nft(from) => import(Gateway::Nft, from),
        From::Vpp(from) => import(Gateway::Vpp, from),
        From::Snabb(from) => import(Gateway::Snabb, from),
    }
}

fn tayga(file: &Path) -> anyhow::Result<()> {
    let tayga = tombolo_config::tayga::load(file, None)?;
    let loaded = tayga.load_map_file()?;
    for warning in tayga.warnings.iter().chain(&loaded.skipped) {
        print::warning(&format!("warning: {warning}"));
    }
    print::line(tayga.to_toml(&loaded.maps).trim_end())
}

/// Prints the configuration, and to the standard error what is not in it, and what is wrong with it yet.
fn import(gateway: Gateway, File { file, outside, inside }: &File) -> anyhow::Result<()> {
    let name = file.display().to_string();
    let text = read(file).with_context(|| format!("{name} cannot be read"))?;
    let hints = Hints { outside: *outside, inside: inside.clone() };
    let imported = tombolo_import::import(gateway, &text, &hints).map_err(|error| anyhow!("{name}: {error}"))?;
    for left in &imported.left {
        print::warning(&format!("left: {name}: {left}"));
    }
    print::line(imported.toml.trim_end())?;
    tombolo_config::parse("the configuration above", &imported.toml)
        .map(drop)
        .context("what was made of it has to be mended by hand before it is used")
}

fn read(file: &Path) -> io::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(file)
}

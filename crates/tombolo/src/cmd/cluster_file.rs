//! Where a cluster's etcd is.

use std::path::PathBuf;

use clap::Args;

/// The configuration file of any node.
#[derive(Debug, Args)]
pub(super) struct File {
    /// Configuration file (TOML) of a node, which says where etcd is
    #[arg(short, long, value_name = "FILE", default_value = "/etc/tombolo/tombolo.toml")]
    pub(super) config: PathBuf,
}

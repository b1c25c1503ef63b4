//! What can go wrong with the fast path.

use std::path::PathBuf;

use aya::EbpfError;
use aya::programs::ProgramError;
use tombolo_tables::lpm::LpmError;

/// The fast path does not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FastPathError {
    /// The kernel did not take the programs.
    #[error("the kernel did not take the fast path's programs (Linux 5.17 or later, root)")]
    Load(#[source] EbpfError),
    /// The kernel did not take a program.
    #[error("the kernel did not take the program {program}")]
    Program {
        /// Which one.
        program: &'static str,
        /// What the kernel said.
        #[source]
        source: ProgramError,
    },
    /// A program could not be attached.
    #[error(
        "{program} cannot be attached to {interface}: another program may be there (ip link show dev {interface}), or its \
         driver has no XDP; with fastpath = \"off\" everything works without"
    )]
    Attach {
        /// Which one.
        program: &'static str,
        /// Where.
        interface: String,
        /// What the kernel said.
        #[source]
        source: ProgramError,
    },
    /// A link could not be kept or found.
    #[error("the link {path} cannot be used")]
    Link {
        /// Where it is pinned.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A map of the programs.
    #[error("the map {0} of the fast path cannot be used")]
    Map(&'static str),
    /// No such interface.
    #[error("there is no interface {0}")]
    NoInterface(String),
    /// Not Ethernet.
    #[error("{0} is no Ethernet interface; the fast path cannot be attached to it")]
    NotEthernet(String),
    /// Two interfaces whose numbers are the same modulo 256.
    #[error("{0} cannot be told apart from another interface that the fast path is attached to")]
    TooMany(String),
    /// The programs were tried on two processors only.
    #[error(
        "the fast path runs on x86-64, and on arm64 as an experiment; with fastpath = \"off\" everything works without"
    )]
    Processor,
    /// The explicit mappings do not fit.
    #[error("the table of explicit mappings cannot be made")]
    Explicit(#[source] LpmError),
    /// Softwires or rules do not fit.
    #[error("the table of {0} cannot be made")]
    Table(&'static str, #[source] LpmError),
    /// A packet could not be made to come in.
    #[error("a packet cannot be made to come in")]
    Injected(#[source] std::io::Error),
    /// No random numbers.
    #[error("the kernel gives no random numbers")]
    Random(#[from] getrandom::Error),
}

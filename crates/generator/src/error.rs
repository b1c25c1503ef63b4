//! Why the rig does not work.

use std::io;

use crate::namespace::Namespace;

/// Why the rig does not work.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// No such interface.
    #[error("interface {name} does not exist{place}", place = place(.namespace))]
    NoInterface {
        /// Its name.
        name: String,
        /// Where it was looked for.
        namespace: Option<Namespace>,
    },
    /// The namespace cannot be entered.
    #[error("cannot enter the network namespace {path}: {source}")]
    Namespace {
        /// Its file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The programs do not load.
    #[error(
        "the kernel did not accept the tester's BPF programs: {source}. They need root (CAP_BPF, CAP_NET_ADMIN) and Linux 5.18"
    )]
    Load {
        /// aya's explanation.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// XDP cannot be attached.
    #[error(
        "cannot attach the receiver to {name}: {source}. Another XDP program may be attached (ip link set dev {name} xdp off)"
    )]
    Attach {
        /// The interface.
        name: String,
        /// aya's explanation.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The interface does not say what it is.
    #[error("cannot read the state of {name}: {source}")]
    Interface {
        /// The interface.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The shared memory cannot be mapped.
    #[error("cannot map the array {map} ({bytes} bytes): {source}")]
    Map {
        /// The BPF map.
        map: &'static str,
        /// Size.
        bytes: usize,
        /// Why.
        source: io::Error,
    },
    /// The kernel does not run the generator.
    #[error("the frames could not be sent: {source}. Live frames need Linux 5.18 and have at most 3,400 bytes")]
    Send {
        /// Why.
        source: io::Error,
    },
    /// AF_XDP does not work on a port.
    #[error(
        "cannot open AF_XDP on queue {queue} of {name}: {source}. Each sending core needs a queue that no other program has \
         (ethtool -L), and frames of more than 4,096 bytes Linux 6.6"
    )]
    AfXdp {
        /// The interface.
        name: String,
        /// Its queue.
        queue: u32,
        /// Why.
        source: io::Error,
    },
    /// What was asked for does not fit.
    #[error("{0}")]
    Unfit(String),
}

fn place(namespace: &Option<Namespace>) -> String {
    namespace.as_ref().map_or_else(String::new, |n| format!(" in the network namespace {}", n.path().display()))
}

pub(crate) fn load_error(source: impl std::error::Error + Send + Sync + 'static) -> RigError {
    RigError::Load { source: Box::new(source) }
}

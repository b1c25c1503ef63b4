//! What can go wrong with a lab, each with the culprit and the fix.

use std::{io, path::PathBuf, time::Duration};

/// Why a lab could not be built, used or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// Namespaces need CAP_SYS_ADMIN.
    #[error(
        "cannot {action}: labs are made of network namespaces, which need root (CAP_SYS_ADMIN): run it \
         with sudo, or in a container started with --privileged"
    )]
    NotPermitted {
        /// What was refused.
        action: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A program that a lab runs is not installed.
    #[error("`{tool}` is not installed; fix: apt-get install {package}")]
    MissingTool {
        /// The program's name.
        tool: String,
        /// The Debian package that has it.
        package: String,
    },
    /// A system call or a file operation failed.
    #[error("cannot {action}")]
    System {
        /// What was attempted, on what.
        action: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel refused a netlink request.
    #[error("cannot {action} in namespace {namespace}")]
    Netlink {
        /// What was attempted.
        action: String,
        /// The full name of the namespace.
        namespace: String,
        /// What the kernel said.
        #[source]
        source: Box<rtnetlink::Error>,
    },
    /// The topology names a node that it does not have.
    #[error("the lab has no node `{node}`; it has {known}")]
    NoSuchNode {
        /// The name asked for.
        node: String,
        /// The names there are.
        known: String,
    },
    /// A lab's or node's name cannot be used as a file name or is taken.
    #[error("`{name}` cannot name a lab: {reason}")]
    BadName {
        /// The name.
        name: String,
        /// Why not.
        reason: String,
    },
    /// A topology that cannot be built.
    #[error("the topology is not consistent: {reason}")]
    BadTopology {
        /// What is wrong, and where.
        reason: String,
    },
    /// A command inside the lab ended with a failure.
    #[error("`{command}` in {namespace} {outcome}{output}")]
    CommandFailed {
        /// The command line.
        command: String,
        /// The full name of the namespace.
        namespace: String,
        /// The exit status in words.
        outcome: String,
        /// The last lines of its output, each on a line of its own, or nothing.
        output: String,
    },
    /// Something awaited did not happen in time.
    #[error("waited {} ms for {what} in vain{output}", limit.as_millis())]
    TimedOut {
        /// What was awaited.
        what: String,
        /// How long.
        limit: Duration,
        /// The last lines of a process's output, or nothing.
        output: String,
    },
    /// A state file cannot be read.
    #[error("{}: {reason}", path.display())]
    BadRecord {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The lab is being removed because a signal arrived.
    #[error("interrupted: the lab is being removed")]
    Interrupted,
}

impl LabError {
    /// A failed system call as an error: EPERM and EACCES become the diagnosis that users need.
    pub(crate) fn system(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        let (action, source) = (action.into(), source.into());
        if source.kind() == io::ErrorKind::PermissionDenied {
            Self::NotPermitted { action, source }
        } else {
            Self::System { action, source }
        }
    }
}

impl LabError {
    /// The error with everything that caused it, on one line.
    #[must_use]
    pub fn chain(&self) -> String {
        let causes = std::iter::successors(std::error::Error::source(self), |cause| cause.source());
        causes.fold(self.to_string(), |text, cause| format!("{text}: {cause}"))
    }
}

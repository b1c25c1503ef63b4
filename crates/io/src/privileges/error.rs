//! Why privileges could not be given up.

/// Privileges could not be given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrivilegeError {
    /// What is to be given up could not be prepared.
    #[error("{action} failed")]
    Prepare {
        /// What was tried.
        action: &'static str,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A thread could not.
    #[error("thread {thread}: {step} failed; sandbox = false does without seccomp and Landlock")]
    Step {
        /// Its number.
        thread: i32,
        /// What it was to do.
        step: &'static str,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// A thread does not answer.
    #[error("thread {0} does not give up its privileges within ten seconds")]
    Silent(i32),
}

/// The error of something that served to do `action`.
pub(super) fn prepare<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    action: &'static str,
) -> impl FnOnce(E) -> PrivilegeError {
    move |source| PrivilegeError::Prepare { action, source: source.into() }
}

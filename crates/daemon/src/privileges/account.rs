//! Whom the gateway becomes, and why it cannot.

use nix::unistd::{Gid, Uid, User, getgrouplist};
use tombolo_config::Host;
use tombolo_io::privileges::PrivilegeError;

/// Privileges cannot be given up.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The user.
    #[error("there is no user {0} on this host: make one, or change user in [gateway]")]
    NoUser(String),
    /// The user's database.
    #[error("user {0} cannot be looked up")]
    Lookup(String, #[source] nix::Error),
    /// Not without root.
    #[error("only root can become user {0}: start the gateway as root, or as that user with the capabilities it needs")]
    NotRoot(String),
    /// The user's files.
    #[error("{path} cannot be given to user {user}")]
    Ownership {
        /// The user.
        user: String,
        /// The file.
        path: std::path::PathBuf,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// The kernel.
    #[error(transparent)]
    Privilege(#[from] PrivilegeError),
}

/// Whom the gateway becomes.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    pub(super) name: String,
    pub(super) user: Uid,
    pub(super) group: Gid,
    pub(super) groups: Vec<Gid>,
}

impl Account {
    /// The user that the settings name; `None` if there is none, or if this process is that user already.
    pub(crate) fn of(settings: &Host) -> Result<Option<Self>, SandboxError> {
        let Some(name) = &settings.user else { return Ok(None) };
        let failed = |errno| SandboxError::Lookup(name.clone(), errno);
        let found = match name.parse() {
            Ok(number) => User::from_uid(Uid::from_raw(number)),
            Err(_) => User::from_name(name),
        };
        let user = found.map_err(failed)?.ok_or_else(|| SandboxError::NoUser(name.clone()))?;
        if user.uid == nix::unistd::geteuid() {
            return Ok(None);
        }
        if !nix::unistd::geteuid().is_root() {
            return Err(SandboxError::NotRoot(name.clone()));
        }
        let groups = std::ffi::CString::new(user.name.as_str()).map_err(|_| failed(nix::Error::EINVAL))?;
        let groups = getgrouplist(&groups, user.gid).map_err(failed)?;
        Ok(Some(Self { name: name.clone(), user: user.uid, group: user.gid, groups }))
    }

    /// The user's number.
    pub(crate) fn number(&self) -> u32 {
        self.user.as_raw()
    }
}

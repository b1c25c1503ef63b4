//! Which files are left: Landlock's rules. Nothing is executed; no TCP port but those
//! that are named is listened at or connected to; abstract sockets of other processes are out of reach. What a newer
//! kernel could restrict and this one cannot is left as it is.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort, PathBeneath, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, Scope,
};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::error::{PrivilegeError, prepare};

/// Up to where the file system's rights are used.
const FILES: ABI = ABI::V5;
/// The one that first knew TCP.
const NET: ABI = ABI::V4;
pub(super) const KNOWS_TCP: i32 = 4;

/// What may be done with a file, or with all that a directory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Written, where it is there.
    Write,
    /// Read, written, made and removed.
    Keep,
    /// Files removed.
    RemoveFiles,
    /// Empty directories removed.
    RemoveDirectories,
}

impl Access {
    fn rights(self) -> BitFlags<AccessFs> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let write = AccessFs::WriteFile | AccessFs::Truncate;
        match self {
            Self::Read => read,
            Self::Write => write,
            Self::Keep => {
                let make = AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::MakeSock;
                read | write | make | AccessFs::RemoveFile | AccessFs::RemoveDir
            }
            Self::RemoveFiles => AccessFs::RemoveFile.into(),
            Self::RemoveDirectories => AccessFs::RemoveDir.into(),
        }
    }
}

/// A file, or a directory with all that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRule {
    /// Its name. One that is not there is left out.
    pub path: PathBuf,
    /// What may be done.
    pub access: Access,
}

/// What is left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// Files and directories.
    pub rules: Vec<FileRule>,
    /// TCP ports that may be connected to.
    pub ports: Vec<u16>,
    /// TCP ports that may be listened at.
    pub own_ports: Vec<u16>,
}

impl Files {
    /// The rules as the kernel has them, if it does, and what has to stay open for them: directories of
    /// pseudo file systems are made anew when they are looked up after nobody had them open.
    pub(super) fn ruleset(self) -> Result<(Option<OwnedFd>, Vec<OwnedFd>), PrivilegeError> {
        if version() < 1 {
            return Ok((None, Vec::new()));
        }
        let mut ruleset = create().map_err(prepare("making Landlock's rules"))?;
        let mut held = Vec::new();
        for FileRule { path, access } in self.rules {
            let Some(file) = open_path(&path) else { continue };
            let rights = access.rights() & possible(file.as_fd());
            ruleset = add(ruleset, file.as_fd(), rights).map_err(prepare("adding a file to Landlock's rules"))?;
            held.push(file);
        }
        let connect = self.ports.into_iter().map(|port| (port, AccessNet::ConnectTcp));
        let bind = self.own_ports.into_iter().map(|port| (port, AccessNet::BindTcp));
        for (port, access) in connect.chain(bind) {
            let rule = NetPort::new(port, access);
            ruleset = ruleset.add_rule(rule).map_err(prepare("adding a port to Landlock's rules"))?;
        }
        Ok((ruleset.into(), held))
    }
}

fn create() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(FILES))?
        .handle_access(AccessNet::from_all(NET))?
        .scope(Scope::AbstractUnixSocket)?
        .create()
}

fn add(
    ruleset: RulesetCreated,
    file: BorrowedFd<'_>,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    if rights.is_empty() { Ok(ruleset) } else { ruleset.add_rule(PathBeneath::new(file, rights)) }
}

fn open_path(path: &Path) -> Option<OwnedFd> {
    open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).ok()
}

/// What can be done with a file of this kind at all.
fn possible(file: BorrowedFd<'_>) -> BitFlags<AccessFs> {
    let is_directory = fstat(file).is_ok_and(|found| found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits());
    if is_directory { AccessFs::from_all(FILES) } else { AccessFs::from_file(FILES) }
}

/// Whether the kernel can restrict the TCP ports that are listened at and connected to (Linux 6.7). To be asked before
/// anything is given up.
#[must_use]
pub fn restricts_ports() -> bool {
    version() >= KNOWS_TCP
}

/// Landlock's version; 0 if the kernel has none, or if it is switched off.
pub(super) fn version() -> i32 {
    const VERSION: u32 = 1;
    // SAFETY: with this flag there is nothing that the pointer would point to.
    let found = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) };
    i32::try_from(found).unwrap_or_default().max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_made_of_what_is_there() {
        let rules = [("/proc/sys/net", Access::Read), ("/nowhere", Access::Keep), ("/etc/hostname", Access::Keep)];
        let rules = rules.map(|(path, access)| FileRule { path: path.into(), access });
        let (ruleset, held) = Files { rules: rules.into(), ports: vec![53], own_ports: vec![9464] }.ruleset().unwrap();
        assert_eq!(ruleset.is_some(), version() > 0);
        assert_eq!(held.len(), if version() > 0 { 2 } else { 0 });
    }
}

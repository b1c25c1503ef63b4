//! What root has made at the start becomes the user's, who goes on writing there.
//!
//! Files of a user that is not trusted as root is may be links to those of others. So each is opened as
//! what it is, looked at, and given away by its descriptor: ordinary files with one name, sockets and
//! directories. The next start trusts what belongs to that user as it trusts its own.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::fchownat;
use tombolo_config::{Host, MetricsAddress};

use super::account::{Account, SandboxError};
use super::places::Places;

/// Directories in directories that are followed.
const DEPTH: u32 = 2;

/// Gives the user what is the gateway's own.
pub(super) fn hand_over(settings: &Host, account: &Account, places: &Places<'_>) -> Result<(), SandboxError> {
    let directories = [settings.run_directory.as_deref(), Some(places.socket), places.pins];
    for directory in directories.into_iter().flatten() {
        give(directory, account, DEPTH)?;
    }
    let socket = match &settings.metrics {
        Some(MetricsAddress::Unix(path)) => Some(path.as_path()),
        _ => None,
    };
    [settings.binding_log.as_deref(), socket].into_iter().flatten().try_for_each(|file| give(file, account, 0))
}

fn give(path: &Path, account: &Account, depth: u32) -> Result<(), SandboxError> {
    let failed =
        |source: io::Error| SandboxError::Ownership { user: account.name.clone(), path: path.to_owned(), source };
    let is_directory = match give_one(path, account) {
        Err(Errno::ENOENT) => return Ok(()),
        other => other.map_err(|errno| failed(errno.into()))?,
    };
    if is_directory && depth > 0 {
        for entry in std::fs::read_dir(path).map_err(failed)? {
            give(&entry.map_err(failed)?.path(), account, depth - 1)?;
        }
    }
    Ok(())
}

/// True if it is a directory. A link, and a file that has other names, stay what they are.
fn give_one(path: &Path, account: &Account) -> Result<bool, Errno> {
    let file: OwnedFd = open(path, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    let found = fstat(&file)?;
    let kind = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT;
    let is_directory = kind == SFlag::S_IFDIR;
    let is_ours = is_directory || [SFlag::S_IFREG, SFlag::S_IFSOCK].contains(&kind) && found.st_nlink == 1;
    if is_ours {
        fchownat(&file, "", Some(account.user), Some(account.group), AtFlags::AT_EMPTY_PATH)?;
    }
    Ok(is_directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use nix::unistd::{Gid, Uid, geteuid};

    use super::*;

    #[test]
    fn what_may_be_somebody_elses_is_not_given_away() {
        if !geteuid().is_root() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let (own, other) = (home.path().join("own"), home.path().join("other"));
        std::fs::create_dir(&own).unwrap();
        for file in [own.join("table"), other.clone(), home.path().join("named")] {
            std::fs::write(file, "x").unwrap();
        }
        std::os::unix::fs::symlink(&other, own.join("link")).unwrap();
        std::fs::hard_link(home.path().join("named"), own.join("name")).unwrap();
        let account =
            Account { name: "nobody".into(), user: Uid::from_raw(65534), group: Gid::from_raw(65534), groups: vec![] };
        give(&own, &account, DEPTH).unwrap();
        let owner = |path: &Path| std::fs::metadata(path).unwrap().uid();
        assert_eq!([owner(&own), owner(&own.join("table"))], [65534; 2]);
        assert_eq!([owner(&other), owner(&own.join("name"))], [0; 2]);
    }
}

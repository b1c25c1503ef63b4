//! What a running gateway does, and where its files are: what its privileges depend on.

use std::path::Path;

use crate::awaits::Awaits;

/// What a gateway does that takes privileges while it runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tasked {
    /// Its programs are in the kernel, and others take their place with each plan.
    pub(crate) has_programs: bool,
    /// What it asks routers and the resolver for.
    pub(crate) awaits: Awaits,
}

/// Where the files of this gateway are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places<'a> {
    /// Its configuration.
    pub(crate) configuration: &'a Path,
    /// Directory of its control socket.
    pub(crate) socket: &'a Path,
    /// What is pinned in the kernel.
    pub(crate) pins: Option<&'a Path>,
}

/// The directory that a file is in.
pub(super) fn directory_of(path: &Path) -> Option<&Path> {
    let parent = path.parent()?;
    Some(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

//! Memory for the tables that the kernel keeps and its programs read: BPF arrays, pinned in a
//! directory of the BPF file system. They outlive the process, and with them the programs that
//! forward what is known.

use std::fs::{self, DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aya::maps::{Array, MapData, MapError};
use aya::pin::PinError;
use nix::fcntl::{Flock, FlockArg};
use tombolo_tables::memory::{Backing, MemoryError, MemorySource};

use crate::file_system::{CUSTOM, mount_at};
use crate::memory::MappedArray;
use crate::record;

/// `BPF_F_MMAPABLE`.
const MAPPABLE: u32 = 1 << 10;
/// Changes when the bytes of the records mean something else. What their fields are is in the digest
/// anyway.
const LAYOUT: u64 = 4;
/// Bytes of a cache line, the element of most tables.
const LINE: usize = 64;

/// A directory of pinned arrays, locked until the value is dropped.
#[derive(Debug)]
pub struct PinnedMemory {
    directory: PathBuf,
    content: Content,
    _lock: Flock<File>,
}

/// What a directory held when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing, or tables made for something else: they are gone, and the programs with them.
    New,
    /// Tables with the same fingerprint, which programs of an earlier process may be using right
    /// now.
    Adopted,
}

/// Pinned memory could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinnedMemoryError {
    /// Another gateway uses the directory.
    #[error("{0} is in use by another gateway: stop it, or give this one a directory of its own")]
    InUse(PathBuf),
    /// The file system refused.
    #[error("{path} cannot be used ({action} failed): it needs root, and the BPF file system at {CUSTOM}")]
    Unusable {
        /// The directory, or a file in it.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel refused a map.
    #[error("the kernel refused a map of the fast path (it needs CAP_BPF or root, and Linux 5.17)")]
    Map(#[from] MapError),
    /// The kernel refused to pin a map.
    #[error("the kernel refused to pin a map of the fast path")]
    Pin(#[from] PinError),
}

impl PinnedMemory {
    /// Opens a directory below /sys/fs/bpf, making it and mounting the file system if need be.
    ///
    /// `fingerprint` stands for everything that the tables' bytes depend on. Tables with another
    /// fingerprint are removed, and what is attached to interfaces with them.
    ///
    /// # Errors
    /// [`PinnedMemoryError`].
    pub fn open(directory: &Path, fingerprint: &str) -> Result<Self, PinnedMemoryError> {
        let fail = |action| move |source| PinnedMemoryError::Unusable { path: directory.to_owned(), action, source };
        mount_at(directory).map_err(fail("mounting the BPF file system"))?;
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(fail("making it"))?;
        let lock = File::open(directory).map_err(fail("opening it"))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
            .map_err(|_| PinnedMemoryError::InUse(directory.to_owned()))?;
        let marker = directory.join("fingerprint");
        let wanted = digest(fingerprint);
        let content = if stored(&marker) == Some(wanted) { Content::Adopted } else { Content::New };
        if content == Content::New {
            // The marker comes back last: a crash in between leaves nothing to be adopted.
            remove_pins(directory).map_err(fail("removing old tables"))?;
            store(&marker, wanted)?;
        }
        Ok(Self { directory: directory.to_owned(), content, _lock: lock })
    }

    /// Whether the tables are those of an earlier process.
    #[must_use]
    pub fn content(&self) -> Content {
        self.content
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Unpins some arrays, so that others take their places; programs that use them keep them.
    pub(crate) fn forget(&self, names: &[&str]) -> io::Result<()> {
        names.iter().try_for_each(|name| match fs::remove_file(self.directory.join(map_name(name))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        })
    }

    /// Removes everything that is pinned in `directory`, attached programs first, and the
    /// directory. Nothing happens if it is not there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn remove(directory: &Path) -> io::Result<()> {
        match remove_pins(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => fs::remove_dir(directory),
        }
    }
}

impl MemorySource for PinnedMemory {
    fn take(&mut self, name: &'static str, bytes: usize) -> Result<Arc<dyn Backing>, MemoryError> {
        (&*self).take(name, bytes)
    }
}

impl MemorySource for &PinnedMemory {
    fn take(&mut self, name: &'static str, bytes: usize) -> Result<Arc<dyn Backing>, MemoryError> {
        let unavailable = |reason: String| MemoryError::Unavailable { name, bytes, reason };
        let path = self.directory.join(map_name(name));
        if !path.exists() {
            create(&path, element(name), bytes).map_err(|error| unavailable(words(&error)))?;
        }
        let map = MapData::from_pin(&path).map_err(|error| unavailable(words(&error)))?;
        let info = map.info().map_err(|error| unavailable(words(&error)))?;
        let found = info.max_entries() as usize * info.value_size() as usize;
        if found < bytes {
            return Err(MemoryError::TooSmall { name, needed: bytes, found });
        }
        let array = MappedArray::new(map.fd(), found).map_err(|error| unavailable(words(&error)))?;
        Ok(Arc::new(array))
    }
}

/// Tables have hyphens in their names and C has not.
fn map_name(table: &str) -> String {
    table.replace('-', "_")
}

/// Bytes of an element. Slots of four bytes come by the line, since the kernel rounds elements up
/// to eight.
fn element(table: &str) -> usize {
    match table {
        "bindings-used" | "subscribers-used" | "sessions-overflowed" => size_of::<u64>(),
        _ => LINE,
    }
}

fn create(path: &Path, element: usize, bytes: usize) -> Result<(), PinnedMemoryError> {
    let entries = u32::try_from(bytes.div_ceil(element).max(1)).unwrap_or(u32::MAX);
    if element == size_of::<u64>() {
        Array::<MapData, u64>::create(entries, MAPPABLE)?.pin(path)?;
    } else {
        Array::<MapData, [u64; LINE / 8]>::create(entries, MAPPABLE)?.pin(path)?;
    }
    Ok(())
}

/// An error and what is behind it, in one line.
fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        words = format!("{words}: {error}");
        source = error.source();
    }
    words
}

/// Links go before maps, so that no program runs on tables that are going.
fn remove_pins(directory: &Path) -> io::Result<()> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let is_link = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("link-"));
    paths.sort_by_key(|path| !is_link(path));
    paths.iter().try_for_each(fs::remove_file)
}

/// 16 bytes that stand for the fingerprint, and for the records that the programs share with this
/// crate.
fn digest(fingerprint: &str) -> [u64; 2] {
    let records = tombolo_records::layout(&record::constants(), &record::records());
    [LAYOUT, LAYOUT << 32].map(|salt| {
        let mut hasher = DefaultHasher::new();
        (salt, fingerprint, &records).hash(&mut hasher);
        hasher.finish()
    })
}

fn stored(marker: &Path) -> Option<[u64; 2]> {
    let map = MapData::from_pin(marker).ok()?;
    let array = Array::<_, [u64; 2]>::try_from(aya::maps::Map::Array(map)).ok()?;
    array.get(&0, 0).ok()
}

fn store(marker: &Path, digest: [u64; 2]) -> Result<(), PinnedMemoryError> {
    let mut array = Array::<MapData, [u64; 2]>::create(1, 0)?;
    array.set(0, digest, 0)?;
    Ok(array.pin(marker)?)
}

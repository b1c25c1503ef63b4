//! Memory for the tables that the kernel keeps and its programs read: BPF arrays, pinned in a
//! directory of the BPF file system. They outlive the process, and with them the programs that
//! forward what is known.

use std::fs::{self, DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::{Array, MapData, MapError};
use aya::pin::PinError;
use nix::fcntl::{Flock, FlockArg};
use tombolo_io::fault;
use tombolo_io::former::Home;
use tombolo_tables::former::FormerMemory;
use tombolo_tables::memory::{Backing, MemoryError, MemorySource, Slab};

use crate::file_system::{CUSTOM, mount_at};
use crate::filter;
use crate::memory::MappedArray;
use crate::record;

/// The array with the digest of what the tables were made for; it is pinned last.
const MARKER: &str = "fingerprint";
/// The array with the text about the tables.
const DESCRIPTION: &str = "description";
/// The same, before it takes the other one's place.
const NEW_DESCRIPTION: &str = "description_new";
/// Fits nothing.
const NO_DIGEST: [u64; 2] = [0; 2];
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
    fingerprint: String,
    /// Where tables are that were made for something else.
    former: Option<PathBuf>,
    _lock: Flock<File>,
}

/// What a directory held when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing; or tables made for something else, which are set aside
    /// ([`PinnedMemory::former`]), and programs of an earlier process may be using those.
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
    /// fingerprint are set aside until the new ones are sealed; what is attached to interfaces stays
    /// where it is, and goes on with them.
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
        let home = home(directory);
        home.recover().map_err(fail("bringing back old tables"))?;
        let marker = directory.join(MARKER);
        let content = if stored(&marker) == Some(digest(fingerprint)) { Content::Adopted } else { Content::New };
        let former = if content == Content::New {
            home.set_aside().map_err(fail("setting old tables aside"))?
        } else {
            home.discard().map_err(fail("removing old tables"))?;
            None
        };
        if content == Content::New && former.is_none() {
            unlink(directory).map_err(fail("detaching old programs"))?;
        }
        let fingerprint = fingerprint.to_owned();
        Ok(Self { directory: directory.to_owned(), content, fingerprint, former, _lock: lock })
    }

    /// Tables that were made for something else.
    #[must_use]
    pub fn former(&self) -> Option<FormerArrays> {
        self.former.clone().map(FormerArrays)
    }

    /// The tables are complete, and hold what the former ones did: a later process may adopt them.
    /// The former ones go, as soon as no program uses them.
    ///
    /// # Errors
    /// [`PinnedMemoryError`].
    pub fn seal(&self) -> Result<(), PinnedMemoryError> {
        let home = home(&self.directory);
        if self.content == Content::New && !self.directory.join(MARKER).exists() {
            let marked = self.mark();
            if marked.is_err() {
                // What they hold is out of date from now on: nothing must come back from there.
                let _ = home.discard();
            }
            marked?;
        }
        fault::check("sealed").and_then(|()| home.discard()).map_err(|source| PinnedMemoryError::Unusable {
            path: self.directory.clone(),
            action: "removing old tables",
            source,
        })
    }

    fn mark(&self) -> Result<(), PinnedMemoryError> {
        fault::check("seal").and_then(|()| write(&self.directory.join(DESCRIPTION), &self.fingerprint)).map_err(
            |source| PinnedMemoryError::Unusable {
                path: self.directory.clone(),
                action: "describing the tables",
                source,
            },
        )?;
        store(&self.directory.join(MARKER), digest(&self.fingerprint))
    }

    /// The tables in `directory`, which this process holds, are made for something else from now on.
    ///
    /// # Errors
    /// [`PinnedMemoryError`]: what was said of them before holds.
    pub fn describe(directory: &Path, fingerprint: &str) -> Result<(), PinnedMemoryError> {
        let (marker, text) = (directory.join(MARKER), directory.join(DESCRIPTION));
        let failed = |source| PinnedMemoryError::Unusable {
            path: directory.to_owned(),
            action: "describing the tables",
            source,
        };
        let new = directory.join(NEW_DESCRIPTION);
        unless_gone(fs::remove_file(&new)).and_then(|()| write(&new, fingerprint)).map_err(failed)?;
        // Until both are there, the tables fit nothing, and the text says what they are.
        let mut digest_of = marker_array(&marker)?;
        digest_of.set(0, NO_DIGEST, 0)?;
        fs::rename(&new, &text).map_err(failed)?;
        Ok(digest_of.set(0, digest(fingerprint), 0)?)
    }

    /// Takes off all interfaces what an earlier process has attached there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn detach(&self) -> io::Result<()> {
        unlink(&self.directory)
    }

    /// Removes the tables again if they are new: nothing was to be kept. Former tables are put back.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn discard(self) -> io::Result<()> {
        match (self.content, &self.former) {
            (Content::Adopted, _) => Ok(()),
            (Content::New, None) => Self::remove(&self.directory),
            (Content::New, Some(_)) => {
                // Sealed ones do not count any more.
                unless_gone(fs::remove_file(self.directory.join(MARKER)))?;
                home(&self.directory).restore()?;
                // Not if the former ones are there again.
                let _ = fs::remove_dir(&self.directory);
                Ok(())
            }
        }
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
            // Empty, in a directory of root: the next start uses it.
            Ok(()) => match fs::remove_dir(directory) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                other => other,
            },
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
        "bindings-used" | "subscribers-used" | "sessions-overflowed" | DESCRIPTION => size_of::<u64>(),
        "bindings-changed" | "bindings-changed-words" => size_of::<u64>(),
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

/// Arrays that were set aside. They are read; programs may be writing there.
#[derive(Debug)]
pub struct FormerArrays(PathBuf);

impl FormerArrays {
    /// What is said about them; nothing if it is not there, or no text.
    #[must_use]
    pub fn description(&self) -> Option<String> {
        let words: Slab<AtomicU64> = Slab::whole(self.span(DESCRIPTION)?);
        let bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        String::from_utf8(bytes.take_while(|byte| *byte != 0).collect()).ok()
    }
}

impl FormerMemory for FormerArrays {
    fn span(&self, name: &'static str) -> Option<Arc<dyn Backing>> {
        let map = MapData::from_pin(self.0.join(map_name(name))).ok()?;
        let info = map.info().ok()?;
        let bytes = info.max_entries() as usize * info.value_size() as usize;
        Some(Arc::new(MappedArray::new(map.fd(), bytes).ok()?))
    }
}

/// Links stay where they are when tables are set aside: they are how programs are replaced in one
/// instant.
fn home(path: &Path) -> Home<'_> {
    Home { path, marker: MARKER, is_table: |name| !is_link(name) }
}

fn is_link(name: &str) -> bool {
    name.starts_with("link-")
}

fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let is_file = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| !kind.is_dir());
    Ok(fs::read_dir(directory)?.filter_map(Result::ok).filter(is_file).map(|entry| entry.path()).collect())
}

/// Removes links, and with them what they attach. The calling thread is in the network namespace of
/// the interfaces.
fn unlink(directory: &Path) -> io::Result<()> {
    let is_link = |path: &PathBuf| path.file_name().is_some_and(|name| is_link(&name.to_string_lossy()));
    files(directory)?.into_iter().filter(is_link).try_for_each(|path| filter::take_off_by(&path))
}

/// Links go before maps, so that no program runs on tables that are going.
fn remove_pins(directory: &Path) -> io::Result<()> {
    unlink(directory)?;
    home(directory).recover()?;
    home(directory).discard()?;
    files(directory)?.iter().try_for_each(fs::remove_file)
}

fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
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

/// Writes a text into a new array, pinned at `path`.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let bytes = text.as_bytes();
    let count = bytes.len() / 8 + 1;
    create(path, element(DESCRIPTION), count * 8).map_err(io::Error::other)?;
    let map = MapData::from_pin(path).map_err(io::Error::other)?;
    let words: Slab<AtomicU64> = Slab::whole(Arc::new(MappedArray::new(map.fd(), count * 8)?));
    for (word, bytes) in words.iter().zip(bytes.chunks(8).chain([&[][..]])) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
    }
    Ok(())
}

fn marker_array(marker: &Path) -> Result<Array<MapData, [u64; 2]>, PinnedMemoryError> {
    let map = MapData::from_pin(marker)?;
    Ok(Array::try_from(aya::maps::Map::Array(map))?)
}

fn stored(marker: &Path) -> Option<[u64; 2]> {
    marker_array(marker).ok()?.get(&0, 0).ok()
}

fn store(marker: &Path, digest: [u64; 2]) -> Result<(), PinnedMemoryError> {
    let mut array = Array::<MapData, [u64; 2]>::create(1, 0)?;
    array.set(0, digest, 0)?;
    Ok(array.pin(marker)?)
}

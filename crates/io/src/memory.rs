//! Memory for the tables: anonymous, or files under the run directory that outlive the process.
//!
//! The run directory holds one file a table and `fingerprint`, a line that says what the tables
//! were made for. A new process with the same fingerprint adopts them; with another one they are
//! replaced. The file `lock` keeps two gateways apart.
//!
//! A page of a mapped file that the file system has no room for, or that lies behind the file's
//! end, kills whoever touches it (SIGBUS). So all space is reserved when a table is made, and a file
//! that is not as long as its table is refused. Who may write there decides who gets which port: a
//! directory or file that others may write, or that is somebody else's, is refused too.
//!
//! [`Populated`] has every page there before the tables are used.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::mman::{MmapAdvise, madvise};
use nix::unistd::geteuid;
use tombolo_tables::memory::{Backing, MemoryError, MemorySource};

use crate::fault;
use crate::former::{FormerFiles, Home};
use crate::mapping::{Mapping, rounded};

/// Memory that goes with the process.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnonymousMemory;

impl MemorySource for AnonymousMemory {
    fn take(&mut self, name: &'static str, bytes: usize) -> Result<Arc<dyn Backing>, MemoryError> {
        let mapping = Mapping::anonymous(bytes).map_err(|error| unavailable(name, bytes, &error))?;
        Ok(Arc::new(mapping))
    }
}

/// Memory of another source whose pages are all there from the beginning. A first write to a page
/// costs a fault, and most of a huge page's is the kernel's filling it with zeros, which otherwise
/// some packet waits for.
pub struct Populated<'s> {
    source: &'s mut dyn MemorySource,
    threads: usize,
}

impl<'s> Populated<'s> {
    /// Pages are made by so many threads at once.
    pub fn new(source: &'s mut dyn MemorySource, threads: usize) -> Self {
        Self { source, threads }
    }
}

impl MemorySource for Populated<'_> {
    fn take(&mut self, name: &'static str, bytes: usize) -> Result<Arc<dyn Backing>, MemoryError> {
        let span = self.source.take(name, bytes)?;
        populate(&*span, self.threads).map_err(|error| unavailable(name, bytes, &error))?;
        Ok(span)
    }
}

/// Bytes that a thread takes at once of a span that is populated.
const PIECE: usize = 64 << 20;

/// Makes all pages of a span by `threads` threads. What they hold stays as it is.
///
/// # Errors
/// What the kernel says; most likely that there is not so much memory.
fn populate(span: &dyn Backing, threads: usize) -> io::Result<()> {
    let pieces = span.len().div_ceil(PIECE);
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(begin) = Some(next.fetch_add(PIECE, Ordering::Relaxed)).filter(|at| *at < span.len()) {
            let length = PIECE.min(span.len() - begin);
            // SAFETY: the piece lies inside the span, which stays mapped while it is borrowed.
            // MADV_POPULATE_WRITE makes its pages writable, as a write of what is there already
            // would, and changes no byte.
            let result = unsafe { madvise(span.base().add(begin).cast(), length, MmapAdvise::MADV_POPULATE_WRITE) };
            match result {
                // A kernel before 5.14, or memory that always has its pages.
                Ok(()) | Err(Errno::EINVAL) => {}
                Err(errno) => return Err(io::Error::from(errno)),
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(pieces)).map(|_| scope.spawn(work)).collect();
        let mine = work();
        others.into_iter().fold(mine, |result, thread| {
            result.and(thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
        })
    })
}

/// Memory in files under a directory, which outlives the process.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    content: Content,
    /// The directory itself was not there before.
    is_made: bool,
    fingerprint: String,
    /// Where tables are that were made for something else.
    former: Option<PathBuf>,
    _lock: Flock<File>,
}

/// What the files of a run directory held when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing, or tables made for something else: they are set aside
    /// ([`RunDirectory::former`]).
    New,
    /// Tables with the same fingerprint, from an earlier process.
    Adopted,
}

/// Keeps two gateways apart.
const LOCK: &str = "lock";

/// A run directory could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirectoryError {
    /// Another gateway uses it.
    #[error("run directory {path} is in use by another gateway: stop it, or give this one a run directory of its own")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Others than this user could change what is in it.
    #[error("{path} is not to be trusted: {reason}; whoever can write there decides who gets which address and port")]
    Untrusted {
        /// The directory, or a file in it.
        path: PathBuf,
        /// What is wrong, and how it is put right.
        reason: String,
    },
    /// It cannot be made, read or written.
    #[error(
        "run directory {path} cannot be used ({action} failed): check that it can be made and written by this user"
    )]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl RunDirectory {
    /// Opens a run directory, making it if need be, and locks it until the value is dropped.
    ///
    /// `fingerprint` stands for everything that the tables' bytes depend on: layout version, sizes,
    /// hash key. Tables with another fingerprint are set aside until the new ones are sealed. New ones are adopted by a later
    /// process if they were [sealed](Self::seal).
    ///
    /// # Errors
    /// [`RunDirectoryError`].
    pub fn open(path: &Path, fingerprint: &str) -> Result<Self, RunDirectoryError> {
        let fail = |action| move |source| RunDirectoryError::Unusable { path: path.to_owned(), action, source };
        let is_made = !path.exists();
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fail("making it"))?;
        let found = std::fs::metadata(path).map_err(fail("looking at it"))?;
        check_owner(path, &found)?;
        let lock_path = path.join(LOCK);
        let lock = open_file(&lock_path, Wanted::Any).map_err(fail("opening its lock"))?;
        check_file(&lock_path, &lock.metadata().map_err(fail("looking at its lock"))?)?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
            .map_err(|_| RunDirectoryError::InUse { path: path.to_owned() })?;

        let home = home(path);
        home.recover().map_err(fail("bringing back old tables"))?;
        let marker = path.join("fingerprint");
        let content = match std::fs::read_to_string(&marker) {
            Ok(found) if found.trim_end() == fingerprint => Content::Adopted,
            _ => Content::New,
        };
        let former = if content == Content::New {
            home.set_aside().map_err(fail("setting old tables aside"))?
        } else {
            home.discard().map_err(fail("removing old tables"))?;
            None
        };
        let fingerprint = fingerprint.to_owned();
        Ok(Self { path: path.to_owned(), content, is_made, fingerprint, former, _lock: lock })
    }

    /// True if a gateway has kept tables in this directory: it may still have some.
    #[must_use]
    pub fn was_used(path: &Path) -> bool {
        path.join(LOCK).exists()
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the tables are those of an earlier process.
    #[must_use]
    pub fn content(&self) -> Content {
        self.content
    }

    /// Tables that were made for something else.
    #[must_use]
    pub fn former(&self) -> Option<FormerFiles> {
        self.former.clone().map(FormerFiles::new)
    }

    /// All tables have been taken, and hold what the former ones did: a later process may adopt
    /// them. The former ones go.
    ///
    /// # Errors
    /// [`RunDirectoryError::Unusable`].
    pub fn seal(&self) -> Result<(), RunDirectoryError> {
        let fail =
            |source| RunDirectoryError::Unusable { path: self.path.clone(), action: "writing its fingerprint", source };
        let home = home(&self.path);
        if self.content == Content::New && !self.path.join("fingerprint").exists() {
            let written = fault::check("seal").and_then(|()| write_marker(&self.path, &self.fingerprint));
            if written.is_err() {
                // What they hold is out of date from now on: nothing must come back from there.
                let _ = home.discard();
            }
            written.map_err(fail)?;
        }
        fault::check("sealed").and_then(|()| home.discard()).map_err(fail)
    }

    /// The tables of the run directory at `path`, which this process holds, are made for something else
    /// from now on.
    ///
    /// # Errors
    /// [`RunDirectoryError::Unusable`]: what was written before holds.
    pub fn describe(path: &Path, fingerprint: &str) -> Result<(), RunDirectoryError> {
        write_marker(path, fingerprint).map_err(|source| RunDirectoryError::Unusable {
            path: path.to_owned(),
            action: "writing its fingerprint",
            source,
        })
    }

    /// Removes tables that were made for something else, and puts nothing in their place.
    ///
    /// # Errors
    /// [`RunDirectoryError::Unusable`].
    pub fn forget(self) -> Result<(), RunDirectoryError> {
        let fail =
            |source| RunDirectoryError::Unusable { path: self.path.clone(), action: "removing old tables", source };
        home(&self.path).discard().map_err(fail)
    }

    /// Removes the tables again if they are new, and the directory if it is: nothing was to be kept.
    /// Former tables are put back.
    pub fn discard(self) {
        if self.content == Content::Adopted {
            return;
        }
        let _ = remove_if_there(&self.path.join("fingerprint"));
        let _ = home(&self.path).restore();
        if self.is_made {
            let _ = remove_if_there(&self.path.join(LOCK));
            // Not if there is something else in it by now.
            let _ = std::fs::remove_dir(&self.path);
        }
    }

    /// The file of a table: a new one, or the one of the earlier process, which has its length.
    fn table(&self, name: &'static str, bytes: usize) -> Result<File, String> {
        let path = self.path.join(name).with_extension("table");
        let wanted = if self.content == Content::New { Wanted::New } else { Wanted::There };
        let file = open_file(&path, wanted).map_err(|error| format!("{}: {error}", path.display()))?;
        let found = file.metadata().map_err(|error| error.to_string())?;
        check_file(&path, &found).map_err(|error| error.to_string())?;
        let length = rounded(bytes).map_err(|error| error.to_string())?.get() as u64;
        if self.content == Content::Adopted && found.len() != length {
            return Err(format!(
                "{} has {} bytes where {length} belong: it was truncated, or is not the gateway's; remove {} to begin \
                 without the old state",
                path.display(),
                found.len(),
                self.path.display()
            ));
        }
        Ok(file)
    }
}

impl MemorySource for RunDirectory {
    fn take(&mut self, name: &'static str, bytes: usize) -> Result<Arc<dyn Backing>, MemoryError> {
        let refused = |reason| MemoryError::Unavailable { name, bytes, reason };
        let file = self.table(name, bytes).map_err(refused)?;
        let mapping = Mapping::file(&file, bytes).map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOSPC | Errno::EDQUOT) => refused(format!(
                "the file system of {} has no room for it ({error}); make room, lower [capacity], or choose another \
                 run_directory",
                self.path.display()
            )),
            _ => unavailable(name, bytes, &error),
        })?;
        Ok(Arc::new(mapping))
    }
}

fn unavailable(name: &'static str, bytes: usize, error: &io::Error) -> MemoryError {
    MemoryError::Unavailable { name, bytes, reason: error.to_string() }
}

/// Which file is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// One that is not there yet.
    New,
    /// One that is there.
    There,
    /// Either.
    Any,
}

/// Opens a file for reading and writing. A link is not followed: it would lead to a file of whoever
/// made it, or have the gateway write to somebody else's.
fn open_file(path: &Path, wanted: Wanted) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    match wanted {
        Wanted::New => options.create_new(true),
        Wanted::There => &mut options,
        Wanted::Any => options.create(true),
    };
    options.open(path)
}

/// A user that is trusted beside root and this process's own; root if there is none.
static TRUSTED: AtomicU32 = AtomicU32::new(0);

/// Trusts files of this user as well: the one that this process becomes, and its predecessor was.
pub fn trust(user: u32) {
    TRUSTED.store(user, Ordering::Relaxed);
}

fn check_owner(path: &Path, found: &Metadata) -> Result<(), RunDirectoryError> {
    let untrusted = |reason| Err(RunDirectoryError::Untrusted { path: path.to_owned(), reason });
    let own = geteuid().as_raw();
    let trusted = [own, 0, TRUSTED.load(Ordering::Relaxed)];
    if !trusted.contains(&found.uid()) {
        return untrusted(format!("it belongs to user {} (chown {own} {})", found.uid(), path.display()));
    }
    if found.mode() & 0o022 != 0 {
        return untrusted(format!("others may write it (chmod go-w {})", path.display()));
    }
    Ok(())
}

fn check_file(path: &Path, found: &Metadata) -> Result<(), RunDirectoryError> {
    let remedy = format!("remove {}", path.display());
    if !found.is_file() {
        return Err(RunDirectoryError::Untrusted {
            path: path.to_owned(),
            reason: format!("it is no ordinary file ({remedy})"),
        });
    }
    if found.nlink() != 1 {
        return Err(RunDirectoryError::Untrusted {
            path: path.to_owned(),
            reason: format!("it has other names as well ({remedy})"),
        });
    }
    check_owner(path, found)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn home(path: &Path) -> Home<'_> {
    Home { path, marker: "fingerprint", is_table: |name| name == "fingerprint" || name.ends_with(".table") }
}

/// Written under another name first: it is there as a whole, or not at all.
fn write_marker(directory: &Path, fingerprint: &str) -> io::Result<()> {
    let (new, marker) = (directory.join("fingerprint.new"), directory.join("fingerprint"));
    remove_if_there(&new)?;
    let mut file = open_file(&new, Wanted::New)?;
    writeln!(file, "{fingerprint}")?;
    std::fs::rename(new, marker)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::HUGE_PAGE;
    use std::sync::atomic::AtomicU64;
    use tombolo_tables::memory::Slab;

    fn word(source: &mut dyn MemorySource, name: &'static str) -> Slab<AtomicU64> {
        Slab::take(source, name, 1000).unwrap()
    }

    /// Bytes from `base` on, a multiple of a page, that have pages.
    fn resident(base: *const u8, bytes: usize) -> usize {
        let mut pages = vec![0_u8; bytes.div_ceil(4096)];
        // SAFETY: the caller's span is mapped; one byte a page of 4096 bytes or more is written.
        let result = unsafe { libc::mincore(base.cast_mut().cast(), bytes, pages.as_mut_ptr()) };
        assert_eq!(result, 0);
        pages.iter().filter(|page| **page & 1 == 1).count() * 4096
    }

    #[test]
    fn populated_memory_is_there_and_holds_what_it_held() {
        let home = tempfile::tempdir().unwrap();
        let bytes = PIECE + PIECE / 2;
        let mut anonymous = Populated { source: &mut AnonymousMemory, threads: 3 };
        let span = anonymous.take("a", bytes).unwrap();
        assert_eq!(resident(span.base().as_ptr(), span.len()), span.len());

        let mut directory = RunDirectory::open(home.path(), "x").unwrap();
        let words = |source: &mut dyn MemorySource| -> Slab<AtomicU64> { Slab::take(source, "a", bytes / 8).unwrap() };
        words(&mut directory)[bytes / 8 - 1].store(7, Ordering::Relaxed);
        directory.seal().unwrap();
        drop(directory);
        let mut directory = RunDirectory::open(home.path(), "x").unwrap();
        let words = words(&mut Populated::new(&mut directory, 3));
        assert_eq!(resident((&raw const words[0]).cast(), bytes), bytes);
        assert_eq!((words[0].load(Ordering::Relaxed), words[bytes / 8 - 1].load(Ordering::Relaxed)), (0, 7));
    }

    #[test]
    fn tables_of_the_same_fingerprint_are_adopted() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("run");
        let mut first = RunDirectory::open(&path, "layout 1").unwrap();
        assert_eq!(first.content(), Content::New);
        word(&mut first, "sessions")[999].store(7, Ordering::Relaxed);
        first.seal().unwrap();
        drop(first);

        let mut second = RunDirectory::open(&path, "layout 1").unwrap();
        assert_eq!(second.content(), Content::Adopted);
        assert_eq!(word(&mut second, "sessions")[999].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn tables_of_another_fingerprint_are_replaced() {
        let home = tempfile::tempdir().unwrap();
        let mut first = RunDirectory::open(home.path(), "layout 1").unwrap();
        word(&mut first, "sessions")[0].store(7, Ordering::Relaxed);
        first.seal().unwrap();
        drop(first);

        let mut second = RunDirectory::open(home.path(), "layout 2").unwrap();
        assert_eq!(second.content(), Content::New);
        assert_eq!(word(&mut second, "sessions")[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_run_directory_has_one_user() {
        let home = tempfile::tempdir().unwrap();
        let _first = RunDirectory::open(home.path(), "x").unwrap();
        let error = RunDirectory::open(home.path(), "x").unwrap_err();
        assert!(error.to_string().contains("in use by another gateway"), "{error}");
    }

    /// A sealed run directory with one table.
    fn sealed(home: &Path) -> PathBuf {
        let mut first = RunDirectory::open(home, "x").unwrap();
        word(&mut first, "sessions")[0].store(7, Ordering::Relaxed);
        first.seal().unwrap();
        home.join("sessions.table")
    }

    fn refusal(home: &Path) -> String {
        let mut directory = RunDirectory::open(home, "x").unwrap();
        Slab::<AtomicU64>::take(&mut directory, "sessions", 1000).unwrap_err().to_string()
    }

    #[test]
    fn a_file_has_its_space_from_the_beginning() {
        let home = tempfile::tempdir().unwrap();
        let file = std::fs::metadata(sealed(home.path())).unwrap();
        assert!(file.blocks() * 512 >= HUGE_PAGE as u64, "{} blocks", file.blocks());
    }

    #[test]
    fn a_file_that_was_truncated_or_replaced_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let table = sealed(home.path());
        OpenOptions::new().write(true).open(&table).unwrap().set_len(4096).unwrap();
        let text = refusal(home.path());
        assert!(text.contains("has 4096 bytes where 2097152 belong"), "{text}");
        std::fs::remove_file(&table).unwrap();
        assert!(refusal(home.path()).contains("No such file"));
        let elsewhere = home.path().join("elsewhere");
        File::create(&elsewhere).unwrap().set_len(HUGE_PAGE as u64).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &table).unwrap();
        assert!(refusal(home.path()).contains("symbolic links"), "{}", refusal(home.path()));
        std::fs::remove_file(&table).unwrap();
        std::fs::hard_link(&elsewhere, &table).unwrap();
        assert!(refusal(home.path()).contains("other names"), "{}", refusal(home.path()));
    }

    #[test]
    fn tables_that_were_not_completed_are_not_adopted() {
        let home = tempfile::tempdir().unwrap();
        let mut first = RunDirectory::open(home.path(), "x").unwrap();
        word(&mut first, "sessions")[0].store(7, Ordering::Relaxed);
        drop(first);
        let mut second = RunDirectory::open(home.path(), "x").unwrap();
        assert_eq!(second.content(), Content::New);
        assert_eq!(word(&mut second, "sessions")[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_discarded_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("run");
        let mut first = RunDirectory::open(&path, "x").unwrap();
        word(&mut first, "sessions");
        first.seal().unwrap();
        first.discard();
        assert!(!path.exists());
        sealed(&path);
        RunDirectory::open(&path, "x").unwrap().discard();
        assert_eq!(RunDirectory::open(&path, "x").unwrap().content(), Content::Adopted, "it was not the discarder's");
    }

    #[test]
    fn a_lock_that_is_a_link_and_a_directory_that_others_may_write_are_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::tempdir().unwrap();
        let elsewhere = home.path().join("elsewhere");
        File::create(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, home.path().join("lock")).unwrap();
        let error = RunDirectory::open(home.path(), "x").unwrap_err();
        assert!(error.to_string().contains("opening its lock failed"), "{error}");
        std::fs::remove_file(home.path().join("lock")).unwrap();
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = RunDirectory::open(home.path(), "x").unwrap_err();
        assert!(error.to_string().contains("others may write it (chmod go-w"), "{error}");
    }
}

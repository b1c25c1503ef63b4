//! Tables that do not fit any more are set aside, in the directory `former` beside the new ones,
//! until what they hold has been carried over.
//!
//! ```text
//! marker, *.table                  tables in use
//! former/marker, former/*.table    tables that are read; the new ones have no marker yet
//! former-moving/                   tables on their way there
//! ```
//!
//! Whoever calls this holds the lock of the directory. A process that dies at any point leaves what
//! the next one can go on from: tables in `former-moving` go back to where they were; new tables
//! without a marker are incomplete, and those in `former` count; new tables with a marker are
//! complete, and those in `former` are over.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tombolo_tables::former::FormerMemory;
use tombolo_tables::memory::Backing;

use crate::fault;
use crate::mapping::Mapping;

/// Name of the directory.
const FORMER: &str = "former";
const MOVING: &str = "former-moving";

/// A directory of tables, of which a file named `marker` says what they are.
#[derive(Debug, Clone, Copy)]
pub struct Home<'a> {
    /// The directory.
    pub path: &'a Path,
    /// The file that is written last.
    pub marker: &'a str,
    /// True for names of files that belong to the tables.
    pub is_table: fn(&str) -> bool,
}

impl Home<'_> {
    /// Brings back what a process that died was setting aside. Before the marker is read.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn recover(&self) -> io::Result<()> {
        let moving = self.path.join(MOVING);
        for name in names(&moving)? {
            fs::rename(moving.join(&name), self.path.join(&name))?;
        }
        remove_directory(&moving)
    }

    /// Sets the tables aside, which do not fit. Where tables are: incomplete ones are removed, and
    /// what was set aside before stays. If it fails, everything is where it was.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_aside(&self) -> io::Result<Option<PathBuf>> {
        self.move_aside().inspect_err(|_| drop(self.restore()))
    }

    fn move_aside(&self) -> io::Result<Option<PathBuf>> {
        let former = self.path.join(FORMER);
        let is_complete = self.path.join(self.marker).exists();
        if !is_complete {
            self.remove_tables()?;
            let found = former.join(self.marker).exists();
            if !found {
                self.discard()?;
            }
            return Ok(found.then_some(former));
        }
        self.discard()?;
        fault::check("set-aside")?;
        let moving = self.path.join(MOVING);
        DirBuilder::new().mode(0o700).create(&moving)?;
        let tables = self.tables()?;
        for name in tables.iter().map(String::as_str).filter(|name| *name != self.marker) {
            fs::rename(self.path.join(name), moving.join(name))?;
        }
        fault::check("set-aside-tables")?;
        fs::rename(self.path.join(self.marker), moving.join(self.marker))?;
        fs::rename(&moving, &former)?;
        fault::check("set-aside-all")?;
        Ok(Some(former))
    }

    /// Puts back what was set aside; the new tables, which are not complete, go.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn restore(&self) -> io::Result<()> {
        self.recover()?;
        if self.path.join(self.marker).exists() {
            return Ok(());
        }
        self.remove_tables()?;
        let former = self.path.join(FORMER);
        if !former.join(self.marker).exists() {
            return self.discard();
        }
        fs::rename(former, self.path.join(MOVING))?;
        self.recover()
    }

    fn tables(&self) -> io::Result<Vec<String>> {
        let is_ours = |name: &String| (self.is_table)(name);
        Ok(names(self.path)?.into_iter().filter(is_ours).collect())
    }

    fn remove_tables(&self) -> io::Result<()> {
        self.tables()?.iter().try_for_each(|name| remove_file(&self.path.join(name)))
    }

    /// Removes what was set aside, if anything was.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn discard(&self) -> io::Result<()> {
        let former = self.path.join(FORMER);
        // Without its marker it counts no more, even if this is cut short.
        remove_file(&former.join(self.marker))?;
        for name in names(&former)? {
            remove_file(&former.join(name))?;
        }
        remove_directory(&former)
    }
}

/// Names of the files in a directory; none if there is no such directory.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

fn remove_file(path: &Path) -> io::Result<()> {
    unless_gone(fs::remove_file(path))
}

fn remove_directory(path: &Path) -> io::Result<()> {
    unless_gone(fs::remove_dir(path))
}

fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
        result => result,
    }
}

/// Tables in files that were set aside. They are read; nothing of it reaches the files.
#[derive(Debug)]
pub struct FormerFiles(PathBuf);

impl FormerFiles {
    /// Those in `directory`.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// What is said about them.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn description(&self) -> io::Result<String> {
        fs::read_to_string(self.0.join("fingerprint"))
    }
}

impl FormerMemory for FormerFiles {
    fn span(&self, name: &'static str) -> Option<Arc<dyn Backing>> {
        let file = File::open(self.0.join(name).with_extension("table")).ok()?;
        Some(Arc::new(Mapping::copy(&file).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(path: &Path) -> Home<'_> {
        Home { path, marker: "fingerprint", is_table: |name| name.ends_with(".table") }
    }

    fn put(path: &Path, names: &[&str]) {
        fs::create_dir_all(path).unwrap();
        names.iter().for_each(|name| fs::write(path.join(name), name).unwrap());
    }

    fn all(path: &Path) -> Vec<String> {
        let mut found = names(path).unwrap();
        found.extend(names(&path.join(FORMER)).unwrap().into_iter().map(|name| format!("former/{name}")));
        found.extend(names(&path.join(MOVING)).unwrap().into_iter().map(|name| format!("moving/{name}")));
        found.sort();
        found
    }

    #[test]
    fn tables_are_set_aside_and_what_is_no_table_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        put(path, &["lock", "fingerprint", "a.table", "b.table"]);
        home(path).recover().unwrap();
        assert_eq!(home(path).set_aside().unwrap(), Some(path.join(FORMER)));
        assert_eq!(all(path), ["former/a.table", "former/b.table", "former/fingerprint", "lock"]);
        // New tables that were not completed.
        put(path, &["a.table"]);
        home(path).recover().unwrap();
        assert_eq!(home(path).set_aside().unwrap(), Some(path.join(FORMER)));
        assert_eq!(all(path), ["former/a.table", "former/b.table", "former/fingerprint", "lock"]);
        // Completed ones take their place.
        put(path, &["a.table", "fingerprint"]);
        home(path).set_aside().unwrap();
        assert_eq!(all(path), ["former/a.table", "former/fingerprint", "lock"]);
        home(path).discard().unwrap();
        assert_eq!((all(path), home(path).set_aside().unwrap()), (vec!["lock".to_owned()], None));
    }

    #[test]
    fn what_was_set_aside_is_put_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        put(path, &["lock", "fingerprint", "a.table"]);
        home(path).set_aside().unwrap();
        put(path, &["b.table"]);
        home(path).restore().unwrap();
        assert_eq!(all(path), ["a.table", "fingerprint", "lock"]);
        fs::remove_file(path.join("fingerprint")).unwrap();
        home(path).restore().unwrap();
        assert_eq!(all(path), ["lock"]);
    }

    #[test]
    fn a_move_that_was_cut_short_is_undone() {
        for moved in 0..=3 {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path();
            let files = ["a.table", "b.table", "fingerprint"];
            put(&path.join(MOVING), &files[..moved]);
            put(path, &files[moved..]);
            home(path).recover().unwrap();
            assert_eq!(all(path), files);
        }
    }

    #[test]
    fn a_removal_that_was_cut_short_leaves_nothing_that_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        put(&path.join(FORMER), &["b.table"]);
        put(path, &["a.table"]);
        assert_eq!(home(path).set_aside().unwrap(), None);
        assert!(all(path).is_empty());
    }
}

//! Result files: JSON Lines. The first line of a run says what was measured on what (`"record":
//! "run"`), then comes one line a sample (`"sample"`), written when it was taken, then one a
//! summary (`"summary"`). Files may be concatenated.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::Serialize;

/// A file that results are appended to.
#[derive(Debug)]
pub struct ResultFile {
    path: PathBuf,
    file: File,
}

impl ResultFile {
    /// Opens a file for appending, and makes it and its directory where needed.
    ///
    /// # Errors
    /// As opening files has them.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// The file's name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a record as one line.
    ///
    /// # Errors
    /// As writing has them, or when the record has no JSON form.
    pub fn write(&mut self, record: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        // One write a line: a run that is killed leaves whole lines.
        self.file.write_all(&line)
    }
}

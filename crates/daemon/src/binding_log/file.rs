//! The file of the log: lines of JSON in a chain. It may be moved away or emptied at any time, as
//! rotation does, and its disk may be full.
//!
//! Lines are kept until a step is complete and then written at once. What cannot be written is lost:
//! the file ends with the last whole line that it took, the chain goes on from there, and the losses
//! are told when it takes lines again.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::chain::Chain;
use super::marks::{Mark, MarkKind};
use crate::utc::Utc;

/// Bytes of lines that are kept before they are written.
const KEPT: usize = 1 << 20;
/// Where the last line of a file is looked for, from its end.
const TAIL: u64 = 1 << 16;

/// The file.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    inode: u64,
    /// Its length, as far as its lines are whole.
    length: u64,
    /// Up to the last line in the file.
    written: Chain,
    /// Up to the last line that is kept.
    kept: Chain,
    lines: Vec<u8>,
    /// The line that was added last.
    line: Vec<u8>,
    /// The file ends within a line.
    is_torn: bool,
    /// It has lines that a chain goes on from.
    has_chain: bool,
    /// The line that was added last begins a file, and nobody has asked for it yet.
    has_begun: bool,
    /// The disk is full, as a test has it.
    #[cfg(test)]
    pub(super) is_refusing: bool,
}

/// What an earlier process has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Found {
    /// There are lines.
    pub(super) has_lines: bool,
    /// Bytes of a last line that is not whole.
    pub(super) torn: Option<u64>,
}

impl LogFile {
    /// Opens the file, or makes it. The chain goes on from its last line; without one, from `before`.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(super) fn open(path: &Path, before: Chain, now: Utc) -> io::Result<(Self, Found)> {
        let (mut log, found) = Self::find(path)?;
        log.begin_after(before, now);
        Ok((log, found))
    }

    /// Opens the file, or makes it, and writes nothing yet.
    ///
    /// # Errors
    /// What the kernel says; `WouldBlock` if another gateway writes to it.
    pub(super) fn find(path: &Path) -> io::Result<(Self, Found)> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            // A file system without locks.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        let metadata = file.metadata()?;
        let (last, torn) = end_of(&mut file, metadata.len())?;
        let found = Found { has_lines: metadata.len() > 0, torn };
        let written = last.unwrap_or_default();
        let (inode, length) = (metadata.ino(), metadata.len());
        let (path, is_torn) = (path.to_owned(), torn.is_some());
        let (lines, line) = (Vec::new(), Vec::new());
        let log = Self {
            path,
            file,
            inode,
            length,
            written,
            kept: written,
            lines,
            line,
            is_torn,
            has_chain: last.is_some(),
            has_begun: false,
            #[cfg(test)]
            is_refusing: false,
        };
        Ok((log, found))
    }

    /// Without lines it goes on from `before`, which its first line says.
    pub(super) fn begin_after(&mut self, before: Chain, now: Utc) {
        if !self.has_chain {
            (self.written, self.kept) = (before, before);
            self.begin(now);
        }
    }

    /// Up to its last line.
    pub(super) fn chain(&self) -> Chain {
        self.written
    }

    /// Adds a line. It is written with the next [`flush`](Self::flush).
    pub(super) fn add(&mut self, event: &impl Serialize) {
        self.line.clear();
        // Into memory, and nothing that is logged has keys that JSON does not know.
        let _ = serde_json::to_writer(&mut self.line, event);
        self.kept.seal(&mut self.line);
        self.lines.extend_from_slice(&self.line);
        self.lines.push(b'\n');
    }

    /// The line that was added last.
    pub(super) fn line(&self) -> &[u8] {
        &self.line
    }

    /// True if so much is kept that it should be written.
    pub(super) fn is_full(&self) -> bool {
        self.lines.len() >= KEPT
    }

    /// Writes what is kept.
    ///
    /// # Errors
    /// What the kernel says; what was kept is lost.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        if self.is_torn {
            self.lines.insert(0, b'\n');
        }
        let result = self.write();
        let bytes = self.lines.len() as u64;
        self.lines.clear();
        if result.is_ok() {
            (self.written, self.is_torn) = (self.kept, false);
            self.length += bytes;
            return Ok(());
        }
        // A part may be there. Where that cannot be taken back, the next line begins behind it.
        self.kept = self.written;
        if self.file.set_len(self.length).is_err() {
            self.length = self.file.metadata().map_or(self.length, |found| found.len());
            self.is_torn = true;
        }
        result
    }

    fn write(&mut self) -> io::Result<()> {
        #[cfg(test)]
        if self.is_refusing {
            // A part of it finds room.
            self.file.write_all(&self.lines[..self.lines.len() / 2])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_all(&self.lines)
    }

    /// What was written is on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Opens a new file if this one was moved away or emptied. The chain goes on there.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn follow(&mut self, now: Utc) -> io::Result<()> {
        let found = std::fs::metadata(&self.path).ok().filter(|found| found.ino() == self.inode);
        match found {
            Some(found) if found.len() >= self.length => return Ok(()),
            // Emptied. It is still locked.
            Some(found) => {
                (self.length, self.is_torn) = (found.len(), false);
                self.begin(now);
            }
            None => {
                self.flush()?;
                (*self, _) = Self::open(&self.path, self.written, now)?;
            }
        }
        self.flush()?;
        self.sync()
    }

    fn begin(&mut self, now: Utc) {
        self.has_chain = true;
        self.add(&Mark { time: now, kind: MarkKind::Begin { previous: self.kept.hash.to_string() } });
        self.has_begun = true;
    }

    /// True once after a file has begun: with the line that was added last.
    pub(super) fn has_begun(&mut self) -> bool {
        std::mem::take(&mut self.has_begun)
    }

    /// Its name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// The last whole line of a file of `length` bytes, and how many bytes stand behind its line feed: those
/// of a line that is not whole, or of the last one itself where only the line feed is missing.
fn end_of(file: &mut File, length: u64) -> io::Result<(Option<Chain>, Option<u64>)> {
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    // What is written to it meanwhile is not looked at, nor what a device has without end.
    file.take(length.min(TAIL)).read_to_end(&mut end)?;
    let whole = end.iter().rposition(|&byte| byte == b'\n').map_or(0, |place| place + 1);
    let torn = (whole < end.len()).then_some((end.len() - whole) as u64);
    let text = String::from_utf8_lossy(&end);
    Ok((text.lines().rev().find_map(Chain::of_line), torn))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &Path) -> Vec<String> {
        std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
    }

    /// Whether the lines are one chain.
    fn are_whole<'l>(lines: impl IntoIterator<Item = &'l String>) -> bool {
        let mut chain = Chain::default();
        lines.into_iter().all(|line| chain.check(line).is_ok())
    }

    fn write(log: &mut LogFile, number: u32) {
        log.add(&serde_json::json!({ "number": number }));
        log.flush().unwrap();
    }

    #[test]
    fn the_chain_goes_on_over_restarts_and_rotation() {
        let home = tempfile::tempdir().unwrap();
        let (path, old) = (home.path().join("log"), home.path().join("log.1"));
        let (mut log, found) = LogFile::open(&path, Chain::default(), Utc(5)).unwrap();
        assert_eq!(found, Found::default());
        write(&mut log, 1);
        drop(log);
        let (mut log, found) = LogFile::open(&path, Chain::default(), Utc(6)).unwrap();
        assert_eq!(found, Found { has_lines: true, torn: None });
        write(&mut log, 2);
        std::fs::rename(&path, &old).unwrap();
        log.follow(Utc(7)).unwrap();
        write(&mut log, 3);
        // As copytruncate has it.
        std::fs::write(&path, "").unwrap();
        log.follow(Utc(8)).unwrap();
        write(&mut log, 4);
        let (old, new) = (lines(&old), lines(&path));
        assert_eq!((old.len(), new.len()), (3, 2), "{old:?} {new:?}");
        assert!(are_whole(&old) && new[0].contains("\"begin\"") && new[1].contains("\"number\":4"), "{new:?}");
        assert_eq!(Chain::of_line(&new[1]).unwrap().number, 7);
    }

    #[test]
    fn a_line_that_was_not_completed_stays_and_the_next_one_begins_behind_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("log");
        let (mut log, _) = LogFile::open(&path, Chain::default(), Utc(5)).unwrap();
        write(&mut log, 1);
        drop(log);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}{{\"numb")).unwrap();
        let (mut log, found) = LogFile::open(&path, Chain::default(), Utc(6)).unwrap();
        assert_eq!(found, Found { has_lines: true, torn: Some(6) });
        write(&mut log, 2);
        let lines = lines(&path);
        assert!(lines[2] == "{\"numb" && are_whole([&lines[0], &lines[1], &lines[3]]), "{lines:?}");
    }

    #[test]
    fn two_do_not_write_to_one_file() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("log");
        let (_log, _) = LogFile::open(&path, Chain::default(), Utc(5)).unwrap();
        let refused = LogFile::open(&path, Chain::default(), Utc(5)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_a_full_disk_refuses_leaves_the_chain_whole() {
        // A file that takes nothing.
        let (mut log, _) = LogFile::open(Path::new("/dev/full"), Chain::default(), Utc(5)).unwrap();
        let before = log.written;
        log.add(&serde_json::json!({ "number": 1 }));
        assert_eq!(log.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!((log.kept, log.written, log.lines.len()), (before, before, 0));
    }
}

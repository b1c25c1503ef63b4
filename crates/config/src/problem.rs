//! What is wrong with a file, in one line each.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// One mistake, or one piece of advice: where, what, why, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Name of the file.
    pub file: String,
    /// Line in the file, from 1; 0 if the problem is with the file as a whole.
    pub line: usize,
    /// The key and its value as they stand in the file, where there is one.
    pub place: String,
    /// Reason and fix.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.place.is_empty() {
            write!(f, ": {}", self.place)?;
        }
        write!(f, ": {}", self.text)
    }
}

/// Everything that is wrong with a file, in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    problems: Vec<Problem>,
}

impl ConfigError {
    /// The mistakes; at least one.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    pub(crate) fn one(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }

    /// What is wrong with a file as a whole, if anything is.
    pub(crate) fn of_file(file: &str, texts: Vec<String>) -> Option<Self> {
        let problem = |text| Problem { file: file.to_owned(), line: 0, place: String::new(), text };
        let problems: Vec<Problem> = texts.into_iter().map(problem).collect();
        (!problems.is_empty()).then_some(Self { problems })
    }

    pub(crate) fn unreadable(file: &str, error: &io::Error) -> Self {
        let text = match error.kind() {
            io::ErrorKind::NotFound => "there is no such file; name another one with -c FILE".to_owned(),
            io::ErrorKind::PermissionDenied => "may not be read; give this user read access to it".to_owned(),
            io::ErrorKind::IsADirectory => "is a directory; name the file in it".to_owned(),
            _ => format!("cannot be read: {error}"),
        };
        Self::one(Problem { file: file.to_owned(), line: 0, place: String::new(), text })
    }

    pub(crate) fn not_utf8(file: &str, bytes: &[u8], valid: usize) -> Self {
        let line = 1 + bytes[..valid].iter().filter(|&&byte| byte == b'\n').count();
        let text = "is not UTF-8; save the file in that encoding".to_owned();
        Self::one(Problem { file: file.to_owned(), line, place: String::new(), text })
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.problems.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

/// Collects mistakes and advice while a file is read.
#[derive(Debug, Default)]
pub(crate) struct Log {
    mistakes: Vec<Problem>,
    warnings: Vec<Problem>,
    /// Other files that were read, with what their content is known by.
    files: BTreeMap<PathBuf, u64>,
}

impl Log {
    pub(crate) fn mistake(&mut self, problem: Problem) {
        self.mistakes.push(problem);
    }

    pub(crate) fn warning(&mut self, problem: Problem) {
        self.warnings.push(problem);
    }

    /// Another file is read with this one, and what its content is known by; nothing if it cannot be read.
    pub(crate) fn reads(&mut self, file: &Path, content: Option<u64>) {
        self.files.insert(file.to_owned(), content.unwrap_or_default());
    }

    /// The other files.
    pub(crate) fn take_files(&mut self) -> BTreeMap<PathBuf, u64> {
        std::mem::take(&mut self.files)
    }

    /// The value, or nothing and a mistake more.
    pub(crate) fn keep<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.mistake(problem)).ok()
    }

    /// The mistakes, in the order of the lines, where they are no reason to refuse the file.
    pub(crate) fn into_mistakes(mut self) -> Vec<Problem> {
        self.mistakes.sort_by_key(|problem| problem.line);
        self.mistakes
    }

    /// The advice, if there is no mistake.
    pub(crate) fn finish(mut self) -> Result<Vec<Problem>, ConfigError> {
        if self.mistakes.is_empty() {
            return Ok(self.warnings);
        }
        self.mistakes.sort_by_key(|problem| problem.line);
        Err(ConfigError { problems: self.mistakes })
    }
}

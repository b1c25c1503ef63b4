//! The parsed file with where everything stands in it.
//!
//! Not serde: it stops at the first mistake, and cannot tell the path of a key or the text of a
//! value.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{ConfigError, Log, Problem};
use crate::reference::Section;

/// Longest piece of a value that an error quotes, in characters.
const QUOTED: usize = 60;

/// Parses the text.
pub(crate) fn parse<'t>(name: &str, text: &'t str) -> Result<Spanned<DeTable<'t>>, ConfigError> {
    DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(0, |span| line_of(text, span.start));
        let message = error.message().replace('\n', ", ");
        ConfigError::one(Problem {
            file: name.to_owned(),
            line,
            place: String::new(),
            text: format!("not TOML: {message}"),
        })
    })
}

/// The outermost table, with the keys of `section`.
pub(crate) fn root<'d>(
    (name, text): (&'d str, &'d str),
    tree: &'d Spanned<DeTable<'d>>,
    section: &'static Section,
    log: &mut Log,
) -> Table<'d> {
    let document = Document { name, text };
    let node = Node { document, path: String::new(), start: 0, value: None };
    Table::new(node, tree.get_ref(), section, log)
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

#[derive(Debug, Clone, Copy)]
struct Document<'d> {
    name: &'d str,
    text: &'d str,
}

/// One value of the file, or the place where one is missing.
#[derive(Debug, Clone)]
pub(crate) struct Node<'d> {
    document: Document<'d>,
    path: String,
    start: usize,
    value: Option<&'d Spanned<DeValue<'d>>>,
}

impl<'d> Node<'d> {
    /// A problem with this value. `text` is the reason and the fix.
    pub(crate) fn problem(&self, text: impl Display) -> Problem {
        Problem {
            file: self.document.name.to_owned(),
            line: line_of(self.document.text, self.start),
            place: self.place(),
            text: text.to_string(),
        }
    }

    /// Name of the file, as it was given.
    pub(crate) fn file(&self) -> &str {
        self.document.name
    }

    /// Path of the key in the file, as `service[0].pool`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The key, and the value where it is short enough to be quoted.
    fn place(&self) -> String {
        let Some(value) = self.value else { return self.path.clone() };
        if matches!(value.get_ref(), DeValue::Table(_)) {
            return self.path.clone();
        }
        let text = self.value_text();
        let line = text.lines().next().unwrap_or_default();
        let quoted: String = line.chars().take(QUOTED).collect();
        let rest = if quoted.len() < text.len() { "..." } else { "" };
        format!("{} = {quoted}{rest}", self.path)
    }

    /// The value as it stands in the file.
    pub(crate) fn value_text(&self) -> &'d str {
        self.value.and_then(|value| self.document.text.get(value.span())).unwrap_or_default()
    }

    fn mismatch(&self, expected: &str, hint: &str) -> Problem {
        let found = self.value.map_or("nothing", |value| value.get_ref().type_str());
        self.problem(format!("is of the type {found}; {expected} is expected{hint}"))
    }

    /// The file that it names, relative to the configuration file.
    pub(crate) fn beside(&self) -> Result<PathBuf, Problem> {
        Ok(Path::new(self.file()).parent().unwrap_or(Path::new("")).join(self.text()?))
    }

    /// The value as text.
    pub(crate) fn text(&self) -> Result<&'d str, Problem> {
        let text = self.value.and_then(|value| value.get_ref().as_str());
        text.ok_or_else(|| self.mismatch("a string", ", in quotes"))
    }

    /// The value as a switch.
    pub(crate) fn switch(&self) -> Result<bool, Problem> {
        let switch = self.value.and_then(|value| value.get_ref().as_bool());
        switch.ok_or_else(|| self.mismatch("true or false", ", without quotes"))
    }

    /// The value as a number within bounds.
    pub(crate) fn number(&self, bounds: RangeInclusive<u64>) -> Result<u64, Problem> {
        let integer = self.value.and_then(|value| value.get_ref().as_integer());
        let integer = integer.ok_or_else(|| self.mismatch("a whole number", ", without quotes"))?;
        let number = u64::from_str_radix(integer.as_str(), integer.radix());
        number
            .ok()
            .filter(|number| bounds.contains(number))
            .ok_or_else(|| self.problem(format!("out of range; use {} to {}", bounds.start(), bounds.end())))
    }

    /// As [`number`](Self::number), for bounds of 32 bits.
    pub(crate) fn number32(&self, bounds: RangeInclusive<u32>) -> Result<u32, Problem> {
        let number = self.number(u64::from(*bounds.start())..=u64::from(*bounds.end()))?;
        u32::try_from(number).map_err(|_| self.problem("out of range; use a smaller number"))
    }

    /// The value as one of a list of words.
    pub(crate) fn choice<T: Copy>(&self, choices: &[(&'static str, T)]) -> Result<T, Problem> {
        let text = self.text()?;
        let found = choices.iter().find(|(word, _)| *word == text);
        found.map(|(_, choice)| *choice).ok_or_else(|| {
            let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            let hint = nearest(text, choices.iter().map(|(word, _)| *word)).filter(|_| choices.len() > 1);
            let hint = hint.map(|word| format!(" (did you mean \"{word}\"?)")).unwrap_or_default();
            self.problem(format!("unknown{hint}; use {}", words.join(" or ")))
        })
    }

    /// The items of an array.
    pub(crate) fn items(&self) -> Result<Vec<Self>, Problem> {
        let array = self.value.and_then(|value| value.get_ref().as_array());
        let array = array.ok_or_else(|| self.mismatch("an array", ", in brackets"))?;
        let item = |(number, value): (usize, &'d Spanned<DeValue<'d>>)| Self {
            document: self.document,
            path: format!("{}[{number}]", self.path),
            start: value.span().start,
            value: Some(value),
        };
        Ok(array.iter().enumerate().map(item).collect())
    }

    /// The entries of a table whose keys are the file's own, in the order of the keys.
    pub(crate) fn entries(&self) -> Result<Vec<(&'d str, Self)>, Problem> {
        let table = self.value.and_then(|value| value.get_ref().as_table());
        let table = table.ok_or_else(|| self.mismatch("a table", ", in braces"))?;
        let entry = |(key, value): (&'d Spanned<std::borrow::Cow<'d, str>>, &'d Spanned<DeValue<'d>>)| {
            let name: &'d str = key.get_ref();
            let path = format!("{}.{name}", self.path);
            (name, Self { document: self.document, path, start: key.span().start, value: Some(value) })
        };
        Ok(table.iter().map(entry).collect())
    }

    /// The text under `key`, if the value is a table that has it. Checks nothing.
    pub(crate) fn entry(&self, key: &str) -> Option<&'d str> {
        self.value?.get_ref().as_table()?.get(key)?.get_ref().as_str()
    }

    /// True if the value is a table.
    pub(crate) fn is_table(&self) -> bool {
        self.value.is_some_and(|value| value.get_ref().as_table().is_some())
    }

    /// The value as a table with the keys of `section`; unknown keys are logged.
    pub(crate) fn table(&self, section: &'static Section, log: &mut Log) -> Option<Table<'d>> {
        match self.value.map(Spanned::get_ref) {
            Some(DeValue::Table(entries)) => Some(Table::new(self.clone(), entries, section, log)),
            _ => {
                log.mistake(self.mismatch("a table", ""));
                None
            }
        }
    }
}

/// A table of the file, and what keys it may have.
#[derive(Debug, Clone)]
pub(crate) struct Table<'d> {
    node: Node<'d>,
    entries: &'d DeTable<'d>,
    section: &'static Section,
}

impl<'d> Table<'d> {
    fn new(node: Node<'d>, entries: &'d DeTable<'d>, section: &'static Section, log: &mut Log) -> Self {
        let table = Self { node, entries, section };
        for (key, value) in entries {
            if section.key(key.get_ref()).is_none() {
                log.mistake(table.unknown_key(key, value));
            }
        }
        table
    }

    fn unknown_key(&self, key: &Spanned<std::borrow::Cow<'d, str>>, value: &'d Spanned<DeValue<'d>>) -> Problem {
        let node = self.child(key.get_ref(), key.span().start, Some(value));
        let names = || self.section.keys().map(|key| key.name);
        let fix = match nearest(key.get_ref(), names()) {
            Some(name) => format!("did you mean \"{name}\"?"),
            None => format!("known here: {}", names().collect::<Vec<_>>().join(", ")),
        };
        node.problem(format!("unknown key; {fix}"))
    }

    /// The table as a node, for problems with it as a whole.
    pub(crate) fn node(&self) -> &Node<'d> {
        &self.node
    }

    /// True if `key` may be in this table.
    pub(crate) fn allows(&self, key: &str) -> bool {
        self.section.key(key).is_some()
    }

    /// The value of a key, if the file has it. The key must be one of the section's.
    pub(crate) fn find(&self, key: &'static str) -> Option<Node<'d>> {
        debug_assert!(self.section.key(key).is_some(), "{key} is not in the reference of {}", self.section.path);
        let (spanned, value) = self.entries.get_key_value(key)?;
        Some(self.child(key, spanned.span().start, Some(value)))
    }

    /// True if tables of this kind may have the key.
    pub(crate) fn knows(&self, key: &str) -> bool {
        self.section.key(key).is_some()
    }

    /// The value of a key; a missing one is logged.
    pub(crate) fn require(&self, key: &'static str, log: &mut Log) -> Option<Node<'d>> {
        let found = self.find(key);
        if found.is_none() {
            let example = self.section.key(key).map_or("", |key| key.example);
            let node = self.child(key, self.node.start, None);
            log.mistake(node.problem(format!("missing; add {key} = {example}")));
        }
        found
    }

    /// The value of a key, read by `read`; `default` if the file does not have it or reading it
    /// failed.
    pub(crate) fn read_or<T>(
        &self,
        key: &'static str,
        default: T,
        log: &mut Log,
        read: impl FnOnce(&Node<'d>) -> Result<T, Problem>,
    ) -> T {
        let value = self.find(key).and_then(|node| log.keep(read(&node)));
        value.unwrap_or(default)
    }

    /// The table under a key, if the file has it.
    pub(crate) fn table(&self, key: &'static str, section: &'static Section, log: &mut Log) -> Option<Self> {
        self.find(key)?.table(section, log)
    }

    fn child(&self, key: &str, start: usize, value: Option<&'d Spanned<DeValue<'d>>>) -> Node<'d> {
        let parent = &self.node.path;
        let path = if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") };
        Node { document: self.node.document, path, start, value }
    }
}

/// The word that `text` most likely was meant to be.
fn nearest<'w>(text: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let scored = words.map(|word| (strsim::damerau_levenshtein(text, word), word));
    let (distance, word) = scored.min_by_key(|(distance, _)| *distance)?;
    // A third of the word may be wrong; two letters of "mtu" would make it any word.
    (distance <= (word.len() / 3).max(1)).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_word_is_near() {
        let words = ["prefix", "pool", "mtu"];
        assert_eq!(nearest("prefx", words.into_iter()), Some("prefix"));
        assert_eq!(nearest("poll", words.into_iter()), Some("pool"));
        assert_eq!(nearest("abc", words.into_iter()), None);
    }
}

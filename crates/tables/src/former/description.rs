//! What the bytes of a set of tables mean, as text that is kept beside them.
//!
//! ```text
//! tombolo state 1                    version of this text
//! number SLOT_CLOSED 2147483648      what bits and numbers stand for
//! record binding 64                  bytes of a record
//! field binding.inside 0 16          bytes in front of a field, and its own
//! ```
//!
//! It is made from the definitions of the records, so it changes whenever they do. Lines that begin
//! with other words are for whoever wrote them ([`Description::lines`]).

use std::collections::HashMap;
use std::fmt::Write as _;

use tombolo_records::{Constant, Field, Record};

use crate::hash::HashKey;
use crate::{arena, binding, conversation, index, lease, outside, path_mtu, session, shared, subscriber};

/// First words of the text, with its version.
const HEAD: &str = "tombolo state 1";
/// To be raised when bytes that lie as before mean something else: other rules for what may stand
/// beside what. The hash and the records tell by themselves.
const LAYOUT: u64 = 7;
/// Longest record that is believed.
const LONGEST: usize = 4096;

/// The text about tables as this program makes them.
#[must_use]
pub fn own() -> String {
    let mut text = format!("{HEAD}\nnumber LAYOUT {LAYOUT}\nnumber HASH {}\n", hash_of_example());
    let constants = [
        shared::constants(),
        arena::constants(),
        binding::flags::constants(),
        index::constants(),
        outside::constants(),
        session::constants(),
        lease::constants(),
        path_mtu::constants(),
    ];
    for Constant { name, value, .. } in constants.iter().flatten() {
        let _ = writeln!(text, "number {name} {value}");
    }
    let records = [
        binding::records(),
        subscriber::records(),
        session::records(),
        index::records(),
        lease::records(),
        path_mtu::records(),
        conversation::records(),
    ];
    for Record { name, size, fields, .. } in records.iter().flatten() {
        let _ = writeln!(text, "record {name} {size}");
        for Field { name: field, offset, size, .. } in fields {
            let _ = writeln!(text, "field {name}.{field} {offset} {size}");
        }
    }
    text
}

/// Another hash finds nothing in these tables.
fn hash_of_example() -> u64 {
    let hash = HashKey::new([1, 2, 3, 4]).hash([5, 6, 7]);
    let [first, second] = hash.buckets(u32::MAX);
    hash.0 ^ hash.rehash().0 ^ u64::from(hash.tag()) ^ u64::from(first) << 32 ^ u64::from(second)
}

/// Tables cannot be read, by what is said about them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// The text begins otherwise.
    #[error("they are described in another way, or not at all")]
    Version,
    /// A line makes no sense.
    #[error("line {0} of their description makes no sense")]
    Line(usize),
    /// Something that must be known is not in it.
    #[error("their description does not say what {0} is")]
    Lacks(String),
    /// A table is not there.
    #[error("the table {0} is missing")]
    Table(&'static str),
}

/// Where a field lies in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: usize,
    pub(super) size: usize,
}

/// A text that was understood.
#[derive(Debug, Clone, Default)]
pub struct Description {
    numbers: HashMap<String, u64>,
    records: HashMap<String, usize>,
    fields: HashMap<String, Place>,
    others: Vec<String>,
}

impl Description {
    /// Reads a text.
    ///
    /// # Errors
    /// [`DescriptionError`].
    pub fn parse(text: &str) -> Result<Self, DescriptionError> {
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, line)| line != HEAD) {
            return Err(DescriptionError::Version);
        }
        let mut description = Self::default();
        for (number, line) in lines {
            description.read(line).ok_or(DescriptionError::Line(number + 1))?;
        }
        Ok(description)
    }

    fn read(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["number", name, value] => drop(self.numbers.insert(name.to_owned(), value.parse().ok()?)),
            ["record", name, size] => {
                let size = size.parse().ok().filter(|size| (1..=LONGEST).contains(size) && size % 8 == 0)?;
                self.records.insert(name.to_owned(), size);
            }
            ["field", name, offset, size] => {
                let place = Place { offset: offset.parse().ok()?, size: size.parse().ok()? };
                let (record, _) = name.split_once('.')?;
                let end = place.offset.checked_add(place.size)?;
                if place.size == 0 || end > *self.records.get(record)? {
                    return None;
                }
                self.fields.insert(name.to_owned(), place);
            }
            ["number" | "record" | "field", ..] => return None,
            _ => self.others.push(line.to_owned()),
        }
        Some(())
    }

    /// What follows on the lines that begin with `word` and a space, in order.
    pub fn lines<'d>(&'d self, word: &'d str) -> impl Iterator<Item = &'d str> {
        self.others.iter().filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
    }

    pub(super) fn number(&self, name: &str) -> Result<u64, DescriptionError> {
        self.numbers.get(name).copied().ok_or_else(|| DescriptionError::Lacks(name.to_owned()))
    }

    pub(super) fn record(&self, name: &str) -> Result<usize, DescriptionError> {
        self.records.get(name).copied().ok_or_else(|| DescriptionError::Lacks(name.to_owned()))
    }

    /// A field of `size` bytes.
    pub(super) fn field(&self, name: &str, size: usize) -> Result<Place, DescriptionError> {
        let place = self.any_field(name)?;
        if place.size == size { Ok(place) } else { Err(DescriptionError::Lacks(name.to_owned())) }
    }

    pub(super) fn any_field(&self, name: &str) -> Result<Place, DescriptionError> {
        self.fields.get(name).copied().ok_or_else(|| DescriptionError::Lacks(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_every_field_and_is_understood() {
        let description = Description::parse(&format!("{}about what it is\n", own())).unwrap();
        assert_eq!(description.record("binding"), Ok(64));
        assert_eq!(description.field("binding.inside_port", 2), Ok(Place { offset: 24, size: 2 }));
        assert_eq!(description.number("SLOT_CLOSED"), Ok(1 << 31));
        assert_eq!(description.lines("about").collect::<Vec<_>>(), ["what it is"]);
        assert_eq!(description.record("colour"), Err(DescriptionError::Lacks("colour".into())));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_line() {
        assert_eq!(Description::parse("").unwrap_err(), DescriptionError::Version);
        assert_eq!(Description::parse("layout 2 boot 7").unwrap_err(), DescriptionError::Version);
        for wrong in [
            "number X",
            "number X -1",
            "record r 0",
            "record r 7",
            "record r 99999999999999999999",
            "record r 8192",
            "field r.x 0 8",
            "record r 16\nfield r.x 9 8",
            "record r 16\nfield r.x 18446744073709551615 8",
            "record r 16\nfield r.x 0 0",
            "record r 16\nfield x 0 8",
        ] {
            let text = format!("{HEAD}\n{wrong}\n");
            assert!(matches!(Description::parse(&text), Err(DescriptionError::Line(_))), "{wrong}");
        }
    }
}

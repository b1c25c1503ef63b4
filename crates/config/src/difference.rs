//! What differs between two readings of a configuration file, key by key.
//!
//! The texts are compared, not what they mean: so no key can be forgotten. Services are told apart by their
//! names, interfaces by theirs; of other arrays the items are named that went and that came.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Items of an array that are named.
const NAMED: usize = 3;
/// Longest value that is quoted, in characters.
const QUOTED: usize = 80;

/// What a configuration file says, and those that it names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wording {
    text: String,
    /// What the others say, as a number that stands for it.
    files: BTreeMap<PathBuf, u64>,
}

/// A key that has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its path, as `service.cgn.pool`.
    pub key: String,
    /// What is not there any more, if anything.
    pub before: Option<String>,
    /// What was not there before, if anything.
    pub after: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, "{}: {before} -> {after}", self.key),
            (Some(before), None) => write!(f, "{}: {before} is gone", self.key),
            (None, Some(after)) => write!(f, "{}: {after} is new", self.key),
            (None, None) => f.write_str(&self.key),
        }
    }
}

impl Wording {
    /// Of a file with this text.
    pub(crate) fn of(text: &str, files: BTreeMap<PathBuf, u64>) -> Self {
        Self { text: text.to_owned(), files }
    }

    /// What stands for the content of a file.
    pub(crate) fn digest(text: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        hasher.finish()
    }

    /// The keys that `new` has otherwise, in the order of their names.
    #[must_use]
    pub fn changes_to(&self, new: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        // Both were read without a mistake before.
        if let (Ok(before), Ok(after)) = (DeTable::parse(&self.text), DeTable::parse(&new.text)) {
            let mut comparison = Comparison { texts: [&self.text, &new.text], changes: &mut changes };
            comparison.tables("", before.get_ref(), after.get_ref());
        }
        let files = self.files.keys().chain(new.files.keys().filter(|path| !self.files.contains_key(*path)));
        let differs = |path: &&PathBuf| self.files.get(*path) != new.files.get(*path);
        changes.extend(files.filter(differs).map(|path| Change { key: content_of(path), before: None, after: None }));
        changes
    }
}

fn content_of(path: &Path) -> String {
    format!("content of {}", path.display())
}

type Value<'d> = Spanned<DeValue<'d>>;

struct Comparison<'c> {
    texts: [&'c str; 2],
    changes: &'c mut Vec<Change>,
}

impl Comparison<'_> {
    fn tables(&mut self, path: &str, before: &DeTable<'_>, after: &DeTable<'_>) {
        let within = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        for (key, value) in before {
            self.values(&within(key.get_ref()), Some(value), after.get(key.get_ref().as_ref()));
        }
        for (key, value) in after.iter().filter(|(key, _)| !before.contains_key(key.get_ref().as_ref())) {
            self.values(&within(key.get_ref()), None, Some(value));
        }
    }

    fn values(&mut self, path: &str, before: Option<&Value<'_>>, after: Option<&Value<'_>>) {
        let (old, new) = (before.map(Spanned::get_ref), after.map(Spanned::get_ref));
        match (old, new) {
            (Some(DeValue::Table(old)), Some(DeValue::Table(new))) => self.tables(path, old, new),
            (Some(DeValue::Array(_)) | None, Some(DeValue::Array(_)) | None)
                if ["service", "interface"].contains(&path) =>
            {
                self.named(path, items(old), items(new));
            }
            (Some(DeValue::Array(old)), Some(DeValue::Array(new))) => self.arrays(path, old, new),
            (Some(old), Some(new)) if is_same(old, new) => {}
            _ => {
                let [old, new] = [before.map(|value| self.quote(0, value)), after.map(|value| self.quote(1, value))];
                self.add(path, old, new);
            }
        }
    }

    /// Tables that are told apart by their names.
    fn named(&mut self, path: &str, before: &[Value<'_>], after: &[Value<'_>]) {
        let (old, new) = (names(before), names(after));
        for (name, value) in old.iter().zip(before) {
            let found = new.iter().position(|other| other == name).map(|place| &after[place]);
            self.values(&format!("{path}.{name}"), Some(value), found);
        }
        for (name, value) in new.iter().zip(after).filter(|(name, _)| !old.contains(name)) {
            self.values(&format!("{path}.{name}"), None, Some(value));
        }
        let order = |names: &[String], others: &[String]| -> Vec<String> {
            names.iter().filter(|name| others.contains(name)).cloned().collect()
        };
        let (old, new) = (order(&old, &new), order(&new, &old));
        if old != new {
            self.add(path, Some(old.join(", ")), Some(new.join(", ")));
        }
    }

    /// Names the items that only one of the two has.
    fn arrays(&mut self, path: &str, before: &[Value<'_>], after: &[Value<'_>]) {
        let words = |at: usize, values: &[Value<'_>]| -> Vec<String> {
            values.iter().map(|value| one_line(self.texts[at].get(value.span()).unwrap_or_default())).collect()
        };
        let (old, new) = (words(0, before), words(1, after));
        if old == new {
            return;
        }
        let only = |items: &[String], others: &[String]| {
            let others: HashSet<&String> = others.iter().collect();
            let only: Vec<&String> = items.iter().filter(|item| !others.contains(item)).collect();
            let first: Vec<String> = only.iter().take(NAMED).map(|item| shortened(item)).collect();
            let more = if only.len() > NAMED { format!(", ... ({} in all)", only.len()) } else { String::new() };
            (!only.is_empty()).then(|| format!("{}{more}", first.join(", ")))
        };
        let (gone, come) = (only(&old, &new), only(&new, &old));
        self.add(path, gone, come);
    }

    fn quote(&self, at: usize, value: &Value<'_>) -> String {
        match value.get_ref() {
            // Its span is that of its head alone.
            DeValue::Table(table) => {
                let pair = |(key, value): (&Spanned<Cow<'_, str>>, &Value<'_>)| {
                    format!("{} = {}", key.get_ref(), self.quote(at, value))
                };
                shortened(&table.iter().map(pair).collect::<Vec<_>>().join(", "))
            }
            _ => shortened(&one_line(self.texts[at].get(value.span()).unwrap_or_default())),
        }
    }

    fn add(&mut self, key: &str, before: Option<String>, after: Option<String>) {
        self.changes.push(Change { key: key.to_owned(), before, after });
    }
}

fn is_same(before: &DeValue<'_>, after: &DeValue<'_>) -> bool {
    match (before, after) {
        (DeValue::String(a), DeValue::String(b)) => a == b,
        (DeValue::Boolean(a), DeValue::Boolean(b)) => a == b,
        (DeValue::Integer(a), DeValue::Integer(b)) => (a.as_str(), a.radix()) == (b.as_str(), b.radix()),
        (DeValue::Float(a), DeValue::Float(b)) => a.as_str() == b.as_str(),
        _ => false,
    }
}

fn items<'v, 'd>(value: Option<&'v DeValue<'d>>) -> &'v [Value<'d>] {
    value.and_then(DeValue::as_array).map_or(&[], |items| &items[..])
}

/// The names of tables: given, or as those of services are made from their kinds.
fn names(tables: &[Value<'_>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for table in tables {
        let entry = |key: &str| table.get_ref().as_table()?.get(key)?.get_ref().as_str();
        let kind = entry("kind").unwrap_or("service");
        let given = entry("name").map(str::to_owned);
        let numbered = (2..).map(|number| format!("{kind}-{number}"));
        let mut made = std::iter::once(kind.to_owned()).chain(numbered);
        let name = given.or_else(|| made.find(|name| !names.contains(name))).unwrap_or_default();
        names.push(name);
    }
    names
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(before: &str, after: &str) -> Vec<String> {
        let wording = |text| Wording::of(text, BTreeMap::new());
        wording(before).changes_to(&wording(after)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_key_that_has_changed_is_named_and_no_other() {
        let before = "[gateway]\nmtu = 1500\npin = true\n[[service]]\nkind = \"siit\"\n[[service]]\nkind = \"nat44\"\nname = \"cgn\"\ninside = [\"10.0.0.0/24\"]\n";
        assert_eq!(changes(before, before), [""; 0]);
        assert_eq!(changes(before, &before.replace("= ", "=   ")), [""; 0]);
        let after = "[gateway]\npin = true\nmetrics = \"/m\"\n[[service]]\nkind = \"nat44\"\nname = \"cgn\"\ninside = [\"10.0.1.0/24\", \"10.0.0.0/24\"]\n[service.limits]\nsessions = 7\n[[service]]\nkind = \"siit\"\n";
        assert_eq!(
            changes(before, after),
            [
                "gateway.mtu: 1500 is gone",
                "gateway.metrics: \"/m\" is new",
                "service.cgn.inside: \"10.0.1.0/24\" is new",
                "service.cgn.limits: sessions = 7 is new",
                "service: siit, cgn -> cgn, siit",
            ]
        );
        assert_eq!(
            changes("[[service]]\nkind = \"siit\"\n", "[[service]]\nkind = \"nat64\"\n"),
            ["service.siit: kind = \"siit\" is gone", "service.nat64: kind = \"nat64\" is new"]
        );
    }

    #[test]
    fn of_long_arrays_the_first_items_are_named() {
        let list = |numbers: std::ops::Range<u32>| {
            format!("a = [{}]", numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(", "))
        };
        assert_eq!(changes(&list(0..10), &list(5..12)), ["a: 0, 1, 2, ... (5 in all) -> 10, 11"]);
        assert_eq!(changes("a = [1, 2]", "a = [2, 1]"), ["a"]);
    }

    #[test]
    fn files_that_are_named_count_by_their_content() {
        let with = |content| Wording::of("", [(PathBuf::from("/rows"), Wording::digest(content))].into());
        assert_eq!(with("a").changes_to(&with("a")), []);
        assert_eq!(with("a").changes_to(&with("b"))[0].to_string(), "content of /rows");
    }
}

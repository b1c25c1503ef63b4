//! What a service is set to, for people and for machines: names and values, in order.

use std::fmt;
use std::net::Ipv4Addr;

use crate::mapping::address_ranges::AddressRanges;

/// What is known of a service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Description(Vec<(&'static str, Fact)>);

/// A value of a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// There is none.
    None,
    /// In words.
    Text(String),
    /// A number.
    Number(u64),
    /// On or off.
    Switch(bool),
    /// Several.
    List(Vec<Self>),
    /// Names and values of its own.
    Record(Description),
}

impl Description {
    /// Adds what `name` is. Names are words joined by underscores.
    #[must_use]
    pub fn with(mut self, name: &'static str, fact: impl Into<Fact>) -> Self {
        self.0.push((name, fact.into()));
        self
    }

    /// The names, with their values.
    pub fn facts(&self) -> impl Iterator<Item = (&'static str, &Fact)> {
        self.0.iter().map(|(name, fact)| (*name, fact))
    }
}

impl Fact {
    /// Something in words.
    pub(crate) fn text(what: impl fmt::Display) -> Self {
        Self::Text(what.to_string())
    }

    /// Several things in words.
    pub(crate) fn texts<T: fmt::Display>(what: impl IntoIterator<Item = T>) -> Self {
        Self::List(what.into_iter().map(Self::text).collect())
    }
}

impl From<String> for Fact {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Fact {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u32> for Fact {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Fact {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl From<bool> for Fact {
    fn from(is_on: bool) -> Self {
        Self::Switch(is_on)
    }
}

impl From<Description> for Fact {
    fn from(record: Description) -> Self {
        Self::Record(record)
    }
}

impl<T: Into<Self>> From<Option<T>> for Fact {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

impl From<&AddressRanges> for Fact {
    fn from(ranges: &AddressRanges) -> Self {
        Self::List(ranges.ranges().iter().map(|range| Self::Text(addresses(*range.start(), *range.end()))).collect())
    }
}

/// A range of addresses in words.
pub(crate) fn addresses(first: Ipv4Addr, last: Ipv4Addr) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

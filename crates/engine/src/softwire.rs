//! A tunnel, by its two ends.

use std::fmt;
use std::net::Ipv6Addr;

/// The two ends of a softwire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Softwire {
    /// Address of this end: the source of what is sent.
    pub local: Ipv6Addr,
    /// Address of the other end. Unspecified (`::`) while only its name is known.
    pub remote: Ipv6Addr,
}

impl Softwire {
    /// True until the name of the other end has an address: nothing crosses.
    #[must_use]
    pub const fn awaits_far_end(&self) -> bool {
        self.remote.is_unspecified()
    }

    /// The other end, for people.
    #[must_use]
    pub fn far_end_in_words(&self, name: Option<&FarEndName>) -> String {
        match name {
            Some(name) if self.awaits_far_end() => name.to_string(),
            Some(name) => format!("{} ({name})", self.remote),
            None => self.remote.to_string(),
        }
    }
}

/// A name in DNS that the other end of a softwire is known by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FarEndName(String);

/// Bytes of a name, and of a part of it, at most (RFC 1035 section 2.3.4).
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

impl FarEndName {
    /// A name, fully qualified with or without a dot at its end; `None` for what is none, as an IPv4 address.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_label = |label: &str| (1..=LONGEST_LABEL).contains(&label.len()) && label.bytes().all(is_part);
        let has_letter = name.bytes().any(|byte| byte.is_ascii_alphabetic());
        (has_letter && name.len() <= LONGEST_NAME && name.split('.').all(is_label)).then(|| Self(text.to_owned()))
    }

    /// It as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FarEndName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_what_is_none() {
        for name in ["aftr.example.net", "aftr.example.net.", "aftr-1", "_b4._ip.example"] {
            assert_eq!(FarEndName::new(name).as_ref().map(FarEndName::as_str), Some(name));
        }
        let long = format!("{}.example", "a".repeat(64));
        for other in ["", ".", "192.0.2.1", "aftr..net", "a b", "2001:db8::1", "aftr.net/64", long.as_str()] {
            assert_eq!(FarEndName::new(other), None, "{other}");
        }
    }
}

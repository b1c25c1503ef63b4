//! The chain of the log: each line ends with its number and with the hash of everything before it.
//!
//! ```text
//! {"time":...,"seq":17,"chain":"9f86d081...0a08"}
//! `----------------.---------'
//!   SHA-256 of the hash before, as 32 bytes, and of these bytes of the line
//! ```
//!
//! So nobody changes, removes or inserts a line without making all later ones anew; and who has the hash
//! of one line, a collector to which the log is sent as well, knows whether those before it are the same.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// What stands before the hash of a line.
const MEMBER: &str = ",\"chain\":\"";
/// What stands behind it.
const END: &str = "\"}";
/// What stands before the number of a line.
const NUMBER: &str = ",\"seq\":";

/// The hash of a line and of all before it.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Reads 64 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How far a log has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chain {
    /// Number of the last line; they begin with 1.
    pub number: u64,
    /// Its hash.
    pub hash: Hash,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    /// It has no number and hash.
    #[error("it is no line of a log: number and hash are missing")]
    NoLine,
    /// Lines are missing or there twice.
    #[error("it has number {found}, and {expected} was to come")]
    Number {
        /// The number that was to come.
        expected: u64,
        /// The one that it has.
        found: u64,
    },
    /// The line, or one before it, is another than was written.
    #[error("its hash is another: this line or the one before it was changed")]
    Hash,
}

impl Chain {
    /// Makes a line of a JSON object: number and hash are added. It ends without a line feed.
    pub fn seal(&mut self, object: &mut Vec<u8>) {
        use std::io::Write as _;
        debug_assert_eq!(object.last(), Some(&b'}'), "an object");
        object.pop();
        self.number += 1;
        let _ = write!(object, "{NUMBER}{}", self.number);
        self.hash = next(self.hash, object);
        object.extend_from_slice(MEMBER.as_bytes());
        for byte in self.hash.0 {
            let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
            object.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        object.extend_from_slice(END.as_bytes());
    }

    /// Number and hash of a line, which are not looked at further.
    #[must_use]
    pub fn of_line(line: &str) -> Option<Self> {
        let (number, hash, _) = parts(line)?;
        Some(Self { number, hash })
    }

    /// Whether `line` is what follows. It is the last line from then on, whatever is wrong with it.
    ///
    /// # Errors
    /// [`Break`].
    pub fn check(&mut self, line: &str) -> Result<(), Break> {
        let (number, hash, hashed) = parts(line).ok_or(Break::NoLine)?;
        let before = std::mem::replace(self, Self { number, hash });
        if number != before.number + 1 {
            return Err(Break::Number { expected: before.number + 1, found: number });
        }
        if next(before.hash, hashed.as_bytes()) == hash { Ok(()) } else { Err(Break::Hash) }
    }
}

fn next(before: Hash, line: &[u8]) -> Hash {
    Hash(Sha256::new().chain_update(before.0).chain_update(line).finalize().into())
}

/// Number, hash, and what the hash is of, besides the one before.
fn parts(line: &str) -> Option<(u64, Hash, &str)> {
    let (hashed, hash) = line.strip_suffix(END)?.rsplit_once(MEMBER)?;
    let (_, number) = hashed.rsplit_once(NUMBER)?;
    Some((number.parse().ok()?, Hash::parse(hash)?, hashed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: u64) -> Vec<String> {
        let mut chain = Chain::default();
        let sealed = (0..count).map(|n| {
            let mut line = format!("{{\"time\":\"2026-11-21T08:31:52Z\",\"inside_port\":{n}}}").into_bytes();
            chain.seal(&mut line);
            String::from_utf8(line).unwrap()
        });
        sealed.collect()
    }

    fn breaks(lines: &[String]) -> Vec<(usize, Break)> {
        let mut chain = Chain::default();
        let checked = lines.iter().enumerate().map(|(place, line)| (place, chain.check(line)));
        checked.filter_map(|(place, result)| Some((place, result.err()?))).collect()
    }

    #[test]
    fn a_line_ends_with_number_and_hash() {
        // The hash is from another implementation (hashlib of Python).
        let mut line = b"{}".to_vec();
        Chain::default().seal(&mut line);
        let text = String::from_utf8(line).unwrap();
        let expected = next(Hash::default(), b"{,\"seq\":1");
        assert_eq!(text, format!("{{,\"seq\":1,\"chain\":\"{expected}\"}}"));
        assert_eq!(expected.to_string(), "a727f0ea2dd3c010106ee56c7be24f1fd226b69f796dbc34e95ae9c3a3d78a28");
        assert_eq!(Hash::parse(&expected.to_string()), Some(expected));
    }

    #[test]
    fn whatever_is_changed_is_seen() {
        let lines = lines(9);
        assert_eq!(breaks(&lines), []);
        let changed = |change: &dyn Fn(&mut Vec<String>)| {
            let mut other = lines.clone();
            change(&mut other);
            breaks(&other)
        };
        assert_eq!(
            changed(&|lines| lines[3] = lines[3].replace("\"inside_port\":3", "\"inside_port\":4")),
            [(3, Break::Hash)]
        );
        assert_eq!(changed(&|lines| drop(lines.remove(3))), [(3, Break::Number { expected: 4, found: 5 })]);
        assert_eq!(changed(&|lines| lines[3] = "{}".to_owned()).first(), Some(&(3, Break::NoLine)));
        assert_eq!(changed(&|lines| lines.swap(3, 4)).len(), 3);
        // A line that somebody has made anew does not fit the next one.
        let forged = changed(&|lines| {
            let mut chain = Chain::of_line(&lines[2]).unwrap();
            let mut line = b"{\"time\":\"2026-11-21T08:31:52Z\",\"inside_port\":9}".to_vec();
            chain.seal(&mut line);
            lines[3] = String::from_utf8(line).unwrap();
        });
        assert_eq!(forged, [(4, Break::Hash)]);
    }

    #[test]
    fn no_text_makes_it_fail_hard() {
        for text in ["", "{}", "\"}", ",\"chain\":\"\"}", ",\"seq\":1,\"chain\":\"\u{e9}\"}", "\u{ff}"] {
            assert_eq!(Chain::default().check(text), Err(Break::NoLine));
        }
    }
}

//! Options of IPv4 and of TCP: kind, length, data.
//!
//! Read first: RFC 791 section 3.1 ("Options"), RFC 9293 section 3.2.
//!
//! ```text
//! kind 0: end of the list   kind 1: one byte of padding   others: kind, length (of the whole option), data
//! ```

/// Kind 0 in both protocols: the list ends here.
pub const END: u8 = 0;
/// Kind 1 in both protocols: padding.
pub const NO_OPERATION: u8 = 1;

/// One option that has a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderOption<'a> {
    /// What it is.
    pub kind: u8,
    /// Offset of the kind byte from the start of the option area.
    pub offset: usize,
    /// The bytes behind the length byte.
    pub data: &'a [u8],
}

/// A length byte below 2, or one that leads out of the option area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadOption;

/// Iterates over the options of a header, without padding. Ends after the first bad one; every step
/// consumes at least one byte.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Options<'a> {
    /// The options in `bytes`, which is the option area of a header: what follows its fixed part.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<HeaderOption<'a>, BadOption>;

    fn next(&mut self) -> Option<Self::Item> {
        while *self.bytes.get(self.offset)? == NO_OPERATION {
            self.offset += 1;
        }
        let rest = &self.bytes[self.offset..];
        let kind = rest[0];
        if kind == END {
            self.offset = self.bytes.len();
            return None;
        }
        let offset = self.offset;
        match rest.get(1).map(|&length| usize::from(length)) {
            Some(length) if length >= 2 && length <= rest.len() => {
                self.offset += length;
                Some(Ok(HeaderOption { kind, offset, data: &rest[2..length] }))
            }
            _ => {
                self.offset = self.bytes.len();
                Some(Err(BadOption))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn padding_is_skipped_and_the_end_ends() {
        let found: Vec<_> = Options::new(&[1, 2, 4, 5, 0xb4, 1, 0, 3, 3, 7]).collect();
        assert_eq!(found, [Ok(HeaderOption { kind: 2, offset: 1, data: &[5, 0xb4] })]);
    }

    #[test]
    fn lengths_that_cannot_be_end_the_walk() {
        for bytes in [&[131, 0][..], &[131, 1], &[131, 5, 0], &[131]] {
            assert_eq!(Options::new(bytes).collect::<Vec<_>>(), [Err(BadOption)]);
        }
    }
}

//! Which frames are sent: of one length, or of three.
//!
//! RFC 8219 section 4.1 wants each of a list of lengths measured on its own; a mix of lengths is what
//! networks carry. The mix is the simple IMIX: of twelve frames seven are of the shortest length, four
//! of 570 bytes and one of 1518.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use tombolo_generator::FrameKind;

/// Lengths of RFC 2544 section 9.1, bytes with FCS.
const RFC_2544: [u16; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
/// Lengths of RFC 8219 section 4.1. Those of more than a page leave by AF_XDP or packet sockets.
const RFC_8219: [u16; 13] = [64, 128, 256, 512, 768, 1024, 1280, 1518, 1522, 2048, 4096, 8192, 9216];
/// Of the simple IMIX.
const MIDDLE: u16 = 570;
const LONGEST: u16 = 1518;
/// The longest of RFC 8219 section 4.1.
pub const LONGEST_FRAME: u16 = 9216;

/// The lengths of the frames of a series, on the left side of its first gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameSize {
    /// All have so many bytes, with FCS; those of a kind that has no room for the tester's tag in so
    /// few have the least that it can have.
    Bytes(u16),
    /// The simple IMIX.
    Imix,
}

impl FrameSize {
    /// Those of a list: numbers of bytes, `imix`, `rfc2544` and `rfc8219`, with commas between them.
    ///
    /// # Errors
    /// In words.
    pub fn list(text: &str) -> Result<Vec<FrameSize>, String> {
        let mut all = Vec::new();
        for part in text.split(',') {
            match part {
                "rfc2544" => all.extend(RFC_2544.map(FrameSize::Bytes)),
                "rfc8219" => all.extend(RFC_8219.map(FrameSize::Bytes)),
                one => all.push(one.parse()?),
            }
        }
        let mut seen = Vec::new();
        all.retain(|size| {
            !seen.contains(size) && {
                seen.push(*size);
                true
            }
        });
        Ok(all)
    }

    /// The length of all frames, or of the shortest.
    pub(crate) fn shortest(self, kind: FrameKind) -> u16 {
        match self {
            FrameSize::Bytes(bytes) => bytes.max(kind.shortest()),
            FrameSize::Imix => kind.shortest(),
        }
    }

    /// The lengths of the others.
    pub(crate) fn others(self) -> Option<[u16; 2]> {
        (self == FrameSize::Imix).then_some([MIDDLE, LONGEST])
    }
}

impl FromStr for FrameSize {
    type Err = String;

    fn from_str(text: &str) -> Result<FrameSize, String> {
        let bytes = || text.parse().ok().filter(|bytes| (64..=LONGEST_FRAME).contains(bytes)).map(FrameSize::Bytes);
        let known = if text == "imix" { Some(FrameSize::Imix) } else { bytes() };
        known.ok_or_else(|| {
            format!("`{text}` is no length of a frame: 64 to {LONGEST_FRAME} bytes, imix, rfc2544 or rfc8219")
        })
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameSize::Bytes(bytes) => write!(f, "{bytes}"),
            FrameSize::Imix => f.write_str("imix"),
        }
    }
}

impl Serialize for FrameSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_nothing_is_measured_twice() {
        let list = FrameSize::list("64,rfc2544,imix,64").unwrap();
        assert_eq!(list.len(), 8);
        assert_eq!((list[0], list[7]), (FrameSize::Bytes(64), FrameSize::Imix));
        assert_eq!(FrameSize::list("rfc8219").unwrap().len(), 13);
        assert_eq!(FrameSize::list("9216"), Ok(vec![FrameSize::Bytes(9216)]));
        for refused in ["", "63", "9217", "jumbo", "64,,128"] {
            assert!(FrameSize::list(refused).unwrap_err().contains("rfc8219"), "{refused}");
        }
    }
}

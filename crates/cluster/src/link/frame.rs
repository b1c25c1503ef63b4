//! What is said on a connection.
//!
//! ```text
//! frame    kind (1), 0 (1), bytes that follow (2)
//! hello    "tombolo " (8), version (2), 1 if the tables were lost (1), 0 (1), subscribers (4), bindings (4), 0 (4),
//!          incarnation (8), name: length (1), bytes; services (1), each: number (1), kind and name: length (1), bytes
//! welcome  version (2), 0 without a copy, 1 with one, 2 if something is given back first (1), 0 (1)
//! refusal  words, in UTF-8
//! batch    replica/batch.rs
//! applied  number of the batch (8)
//! alive    nothing
//! vouch    nothing: none of the other end's slices was taken over by this one. Where nodes agree on who has which
//! took     slices of the other end that this one took over and has, one at least, in order, each: number (2), epoch (4)
//! ask      a number of the owner's (8): will this backup take over none of its slices for 2 s? From owners without a lease
//! promise  the same number (8): it will not, from when it was asked
//! unseen   nothing: the routes of this end's host lead to the other end no more
//! ```
//!
//! Numbers are little-endian. Two nodes speak the lower one of their versions; each knows its own and the one
//! before.

use tombolo_engine::mapping::slices::MOST_SLICES;

use super::taken::Taken;
use crate::replica::{BATCH_BYTES, ServiceName};

/// This version of the protocol, and the first one.
pub(super) const VERSION: u16 = 1;
const FIRST_VERSION: u16 = 1;
const MAGIC: &[u8; 8] = b"tombolo ";
const HEADER: usize = 4;

/// What the other end says makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it says something that makes no sense: {0}")]
pub(super) struct FrameError(&'static str);

/// How a node introduces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) version: u16,
    /// The tables began empty, and it has not been given back yet what others have of them.
    pub(super) has_lost: bool,
    /// Room in its tables.
    pub(super) subscribers: u32,
    pub(super) bindings: u32,
    /// One life of its tables.
    pub(super) incarnation: u64,
    pub(super) name: String,
    pub(super) services: Vec<ServiceName>,
}

/// What a backup has of an owner's slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// No copy.
    Nothing,
    /// The copy, up to what has changed since the last connection.
    Copy,
    /// What the owner lacks: it is given back, and then another welcome is said.
    More,
}

/// Something that was said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'b> {
    Hello(Hello),
    Welcome { version: u16, held: Held },
    Refusal(String),
    Batch(&'b [u8]),
    Applied(u64),
    Alive,
    Vouch,
    Took(Vec<Taken>),
    Ask(u64),
    Promise(u64),
    Unseen,
}

impl Frame<'_> {
    const fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Welcome { .. } => 2,
            Self::Refusal(_) => 3,
            Self::Batch(_) => 4,
            Self::Applied(_) => 5,
            Self::Alive => 6,
            Self::Vouch => 7,
            Self::Took(_) => 8,
            Self::Ask(_) => 9,
            Self::Promise(_) => 10,
            Self::Unseen => 11,
        }
    }

    /// Appends its bytes.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let start = begin(out, self.kind());
        match self {
            Self::Hello(hello) => hello.emit(out),
            Self::Welcome { version, held } => {
                out.extend(version.to_le_bytes());
                out.extend([*held as u8, 0]);
            }
            Self::Refusal(words) => out.extend(words.bytes().take(1000)),
            Self::Batch(batch) => out.extend(*batch),
            Self::Applied(number) | Self::Ask(number) | Self::Promise(number) => out.extend(number.to_le_bytes()),
            Self::Alive | Self::Vouch | Self::Unseen => {}
            Self::Took(taken) => taken.iter().for_each(|taken| taken.emit(out)),
        }
        finish(out, start);
    }

    /// The first frame in `bytes`, and how many bytes it has; nothing while it is not whole.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
        let Some((&[kind, zero, low, high], rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = usize::from(u16::from_le_bytes([low, high]));
        if zero != 0 || length > BATCH_BYTES {
            return Err(FrameError("a frame"));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let frame = match kind {
            1 => Frame::Hello(Hello::parse(body).ok_or(FrameError("how it introduces itself"))?),
            2 => match *body {
                [a, b, held @ 0..=2, 0] => {
                    let held = [Held::Nothing, Held::Copy, Held::More][usize::from(held)];
                    Frame::Welcome { version: u16::from_le_bytes([a, b]), held }
                }
                _ => return Err(FrameError("its welcome")),
            },
            3 => Frame::Refusal(String::from_utf8_lossy(body).into_owned()),
            4 => Frame::Batch(body),
            5 => Frame::Applied(number(body).ok_or(FrameError("what it has applied"))?),
            6 if body.is_empty() => Frame::Alive,
            7 if body.is_empty() => Frame::Vouch,
            8 => Frame::Took(parse_taken(body).ok_or(FrameError("which slices it took over"))?),
            9 => Frame::Ask(number(body).ok_or(FrameError("what it asks for"))?),
            10 => Frame::Promise(number(body).ok_or(FrameError("what it promises"))?),
            11 if body.is_empty() => Frame::Unseen,
            _ => return Err(FrameError("a frame of an unknown kind")),
        };
        Ok(Some((frame, HEADER + length)))
    }
}

fn number(body: &[u8]) -> Option<u64> {
    body.try_into().ok().map(u64::from_le_bytes)
}

/// Begins a frame with a batch that is appended next; its place.
pub(super) fn begin_batch(out: &mut Vec<u8>) -> usize {
    begin(out, 4)
}

fn begin(out: &mut Vec<u8>, kind: u8) -> usize {
    let start = out.len();
    out.extend([kind, 0, 0, 0]);
    start
}

/// The frame that began at `start` ends here.
pub(super) fn finish(out: &mut [u8], start: usize) {
    let length = u16::try_from(out.len() - start - HEADER).unwrap_or(u16::MAX);
    out[start + 2..start + HEADER].copy_from_slice(&length.to_le_bytes());
}

/// The version that two nodes speak, of which the other one has this; none if there is none.
pub(super) fn common_version(theirs: u16) -> Option<u16> {
    let version = theirs.min(VERSION);
    (version >= FIRST_VERSION && version + 1 >= VERSION).then_some(version)
}

impl Hello {
    fn emit(&self, out: &mut Vec<u8>) {
        out.extend(MAGIC);
        out.extend(self.version.to_le_bytes());
        out.extend([self.has_lost.into(), 0]);
        out.extend(self.subscribers.to_le_bytes());
        out.extend(self.bindings.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.incarnation.to_le_bytes());
        put_text(out, &self.name);
        let services = &self.services[..self.services.len().min(usize::from(u8::MAX))];
        out.push(u8::try_from(services.len()).unwrap_or(u8::MAX));
        for ServiceName { number, kind, name } in services {
            out.push(*number);
            put_text(out, kind);
            put_text(out, name);
        }
    }

    fn parse(body: &[u8]) -> Option<Self> {
        let mut rest = body.strip_prefix(MAGIC)?;
        let version = u16::from_le_bytes(take(&mut rest)?);
        let [has_lost @ 0..=1, 0] = take(&mut rest)? else { return None };
        let (subscribers, bindings) = (u32::from_le_bytes(take(&mut rest)?), u32::from_le_bytes(take(&mut rest)?));
        let more: [u8; 4] = take(&mut rest)?;
        let incarnation = u64::from_le_bytes(take(&mut rest)?);
        let name = take_text(&mut rest)?;
        let [count] = take(&mut rest)?;
        let mut services = Vec::new();
        for _ in 0..count {
            let [number] = take(&mut rest)?;
            services.push(ServiceName { number, kind: take_text(&mut rest)?, name: take_text(&mut rest)? });
        }
        let is_right = more == [0; 4] && rest.is_empty() && subscribers < 1 << 31 && bindings < 1 << 31;
        is_right.then_some(Self {
            version,
            has_lost: has_lost == 1,
            subscribers,
            bindings,
            incarnation,
            name,
            services,
        })
    }
}

impl Taken {
    fn emit(self, out: &mut Vec<u8>) {
        out.extend(self.slice.to_le_bytes());
        out.extend(self.epoch.to_le_bytes());
    }
}

/// In order, so that none is named twice.
fn parse_taken(body: &[u8]) -> Option<Vec<Taken>> {
    let (records, rest) = body.as_chunks::<6>();
    let of = |&[a, b, c, d, e, f]: &[u8; 6]| Taken {
        slice: u16::from_le_bytes([a, b]),
        epoch: u32::from_le_bytes([c, d, e, f]),
    };
    let taken: Vec<Taken> = records.iter().map(of).collect();
    let can_be = |taken: &Taken| taken.slice < MOST_SLICES && taken.epoch > 0;
    let is_right = !taken.is_empty() && rest.is_empty() && taken.iter().all(can_be);
    (is_right && taken.is_sorted_by(|former, next| former.slice < next.slice)).then_some(taken)
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
    out.push(length);
    out.extend(text.bytes().take(length.into()));
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (field, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*field)
}

fn take_text(bytes: &mut &[u8]) -> Option<String> {
    let [length] = take(bytes)?;
    let (text, rest) = bytes.split_at_checked(length.into())?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        let service = |number, name: &str| ServiceName { number, kind: "nat64".into(), name: name.into() };
        Hello {
            version: VERSION,
            has_lost: true,
            subscribers: 100,
            bindings: 1000,
            incarnation: 77,
            name: "n1".into(),
            services: vec![service(0, "a"), service(7, "b")],
        }
    }

    fn taken(slice: u16, epoch: u32) -> Taken {
        Taken { slice, epoch }
    }

    #[test]
    fn what_is_said_is_understood() {
        let frames = [
            Frame::Hello(hello()),
            Frame::Welcome { version: 1, held: Held::Nothing },
            Frame::Welcome { version: 1, held: Held::Copy },
            Frame::Welcome { version: 1, held: Held::More },
            Frame::Refusal("no".into()),
            Frame::Batch(&[1, 2, 3]),
            Frame::Applied(9),
            Frame::Alive,
            Frame::Vouch,
            Frame::Took(vec![taken(0, 1), taken(7, 300), taken(255, u32::MAX)]),
            Frame::Took((0..256).map(|slice| taken(slice, 2)).collect()),
            Frame::Ask(77),
            Frame::Promise(78),
            Frame::Unseen,
        ];
        let mut said = Vec::new();
        frames.iter().for_each(|frame| frame.emit(&mut said));
        let mut rest = &said[..];
        for frame in &frames {
            assert_eq!(Frame::parse(&rest[..3]), Ok(None));
            let (found, bytes) = Frame::parse(rest).unwrap().unwrap();
            assert_eq!(&found, frame);
            rest = &rest[bytes..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let frames = [
            &[12, 0, 0, 0][..],
            &[11, 0, 1, 0, 0],
            &[6, 1, 0, 0],
            &[6, 0, 1, 0, 0],
            &[5, 0, 1, 0, 0],
            &[4, 0, 255, 255],
            &[9, 0, 0, 0],
            &[9, 0, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
            &[10, 0, 7, 0, 1, 2, 3, 4, 5, 6, 7],
        ];
        for bytes in frames {
            assert!(Frame::parse(bytes).is_err(), "{bytes:?}");
        }
        let mut said = Vec::new();
        Frame::Hello(hello()).emit(&mut said);
        for (at, to) in [(4, b'T'), (14, 2), (15, 1), (24, 1), (19, 0xff), (36, 200)] {
            let mut changed = said.clone();
            changed[at] = to;
            assert!(Frame::parse(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn slices_that_cannot_have_been_taken_over_are_refused() {
        let said = |taken: &[Taken]| {
            let mut said = Vec::new();
            Frame::Took(taken.to_vec()).emit(&mut said);
            said
        };
        let right = said(&[taken(1, 2), taken(3, 4)]);
        assert_eq!(right, [8, 0, 12, 0, 1, 0, 2, 0, 0, 0, 3, 0, 4, 0, 0, 0]);
        assert!(Frame::parse(&right).is_ok());
        let twice: Vec<Taken> = (0..300).map(|slice| taken(slice % 256, 2)).collect();
        let wrong: [&[Taken]; 6] =
            [&[], &[taken(1, 0)], &[taken(256, 1)], &[taken(1, 2), taken(1, 2)], &[taken(3, 2), taken(1, 2)], &twice];
        for taken in wrong {
            assert_eq!(Frame::parse(&said(taken)), Err(FrameError("which slices it took over")), "{taken:?}");
        }
        for length in [1, 5, 7, 11] {
            let mut cut = right.clone();
            cut[2] = length;
            assert!(Frame::parse(&cut).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn two_versions_in_a_row_speak_with_each_other() {
        assert_eq!([0, 1, 2].map(common_version), [None, Some(1), Some(1)]);
    }
}

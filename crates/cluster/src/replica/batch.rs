//! Batches: what is sent, acknowledged and applied at once.
//!
//! ```text
//! batch      number (8), flags (1), 0 (7)        number: 1, 2, 3 ... on each connection
//! sections   slice (2), kind (1), records (1), epoch (4), the records
//! ```
//!
//! Numbers are little-endian. Flags: 1, a whole copy begins with this batch, and what was copied before counts
//! no more; 2, with this batch it is complete. A section is of one slice, with the epoch in which the sender
//! owns it.

use super::record::{Kind, Record, RecordError};

/// A batch has so many bytes at most: with what is put in front of it, one record of TLS (RFC 8446 section 5.1).
pub const BATCH_BYTES: usize = 16_000;

const HEADER: usize = 16;
const SECTION_HEADER: usize = 8;
const BEGINS: u8 = 1;
const COMPLETES: u8 = 2;

/// A batch makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// A record.
    #[error("it has {0}")]
    Record(#[from] RecordError),
    /// The batch itself.
    #[error("its {0} makes no sense")]
    Field(&'static str),
}

/// How many owners a slice has had, as far as is known here.
pub type Epochs<'a> = &'a dyn Fn(u16) -> u32;

/// What stands in front of the sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) number: u64,
    /// A whole copy begins.
    pub(super) begins: bool,
    /// The whole copy is complete.
    pub(super) completes: bool,
}

/// Whose records follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) slice: u16,
    pub(super) epoch: u32,
}

/// A batch that is being written, behind what `out` has already.
pub(super) struct Writer<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    /// The section at hand, and where it begins.
    section: Option<(Section, Kind, usize)>,
}

impl<'o> Writer<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>) -> Self {
        let start = out.len();
        out.resize(start + HEADER, 0);
        Self { out, start, section: None }
    }

    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes() == HEADER
    }

    fn bytes(&self) -> usize {
        self.out.len() - self.start
    }

    /// Adds a record; false if there is no room for it.
    pub(super) fn add(&mut self, section: Section, record: &Record) -> bool {
        let kind = record.kind();
        let at_hand =
            self.section.filter(|(of, records, at)| *of == section && *records == kind && self.out[at + 3] < u8::MAX);
        let more = kind.bytes() + if at_hand.is_some() { 0 } else { SECTION_HEADER };
        if self.bytes() + more > BATCH_BYTES {
            return false;
        }
        let at = at_hand.map_or(self.out.len(), |(_, _, at)| at);
        if at_hand.is_none() {
            self.out.extend(section.slice.to_le_bytes());
            self.out.extend([kind as u8, 0]);
            self.out.extend(section.epoch.to_le_bytes());
            self.section = Some((section, kind, at));
        }
        self.out[at + 3] += 1;
        record.emit(self.out);
        true
    }

    /// Puts the header in front; says how many bytes it has.
    pub(super) fn finish(self, header: Header) -> usize {
        let flags = if header.begins { BEGINS } else { 0 } | if header.completes { COMPLETES } else { 0 };
        self.out[self.start..self.start + 8].copy_from_slice(&header.number.to_le_bytes());
        self.out[self.start + 8] = flags;
        self.bytes()
    }

    /// There is nothing to be sent.
    pub(super) fn abandon(self) {
        self.out.truncate(self.start);
    }
}

/// Reads a batch; each record goes to `each`, in order.
pub(super) fn read<E: From<BatchError>>(
    bytes: &[u8],
    header: impl FnOnce(Header) -> Result<(), E>,
    mut each: impl FnMut(Section, Record) -> Result<(), E>,
) -> Result<(), E> {
    let field = |name| E::from(BatchError::Field(name));
    let (front, mut rest) = bytes.split_first_chunk::<HEADER>().ok_or_else(|| field("length"))?;
    if front[9..] != [0; 7] || front[8] & !(BEGINS | COMPLETES) != 0 || bytes.len() > BATCH_BYTES {
        return Err(field("header"));
    }
    let number = front.first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
    header(Header { number, begins: front[8] & BEGINS != 0, completes: front[8] & COMPLETES != 0 })?;
    while !rest.is_empty() {
        let (&[low, high, kind, count, a, b, c, d], records) =
            rest.split_first_chunk::<SECTION_HEADER>().ok_or_else(|| field("section"))?;
        let section = Section { slice: u16::from_le_bytes([low, high]), epoch: u32::from_le_bytes([a, b, c, d]) };
        let kind = Kind::from_number(kind).map_err(BatchError::from)?;
        if count == 0 {
            return Err(field("section"));
        }
        rest = records;
        for _ in 0..count {
            each(section, Record::parse(kind, &mut rest).map_err(BatchError::from)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::record::Removed;
    use super::*;

    fn removal(number: u32) -> Record {
        Record::Removed(Removed { number, of: Kind::Binding })
    }

    fn section(slice: u16) -> Section {
        Section { slice, epoch: 7 }
    }

    fn read_all(bytes: &[u8]) -> Result<(Header, Vec<(Section, Record)>), BatchError> {
        let (mut found, mut records) = (None, Vec::new());
        read(
            bytes,
            |header| {
                found = Some(header);
                Ok(())
            },
            |section, record| {
                records.push((section, record));
                Ok::<(), BatchError>(())
            },
        )?;
        Ok((found.unwrap(), records))
    }

    #[test]
    fn records_of_a_slice_that_follow_each_other_share_a_section() {
        let mut out = vec![0xee; 3];
        let mut writer = Writer::new(&mut out);
        let sent = [(section(1), removal(1)), (section(1), removal(2)), (section(2), removal(3))];
        assert!(writer.is_empty() && sent.iter().all(|(section, record)| writer.add(*section, record)));
        let header = Header { number: 9, begins: true, completes: false };
        assert_eq!(writer.finish(header), 16 + 2 * 8 + 3 * 8);
        assert_eq!(read_all(&out[3..]), Ok((header, sent.to_vec())));
    }

    #[test]
    fn a_batch_is_full_at_its_limit_and_a_section_at_255() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        let count = (1..).take_while(|number| writer.add(section(0), &removal(*number))).count();
        writer.finish(Header { number: 1, begins: false, completes: false });
        assert!((BATCH_BYTES - 16..=BATCH_BYTES).contains(&out.len()));
        assert_eq!(read_all(&out).unwrap().1.len(), count);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        assert!(writer.add(section(0), &removal(1)));
        writer.finish(Header { number: 1, begins: false, completes: true });
        let changed = |at: usize, to: u8| {
            let mut bytes = out.clone();
            bytes[at] = to;
            read_all(&bytes)
        };
        assert_eq!(changed(8, 4), Err(BatchError::Field("header")));
        assert_eq!(changed(15, 1), Err(BatchError::Field("header")));
        assert_eq!(changed(18, 9), Err(BatchError::Record(RecordError::Kind(9))));
        assert_eq!(changed(19, 0), Err(BatchError::Field("section")));
        assert_eq!(changed(19, 2), Err(BatchError::Record(RecordError::Short)));
        assert_eq!(read_all(&out[..15]), Err(BatchError::Field("length")));
        assert_eq!(read_all(&out[..20]), Err(BatchError::Field("section")));
        assert_eq!(read_all(&vec![0; BATCH_BYTES + 1]), Err(BatchError::Field("header")));
    }
}

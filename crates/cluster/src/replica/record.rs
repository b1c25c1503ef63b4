//! Records as they are sent: little-endian numbers, addresses and ports as on the wire.
//!
//! ```text
//! subscriber, 48 bytes                                 binding, 48 bytes; without the IPv6 address 32
//!  0  number (4)                                        0  number (4)
//!  4  service (1), 0 (3)                                4  subscriber's number (4); 0 of a static one
//!  8  IPv6 address or prefix (16)                       8  IPv6 address (16)
//! 24  IPv4 address (4)                                  8 or 24  IPv4 address (4), outside address (4)
//! 28  outside address (4)                              16 or 32  inside port (2), outside port (2)
//! 32  places of blocks, plus one, 0 for none (4 x 2)   20 or 36  protocol (1), service (1), flags (2)
//! 40  0 (8)                                            24 or 40  age in ticks (4), class (1), 0 (3)
//!
//! block that nobody has, 16 bytes                      removal, 8 bytes
//!  0  service (1), state (1), place (2)                 0  number (4), kind of the record (1), 0 (3)
//!  4  outside address (4)
//!  8  ticks since it was given back (4), 0 (4)
//!
//! slice, 8 bytes
//!  0  how far its copy is (1), 0 (7)
//! ```
//!
//! A tick is the tables': 2^30 ns. States of a block: 1, offered; 2, given back, and kept back for a while. A copy of a slice: 1, it begins;
//! 2, it is whole.

use tombolo_tables::binding::{InsideKey, flags};
use tombolo_tables::subscriber::{MOST_BLOCKS, SubscriberKey};

/// What a binding is worth to whoever takes it over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// TCP, and no connection is open.
    Opening = 1,
    /// TCP, and a connection is open.
    Established = 2,
    /// Datagrams.
    Udp = 3,
    /// ICMP queries.
    Icmp = 4,
}

/// What a section has records of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Subscriber = 1,
    Binding = 2,
    /// A binding whose host is known by an IPv4 address alone.
    Binding4 = 3,
    Removal = 4,
    Block = 5,
    Slice = 6,
}

/// A record makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// There is no such kind.
    #[error("records of an unknown kind ({0})")]
    Kind(u8),
    /// The batch ends within it.
    #[error("a record that is cut off")]
    Short,
    /// A field has a value that it cannot have.
    #[error("a record with an impossible {0}")]
    Field(&'static str),
}

/// A subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SubscriberRecord {
    pub(super) number: u32,
    pub(super) key: SubscriberKey,
    pub(super) outside_ipv4: [u8; 4],
    /// Places plus one.
    pub(super) blocks: [u16; MOST_BLOCKS],
}

/// A binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BindingRecord {
    pub(super) number: u32,
    pub(super) subscriber: u32,
    pub(super) inside: InsideKey,
    pub(super) outside_ipv4: [u8; 4],
    pub(super) outside_port: [u8; 2],
    pub(super) flags: u16,
    pub(super) age: u32,
    pub(super) class: Class,
}

/// A block of ports that no subscriber has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockRecord {
    pub(super) service: u8,
    pub(super) outside_ipv4: [u8; 4],
    /// Place in the address.
    pub(super) place: u16,
    pub(super) state: BlockState,
}

/// Why nobody has a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockState {
    /// It is offered: somebody may have it by now.
    Offered,
    /// It was given back so many ticks ago.
    Resting(u32),
}

/// How far the copy of a slice is, where slices come to a connection that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It begins: what is here of the slice is what somebody else had said, or done.
    Begins = 1,
    /// Everything has been said that there was when it began.
    Whole = 2,
}

/// A record that is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Removed {
    pub(super) number: u32,
    pub(super) of: Kind,
}

/// Any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    Subscriber(SubscriberRecord),
    Binding(BindingRecord),
    Removed(Removed),
    Block(BlockRecord),
    /// Of the section's slice.
    Slice(Progress),
}

/// Flags of a binding that are copied: a lease is its node's own.
pub(super) const COPIED_FLAGS: u16 = flags::STATIC | flags::OPERATOR;

impl Class {
    fn from_number(number: u8) -> Option<Self> {
        [Self::Opening, Self::Established, Self::Udp, Self::Icmp].into_iter().find(|class| *class as u8 == number)
    }
}

impl Kind {
    pub(super) fn from_number(number: u8) -> Result<Self, RecordError> {
        let all = [Self::Subscriber, Self::Binding, Self::Binding4, Self::Removal, Self::Block, Self::Slice];
        all.into_iter().find(|kind| *kind as u8 == number).ok_or(RecordError::Kind(number))
    }

    /// Bytes of a record.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Subscriber | Self::Binding => 48,
            Self::Binding4 => 32,
            Self::Block => 16,
            Self::Removal | Self::Slice => 8,
        }
    }
}

impl Record {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Subscriber(_) => Kind::Subscriber,
            Self::Binding(binding) if binding.inside.ipv6 == [0; 16] => Kind::Binding4,
            Self::Binding(_) => Kind::Binding,
            Self::Removed(_) => Kind::Removal,
            Self::Block(_) => Kind::Block,
            Self::Slice(_) => Kind::Slice,
        }
    }

    /// Appends its bytes.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Subscriber(SubscriberRecord { number, key, outside_ipv4, blocks }) => {
                out.extend(number.to_le_bytes());
                out.extend([key.service, 0, 0, 0]);
                out.extend(key.ipv6);
                out.extend(key.ipv4);
                out.extend(outside_ipv4);
                blocks.iter().for_each(|place| out.extend(place.to_le_bytes()));
                out.extend([0; 8]);
            }
            Self::Binding(binding) => {
                let BindingRecord { number, subscriber, inside, outside_ipv4, outside_port, .. } = binding;
                out.extend(number.to_le_bytes());
                out.extend(subscriber.to_le_bytes());
                if self.kind() == Kind::Binding {
                    out.extend(inside.ipv6);
                }
                out.extend(inside.ipv4);
                out.extend(outside_ipv4);
                out.extend(inside.port);
                out.extend(outside_port);
                out.extend([inside.protocol, inside.service]);
                out.extend(binding.flags.to_le_bytes());
                out.extend(binding.age.to_le_bytes());
                out.extend([binding.class as u8, 0, 0, 0]);
            }
            Self::Block(BlockRecord { service, outside_ipv4, place, state }) => {
                let (state, age) = match state {
                    BlockState::Offered => (1, 0),
                    BlockState::Resting(age) => (2, *age),
                };
                out.extend([*service, state]);
                out.extend(place.to_le_bytes());
                out.extend(outside_ipv4);
                out.extend(age.to_le_bytes());
                out.extend([0; 4]);
            }
            Self::Removed(Removed { number, of }) => {
                out.extend(number.to_le_bytes());
                out.extend([*of as u8, 0, 0, 0]);
            }
            Self::Slice(progress) => out.extend([*progress as u8, 0, 0, 0, 0, 0, 0, 0]),
        }
    }

    /// Takes a record of this kind off the front.
    pub(super) fn parse(kind: Kind, bytes: &mut &[u8]) -> Result<Self, RecordError> {
        let (record, rest) = bytes.split_at_checked(kind.bytes()).ok_or(RecordError::Short)?;
        *bytes = rest;
        let mut fields = Fields(record);
        let parsed = match kind {
            Kind::Subscriber => Self::Subscriber(subscriber(&mut fields)?),
            Kind::Binding => Self::Binding(binding(&mut fields, true)?),
            Kind::Binding4 => Self::Binding(binding(&mut fields, false)?),
            Kind::Removal => Self::Removed(removed(&mut fields)?),
            Kind::Block => Self::Block(block(&mut fields)?),
            Kind::Slice => Self::Slice(progress(&mut fields)?),
        };
        if fields.0.is_empty() { Ok(parsed) } else { Err(RecordError::Field("length")) }
    }
}

fn subscriber(fields: &mut Fields<'_>) -> Result<SubscriberRecord, RecordError> {
    let number = fields.number()?;
    let [service] = fields.take()?;
    fields.zero::<3>()?;
    let (ipv6, ipv4, outside_ipv4) = (fields.take()?, fields.take()?, fields.take()?);
    let mut blocks = [0; MOST_BLOCKS];
    for place in &mut blocks {
        *place = u16::from_le_bytes(fields.take()?);
    }
    fields.zero::<8>()?;
    let held = blocks.iter().filter(|place| **place != 0).count();
    let is_in_order = blocks[..held].iter().all(|place| *place != 0);
    let are_different = (0..held).all(|at| !blocks[..at].contains(&blocks[at]));
    if !is_in_order || !are_different {
        return Err(RecordError::Field("list of blocks"));
    }
    Ok(SubscriberRecord { number, key: SubscriberKey { ipv6, ipv4, service }, outside_ipv4, blocks })
}

fn binding(fields: &mut Fields<'_>, has_ipv6: bool) -> Result<BindingRecord, RecordError> {
    let (number, subscriber) = (fields.number()?, u32::from_le_bytes(fields.take()?));
    let ipv6 = if has_ipv6 { fields.take()? } else { [0; 16] };
    if has_ipv6 && ipv6 == [0; 16] {
        return Err(RecordError::Field("address"));
    }
    let (ipv4, outside_ipv4, port, outside_port) = (fields.take()?, fields.take()?, fields.take()?, fields.take()?);
    let [protocol, service] = fields.take()?;
    let flags = u16::from_le_bytes(fields.take()?);
    if flags & !COPIED_FLAGS != 0 {
        return Err(RecordError::Field("flag"));
    }
    if subscriber == 0 && flags & flags::STATIC == 0 {
        return Err(RecordError::Field("subscriber"));
    }
    let age = u32::from_le_bytes(fields.take()?);
    let [class] = fields.take()?;
    let class = Class::from_number(class).ok_or(RecordError::Field("class"))?;
    fields.zero::<3>()?;
    let inside = InsideKey { ipv6, ipv4, port, protocol, service };
    Ok(BindingRecord { number, subscriber, inside, outside_ipv4, outside_port, flags, age, class })
}

fn block(fields: &mut Fields<'_>) -> Result<BlockRecord, RecordError> {
    let [service, state] = fields.take()?;
    let (place, outside_ipv4) = (u16::from_le_bytes(fields.take()?), fields.take()?);
    let age = u32::from_le_bytes(fields.take()?);
    fields.zero::<4>()?;
    let state = match (state, age) {
        (1, 0) => BlockState::Offered,
        (2, age) => BlockState::Resting(age),
        _ => return Err(RecordError::Field("state of a block")),
    };
    Ok(BlockRecord { service, outside_ipv4, place, state })
}

fn removed(fields: &mut Fields<'_>) -> Result<Removed, RecordError> {
    let number = fields.number()?;
    let [kind] = fields.take()?;
    fields.zero::<3>()?;
    match Kind::from_number(kind)? {
        of @ (Kind::Subscriber | Kind::Binding) => Ok(Removed { number, of }),
        Kind::Binding4 | Kind::Removal | Kind::Block | Kind::Slice => Err(RecordError::Field("kind")),
    }
}

fn progress(fields: &mut Fields<'_>) -> Result<Progress, RecordError> {
    let [progress] = fields.take()?;
    fields.zero::<7>()?;
    let known = [Progress::Begins, Progress::Whole].into_iter().find(|known| *known as u8 == progress);
    known.ok_or(RecordError::Field("state of a slice"))
}

/// The fields of a record, one after the other.
struct Fields<'b>(&'b [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(RecordError::Short)?;
        self.0 = rest;
        Ok(*field)
    }

    /// The number of a record: 0 is none.
    fn number(&mut self) -> Result<u32, RecordError> {
        let number = u32::from_le_bytes(self.take()?);
        if number == 0 { Err(RecordError::Field("number")) } else { Ok(number) }
    }

    fn zero<const N: usize>(&mut self) -> Result<(), RecordError> {
        if self.take::<N>()? == [0; N] { Ok(()) } else { Err(RecordError::Field("byte that is to be 0")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<Record> {
        let inside = InsideKey { ipv6: [7; 16], ipv4: [1, 2, 3, 4], port: [0, 9], protocol: 17, service: 3 };
        let binding = BindingRecord {
            number: 77,
            subscriber: 5,
            inside,
            outside_ipv4: [192, 0, 2, 1],
            outside_port: [0x12, 0x34],
            flags: 0,
            age: 1000,
            class: Class::Udp,
        };
        let key = SubscriberKey { ipv6: [9; 16], ipv4: [10, 0, 0, 1], service: 200 };
        vec![
            Record::Subscriber(SubscriberRecord { number: 5, key, outside_ipv4: [192, 0, 2, 7], blocks: [8, 1, 0, 0] }),
            Record::Binding(binding),
            Record::Binding(BindingRecord { inside: InsideKey { ipv6: [0; 16], ..inside }, ..binding }),
            Record::Binding(BindingRecord { subscriber: 0, flags: flags::STATIC, class: Class::Opening, ..binding }),
            Record::Removed(Removed { number: 9, of: Kind::Subscriber }),
            Record::Block(BlockRecord {
                service: 3,
                outside_ipv4: [192, 0, 2, 7],
                place: 513,
                state: BlockState::Offered,
            }),
            Record::Block(BlockRecord {
                service: 3,
                outside_ipv4: [192, 0, 2, 7],
                place: 1023,
                state: BlockState::Resting(77),
            }),
            Record::Slice(Progress::Begins),
            Record::Slice(Progress::Whole),
        ]
    }

    fn bytes(record: &Record) -> Vec<u8> {
        let mut bytes = Vec::new();
        record.emit(&mut bytes);
        bytes
    }

    #[test]
    fn what_is_sent_is_understood() {
        for record in examples() {
            let bytes = bytes(&record);
            assert_eq!(bytes.len(), record.kind().bytes());
            let mut rest = &bytes[..];
            assert_eq!((Record::parse(record.kind(), &mut rest), rest.len()), (Ok(record), 0));
            assert_eq!(Record::parse(record.kind(), &mut &bytes[..bytes.len() - 1]), Err(RecordError::Short));
        }
    }

    /// The bytes that every later version has to send and to understand.
    #[test]
    fn bytes_stay_what_they_are() {
        let binding = bytes(&examples()[2]);
        let expected = [
            77, 0, 0, 0, 5, 0, 0, 0, 1, 2, 3, 4, 192, 0, 2, 1, 0, 9, 0x12, 0x34, 17, 3, 0, 0, 0xe8, 3, 0, 0, 3, 0, 0, 0,
        ];
        assert_eq!(binding, expected);
        assert_eq!(bytes(&examples()[5]), [3, 1, 1, 2, 192, 0, 2, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes(&examples()[6]), [3, 2, 0xff, 3, 192, 0, 2, 7, 77, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!([7, 8].map(|slice| bytes(&examples()[slice])), [[1, 0, 0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0]]);
        let subscriber = bytes(&examples()[0]);
        assert_eq!(
            (subscriber[..8].to_vec(), subscriber[24..40].to_vec()),
            (vec![5, 0, 0, 0, 200, 0, 0, 0], vec![10, 0, 0, 1, 192, 0, 2, 7, 8, 0, 1, 0, 0, 0, 0, 0])
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let examples = examples();
        let changed = |example: usize, at: usize, to: u8| {
            let mut bytes = bytes(&examples[example]);
            bytes[at] = to;
            Record::parse(examples[example].kind(), &mut &bytes[..])
        };
        let refused = |field| Err(RecordError::Field(field));
        assert_eq!(changed(0, 0, 0), refused("number"));
        assert_eq!(changed(0, 5, 1), refused("byte that is to be 0"));
        assert_eq!(changed(0, 32, 1), refused("list of blocks"), "twice the same");
        assert!(changed(0, 36, 0).is_ok());
        assert_eq!(changed(0, 38, 9), changed(0, 38, 9));
        assert_eq!(changed(0, 47, 1), refused("byte that is to be 0"));
        assert_eq!(changed(1, 38, 4), refused("flag"), "a lease");
        assert_eq!(changed(1, 4, 0), refused("subscriber"));
        assert_eq!(changed(1, 44, 5), refused("class"));
        assert_eq!(changed(4, 4, 3), refused("kind"));
        assert_eq!(changed(4, 4, 9), Err(RecordError::Kind(9)));
        assert_eq!(changed(5, 1, 0), refused("state of a block"));
        assert_eq!(changed(5, 8, 1), refused("state of a block"), "nothing that is offered has an age");
        assert_eq!(changed(6, 15, 1), refused("byte that is to be 0"));
        assert_eq!(changed(7, 0, 3), refused("state of a slice"));
        assert_eq!(changed(7, 7, 1), refused("byte that is to be 0"));
        let mut gap = bytes(&examples[0]);
        gap[32..34].fill(0);
        assert_eq!(Record::parse(Kind::Subscriber, &mut &gap[..]), refused("list of blocks"));
        let mut unaddressed = bytes(&examples[1]);
        unaddressed[8..24].fill(0);
        assert_eq!(Record::parse(Kind::Binding, &mut &unaddressed[..]), refused("address"));
    }
}

//! Reassembles fragments, for services that need the ports of every packet.
//!
//! Read first: RFC 791 section 3.2, RFC 8200 section 4.5, RFC 5722 (overlaps), RFC 6146 section
//! 3.4, RFC 4963 and RFC 8900 on what goes wrong.
//!
//! Pieces are kept as they came until none is missing; then they are handed out together, to be copied into
//! one buffer with headroom: a packet. Memory is bounded: bytes and datagrams are counted,
//! and what is over the bound pushes out the oldest datagram, which in a flood is the one that is
//! least likely to be completed. One source gets a quarter of the memory at most, so that a flood
//! from one host leaves room for the others.
//!
//! A datagram whose pieces overlap or contradict each other is given up, and stays given up until
//! its time is over: what comes of it later is dropped too (RFC 8200 section 4.5). A piece that
//! came twice is ignored.
//!
//! ```text
//! slots   | datagram | datagram | free ...      oldest <-> ... <-> newest, linked through the slots
//! index   key -> slot
//! ```

use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::{ipv4, ipv6, write_u16};

use crate::packet::{HEADROOM, Offload, Packet};
use crate::parse::{Fragment, Parsed, parse_ipv4, parse_ipv6};
use crate::verdict::DropReason;

/// Largest IPv4 packet and IPv6 payload.
const LARGEST: usize = 65535;
/// Pieces of one datagram: 64 KiB over links of 576 bytes, and some.
const LARGEST_COUNT: usize = 128;
/// What a piece costs besides its bytes.
const PIECE_COST: usize = 64;
/// Datagrams given up whose senders are still to be told, at most; more are given up in silence.
const EXPIRED: usize = 32;
/// Counters of bytes by source; sources that share one share their quarter.
const SOURCES: usize = 256;
/// Stands for the version of fragments that were inside a softwire.
const IPV4_IN_IPV6: u8 = 46;
/// End of the list.
const NONE: u32 = u32::MAX;

/// Bounds of a [`Reassembly`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReassemblyLimits {
    /// Bytes of pieces, with 64 bytes for each.
    pub memory: usize,
    /// Datagrams at a time.
    pub datagrams: u32,
    /// Nanoseconds from the first piece that arrived until a datagram is given up. RFC 6146 section
    /// 4 wants two seconds at least.
    pub timeout: u64,
}

impl Default for ReassemblyLimits {
    fn default() -> Self {
        Self { memory: 16 << 20, datagrams: 8192, timeout: 2_000_000_000 }
    }
}

/// Fragments that wait for the others. Workers share them: [`Fragments`](super::Fragments).
#[derive(Debug)]
pub struct Reassembly {
    limits: ReassemblyLimits,
    index: HashMap<Key, u32, Secret>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    memory: usize,
    by_source: Box<[usize; SOURCES]>,
    timed_out: u64,
    pushed_out: u64,
    /// First pieces of IPv6 datagrams whose time was over.
    expired: Vec<FirstPiece>,
}

/// Where a datagram is put together, and lies while it is worked on. Empty until it is needed first.
#[derive(Debug, Default)]
pub struct Room(Vec<u8>);

impl Room {
    fn bytes(&mut self) -> &mut Vec<u8> {
        self.0.resize(HEADROOM + ipv6::HEADER_LENGTH + LARGEST + HEADROOM, 0);
        &mut self.0
    }
}

/// Which datagram a fragment belongs to. IPv6 leaves the next header out: those of later fragments
/// mean nothing (RFC 8200 section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    source: u128,
    destination: u128,
    identification: u32,
    protocol: u8,
    version: u8,
}

#[derive(Debug)]
struct Slot {
    key: Key,
    deadline: u64,
    older: u32,
    newer: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    /// Contradictory; what comes is dropped.
    GivenUp,
    Collecting(Datagram),
}

/// What there is of a datagram.
#[derive(Debug, Default)]
struct Datagram {
    /// By offset, without overlaps.
    pieces: Vec<Piece>,
    /// Bytes in `pieces`.
    present: usize,
    /// Bytes of the whole payload, once the last piece is there.
    total: Option<usize>,
    /// What is in front of the first piece: its IP header, extension headers and Fragment header
    /// included.
    front: Vec<u8>,
    /// Protocol of the transport, as the first piece says.
    protocol: u8,
    /// A piece met congestion.
    congestion: bool,
}

/// The first piece of a datagram, as it came.
#[derive(Debug)]
pub struct FirstPiece {
    front: Vec<u8>,
    bytes: Box<[u8]>,
}

impl FirstPiece {
    /// It as a packet, in `room`.
    pub fn into_packet(self, room: &mut Room) -> Option<Packet<'_>> {
        let length = self.front.len() + self.bytes.len();
        let bytes = room.bytes();
        let place = bytes.get_mut(HEADROOM..HEADROOM + length)?;
        place[..self.front.len()].copy_from_slice(&self.front);
        place[self.front.len()..].copy_from_slice(&self.bytes);
        Packet::new(bytes, HEADROOM, length, Offload::default())
    }
}

/// A piece that arrives.
#[derive(Debug)]
pub struct Arriving<'a> {
    pub(super) key: Key,
    fragment: Fragment,
    front: &'a [u8],
    /// Bytes of `front` that the datagram will have.
    header: usize,
    protocol: u8,
    payload: &'a [u8],
}

impl<'a> Arriving<'a> {
    /// An IPv4 packet; `None` if it is no piece of one. Hosts behind different softwires may have the same addresses: the
    /// fragments of one that came out of a softwire are kept apart by where that comes from.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] if it was not parsed as it lies there.
    pub fn ipv4(
        packet: &'a Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        softwire: Option<Ipv6Addr>,
    ) -> Result<Option<Self>, DropReason> {
        let (source, destination) = (u128::from(parsed.source.to_bits()), u128::from(parsed.destination.to_bits()));
        let ends = match softwire {
            None => (source, destination, 4),
            Some(softwire) => (softwire.to_bits(), source << 32 | destination, IPV4_IN_IPV6),
        };
        Self::of(packet, parsed, ends)
    }

    /// An IPv6 packet; `None` if it is no piece of one.
    ///
    /// # Errors
    /// As [`ipv4`](Self::ipv4).
    pub fn ipv6(packet: &'a Packet<'_>, parsed: &Parsed<Ipv6Addr>) -> Result<Option<Self>, DropReason> {
        Self::of(packet, parsed, (parsed.source.to_bits(), parsed.destination.to_bits(), 6))
    }

    fn of<A>(
        packet: &'a Packet<'_>,
        parsed: &Parsed<A>,
        (source, destination, version): (u128, u128, u8),
    ) -> Result<Option<Self>, DropReason> {
        let Some(fragment) = parsed.fragment.filter(|fragment| fragment.is_piece()) else { return Ok(None) };
        let (front, payload) =
            packet.bytes().split_at_checked(parsed.transport_offset.into()).ok_or(DropReason::Malformed)?;
        let (is_ipv6, protocol) = (version == 6, parsed.protocol.0);
        let of_key = if is_ipv6 { 0 } else { protocol };
        let key = Key { source, destination, identification: fragment.identification, protocol: of_key, version };
        let header = if is_ipv6 { ipv6::HEADER_LENGTH } else { front.len() };
        Ok(Some(Self { key, fragment, front, header, protocol, payload }))
    }
}

/// A datagram of which all pieces have come.
#[derive(Debug)]
pub struct Complete {
    identification: u32,
    is_ipv6: bool,
    datagram: Datagram,
}

impl Complete {
    /// It as an IPv4 packet, in `room`. It has no DF: it may be fragmented again.
    ///
    /// # Errors
    /// [`DropReason::FragmentInvalid`] if it is too long, or what [`parse_ipv4`] says of it.
    pub fn into_ipv4(self, room: &mut Room) -> Result<(Packet<'_>, Parsed<Ipv4Addr>), DropReason> {
        let buffer = room.bytes();
        let Whole { start, length, largest_piece } = self.copy_into(buffer);
        let bytes = &mut buffer[start..start + length];
        write_u16(bytes, ipv4::TOTAL_LENGTH, u16::try_from(length).map_err(|_| DropReason::FragmentInvalid)?);
        write_u16(bytes, ipv4::FRAGMENT_OFFSET, 0);
        ipv4::write_checksum(bytes);
        let mut whole = Packet::new(buffer, start, length, Offload::default()).ok_or(DropReason::NoHeadroom)?;
        let parsed = parse_ipv4(&mut whole)?;
        Ok((whole, Parsed { largest_piece, ..parsed }))
    }

    /// It as an IPv6 packet, in `room`. It has no extension headers before the transport; its [`Parsed`] keeps the
    /// identification and says that it may be fragmented again.
    ///
    /// # Errors
    /// As [`into_ipv4`](Self::into_ipv4).
    pub fn into_ipv6(self, room: &mut Room) -> Result<(Packet<'_>, Parsed<Ipv6Addr>), DropReason> {
        let buffer = room.bytes();
        let Whole { start, length, largest_piece } = self.copy_into(buffer);
        let payload_length = u16::try_from(length - ipv6::HEADER_LENGTH).map_err(|_| DropReason::FragmentInvalid)?;
        write_u16(&mut buffer[start..], ipv6::PAYLOAD_LENGTH, payload_length);
        let mut whole = Packet::new(buffer, start, length, Offload::default()).ok_or(DropReason::NoHeadroom)?;
        let mut parsed = parse_ipv6(&mut whole)?;
        parsed.fragment = Some(Fragment { identification: self.identification, offset: 0, more: false });
        parsed.dont_fragment = false;
        parsed.largest_piece = largest_piece;
        Ok((whole, parsed))
    }

    fn copy_into(&self, buffer: &mut [u8]) -> Whole {
        let Self { is_ipv6, ref datagram, .. } = *self;
        // Of IPv6 the extension headers go with the Fragment header.
        let header_length = if is_ipv6 { ipv6::HEADER_LENGTH } else { datagram.front.len() };
        let length = header_length + datagram.present;
        let buffer = &mut buffer[HEADROOM..HEADROOM + length];
        let (header, mut rest) = buffer.split_at_mut(header_length);
        header.copy_from_slice(&datagram.front[..header_length]);
        if is_ipv6 {
            header[ipv6::NEXT_HEADER] = datagram.protocol;
        }
        if datagram.congestion {
            // Congestion that one piece met marks the whole (RFC 3168 section 5.3).
            header[1] |= if header[0] >> 4 == 4 { 0b11 } else { 0b11 << 4 };
        }
        for piece in &datagram.pieces {
            let (place, behind) = rest.split_at_mut(piece.bytes.len());
            place.copy_from_slice(&piece.bytes);
            rest = behind;
        }
        let largest_piece = datagram.pieces.iter().map(|piece| piece.bytes.len()).max().unwrap_or(0);
        Whole { start: HEADROOM, length, largest_piece: u16::try_from(largest_piece).unwrap_or(u16::MAX) }
    }
}

/// A datagram that was reassembled: where it lies in the buffer.
struct Whole {
    start: usize,
    length: usize,
    /// Bytes of the largest piece, headers left out.
    largest_piece: u16,
}

#[derive(Debug)]
struct Piece {
    offset: usize,
    bytes: Box<[u8]>,
}

impl Piece {
    fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }
}

/// Keys the standard hasher, so that nobody can choose datagrams that collide.
#[derive(Debug, Clone, Copy)]
pub(super) struct Secret(pub(super) [u64; 2]);

impl BuildHasher for Secret {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0[0]);
        hasher.write_u64(self.0[1]);
        hasher
    }
}

impl Reassembly {
    /// Waits for fragments within `limits`; `secret` keys the hash.
    #[must_use]
    pub fn new(limits: ReassemblyLimits, secret: [u64; 2]) -> Self {
        Self {
            limits,
            index: HashMap::with_hasher(Secret(secret)),
            slots: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
            memory: 0,
            by_source: Box::new([0; SOURCES]),
            timed_out: 0,
            pushed_out: 0,
            expired: Vec::new(),
        }
    }

    /// Takes a piece at the moment `now` (nanoseconds). Gives the datagram if it was the last one missing.
    ///
    /// # Errors
    /// [`DropReason::FragmentInvalid`] for a piece that contradicts its siblings, and
    /// [`DropReason::FragmentMemory`].
    pub fn accept(&mut self, piece: &Arriving<'_>, now: u64) -> Result<Option<Complete>, DropReason> {
        let Some(slot) = self.collect(piece, now)? else { return Ok(None) };
        let Key { identification, version, .. } = piece.key;
        let State::Collecting(datagram) = self.remove(slot) else { return Ok(None) };
        Ok(Some(Complete { identification, is_ipv6: version == 6, datagram }))
    }

    /// Gives up datagrams whose time is over. To be called now and then, for memory's sake;
    /// fragments that come do it too.
    pub fn expire(&mut self, now: u64) {
        while self.oldest != NONE && self.slots[self.oldest as usize].deadline <= now {
            let version = self.slots[self.oldest as usize].key.version;
            if let State::Collecting(datagram) = self.remove(self.oldest) {
                self.timed_out += 1;
                if version == 6 && self.expired.len() < EXPIRED {
                    self.expired.extend(datagram.into_first_piece());
                }
            }
        }
    }

    /// The first piece, as it came, of an IPv6 datagram whose time was over, for an ICMPv6 error
    /// that quotes it (RFC 8200 section 4.5); `None` if there is none, or none any more. Each comes
    /// once.
    pub fn take_expired(&mut self) -> Option<FirstPiece> {
        self.expired.pop()
    }

    /// Datagrams given up because pieces did not come in time, since the last call.
    pub fn take_timed_out(&mut self) -> u64 {
        std::mem::take(&mut self.timed_out)
    }

    /// Datagrams given up because memory was needed for newer ones, since the last call.
    pub fn take_pushed_out(&mut self) -> u64 {
        std::mem::take(&mut self.pushed_out)
    }

    /// Bytes in use, as they count against the limit.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Datagrams that wait, or were given up and are remembered.
    #[must_use]
    pub fn datagrams(&self) -> usize {
        self.index.len()
    }

    /// Adds a piece; gives the slot of the datagram if nothing is missing any more.
    fn collect(&mut self, piece: &Arriving<'_>, now: u64) -> Result<Option<u32>, DropReason> {
        self.expire(now);
        let key = piece.key;
        let cost = piece.payload.len() + PIECE_COST;
        let counter = self.source_counter(&key);
        if self.by_source[counter] + cost > self.limits.memory / 4 {
            return Err(DropReason::FragmentMemory);
        }
        let slot = match self.index.get(&key) {
            Some(&slot) => slot,
            None => self.begin(key, now)?,
        };
        let State::Collecting(datagram) = &mut self.slots[slot as usize].state else {
            return Err(DropReason::FragmentInvalid);
        };
        let added = match datagram.add(piece) {
            Ok(added) => added,
            Err(Contradiction) => {
                self.give_up(slot);
                return Err(DropReason::FragmentInvalid);
            }
        };
        let is_complete = datagram.is_complete();
        if added {
            self.memory += cost;
            self.by_source[counter] += cost;
        }
        while self.memory > self.limits.memory && self.push_out_oldest_but(slot) {}
        Ok(is_complete.then_some(slot))
    }

    fn source_counter(&self, key: &Key) -> usize {
        usize::from(self.index.hasher().hash_one(key.source).to_le_bytes()[0])
    }

    /// Makes room for a new datagram and begins it.
    fn begin(&mut self, key: Key, now: u64) -> Result<u32, DropReason> {
        if self.index.len() >= self.limits.datagrams as usize && !self.push_out_oldest_but(NONE) {
            return Err(DropReason::FragmentMemory);
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => u32::try_from(self.slots.len()).map_err(|_| DropReason::FragmentMemory)?,
        };
        let content = Slot {
            key,
            deadline: now.saturating_add(self.limits.timeout),
            older: self.newest,
            newer: NONE,
            state: State::Collecting(Datagram::default()),
        };
        match self.slots.get_mut(slot as usize) {
            Some(free) => *free = content,
            None => self.slots.push(content),
        }
        match self.slots.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        self.index.insert(key, slot);
        Ok(slot)
    }

    /// Removes the oldest datagram unless it is `spared`; false if there is none.
    fn push_out_oldest_but(&mut self, spared: u32) -> bool {
        let mut victim = self.oldest;
        if victim == spared && victim != NONE {
            victim = self.slots[victim as usize].newer;
        }
        if victim == NONE {
            return false;
        }
        self.pushed_out += 1;
        self.remove(victim);
        true
    }

    /// Forgets the pieces but remembers the datagram.
    fn give_up(&mut self, slot: u32) {
        self.release_memory(slot);
        self.slots[slot as usize].state = State::GivenUp;
    }

    fn release_memory(&mut self, slot: u32) {
        let slot = &self.slots[slot as usize];
        if let State::Collecting(datagram) = &slot.state {
            let cost = datagram.present + datagram.pieces.len() * PIECE_COST;
            let counter = self.source_counter(&slot.key);
            self.memory -= cost;
            self.by_source[counter] -= cost;
        }
    }

    fn remove(&mut self, number: u32) -> State {
        self.release_memory(number);
        let slot = &mut self.slots[number as usize];
        let (older, newer, key) = (slot.older, slot.newer, slot.key);
        let state = std::mem::replace(&mut slot.state, State::Free);
        match self.slots.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        self.index.remove(&key);
        self.free.push(number);
        state
    }
}

/// The two bits of explicit congestion notification in an IP header.
fn ecn_bits(header: &[u8]) -> u8 {
    match header {
        [first, second, ..] if first >> 4 == 4 => second & 0b11,
        [_, second, ..] => second >> 4 & 0b11,
        _ => 0,
    }
}

/// A piece that cannot belong to the same datagram as the others.
struct Contradiction;

impl Datagram {
    /// Adds a piece; false if it was there already.
    fn add(&mut self, piece: &Arriving<'_>) -> Result<bool, Contradiction> {
        let &Arriving { fragment, front, header, protocol, payload, .. } = piece;
        let offset = usize::from(fragment.offset) * 8;
        let end = offset + payload.len();
        let place = self.pieces.partition_point(|piece| piece.offset < offset);
        if let Some(piece) = self.pieces.get(place)
            && piece.offset == offset
            && *piece.bytes == *payload
            && (fragment.more || self.total == Some(end))
        {
            return Ok(false);
        }
        let before = place.checked_sub(1).map_or(0, |before| self.pieces[before].end());
        let after = self.pieces.get(place).map_or(usize::MAX, |piece| piece.offset);
        let overlaps = payload.is_empty() || before > offset || end > after;
        if overlaps || self.pieces.len() >= LARGEST_COUNT || header + end > LARGEST + ipv6::HEADER_LENGTH {
            return Err(Contradiction);
        }
        self.agree_on_end(fragment, end)?;
        if offset == 0 {
            self.front = front.to_vec();
            self.protocol = protocol;
        }
        self.congestion |= ecn_bits(front) == 0b11;
        self.present += payload.len();
        self.pieces.insert(place, Piece { offset, bytes: payload.into() });
        Ok(true)
    }

    /// One last piece, and nothing behind it.
    fn agree_on_end(&mut self, fragment: Fragment, end: usize) -> Result<(), Contradiction> {
        let furthest = self.pieces.last().map_or(0, Piece::end);
        match self.total {
            Some(total) if end > total || !fragment.more => return Err(Contradiction),
            None if !fragment.more && furthest > end => return Err(Contradiction),
            None if !fragment.more => self.total = Some(end),
            _ => {}
        }
        Ok(())
    }

    /// The first piece, if it came.
    fn into_first_piece(self) -> Option<FirstPiece> {
        let first = self.pieces.into_iter().next().filter(|piece| piece.offset == 0)?;
        Some(FirstPiece { front: self.front, bytes: first.bytes })
    }

    fn is_complete(&self) -> bool {
        self.total == Some(self.present)
    }
}

//! Leases: bindings that a host inside has asked for, and for how long (RFC 6887). One cache line each:
//! [`LeaseRecord`].
//!
//! The binding is one as any other, and has the flag [`LEASED`](flags::LEASED): the sweep leaves it alone as
//! long as there is a lease of it. One that anybody may send to is [`STATIC`](flags::STATIC) besides, and so
//! whatever packets or the kernel's programs ask of static bindings holds for it.
//!
//! Leases are asked for seldom, and no packet that is translated looks at them. So there is a lock, which
//! packets do not take, and an index in the process ([`Book`]), which is made from the records. The records
//! are in shared memory, like all state: they outlive the process.
//!
//! A lease is there before its binding has the flag, and as long as it has it. So whoever dies in between
//! leaves a lease without a binding, which `leasing` ends, and never a binding that nothing ends.

use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tombolo_records::{from_words, to_words};

use crate::arena::{Arena, Stored, WORDS};
use crate::atomic::{AtomicU64, Ordering};
use crate::binding::{Binding, BindingId, InsideKey, flags, halves, join};
use crate::memory::{MemoryError, MemorySource, Slab};
use crate::tick::Tick;

crate::arena::id! {
    /// Number of a lease; 1 and up.
    LeaseId
}

/// What its holder has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Use {
    /// Anybody may send (MAP).
    Anybody,
    /// A connection to this remote, address and port as on the wire (PEER).
    Remote([u8; 4], [u8; 2]),
}

impl Use {
    /// Flags that the binding of such a lease has.
    #[must_use]
    pub const fn flags(self) -> u16 {
        match self {
            Self::Anybody => flags::STATIC | flags::LEASED,
            Self::Remote(..) => flags::LEASED,
        }
    }
}

/// What a binding was before its first lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// It was not there: it goes when its leases are over.
    Nothing,
    /// Packets had made it: it becomes what it was.
    Dynamic,
}

/// A lease, copied out of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The inside endpoint of its binding.
    pub inside: InsideKey,
    /// What it is for.
    pub purpose: Use,
    /// What proves that it is the holder's.
    pub nonce: [u8; 12],
    /// When it is over.
    pub expires: Tick,
    /// What the binding was before.
    pub before: Before,
    /// Number of the subscriber.
    pub subscriber: u32,
}

tombolo_records::records! {
    /// A lease as it lies in the tables. Addresses and ports stand as on the wire.
    plain pub struct LeaseRecord as lease {
        /// As in the binding.
        inside: [u64; 2],
        /// As in the binding.
        inside4: u32,
        /// As in the binding.
        inside_port: u16,
        /// As in the binding.
        protocol: u8,
        /// As in the binding.
        service: u8,
        /// The first bytes of the nonce.
        nonce: u64,
        /// The arena's: when it was made (tick), generation, stage.
        life: u64,
        /// The last bytes of the nonce.
        nonce_end: u32,
        /// Tick in which it is over.
        expires: u32,
        /// Of a lease for one remote: its address.
        remote4: u32,
        /// Its port.
        remote_port: u16,
        /// FOR_REMOTE and the like.
        kind: u16,
        /// Number of its subscriber.
        subscriber: u32,
        /// Always 0.
        unused: u32,
    }
}

tombolo_records::constants! {
    /// Of a lease: it is for one remote.
    const FOR_REMOTE: u16 as LEASE_FOR_REMOTE = 1;
    /// Of a lease: its binding was there before.
    const WAS_DYNAMIC: u16 as LEASE_WAS_DYNAMIC = 2;
}

const EXPIRES_WORD: usize = offset_of!(LeaseRecord, expires) / 8;
const _: () = assert!(offset_of!(LeaseRecord, expires) % 8 == 4, "the upper half of its word");

impl Stored for Lease {
    type Id = LeaseId;
    const NAMES: [&'static str; 2] = ["leases", "leases-used"];

    fn to_words(&self) -> [u64; WORDS] {
        let (nonce, nonce_end) = split(self.nonce);
        let (remote4, remote_port, for_remote) = match self.purpose {
            Use::Anybody => ([0; 4], [0; 2], 0),
            Use::Remote(address, port) => (address, port, FOR_REMOTE),
        };
        let was_dynamic = if self.before == Before::Dynamic { WAS_DYNAMIC } else { 0 };
        to_words(LeaseRecord {
            inside: halves(self.inside.ipv6),
            inside4: u32::from_ne_bytes(self.inside.ipv4),
            inside_port: u16::from_ne_bytes(self.inside.port),
            protocol: self.inside.protocol,
            service: self.inside.service,
            nonce,
            life: 0,
            nonce_end,
            expires: self.expires.0,
            remote4: u32::from_ne_bytes(remote4),
            remote_port: u16::from_ne_bytes(remote_port),
            kind: for_remote | was_dynamic,
            subscriber: self.subscriber,
            unused: 0,
        })
    }

    fn from_words(words: [u64; WORDS]) -> Self {
        let record: LeaseRecord = from_words(words);
        let purpose = match record.kind & FOR_REMOTE {
            0 => Use::Anybody,
            _ => Use::Remote(record.remote4.to_ne_bytes(), record.remote_port.to_ne_bytes()),
        };
        Self {
            inside: InsideKey {
                ipv6: join(record.inside),
                ipv4: record.inside4.to_ne_bytes(),
                port: record.inside_port.to_ne_bytes(),
                protocol: record.protocol,
                service: record.service,
            },
            purpose,
            nonce: whole(record.nonce, record.nonce_end),
            expires: Tick(record.expires),
            before: if record.kind & WAS_DYNAMIC == 0 { Before::Nothing } else { Before::Dynamic },
            subscriber: record.subscriber,
        }
    }
}

fn split(nonce: [u8; 12]) -> (u64, u32) {
    let (mut begin, mut end) = ([0; 8], [0; 4]);
    begin.copy_from_slice(&nonce[..8]);
    end.copy_from_slice(&nonce[8..]);
    (u64::from_ne_bytes(begin), u32::from_ne_bytes(end))
}

fn whole(begin: u64, end: u32) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&begin.to_ne_bytes());
    nonce[8..].copy_from_slice(&end.to_ne_bytes());
    nonce
}

/// All leases.
#[derive(Debug)]
pub struct Leases {
    pub(crate) records: Arena<Lease>,
    /// Since when there has been an account of leases: nanoseconds of the monotonic clock, 0 if there
    /// is none.
    since: Slab<AtomicU64>,
    found_by: Mutex<FoundBy>,
}

#[derive(Debug, Default)]
pub(crate) struct FoundBy {
    inside: HashMap<InsideKey, Vec<LeaseId>>,
    /// How many each subscriber has.
    subscriber: HashMap<u32, u32>,
    /// Bindings that nothing finds any more, and whose numbers are not free yet.
    pub(crate) withdrawn: Vec<(BindingId, Binding)>,
}

impl Leases {
    /// Room for `capacity` leases.
    ///
    /// # Errors
    /// [`MemoryError`] if `source` does not have the memory.
    pub fn new(source: &mut dyn MemorySource, capacity: u32) -> Result<Self, MemoryError> {
        let records = Arena::new(source, capacity)?;
        let mut found_by = FoundBy::default();
        records.find_again().for_each(|(id, lease)| found_by.note(id, &lease));
        Ok(Self { records, since: Slab::take(source, "leases-since", 1)?, found_by: Mutex::new(found_by) })
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.records.bytes() + self.since.bytes()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.records.count()
    }

    /// How many there is room for.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.records.capacity()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Lease> + '_ {
        self.records.iter().filter_map(|id| Some(self.records.read(id)?.0))
    }

    /// When the last lease of a binding is over, if it has any.
    #[must_use]
    pub fn expires(&self, binding: &Binding) -> Option<Tick> {
        let is_leased = binding.flags & flags::LEASED != 0;
        is_leased.then(|| self.open().of(&binding.inside).into_iter().map(|(_, lease)| lease.expires).max())?
    }

    /// Whole seconds since when the leases are known; from now on, if they are not yet, or if that lies in
    /// the future: the clock has begun anew.
    #[must_use]
    pub fn epoch(&self, now_nanos: u64) -> u64 {
        let since = self.since[0].load(Ordering::Relaxed);
        if since == 0 || since > now_nanos {
            self.since[0].store(now_nanos.max(1), Ordering::Relaxed);
            return 0;
        }
        (now_nanos - since) / 1_000_000_000
    }

    /// Since when they are known, in nanoseconds of the monotonic clock; 0 if nobody has asked yet.
    #[must_use]
    pub fn since(&self) -> u64 {
        self.since[0].load(Ordering::Relaxed)
    }

    /// They are known since then: they were carried over from other tables.
    pub fn set_since(&self, nanos: u64) {
        self.since[0].store(nanos, Ordering::Relaxed);
    }

    /// Opens the account, which nobody else does meanwhile.
    #[must_use]
    pub fn open(&self) -> Book<'_> {
        Book { leases: self, found_by: self.found_by.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl FoundBy {
    fn note(&mut self, id: LeaseId, lease: &Lease) {
        self.inside.entry(lease.inside).or_default().push(id);
        *self.subscriber.entry(lease.subscriber).or_default() += 1;
    }

    fn forget(&mut self, id: LeaseId, lease: &Lease) {
        if let Some(ids) = self.inside.get_mut(&lease.inside) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.inside.remove(&lease.inside);
            }
        }
        if let Some(count) = self.subscriber.get_mut(&lease.subscriber) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.subscriber.remove(&lease.subscriber);
            }
        }
    }
}

/// The account of leases, opened.
#[derive(Debug)]
pub struct Book<'l> {
    pub(crate) leases: &'l Leases,
    pub(crate) found_by: MutexGuard<'l, FoundBy>,
}

impl Book<'_> {
    /// The leases of an inside endpoint.
    #[must_use]
    pub fn of(&self, inside: &InsideKey) -> Vec<(LeaseId, Lease)> {
        let ids = self.found_by.inside.get(inside).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.leases.records.read(*id)?.0))).collect()
    }

    /// The lease of an inside endpoint for this purpose.
    #[must_use]
    pub fn find(&self, inside: &InsideKey, purpose: Use) -> Option<(LeaseId, Lease)> {
        self.of(inside).into_iter().find(|(_, lease)| lease.purpose == purpose)
    }

    /// How many leases a subscriber has.
    #[must_use]
    pub fn count_of(&self, subscriber: u32) -> u32 {
        self.found_by.subscriber.get(&subscriber).copied().unwrap_or(0)
    }

    /// Adds one; `None` if there is no room.
    pub fn add(&mut self, lease: &Lease, now: Tick) -> Option<LeaseId> {
        let id = self.leases.records.claim(0)?;
        self.leases.records.publish(id, lease, now);
        self.leases.records.settle(id);
        self.found_by.note(id, lease);
        Some(id)
    }

    /// It is over at `expires`, and not when it said before.
    pub fn extend(&mut self, id: LeaseId, expires: Tick) {
        let word = self.leases.records.word(id, EXPIRES_WORD);
        let low = word.load(Ordering::Relaxed) & 0xffff_ffff;
        word.store(low | u64::from(expires.0) << 32, Ordering::Relaxed);
    }

    /// It is over, and had no binding yet.
    pub fn cancel(&mut self, id: LeaseId) {
        if let Some((lease, _)) = self.leases.records.read(id) {
            self.forget(id, &lease);
        }
    }

    pub(crate) fn forget(&mut self, id: LeaseId, lease: &Lease) {
        self.found_by.forget(id, lease);
        self.leases.records.free(id);
    }
}

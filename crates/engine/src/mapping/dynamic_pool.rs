//! IPv4 addresses lent to IPv6 hosts one to one, for as long as they use them: the dynamic pool of
//! Tayga.
//!
//! ```text
//! mapped   a packet of the host came within the lease: translated both ways
//! dormant  no packet came: packets from IPv4 are refused; the host gets the same address back if it comes within
//!          the memory
//! free     never lent, forgotten, or taken from the host that has been silent longest when none is free
//! ```
//!
//! Two tables of atomics. `slots` has one entry for each address of the pool; `index` finds the
//! slot of a host by open addressing, four entries to an address. Look-ups take no lock; whoever
//! lends an address holds one, which happens once a host. An index entry counts only if its slot
//! says that it lies there, so what a slot's former host left behind harms nobody and its place is
//! used again.
//!
//! Where a host's entry may lie, and which address it is offered first, follow from a keyed hash
//! ([`DynamicPool::with_secret`]): an attacker who could compute them would fill the entries where a
//! chosen host's may lie.
//!
//! A pool that was found to be used up is not searched again before an address can come free: a
//! search passes all addresses, and packets of hosts without one come at any rate.
//!
//! Invariant: a slot whose `sequence` is even is at rest; a reader that saw it change reads again.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tombolo_tables::hash::{Hash, HashKey};
use tombolo_tables::lpm::Prefix;
use tombolo_tables::tick::{Tick, ticks};

/// Largest pool: 2^20 addresses.
pub const LONGEST_SUFFIX: u8 = 20;
/// Index entries for each address.
const SPARSE: u32 = 4;
/// Entries that a look-up passes at most. With a quarter of the index in use, a longer way is as
/// good as impossible.
const LONGEST_WAY: u32 = 64;
const NOBODY: u32 = 0;
/// Ticks for which a pool counts as used up at most: a configuration that is read again may free
/// an address that it had taken.
const LONGEST_EXHAUSTION: u32 = 8;

/// For how long an address is somebody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Seconds without a packet until packets from IPv4 are refused.
    pub lease: u32,
    /// Seconds without a packet until the host is forgotten.
    pub memory: u32,
}

/// Tayga's: 2 hours and 4 minutes, as RFC 5382 REQ-5 has it for TCP, and two weeks.
impl Default for Lease {
    fn default() -> Self {
        Self { lease: 7_440, memory: 14 * 86_400 }
    }
}

/// An address and the host that it is lent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lent {
    /// The address.
    pub ipv4: Ipv4Addr,
    /// The host.
    pub ipv6: Ipv6Addr,
    /// When its last packet came.
    pub last_use: Tick,
}

/// Why there is no pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DynamicPoolError {
    /// The pool has no address to lend, or too many.
    #[error("a dynamic pool has 2 to 2^{LONGEST_SUFFIX} addresses; use a prefix of {} to 31 bits", 32 - LONGEST_SUFFIX)]
    Size,
}

#[derive(Debug, Default)]
struct Slot {
    sequence: AtomicU32,
    /// Tick of the last packet; 0 for a slot that is free.
    last_use: AtomicU32,
    /// Where the host's index entry lies.
    position: AtomicU32,
    /// Halves of the host's address, in host order.
    ipv6: [AtomicU64; 2],
}

/// The addresses, and whom they are lent to. Shared by all workers.
#[derive(Debug)]
pub struct DynamicPool {
    addresses: Prefix<u32>,
    lease: u32,
    memory: u32,
    key: OnceLock<HashKey>,
    slots: Box<[Slot]>,
    /// Number of a slot plus one, or [`NOBODY`].
    index: Box<[AtomicU32]>,
    lending: Mutex<()>,
    changed: AtomicBool,
    /// The tick before which no address can come free, as the last search found.
    exhausted_until: AtomicU32,
    searches: AtomicU32,
}

impl DynamicPool {
    /// A pool of all addresses of `addresses` but the first, which stands for the network.
    ///
    /// # Errors
    /// [`DynamicPoolError::Size`].
    pub fn new(addresses: Prefix<u32>, lease: Lease) -> Result<Self, DynamicPoolError> {
        let suffix = 32 - addresses.prefix_len();
        if !(1..=LONGEST_SUFFIX).contains(&suffix) {
            return Err(DynamicPoolError::Size);
        }
        let count = 1_u32 << suffix;
        Ok(Self {
            addresses,
            lease: ticks(lease.lease),
            memory: ticks(lease.memory.max(lease.lease)),
            key: OnceLock::new(),
            slots: (0..count).map(|_| Slot::default()).collect(),
            index: (0..count * SPARSE).map(|_| AtomicU32::new(NOBODY)).collect(),
            lending: Mutex::new(()),
            changed: AtomicBool::new(false),
            exhausted_until: AtomicU32::new(0),
            searches: AtomicU32::new(0),
        })
    }

    /// Makes the pool's hash one that nobody can compute who does not know `seed`. Before anything
    /// is lent: a pool that was used without is that of a test, or of a translation offline, whose
    /// outcome is to be the same each time. False if the pool was used already.
    pub fn with_secret(&self, seed: [u64; 4]) -> bool {
        self.key.set(HashKey::new(seed)).is_ok()
    }

    /// How often the whole pool was searched for an address.
    #[must_use]
    pub fn searches(&self) -> u32 {
        self.searches.load(Ordering::Relaxed)
    }

    /// The pool's addresses.
    #[must_use]
    pub const fn addresses(&self) -> Prefix<u32> {
        self.addresses
    }

    /// True if `address` is one of the pool's.
    #[must_use]
    #[inline]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.addresses.contains(address.to_bits())
    }

    /// The host that `address` is lent to. A packet for the host came, which keeps the address.
    #[must_use]
    pub fn host_of(&self, address: Ipv4Addr, now: Tick) -> Option<Ipv6Addr> {
        let slot = self.slots.get(self.slot_number(address)? as usize)?;
        let (host, last_use) = read(slot)?;
        self.is_mapped(last_use, now).then(|| {
            touch(slot, last_use, now);
            host
        })
    }

    /// The address that is lent to `host`. A packet of the host came, which keeps the address.
    #[must_use]
    pub fn address_of(&self, host: Ipv6Addr, now: Tick) -> Option<Ipv4Addr> {
        let (number, last_use) = self.find(host)?;
        self.is_mapped(last_use, now).then(|| {
            touch(&self.slots[number as usize], last_use, now);
            self.address(number)
        })
    }

    /// As [`address_of`](Self::address_of), and lends an address to a host that has none: the one
    /// it had, else a free one, else that of the host that has been silent longest, if its lease is
    /// over. `is_taken` says which addresses are not to be lent.
    pub fn lend(&self, host: Ipv6Addr, now: Tick, is_taken: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
        if let Some(address) = self.address_of(host, now) {
            return Some(address);
        }
        if self.is_exhausted(now) && self.find(host).is_none() {
            return None;
        }
        let held = self.hold();
        let number = match self.find(host) {
            // Back from its sleep; another worker may have been faster, too. An address that was
            // configured for somebody in the meantime is not given back.
            Some((number, _)) if !is_taken(self.address(number)) => number,
            _ => {
                let number = self.choose(host, now, is_taken)?;
                self.assign(&held, number, host)?;
                number
            }
        };
        self.slots[number as usize].last_use.store(now.0.max(1), Ordering::Release);
        self.changed.store(true, Ordering::Release);
        Some(self.address(number))
    }

    /// Enters what was lent before, by another process. False if the address is not of the pool,
    /// lent already, or `is_taken`, or the host has another.
    pub fn restore(&self, lent: Lent, is_taken: impl Fn(Ipv4Addr) -> bool) -> bool {
        let held = self.hold();
        let Some(number) = self.slot_number(lent.ipv4).filter(|_| !is_taken(lent.ipv4)) else { return false };
        if read(&self.slots[number as usize]).is_some() || self.find(lent.ipv6).is_some() {
            return false;
        }
        if self.assign(&held, number, lent.ipv6).is_none() {
            return false;
        }
        self.slots[number as usize].last_use.store(lent.last_use.0.max(1), Ordering::Release);
        true
    }

    /// Forgets hosts that have been silent for longer than the memory lasts, and gives all others:
    /// those that are mapped and those that are dormant.
    #[must_use]
    pub fn list(&self, now: Tick) -> Vec<Lent> {
        let _held = self.hold();
        let mut all = Vec::new();
        for (number, slot) in (0..).zip(&self.slots) {
            let Some((ipv6, last_use)) = read(slot) else { continue };
            if now.since(last_use) >= self.memory {
                slot.last_use.store(0, Ordering::Release);
                continue;
            }
            all.push(Lent { ipv4: self.address(number), ipv6, last_use });
        }
        all
    }

    /// True if an address was lent since the last time this was asked.
    pub fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }

    fn is_exhausted(&self, now: Tick) -> bool {
        now.0 < self.exhausted_until.load(Ordering::Relaxed)
    }

    fn hold(&self) -> MutexGuard<'_, ()> {
        // Nothing is left half-done that the next holder could not live with.
        self.lending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    const fn is_mapped(&self, last_use: Tick, now: Tick) -> bool {
        now.since(last_use) < self.lease
    }

    /// Number of the slot of an address; the first has none.
    fn slot_number(&self, address: Ipv4Addr) -> Option<u32> {
        let number = address.to_bits().wrapping_sub(self.addresses.key());
        (number > 0 && (number as usize) < self.slots.len()).then_some(number)
    }

    fn address(&self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.addresses.key() | number)
    }

    #[expect(clippy::cast_possible_truncation, reason = "halves are taken on purpose")]
    fn hash(&self, host: Ipv6Addr) -> Hash {
        let bits = host.to_bits();
        self.key.get_or_init(|| HashKey::new([0; 4])).hash([(bits >> 64) as u64, bits as u64, 0])
    }

    /// Places in the index where a host's entry may lie.
    #[expect(clippy::cast_possible_truncation, reason = "the index has at most 2^22 entries")]
    fn way(&self, host: Ipv6Addr) -> impl Iterator<Item = u32> + use<> {
        let mask = self.index.len() as u32 - 1;
        let start = self.hash(host).tag();
        (0..LONGEST_WAY.min(mask + 1)).map(move |step| start.wrapping_add(step) & mask)
    }

    /// The slot of a host, mapped or dormant.
    fn find(&self, host: Ipv6Addr) -> Option<(u32, Tick)> {
        for position in self.way(host) {
            let number = self.index[position as usize].load(Ordering::Acquire).checked_sub(1)?;
            let slot = &self.slots[number as usize];
            if let Some((found, last_use)) = read(slot)
                && found == host
                && slot.position.load(Ordering::Relaxed) == position
            {
                return Some((number, last_use));
            }
        }
        None
    }

    /// A slot for a host that has none. The same host is offered the same one first, whenever it
    /// asks.
    fn choose(&self, host: Ipv6Addr, now: Tick, is_taken: impl Fn(Ipv4Addr) -> bool) -> Option<u32> {
        // Others who waited for the lock may have waited for a search that found nothing.
        if self.is_exhausted(now) {
            return None;
        }
        self.searches.fetch_add(1, Ordering::Relaxed);
        let mut shortest = LONGEST_EXHAUSTION;
        let count = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let [start, _] = self.hash(host).buckets(count);
        let mut oldest: Option<(u32, u32)> = None;
        for number in (0..count).map(|step| (start + step) & (count - 1)).filter(|&number| number > 0) {
            let last_use = Tick(self.slots[number as usize].last_use.load(Ordering::Acquire));
            let age = if last_use == Tick(0) { u32::MAX } else { now.since(last_use) };
            if age < self.lease {
                shortest = shortest.min(self.lease - age);
                continue;
            }
            if is_taken(self.address(number)) {
                continue;
            }
            if age == u32::MAX {
                return Some(number);
            }
            if oldest.is_none_or(|(_, most)| age > most) {
                oldest = Some((number, age));
            }
        }
        if oldest.is_none() {
            self.exhausted_until.store(now.0.saturating_add(shortest), Ordering::Relaxed);
        }
        oldest.map(|(number, _)| number)
    }

    /// Makes slot `number` the host's. The caller sets the time.
    fn assign(&self, _held: &MutexGuard<'_, ()>, number: u32, host: Ipv6Addr) -> Option<()> {
        let position = self.way(host).find(|&position| self.is_unused(position))?;
        let slot = &self.slots[number as usize];
        let sequence = slot.sequence.load(Ordering::Relaxed);
        slot.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        let bits = host.to_bits();
        slot.position.store(position, Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "halves are taken on purpose")]
        for (half, bits) in slot.ipv6.iter().zip([(bits >> 64) as u64, bits as u64]) {
            half.store(bits, Ordering::Relaxed);
        }
        slot.sequence.store(sequence.wrapping_add(2), Ordering::Release);
        self.index[position as usize].store(number + 1, Ordering::Release);
        Some(())
    }

    /// True if no slot has its entry there.
    fn is_unused(&self, position: u32) -> bool {
        match self.index[position as usize].load(Ordering::Relaxed).checked_sub(1) {
            None => true,
            Some(number) => {
                let slot = &self.slots[number as usize];
                slot.position.load(Ordering::Relaxed) != position || slot.last_use.load(Ordering::Relaxed) == 0
            }
        }
    }
}

/// Whose a slot is, and since when; `None` if it is free.
fn read(slot: &Slot) -> Option<(Ipv6Addr, Tick)> {
    loop {
        let sequence = slot.sequence.load(Ordering::Acquire);
        let last_use = slot.last_use.load(Ordering::Relaxed);
        let [high, low] = [0, 1].map(|half: usize| u128::from(slot.ipv6[half].load(Ordering::Relaxed)));
        fence(Ordering::Acquire);
        if sequence.is_multiple_of(2) && slot.sequence.load(Ordering::Relaxed) == sequence {
            return (last_use != 0).then_some((Ipv6Addr::from_bits(high << 64 | low), Tick(last_use)));
        }
        std::hint::spin_loop();
    }
}

/// Notes a packet, at most once a tick: the line stays shared while hosts are busy.
fn touch(slot: &Slot, last_use: Tick, now: Tick) {
    if now > last_use {
        slot.last_use.store(now.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::eam::parse_prefix;
    use std::collections::{HashMap, HashSet};

    const HOUR: u32 = 3600;

    fn pool(addresses: &str) -> DynamicPool {
        DynamicPool::new(parse_prefix(addresses).unwrap(), Lease::default()).unwrap()
    }

    fn host(number: u32) -> Ipv6Addr {
        Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number))
    }

    fn at(seconds: u32) -> Tick {
        Tick::from_nanos(1_000_000_000 * u64::from(1_000_000 + seconds))
    }

    const fn none(_: Ipv4Addr) -> bool {
        false
    }

    #[test]
    fn every_address_but_the_first_is_lent_once_and_then_no_more() {
        let pool = pool("192.0.2.0/28");
        let mut lent = HashMap::new();
        for number in 0..14 {
            let address = pool.lend(host(number), at(0), |address| address == Ipv4Addr::new(192, 0, 2, 9)).unwrap();
            assert!(pool.contains(address) && lent.insert(address, number).is_none());
        }
        assert!(!lent.contains_key(&Ipv4Addr::new(192, 0, 2, 0)) && !lent.contains_key(&Ipv4Addr::new(192, 0, 2, 9)));
        assert_eq!(pool.lend(host(99), at(HOUR), |address| address == Ipv4Addr::new(192, 0, 2, 9)), None);
        for (&address, &number) in &lent {
            assert_eq!(pool.host_of(address, at(0)), Some(host(number)));
            assert_eq!(pool.address_of(host(number), at(0)), Some(address));
            assert_eq!(pool.lend(host(number), at(0), none), Some(address));
        }
    }

    #[test]
    fn a_silent_host_is_refused_from_outside_and_finds_its_address_again() {
        let pool = pool("192.0.2.0/24");
        let address = pool.lend(host(1), at(0), none).unwrap();
        assert_eq!(pool.host_of(address, at(2 * HOUR)), Some(host(1)));
        // The packet from IPv4 has kept it.
        assert_eq!(pool.host_of(address, at(4 * HOUR)), Some(host(1)));
        assert_eq!(pool.host_of(address, at(7 * HOUR)), None);
        assert_eq!(pool.address_of(host(1), at(7 * HOUR)), None);
        assert_eq!(pool.lend(host(1), at(7 * HOUR), none), Some(address));
        assert_eq!(pool.host_of(address, at(7 * HOUR)), Some(host(1)));
    }

    #[test]
    fn the_longest_silent_host_gives_way_and_the_others_stay() {
        let pool = pool("192.0.2.0/30");
        let lent: Vec<_> = (0..3).map(|n| pool.lend(host(n), at(n * 60), none).unwrap()).collect();
        assert_eq!(pool.lend(host(3), at(HOUR), none), None);
        assert_eq!(pool.lend(host(3), at(3 * HOUR), none), Some(lent[0]));
        assert_eq!(pool.host_of(lent[0], at(3 * HOUR)), Some(host(3)));
        assert_eq!(pool.address_of(host(0), at(3 * HOUR)), None);
        assert_eq!(pool.lend(host(0), at(3 * HOUR), none), Some(lent[1]));
    }

    #[test]
    fn what_was_lent_is_listed_and_restored_until_it_is_forgotten() {
        let (old, new) = (pool("192.0.2.0/24"), pool("192.0.2.0/24"));
        let addresses: Vec<_> = (0..100).map(|n| old.lend(host(n), at(n), none).unwrap()).collect();
        assert!(old.take_changed() && !old.take_changed());
        let list = old.list(at(100));
        assert_eq!(list.len(), 100);
        assert!(list.iter().all(|&lent| new.restore(lent, none)));
        assert!(!new.restore(list[0], none), "twice");
        assert!(!new.restore(Lent { ipv6: host(500), ..list[0] }, none), "taken");
        assert!(!new.restore(Lent { ipv4: Ipv4Addr::new(198, 51, 100, 1), ipv6: host(501), last_use: at(0) }, none));
        for (n, address) in (0..).zip(addresses) {
            assert_eq!(new.address_of(host(n), at(100)), Some(address));
        }
        assert_eq!(new.list(at(15 * 86_400)), []);
        assert_eq!(new.address_of(host(1), at(100)), None);
    }

    #[test]
    fn years_of_coming_and_going_leave_the_tables_in_order() {
        let pool = pool("10.0.0.0/26");
        let mut now = 0;
        for round in 0..20_000 {
            now += 200;
            let guest = host(round * 7919);
            let address = pool.lend(guest, at(now), none).unwrap();
            assert_eq!(pool.host_of(address, at(now)), Some(guest));
            assert_eq!(pool.address_of(guest, at(now)), Some(address));
        }
        let list = pool.list(at(now));
        assert_eq!(list.len(), 63);
        assert_eq!(list.iter().map(|lent| lent.ipv6).collect::<HashSet<_>>().len(), 63);
    }

    #[test]
    fn workers_that_lend_at_once_give_every_host_one_address_and_no_address_twice() {
        let pool = pool("10.0.0.0/22");
        let lent: Vec<Vec<Ipv4Addr>> = std::thread::scope(|scope| {
            let lend_all = || (0..1000).map(|n| pool.lend(host(n), at(0), none).unwrap()).collect();
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(lend_all)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        assert!(lent.iter().all(|one| *one == lent[0]));
        assert_eq!(lent[0].iter().collect::<HashSet<_>>().len(), 1000);
    }

    #[test]
    fn a_pool_that_is_used_up_is_not_searched_for_each_packet() {
        let pool = pool("10.0.0.0/22");
        for number in 0..1023 {
            assert!(pool.lend(host(number), at(0), none).is_some());
        }
        let before = pool.searches();
        for number in 0..100_000 {
            assert_eq!(pool.lend(host(5000 + number), at(1), none), None);
        }
        assert_eq!(pool.searches(), before + 1);
        // A host that has an address keeps it meanwhile, also one that was silent.
        assert!(pool.lend(host(7), at(1), none).is_some());
        // When the leases end, the first that asks gets an address.
        let lease = Lease::default().lease + 2;
        assert!(pool.lend(host(9000), at(lease), none).is_some());
    }

    #[test]
    fn an_address_that_comes_free_is_lent_in_that_tick() {
        let pool = pool("192.0.2.0/30");
        let lent: Vec<_> = (0..3).map(|n| pool.lend(host(n), at(n * 60), none).unwrap()).collect();
        let mut second = Lease::default().lease - 20;
        let address = loop {
            match pool.lend(host(9), at(second), none) {
                Some(address) => break address,
                None => second += 1,
            }
        };
        assert_eq!(address, lent[0]);
        assert!(at(second).since(at(0)) <= ticks(Lease::default().lease), "after {second} seconds");
    }

    /// Hosts whose entries lie where the victim's may, found by computing: with the secret that the
    /// attacker knows they deny the victim an address, with another they do not.
    #[test]
    fn chosen_hosts_do_not_deny_another_an_address() {
        let known = pool("10.0.0.0/18");
        let victim = host(0xffff_ffff);
        let way: HashSet<u32> = known.way(victim).collect();
        let chosen: Vec<Ipv6Addr> =
            (0..).map(host).filter(|&guest| way.contains(&known.way(guest).next().unwrap())).take(150).collect();
        let is_denied = |pool: &DynamicPool| {
            for &guest in &chosen {
                let _ = pool.lend(guest, at(0), none);
            }
            pool.lend(victim, at(0), none).is_none()
        };
        assert!(is_denied(&known), "whoever knows the hash chooses well");
        let secret = pool("10.0.0.0/18");
        assert!(secret.with_secret([1, 2, 3, 4]));
        assert!(!is_denied(&secret));
        assert!(!secret.with_secret([1, 2, 3, 4]), "it was used already");
    }

    #[test]
    fn pools_without_addresses_are_refused() {
        for addresses in ["192.0.2.1/32", "10.0.0.0/8"] {
            assert!(DynamicPool::new(parse_prefix(addresses).unwrap(), Lease::default()).is_err());
        }
        assert!(pool("192.0.2.0/31").lend(host(1), at(0), none).is_some());
    }
}

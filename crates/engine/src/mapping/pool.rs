//! Pools: the outside addresses and ports that a service hands out.
//!
//! A pool is a list of ranges of addresses, each with its ports for each protocol. Each address has
//! a run of slots in the outside index (see [`tombolo_tables::outside`]), one for each port of TCP, of
//! UDP, and for each identifier of ICMP; other protocols use these, too ([`PortSpace::slots`]).
//!
//! Ports are tried in an order that cannot be guessed (RFC 6056): from a random start with a random
//! stride that visits every port once. Within that order come first those that keep what RFC 4787
//! (REQ-3, REQ-4) and RFC 6146 section 3.5.1.1 ask for: 0-1023 stays in 0-1023 and 1024-65535 in
//! 1024-65535, and for UDP an even port stays even and an odd one odd; then those that keep the
//! range; then any.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use tombolo_tables::blocks::SMALLEST_BLOCK;
use tombolo_tables::lpm::Prefix;
use tombolo_tables::subscriber::SubscriberKey;
use tombolo_tables::tables::Candidate;

use super::allocation::Allocation;
use super::assigned::{Assigned, Span, count, nth};
use super::port_ranges::width;
use super::slices::PoolSlices;

pub use super::port_ranges::PortRanges;
pub use super::port_space::PortSpace;

/// Windows that [`Pool::candidates_in`] takes at most.
pub const WINDOWS: usize = 5;

/// Whether an even UDP port is mapped to an even one, and an odd one to an odd one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parity {
    /// Yes, as long as such ports are left (RFC 4787 REQ-4).
    #[default]
    Preserve,
    /// No: only RTP from before RFC 3605 wants it, and ports are harder to guess without (RFC 7857
    /// section 8).
    Ignore,
}

/// Whose addresses are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Owner {
    /// The gateway's: all that is sent to them is for somebody inside, or for nobody.
    #[default]
    Gateway,
    /// The host's own: what is for nobody inside is the host's.
    Host,
}

/// A range of outside addresses that share their ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRange {
    /// First address.
    pub first: Ipv4Addr,
    /// Last address.
    pub last: Ipv4Addr,
    /// Ports to hand out, by protocol, in the order of [`PortSpace::WITH_SLOTS`].
    pub ports: [PortRanges; 3],
    /// Ports that have a slot: all that are handed out, and those of static bindings.
    pub span: RangeInclusive<u16>,
    /// First slot in the outside index.
    pub first_slot: u32,
    /// Whose addresses they are.
    pub owner: Owner,
}

impl PoolRange {
    /// How many addresses there are.
    #[must_use]
    pub fn addresses(&self) -> u32 {
        self.last.to_bits() - self.first.to_bits() + 1
    }

    /// How many slots its addresses take; `None` if more than fit in 32 bits.
    #[must_use]
    pub fn slots(&self) -> Option<u32> {
        self.addresses().checked_mul(3)?.checked_mul(width(&self.span))
    }

    /// How many endpoints are handed out, of all addresses and protocols.
    #[must_use]
    pub fn endpoints(&self) -> u32 {
        let of_an_address = self.ports.iter().map(PortRanges::len).sum();
        self.addresses().saturating_mul(of_an_address)
    }

    fn contains(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    /// Ports that are handed out.
    fn ports(&self, space: PortSpace) -> &PortRanges {
        &self.ports[space.slots() as usize]
    }

    fn slot(&self, address: Ipv4Addr, space: PortSpace, port: u16) -> Option<u32> {
        let place = (address.to_bits() - self.first.to_bits()) * 3 + space.slots() as u32;
        let offset = u32::from(port).checked_sub(u32::from(*self.span.start()))?;
        self.span.contains(&port).then(|| self.first_slot + place * width(&self.span) + offset)
    }
}

/// The outside addresses of a service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pool {
    ranges: Vec<PoolRange>,
    addresses: u32,
    allocation: Allocation,
    assigned: Assigned,
    /// In a cluster: which of it is for whose subscribers.
    slices: Option<Arc<PoolSlices>>,
    /// Some of the addresses are the host's own.
    is_shared: bool,
}

impl Pool {
    /// A pool of `ranges`, which must not overlap.
    #[must_use]
    pub fn new(mut ranges: Vec<PoolRange>) -> Self {
        ranges.sort_by_key(|range| range.first);
        let addresses = ranges.iter().map(PoolRange::addresses).sum();
        let is_shared = ranges.iter().any(|range| range.owner == Owner::Host);
        let (allocation, assigned) = (Allocation::default(), Assigned::default());
        Self { ranges, addresses, allocation, assigned, slices: None, is_shared }
    }

    /// The same pool, handed out in another way.
    #[must_use]
    pub fn with_allocation(self, allocation: Allocation) -> Self {
        Self { allocation, ..self }
    }

    /// The same pool, of which some addresses are for certain hosts alone.
    #[must_use]
    pub fn with_assigned(mut self, assigned: impl IntoIterator<Item = (Prefix<u128>, Span)>) -> Self {
        self.assigned = Assigned::new(assigned, self.spans());
        self
    }

    /// The same pool, of which each subscriber may have the addresses of its slice alone.
    #[must_use]
    pub fn with_slices(self, slices: PoolSlices) -> Self {
        Self { slices: Some(Arc::new(slices)), ..self }
    }

    /// The same pool with other ranges, which must not overlap.
    #[must_use]
    pub fn with_ranges(&self, ranges: Vec<PoolRange>) -> Self {
        let pool = Self::new(ranges).with_allocation(self.allocation.clone());
        Self { assigned: self.assigned.of(pool.spans()), slices: self.slices.clone(), ..pool }
    }

    fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.ranges.iter().map(|range| (range.first, range.last))
    }

    /// Which of its addresses are for whom.
    #[must_use]
    pub fn assigned(&self) -> &Assigned {
        &self.assigned
    }

    /// Its slices, in a cluster.
    #[must_use]
    pub fn slices(&self) -> Option<&PoolSlices> {
        self.slices.as_deref()
    }

    /// The slice of a subscriber: of the address that a static binding gives it, or its share is on, else that
    /// of its key. None outside of clusters, and of who has no share.
    #[must_use]
    pub fn slice_of(&self, key: &SubscriberKey) -> Option<u16> {
        let slices = self.slices()?;
        match &self.allocation {
            _ if slices.pinned(key).is_some() => slices.pinned(key),
            Allocation::Deterministic(shares) => slices.of_address(shares.share(key)?.address),
            Allocation::Ports | Allocation::Blocks(_) => Some(slices.slicing().of_subscriber(key)),
        }
    }

    /// The slice of an outside address, in a cluster.
    #[must_use]
    pub fn slice_of_address(&self, address: Ipv4Addr) -> Option<u16> {
        self.slices()?.of_address(address)
    }

    /// How many of its addresses a subscriber may have.
    #[must_use]
    pub fn addresses_for(&self, key: &SubscriberKey) -> u32 {
        if self.is_everybodys() { self.addresses } else { count(self.spans_for(key)) }
    }

    /// Address number `index` of those that a subscriber may have.
    #[must_use]
    pub fn address_for(&self, key: &SubscriberKey, index: u32) -> Option<Ipv4Addr> {
        if self.is_everybodys() { self.address(index) } else { nth(self.spans_for(key), index) }
    }

    /// True if a subscriber may have `address`.
    #[must_use]
    pub fn is_for(&self, key: &SubscriberKey, address: Ipv4Addr) -> bool {
        let is_own = || self.spans_for(key).any(|(first, last)| (first..=last).contains(&address));
        self.contains(address) && (self.is_everybodys() || is_own())
    }

    /// True if each subscriber may have each address.
    fn is_everybodys(&self) -> bool {
        self.assigned.is_empty() && self.slices.is_none()
    }

    /// The addresses that a subscriber may have: those for hosts like it, in its slice.
    fn spans_for(&self, key: &SubscriberKey) -> impl Iterator<Item = Span> {
        let everything = self.slices.is_none().then_some((Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST));
        let slice = self.slices().zip(self.slice_of(key));
        let runs = slice.into_iter().flat_map(|(slices, slice)| slices.runs(slice));
        runs.chain(everything)
            .flat_map(move |run| self.spans_for_hosts_like(key).filter_map(move |span| common(run, span)))
    }

    fn spans_for_hosts_like(&self, key: &SubscriberKey) -> impl Iterator<Item = Span> {
        let is_assigned = !self.assigned.is_empty();
        let all = self.spans().filter(move |_| !is_assigned);
        all.chain(self.assigned.spans(key).iter().copied().filter(move |_| is_assigned))
    }

    /// In which portions its ports are handed out.
    #[must_use]
    pub fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// Its ranges, by ascending address.
    #[must_use]
    pub fn ranges(&self) -> &[PoolRange] {
        &self.ranges
    }

    /// How many addresses it has.
    #[must_use]
    pub fn addresses(&self) -> u32 {
        self.addresses
    }

    /// True if `address` is one of its addresses.
    #[inline]
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.range_of(address).is_some()
    }

    /// True if `address` is one of its addresses, and the host's own as well.
    #[inline]
    #[must_use]
    pub fn is_shared(&self, address: Ipv4Addr) -> bool {
        self.is_shared && self.range_of(address).is_some_and(|range| range.owner == Owner::Host)
    }

    /// The slot of an outside endpoint; `None` if the pool does not have it.
    #[inline]
    #[must_use]
    pub fn slot(&self, address: Ipv4Addr, space: PortSpace, port: u16) -> Option<u32> {
        self.range_of(address)?.slot(address, space, port)
    }

    /// True if `port` of `address` is one that is handed out.
    #[must_use]
    pub fn hands_out(&self, address: Ipv4Addr, space: PortSpace, port: u16) -> bool {
        let Some(range) = self.range_of(address) else { return false };
        if space.has_ports() { range.ports(space).contains(port) } else { port == 0 }
    }

    /// All ports of `address` that are handed out, with their slots.
    pub fn slots(&self, address: Ipv4Addr, space: PortSpace) -> impl Iterator<Item = (u16, u32)> + '_ {
        let ranges = self.range_of(address).map(|range| range.ports(space).ranges());
        let ports = ranges.into_iter().flatten().cloned().flatten();
        ports.filter_map(move |port| Some((port, self.slot(address, space, port)?)))
    }

    /// All slots of `address`, with what they stand for, those of static bindings included.
    pub fn all_slots(&self, address: Ipv4Addr) -> impl Iterator<Item = (u32, PortSpace, u16)> + '_ {
        let range = self.range_of(address);
        let ports = range.into_iter().flat_map(|range| range.span.clone());
        ports.flat_map(move |port| {
            PortSpace::WITH_SLOTS
                .into_iter()
                .filter_map(move |space| Some((range?.slot(address, space, port)?, space, port)))
        })
    }

    /// Address number `index`, counted from the lowest.
    #[must_use]
    pub fn address(&self, mut index: u32) -> Option<Ipv4Addr> {
        for range in &self.ranges {
            if index < range.addresses() {
                return Some(Ipv4Addr::from_bits(range.first.to_bits() + index));
            }
            index -= range.addresses();
        }
        None
    }

    /// The number of `address`, counted from the lowest; `None` if it is not in the pool.
    #[must_use]
    pub fn place_of(&self, address: Ipv4Addr) -> Option<u32> {
        let mut below = 0;
        for range in &self.ranges {
            if range.contains(address) {
                return Some(below + (address.to_bits() - range.first.to_bits()));
            }
            below += range.addresses();
        }
        None
    }

    /// The outside endpoints of `address` that may be handed out for inside port `port`, the most
    /// suitable first, in an order drawn from `random`. None if the address is not in the pool. What
    /// has no ports has one endpoint, which lies in every window.
    pub fn candidates(
        &self,
        address: Ipv4Addr,
        space: PortSpace,
        port: u16,
        parity: Parity,
        random: u64,
    ) -> impl Iterator<Item = Candidate> + '_ {
        self.candidates_in(address, space, port, parity, random, &[0..=u16::MAX])
    }

    /// As [`candidates`](Self::candidates), but only ports of `windows` (at most [`WINDOWS`] of
    /// them; they must not overlap).
    pub fn candidates_in(
        &self,
        address: Ipv4Addr,
        space: PortSpace,
        port: u16,
        parity: Parity,
        random: u64,
        windows: &[RangeInclusive<u16>],
    ) -> impl Iterator<Item = Candidate> + use<'_> {
        let range = self.range_of(address);
        let mut within = [const { None }; WINDOWS];
        for (within, window) in within.iter_mut().zip(windows) {
            *within = Some(window.clone());
        }
        let whole = (!space.has_ports()).then_some(0);
        let suitable = passes(space, parity, port).into_iter().flatten().flat_map(move |pass| {
            within.clone().into_iter().flatten().flat_map(move |window| {
                let ports = range.map(|range| range.ports(space));
                let window = *window.start().max(pass.ports.start())..=*window.end().min(pass.ports.end());
                let places = ports.map_or(0..0, |ports| ports.places_in(&window));
                let order = (!places.is_empty()).then(|| Order::new(places.end - places.start, random));
                let indices = order.into_iter().flat_map(Order::indices);
                let chosen = indices.filter_map(move |index| ports?.nth(places.start + index));
                chosen.filter(move |candidate| pass.parity.is_none_or(|parity| candidate & 1 == parity))
            })
        });
        let suitable = suitable.filter(move |&p| p != 0 || space == PortSpace::Icmp);
        whole.into_iter().chain(suitable).filter_map(move |p| {
            let slot = range?.slot(address, space, p)?;
            Some(Candidate { slot, ipv4: address.octets(), port: p.to_be_bytes() })
        })
    }

    /// Word of the block index at which the blocks of `size` ports of `address` begin, and how many
    /// there are: block `n` has the ports from `n * size` on. `None` if the address is not in the
    /// pool.
    #[must_use]
    pub fn blocks(&self, address: Ipv4Addr, size: u32) -> Option<(u32, u16)> {
        let range = self.range_of(address)?;
        let before = u32::from(*range.span.start()) / size;
        let count = u32::from(*range.span.end()) / size - before + 1;
        // One word for 64 slots, and three slots a port: an address that spans 128 ports or more has
        // room enough. They stand where its slots do, so they stay where they are when the range is split.
        let slots = 3 * width(&range.span) * (address.to_bits() - range.first.to_bits());
        let first = (range.first_slot + slots).div_ceil(SMALLEST_BLOCK);
        Some((first.wrapping_sub(before), u16::try_from(before + count).ok()?))
    }

    /// The places of all blocks of `size` ports of `address`, and the words of the block index where they stand.
    pub fn block_words(&self, address: Ipv4Addr, size: u32) -> impl Iterator<Item = (u16, u32)> + use<> {
        let before = self.range_of(address).and_then(|range| u16::try_from(u32::from(*range.span.start()) / size).ok());
        let (first, end) = self.blocks(address, size).unwrap_or((0, 0));
        (before.unwrap_or(0)..end).map(move |place| (place, first.wrapping_add(u32::from(place))))
    }

    /// True if block `place` of `size` ports of `address` has a port that may be handed out.
    #[must_use]
    pub fn has_block(&self, address: Ipv4Addr, space: PortSpace, size: u32, place: u16) -> bool {
        let ports = self.range_of(address).map(|range| range.ports(space));
        ports.is_some_and(|ports| !ports.places_in(&block_ports(size, place)).is_empty())
    }

    fn range_of(&self, address: Ipv4Addr) -> Option<&PoolRange> {
        let after = self.ranges.partition_point(|range| range.first <= address);
        self.ranges[..after].last().filter(|range| range.contains(address))
    }
}

/// The addresses that two spans have in common.
fn common(a: Span, b: Span) -> Option<Span> {
    let (first, last) = (a.0.max(b.0), a.1.min(b.1));
    (first <= last).then_some((first, last))
}

/// The ports of block `place`.
#[must_use]
pub fn block_ports(size: u32, place: u16) -> RangeInclusive<u16> {
    let first = (u32::from(place) * size).min(65_535);
    let last = (first + size - 1).min(65_535);
    u16::try_from(first).unwrap_or(u16::MAX)..=u16::try_from(last).unwrap_or(u16::MAX)
}

/// Outside ports that are equally suitable.
#[derive(Debug, Clone)]
struct Pass {
    ports: RangeInclusive<u16>,
    parity: Option<u16>,
}

/// The outside ports for inside port `port`, the most suitable first: those of the same range (RFC
/// 4787 section 4.2.2), and in either range those of the same parity (section 4.2.3).
fn passes(space: PortSpace, parity: Parity, port: u16) -> [Option<Pass>; 4] {
    let pass = |ports: &RangeInclusive<u16>, parity| Some(Pass { ports: ports.clone(), parity });
    if !space.has_ports() {
        return [const { None }; 4];
    }
    if space == PortSpace::Icmp {
        return [pass(&(0..=u16::MAX), None), None, None, None];
    }
    let (low, high) = (0..=1023, 1024..=u16::MAX);
    let (same, other) = if port < 1024 { (low, high) } else { (high, low) };
    if space.like() != PortSpace::Udp || parity == Parity::Ignore {
        return [pass(&same, None), pass(&other, None), None, None];
    }
    let (kept, changed) = (Some(port & 1), Some(!port & 1));
    [pass(&same, kept), pass(&same, changed), pass(&other, kept), pass(&other, changed)]
}

/// All indices below a count, once each, in an order that a random number chose.
#[derive(Debug, Clone, Copy)]
struct Order {
    count: u32,
    start: u32,
    stride: u32,
}

impl Order {
    #[expect(clippy::cast_possible_truncation, reason = "random halves, reduced below the count")]
    fn new(count: u32, random: u64) -> Self {
        let start = (random as u32) % count;
        let mut stride = ((random >> 32) as u32) % count;
        while gcd(stride, count) != 1 {
            stride = (stride + 1) % count.max(2);
        }
        Self { count, start, stride }
    }

    fn indices(self) -> impl Iterator<Item = u32> {
        // Subtracting the rest to the end instead of adding keeps the sum inside 32 bits.
        let step = move |&index: &u32| {
            let rest = self.count - self.stride;
            Some(if index >= rest { index - rest } else { index + self.stride })
        };
        std::iter::successors(Some(self.start), step).take(self.count as usize)
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::slices::Slicing;
    use std::collections::HashSet;

    fn pool(ports: &[RangeInclusive<u16>]) -> Pool {
        let ports = PortRanges::new(ports.iter().cloned());
        let ends = ports.ranges();
        let span = *ends[0].start()..=*ends[ends.len() - 1].end();
        let range = |first: [u8; 4], last: [u8; 4], first_slot| PoolRange {
            first: first.into(),
            last: last.into(),
            ports: [ports.clone(), ports.clone(), ports.clone()],
            span: span.clone(),
            first_slot,
            owner: Owner::Gateway,
        };
        let upper = range([198, 51, 100, 7], [198, 51, 100, 7], 1000);
        let next = 1000 + upper.slots().unwrap();
        Pool::new(vec![upper, range([192, 0, 2, 0], [192, 0, 2, 3], next)])
    }

    #[test]
    fn every_outside_endpoint_has_a_slot_of_its_own() {
        let pool = pool(&[100..=102, 5000..=5003]);
        assert_eq!(pool.addresses(), 5);
        let mut slots = HashSet::new();
        for index in 0..5 {
            let address = pool.address(index).unwrap();
            for space in PortSpace::WITH_SLOTS {
                for port in 100..=5003 {
                    assert!(slots.insert(pool.slot(address, space, port).unwrap()));
                }
            }
            assert_eq!(pool.slot(address, PortSpace::Tcp, 99), None);
            assert_eq!(pool.slot(address, PortSpace::Tcp, 5004), None);
        }
        assert!((0..5).all(|place| pool.place_of(pool.address(place).unwrap()) == Some(place)));
        assert_eq!((pool.address(5), pool.place_of(Ipv4Addr::new(10, 0, 0, 0))), (None, None));
        assert!(!pool.contains(Ipv4Addr::new(192, 0, 2, 4)) && !pool.contains(Ipv4Addr::new(10, 0, 0, 0)));
    }

    #[test]
    fn other_protocols_use_the_slots_of_tcp_and_udp() {
        let pool = pool(&[0..=9, 2000..=2009]);
        let address = Ipv4Addr::new(192, 0, 2, 2);
        let slot = |space, port| pool.slot(address, space, port).unwrap();
        assert_eq!(slot(PortSpace::Sctp, 2001), slot(PortSpace::Tcp, 2001));
        assert_eq!(slot(PortSpace::Dccp, 2001), slot(PortSpace::Tcp, 2001));
        assert_eq!(slot(PortSpace::UdpLite, 2001), slot(PortSpace::Udp, 2001));
        let candidates = |space| pool.candidates_in(address, space, 0, Parity::Preserve, 77, &[2004..=2005]);
        assert_eq!(candidates(PortSpace::Sctp).count(), 2);
        for (space, owner) in [(PortSpace::Esp, PortSpace::Tcp), (PortSpace::Gre, PortSpace::Udp)] {
            let whole: Vec<_> = candidates(space).collect();
            assert_eq!(whole, [Candidate { slot: slot(owner, 0), ipv4: address.octets(), port: [0, 0] }]);
            assert!(pool.hands_out(address, space, 0) && !pool.hands_out(address, space, 2001));
        }
    }

    #[test]
    fn candidates_are_all_ports_once_the_suitable_first() {
        let pool = pool(&[0..=9, 2000..=2009]);
        let address = Ipv4Addr::new(192, 0, 2, 2);
        for random in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            for inside in [7, 4001, 5002] {
                let ports: Vec<u16> = pool
                    .candidates(address, PortSpace::Udp, inside, Parity::Preserve, random)
                    .map(|candidate| u16::from_be_bytes(candidate.port))
                    .collect();
                assert_eq!(ports.len(), 19, "all but port 0");
                assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 19);
                assert!(!ports.contains(&0));
                let suits = |port: &u16| ((*port < 1024) != (inside < 1024), (port ^ inside) & 1);
                assert!(ports.is_sorted_by_key(suits), "{ports:?}");
            }
        }
    }

    #[test]
    fn the_next_port_cannot_be_told_from_the_last() {
        let pool = pool(&[1024..=65535]);
        let first = |random| {
            let mut candidates =
                pool.candidates(Ipv4Addr::new(192, 0, 2, 1), PortSpace::Tcp, 5000, Parity::Preserve, random);
            (candidates.next().unwrap().port, candidates.next().unwrap().port)
        };
        let draws: HashSet<_> = (0..200_u64).map(|n| first(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
        assert!(draws.len() > 195);
        let step = |(a, b): &([u8; 2], [u8; 2])| u16::from_be_bytes(*b).wrapping_sub(u16::from_be_bytes(*a));
        let steps: HashSet<_> = draws.iter().map(step).collect();
        assert!(steps.len() > 190, "{} steps from one port to the next", steps.len());
    }

    #[test]
    fn a_subscriber_may_have_the_addresses_of_its_slice_alone() {
        let slicing = Slicing::new([1, 2, 3, 4], 2).unwrap();
        let prefix = Prefix::<u128>::covering(u128::from(0x2001_0db8_u32) << 96, 32);
        let undivided = pool(&[1024..=65535]);
        let key = |host: u128| SubscriberKey { ipv6: host.to_be_bytes(), ..SubscriberKey::default() };
        // 192.0.2.0 to .3 and 198.51.100.7, the last two for some hosts alone.
        let assigned = [2, 3].map(|last| (prefix, (Ipv4Addr::new(192, 0, 2, last), Ipv4Addr::new(192, 0, 2, last))));
        let spans: Vec<Span> = undivided.ranges().iter().map(|range| (range.first, range.last)).collect();
        let mut slices = PoolSlices::new(slicing, spans);
        slices.pin(&key(7), 1).unwrap();
        for divided in [undivided.clone(), undivided.with_assigned(assigned)] {
            let divided = divided.with_slices(slices.clone());
            // The ranges of a plan may be others than those of the file.
            let split = divided.with_ranges(divided.ranges().iter().flat_map(one_by_one).collect());
            for divided in [divided, split] {
                assert_eq!(divided.slice_of(&key(7)), Some(1));
                let mut seen = HashSet::new();
                for host in (1..100).chain((1..100).map(|host| u128::from(0x2001_0db8_u32) << 96 | host)) {
                    let (key, slice) = (key(host), divided.slice_of(&key(host)).unwrap());
                    seen.insert(slice);
                    let own: Vec<_> = (0..).map_while(|index| divided.address_for(&key, index)).collect();
                    assert_eq!(own.len(), divided.addresses_for(&key) as usize);
                    for address in (0..5).map(|index| divided.address(index).unwrap()) {
                        assert_eq!(divided.is_for(&key, address), own.contains(&address));
                        let is_for_others = !divided.assigned().is_empty()
                            && (address.octets()[3] == 2 || address.octets()[3] == 3) != prefix.contains(host);
                        let is_of_its_slice = divided.slice_of_address(address) == Some(slice);
                        assert_eq!(own.contains(&address), is_of_its_slice && !is_for_others, "{host:x} {address}");
                    }
                }
                assert_eq!(seen.len(), 2);
            }
        }
    }

    /// Each address by itself.
    fn one_by_one(range: &PoolRange) -> Vec<PoolRange> {
        let single = |place: u32| {
            let address = Ipv4Addr::from_bits(range.first.to_bits() + place);
            let first_slot = range.first_slot + place * 3 * width(&range.span);
            PoolRange { first: address, last: address, first_slot, ..range.clone() }
        };
        (0..range.addresses()).map(single).collect()
    }

    #[test]
    fn ranges_merge() {
        let ports = PortRanges::new([5..=9, 1..=2, 10..=12, 8..=9, 65535..=65535]);
        assert_eq!(ports.ranges(), [1..=2, 5..=12, 65535..=65535]);
        assert_eq!((ports.len(), ports.nth(2), ports.nth(10), ports.nth(11)), (11, Some(5), Some(65535), None));
    }

    #[test]
    fn a_complement_has_the_other_ports() {
        for ranges in
            [vec![], vec![0..=0], vec![0..=65535], vec![5..=9, 65535..=65535], vec![0..=3, 7..=8, 100..=65000]]
        {
            let ports = PortRanges::new(ranges);
            let others = ports.complement();
            assert!((0..=u16::MAX).all(|port| ports.contains(port) != others.contains(port)), "{ports:?} {others:?}");
            assert!((0..others.len()).all(|index| others.index_of(others.nth(index).unwrap()) == Some(index)));
        }
    }

    #[test]
    fn places_in_a_window_are_the_ports_in_it() {
        let ports = PortRanges::new([5..=9, 20..=20, 65_530..=65_535]);
        for window in [0..=65_535, 0..=4, 5..=5, 7..=20, 10..=19, 21..=65_530, 65_535..=65_535] {
            let expected: Vec<u16> = (0..=u16::MAX).filter(|p| ports.contains(*p) && window.contains(p)).collect();
            let found: Vec<u16> = ports.places_in(&window).map(|place| ports.nth(place).unwrap()).collect();
            assert_eq!(found, expected, "{window:?}");
        }
    }

    #[test]
    fn candidates_stay_in_their_windows() {
        let pool = pool(&[1024..=65535]);
        let address = Ipv4Addr::new(192, 0, 2, 1);
        let windows = [2048..=2059, 512..=1029, 65_535..=65_535];
        let ports: Vec<u16> = pool
            .candidates_in(address, PortSpace::Udp, 5000, Parity::Preserve, 77, &windows)
            .map(|candidate| u16::from_be_bytes(candidate.port))
            .collect();
        assert_eq!(ports.len(), 12 + 6 + 1);
        assert!(ports.iter().all(|port| windows.iter().any(|window| window.contains(port))));
        assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 19);
        assert!(ports[..9].iter().all(|port| port % 2 == 0), "even ones of all windows first: {ports:?}");
    }

    #[test]
    fn every_block_has_a_word_of_its_own_within_the_block_index() {
        for (size, span) in [(64, 1024..=65_535), (100, 1000..=1127), (512, 80..=65_535), (32_768, 1..=65_535)] {
            let ports = PortRanges::new([span]);
            let span = *ports.ranges()[0].start()..=*ports.ranges()[0].end();
            let mut next = 17;
            let mut ranges = Vec::new();
            for first in [[192, 0, 2, 0], [198, 51, 100, 0]] {
                let range = PoolRange {
                    first: first.into(),
                    last: Ipv4Addr::from_bits(Ipv4Addr::from(first).to_bits() + 2),
                    ports: [ports.clone(), ports.clone(), ports.clone()],
                    span: span.clone(),
                    first_slot: next,
                    owner: Owner::Gateway,
                };
                next += range.slots().unwrap();
                ranges.push(range);
            }
            let pool = Pool::new(ranges);
            let mut words = HashSet::new();
            for index in 0..pool.addresses() {
                let (first, end) = pool.blocks(pool.address(index).unwrap(), size).unwrap();
                let from = u16::try_from(u32::from(*span.start()) / size).unwrap();
                for place in from..end {
                    let word = first.wrapping_add(u32::from(place));
                    assert!(words.insert(word) && word < next / SMALLEST_BLOCK + 1, "{size} {span:?} {word} {next}");
                    assert!(pool.has_block(pool.address(index).unwrap(), PortSpace::Tcp, size, place));
                }
                assert!(
                    block_ports(size, from).contains(span.start()) && block_ports(size, end - 1).contains(span.end())
                );
            }
        }
    }
}

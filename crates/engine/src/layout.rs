//! Where the state of a plan lies in the tables: the numbers of its services, the slots of its pools.
//!
//! A configuration says nothing of it. The plan that tables are made for is spread over them, with room for
//! more ([`spread`]); a plan that takes its place while packets flow follows it ([`follow`]): services of the
//! same name and kind keep their numbers, and addresses their slots, whatever is added, removed, split or
//! put into another order. So what both plans allow lies where it did. Numbers and slots that become free
//! are others' only under a later plan, when what lay there has ended.

use std::net::Ipv4Addr;
use std::ops::{Range, RangeInclusive};

use crate::mapping::pool::{Pool, PoolRange};
use crate::mapping::port_ranges::width;
use crate::plan::Plan;
use crate::service::Service;

/// Slots of an address that has all ports.
pub const ALL_SLOTS: u32 = 3 << 16;
/// All ports of so few addresses have slots, however few are handed out.
const FEW: u32 = 16;

/// Why a plan cannot follow another one in the tables that there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The outside index is full.
    #[error(
        "the pools are larger than the tables of the running gateway have room for ({needed} endpoints more, {room} are left in a row)"
    )]
    Room {
        /// Slots that are needed.
        needed: u32,
        /// Most slots in a row that are left.
        room: u32,
    },
    /// Ports of an address that have no slots.
    #[error("the tables of the running gateway have room for ports {} to {} of {address} alone", .ports.start(), .ports.end())]
    Ports {
        /// The address.
        address: Ipv4Addr,
        /// Its ports that have slots.
        ports: RangeInclusive<u16>,
    },
}

/// Slots enough for plans of which so many addresses are yet unknown, beside `slots` of others.
#[must_use]
pub fn with_room(slots: u32, addresses: u32) -> u32 {
    slots.saturating_add(addresses.saturating_mul(ALL_SLOTS))
}

/// Spreads a plan over tables that are still to be made, with room for as many addresses as it has, and for so many at least.
pub fn spread(plan: &mut Plan, addresses_to_come: u32) {
    let (mut next, mut addresses) = (0_u32, 0_u32);
    for pool in pools(plan) {
        let mut ranges = Vec::new();
        for range in pool.ranges() {
            let wide = PoolRange { span: span_for(range), ..range.clone() };
            let fits = |range: &PoolRange| range.slots().and_then(|slots| next.checked_add(slots));
            let range = if fits(&wide).is_some() { wide } else { range.clone() };
            // More than there may be: the configuration has refused that.
            let Some(end) = fits(&range) else { return };
            addresses = addresses.saturating_add(range.addresses());
            ranges.push(PoolRange { first_slot: next, ..range });
            next = end;
        }
        *pool = pool.with_ranges(ranges);
    }
    if addresses > 0 {
        let room = addresses.max(addresses_to_come).saturating_mul(ALL_SLOTS);
        plan.capacity.outside_slots = next.saturating_add(room).max(plan.capacity.outside_slots);
    }
}

/// Lays a plan out so that it may take the place of `current`, for which the tables are.
///
/// # Errors
/// [`Misfit`]: it takes other tables.
pub fn follow(plan: &mut Plan, current: &Plan) -> Result<(), Misfit> {
    keep_numbers(plan, current);
    let mut laid_out: Vec<PoolRange> = current.ranges().cloned().collect();
    laid_out.sort_by_key(|range| range.first);
    let mut free = Free::beside(&laid_out, current.capacity.outside_slots);
    for pool in pools(plan) {
        let mut ranges: Vec<PoolRange> = Vec::new();
        for range in pool.ranges() {
            for piece in cut(range, &laid_out) {
                let piece = match laid_out.iter().find(|old| (old.first..=old.last).contains(&piece.first)) {
                    Some(old) => in_the_place_of(old, piece)?,
                    None => free.take(piece)?,
                };
                add(&mut ranges, piece);
            }
        }
        *pool = pool.with_ranges(ranges);
    }
    plan.capacity.outside_slots = current.capacity.outside_slots;
    Ok(())
}

fn pools(plan: &mut Plan) -> impl Iterator<Item = &mut Pool> {
    plan.services.iter_mut().filter_map(|service| service.kind.nat_mut()).map(|nat| &mut nat.pool)
}

/// The ports of a range that get slots: all of them, so that each may be handed out or bound later, unless
/// that would take much more memory than the range needs.
fn span_for(range: &PoolRange) -> RangeInclusive<u16> {
    let is_wide = width(&range.span) >= (1 << 16) / FEW;
    if is_wide || range.addresses() <= FEW { 0..=u16::MAX } else { range.span.clone() }
}

/// Services keep their numbers; new ones get numbers that no service has had, as long as there are any.
fn keep_numbers(plan: &mut Plan, current: &Plan) {
    let goes_on = |old: &Service, new: &Service| {
        let sizes = [old, new].map(|service| service.kind.pool().and_then(|pool| pool.allocation().block_size()));
        // Blocks of other sizes have other numbers and places: what is there means nothing any more.
        old.name == new.name && old.kind.name() == new.kind.name() && sizes[0] == sizes[1]
    };
    let number_of = |new: &Service| current.services.iter().find(|old| goes_on(old, new)).map(|old| old.number);
    let kept: Vec<Option<u8>> = plan.services.iter().map(number_of).collect();
    let mut used: Vec<u8> = current.services.iter().map(|service| service.number).collect();
    let mut retired = current.retired.clone();
    for (service, kept) in plan.services.iter_mut().zip(&kept) {
        service.number = kept.unwrap_or_else(|| unused(&used, &mut retired));
        used.push(service.number);
    }
    let is_over = |old: &&Service| old.kind.nat().is_some() && !kept.contains(&Some(old.number));
    retired.extend(current.services.iter().filter(is_over).cloned());
    plan.retired = retired;
}

/// A number that no service has; one that none has had if possible, else that of the one that went first.
fn unused(used: &[u8], retired: &mut Vec<Service>) -> u8 {
    let is_new = |number: &u8| !used.contains(number) && retired.iter().all(|service| service.number != *number);
    if let Some(number) = (0..=u8::MAX).find(is_new) {
        return number;
    }
    match retired.iter().position(|service| !used.contains(&service.number)) {
        Some(place) => retired.remove(place).number,
        None => (0..=u8::MAX).find(|number| !used.contains(number)).unwrap_or(u8::MAX),
    }
}

/// A range in pieces that each lie in one range of `laid_out`, which is sorted, or in none.
fn cut(range: &PoolRange, laid_out: &[PoolRange]) -> Vec<PoolRange> {
    let mut pieces = Vec::new();
    let mut first = Some(range.first);
    while let Some(at) = first.filter(|at| *at <= range.last) {
        let ends = laid_out.iter().find_map(|old| match old {
            old if (old.first..=old.last).contains(&at) => Some(old.last),
            old if old.first > at => Some(Ipv4Addr::from_bits(old.first.to_bits() - 1)),
            _ => None,
        });
        let last = ends.unwrap_or(range.last).min(range.last);
        pieces.push(PoolRange { first: at, last, ..range.clone() });
        first = last.to_bits().checked_add(1).map(Ipv4Addr::from_bits);
    }
    pieces
}

/// `piece` where its addresses lie already.
fn in_the_place_of(old: &PoolRange, piece: PoolRange) -> Result<PoolRange, Misfit> {
    if piece.span.start() < old.span.start() || piece.span.end() > old.span.end() {
        return Err(Misfit::Ports { address: piece.first, ports: old.span.clone() });
    }
    let before = (piece.first.to_bits() - old.first.to_bits()) * 3 * width(&old.span);
    Ok(PoolRange { span: old.span.clone(), first_slot: old.first_slot + before, ..piece })
}

/// Adds a range; as a part of the one before, if it goes on from there.
fn add(ranges: &mut Vec<PoolRange>, range: PoolRange) {
    if let Some(before) = ranges.last_mut()
        && before.last.to_bits().checked_add(1) == Some(range.first.to_bits())
        && (&before.ports, &before.span, before.owner) == (&range.ports, &range.span, range.owner)
        && before.slots().and_then(|slots| before.first_slot.checked_add(slots)) == Some(range.first_slot)
    {
        before.last = range.last;
    } else {
        ranges.push(range);
    }
}

/// Slots that no range has.
struct Free(Vec<Range<u32>>);

impl Free {
    fn beside(laid_out: &[PoolRange], slots: u32) -> Self {
        let mut taken: Vec<Range<u32>> = laid_out
            .iter()
            .map(|range| range.first_slot..range.first_slot.saturating_add(range.slots().unwrap_or(u32::MAX)))
            .collect();
        taken.sort_by_key(|range| range.start);
        let mut free = Vec::new();
        let mut next = 0;
        for range in taken {
            free.push(next..range.start);
            next = next.max(range.end);
        }
        free.push(next..slots);
        Self(free.into_iter().filter(|range| !range.is_empty()).collect())
    }

    /// The first slots in a row that are enough.
    fn take(&mut self, piece: PoolRange) -> Result<PoolRange, Misfit> {
        let wide = PoolRange { span: span_for(&piece), ..piece.clone() };
        for range in [wide, piece.clone()] {
            let Some(slots) = range.slots() else { continue };
            if let Some(free) = self.0.iter_mut().find(|free| free.len() >= slots as usize) {
                let first_slot = free.start;
                free.start += slots;
                return Ok(PoolRange { first_slot, ..range });
            }
        }
        let room = self.0.iter().map(|free| free.end - free.start).max().unwrap_or(0);
        Err(Misfit::Room { needed: piece.slots().unwrap_or(u32::MAX), room })
    }
}

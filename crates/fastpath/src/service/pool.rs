//! Pools as the programs have them: which ports are handed out (`bpf/ports.h`), and in which portions
//! (`bpf/bind.h`, `bpf/share.h`).

use std::cmp::Reverse;
use std::ops::RangeInclusive;

use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::allocation::{Allocation, Deterministic, Subscribers};
use tombolo_engine::mapping::deterministic::Order;
use tombolo_engine::mapping::pool::{Owner, Pool, PoolRange, PortRanges};

use super::parts::{fill, mask};
use crate::record::{
    AllocationRecord, CLAIM_NO_ICMP, NO_SHORTCUTS, PORT_GROUPS, PoolPorts, PoolRecord, PortRuns, Ports, RANGES, Range,
    SERVICE_ENGINE_BINDS, SLICED, SLICED_BY_ENGINE, SLICED_PINS, ServiceRecord, halves,
};

impl ServiceRecord {
    /// To be set when it is known who is inside.
    pub(super) fn set_pool(&mut self, pool: &Pool) -> Result<(), &'static str> {
        let ranges = pool.ranges();
        if ranges.len() > RANGES {
            return Err("its pool has more ranges than the fast path has room for");
        }
        if ranges.iter().any(|range| range.owner == Owner::Host) {
            self.claims |= CLAIM_NO_ICMP;
        }
        self.pool_ranges = u8::try_from(ranges.len()).unwrap_or(u8::MAX);
        for (entry, range) in self.pool.iter_mut().zip(ranges) {
            *entry = pool_record(range);
        }
        match pool.allocation() {
            Allocation::Ports => {}
            Allocation::Blocks(blocks) => self.allocation.block_size = blocks.size,
            Allocation::Deterministic(shares) => match self.shares(shares, pool) {
                Some(allocation) => self.allocation = allocation,
                None => self.flags |= SERVICE_ENGINE_BINDS,
            },
        }
        self.set_slices(pool)
    }

    /// In a cluster. To be set when it is known in which portions ports are handed out.
    fn set_slices(&mut self, pool: &Pool) -> Result<(), &'static str> {
        let Some(slices) = pool.slices() else { return Ok(()) };
        if slices.ranges().len() > RANGES {
            return Err("its pool has more ranges than the fast path has room for");
        }
        self.slice_ranges = u8::try_from(slices.ranges().len()).unwrap_or(u8::MAX);
        for (entry, (first, last)) in self.slices.iter_mut().zip(slices.ranges()) {
            *entry = Range { first: first.to_bits(), last: last.to_bits() };
        }
        let has_pins = slices.pins().len() > 0;
        let is_computed = matches!(pool.allocation(), Allocation::Deterministic(_));
        self.slicing = SLICED
            | if has_pins { SLICED_PINS } else { 0 }
            | if is_computed && self.allocation.share_size == 0 { SLICED_BY_ENGINE } else { 0 };
        Ok(())
    }

    /// Shares that are computed, if the programs can: of all ports of all addresses of the pool, and for
    /// those who are inside.
    fn shares(&self, shares: &Deterministic, pool: &Pool) -> Option<AllocationRecord> {
        let map = shares.map();
        let is_shared = |range: &PoolRange| range.ports.iter().all(|ports| ports == map.ports());
        let addresses = (0..pool.addresses()).filter_map(|place| pool.address(place));
        if !pool.ranges().iter().all(is_shared)
            || pool_ports(map.ports()).count != map.ports().len()
            || !addresses.eq(map.outside().iter().copied())
        {
            return None;
        }
        let record = AllocationRecord {
            share_size: map.ports_per_host(),
            subscribers: u32::try_from(shares.hosts().count()).ok()?,
            shares_of_address: map.compression(),
            addresses_in_turn: match map.order() {
                Order::FillAddress => 0,
                Order::RotateAddresses => pool.addresses(),
            },
            ..AllocationRecord::default()
        };
        match shares.hosts() {
            Subscribers::Ipv4(hosts) => self.are_inside(hosts).then_some(AllocationRecord { are_hosts: 1, ..record }),
            Subscribers::Ipv6 { first, length, count: _ } if halves(mask(*length)) == self.subscriber_mask => {
                let host_bits = 128_u8.checked_sub(*length)?;
                Some(AllocationRecord { first: halves(first.to_bits()), host_bits, ..record })
            }
            Subscribers::Ipv6 { .. } => None,
        }
    }

    /// Whether the hosts inside are these.
    fn are_inside(&self, hosts: &AddressRanges) -> bool {
        let mut entries = [Range::default(); RANGES];
        fill(&mut entries, hosts).is_ok_and(|count| (count, entries) == (self.inside_ranges, self.inside))
    }
}

fn pool_record(range: &PoolRange) -> PoolRecord {
    let PoolRange { first, last, ports: [tcp, udp, icmp], span, first_slot, owner: _ } = range;
    PoolRecord {
        addresses: Range { first: first.to_bits(), last: last.to_bits() },
        first_slot: *first_slot,
        span: Ports { first: *span.start(), last: *span.end() },
        first_shortcut: NO_SHORTCUTS,
        handed_out: [pool_ports(tcp), pool_ports(udp), pool_ports(icmp), PoolPorts::default()],
    }
}

/// The ports, as groups of runs. Where these are more than there is room for, those that have the most
/// ports; the others the engine hands out.
fn pool_ports(ports: &PortRanges) -> PoolPorts {
    let mut groups = groups(ports.ranges());
    if groups.len() > PORT_GROUPS {
        groups.sort_by_key(|group| Reverse(group.ports()));
        groups.truncate(PORT_GROUPS);
        groups.sort_by_key(|group| group.first);
    }
    let mut record = PoolPorts {
        count: groups.iter().map(PortRuns::ports).sum(),
        groups: u32::try_from(groups.len()).unwrap_or(0),
        ..PoolPorts::default()
    };
    for (entry, group) in record.group.iter_mut().zip(groups) {
        *entry = group;
    }
    record
}

/// Runs of ports, ascending, and those that follow one another in step as one group: a port set of MAP is
/// one, however many runs it has.
fn groups(runs: &[RangeInclusive<u16>]) -> Vec<PortRuns> {
    let mut groups: Vec<PortRuns> = Vec::new();
    for run in runs {
        if !groups.last_mut().is_some_and(|group| group.takes(run)) {
            groups.push(PortRuns { first: *run.start(), runs: 1, length: length(run), step: 1 << 16 });
        }
    }
    groups
}

fn length(run: &RangeInclusive<u16>) -> u32 {
    u32::from(*run.end()) - u32::from(*run.start()) + 1
}

impl PortRuns {
    fn ports(&self) -> u32 {
        u32::from(self.runs) * self.length
    }

    /// Adds a run, if it is as long and as far from the last one as the others; false if it is not.
    fn takes(&mut self, run: &RangeInclusive<u16>) -> bool {
        let distance = u32::from(run.start() - self.first);
        let is_in_step = self.runs == 1 || distance == u32::from(self.runs) * self.step;
        if length(run) != self.length || !is_in_step {
            return false;
        }
        self.step = distance / u32::from(self.runs);
        self.runs += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_engine::mapping::port_set::PortDivision;

    /// The ports that the programs know.
    fn known(record: &PoolPorts) -> Vec<u32> {
        let groups = &record.group[..usize::try_from(record.groups).unwrap()];
        let runs = groups.iter().flat_map(|group| (0..group.runs).map(move |run| (group, u32::from(run) * group.step)));
        runs.flat_map(|(group, offset)| (0..group.length).map(move |port| u32::from(group.first) + offset + port))
            .collect()
    }

    fn all(ports: &PortRanges) -> Vec<u32> {
        ports.ranges().iter().flat_map(|range| range.clone().map(u32::from)).collect()
    }

    #[test]
    fn the_programs_know_every_port_once_in_ascending_order() {
        let sets = [
            vec![],
            vec![0..=65_535],
            vec![1024..=65_535],
            vec![1024..=5059, 5062..=65_535],
            vec![1..=1, 3..=3, 5..=5, 8..=8, 10..=20, 65_530..=65_535],
        ];
        for set in sets.map(PortRanges::new) {
            let record = pool_ports(&set);
            assert_eq!((known(&record), record.count), (all(&set), set.len()), "{set:?}");
        }
    }

    #[test]
    fn the_port_set_of_an_edge_is_one_group() {
        for (offset_bits, psid_bits) in [(0, 6), (4, 8), (6, 8), (6, 10), (15, 1)] {
            let set = PortRanges::new(PortDivision::new(offset_bits, psid_bits).unwrap().ranges(1));
            let record = pool_ports(&set);
            assert_eq!((record.groups, known(&record)), (1, all(&set)), "{offset_bits} {psid_bits}");
        }
    }

    #[test]
    fn of_more_groups_than_there_is_room_for_the_largest_are_known() {
        let record = pool_ports(&PortRanges::new([1..=9, 20..=20, 30..=34, 50..=90, 100..=101, 200..=299]));
        let expected: Vec<u32> = (1..=9).chain(30..=34).chain(50..=90).chain(200..=299).collect();
        assert_eq!((record.groups, record.count, known(&record)), (4, 155, expected));
    }
}

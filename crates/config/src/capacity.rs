//! Table `[capacity]`, and the room that there is without it: what the pools can give, as far as the
//! host has the memory.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tombolo_tables::tables::Capacity;

use crate::document::{Node, Table};
use crate::host::TableMemory;
use crate::problem::Log;
use crate::reference::CAPACITY;

const MEMORY: [(&str, TableMemory); 2] = [("as-needed", TableMemory::AsNeeded), ("at-start", TableMemory::AtStart)];

/// Sessions that there is room for beside each binding. A TCP binding has its first in its own record.
const SESSIONS_OF_BINDING: u64 = 4;
/// Bindings of a subscriber, where there are so many that this counts.
const BINDINGS_OF_SUBSCRIBER: u32 = 16;
/// Subscribers that there is room for, if the pools have endpoints for so many.
const SUBSCRIBERS: u32 = 1 << 16;
/// Leases that there is room for, where there may be so many bindings.
const LEASES: u32 = 1 << 12;
/// The least that there is room for, also where no pool is.
const LEAST: u32 = 64;
/// The least beside a pool, as far as the host can have them: a reload may give it more ports.
const LEAST_OF_POOLS: u32 = 1 << 12;
/// Part of the host's memory that the tables take at most.
const PART_OF_MEMORY: u64 = 32;
/// Part of it that slots of addresses take which a reload may add, and such addresses at most.
const PART_FOR_MORE: u64 = 128;
const MORE_ADDRESSES: u32 = 16;
/// Of two: the most bindings that a configuration may ask for.
const MOST_POWER: u32 = 30;
/// A host that does not tell how much memory it has.
const USUAL_MEMORY: u64 = 4 << 30;

/// What pools have, without what a reload may add.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfPools {
    /// Slots of the outside index: of all ports from the first of an address to the last, in three protocols.
    pub(crate) slots: u32,
    /// Of these, endpoints that are handed out or bound for good.
    pub(crate) endpoints: u32,
}

impl OfPools {
    /// Beside others, all of whose slots are of endpoints that are handed out.
    pub(crate) fn and(self, others: u32) -> Self {
        Self { slots: self.slots.saturating_add(others), endpoints: self.endpoints.saturating_add(others) }
    }
}

/// Reads `[capacity]`. The outside index is as large as the pools need.
pub(crate) fn read(
    file: &Table<'_>,
    pools: OfPools,
    mut memory: TableMemory,
    log: &mut Log,
) -> (Capacity, TableMemory) {
    let Some(table) = file.table("capacity", &CAPACITY, log) else {
        return (fitting(pools, None, host_memory()), memory);
    };
    let count = |node: &Node<'_>| node.number32(1..=1 << MOST_POWER).map(Some);
    let bindings = table.read_or("bindings", None, log, count);
    let mut capacity = fitting(pools, bindings, host_memory());
    capacity.subscribers = table.read_or("subscribers", None, log, count).unwrap_or(capacity.subscribers);
    capacity.sessions = table.read_or("sessions", capacity.sessions, log, |node| node.number(1..=1 << 33));
    capacity.leases = table.read_or("leases", capacity.leases, log, |node| node.number32(1..=1 << MOST_POWER));
    memory = table.read_or("memory", memory, log, |node| node.choice(&MEMORY));
    (capacity, memory)
}

/// Room for `bindings`, or for as many as the pools have endpoints for and a host with so many bytes of
/// memory can have; with subscribers and sessions to match.
fn fitting(pools: OfPools, bindings: Option<u32>, host_memory: u64) -> Capacity {
    let least = if pools.slots > 0 { LEAST_OF_POOLS } else { LEAST };
    let bindings = bindings.unwrap_or_else(|| pools.endpoints.max(least).min(affordable(host_memory)).max(LEAST));
    Capacity {
        subscribers: (bindings / BINDINGS_OF_SUBSCRIBER).max(bindings.min(SUBSCRIBERS)),
        bindings,
        sessions: u64::from(bindings) * SESSIONS_OF_BINDING,
        outside_slots: pools.slots,
        leases: bindings.min(LEASES),
    }
}

/// So many addresses a reload may add at least: each takes three quarters of a megabyte, which a small host has for one.
#[must_use]
pub fn addresses_to_come() -> u32 {
    more_addresses(host_memory())
}

fn more_addresses(host_memory: u64) -> u32 {
    let addresses = host_memory / PART_FOR_MORE / (4 * u64::from(tombolo_engine::layout::ALL_SLOTS));
    u32::try_from(addresses).unwrap_or(MORE_ADDRESSES).clamp(1, MORE_ADDRESSES)
}

/// Bindings that a host can have: a power of two, since a kernel that keeps a little more for itself is
/// no reason for other tables.
fn affordable(host_memory: u64) -> u32 {
    const MILLION: u32 = 1_000_000;
    let million = Capacity {
        subscribers: MILLION / BINDINGS_OF_SUBSCRIBER,
        bindings: MILLION,
        sessions: u64::from(MILLION) * SESSIONS_OF_BINDING,
        outside_slots: 0,
        leases: 0,
    };
    let bindings = host_memory / PART_OF_MEMORY * u64::from(MILLION) / million.bytes();
    bindings.checked_ilog2().map_or(0, |power| 1 << power.min(MOST_POWER))
}

/// Bytes of memory that the process may have: the host's, or those of its control group, as they were when
/// it was first asked. A reload asks for the same room, and may not be able to read what tells.
fn host_memory() -> u64 {
    static KNOWN: OnceLock<u64> = OnceLock::new();
    *KNOWN.get_or_init(find_host_memory)
}

fn find_host_memory() -> u64 {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let installed = installed(&read(Path::new("/proc/meminfo")));
    let group = control_group(&read(Path::new("/proc/self/cgroup")));
    let allowed = group.and_then(|group| read(&group.join("memory.max")).trim().parse().ok());
    [installed, allowed].into_iter().flatten().min().unwrap_or(USUAL_MEMORY)
}

/// What `/proc/meminfo` says.
fn installed(meminfo: &str) -> Option<u64> {
    let kilobytes = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    kilobytes.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Where the limits of the process are, by what `/proc/self/cgroup` says (cgroups(7), version 2).
fn control_group(cgroup: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new("/sys/fs/cgroup").join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_room_is_what_the_pools_can_give_and_the_host_can_have() {
        let room = |slots, memory| {
            let capacity = fitting(OfPools { slots, endpoints: slots }, None, memory);
            (capacity.subscribers, capacity.bindings, capacity.sessions, capacity.bytes() >> 20)
        };
        assert_eq!(room(3 * 1024, 64 << 20), (4096, 4096, 16_384, 1), "a customer's edge of 1,024 ports");
        let scattered = fitting(OfPools { slots: 3 * 63_492, endpoints: 3 * 252 }, None, 64 << 20);
        assert_eq!(
            (scattered.bindings, scattered.bytes() >> 20),
            (4096, 2),
            "252 ports in 63 ranges, few of what lies between them"
        );
        assert_eq!(room(3 * 64_512, 4 * GIB), (65_536, 193_536, 774_144, 35), "a NAT64 of one address");
        assert_eq!(room(16 * 3 * 64_512, 24 * GIB), (193_536, 3_096_576, 12_386_304, 493), "sixteen addresses");
        assert_eq!(room(256 * 3 * 64_512, 24 * GIB), (262_144, 1 << 22, 1 << 24, 844), "more than the host can have");
        assert_eq!(room(256 * 3 * 64_512, 128 << 20), (16_384, 1 << 14, 1 << 16, 196), "a small host");
        assert_eq!(room(0, 4 * GIB), (64, 64, 256, 0), "nothing stateful");
    }

    #[test]
    fn small_hosts_have_room_for_fewer_addresses_to_come() {
        assert_eq!([52 << 20, 512 << 20, 24 * GIB].map(more_addresses), [1, 5, 16]);
    }

    #[test]
    fn the_host_says_how_much_memory_there_is() {
        assert_eq!(installed("MemTotal:       16384 kB\nMemFree:  1 kB\n"), Some(16 << 20));
        assert_eq!(installed("MemFree:  1 kB\n"), None);
        assert_eq!(control_group("1:name=x:/y\n0::/system.slice/a\n"), Some("/sys/fs/cgroup/system.slice/a".into()));
        assert!(host_memory() > 64 << 20);
    }
}

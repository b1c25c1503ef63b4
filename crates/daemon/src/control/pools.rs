//! How full the pools are, in rows.

use std::net::Ipv4Addr;

use serde::Serialize;
use tombolo_engine::Plan;
use tombolo_engine::mapping::allocation::Allocation;
use tombolo_engine::mapping::pool::{PoolRange, PortSpace};
use tombolo_engine::mechanism::napt::{Among, Nat};
use tombolo_engine::plan::Service;
use tombolo_tables::outside::Slot;

use super::filter::{Filter, Matcher};
use super::rows::{Failure, Rows};
use crate::running::Running;

/// Ports, of all protocols together, that are looked at for metrics: those of some 340 addresses, in a few tenths of
/// a second.
const MOST: u32 = 1 << 26;

/// How much of a range of addresses, or of one, is in use for one protocol and those that it shares its ports with. Of
/// ESP and GRE, which have none, an address counts as a port has it: one host has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct PoolRow<'p> {
    pub(crate) service: &'p str,
    pub(crate) addresses: String,
    pub(crate) protocol: &'static str,
    /// Ports that are handed out, of all addresses together.
    pub(crate) ports: u64,
    pub(crate) taken: u64,
    /// Closed a short while ago (RFC 6888 REQ-8).
    pub(crate) kept_back: u64,
    pub(crate) free: u64,
}

/// The pools.
pub(crate) fn pools(
    running: &Running,
    plan: &Plan,
    filter: &Filter,
    each_address: bool,
    rows: &mut Rows<'_>,
) -> Result<(), Failure> {
    let matcher = Matcher::new(filter, plan).map_err(Failure::Refused)?;
    for (_, service) in plan.numbered().filter(|(number, _)| matcher.wants_service(*number)) {
        let Some(nat) = service.kind.nat() else { continue };
        for range in nat.pool.ranges() {
            for &space in matcher.port_spaces().iter().filter(|space| nat.policy.protocols.has(**space)) {
                let wanted = (range.first.to_bits()..=range.last.to_bits()).map(Ipv4Addr::from_bits);
                let wanted = wanted.filter(|&address| matcher.wants_outside(address));
                let usage = Usage { running, plan, nat, range, space };
                if each_address {
                    for address in wanted {
                        rows.row(&usage.row(service, &mut std::iter::once(address)))?;
                    }
                } else {
                    rows.row(&usage.row(service, &mut { wanted }))?;
                }
            }
        }
    }
    Ok(())
}

/// How full the pool of a service is, for one protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ServicePool {
    pub(crate) service: String,
    pub(crate) protocol: &'static str,
    pub(crate) ports: u64,
    pub(crate) taken: u64,
    pub(crate) kept_back: u64,
    pub(crate) free: u64,
}

/// The pools, service by service. None if there are so many ports that to look at each takes long.
pub(crate) fn by_service(running: &Running, plan: &Plan) -> Vec<ServicePool> {
    if plan.capacity.outside_slots > MOST {
        return Vec::new();
    }
    let pools = plan.numbered().filter_map(|(_, service)| Some((service, service.kind.nat()?)));
    let each = pools.flat_map(|(service, nat)| PortSpace::WITH_SLOTS.map(|space| (service, nat, space)));
    let summed = each.map(|(service, nat, space)| {
        let mut sum = ServicePool {
            service: service.name.clone(),
            protocol: space.name(),
            ports: 0,
            taken: 0,
            kept_back: 0,
            free: 0,
        };
        for range in nat.pool.ranges() {
            let mut addresses = (range.first.to_bits()..=range.last.to_bits()).map(Ipv4Addr::from_bits);
            let row = Usage { running, plan, nat, range, space }.row(service, &mut addresses);
            sum.ports += row.ports;
            sum.taken += row.taken;
            sum.kept_back += row.kept_back;
            sum.free += row.free;
        }
        sum
    });
    summed.collect()
}

struct Usage<'p> {
    running: &'p Running,
    plan: &'p Plan,
    nat: &'p Nat,
    range: &'p PoolRange,
    space: PortSpace,
}

impl<'p> Usage<'p> {
    fn row(&self, service: &'p Service, addresses: &mut dyn Iterator<Item = Ipv4Addr>) -> PoolRow<'p> {
        let mut row = PoolRow {
            service: &service.name,
            addresses: String::new(),
            protocol: self.space.name(),
            ports: 0,
            taken: 0,
            kept_back: 0,
            free: 0,
        };
        let mut ends: Option<(Ipv4Addr, Ipv4Addr)> = None;
        for address in addresses {
            ends = Some((ends.map_or(address, |(first, _)| first), address));
            self.count(address, &mut row);
        }
        row.addresses = ends.map(|(first, last)| range(first, last)).unwrap_or_default();
        row.free = row.ports - row.taken - row.kept_back;
        row
    }

    fn count(&self, address: Ipv4Addr, row: &mut PoolRow<'_>) {
        let Nat { pool, policy, .. } = self.nat;
        let now = self.running.now().tick();
        // Where a newcomer cannot get what was meant for the old owner, ports are given away at once.
        let is_drawn = matches!(pool.allocation(), Allocation::Ports) || !self.space.has_ports();
        let among = if is_drawn { Among::Anybodys } else { Among::Own };
        let kept_back = self.plan.times.port_rest(among, policy.keeps_back(self.space));
        let mut count = |port| {
            let Some(slot) = pool.slot(address, self.space, port) else { return };
            row.ports += 1;
            match self.running.tables.outside.read(slot) {
                Slot::Taken(_) => row.taken += 1,
                Slot::Closed(at) if now.since(at) < kept_back => row.kept_back += 1,
                Slot::Closed(_) | Slot::Free => {}
            }
        };
        if self.space.has_ports() {
            self.range.ports[self.space.slots() as usize].ranges().iter().cloned().flatten().for_each(count);
        } else {
            count(0);
        }
    }
}

/// Addresses from the first to the last, in words.
pub(super) fn range(first: Ipv4Addr, last: Ipv4Addr) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

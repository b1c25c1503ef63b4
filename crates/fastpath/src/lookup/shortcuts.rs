//! Shortcuts from outside ports of UDP to their hosts: `bpf/shortcut.h`. The programs fill them.

use aya::EbpfLoader;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::mechanism::session_state::UDP;
use tombolo_tables::shortcut::{SUBSCRIBERS, lead_of};

use crate::record::{
    KIND_NAT44, KIND_NAT64, NO_SHORTCUTS, PlanRecord, PoolRecord, SERVICE_ADDRESS_DEPENDENT, SERVICE_KEEPS_SESSIONS,
    ServiceRecord,
};

/// How many there are, and to how many subscribers.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Shortcuts {
    ports: u32,
    hosts: u32,
}

impl Shortcuts {
    /// Gives the pools of a plan theirs, where datagrams make no sessions and each subscriber is a host.
    pub(crate) fn assign(plan: &mut PlanRecord, subscribers: u32) -> Self {
        // In a cluster other nodes' bindings are in the tables, which is seen by looking at them.
        let is_alone = plan.notes_changes == 0;
        if !is_alone || lead_of(plan.lifetimes[usize::from(UDP.0)]) == 0 {
            return Self::default();
        }
        let (mut count, hosts) = (0, subscribers.saturating_add(1).min(SUBSCRIBERS + 1));
        for service in plan.services.iter_mut().filter(|service| service.takes_shortcuts()) {
            for range in service.pool.iter_mut().take(service.pool_ranges.into()) {
                let next = range.shortcuts().and_then(|more| more.checked_add(count));
                let Some(next) = next.filter(|next| *next < NO_SHORTCUTS) else { break };
                range.first_shortcut = std::mem::replace(&mut count, next);
            }
        }
        if count == 0 { Self::default() } else { Self { ports: count, hosts } }
    }

    /// Makes the arrays as large as that; the kernel makes none without elements.
    pub(crate) fn size(&self, loader: &mut EbpfLoader<'_>) {
        loader.map_max_entries("shortcuts", self.ports.max(1));
        loader.map_max_entries("known_hosts", self.hosts.max(1));
    }
}

impl ServiceRecord {
    fn takes_shortcuts(&self) -> bool {
        let keeps_sessions = SERVICE_KEEPS_SESSIONS | SERVICE_ADDRESS_DEPENDENT << PortSpace::Udp as u16;
        let are_hosts = match self.kind {
            KIND_NAT44 => true,
            KIND_NAT64 => self.subscriber_mask == [u64::MAX; 2],
            _ => false,
        };
        are_hosts && self.flags & keeps_sessions == 0
    }
}

impl PoolRecord {
    /// One for each outside port.
    fn shortcuts(&self) -> Option<u32> {
        let addresses = self.addresses.last.checked_sub(self.addresses.first)?.checked_add(1)?;
        let ports = u32::from(self.span.last).checked_sub(self.span.first.into())? + 1;
        addresses.checked_mul(ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Ports, Range};

    fn pool(first: u32, last: u32, ports: Ports) -> PoolRecord {
        PoolRecord {
            addresses: Range { first, last },
            span: ports,
            first_shortcut: NO_SHORTCUTS,
            ..PoolRecord::default()
        }
    }

    fn nat44() -> ServiceRecord {
        let mut service = ServiceRecord { kind: KIND_NAT44, pool_ranges: 2, ..ServiceRecord::default() };
        service.pool[0] = pool(10, 11, Ports { first: 1024, last: 1033 });
        service.pool[1] = pool(20, 20, Ports { first: 1, last: 5 });
        service
    }

    fn plan(services: [ServiceRecord; 3]) -> PlanRecord {
        let mut plan = PlanRecord { lifetimes: [300; 16], ..PlanRecord::default() };
        plan.services[..3].copy_from_slice(&services);
        plan
    }

    fn firsts(plan: &PlanRecord) -> Vec<u32> {
        plan.services[..3].iter().flat_map(|service| [0, 1].map(|range| service.pool[range].first_shortcut)).collect()
    }

    #[test]
    fn each_outside_port_of_services_without_sessions_has_one() {
        let kept = ServiceRecord { flags: SERVICE_KEEPS_SESSIONS, ..nat44() };
        let prefixes = ServiceRecord { kind: KIND_NAT64, subscriber_mask: [u64::MAX, 0], ..nat44() };
        let hosts = ServiceRecord { subscriber_mask: [u64::MAX; 2], ..prefixes };
        let mut some = plan([nat44(), kept, hosts]);
        assert_eq!(Shortcuts::assign(&mut some, 7), Shortcuts { ports: 50, hosts: 8 });
        assert_eq!(firsts(&some), [0, 20, NO_SHORTCUTS, NO_SHORTCUTS, 25, 45]);
        let mut none = plan([prefixes, kept, kept]);
        assert_eq!(Shortcuts::assign(&mut none, 7), Shortcuts::default());
        assert_eq!(firsts(&none), [NO_SHORTCUTS; 6]);
    }

    #[test]
    fn there_are_none_in_a_cluster_nor_where_bindings_live_shortly() {
        let usual = plan([nat44(); 3]);
        let copied = PlanRecord { notes_changes: 1, ..usual };
        for mut plan in [copied, PlanRecord { lifetimes: [255; 16], ..usual }] {
            assert_eq!(Shortcuts::assign(&mut plan, 7), Shortcuts::default());
            assert_eq!(firsts(&plan), [NO_SHORTCUTS; 6]);
        }
    }
}

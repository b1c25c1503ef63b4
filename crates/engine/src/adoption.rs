//! Copies of what another node had, of slices that are this node's by now: it has been named their owner.
//!
//! They become its own: the sweep and the kernel's programs take them as any other, and their time begins anew.

use tombolo_tables::Tables;
use tombolo_tables::binding::flags;

use crate::now::Now;
use crate::plan::Plan;

/// Makes copies of this node's own slices its own, before packets come; says how many bindings there were.
pub fn adopt(tables: &Tables, plan: &Plan, now: Now) -> usize {
    let is_own = |service: u8, address: [u8; 4]| {
        let pool = plan.service(service).and_then(|service| service.kind.pool());
        let slice = pool.and_then(|pool| pool.slice_of_address(address.into()));
        slice.is_none_or(|slice| plan.cluster.as_deref().is_none_or(|cluster| cluster.owns(slice)))
    };
    for id in tables.subscribers.iter() {
        let found = tables.subscribers.read(id).map(|(subscriber, _)| subscriber);
        let is_to_be = |found: &_| {
            let tombolo_tables::subscriber::Subscriber { key, outside_ipv4 } = found;
            is_own(key.service, *outside_ipv4)
        };
        if tables.subscribers.is_copied(id) && found.as_ref().is_some_and(is_to_be) {
            tables.subscribers.set_copied(id, false);
        }
    }
    let mut adopted = 0;
    for id in tables.bindings.iter() {
        let Some((binding, _)) = tables.bindings.read(id).filter(|(found, _)| found.flags & flags::COPIED != 0) else {
            continue;
        };
        if is_own(binding.inside.service, binding.outside_ipv4)
            && tables.bindings.touch(id, now.tick())
            && tables.change_flags(id, &binding, binding.flags & !flags::COPIED)
        {
            tables.bindings.see(id, now.tick());
            adopted += 1;
        }
    }
    adopted
}

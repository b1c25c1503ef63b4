//! What an earlier process of this node has left, in a cluster.
//!
//! Copies of what another node had, of slices that are this node's by now since it has been named their owner, become
//! its own: the sweep and the kernel's programs take them as any other, and their time begins anew. Of the others it is
//! not known whether that process, or its programs after it, served in the owner's place: so they may have sessions.

use tombolo_tables::Tables;
use tombolo_tables::binding::flags;

use crate::cluster::Cluster;
use crate::now::Now;
use crate::plan::Plan;

/// Makes copies of this node's own slices its own, before packets come; says how many bindings there were.
pub fn adopt(tables: &Tables, plan: &Plan, now: Now) -> usize {
    for id in tables.subscribers.iter() {
        let found = tables.subscribers.read(id).map(|(subscriber, _)| subscriber);
        let place = found.map(|found| place(plan, found.key.service, found.outside_ipv4));
        if place.is_some_and(is_own) && tables.subscribers.is_copied(id) {
            tables.subscribers.set_copied(id, false);
        }
    }
    let mut adopted = 0;
    for id in tables.bindings.iter() {
        let Some((binding, _)) = tables.bindings.read(id) else { continue };
        let place = place(plan, binding.inside.service, binding.outside_ipv4);
        if let Some((cluster, slice)) = place {
            cluster.owner_backed_up(slice).into_iter().for_each(|owner| cluster.note_acting(owner));
        }
        if is_own(place)
            && binding.flags & flags::COPIED != 0
            && tables.bindings.touch(id, now.tick())
            && tables.change_flags(id, &binding, binding.flags & !flags::COPIED)
        {
            tables.bindings.see(id, now.tick());
            adopted += 1;
        }
    }
    adopted
}

/// A slice of a cluster; none where there are none.
type Place<'p> = Option<(&'p Cluster, u16)>;

fn place(plan: &Plan, service: u8, address: [u8; 4]) -> Place<'_> {
    let slice = plan.service(service)?.kind.pool()?.slice_of_address(address.into())?;
    Some((plan.cluster.as_deref()?, slice))
}

fn is_own(place: Place<'_>) -> bool {
    place.is_none_or(|(cluster, slice)| cluster.owns(slice))
}

//! Slices that change hands, in a cluster: while packets are served, or between two processes of this node.
//!
//! Copies of what another node had, of slices that are this node's by now since it has been named their owner, become
//! its own: the sweep and the kernel's programs take them as any other, and their time begins anew. Of the others it is
//! not known whether that process, or its programs after it, served in the owner's place: so they may have sessions.

use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, BindingId, flags};
use tombolo_tables::tables::Removal;

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

/// Copies of slices that were another node's until now become this node's own, while packets are served by them; says how many
/// bindings there are. What the other node had offered it may have granted, and nobody knows to whom: it rests.
pub fn take_over(tables: &Tables, plan: &Plan, is_taken: impl Fn(u16) -> bool, now: Now) -> usize {
    let is_its = |service, address| place(plan, service, address).is_some_and(|(_, slice)| is_taken(slice));
    for id in tables.subscribers.iter() {
        let found = tables.subscribers.read(id).map(|(subscriber, _)| subscriber);
        if found.is_some_and(|found| is_its(found.key.service, found.outside_ipv4)) {
            tables.subscribers.set_copied(id, false);
        }
    }
    each_block(plan, &is_taken, |block| {
        tables.blocks.close_offered(block, now.tick());
    });
    let mut taken = 0;
    for id in tables.bindings.iter() {
        let Some((binding, _)) = tables.bindings.read(id) else { continue };
        if is_its(binding.inside.service, binding.outside_ipv4) && tables.bindings.touch(id, now.tick()) {
            taken += 1;
            own(tables, id, now);
        }
    }
    taken
}

/// A copy becomes the node's own, whatever packets change of it meanwhile; its time begins anew.
fn own(tables: &Tables, id: BindingId, now: Now) {
    tables.bindings.see(id, now.tick());
    while let Some((binding, _)) = tables.bindings.read(id)
        && binding.flags & flags::COPIED != 0
        && !tables.change_flags(id, &binding, binding.flags & !flags::COPIED)
    {}
}

/// What there is of slices goes: others have them, or nobody knows what became of them. Says how many bindings went.
pub fn forget(tables: &Tables, plan: &Plan, is_lost: impl Fn(u16) -> bool, now: Now) -> usize {
    let is_its = |service, address| place(plan, service, address).is_some_and(|(_, slice)| is_lost(slice));
    let mut removal = Removal::new(tables);
    let mut gone = 0;
    for id in tables.bindings.iter() {
        let is_meant = |binding: &Binding| is_its(binding.inside.service, binding.outside_ipv4);
        gone += usize::from(removal.unbind_if(id, is_meant, now.tick()).is_some());
    }
    removal.finish();
    for id in tables.subscribers.iter() {
        let found = tables.subscribers.read(id);
        if found.is_some_and(|(found, _)| is_its(found.key.service, found.outside_ipv4)) {
            tables.drop_subscriber(id, now.tick());
        }
    }
    each_block(plan, &is_lost, |block| tables.blocks.withdraw(block));
    gone
}

/// All blocks of some slices, by their words in the block index.
fn each_block(plan: &Plan, is_meant: &impl Fn(u16) -> bool, mut each: impl FnMut(u32)) {
    let pools = plan.services.iter().filter_map(|service| service.kind.pool());
    for (pool, size) in pools.filter_map(|pool| Some((pool, pool.allocation().block_size()?))) {
        for address in (0..pool.addresses()).filter_map(|place| pool.address(place)) {
            if pool.slice_of_address(address).is_some_and(is_meant) {
                pool.block_words(address, size).for_each(|(_, word)| each(word));
            }
        }
    }
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

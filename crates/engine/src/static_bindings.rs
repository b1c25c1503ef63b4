//! Brings the static bindings in the tables in line with the plan, at start and after a reload.

use std::collections::HashMap;

use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, InsideKey, flags};
use tombolo_tables::outside::Slot;
use tombolo_tables::tables::Candidate;

use crate::engine::Now;
use crate::plan::{Plan, Service, StaticBinding};
use crate::service::stateful::inside_key;

/// A static binding that could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Name of the service.
    pub service: String,
    /// The binding.
    pub binding: StaticBinding,
    /// Why not, in words.
    pub reason: &'static str,
}

/// Removes static bindings that the plan does not have any more and makes those that are missing. Existing sessions
/// of bindings that stay are not touched; a dynamic binding is never pushed out, it is named in the result instead.
#[must_use]
pub fn reconcile(tables: &Tables, plan: &Plan, now: Now) -> Vec<Conflict> {
    let wanted: HashMap<InsideKey, (&Service, StaticBinding)> = plan
        .numbered()
        .flat_map(|(number, service)| {
            service
                .kind
                .static_bindings()
                .iter()
                .map(move |&b| (inside_key(number, b.space, b.inside, b.inside_port), (service, b)))
        })
        .collect();
    remove_others(tables, &wanted, now);
    wanted
        .iter()
        .filter_map(|(inside, (service, binding))| {
            let reason = make(tables, service, inside, binding, now).err()?;
            Some(Conflict { service: service.name.clone(), binding: *binding, reason })
        })
        .collect()
}

fn remove_others(tables: &Tables, wanted: &HashMap<InsideKey, (&Service, StaticBinding)>, now: Now) {
    for id in tables.bindings.iter() {
        let Some((binding, seen)) = tables.bindings.read(id) else { continue };
        let stays = wanted.get(&binding.inside).is_some_and(|(_, wanted)| is_same(&binding, wanted));
        if binding.flags & flags::STATIC != 0 && !stays {
            tables.unbind(id, &binding, seen, now.tick());
        }
    }
}

fn is_same(binding: &Binding, wanted: &StaticBinding) -> bool {
    binding.flags & flags::STATIC != 0
        && binding.outside_ipv4 == wanted.outside.address.octets()
        && binding.outside_port == wanted.outside.port.0.to_be_bytes()
}

fn make(
    tables: &Tables,
    service: &Service,
    inside: &InsideKey,
    wanted: &StaticBinding,
    now: Now,
) -> Result<(), &'static str> {
    if let Some((_, found)) = tables.find_inside(inside) {
        let conflict = "the inside endpoint has a dynamic binding; it must expire first";
        return if is_same(&found, wanted) { Ok(()) } else { Err(conflict) };
    }
    let pool = service.kind.pool().ok_or("the service has no bindings")?;
    let outside = wanted.outside;
    let slot = pool.slot(outside.address, wanted.space, outside.port.0).ok_or("the pool does not have it")?;
    if matches!(tables.outside.read(slot), Slot::Taken(_)) {
        return Err("the outside endpoint is taken by a dynamic binding; it must expire first");
    }
    let template = Binding { inside: *inside, flags: flags::STATIC, ..Binding::default() };
    let candidate = Candidate { slot, ipv4: outside.address.octets(), port: outside.port.0.to_be_bytes() };
    // A static range is exempt from being kept back after closing (RFC 6888 REQ-8b).
    let made = tables.bind(&template, [candidate], 0, now.tick());
    made.map(|_| ()).map_err(|_| "the table of bindings is full; raise capacity.bindings")
}

//! Static bindings: brought in line with the plan at start and after a reload, added and removed by
//! an operator in between.
//!
//! What an operator added lives in the tables alone, marked as such: it survives a reload, and a
//! restart that adopts the tables.

use std::collections::HashMap;

use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, InsideKey, Origin, flags};
use tombolo_tables::outside::Slot;
use tombolo_tables::tables::{Candidate, Removal};

use crate::endpoint::Endpoint;
use crate::mapping::pool::PortSpace;
use crate::mechanism::napt::{KnownBy, Nat, StaticBinding};
use crate::now::Now;
use crate::plan::Plan;
use crate::service::Service;

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

/// Removes static bindings that the plan does not have any more and makes those that are missing; in a cluster
/// those of its own slices. Existing sessions of bindings that stay are not touched; a dynamic binding is never pushed out,
/// it is named in the result instead.
#[must_use]
pub fn reconcile(tables: &Tables, plan: &Plan, now: Now) -> Vec<Conflict> {
    reconcile_and_report(tables, plan, now, &mut |_| ())
}

/// As [`reconcile`], and calls `removed` with each binding that went.
#[must_use]
pub fn reconcile_and_report(
    tables: &Tables,
    plan: &Plan,
    now: Now,
    removed: &mut dyn FnMut(&Binding),
) -> Vec<Conflict> {
    let wanted: HashMap<InsideKey, (&Service, StaticBinding)> = plan
        .numbered()
        .flat_map(|(number, service)| {
            service.kind.static_bindings().iter().map(move |&binding| (binding.key(number), (service, binding)))
        })
        .filter(|(inside, (service, _))| {
            service.kind.nat().is_none_or(|nat| plan.keeps(nat, &nat.policy.subscriber.key(inside)))
        })
        .collect();
    remove_others(tables, &wanted, now, removed);
    // Of others' slices there are copies.
    let is_own = |inside: &InsideKey, service: &Service| {
        service.kind.nat().is_none_or(|nat| plan.serves(nat, &nat.policy.subscriber.key(inside)))
    };
    wanted
        .iter()
        .filter(|(inside, (service, _))| is_own(inside, service))
        .filter_map(|(inside, (service, binding))| {
            let reason = make(tables, service, inside, binding, flags::STATIC, now).err()?;
            Some(Conflict { service: service.name.clone(), binding: *binding, reason })
        })
        .collect()
}

/// Adds a binding that an operator wants, to service `number` of the plan.
///
/// # Errors
/// Why not, in words.
pub fn add(
    tables: &Tables,
    number: u8,
    service: &Service,
    binding: &StaticBinding,
    now: Now,
) -> Result<(), &'static str> {
    if !service.kind.hosts_known_by().fits(binding.host()) {
        return Err(match service.kind.hosts_known_by() {
            KnownBy::Ipv4 => "the hosts inside the service are known by their IPv4 addresses alone",
            KnownBy::Ipv6 => "the hosts inside the service are known by their IPv6 addresses",
            KnownBy::Softwire => {
                "the hosts inside the service are known by their softwire and an IPv4 address; name both"
            }
        });
    }
    if service.kind.nat().is_some_and(|nat| !nat.policy.protocols.has(binding.space)) {
        return Err("the service does not translate the protocol; see its \"further_protocols\"");
    }
    let inside = binding.key(number);
    if !service.kind.has_inside(&inside) {
        return Err("the host is not inside the service");
    }
    let is_of_its_slice = |nat: &Nat| {
        let slice = nat.pool.slice_of(&nat.policy.subscriber.key(&inside));
        slice.is_none() || slice == nat.pool.slice_of_address(binding.outside.address)
    };
    if !service.kind.nat().is_none_or(is_of_its_slice) {
        return Err("in a cluster a subscriber has addresses of its slice alone, and this one is of another");
    }
    make(tables, service, &inside, binding, flags::STATIC | flags::OPERATOR, now)
}

/// Removes the binding that an operator added for an outside endpoint, and its sessions. Says which
/// it was.
///
/// # Errors
/// Why not, in words.
pub fn remove(
    tables: &Tables,
    service: &Service,
    space: PortSpace,
    outside: Endpoint,
    now: Now,
) -> Result<Binding, &'static str> {
    let slot = service.kind.pool().and_then(|pool| pool.slot(outside.address, space, outside.port.0));
    let slot = slot.ok_or("no pool has this outside endpoint")?;
    let found = tables.find_outside(slot).filter(|(_, binding)| binding.inside.protocol == space.protocol());
    let (id, binding) = found.ok_or("the outside endpoint has no binding")?;
    match binding.origin() {
        Origin::Dynamic => return Err("the binding is dynamic; it goes by itself, or with a flush"),
        Origin::Configured => return Err("the binding is in the configuration; remove it there and reload"),
        Origin::Operator | Origin::Leased => {}
    }
    let mut removal = Removal::new(tables);
    let removed = removal.unbind_if(id, |found| *found == binding, now.tick());
    removed.ok_or("somebody else removed the binding at the same moment, or packets do not let it go; try again")
}

fn remove_others(
    tables: &Tables,
    wanted: &HashMap<InsideKey, (&Service, StaticBinding)>,
    now: Now,
    removed: &mut dyn FnMut(&Binding),
) {
    let mut removal = Removal::new(tables);
    let goes = |binding: &Binding| {
        let stays = wanted.get(&binding.inside).is_some_and(|(_, wanted)| is_same(binding, wanted));
        binding.origin() == Origin::Configured && !stays
    };
    for id in tables.bindings.iter() {
        if let Some(binding) = removal.unbind_if(id, goes, now.tick()) {
            removed(&binding);
        }
    }
    removal.finish();
}

fn is_same(binding: &Binding, wanted: &StaticBinding) -> bool {
    matches!(binding.origin(), Origin::Configured | Origin::Operator)
        && binding.outside_ipv4 == wanted.outside.address.octets()
        && binding.outside_port == wanted.outside.port.0.to_be_bytes()
}

fn make(
    tables: &Tables,
    service: &Service,
    inside: &InsideKey,
    wanted: &StaticBinding,
    flags: u16,
    now: Now,
) -> Result<(), &'static str> {
    if let Some((_, found)) = tables.find_inside(inside) {
        return match found.origin() {
            _ if is_same(&found, wanted) => Ok(()),
            Origin::Configured => Err("the inside endpoint has another static binding"),
            Origin::Dynamic => Err("the inside endpoint has a dynamic binding; it must expire first"),
            Origin::Operator => Err(
                "the inside endpoint has a binding that an operator added; \"tombolo binding remove\" takes it away",
            ),
            Origin::Leased => Err(
                "the inside endpoint has a binding that its host has asked for with PCP; \"tombolo binding remove\" takes it away",
            ),
        };
    }
    let pool = service.kind.pool().ok_or("the service has no bindings")?;
    let outside = wanted.outside;
    let slot = pool.slot(outside.address, wanted.space, outside.port.0).ok_or("the pool does not have it")?;
    if matches!(tables.outside.read(slot), Slot::Taken(_)) {
        return Err("the outside endpoint is taken by another binding; it must go first");
    }
    let template = Binding { inside: *inside, flags, ..Binding::default() };
    let candidate = Candidate { slot, ipv4: outside.address.octets(), port: outside.port.0.to_be_bytes() };
    // A static range is exempt from being kept back after closing (RFC 6888 REQ-8b).
    let made = tables.bind(&template, [candidate], 0, now.tick());
    made.map(|_| ()).map_err(|_| "the table of bindings is full; raise capacity.bindings")
}

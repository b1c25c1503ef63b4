//! A plan has taken another one's place while packets flow: what the new one does not allow ends.
//!
//! What both allow is not touched: bindings keep their numbers, their slots and their sessions, since the
//! new plan follows the [`layout`](crate::layout) of the one before.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv4Addr;

use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, InsideKey, Origin};
use tombolo_tables::subscriber::Subscriber;
use tombolo_tables::tables::Removal;

use crate::allowed::{check_host, check_port, check_slice, outside};
use crate::endpoint::Endpoint;
use crate::mapping::allocation::Allocation;
use crate::mechanism::napt::Nat;
use crate::now::Now;
use crate::plan::Plan;

pub use crate::allowed::Ended;

/// How often the removal of a subscriber is tried that packets use meanwhile.
const ATTEMPTS: usize = 8;

/// How much ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Bindings.
    pub bindings: u64,
    /// Sessions.
    pub sessions: u64,
}

/// What a change of the plan ends: for which service, by its number, why, and at which addresses of its
/// pool, first and last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loss {
    /// Number of the service.
    pub service: u8,
    /// Why.
    pub why: Ended,
    /// The outside addresses: a range of the pool that it had.
    pub addresses: (Ipv4Addr, Ipv4Addr),
}

/// Ends what `plan` does not allow, which has taken the place of `former`; `ended` hears of each binding.
/// Says what has ended. Subscribers follow whose grant the plan does not allow.
pub fn settle(
    tables: &Tables,
    former: &Plan,
    plan: &Plan,
    now: Now,
    ended: &mut dyn FnMut(&Binding),
) -> BTreeMap<Loss, Count> {
    let asked = Asked::of(plan);
    let losses = asked.losses(tables, former);
    if !losses.is_empty() {
        let mut removal = Removal::new(tables);
        for id in tables.bindings.iter() {
            let gone = removal.unbind_if(id, |binding| asked.check(binding).is_err(), now.tick());
            gone.iter().for_each(&mut *ended);
        }
        removal.finish();
    }
    for id in tables.subscribers.iter() {
        let dismissed = || {
            let (subscriber, seen) = tables.subscribers.read(id).filter(|(found, _)| !asked.grants(found))?;
            tables.dismiss(id, &subscriber, seen, now.tick()).then_some(())
        };
        let _ = (0..ATTEMPTS).find_map(|_| dismissed());
    }
    losses
}

/// What [`settle`] would end if `plan` took the place of `current`.
#[must_use]
pub fn foresee(tables: &Tables, current: &Plan, plan: &Plan) -> BTreeMap<Loss, Count> {
    Asked::of(plan).losses(tables, current)
}

/// The range of its pool that a service has the address in.
fn range_of(plan: &Plan, service: u8, address: Ipv4Addr) -> (Ipv4Addr, Ipv4Addr) {
    let pool = plan.service_ever(service).and_then(|service| service.kind.pool());
    let mut ranges = pool.into_iter().flat_map(|pool| pool.ranges());
    let range = ranges.find(|range| (range.first..=range.last).contains(&address));
    range.map_or((address, address), |range| (range.first, range.last))
}

/// A plan, and what of it is looked up for each binding.
struct Asked<'p> {
    plan: &'p Plan,
    configured: HashSet<(InsideKey, Endpoint)>,
}

impl<'p> Asked<'p> {
    fn of(plan: &'p Plan) -> Self {
        let fixed = plan.numbered().flat_map(|(number, service)| {
            service.kind.static_bindings().iter().map(move |binding| (binding.key(number), binding.outside))
        });
        Self { plan, configured: fixed.collect() }
    }

    /// What the plan does not allow, in the ranges of the one before.
    fn losses(&self, tables: &Tables, former: &Plan) -> BTreeMap<Loss, Count> {
        let mut losses: BTreeMap<Loss, Count> = BTreeMap::new();
        let mut ends: HashMap<u32, Loss> = HashMap::new();
        for id in tables.bindings.iter() {
            let Some((binding, _)) = tables.bindings.read(id) else { continue };
            let Err(why) = self.check(&binding) else { continue };
            let service = binding.inside.service;
            let loss = Loss { service, why, addresses: range_of(former, service, binding.outside_ipv4.into()) };
            losses.entry(loss).or_default().bindings += 1;
            ends.insert(id.get(), loss);
        }
        if !ends.is_empty() {
            for session in tables.each_session() {
                if let Some(loss) = ends.get(&session.key.binding.get()) {
                    losses.entry(*loss).or_default().sessions += 1;
                }
            }
        }
        losses
    }

    fn check(&self, binding: &Binding) -> Result<(), Ended> {
        let inside = &binding.inside;
        let service = self.plan.service(inside.service).ok_or_else(|| self.gone(inside.service))?;
        let nat = service.kind.nat().ok_or(Ended::Service)?;
        check_host(service, inside)?;
        check_slice(self.plan, nat, inside)?;
        let (space, outside) = outside(binding).ok_or(Ended::Pool)?;
        // Slots stay where they are: another one is another endpoint's.
        if nat.pool.slot(outside.address, space, outside.port.0) != Some(binding.outside_slot) {
            return Err(Ended::Pool);
        }
        match binding.origin() {
            Origin::Dynamic | Origin::Leased => check_port(nat, inside, space, outside).map(drop),
            Origin::Configured if !self.configured.contains(&(*inside, outside)) => Err(Ended::Configuration),
            Origin::Configured | Origin::Operator => Ok(()),
        }
    }

    /// Why there is no service with this number: it is gone, or goes on under another number since its
    /// ports are handed out otherwise.
    fn gone(&self, number: u8) -> Ended {
        let was = self.plan.service_ever(number);
        let goes_on = was.is_some_and(|was| {
            self.plan.services.iter().any(|now| now.name == was.name && now.kind.name() == was.kind.name())
        });
        if goes_on { Ended::Allocation } else { Ended::Service }
    }

    /// Whether the plan would give a subscriber what it has.
    fn grants(&self, subscriber: &Subscriber) -> bool {
        let nat = self.plan.service(subscriber.key.service).and_then(|service| service.kind.nat());
        let address = Ipv4Addr::from(subscriber.outside_ipv4);
        let may_have = |nat: &&Nat| nat.pool.is_for(&subscriber.key, address) && self.plan.keeps(nat, &subscriber.key);
        nat.filter(may_have).is_some_and(|nat| match nat.pool.allocation() {
            Allocation::Ports | Allocation::Blocks(_) => true,
            Allocation::Deterministic(shares) => {
                shares.share(&subscriber.key).is_some_and(|share| share.address == address)
            }
        })
    }
}

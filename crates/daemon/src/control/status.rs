//! What the gateway is, which services it has, and how much state there is, in rows.

use std::sync::atomic::Ordering;

use serde_json::json;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::plan::Routed;
use tombolo_engine::{Now, Plan};
use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, Origin};

use super::pools::range;
use super::request::PROTOCOL;
use super::rows::{Failure, Rows};
use crate::running::Running;
use crate::table_rows::{is_permission, seconds};

/// What the gateway is, and how it does.
pub(crate) fn status(running: &Running, plan: &Plan, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let now = running.now();
    let memory = running.tables.memory();
    let (health, faults) = running.health.report();
    rows.row(&json!({
        "health": health.name(),
        "faults": faults,
        "put_back": running.put_back.load(Ordering::Relaxed),
        "device": running.settings.device,
        "configuration": running.source.path,
        "run_directory": running.settings.run_directory,
        "version": env!("CARGO_PKG_VERSION"),
        "protocol": PROTOCOL,
        "pid": std::process::id(),
        "uptime": now.0.saturating_sub(running.started.0) / 1_000_000_000,
        "workers": running.counters.len(),
        "standing_by": standing_by(plan),
        "draining": plan.times.draining_since.is_some(),
        "draining_for": plan.times.draining_since.map(|since| seconds(now.tick().since(since))),
        "subscribers": running.tables.subscribers.count(),
        "bindings": running.tables.bindings.count(),
        "sessions": running.sessions(),
        "table_bytes": memory.total(),
    }))
}

/// The services that stand by while native IPv4 works.
fn standing_by(plan: &Plan) -> Vec<&str> {
    let services = plan.services.iter().filter(|service| service.stands_by());
    services.map(|service| service.name.as_str()).collect()
}

/// Services and how much state they have.
pub(crate) fn services(running: &Running, plan: &Plan, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let counts = Counts::of(&running.tables, plan, running.now());
    for (number, service) in plan.numbered() {
        let Routed { ipv6, sources, .. } = service.kind.routed();
        let prefixes = ipv6.iter().map(|(address, length)| format!("{address}/{length}"));
        let hosts: Vec<_> = prefixes.chain(sources.iter().map(|(first, last)| range(*first, *last))).collect();
        let pool = service.kind.pool().map_or_else(Vec::new, |pool| {
            pool.ranges().iter().map(|addresses| range(addresses.first, addresses.last)).collect()
        });
        let number = usize::from(number);
        rows.row(&json!({
            "service": service.name,
            "kind": service.kind.name(),
            "standing_by": service.stands_by(),
            "inside": hosts.join(", "),
            "outside": pool.join(", "),
            "subscribers": counts.subscribers[number],
            "bindings": counts.bindings[number],
            "bindings_without_sessions": counts.without_sessions[number],
            "sessions": counts.sessions[number],
        }))?;
    }
    Ok(())
}

/// Entries of the tables, service by service.
struct Counts {
    subscribers: [u64; 256],
    bindings: [u64; 256],
    /// Dynamic ones whose packets make no sessions.
    without_sessions: [u64; 256],
    sessions: [u64; 256],
}

impl Counts {
    fn of(tables: &Tables, plan: &Plan, now: Now) -> Self {
        let mut counts =
            Self { subscribers: [0; 256], bindings: [0; 256], without_sessions: [0; 256], sessions: [0; 256] };
        for (subscriber, _) in tables.subscribers.iter().filter_map(|id| tables.subscribers.read(id)) {
            counts.subscribers[usize::from(subscriber.key.service)] += 1;
        }
        // Sessions know their binding only, and to look each up would be a walk at random through
        // memory.
        let mut service_of = vec![None; tables.bindings.capacity() as usize + 1];
        for id in tables.bindings.iter() {
            if let Some((binding, _)) = tables.bindings.read(id) {
                let service = usize::from(binding.inside.service);
                counts.bindings[service] += 1;
                counts.without_sessions[service] += u64::from(lives_alone(plan, &binding));
                service_of[id.get() as usize] = Some(binding.inside.service);
            }
        }
        for session in tables.each_session() {
            let service = service_of.get(session.key.binding.get() as usize).copied().flatten();
            let lives = plan.times.effective(session.state, now.tick().since(session.seen)).is_some();
            if let (false, true, Some(service)) = (is_permission(session.state), lives, service) {
                counts.sessions[usize::from(service)] += 1;
            }
        }
        counts
    }
}

/// A dynamic binding that keeps its own time.
fn lives_alone(plan: &Plan, binding: &Binding) -> bool {
    let nat = plan.service(binding.inside.service).and_then(|service| service.kind.nat());
    let space = PortSpace::of_protocol(binding.inside.protocol);
    let keeps = nat.zip(space).is_none_or(|(nat, space)| nat.policy.keeps_sessions(space));
    !keeps && binding.origin() == Origin::Dynamic
}

//! The status page: one file, nothing from elsewhere, and what its script asks for.

use std::cmp::Reverse;

use serde_json::{Value, json};
use tombolo_engine::{DropReason, Plan};

use crate::accelerator::Accelerator;
use crate::control::pools;
use crate::control::subscriber::most_bindings;
use crate::running::Running;

/// The page.
pub(super) const PAGE: &str = include_str!("page.html");
/// Subscribers that it shows.
const MOST: usize = 10;

/// What the page shows.
pub(super) fn figures(running: &Running) -> Value {
    let plan = running.plan.load_full();
    let now = running.now();
    let (health, faults) = running.health.report();
    let totals = running.totals();
    let taken = running.accelerator.as_ref().map(Accelerator::taken).unwrap_or_default();
    let kernel = taken.forwarded();
    let bytes: u64 = totals.received_bytes.iter().chain(&kernel.bytes).sum();
    let tables = &running.tables;
    let table = |name: &str, entries: Option<u64>, capacity: u64| json!({ "table": name, "entries": entries.unwrap_or(0), "capacity": capacity });
    let (subscribers, bindings) = (u64::from(tables.subscribers.count()), u64::from(tables.bindings.count()));
    json!({
        "health": health.name(),
        "faults": faults,
        "draining": plan.times.draining_since.is_some(),
        "device": running.settings.device,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime": now.0.saturating_sub(running.started.0) / 1_000_000_000,
        "milliseconds": now.0 / 1_000_000,
        "counted": {
            "inside": totals.received[0] + kernel.packets[0],
            "outside": totals.received[1] + kernel.packets[1],
            "bytes": bytes,
            "dropped": totals.drops.iter().sum::<u64>(),
        },
        "bindings": bindings,
        "sessions": running.sessions(),
        "subscribers": subscribers,
        "services": services(running, &plan),
        "pools": pools::by_service(running, &plan),
        "drops": drops(&totals.drops),
        "top": most_bindings(running, &plan, MOST),
        "tables": [
            table("subscribers", Some(subscribers), tables.subscribers.capacity().into()),
            table("bindings", Some(bindings), tables.bindings.capacity().into()),
            table("sessions", running.sessions(), plan.capacity.sessions),
        ],
    })
}

fn services(running: &Running, plan: &Plan) -> Vec<Value> {
    let mut counts = [0_u64; 256];
    let bindings = &running.tables.bindings;
    for (binding, _) in bindings.iter().filter_map(|id| bindings.read(id)) {
        counts[usize::from(binding.inside.service)] += 1;
    }
    let row = |number: u8, name: &str, kind: &str| json!({ "service": name, "kind": kind, "bindings": counts[usize::from(number)] });
    plan.numbered().map(|(number, service)| row(number, &service.name, service.kind.name())).collect()
}

/// The reasons that occurred, the most frequent first.
fn drops(counts: &[u64; DropReason::COUNT]) -> Vec<Value> {
    let mut found: Vec<(u64, DropReason)> = DropReason::ALL
        .iter()
        .map(|&reason| (counts[reason as usize], reason))
        .filter(|(count, _)| *count > 0)
        .collect();
    found.sort_by_key(|(count, _)| Reverse(*count));
    let row = |(count, reason): (u64, DropReason)| json!({ "reason": reason.name(), "count": count, "cause": reason.cause().trim(), "remedy": reason.remedy() });
    found.into_iter().map(row).collect()
}

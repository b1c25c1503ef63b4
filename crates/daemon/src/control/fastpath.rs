//! What the kernel's fast path takes and what not, in rows.

use serde::Serialize;

use super::rows::{Failure, Rows};
use crate::accelerator::RouteUse;
use crate::running::Running;

/// Something about the fast path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct FastPathRow<'a> {
    /// `interface`, `service`, `routes`, `packets`, `made` or `left`.
    what: &'static str,
    /// Which.
    name: &'a str,
    /// How.
    value: String,
    /// Why.
    why: &'a str,
}

/// Where it is attached, which services it serves, how much it takes, and why it leaves what it
/// leaves.
pub(crate) fn fastpath(running: &Running, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let Some(accelerator) = &running.accelerator else {
        let why = "gateway.fastpath is \"off\", or the kernel could not take it: the gateway's log and tombolo doctor say why";
        return rows.row(&FastPathRow { what: "interface", name: "all", value: "off".into(), why });
    };
    for interface in accelerator.interfaces() {
        let value = interface.takes().to_owned();
        rows.row(&FastPathRow { what: "interface", name: &interface.link.name, value, why: &interface.why })?;
    }
    for service in accelerator.services() {
        let value = if service.left_to_engine.is_none() { "taken" } else { "left to the engine" }.to_owned();
        rows.row(&FastPathRow {
            what: "service",
            name: &service.name,
            value,
            why: service.left_to_engine.unwrap_or(""),
        })?;
    }
    let (value, why) = match accelerator.route_use() {
        RouteUse::None => ("left to the stack".to_owned(), "gateway.fastpath_netfilter"),
        RouteUse::Mirrored(prefixes) => (format!("{prefixes} mirrored"), ""),
        RouteUse::EachDestination(why) => ("asked (xdp), left to the stack (tc)".to_owned(), why),
    };
    rows.row(&FastPathRow { what: "routes", name: "all", value, why })?;
    let taken = accelerator.taken();
    let engine = running.totals();
    let [inside, outside] = taken.forwarded().packets;
    let redirected: u64 = taken.redirected[0].iter().sum();
    let kernel = inside + outside + redirected;
    let all = kernel + engine.received[0] + engine.received[1];
    let value = format!("{}.{} %", kernel * 100 / all.max(1), kernel * 1000 / all.max(1) % 10);
    let mut packets = |name, value| rows.row(&FastPathRow { what: "packets", name, value, why: "" });
    packets("taken-inside", inside.to_string())?;
    packets("taken-outside", outside.to_string())?;
    if redirected > 0 {
        packets("redirected", redirected.to_string())?;
    }
    packets("hit-rate", value)?;
    packets("to-stack", taken.to_stack.to_string())?;
    packets("lost", taken.lost.map_or_else(|| "not counted".to_owned(), |lost| lost.to_string()))?;
    rows.row(&FastPathRow { what: "made", name: "bindings", value: taken.bindings_made.to_string(), why: "" })?;
    rows.row(&FastPathRow { what: "made", name: "sessions", value: taken.sessions_made.to_string(), why: "" })?;
    for (reason, count) in &taken.passed {
        rows.row(&FastPathRow {
            what: "left",
            name: reason.name(),
            value: count.to_string(),
            why: reason.meaning().trim(),
        })?;
    }
    Ok(())
}

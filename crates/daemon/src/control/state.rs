//! The gateway's state in rows.

use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;

use serde::Serialize;
use serde_json::json;
use tombolo_engine::mapping::pool::{Pool, PoolRange, PortSpace};
use tombolo_engine::plan::{Routed, Service};
use tombolo_engine::{Now, Plan};
use tombolo_tables::Tables;
use tombolo_tables::outside::Slot;

use super::answer::{Failure, Rows};
use super::filter::{Filter, Matcher};
use crate::accelerator::Accelerator;
use crate::row::{BindingRow, SessionRow, SubscriberRow, protocol_name, seconds};
use crate::running::Running;

/// What the gateway is, and how it does.
pub(crate) fn status(running: &Running, plan: &Plan, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let now = running.now();
    let memory = running.tables.memory();
    rows.row(&json!({
        "device": running.settings.device,
        "configuration": running.source.path,
        "run_directory": running.settings.run_directory,
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "uptime": now.0.saturating_sub(running.started.0) / 1_000_000_000,
        "workers": running.counters.len(),
        "draining": plan.times.draining_since.is_some(),
        "draining_for": plan.times.draining_since.map(|since| seconds(now.tick().since(since))),
        "subscribers": running.tables.subscribers.count(),
        "bindings": running.tables.bindings.count(),
        "sessions": running.sessions(),
        "table_bytes": memory.total(),
    }))
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
            "inside": hosts.join(", "),
            "outside": pool.join(", "),
            "subscribers": counts.subscribers[number],
            "bindings": counts.bindings[number],
            "sessions": counts.sessions[number],
        }))?;
    }
    Ok(())
}

/// Entries of the tables, service by service.
pub(crate) struct Counts {
    pub(crate) subscribers: [u64; 256],
    pub(crate) bindings: [u64; 256],
    pub(crate) sessions: [u64; 256],
}

impl Counts {
    fn of(tables: &Tables, plan: &Plan, now: Now) -> Self {
        let mut counts = Self { subscribers: [0; 256], bindings: [0; 256], sessions: [0; 256] };
        for (subscriber, _) in tables.subscribers.iter().filter_map(|id| tables.subscribers.read(id)) {
            counts.subscribers[usize::from(subscriber.key.service)] += 1;
        }
        // Sessions know their binding only, and to look each up would be a walk at random through
        // memory.
        let mut service_of = vec![None; tables.bindings.capacity() as usize + 1];
        for id in tables.bindings.iter() {
            if let Some((binding, _)) = tables.bindings.read(id) {
                counts.bindings[usize::from(binding.inside.service)] += 1;
                service_of[id.get() as usize] = Some(binding.inside.service);
            }
        }
        for (session, pending) in (0..tables.sessions.lines()).flat_map(|line| tables.sessions.read_line(line)) {
            let service = service_of.get(session.key.binding.get() as usize).copied().flatten();
            let lives = plan.times.effective(session.state, now.tick().since(session.seen)).is_some();
            if let (false, true, Some(service)) = (pending || crate::row::is_permission(session.state), lives, service)
            {
                counts.sessions[usize::from(service)] += 1;
            }
        }
        counts
    }
}

/// Bindings, in the order of their records.
pub(crate) fn bindings(running: &Running, plan: &Plan, filter: &Filter, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let matcher = Matcher::new(filter, plan).map_err(Failure::Refused)?;
    let tables = &running.tables;
    for id in tables.bindings.iter() {
        if rows.count() >= matcher.limit {
            break;
        }
        let Some((binding, touched)) = tables.bindings.read(id).filter(|(binding, _)| matcher.may_want(binding)) else {
            continue;
        };
        let row = BindingRow::of(plan, &binding, touched, running.now());
        if matcher.wants_binding(&row) {
            rows.row(&row)?;
        }
    }
    Ok(())
}

/// Sessions, in the order of their lines.
pub(crate) fn sessions(running: &Running, plan: &Plan, filter: &Filter, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let matcher = Matcher::new(filter, plan).map_err(Failure::Refused)?;
    let Tables { sessions, bindings, .. } = &*running.tables;
    for line in 0..sessions.lines() {
        for (session, pending) in sessions.read_line(line) {
            if rows.count() >= matcher.limit {
                return Ok(());
            }
            if pending || !matcher.wants_state(session.state) {
                continue;
            }
            let binding = bindings.read(session.key.binding).filter(|(binding, _)| matcher.may_want(binding));
            let row = binding.and_then(|(binding, _)| SessionRow::of(plan, &binding, &session, running.now()));
            let Some(row) = row.filter(|row| matcher.wants_session(row)) else { continue };
            // An entry that was reused while it was copied may be half of one session and half of
            // another; that one is not there when the line is read again.
            if sessions.read_line(line).any(|(again, _)| again.key == session.key) {
                rows.row(&row)?;
            }
        }
    }
    Ok(())
}

/// Subscribers, in the order of their records.
pub(crate) fn subscribers(running: &Running, plan: &Plan, filter: &Filter, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let matcher = Matcher::new(filter, plan).map_err(Failure::Refused)?;
    let subscribers = &running.tables.subscribers;
    for id in subscribers.iter() {
        if rows.count() >= matcher.limit {
            break;
        }
        let Some((subscriber, touched)) = subscribers.read(id) else { continue };
        let row = SubscriberRow::of(plan, &subscriber, subscribers.bindings(id), touched, running.now());
        if matcher.wants_service(subscriber.key.service) && matcher.wants_subscriber(&row) {
            rows.row(&row)?;
        }
    }
    Ok(())
}

/// How much of a range of addresses, or of one, is in use for one protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct PoolRow<'p> {
    pub(crate) service: &'p str,
    pub(crate) addresses: String,
    pub(crate) protocol: &'static str,
    /// Ports that are handed out, of all addresses together.
    pub(crate) ports: u64,
    pub(crate) taken: u64,
    /// Closed a short while ago (RFC 6888 REQ-8).
    pub(crate) kept_back: u64,
    pub(crate) free: u64,
}

/// The pools.
pub(crate) fn pools(
    running: &Running,
    plan: &Plan,
    filter: &Filter,
    each_address: bool,
    rows: &mut Rows<'_>,
) -> Result<(), Failure> {
    let matcher = Matcher::new(filter, plan).map_err(Failure::Refused)?;
    for (_, service) in plan.numbered().filter(|(number, _)| matcher.wants_service(*number)) {
        let Some(pool) = service.kind.pool() else { continue };
        for range in pool.ranges() {
            for space in PortSpace::ALL.into_iter().filter(|&space| matcher.wants_protocol(space)) {
                let wanted = (range.first.to_bits()..=range.last.to_bits()).map(Ipv4Addr::from_bits);
                let wanted = wanted.filter(|&address| matcher.wants_outside(address));
                let usage = Usage { running, plan, pool, range, space };
                if each_address {
                    for address in wanted {
                        rows.row(&usage.row(service, &mut std::iter::once(address)))?;
                    }
                } else {
                    rows.row(&usage.row(service, &mut { wanted }))?;
                }
            }
        }
    }
    Ok(())
}

struct Usage<'p> {
    running: &'p Running,
    plan: &'p Plan,
    pool: &'p Pool,
    range: &'p PoolRange,
    space: PortSpace,
}

impl<'p> Usage<'p> {
    fn row(&self, service: &'p Service, addresses: &mut dyn Iterator<Item = Ipv4Addr>) -> PoolRow<'p> {
        let mut row = PoolRow {
            service: &service.name,
            addresses: String::new(),
            protocol: protocol_name(self.space.protocol()),
            ports: 0,
            taken: 0,
            kept_back: 0,
            free: 0,
        };
        let mut ends: Option<(Ipv4Addr, Ipv4Addr)> = None;
        for address in addresses {
            ends = Some((ends.map_or(address, |(first, _)| first), address));
            self.count(address, &mut row);
        }
        row.addresses = ends.map(|(first, last)| range(first, last)).unwrap_or_default();
        row.free = row.ports - row.taken - row.kept_back;
        row
    }

    fn count(&self, address: Ipv4Addr, row: &mut PoolRow<'_>) {
        let now = self.running.now().tick();
        // Ports of TCP are given to others at once: see `Napt::reuse_port_after`.
        let kept_back = if self.space == PortSpace::Tcp { 0 } else { self.plan.times.reuse_port_after };
        for port in self.range.ports[self.space as usize].ranges().iter().cloned().flatten() {
            let Some(slot) = self.pool.slot(address, self.space, port) else { continue };
            row.ports += 1;
            match self.running.tables.outside.read(slot) {
                Slot::Taken(_) => row.taken += 1,
                Slot::Closed(at) if now.since(at) < kept_back => row.kept_back += 1,
                Slot::Closed(_) | Slot::Free => {}
            }
        }
    }
}

/// A counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct CounterRow {
    counter: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    side: Option<&'static str>,
    /// `engine` or `kernel`, where both count.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    value: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
}

/// What all workers, the sweeps and the kernel's fast path have counted since the start.
pub(crate) fn counters(running: &Running, all: bool, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let totals = running.totals();
    let taken = running.accelerator.as_ref().map(Accelerator::taken);
    let plain =
        |counter, side, path, value| CounterRow { counter, side, path, reason: None, value, cause: None, remedy: None };
    for (number, side) in [(0, "inside"), (1, "outside")] {
        let mut row = |counter, path, value| rows.row(&plain(counter, Some(side), Some(path), value));
        row("received", "engine", totals.received[number])?;
        row("received-bytes", "engine", totals.received_bytes[number])?;
        row("forwarded", "engine", totals.forwarded[number])?;
        if let Some(taken) = &taken {
            row("forwarded", "kernel", taken.forwarded[number])?;
            row("forwarded-bytes", "kernel", taken.forwarded_bytes[number])?;
        }
    }
    let swept = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    for (counter, value) in [
        ("to-host", totals.to_host),
        ("held", totals.held),
        ("replied", totals.replied),
        ("expired-sessions", swept(&running.swept.expired_sessions)),
        ("expired-bindings", swept(&running.swept.expired_bindings)),
        ("expired-subscribers", swept(&running.swept.expired_subscribers)),
        ("unlogged-removals", running.removals.lost()),
    ] {
        if all || value > 0 {
            rows.row(&plain(counter, None, None, value))?;
        }
    }
    let kernel = taken.map(|taken| taken.dropped).unwrap_or_default();
    for &reason in tombolo_engine::DropReason::ALL {
        let (cause, remedy) = (Some(reason.cause().trim()), Some(reason.remedy()));
        let values = [("engine", totals.drops[reason as usize]), ("kernel", kernel.get(&reason).copied().unwrap_or(0))];
        for (path, value) in values.into_iter().filter(|&(path, value)| value > 0 || all && path == "engine") {
            let (counter, path, reason) = ("dropped", Some(path), Some(reason.name()));
            rows.row(&CounterRow { counter, side: None, path, reason, value, cause, remedy })?;
        }
    }
    Ok(())
}

fn range(first: Ipv4Addr, last: Ipv4Addr) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A plan with one NAT64 that is called `test`.
    pub(crate) fn plan() -> Plan {
        let text = "[capacity]\nsubscribers = 100\nbindings = 1000\nsessions = 1000\n[[service]]\nkind = \"nat64\"\n\
                    name = \"test\"\nprefix = \"64:ff9b::/96\"\n\
                    pool = [{ addresses = \"192.0.2.0/31\", ports = \"1024-65535\" }]\n\
                    static = [{ inside = \"[2001:db8::2]:80\", outside = \"192.0.2.1:80\", protocol = \"tcp\" }]\n";
        tombolo_config::parse("test.toml", text).unwrap().plan
    }
}

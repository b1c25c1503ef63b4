//! What the gateway left in its tables: every invariant, and nothing that should have gone.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use tombolo_daemon::state::State;
use tombolo_engine::sweep::Expiry;
use tombolo_engine::{Now, Plan};
use tombolo_io::clock::monotonic_nanos;
use tombolo_tables::audit;
use tombolo_tables::blocks::Holder;
use tombolo_tables::outside::Slot;
use tombolo_tables::sweep::Sweeper;
use tombolo_tables::tick::{Tick, ticks};

use super::configuration::STATIC_BINDINGS;
use super::failures::Failures;

/// Seconds by which expiry may be late: two passes of the sweep, and time for a machine that is
/// busy.
const LATE: u32 = 40;
/// Longer than any lifetime of the configuration.
const LONG: u32 = 100_000;

/// What was found in the tables.
#[derive(Debug, Serialize)]
pub(crate) struct Aftermath {
    /// Subscribers, bindings and sessions when the gateway stopped.
    pub(crate) subscribers: u32,
    pub(crate) bindings: u32,
    pub(crate) sessions: usize,
    /// What the gateway counted as dropped, by reason.
    pub(crate) dropped: BTreeMap<String, u64>,
}

/// Adopts the tables in `directory` and checks them; `log` is the gateway's.
pub(crate) fn examine(directory: &Path, plan: &Plan, log: &str, failures: &Failures) -> anyhow::Result<Aftermath> {
    let state = State::open(Some(directory), plan)?;
    if state.repaired > 0 {
        failures.add(format!("{} records had to be repaired after an orderly stop", state.repaired));
    }
    for finding in audit::check(&state.tables) {
        failures.add(finding);
    }
    let now = Now(monotonic_nanos()).tick();
    let mut sessions = 0;
    for session in state.tables.each_session() {
        sessions += 1;
        let idle = now.since(session.seen);
        if plan.times.effective(session.state, idle.saturating_sub(ticks(LATE))).is_none() {
            failures.add(format!("a session outlived its time: {session:?} at {now:?}"));
        }
    }
    let aftermath = Aftermath {
        subscribers: state.tables.subscribers.count(),
        bindings: state.tables.bindings.count(),
        sessions,
        dropped: dropped(log),
    };
    if aftermath.bindings <= STATIC_BINDINGS || sessions == 0 {
        failures.add("nothing was left in the tables right after the traffic: there was none".into());
    }
    empty(&state, plan, now, failures);
    Ok(aftermath)
}

/// Lets all time pass: what is still there then leaked.
fn empty(state: &State, plan: &Plan, now: Tick, failures: &Failures) {
    let tables = &state.tables;
    let mut later = Tick(now.0 + ticks(LONG));
    let mut sweeper = Sweeper::new(tables, later);
    let mut expiry = Expiry::new(plan);
    for _ in 0..6 {
        let complete = sweeper.advance(tables, usize::MAX, later, &mut expiry);
        debug_assert!(complete);
        later = Tick(later.0 + ticks(LONG));
    }
    for finding in audit::check(tables) {
        failures.add(format!("after everything expired: {finding}"));
    }
    let sessions = tables.each_session().count();
    let slots = u32::try_from(tables.outside.len()).unwrap_or(u32::MAX);
    let ports = (0..slots).filter(|&slot| matches!(tables.outside.read(slot), Slot::Taken(_))).count();
    let held = |block: &u32| matches!(tables.blocks.read(*block), Holder::Subscriber(_));
    let blocks = (0..tables.blocks.len()).filter(held).count();
    let left = (tables.subscribers.count(), tables.bindings.count(), sessions, ports, blocks);
    if left != (0, STATIC_BINDINGS, 0, STATIC_BINDINGS as usize, 0) {
        failures.add(format!("leaked: (subscribers, bindings, sessions, ports, blocks) = {left:?}"));
    }
}

/// Lines like `dropped reason="no-binding" count=17` of the log.
fn dropped(log: &str) -> BTreeMap<String, u64> {
    let value = |line: &str, key: &str| {
        let rest = line.split_once(key)?.1;
        Some(rest.split_whitespace().next()?.trim_matches('"').to_owned())
    };
    let lines = log.lines().filter(|line| line.contains("dropped"));
    lines.filter_map(|line| Some((value(line, "reason=")?, value(line, "count=")?.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_from_the_log() {
        let log = "INFO stopped forwarded=3\nINFO dropped reason=\"no-binding\" count=17\nINFO dropped reason=\"filtered\" count=2";
        let expected = BTreeMap::from([("no-binding".to_owned(), 17), ("filtered".to_owned(), 2)]);
        assert_eq!(dropped(log), expected);
    }
}

//! State that an earlier process has left and that does not fit: made for another plan, by a program
//! with other records, or before the system was started anew.
//!
//! What the new plan allows is carried over ([`CarryOver`]) as soon as there are tables for it, and
//! once more when no program works on the old ones any more. Until that is complete the old tables
//! are there and count, so a start that fails, or is killed, ends nothing. After a reboot nothing
//! lives on: what was open is closed in the log with the time that was last known.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use tombolo_config::LogDetail;
use tombolo_engine::carry_over::{CarryOver, Ended, Ends, FormerPlan};
use tombolo_engine::mapping::pool::block_ports;
use tombolo_engine::{Now, Plan, carry_over};
use tombolo_io::clock::monotonic_nanos;
use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, Origin};
use tombolo_tables::former::{Description, DescriptionError, FormerMemory, FormerTables, description};
use tombolo_tables::subscriber::Subscriber;
use tombolo_tables::tick::Tick;

use crate::binding_log::event::{BindingEvent, BlockEvent, Event};
use crate::binding_log::live::EndLog;
use crate::table_clock::Clock;
use crate::utc::Utc;

/// The text that lies beside tables for `plan`: everything that their bytes depend on.
#[must_use]
pub fn described(plan: &Plan) -> String {
    // Ticks count from the start of the system.
    let text = format!("{}boot {}\n{}", description::own(), boot_id(), carry_over::describe(plan));
    text.trim_end().to_owned()
}

/// Which run of the system this is. Read once: a running gateway may not look there any more.
pub(crate) fn boot_id() -> &'static str {
    static BOOT_ID: LazyLock<String> = LazyLock::new(|| {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
    });
    &BOOT_ID
}

/// Tables that do not fit.
#[derive(Debug)]
pub(crate) enum Migration {
    /// Of this run of the system: what may be is carried over.
    CarryOver(Box<CarryOver>),
    /// Of an earlier one: everything has ended.
    Reboot(Box<Rebooted>),
}

/// Tables of an earlier run of the system.
#[derive(Debug)]
pub(crate) struct Rebooted {
    tables: FormerTables,
    was: FormerPlan,
    /// The last moment that is known, on both clocks.
    last: (Utc, u64),
}

impl Migration {
    /// Of the tables in `memory`, about which `text` is, to `tables` for `plan`.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn new(
        memory: &dyn FormerMemory,
        text: &str,
        tables: &Arc<Tables>,
        plan: &Plan,
    ) -> Result<Self, DescriptionError> {
        let description = Description::parse(text)?;
        let was = FormerPlan::parse(&description)?;
        let former = FormerTables::open(memory, &description)?;
        if description.lines("boot").next() == Some(boot_id()) {
            return Ok(Self::CarryOver(Box::new(CarryOver::new(former, was, Arc::clone(tables), plan))));
        }
        let last = Clock::read(memory).unwrap_or_else(|| (Utc::now(), 0));
        Ok(Self::Reboot(Box::new(Rebooted { tables: former, was, last })))
    }

    /// Carries over what is not yet.
    pub(crate) fn pass(&mut self) {
        if let Self::CarryOver(carry_over) = self {
            carry_over.pass(Now(monotonic_nanos()));
        }
    }

    /// The last pass: nobody writes to the old tables any more. What has ended goes to `log`, and what
    /// came of it is said.
    pub(crate) fn complete(mut self, log: Option<&EndLog>) {
        let now = Now(monotonic_nanos());
        match &mut self {
            Self::CarryOver(carry_over) => {
                let done = carry_over.pass(now);
                let mut ended = Ending::new(carry_over.was(), log, (Utc::now(), now.0));
                carry_over.tell(now, &mut ended);
                ended.flush();
                for (why, count) in ended.reasons {
                    tracing::warn!(bindings = count, "ended: {}", why.reason());
                }
                tracing::info!(
                    bindings = done.bindings,
                    sessions = done.sessions,
                    bindings_ended = done.ended,
                    sessions_refused = done.refused,
                    "state of the last run carried over to another plan"
                );
            }
            Self::Reboot(rebooted) => {
                let ended = rebooted.end(log);
                tracing::info!(bindings = ended, last = %rebooted.last.0, "state from before the system was started anew has ended");
            }
        }
    }
}

impl Rebooted {
    /// Logs the end of everything; says of how many bindings.
    fn end(&self, log: Option<&EndLog>) -> u64 {
        let mut ending = Ending::new(&self.was, log, self.last);
        let mut count = 0;
        for number in 1..=self.tables.last_binding() {
            if let Some((binding, _)) = self.tables.binding(number) {
                ending.binding(&binding, Ended::Service);
                count += 1;
            }
        }
        for number in 1..=self.tables.last_subscriber() {
            let Some(found) = self.tables.subscriber(number) else { continue };
            let service = self.was.services.get(usize::from(found.subscriber.key.service));
            let Some(size) = service.and_then(|service| service.block_size) else { continue };
            for place in found.blocks {
                let ports = block_ports(size, place);
                ending.block(&found.subscriber, (*ports.start(), *ports.end()));
            }
        }
        ending.flush();
        count
    }
}

/// Writes ends into the log, as events of services that may be gone.
struct Ending<'a> {
    was: &'a FormerPlan,
    log: Option<&'a EndLog>,
    /// When everything ended, on both clocks.
    at: (Utc, u64),
    reasons: BTreeMap<Ended, u64>,
}

impl<'a> Ending<'a> {
    fn new(was: &'a FormerPlan, log: Option<&'a EndLog>, at: (Utc, u64)) -> Self {
        Self { was, log, at, reasons: BTreeMap::new() }
    }

    fn name(&self, service: u8) -> &str {
        self.was.services.get(usize::from(service)).map_or("gone", |service| &service.name)
    }

    /// The time of `tick`, by a clock that may be of an earlier run of the system.
    fn time(&self, tick: Tick) -> Utc {
        let (utc, nanos) = self.at;
        let ago = nanos.saturating_sub(u64::from(tick.0) << Tick::SHIFT) / 1_000_000_000;
        Utc(utc.0.saturating_sub(ago))
    }

    fn flush(&self) {
        if let Some(log) = self.log {
            log.sync();
        }
    }
}

impl Ends for Ending<'_> {
    fn binding(&mut self, binding: &Binding, why: Ended) {
        *self.reasons.entry(why).or_default() += 1;
        let Some(log) = self.log else { return };
        let service = self.was.services.get(usize::from(binding.inside.service));
        let is_fixed = matches!(binding.origin(), Origin::Configured | Origin::Operator);
        let has_block = !is_fixed && service.is_some_and(|service| service.block_size.is_some());
        if log.detail == LogDetail::Bindings || !has_block {
            let name = self.name(binding.inside.service);
            log.write(&Event::Binding(BindingEvent::ended(name, binding, self.at.0, self.time(binding.created))));
        }
    }

    fn block(&mut self, subscriber: &Subscriber, ports: (u16, u16)) {
        if let Some(log) = self.log {
            let name = self.name(subscriber.key.service);
            log.write(&Event::Block(BlockEvent::released(name, subscriber, ports, self.at.0, None)));
        }
    }
}

//! The thread that writes the log.
//!
//! Bindings are found by a walk over the table once a second, not reported by the workers: a packet
//! costs nothing more, what the kernel's fast path made is found like everything else, and nothing
//! is lost when more come than may be written, since a binding stays in the table much longer than
//! the walk takes. Whoever removes a binding reports it, and never waits: what does not fit is lost,
//! counted, and told in the log. A moment is exact to one tick, about a second; since a port is not
//! handed out again for longer than that, or only to one who differs otherwise, nobody is taken for
//! another.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tombolo_config::{Collector, LogDetail};
use tombolo_engine::Plan;
use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, InsideKey};

use super::blocks::{BlockWalk, is_logged};
use super::chain::Chain;
use super::collectors::{Collectors, Feed};
use super::event::{BindingEvent, BlockEvent, Event, SessionEvent};
use super::file::{Found, LogFile};
use super::marks::{MarkKind, StateFound, StateLeft};
use super::output::Output;
use super::removals::{Removal, Removals};
use super::sessions::SessionWalk;
use crate::table_clock::Clock;
use crate::threads::Guarded;
use crate::utc::{Moment, Utc};

/// Steps of a walk over all bindings, and their pace: one second for all.
const STEPS: usize = 5;
pub(super) const STEP: Duration = Duration::from_millis(200);
/// Bindings in a part of the walk.
const PART: usize = 64;
/// Seconds between two lines that say how far the log is complete.
const COMPLETE: u64 = 10;
/// Seconds that what is complete stays behind: a tick, and a thread that has removed a binding and not
/// yet said so.
const BEHIND: u64 = 3;
/// Seconds by which the clock may be off without somebody having set it.
const DRIFT: u64 = 2;

/// What a log has to do with, whatever is logged where.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    pub(crate) tables: Arc<Tables>,
    pub(crate) plan: Arc<ArcSwap<Plan>>,
    /// Where the time is noted as long as the log goes on.
    pub(crate) clock: Clock,
    /// Name of the gateway's device.
    pub(crate) gateway: String,
    /// Which run of the system this is.
    pub(crate) boot: String,
    /// Name of this host.
    pub(crate) host: String,
    pub(crate) guarded: Guarded,
}

/// The name of this host, which a running gateway may not read any more.
pub(crate) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// What is logged where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogSettings {
    /// The file.
    pub(crate) path: PathBuf,
    /// Lines a second at most. Those of blocks, which are few, are not counted.
    pub(crate) rate: u32,
    /// Whether bindings in blocks have lines of their own.
    pub(crate) detail: LogDetail,
    /// Who gets it as well.
    pub(crate) collectors: Vec<Collector>,
}

/// What a log is to be from now on.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) settings: LogSettings,
    /// Another file.
    pub(super) file: Option<(LogFile, Found)>,
    /// Threads of collectors that are new.
    pub(super) feeds: Vec<Feed>,
}

pub(super) fn lock(output: &Mutex<Output>) -> MutexGuard<'_, Output> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
pub(super) struct Writer {
    ground: Ground,
    settings: LogSettings,
    removals: Removals,
    waiting: Receiver<Removal>,
    pub(super) output: Arc<Mutex<Output>>,
    blocks: BlockWalk,
    sessions: SessionWalk,
    /// By number of the binding, by what the one that was last logged is known; 0 if there was none.
    known: Vec<u32>,
    /// What was made before this tick is not new.
    began: u32,
    part: usize,
    steps: usize,
    /// Lines that may be written in this step.
    budget: usize,
    progress: Progress,
}

/// How far the log is complete.
#[derive(Debug)]
struct Progress {
    /// When all removals before had been written.
    drained: Utc,
    /// When the walk began that is under way,
    began: Utc,
    /// and the last one that came to its end.
    walked: Option<Utc>,
    /// When that was last written.
    told: Utc,
    /// The last step, on both clocks.
    last: Moment,
}

impl Progress {
    const fn new(moment: Moment) -> Self {
        Self { drained: moment.utc, began: moment.utc, walked: None, told: Utc(0), last: moment }
    }

    /// Everything until then has been written, if anything is known of that.
    fn complete(&self) -> Option<Utc> {
        Some(Utc(self.walked?.0.min(self.drained.0).saturating_sub(BEHIND)))
    }

    /// What the clock would show if nobody had set it, if somebody has.
    fn before_set(&mut self, moment: Moment) -> Option<Utc> {
        let last = std::mem::replace(&mut self.last, moment);
        let passed = moment.now.0.saturating_sub(last.now.0) / 1_000_000_000;
        let expected = last.utc.0 + passed;
        (expected.abs_diff(moment.utc.0) > DRIFT).then_some(Utc(expected))
    }
}

impl Writer {
    /// Of a log that [begins](Self::begin) later.
    ///
    /// # Errors
    /// If there are no more threads for collectors.
    pub(super) fn new(
        ground: &Ground,
        settings: &LogSettings,
        file: LogFile,
        removals: &Removals,
        moment: Moment,
    ) -> io::Result<Self> {
        let mut collectors = Collectors::none(&ground.host, &ground.guarded);
        let feeds = collectors.prepare(&settings.collectors)?;
        collectors.follow(&settings.collectors, feeds);
        let (losses, health) = (Arc::clone(removals.losses()), Arc::clone(&ground.guarded.health));
        let output = Output::new(file, collectors, losses, health, moment.utc);
        Ok(Self {
            known: vec![0; ground.tables.bindings.capacity() as usize + 1],
            ground: ground.clone(),
            settings: settings.clone(),
            removals: removals.clone(),
            waiting: sync_channel(0).1,
            output: Arc::new(Mutex::new(output)),
            blocks: BlockWalk::new(moment.utc),
            sessions: SessionWalk::new(),
            began: moment.now.tick().0,
            part: 0,
            steps: 0,
            budget: 0,
            progress: Progress::new(moment),
        })
    }

    /// Removals come here from now on; what there is comes with the next steps.
    pub(super) fn begin(&mut self, found: Found, state: StateFound, moment: Moment) {
        self.waiting = self.removals.begin();
        let shared = Arc::clone(&self.output);
        let mut output = lock(&shared);
        self.removals.deliver_to(output.collectors.deliveries());
        output.file.begin_after(Chain::default(), moment.utc);
        output.start(found, self.start_mark(found, state, moment), moment.utc);
        self.begin_again(moment);
        if state == StateFound::None {
            // What there is was made by this gateway: static bindings are, before the log begins.
            self.began = 0;
        }
    }

    fn start_mark(&self, found: Found, state: StateFound, moment: Moment) -> MarkKind {
        MarkKind::Start {
            gateway: self.ground.gateway.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state,
            boot: self.ground.boot.clone(),
            uptime: moment.uptime(),
            torn: found.torn,
        }
    }

    /// Goes on otherwise. Another file, or lines about something else, begin as a log begins, so that who
    /// reads it knows what to expect of it.
    pub(super) fn change(&mut self, Change { settings, file, feeds }: Change, moment: Moment) {
        let begins = file.is_some() || settings.detail != self.settings.detail;
        if begins {
            self.stop(StateLeft::Tables, moment);
        }
        let shared = Arc::clone(&self.output);
        let mut output = lock(&shared);
        output.collectors.follow(&settings.collectors, feeds);
        self.removals.deliver_to(output.collectors.deliveries());
        self.settings = settings;
        if begins {
            let found = file.map_or(Found { has_lines: true, torn: None }, |(file, found)| {
                output.exchange(file, moment.utc);
                found
            });
            output.start(found, self.start_mark(found, StateFound::Tables, moment), moment.utc);
            self.begin_again(moment);
        }
    }

    /// Writes what may be written in a fifth of a second.
    pub(super) fn step_at_rate(&mut self, moment: Moment) {
        self.step((self.settings.rate as usize).div_ceil(STEPS), moment);
    }

    /// Writes at most `budget` lines: removals first, then a part of the walk over the bindings.
    pub(super) fn step(&mut self, budget: usize, moment: Moment) {
        let plan = self.ground.plan.load_full();
        self.ground.clock.note(moment);
        // A part of the walk takes so many at once; what a low rate leaves adds up until then.
        self.budget = (self.budget + budget).min(budget.max(PART));
        let shared = Arc::clone(&self.output);
        let mut output = lock(&shared);
        output.begin_step(moment.utc);
        let set = self.progress.before_set(moment);
        if let Some(before) = set {
            output.mark(moment.utc, MarkKind::ClockSet { before });
            output.flush();
            output.sync();
        }
        if set.is_some() | output.has_forgotten() {
            self.begin_again(moment);
        }
        if self.write_removals(&plan, moment, &mut output) {
            self.progress.drained = moment.utc;
        }
        if self.steps.is_multiple_of(STEPS) {
            self.blocks.walk(&self.ground.tables, &plan, moment, &mut |event: &BlockEvent<'_>| {
                output.event(&Event::Block(*event));
            });
            self.walk_sessions(&plan, moment, &mut output);
        }
        self.steps += 1;
        self.walk(&plan, moment, &mut output);
        output.flush();
        if let Some(until) = self.complete()
            && moment.utc.0 >= self.progress.told.0 + COMPLETE
        {
            self.progress.told = moment.utc;
            output.complete(moment, until);
        }
    }

    /// Until when everything has been written, if anything is known of that.
    fn complete(&self) -> Option<Utc> {
        let bindings = self.progress.complete()?;
        match self.settings.detail {
            LogDetail::Sessions => Some(bindings.min(self.sessions.whole()?)),
            LogDetail::Bindings | LogDetail::Blocks => Some(bindings),
        }
    }

    /// Everything that is there is said again: lines about it were lost, or have times of another clock.
    fn begin_again(&mut self, moment: Moment) {
        self.began = moment.now.tick().0;
        self.known.fill(0);
        self.blocks = BlockWalk::new(moment.utc);
        self.sessions = SessionWalk::new();
        self.progress = Progress::new(moment);
        (self.part, self.steps) = (0, 0);
    }

    /// Writes removals. True if none waits any more.
    fn write_removals(&mut self, plan: &Plan, moment: Moment, output: &mut Output) -> bool {
        while self.budget > 0 {
            let Ok(Removal { binding, at }) = self.waiting.try_recv() else { return true };
            if is_logged(plan, &binding, self.settings.detail) {
                output.event(&Event::Binding(BindingEvent::removed(plan, &binding, at, moment)));
                self.budget -= 1;
            }
        }
        false
    }

    /// Looks at the sessions, if they are logged.
    fn walk_sessions(&mut self, plan: &Plan, moment: Moment, output: &mut Output) {
        if self.settings.detail == LogDetail::Sessions {
            // What is left of the step; a walk over all of them takes what a second has.
            let budget = self.budget.saturating_mul(STEPS);
            let mut log = |event: &SessionEvent<'_>| output.event(&Event::Session(*event));
            let written = self.sessions.walk(&self.ground.tables, plan, moment, budget, &mut log);
            self.budget = self.budget.saturating_sub(written);
        }
    }

    /// Looks at a part of the bindings.
    fn walk(&mut self, plan: &Plan, moment: Moment, output: &mut Output) {
        let parts = self.ground.tables.bindings.parts();
        for _ in 0..parts.div_ceil(STEPS) {
            if self.budget < PART {
                break;
            }
            if self.part == 0 {
                self.progress.began = moment.utc;
            }
            self.budget -= self.look(self.part, plan, moment, output);
            self.part = (self.part + 1) % parts;
            if self.part == 0 {
                self.progress.walked = Some(self.progress.began);
            }
        }
    }

    /// Writes what is left, at whatever rate, and that the log ends. What is in the tables ends with it if
    /// nothing is left of them.
    pub(super) fn stop(&mut self, state: StateLeft, moment: Moment) {
        (self.part, self.steps) = (0, 0);
        (0..=STEPS).for_each(|_| self.step(usize::MAX / 2, moment));
        let shared = Arc::clone(&self.output);
        let mut output = lock(&shared);
        output.begin_step(moment.utc);
        if state == StateLeft::None {
            self.end_all(moment, &mut output);
        }
        output.mark(moment.utc, MarkKind::Stop { state });
        output.flush();
        output.sync();
    }

    /// Logs the end of everything that is in the tables.
    fn end_all(&mut self, moment: Moment, output: &mut Output) {
        let plan = self.ground.plan.load_full();
        for id in self.ground.tables.bindings.iter() {
            if let Some((binding, _)) = self.ground.tables.bindings.read(id)
                && is_logged(&plan, &binding, self.settings.detail)
            {
                output.event(&Event::Binding(BindingEvent::removed(&plan, &binding, moment.utc, moment)));
            }
        }
        self.sessions.end(&plan, moment, &mut |event: &SessionEvent<'_>| output.event(&Event::Session(*event)));
        self.blocks.end(&plan, moment, &mut |event: &BlockEvent<'_>| output.event(&Event::Block(*event)));
        output.mark(moment.utc, MarkKind::AllRemoved);
    }

    /// Logs the new bindings of one part of the table; says how many.
    fn look(&mut self, part: usize, plan: &Plan, moment: Moment, output: &mut Output) -> usize {
        let mut written = 0;
        for id in self.ground.tables.bindings.used(part) {
            let Some((binding, _)) = self.ground.tables.bindings.read(id) else { continue };
            let known = &mut self.known[id.get() as usize];
            if std::mem::replace(known, mark_of(&binding)) == mark_of(&binding) {
                continue;
            }
            if !is_logged(plan, &binding, self.settings.detail) {
                continue;
            }
            let event = if binding.created.0 < self.began { "adopted" } else { "created" };
            output.event(&Event::Binding(BindingEvent::begun(plan, event, &binding, moment)));
            written += 1;
        }
        written
    }
}

/// By what a binding is known from the one that had its number before, in the same second too.
fn mark_of(binding: &Binding) -> u32 {
    let InsideKey { ipv6, ipv4, port, service, protocol } = binding.inside;
    let [high, low] = [0, 8].map(|from| u64::from_be_bytes(std::array::from_fn(|at| ipv6[from + at])));
    let inside = u64::from(u32::from_be_bytes(ipv4)) << 32 | u64::from(u16::from_be_bytes(port)) << 16;
    let inside = inside | u64::from(service) << 8 | u64::from(protocol);
    let place = u64::from(binding.created.0) << 32 | u64::from(binding.outside_slot);
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let hash = [high, low, inside, place].into_iter().fold(0, mix).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    u32::try_from(hash >> 32).unwrap_or_default() | 1
}

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
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use tombolo_config::{Collector, LogDetail};
use tombolo_engine::Plan;
use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, InsideKey};

use super::blocks::{BlockWalk, is_logged};
use super::chain::Chain;
use super::collectors::{Collectors, Delivery};
use super::event::{BindingEvent, BlockEvent, Event};
use super::file::LogFile;
use super::losses::Losses;
use super::marks::{MarkKind, StateFound, StateLeft};
use super::output::Output;
use crate::table_clock::Clock;
use crate::threads::{self, Guarded};
use crate::utc::{Moment, Utc};

/// Removals that may wait to be written. More are lost.
const WAITING: usize = 1 << 16;
/// Steps of a walk over all bindings, and their pace: one second for all.
const STEPS: usize = 5;
const STEP: Duration = Duration::from_millis(200);
/// Bindings in a part of the walk.
const PART: usize = 64;
/// Seconds between two lines that say how far the log is complete.
const COMPLETE: u64 = 10;
/// Seconds that what is complete stays behind: a tick, and a thread that has removed a binding and not
/// yet said so.
const BEHIND: u64 = 3;
/// Seconds by which the clock may be off without somebody having set it.
const DRIFT: u64 = 2;

/// A binding that was removed, and when.
#[derive(Debug, Clone, Copy)]
struct Removal {
    binding: Binding,
    at: Utc,
}

/// Where removals are reported. Clones are of the same log.
#[derive(Debug, Clone, Default)]
pub struct Removals {
    log: Option<SyncSender<Removal>>,
    pub(super) losses: Arc<Losses>,
    deliveries: Arc<[Arc<Delivery>]>,
}

impl Removals {
    /// Reports that `binding` was removed just now. Never waits.
    pub fn report(&self, binding: &Binding) {
        if self.log.is_some() {
            self.report_at(binding, Utc::now());
        }
    }

    /// The same, of another moment.
    pub(super) fn report_at(&self, binding: &Binding, at: Utc) {
        let Some(log) = &self.log else { return };
        if log.try_send(Removal { binding: *binding, at }).is_err() {
            self.losses.add(1, at);
        }
    }

    /// Events that could not be logged.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.count()
    }

    /// What collectors have got of the log.
    #[must_use]
    pub fn deliveries(&self) -> &[Arc<Delivery>] {
        &self.deliveries
    }
}

/// What is logged where.
#[derive(Debug, Clone)]
pub(crate) struct LogSettings<'a> {
    /// The file.
    pub path: &'a Path,
    /// Lines a second at most. Those of blocks, which are few, are not counted.
    pub rate: u32,
    /// Whether bindings in blocks have lines of their own.
    pub detail: LogDetail,
    /// Who gets it as well.
    pub collectors: &'a [Collector],
    /// Name of the gateway's device.
    pub gateway: &'a str,
    /// Which run of the system this is.
    pub boot: &'a str,
    /// The tables are new: whatever the log has open has ended without a line.
    pub is_fresh: bool,
    /// Where the time is noted as long as the log goes on.
    pub clock: Clock,
}

/// The thread that writes the log.
#[derive(Debug)]
pub(crate) struct BindingLog {
    thread: JoinHandle<Writer>,
    ends: EndLog,
}

impl BindingLog {
    /// Opens the file and starts the thread; it ends when `stop` is given. If it panics the gateway
    /// ends: it could not say any more who had which port.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(crate) fn start(
        settings: LogSettings<'_>,
        tables: Arc<Tables>,
        plan: Arc<ArcSwap<Plan>>,
        guarded: Guarded,
    ) -> io::Result<(Self, Removals)> {
        let budget = (settings.rate as usize).div_ceil(STEPS);
        let (mut writer, removals) = Writer::open(settings, tables, plan, &guarded, Moment::current())?;
        let ends = EndLog { output: Arc::clone(&writer.output), detail: writer.detail };
        let stop = guarded.stop.clone();
        let thread = threads::spawn(guarded, move || {
            while !stop.is_given() {
                tombolo_io::fault::trip("thread-log");
                writer.step(budget, Moment::current());
                std::thread::park_timeout(STEP);
            }
            writer
        })?;
        Ok((Self { thread, ends }, removals))
    }

    /// Where ends are written that the tables do not know of.
    pub(crate) fn ends(&self) -> &EndLog {
        &self.ends
    }

    /// Waits for its end. If the tables are not `kept`, all bindings in them end, and that is logged.
    pub(crate) fn join(self, kept: bool) {
        self.thread.thread().unpark();
        if let Ok(mut writer) = self.thread.join() {
            writer.stop(kept, Moment::current());
        }
    }
}

/// The file of the log, for ends that are written beside its thread.
#[derive(Debug, Clone)]
pub(crate) struct EndLog {
    output: Arc<Mutex<Output>>,
    /// Whether bindings in blocks have lines of their own.
    pub(crate) detail: LogDetail,
}

impl EndLog {
    /// Writes a line.
    pub(crate) fn write(&self, event: &Event<'_>) {
        lock(&self.output).event(event);
    }

    /// What was written is on the disk.
    pub(crate) fn sync(&self) {
        let mut output = lock(&self.output);
        output.flush();
        output.sync();
    }
}

pub(super) fn lock(output: &Mutex<Output>) -> MutexGuard<'_, Output> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
pub(super) struct Writer {
    tables: Arc<Tables>,
    plan: Arc<ArcSwap<Plan>>,
    waiting: Receiver<Removal>,
    pub(super) output: Arc<Mutex<Output>>,
    clock: Clock,
    detail: LogDetail,
    blocks: BlockWalk,
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
    /// Opens the file, and writes that a gateway begins.
    pub(super) fn open(
        LogSettings { path, gateway, boot, detail, collectors, is_fresh, clock, .. }: LogSettings<'_>,
        tables: Arc<Tables>,
        plan: Arc<ArcSwap<Plan>>,
        guarded: &Guarded,
        moment: Moment,
    ) -> io::Result<(Self, Removals)> {
        let (log, waiting) = sync_channel(WAITING);
        let losses = Arc::<Losses>::default();
        let collectors = Collectors::start(collectors, &host_name(), guarded)?;
        let deliveries = collectors.deliveries().into();
        let removals = Removals { log: Some(log), losses: Arc::clone(&losses), deliveries };
        let (file, found) = LogFile::open(path, Chain::default(), moment.utc)?;
        let mut output = Output::new(file, collectors, losses, Arc::clone(&guarded.health), moment.utc);
        let start = MarkKind::Start {
            gateway: gateway.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: if is_fresh { StateFound::None } else { StateFound::Tables },
            boot: boot.to_owned(),
            uptime: moment.uptime(),
            torn: found.torn,
        };
        output.start(found, start, moment.utc);
        let known = vec![0; tables.bindings.capacity() as usize + 1];
        let writer = Self {
            tables,
            plan,
            waiting,
            output: Arc::new(Mutex::new(output)),
            clock,
            detail,
            known,
            blocks: BlockWalk::new(moment.utc),
            began: moment.now.tick().0,
            part: 0,
            steps: 0,
            budget: 0,
            progress: Progress::new(moment),
        };
        Ok((writer, removals))
    }

    /// Writes at most `budget` lines: removals first, then a part of the walk over the bindings.
    pub(super) fn step(&mut self, budget: usize, moment: Moment) {
        let plan = self.plan.load_full();
        self.clock.note(moment);
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
            self.blocks.walk(&self.tables, &plan, moment, &mut |event: &BlockEvent<'_>| {
                output.event(&Event::Block(*event));
            });
        }
        self.steps += 1;
        self.walk(&plan, moment, &mut output);
        output.flush();
        if let Some(until) = self.progress.complete()
            && moment.utc.0 >= self.progress.told.0 + COMPLETE
        {
            self.progress.told = moment.utc;
            output.complete(moment, until);
        }
    }

    /// Everything that is there is said again: lines about it were lost, or have times of another clock.
    fn begin_again(&mut self, moment: Moment) {
        self.began = moment.now.tick().0;
        self.known.fill(0);
        self.blocks = BlockWalk::new(moment.utc);
        self.progress = Progress::new(moment);
        (self.part, self.steps) = (0, 0);
    }

    /// Writes removals. True if none waits any more.
    fn write_removals(&mut self, plan: &Plan, moment: Moment, output: &mut Output) -> bool {
        while self.budget > 0 {
            let Ok(Removal { binding, at }) = self.waiting.try_recv() else { return true };
            if is_logged(plan, &binding, self.detail) {
                output.event(&Event::Binding(BindingEvent::removed(plan, &binding, at, moment)));
                self.budget -= 1;
            }
        }
        false
    }

    /// Looks at a part of the bindings.
    fn walk(&mut self, plan: &Plan, moment: Moment, output: &mut Output) {
        let parts = self.tables.bindings.parts();
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

    /// Writes what is left, at whatever rate, and that the gateway ends. What is in the tables ends with
    /// it unless they are kept.
    pub(super) fn stop(&mut self, is_kept: bool, moment: Moment) {
        (self.part, self.steps) = (0, 0);
        (0..=STEPS).for_each(|_| self.step(usize::MAX / 2, moment));
        let shared = Arc::clone(&self.output);
        let mut output = lock(&shared);
        output.begin_step(moment.utc);
        if !is_kept {
            self.end_all(moment, &mut output);
        }
        let state = if is_kept { StateLeft::Tables } else { StateLeft::None };
        output.mark(moment.utc, MarkKind::Stop { state });
        output.flush();
        output.sync();
    }

    /// Logs the end of everything that is in the tables.
    fn end_all(&mut self, moment: Moment, output: &mut Output) {
        let plan = self.plan.load_full();
        for id in self.tables.bindings.iter() {
            if let Some((binding, _)) = self.tables.bindings.read(id)
                && is_logged(&plan, &binding, self.detail)
            {
                output.event(&Event::Binding(BindingEvent::removed(&plan, &binding, moment.utc, moment)));
            }
        }
        self.blocks.end(&plan, moment, &mut |event: &BlockEvent<'_>| output.event(&Event::Block(*event)));
        output.mark(moment.utc, MarkKind::AllRemoved);
    }

    /// Logs the new bindings of one part of the table; says how many.
    fn look(&mut self, part: usize, plan: &Plan, moment: Moment, output: &mut Output) -> usize {
        let mut written = 0;
        for id in self.tables.bindings.used(part) {
            let Some((binding, _)) = self.tables.bindings.read(id) else { continue };
            let known = &mut self.known[id.get() as usize];
            if std::mem::replace(known, mark_of(&binding)) == mark_of(&binding) {
                continue;
            }
            if !is_logged(plan, &binding, self.detail) {
                continue;
            }
            let event = if binding.created.0 < self.began { "adopted" } else { "created" };
            output.event(&Event::Binding(BindingEvent::begun(plan, event, &binding, moment)));
            written += 1;
        }
        written
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
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

//! The log of bindings: who had which outside endpoint, and when (RFC 6888 REQ-12), as JSON Lines,
//! without destinations (RFC 6888 section 4, RFC 7422 section 1).
//!
//! Bindings are found by a walk over the table once a second, not reported by the workers: a packet
//! costs nothing more, what the kernel's fast path made is found like everything else, and nothing
//! is lost when more come than may be written, since a binding stays in the table much longer than
//! the walk takes. Whoever removes a binding reports it. A moment is exact to one tick, about a
//! second; since a port is not handed out again for longer than that, or only to one who differs
//! otherwise, nobody is taken for another.
//!
//! The file is opened again when somebody has moved it away, as log rotation does.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use serde::Serialize;
use tombolo_config::LogDetail;
use tombolo_engine::{Now, Plan};
use tombolo_io::clock::monotonic_nanos;
use tombolo_tables::Tables;
use tombolo_tables::binding::Binding;

use crate::block_log::{BlockEvent, BlockWalk, is_logged};
use crate::table_clock::Clock;
use crate::table_rows::BindingEvent;
use crate::threads::{self, Guarded};
use crate::utc::{Moment, Utc};

/// Removals that may wait to be written. More are counted as lost.
const WAITING: usize = 1 << 16;
/// Steps of a walk over all bindings, and their pace: one second for all.
const STEPS: usize = 5;
const STEP: Duration = Duration::from_millis(200);
/// Seconds between two notes that the log goes on.
const ALIVE: usize = 10;

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
    lost: Arc<AtomicU64>,
}

impl Removals {
    /// Reports that `binding` was removed just now. Never waits.
    pub fn report(&self, binding: &Binding) {
        if let Some(log) = &self.log
            && log.try_send(Removal { binding: *binding, at: Utc::now() }).is_err()
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removals that could not be logged.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// What is logged where.
#[derive(Debug, Clone)]
pub struct LogSettings<'a> {
    /// The file.
    pub path: &'a Path,
    /// Lines a second at most. Those of blocks, which are few, are not counted.
    pub rate: u32,
    /// Whether bindings in blocks have lines of their own.
    pub detail: LogDetail,
    /// The tables are new: whatever the log has open has ended without a line.
    pub is_fresh: bool,
    /// Where the time is noted as long as the log goes on.
    pub clock: Clock,
}

/// The thread that writes the log.
#[derive(Debug)]
pub struct BindingLog {
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
        LogSettings { path, rate, detail, is_fresh, clock }: LogSettings<'_>,
        tables: Arc<Tables>,
        plan: Arc<ArcSwap<Plan>>,
        guarded: Guarded,
    ) -> std::io::Result<(Self, Removals)> {
        let (log, waiting) = sync_channel(WAITING);
        let removals = Removals { log: Some(log), lost: Arc::default() };
        let before = if is_fresh { last_written(path) } else { None };
        let mut file = Output::open(path)?;
        if let Some(time) = before {
            file.write(&AllRemoved::at(time));
            file.flush();
        }
        let file = Arc::new(Mutex::new(file));
        let ends = EndLog { file: Arc::clone(&file), detail };
        let known = vec![0; tables.bindings.capacity() as usize + 1];
        let began = Now(monotonic_nanos()).tick().0;
        let blocks = BlockWalk::new(Utc::now());
        let mut writer = Writer { tables, plan, waiting, file, clock, detail, known, blocks, began, part: 0, steps: 0 };
        let budget = (rate as usize).div_ceil(STEPS);
        let stop = guarded.stop.clone();
        let thread = threads::spawn(guarded, move || {
            while !stop.is_given() {
                tombolo_io::fault::trip("thread-log");
                writer.step(budget);
                std::thread::park_timeout(STEP);
            }
            // What the last moments brought, at whatever rate.
            (writer.part, writer.steps) = (0, 0);
            (0..=STEPS).for_each(|_| writer.step(WAITING));
            writer
        })?;
        Ok((Self { thread, ends }, removals))
    }

    /// Where ends are written that the tables do not know of.
    pub(crate) fn ends(&self) -> &EndLog {
        &self.ends
    }

    /// Waits for its end. If the tables are not `kept`, all bindings in them end, and that is logged.
    pub fn join(self, kept: bool) {
        self.thread.thread().unpark();
        if let Ok(mut writer) = self.thread.join()
            && !kept
        {
            writer.end_all();
        }
    }
}

/// The file of the log, for ends that are written beside its thread.
#[derive(Debug, Clone)]
pub(crate) struct EndLog {
    file: Arc<Mutex<Output>>,
    /// Whether bindings in blocks have lines of their own.
    pub(crate) detail: LogDetail,
}

impl EndLog {
    /// Writes a line.
    pub(crate) fn write(&self, event: &impl Serialize) {
        lock(&self.file).write(event);
    }

    /// What was written is on the disk.
    pub(crate) fn sync(&self) {
        let mut file = lock(&self.file);
        file.flush();
        // A disk that cannot be reached was noted when it was written to.
        let _ = file.file.get_ref().sync_data();
    }
}

fn lock(file: &Mutex<Output>) -> MutexGuard<'_, Output> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Everything that was open has ended, by this time at the latest.
#[derive(Debug, Serialize)]
struct AllRemoved {
    time: String,
    event: &'static str,
}

/// Name of the event.
pub(crate) const ALL_REMOVED: &str = "all-removed";

impl AllRemoved {
    fn at(time: Utc) -> Self {
        Self { time: time.to_string(), event: ALL_REMOVED }
    }
}

/// When the log was last written, if something may be open in it.
fn last_written(path: &Path) -> Option<Utc> {
    let mut file = File::open(path).ok()?;
    let found = file.metadata().ok()?;
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(found.len().saturating_sub(4096))).ok()?;
    file.read_to_end(&mut end).ok()?;
    let text = String::from_utf8_lossy(&end);
    let last = text.lines().rfind(|line| !line.is_empty())?;
    (!last.contains(ALL_REMOVED)).then(|| Utc::of(found.modified().unwrap_or_else(|_| SystemTime::now())))
}

#[derive(Debug)]
struct Writer {
    tables: Arc<Tables>,
    plan: Arc<ArcSwap<Plan>>,
    waiting: Receiver<Removal>,
    file: Arc<Mutex<Output>>,
    clock: Clock,
    detail: LogDetail,
    blocks: BlockWalk,
    /// By number of the binding, the tick at which the one that was last logged was made.
    known: Vec<u32>,
    began: u32,
    part: usize,
    steps: usize,
}

impl Writer {
    /// Writes at most `budget` lines: removals first, then a part of the walk over the bindings.
    fn step(&mut self, mut budget: usize) {
        let now = Now(monotonic_nanos());
        let plan = self.plan.load_full();
        self.clock.note();
        let shared = Arc::clone(&self.file);
        let mut file = lock(&shared);
        file.reopen_if_moved();
        if self.steps.is_multiple_of(STEPS * ALIVE) {
            file.note_alive();
        }
        while budget > 0
            && let Ok(Removal { binding, at }) = self.waiting.try_recv()
        {
            if is_logged(&plan, &binding, self.detail) {
                file.write(&BindingEvent::of(&plan, "removed", &binding, Some(at), now));
                budget -= 1;
            }
        }
        if self.steps.is_multiple_of(STEPS) {
            self.blocks.walk(&self.tables, &plan, Moment { now, utc: Utc::now() }, &mut |event: &BlockEvent<'_>| {
                file.write(event)
            });
        }
        self.steps += 1;
        let parts = self.tables.bindings.parts();
        for _ in 0..parts.div_ceil(STEPS) {
            if budget < 64 {
                break;
            }
            budget -= self.look(self.part, &plan, now, &mut file);
            self.part = (self.part + 1) % parts;
        }
        file.flush();
    }

    /// Logs the end of everything that is in the tables.
    fn end_all(&mut self) {
        let (now, utc) = (Now(monotonic_nanos()), Utc::now());
        let plan = self.plan.load_full();
        let mut file = lock(&self.file);
        for id in self.tables.bindings.iter() {
            if let Some((binding, _)) = self.tables.bindings.read(id)
                && is_logged(&plan, &binding, self.detail)
            {
                file.write(&BindingEvent::of(&plan, "removed", &binding, Some(utc), now));
            }
        }
        self.blocks.end(&plan, Moment { now, utc }, &mut |event: &BlockEvent<'_>| file.write(event));
        file.write(&AllRemoved::at(utc));
        file.flush();
    }

    /// Logs the new bindings of one part of the table; says how many.
    fn look(&mut self, part: usize, plan: &Plan, now: Now, file: &mut Output) -> usize {
        let mut written = 0;
        for id in self.tables.bindings.used(part) {
            let Some((binding, _)) = self.tables.bindings.read(id) else { continue };
            let known = &mut self.known[id.get() as usize];
            if *known == binding.created.0 {
                continue;
            }
            *known = binding.created.0;
            if !is_logged(plan, &binding, self.detail) {
                continue;
            }
            let event = if binding.created.0 < self.began { "adopted" } else { "created" };
            file.write(&BindingEvent::of(plan, event, &binding, None, now));
            written += 1;
        }
        written
    }
}

/// The file, which may be moved away, and which may be out of room.
#[derive(Debug)]
struct Output {
    path: PathBuf,
    file: BufWriter<File>,
    inode: u64,
    has_failed: bool,
}

impl Output {
    fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let inode = file.metadata()?.ino();
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file), inode, has_failed: false })
    }

    fn reopen_if_moved(&mut self) {
        if std::fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            return;
        }
        match Self::open(&self.path) {
            Ok(new) => *self = new,
            Err(error) => self.note(Err(error)),
        }
    }

    /// When the file was last changed is the time until which its last lines held, should this process
    /// be killed.
    fn note_alive(&mut self) {
        let _ = self.file.get_ref().set_modified(SystemTime::now());
    }

    fn write(&mut self, event: &impl Serialize) {
        let written = serde_json::to_writer(&mut self.file, event).map_err(Into::into);
        let result = written.and_then(|()| self.file.write_all(b"\n"));
        self.note(result);
    }

    fn flush(&mut self) {
        let result = self.file.flush();
        let works = result.is_ok();
        self.note(result);
        // Only what reached the file counts: writes into the buffer work for a while on a full disk
        // too.
        self.has_failed &= !works;
    }

    /// Logs the first failure of a series.
    fn note(&mut self, result: std::io::Result<()>) {
        if let Err(error) = result
            && !std::mem::replace(&mut self.has_failed, true)
        {
            tracing::error!("bindings are not logged: {} cannot be written: {error}", self.path.display());
        }
    }
}

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
use std::io::{BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde::Serialize;
use tombolo_config::LogDetail;
use tombolo_engine::{Now, Plan};
use tombolo_io::clock::monotonic_nanos;
use tombolo_tables::Tables;
use tombolo_tables::binding::Binding;

use crate::block_log::{BlockEvent, BlockWalk, is_logged};
use crate::table_rows::BindingEvent;
use crate::threads::{self, Guarded};
use crate::utc::{Moment, Utc};

/// Removals that may wait to be written. More are counted as lost.
const WAITING: usize = 1 << 16;
/// Steps of a walk over all bindings, and their pace: one second for all.
const STEPS: usize = 5;
const STEP: Duration = Duration::from_millis(200);

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
#[derive(Debug, Clone, Copy)]
pub struct LogSettings<'a> {
    /// The file.
    pub path: &'a Path,
    /// Lines a second at most. Those of blocks, which are few, are not counted.
    pub rate: u32,
    /// Whether bindings in blocks have lines of their own.
    pub detail: LogDetail,
}

/// The thread that writes the log.
#[derive(Debug)]
pub struct BindingLog(JoinHandle<()>);

impl BindingLog {
    /// Opens the file and starts the thread; it ends when `stop` is given. If it panics the gateway
    /// ends: it could not say any more who had which port.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(crate) fn start(
        LogSettings { path, rate, detail }: LogSettings<'_>,
        tables: Arc<Tables>,
        plan: Arc<ArcSwap<Plan>>,
        guarded: Guarded,
    ) -> std::io::Result<(Self, Removals)> {
        let (log, waiting) = sync_channel(WAITING);
        let removals = Removals { log: Some(log), lost: Arc::default() };
        let file = Output::open(path)?;
        let known = vec![0; tables.bindings.capacity() as usize + 1];
        let began = Now(monotonic_nanos()).tick().0;
        let blocks = BlockWalk::new(Utc::now());
        let mut writer = Writer { tables, plan, waiting, file, detail, known, blocks, began, part: 0, steps: 0 };
        let budget = (rate as usize).div_ceil(STEPS);
        let stop = guarded.stop.clone();
        let thread = threads::spawn(guarded, move || {
            while !stop.is_given() {
                crate::fault::trip("thread-log");
                writer.step(budget);
                std::thread::park_timeout(STEP);
            }
            // What the last moments brought, at whatever rate.
            (writer.part, writer.steps) = (0, 0);
            (0..=STEPS).for_each(|_| writer.step(WAITING));
        })?;
        Ok((Self(thread), removals))
    }

    /// Waits for its end.
    pub fn join(self) {
        self.0.thread().unpark();
        let _ = self.0.join();
    }
}

struct Writer {
    tables: Arc<Tables>,
    plan: Arc<ArcSwap<Plan>>,
    waiting: Receiver<Removal>,
    file: Output,
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
        self.file.reopen_if_moved();
        while budget > 0
            && let Ok(Removal { binding, at }) = self.waiting.try_recv()
        {
            if is_logged(&plan, &binding, self.detail) {
                self.file.write(&BindingEvent::of(&plan, "removed", &binding, Some(at), now));
                budget -= 1;
            }
        }
        if self.steps.is_multiple_of(STEPS) {
            let file = &mut self.file;
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
            budget -= self.look(self.part, &plan, now);
            self.part = (self.part + 1) % parts;
        }
        self.file.flush();
    }

    /// Logs the new bindings of one part of the table; says how many.
    fn look(&mut self, part: usize, plan: &Plan, now: Now) -> usize {
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
            self.file.write(&BindingEvent::of(plan, event, &binding, None, now));
            written += 1;
        }
        written
    }
}

/// The file, which may be moved away, and which may be out of room.
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

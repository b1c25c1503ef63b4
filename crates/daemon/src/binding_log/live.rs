//! The log as the rest of the gateway has it: begun, changed while it goes on, ended.
//!
//! A change is prepared before anything is changed: files are opened and threads started. What the process
//! may not open any more is refused then.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tombolo_config::{Host, LogDetail};

use super::event::Event;
use super::file::{Found, LogFile};
use super::marks::{StateFound, StateLeft};
use super::output::Output;
use super::removals::Removals;
use super::writer::{Change, Ground, LogSettings, STEP, Writer, lock};
use crate::threads;
use crate::utc::Moment;

/// The log, if there is one.
#[derive(Debug)]
pub(crate) struct BindingLog {
    ground: Ground,
    removals: Removals,
    at_work: Mutex<Option<AtWork>>,
}

/// A log that is written.
#[derive(Debug)]
struct AtWork {
    settings: LogSettings,
    output: Arc<Mutex<Output>>,
    /// Without it the thread ends.
    orders: SyncSender<Order>,
    thread: JoinHandle<Writer>,
}

/// What the thread is to do, and who waits for that.
#[derive(Debug)]
struct Order {
    what: What,
    done: SyncSender<()>,
}

#[derive(Debug)]
enum What {
    Begin(Found, StateFound),
    Change(Box<Change>),
}

/// A change that is prepared. Dropped, it leaves everything as it was.
#[derive(Debug)]
pub(crate) struct Prepared(Step);

#[derive(Debug)]
enum Step {
    Nothing,
    Begin { at_work: Box<AtWork>, found: Found, made: Made },
    Change { change: Box<Change>, made: Option<Made> },
    End,
}

/// A file that was not there before; it goes again unless it is used.
#[derive(Debug)]
struct Made(Option<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Made {
    fn keep(mut self) {
        self.0 = None;
    }
}

fn find(path: &Path) -> io::Result<(LogFile, Found, Made)> {
    let made = Made((!path.exists()).then(|| path.to_owned()));
    let (file, found) = LogFile::find(path)?;
    Ok((file, found, made))
}

impl LogSettings {
    /// What the settings say, if anything is to be logged.
    fn of(settings: &Host) -> Option<Self> {
        Some(Self {
            path: settings.binding_log.clone()?,
            rate: settings.binding_log_rate,
            detail: settings.binding_log_detail,
            collectors: settings.binding_log_collectors.clone(),
        })
    }
}

impl BindingLog {
    /// None is written yet.
    pub(crate) fn new(ground: Ground) -> Self {
        Self { ground, removals: Removals::default(), at_work: Mutex::default() }
    }

    /// Where removals are reported.
    pub(crate) fn removals(&self) -> &Removals {
        &self.removals
    }

    /// The file, if there is one.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.lock().as_ref().map(|at_work| at_work.settings.path.clone())
    }

    /// Opens what the settings name, and changes nothing.
    ///
    /// # Errors
    /// What the kernel says of the file, or if there are no more threads.
    pub(crate) fn prepare(&self, settings: &Host) -> io::Result<Prepared> {
        let wanted = LogSettings::of(settings);
        let at_work = self.lock();
        Ok(Prepared(match (&*at_work, wanted) {
            (None, None) => Step::Nothing,
            (Some(_), None) => Step::End,
            (Some(at_work), Some(wanted)) if at_work.settings == wanted => Step::Nothing,
            (Some(at_work), Some(wanted)) => at_work.prepare(wanted)?,
            (None, Some(wanted)) => {
                let (file, found, made) = find(&wanted.path)?;
                let at_work = self.start(wanted, file)?;
                Step::Begin { at_work: Box::new(at_work), found, made }
            }
        }))
    }

    fn start(&self, settings: LogSettings, file: LogFile) -> io::Result<AtWork> {
        let writer = Writer::new(&self.ground, &settings, file, &self.removals, Moment::current())?;
        let output = Arc::clone(&writer.output);
        let (orders, received) = sync_channel(1);
        let (guarded, stop) = (self.ground.guarded.clone(), self.ground.guarded.stop.clone());
        let thread = threads::spawn(guarded, move || write(writer, &received, || stop.is_given()))?;
        Ok(AtWork { settings, output, orders, thread })
    }

    /// Goes over to what was prepared. `state` is what a log that begins finds of earlier processes.
    pub(crate) fn put(&self, Prepared(step): Prepared, state: StateFound) {
        let mut current = self.lock();
        match step {
            Step::Nothing => {}
            Step::End => {
                if let Some(at_work) = current.take() {
                    at_work.end(StateLeft::InUse);
                    self.removals.end();
                }
            }
            Step::Begin { at_work, found, made } => {
                made.keep();
                at_work.order(What::Begin(found, state));
                *current = Some(*at_work);
            }
            Step::Change { change, made } => {
                made.into_iter().for_each(Made::keep);
                if let Some(at_work) = &mut *current {
                    at_work.settings = change.settings.clone();
                    at_work.order(What::Change(change));
                }
            }
        }
    }

    /// Where ends are written that the tables do not know of.
    pub(crate) fn ends(&self) -> Option<EndLog> {
        let at_work = self.lock();
        let AtWork { output, settings, .. } = at_work.as_ref()?;
        Some(EndLog { output: Arc::clone(output), detail: settings.detail })
    }

    /// Waits for its end. If the tables are not `kept`, all bindings in them end, and that is logged.
    pub(crate) fn join(&self, kept: bool) {
        let state = if kept { StateLeft::Tables } else { StateLeft::None };
        self.lock().take().into_iter().for_each(|at_work| at_work.end(state));
    }

    fn lock(&self) -> MutexGuard<'_, Option<AtWork>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AtWork {
    fn prepare(&self, settings: LogSettings) -> io::Result<Step> {
        let feeds = lock(&self.output).collectors.prepare(&settings.collectors)?;
        let (mut file, mut made) = (None, None);
        if settings.path != self.settings.path {
            let (opened, found, new) = find(&settings.path)?;
            (file, made) = (Some((opened, found)), Some(new));
        }
        Ok(Step::Change { change: Box::new(Change { settings, file, feeds }), made })
    }

    /// Has it done by the thread, and waits for that; not for one that has ended.
    fn order(&self, what: What) {
        let (done, waiting) = sync_channel(1);
        if self.orders.send(Order { what, done }).is_ok() {
            self.thread.thread().unpark();
            let _ = waiting.recv();
        }
    }

    fn end(self, state: StateLeft) {
        drop(self.orders);
        self.thread.thread().unpark();
        if let Ok(mut writer) = self.thread.join() {
            writer.stop(state, Moment::current());
        }
    }
}

/// The thread: waits until it shall begin, and writes until nobody has orders for it any more. If it panics
/// the gateway ends: it could not say any more who had which port.
fn write(mut writer: Writer, orders: &Receiver<Order>, is_stopped: impl Fn() -> bool) -> Writer {
    let obey = |writer: &mut Writer, Order { what, done }: Order| {
        match what {
            What::Begin(found, state) => writer.begin(found, state, Moment::current()),
            What::Change(change) => writer.change(*change, Moment::current()),
        }
        let _ = done.send(());
    };
    let Ok(first) = orders.recv() else { return writer };
    obey(&mut writer, first);
    while !is_stopped() {
        match orders.try_recv() {
            Ok(order) => obey(&mut writer, order),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => break,
        }
        tombolo_io::fault::trip("thread-log");
        writer.step_at_rate(Moment::current());
        std::thread::park_timeout(STEP);
    }
    writer
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

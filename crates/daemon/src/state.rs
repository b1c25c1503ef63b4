//! Memory for the tables. In a run directory, or in the kernel beside the fast path, it outlives
//! the process: the next one adopts tables that were made for the same layout, sizes, services and
//! pools, repairs what a crash left half-done, and goes on.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tombolo_config::{FastPath, Host, TableMemory};
use tombolo_engine::Plan;
use tombolo_engine::cluster::Cluster;
use tombolo_fastpath::file_system::{self, Lasting};
use tombolo_fastpath::{Content as PinnedContent, PinnedMemory, PinnedMemoryError};
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::fault;
use tombolo_io::memory::{AnonymousMemory, Content, Populated, RunDirectory, RunDirectoryError};
use tombolo_io::worker::processors;
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::{MemoryError, MemorySource, Slab};
use tombolo_tables::tick::Tick;
use tombolo_tables::{Tables, audit};

use crate::binding_log::live::EndLog;
use crate::directories;
use crate::error_chain::in_one_line;
use crate::holdings::Holdings;
use crate::migration::{Migration, described};
use crate::table_clock::Clock;
use crate::table_text::TableText;

/// Why there are no tables.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The run directory.
    #[error(transparent)]
    RunDirectory(#[from] RunDirectoryError),
    /// The kernel's memory.
    #[error(transparent)]
    Pinned(#[from] PinnedMemoryError),
    /// A step.
    #[error("{0} failed")]
    Step(&'static str, #[source] io::Error),
    /// The system's random numbers.
    #[error("the system gives no random numbers")]
    Random(#[from] getrandom::Error),
}

/// Fits no tables.
const NOTHING: &str = "";
/// How long a program in the kernel may take for a packet, by far.
const PAUSE: Duration = Duration::from_millis(20);

/// The tables, and the secret of this run.
#[derive(Debug)]
pub struct State {
    /// The tables.
    pub tables: Arc<Tables>,
    /// Records and entries that the last process left half-done and that were given back.
    pub repaired: usize,
    /// Seed of the engines' random numbers; new each time.
    pub seed: [u8; 32],
    /// Nothing was there: what earlier processes had is not known any more.
    pub is_fresh: bool,
    /// The time that is kept beside the tables.
    pub clock: Clock,
    /// What the tables have, where nodes agree on who has what.
    holdings: Option<Holdings>,
    memory: Memory,
    migration: Option<Migration>,
    /// Where the state came from, if that is not where the tables are.
    elsewhere: Option<Elsewhere>,
}

/// Where the tables are.
#[derive(Debug)]
enum Memory {
    /// In this process.
    Own,
    /// In files. Keeps the lock on the run directory.
    Files(RunDirectory),
    /// In the kernel, shared with the fast path.
    Kernel(PinnedMemory),
}

/// Another place that an earlier process kept its tables in.
#[derive(Debug)]
enum Elsewhere {
    Files(RunDirectory),
    Kernel(PinnedMemory),
}

impl Elsewhere {
    /// What is to be carried over from here, if it can be read.
    fn migration(&self, tables: &Arc<Tables>, plan: &Plan) -> Option<Migration> {
        match self {
            Self::Files(directory) => from_files(directory, tables, plan),
            Self::Kernel(memory) => from_kernel(memory, tables, plan),
        }
    }

    /// Whether programs in the kernel worked on it or not, they do not any more.
    fn rest(&self) {
        if let Self::Kernel(memory) = self
            && let Err(error) = memory.detach()
        {
            tracing::warn!("the fast path of an earlier run is still in the kernel: {error}");
        }
    }

    /// It is not needed any more.
    fn remove(self) {
        let removed = match self {
            Self::Files(directory) => directory.forget().map_err(|error| in_one_line(&error)),
            Self::Kernel(memory) => PinnedMemory::remove(memory.directory()).map_err(|error| error.to_string()),
        };
        if let Err(error) = removed {
            tracing::warn!("what an earlier run has left cannot be removed: {error}");
        }
    }

    /// As it was.
    fn put_back(self) {
        match self {
            Self::Files(directory) => directory.discard(),
            Self::Kernel(memory) => drop(memory.discard()),
        }
    }
}

/// What is to be carried over from files that do not fit.
fn from_files(directory: &RunDirectory, tables: &Arc<Tables>, plan: &Plan) -> Option<Migration> {
    let former = directory.former()?;
    let found = former.description().map_err(|error| error.to_string());
    readable(found.and_then(|text| Migration::new(&former, &text, tables, plan).map_err(|error| error.to_string())))
}

/// What is to be carried over from the kernel's memory that does not fit.
fn from_kernel(memory: &PinnedMemory, tables: &Arc<Tables>, plan: &Plan) -> Option<Migration> {
    let former = memory.former()?;
    let text = former.description().unwrap_or_default();
    readable(Migration::new(&former, &text, tables, plan).map_err(|error| error.to_string()))
}

fn readable(found: Result<Migration, String>) -> Option<Migration> {
    let mut migration = found.inspect_err(|error| tracing::warn!("the state of the last run is lost: {error}")).ok()?;
    migration.pass();
    Some(migration)
}

impl State {
    /// Tables with the room that `plan` asks for: in the kernel if the fast path is wanted, else as
    /// [`open`](Self::open) does.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn open_for(settings: &Host, plan: &Plan) -> Result<Self, StateError> {
        let pins = directories::of_pins(settings);
        if settings.fastpath != FastPath::Off {
            let lasting = say_how_long_pins_last();
            let is_to_be_held = settings.user.is_some() || lasting == Lasting::ThroughProcess1;
            let held = is_to_be_held.then(|| file_system::hold(&pins).ok()).flatten();
            match Self::in_kernel(held.as_deref().unwrap_or(&pins), plan) {
                Err(error) if settings.fastpath == FastPath::Auto => {
                    tracing::warn!("no fast path: {}", in_one_line(&error));
                }
                Ok(state) => {
                    let used = settings.run_directory.as_deref().filter(|path| RunDirectory::was_used(path));
                    return state.or_abandoned(|state| {
                        let elsewhere = used.map(|path| RunDirectory::open(path, NOTHING)).transpose()?;
                        elsewhere.map_or(Ok(()), |files| state.look_elsewhere(Elsewhere::Files(files), plan))
                    });
                }
                other => return other,
            }
        }
        let state = Self::open_in(settings.run_directory.as_deref(), plan, settings.memory)?;
        if !pins.exists() {
            return Ok(state);
        }
        state.or_abandoned(|state| match PinnedMemory::open(&pins, NOTHING) {
            Ok(memory) => state.look_elsewhere(Elsewhere::Kernel(memory), plan),
            // What a gateway that was killed has left in the kernel goes on with its own tables.
            Err(error) => {
                tracing::warn!("the fast path of an earlier run is still in the kernel: {error}");
                Ok(())
            }
        })
    }

    /// After a further step; if that fails, everything is as it was before.
    fn or_abandoned(mut self, step: impl FnOnce(&mut Self) -> Result<(), StateError>) -> Result<Self, StateError> {
        match step(&mut self) {
            Ok(()) => Ok(self),
            Err(error) => {
                self.abandon();
                Err(error)
            }
        }
    }

    /// Carries over what an earlier process has in another place, unless there is some in this one.
    fn look_elsewhere(&mut self, elsewhere: Elsewhere, plan: &Plan) -> Result<(), StateError> {
        let elsewhere = self.elsewhere.insert(elsewhere);
        if self.is_fresh {
            self.migration = elsewhere.migration(&self.tables, plan);
            self.is_fresh = self.migration.is_none();
        }
        step("elsewhere")
    }

    /// Carries over what an earlier process's programs have made since the tables were there: soon they
    /// are replaced, and whatever is not in the new tables then begins anew.
    pub(crate) fn catch_up(&mut self) {
        self.migration.iter_mut().for_each(Migration::pass);
    }

    /// The start is complete, and packets come: what is left to be carried over is, and the old tables
    /// go. What has ended with them is logged. Unless the kernel's programs follow the new plan, none
    /// are left.
    ///
    /// # Errors
    /// [`StateError`] if the tables cannot be marked as complete. They serve, but no later process will
    /// adopt them.
    pub(crate) fn complete(&mut self, is_accelerated: bool, log: Option<&EndLog>) -> Result<(), StateError> {
        if let Memory::Kernel(memory) = &self.memory
            && !is_accelerated
            && let Err(error) = memory.detach()
        {
            tracing::warn!("the fast path of an earlier run is still in the kernel: {error}");
        }
        if let Some(elsewhere) = &self.elsewhere {
            elsewhere.rest();
        }
        fault::trip("old-programs");
        if let Some(migration) = self.migration.take() {
            migration.complete(log);
        }
        fault::trip("carry-over-last");
        let sealed = match &self.memory {
            Memory::Own => Ok(()),
            Memory::Files(directory) => directory.seal().map_err(StateError::from),
            Memory::Kernel(memory) => memory.seal().map_err(StateError::from),
        };
        // What is there is out of date from now on, whatever came of it.
        self.elsewhere.take().into_iter().for_each(Elsewhere::remove);
        sealed?;
        fault::trip("complete");
        Ok(())
    }

    /// Tables with the room that `plan` asks for, in `directory` if one is named.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn open(directory: Option<&Path>, plan: &Plan) -> Result<Self, StateError> {
        let mut state = Self::open_in(directory, plan, TableMemory::AsNeeded)?;
        state.complete(false, None)?;
        Ok(state)
    }

    fn open_in(directory: Option<&Path>, plan: &Plan, memory: TableMemory) -> Result<Self, StateError> {
        if let Some(path) = directory {
            return Self::in_files(path, plan, memory);
        }
        let tables = make_tables(&mut AnonymousMemory, plan, HashKey::new(secret()?), memory)?;
        let beside = beside(&mut AnonymousMemory, plan)?;
        Self::of(tables, beside, Memory::Own, plan)
    }

    fn of(
        tables: Tables,
        (clock, holdings): (Clock, Option<Holdings>),
        memory: Memory,
        plan: &Plan,
    ) -> Result<Self, StateError> {
        let is_copied = plan.cluster.as_deref().is_some_and(Cluster::has_copies);
        Ok(Self {
            tables: Arc::new(if is_copied { tables.noting_changes() } else { tables }),
            repaired: 0,
            seed: random()?,
            is_fresh: true,
            clock,
            holdings,
            memory,
            migration: None,
            elsewhere: None,
        })
    }

    fn in_files(path: &Path, plan: &Plan, memory: TableMemory) -> Result<Self, StateError> {
        let mut directory = RunDirectory::open(path, &described(plan))?;
        let made = stored_key(&mut directory)
            .and_then(|key| Ok((make_tables(&mut directory, plan, key, memory)?, beside(&mut directory, plan)?)));
        let (tables, beside) = match made {
            Ok(made) => made,
            Err(error) => {
                directory.discard();
                return Err(error);
            }
        };
        let is_adopted = directory.content() == Content::Adopted;
        let state = Self::of(tables, beside, Memory::Files(directory), plan)?;
        state.or_abandoned(|state| state.take_over(is_adopted, path, plan))
    }

    /// Adopts the tables in `place`, or carries over what is there and does not fit. Programs of an
    /// earlier process may be at work on tables in the kernel all the time.
    fn take_over(&mut self, is_adopted: bool, place: &Path, plan: &Plan) -> Result<(), StateError> {
        if is_adopted {
            step("adopt")?;
            let now = Tick::from_nanos(monotonic_nanos());
            self.is_fresh = false;
            self.repaired = match &self.memory {
                Memory::Kernel(_) => audit::repair_beside(&self.tables, now, &mut || std::thread::sleep(PAUSE)),
                _ => audit::repair(&self.tables, now),
            };
            self.say_adopted(place);
            return step("repair");
        }
        self.migration = match &self.memory {
            Memory::Own => None,
            Memory::Files(directory) => from_files(directory, &self.tables, plan),
            Memory::Kernel(memory) => from_kernel(memory, &self.tables, plan),
        };
        self.is_fresh = self.migration.is_none();
        if let Memory::Kernel(memory) = &self.memory
            && self.is_fresh
        {
            // Programs that work on tables which nobody can read.
            memory.detach().map_err(|source| PinnedMemoryError::Unusable {
                path: place.to_owned(),
                action: "detaching old programs",
                source,
            })?;
        }
        step("carry-over")
    }

    fn say_adopted(&self, directory: &Path) {
        let (bindings, repaired) = (self.tables.bindings.count(), self.repaired);
        tracing::info!(directory = %directory.display(), bindings, repaired, "state of the last run adopted");
    }

    fn in_kernel(pins: &Path, plan: &Plan) -> Result<Self, StateError> {
        let mut memory = PinnedMemory::open(pins, &described(plan))?;
        let made = stored_key(&mut memory)
            .and_then(|key| Ok((Tables::new(&mut memory, plan.capacity, key)?, beside(&mut memory, plan)?)));
        let (tables, beside) = match made {
            Ok(made) => made,
            Err(error) => {
                let _ = memory.discard();
                return Err(error);
            }
        };
        let is_adopted = memory.content() == PinnedContent::Adopted;
        let state = Self::of(tables, beside, Memory::Kernel(memory), plan)?;
        state.or_abandoned(|state| state.take_over(is_adopted, pins, plan))
    }

    /// What the tables have, where nodes agree on who has what.
    pub(crate) fn holdings(&self) -> Option<&Holdings> {
        self.holdings.as_ref()
    }

    /// Memory that the kernel's programs share, if the tables are there.
    #[must_use]
    pub fn kernel_memory(&self) -> Option<&PinnedMemory> {
        match &self.memory {
            Memory::Kernel(memory) => Some(memory),
            _ => None,
        }
    }

    /// Where it is said what the tables are made for.
    #[must_use]
    pub fn text(&self) -> TableText {
        match &self.memory {
            Memory::Own => TableText::Nowhere,
            Memory::Files(directory) => TableText::Files(directory.path().to_owned()),
            Memory::Kernel(memory) => TableText::Kernel(memory.directory().to_owned()),
        }
    }

    /// The start has failed: removes what it has made. What an earlier process has left stays.
    pub fn abandon(self) {
        self.elsewhere.into_iter().for_each(Elsewhere::put_back);
        match self.memory {
            Memory::Own => {}
            Memory::Files(directory) => directory.discard(),
            Memory::Kernel(memory) => {
                let path = memory.directory().to_owned();
                if let Err(error) = memory.discard() {
                    tracing::warn!("{} cannot be removed: {error}", path.display());
                }
            }
        }
    }

    /// Gives up tables in the kernel, unless they are to be there for the next process.
    pub fn close(self, keep: bool) {
        let sealed = match &self.memory {
            Memory::Kernel(memory) if !keep => {
                PinnedMemory::remove(memory.directory()).map_err(|error| error.to_string())
            }
            // Where that failed at the start, for want of room, it may go now.
            Memory::Kernel(memory) => memory.seal().map_err(|error| in_one_line(&error)),
            Memory::Files(directory) => directory.seal().map_err(|error| in_one_line(&error)),
            Memory::Own => Ok(()),
        };
        if let Err(error) = sealed {
            tracing::warn!("the tables are not as they should be left: {error}");
        }
    }
}

/// What is kept beside tables.
fn beside(source: &mut dyn MemorySource, plan: &Plan) -> Result<(Clock, Option<Holdings>), MemoryError> {
    let clock = Clock::take(source)?;
    let is_agreed = plan.cluster.as_deref().is_some_and(Cluster::is_agreed);
    Ok((clock, is_agreed.then(|| Holdings::take(source)).transpose()?))
}

/// A step that may be asked to fail.
fn step(name: &'static str) -> Result<(), StateError> {
    fault::check(name).map_err(|source| StateError::Step(name, source))
}

/// Tables with the room that `plan` asks for, and with all their memory if it is to be there at the
/// start.
fn make_tables(
    source: &mut dyn MemorySource,
    plan: &Plan,
    key: HashKey,
    memory: TableMemory,
) -> Result<Tables, MemoryError> {
    if memory == TableMemory::AsNeeded {
        return Tables::new(source, plan.capacity, key);
    }
    let begin = Instant::now();
    let threads = processors().map_or(1, |processors| processors.len());
    let tables = Tables::new(&mut Populated::new(source, threads), plan.capacity, key)?;
    tracing::info!(bytes = tables.memory().total(), took = ?begin.elapsed(), "memory of the tables taken");
    Ok(tables)
}

/// Programs in the kernel go on when the process is killed, if what is pinned stays.
fn say_how_long_pins_last() -> Lasting {
    let (path, lasting) = file_system::find();
    match lasting {
        Lasting::AsTheSystem => {}
        Lasting::ThroughProcess1 => tracing::info!(
            path = %path.display(),
            "this mount namespace has no BPF file system that lasts (ip netns exec makes one of its own): \
             the fast path uses that of process 1"
        ),
        Lasting::AsTheMountNamespace => tracing::warn!(
            "the fast path ends with this process: the BPF file system of its mount namespace goes with it, and that of \
             process 1 cannot be used; instead of \"ip netns exec NAME\" use \"nsenter --net=/run/netns/NAME\", or \
             NetworkNamespacePath= in the unit of systemd"
        ),
    }
    lasting
}

/// The hash key lives beside the tables: entries are found by it.
fn stored_key(directory: &mut dyn MemorySource) -> Result<HashKey, StateError> {
    let words: Slab<AtomicU64> = Slab::take(directory, "key", 4)?;
    if words.iter().all(|word| word.load(Ordering::Relaxed) == 0) {
        for (word, new) in words.iter().zip(secret()?) {
            word.store(new, Ordering::Relaxed);
        }
    }
    Ok(HashKey::new(std::array::from_fn(|n| words[n].load(Ordering::Relaxed))))
}

fn seed_words(bytes: &[u8; 32]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = chunk.iter().fold(0_u64, |word, &byte| word << 8 | u64::from(byte));
    }
    words
}

/// Words that nobody else knows.
///
/// # Errors
/// [`StateError::Random`].
pub(crate) fn secret() -> Result<[u64; 4], StateError> {
    Ok(seed_words(&random()?))
}

fn random() -> Result<[u8; 32], StateError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

//! Memory for the tables. In a run directory, or in the kernel beside the fast path, it outlives
//! the process: the next one adopts tables that were made for the same layout, sizes, services and
//! pools, repairs what a crash left half-done, and goes on.

use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tombolo_config::{FastPath, Host, TableMemory};
use tombolo_engine::Plan;
use tombolo_engine::mechanism::session_state;
use tombolo_fastpath::file_system::{self, Lasting};
use tombolo_fastpath::{Content as PinnedContent, PinnedMemory, PinnedMemoryError};
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::memory::{AnonymousMemory, Content, Populated, RunDirectory, RunDirectoryError};
use tombolo_io::worker::processors;
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::{MemoryError, MemorySource, Slab};
use tombolo_tables::tick::Tick;
use tombolo_tables::{Tables, audit, shared};

use crate::directories;
use crate::error_chain::in_one_line;

/// Version of what the bytes of the tables mean. What their records look like is taken from the
/// records themselves; this is to be raised when they mean something else: another hash, other rules
/// for what may stand beside what.
const LAYOUT: u32 = 4;

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
    /// The system's random numbers.
    #[error("the system gives no random numbers")]
    Random(#[from] getrandom::Error),
}

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
    memory: Memory,
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

impl State {
    /// Tables with the room that `plan` asks for: in the kernel if the fast path is wanted, else as
    /// [`open`](Self::open) does.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn open_for(settings: &Host, plan: &Plan) -> Result<Self, StateError> {
        let pins = directories::of_pins(settings);
        if settings.fastpath != FastPath::Off {
            say_how_long_pins_last();
            match Self::in_kernel(&pins, plan) {
                Err(error) if settings.fastpath == FastPath::Auto => {
                    tracing::warn!("no fast path: {}", in_one_line(&error));
                }
                other => return other,
            }
        } else if pins.exists()
            && let Err(error) = PinnedMemory::remove(&pins)
        {
            // What a gateway that was killed has left in the kernel goes on with its own tables.
            tracing::warn!("the fast path of an earlier run is still in the kernel: {error}");
        }
        Self::open_in(settings.run_directory.as_deref(), plan, settings.memory)
    }

    /// Tables with the room that `plan` asks for, in `directory` if one is named.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn open(directory: Option<&Path>, plan: &Plan) -> Result<Self, StateError> {
        Self::open_in(directory, plan, TableMemory::AsNeeded)
    }

    fn open_in(directory: Option<&Path>, plan: &Plan, memory: TableMemory) -> Result<Self, StateError> {
        if let Some(path) = directory {
            return Self::in_files(path, plan, memory);
        }
        let tables = make_tables(&mut AnonymousMemory, plan, HashKey::new(secret()?), memory)?;
        Ok(Self { tables: Arc::new(tables), repaired: 0, seed: random()?, memory: Memory::Own })
    }

    fn in_files(path: &Path, plan: &Plan, memory: TableMemory) -> Result<Self, StateError> {
        let mut directory = RunDirectory::open(path, &fingerprint(plan))?;
        let key = stored_key(&mut directory)?;
        let tables = match make_tables(&mut directory, plan, key, memory) {
            Ok(tables) => tables,
            Err(error) => {
                directory.discard();
                return Err(error.into());
            }
        };
        directory.seal()?;
        let mut repaired = 0;
        if directory.content() == Content::Adopted {
            repaired = audit::repair(&tables, Tick::from_nanos(monotonic_nanos()));
            let bindings = tables.bindings.count();
            tracing::info!(directory = %path.display(), bindings, repaired, "state of the last run adopted");
        }
        Ok(Self { tables: Arc::new(tables), repaired, seed: random()?, memory: Memory::Files(directory) })
    }

    /// Programs of an earlier process may be at work on the tables all the time.
    fn in_kernel(pins: &Path, plan: &Plan) -> Result<Self, StateError> {
        let had_some = pins.exists();
        let mut memory = PinnedMemory::open(pins, &fingerprint(plan))?;
        let made = stored_key(&mut memory).and_then(|key| Ok(Tables::new(&mut memory, plan.capacity, key)?));
        let tables = match made {
            Ok(tables) => tables,
            Err(error) => {
                if memory.content() == PinnedContent::New {
                    let _ = PinnedMemory::remove(memory.directory());
                }
                return Err(error);
            }
        };
        let mut repaired = 0;
        if memory.content() == PinnedContent::Adopted {
            let now = Tick::from_nanos(monotonic_nanos());
            repaired = audit::repair_beside(&tables, now, &mut || std::thread::sleep(PAUSE));
            let bindings = tables.bindings.count();
            tracing::info!(directory = %pins.display(), bindings, repaired, "state of the last run adopted");
        } else if had_some {
            tracing::warn!(
                directory = %pins.display(),
                "the state of the last run is gone: it was made for another capacity, other services or pools, or another version"
            );
        }
        Ok(Self { tables: Arc::new(tables), repaired, seed: random()?, memory: Memory::Kernel(memory) })
    }

    /// Memory that the kernel's programs share, if the tables are there.
    #[must_use]
    pub fn kernel_memory(&self) -> Option<&PinnedMemory> {
        match &self.memory {
            Memory::Kernel(memory) => Some(memory),
            _ => None,
        }
    }

    /// The start has failed: removes what it has made. What an earlier process has left stays.
    pub fn abandon(self) {
        match self.memory {
            Memory::Own => {}
            Memory::Files(directory) => directory.discard(),
            Memory::Kernel(memory) => {
                if memory.content() == PinnedContent::New
                    && let Err(error) = PinnedMemory::remove(memory.directory())
                {
                    tracing::warn!("{} cannot be removed: {error}", memory.directory().display());
                }
            }
        }
    }

    /// Gives up tables in the kernel, unless they are to be there for the next process.
    pub fn close(self, keep: bool) {
        if let Memory::Kernel(memory) = &self.memory
            && !keep
            && let Err(error) = PinnedMemory::remove(memory.directory())
        {
            tracing::warn!("{} cannot be removed: {error}", memory.directory().display());
        }
    }
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
fn say_how_long_pins_last() {
    match file_system::find() {
        (_, Lasting::AsTheSystem) => {}
        (path, Lasting::ThroughProcess1) => tracing::info!(
            path = %path.display(),
            "this mount namespace has no BPF file system that lasts (ip netns exec makes one of its own): \
             the fast path uses that of process 1"
        ),
        (_, Lasting::AsTheMountNamespace) => tracing::warn!(
            "the fast path ends with this process: the BPF file system of its mount namespace goes with it, and that of \
             process 1 cannot be used; instead of \"ip netns exec NAME\" use \"nsenter --net=/run/netns/NAME\", or \
             NetworkNamespacePath= in the unit of systemd"
        ),
    }
}

/// Everything that the bytes of the tables depend on.
fn fingerprint(plan: &Plan) -> String {
    let ranges = plan.ranges().map(|range| {
        format!("{}-{}:{}-{}@{}", range.first, range.last, range.span.start(), range.span.end(), range.first_slot)
    });
    let ranges: Vec<_> = ranges.collect();
    // Bindings know the number of their service: under that number the same service must stand.
    let stateful = plan.numbered().filter(|(_, service)| service.kind.pool().is_some());
    let services: Vec<_> =
        stateful.map(|(number, service)| format!("{number}={}:{}", service.name, service.kind.name())).collect();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // Ticks count from the start of the system, so tables of an earlier one mean nothing.
    format!(
        "layout {LAYOUT}-{:x} boot {} capacity {:?} services {} pools {} {:x}",
        layout(),
        boot.trim(),
        plan.capacity,
        services.join(","),
        ranges.join(","),
        allocations(plan)
    )
}

/// The records of the tables, and the states that sessions have in them.
fn layout() -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    tombolo_records::layout(&shared::numbers(), &shared::records()).hash(&mut hasher);
    for (state, name) in session_state::NAMES {
        (state.0, name).hash(&mut hasher);
    }
    hasher.finish()
}

/// What a block is, and which share is whose, is not in the tables.
fn allocations(plan: &Plan) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    for pool in plan.services.iter().filter_map(|service| service.kind.pool()) {
        format!("{:?}", pool.allocation()).hash(&mut hasher);
    }
    hasher.finish()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn print_of(services: &str) -> String {
        let head = "[capacity]\nsubscribers = 100\nbindings = 1000\nsessions = 1000\n";
        fingerprint(&tombolo_config::parse("test.toml", &format!("{head}{services}")).unwrap().plan)
    }

    #[test]
    fn state_belongs_to_its_services() {
        let nat64 = "[[service]]\nkind = \"nat64\"\nname = \"one\"\nprefix = \"64:ff9b::/96\"\npool = [{ addresses = \"192.0.2.0/31\", ports = \"1024-65535\" }]\n";
        let siit = "[[service]]\nkind = \"siit\"\nprefix = \"2001:db8:64::/96\"\n\
                    eam = [{ ipv4 = \"198.51.100.1\", ipv6 = \"2001:db8::1\" }]\n";
        let alone = print_of(nat64);
        assert_eq!(print_of(&format!("{nat64}{siit}")), alone, "what has no state counts for nothing");
        assert_ne!(print_of(&format!("{siit}{nat64}")), alone, "the bindings would be the SIIT's");
        assert_ne!(print_of(&nat64.replace("one", "two")), alone);
    }
}

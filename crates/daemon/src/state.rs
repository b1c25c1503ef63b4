//! Memory for the tables. In a run directory it outlives the process: the next one adopts tables that were made for the
//! same layout, sizes and pools, repairs what a crash left half-done, and goes on.

use std::hash::{Hash, Hasher};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tombolo_engine::Plan;
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::memory::{AnonymousMemory, Content, RunDirectory, RunDirectoryError};
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::{MemoryError, Slab};
use tombolo_tables::tick::Tick;
use tombolo_tables::{Tables, audit};

/// Version of the tables' layout in memory. To be raised with every change of a record.
const LAYOUT: u32 = 2;

/// Why there are no tables.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The run directory.
    #[error(transparent)]
    RunDirectory(#[from] RunDirectoryError),
    /// The system's random numbers.
    #[error("cannot read random numbers from /dev/urandom")]
    Random(#[source] std::io::Error),
}

/// The tables, and the secret of this run.
#[derive(Debug)]
pub struct State {
    /// The tables.
    pub tables: Arc<Tables>,
    /// Records and entries that the last process left half-done and that were given back.
    pub repaired: usize,
    /// Seed of the engines' random numbers; new each time.
    pub seed: [u8; 32],
    // Keeps the lock on the run directory.
    _directory: Option<RunDirectory>,
}

impl State {
    /// Tables with the room that `plan` asks for, in `directory` if one is named.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn open(directory: Option<&Path>, plan: &Plan) -> Result<Self, StateError> {
        let seed = random()?;
        let Some(path) = directory else {
            let tables = Tables::new(&mut AnonymousMemory, plan.capacity, hash_key(&random()?))?;
            return Ok(Self { tables: Arc::new(tables), repaired: 0, seed, _directory: None });
        };
        let mut directory = RunDirectory::open(path, &fingerprint(plan))?;
        let key = stored_key(&mut directory)?;
        let tables = Tables::new(&mut directory, plan.capacity, key)?;
        let mut repaired = 0;
        if directory.content() == Content::Adopted {
            repaired = audit::repair(&tables, Tick::from_nanos(monotonic_nanos()));
            let bindings = tables.bindings.count();
            tracing::info!(directory = %path.display(), bindings, repaired, "state of the last run adopted");
        }
        Ok(Self { tables: Arc::new(tables), repaired, seed, _directory: Some(directory) })
    }
}

/// Everything that the bytes of the tables depend on.
fn fingerprint(plan: &Plan) -> String {
    let ranges = plan.ranges().map(|range| {
        format!("{}-{}:{}-{}@{}", range.first, range.last, range.span.start(), range.span.end(), range.first_slot)
    });
    let ranges: Vec<_> = ranges.collect();
    // What a block is, and which share is whose, is not in the tables.
    let mut allocations = std::hash::DefaultHasher::new();
    for pool in plan.services.iter().filter_map(|service| service.kind.pool()) {
        format!("{:?}", pool.allocation()).hash(&mut allocations);
    }
    let allocations = allocations.finish();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // Ticks count from the start of the system, so tables of an earlier one mean nothing.
    let pools = ranges.join(",");
    format!("layout {LAYOUT} boot {} capacity {:?} pools {pools} {allocations:x}", boot.trim(), plan.capacity)
}

/// The hash key lives beside the tables: entries are found by it.
fn stored_key(directory: &mut RunDirectory) -> Result<HashKey, StateError> {
    let words: Slab<AtomicU64> = Slab::take(directory, "key", 4)?;
    if words.iter().all(|word| word.load(Ordering::Relaxed) == 0) {
        for (word, new) in words.iter().zip(hash_key(&random()?).words()) {
            word.store(new, Ordering::Relaxed);
        }
    }
    Ok(HashKey::new(std::array::from_fn(|n| words[n].load(Ordering::Relaxed))))
}

fn hash_key(bytes: &[u8; 32]) -> HashKey {
    let mut words = [0; 4];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = chunk.iter().fold(0_u64, |word, &byte| word << 8 | u64::from(byte));
    }
    HashKey::new(words)
}

fn random() -> Result<[u8; 32], StateError> {
    let mut bytes = [0; 32];
    let mut source = std::fs::File::open("/dev/urandom").map_err(StateError::Random)?;
    source.read_exact(&mut bytes).map_err(StateError::Random)?;
    Ok(bytes)
}

//! `bpf/lpm.h` in a program of its own: looks up all keys of a map in one system call.

use std::sync::atomic::{AtomicU64, Ordering};

use aya::programs::{ProgramError, TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfError, EbpfLoader};
use tombolo_tables::lpm::{Key, Lpm, LpmError, Route, Shape};
use tombolo_tables::memory::{MemoryError, Slab};

use crate::memory::{MappedArray, OneArray};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/lpm_test.bpf.o"));

/// Bytes of `struct lpm_line`.
const LINE: usize = 64;

/// Why the reader in the kernel could not be run.
#[derive(Debug, thiserror::Error)]
pub enum LpmReaderError {
    /// The program did not load.
    #[error("the kernel did not take the lookup program (Linux 5.17 or later, BPF, root)")]
    Load(#[from] EbpfError),
    /// The program did not run.
    #[error("the lookup program did not run")]
    Program(#[from] ProgramError),
    /// The table refused.
    #[error("the table refused a route")]
    Table(#[from] LpmError),
    /// An array could not be mapped.
    #[error("an array of the lookup program could not be mapped")]
    Map(#[from] std::io::Error),
    /// An array is too short.
    #[error("an array of the lookup program is too short")]
    Memory(#[from] MemoryError),
    /// The object lacks a part.
    #[error("the lookup program lacks its part {0:?}")]
    Missing(&'static str),
    /// The program stopped before the last key.
    #[error("the lookup program did {done} of {keys} keys")]
    Stopped {
        /// Keys done.
        done: u32,
        /// Keys asked for.
        keys: usize,
    },
}

/// A table in a BPF array, and the program that reads it.
pub struct KernelReader<K: Key> {
    program: Ebpf,
    /// The table: change it, and the program sees the change.
    pub table: Lpm<K>,
    keys: Slab<AtomicU64>,
    entries: Slab<AtomicU64>,
    count: usize,
}

impl<K: Key> KernelReader<K> {
    /// Loads the program with room for `keys` keys and builds a table of `routes` in its array.
    ///
    /// # Errors
    /// [`LpmReaderError`].
    pub fn new(shape: Shape, routes: &[Route<K>], keys: usize) -> Result<Self, LpmReaderError> {
        let count = u32::try_from(keys).unwrap_or(u32::MAX);
        let lines = u32::try_from(shape.bytes.div_ceil(LINE)).unwrap_or(u32::MAX);
        let mut program = EbpfLoader::new()
            .map_max_entries("routes", lines)
            .map_max_entries("keys", count)
            .map_max_entries("entries", count)
            .load(OBJECT)?;
        let xdp = program.program_mut("look_up_all").ok_or(LpmReaderError::Missing("look_up_all"))?;
        <&mut Xdp>::try_from(xdp)?.load()?;
        let mut memory = array(&program, "routes", shape.bytes)?;
        let table = Lpm::build(&mut memory, "routes", shape, routes)?;
        table.epochs().expect_kernel();
        let keys_slab = Slab::take(&mut array(&program, "keys", keys * 16)?, "keys", keys * 2)?;
        let entries = Slab::take(&mut array(&program, "entries", keys * 8)?, "entries", keys)?;
        Ok(Self { program, table, keys: keys_slab, entries, count: keys })
    }

    /// Looks up as many keys as there is room for, in the kernel: prefix length and next hop, or
    /// nothing.
    ///
    /// # Errors
    /// [`LpmReaderError`].
    pub fn look_up(&self, keys: &[K]) -> Result<Vec<Option<(u8, u32)>>, LpmReaderError> {
        for (halves, key) in self.keys.chunks_exact(2).zip(keys) {
            let bits = key.left_aligned();
            let half = |bits: u128| u64::try_from(bits).unwrap_or(u64::MAX);
            halves[0].store(half(bits >> 64), Ordering::Relaxed);
            halves[1].store(half(bits & u128::from(u64::MAX)), Ordering::Relaxed);
        }
        let xdp = self.program.program("look_up_all").ok_or(LpmReaderError::Missing("look_up_all"))?;
        let options = TestRunOptions { data_in: Some(&[0; 64]), ..TestRunOptions::new() };
        let done = <&Xdp>::try_from(xdp)?.test_run(options)?.return_value;
        // The loop counts the iteration that found the end of the maps.
        if (done as usize) < self.count {
            return Err(LpmReaderError::Stopped { done, keys: self.count });
        }
        let answer = |entry: &AtomicU64| {
            let [a, b, c, tag, ..] = entry.load(Ordering::Relaxed).to_le_bytes();
            (tag > 0).then(|| (tag - 1, u32::from_le_bytes([a, b, c, 0])))
        };
        Ok(self.entries.iter().take(keys.len()).map(answer).collect())
    }
}

fn array(program: &Ebpf, name: &'static str, bytes: usize) -> Result<OneArray, LpmReaderError> {
    let map = program.map(name).ok_or(LpmReaderError::Missing(name))?;
    let aya::maps::Map::Array(data) = map else { return Err(LpmReaderError::Missing(name)) };
    Ok(OneArray::new(MappedArray::new(data.fd(), bytes)?))
}

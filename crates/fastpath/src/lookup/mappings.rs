//! Explicit address mappings (RFC 7757) as the programs read them: two longest-prefix tables and
//! the rows.

use std::sync::Arc;

use aya::maps::{Map, MapData};
use aya::{Ebpf, EbpfLoader};
use tombolo_engine::mapping::eam::Eam;
use tombolo_tables::lpm::{Key, Lpm, LpmError, NextHop, Prefix, Route, Shape};
use tombolo_tables::memory::{Backing, Heap, MemoryError, MemorySource};

use crate::loader::FastPathError;
use crate::memory::MappedArray;

/// Bytes of `struct lpm_line`.
pub(crate) const LINE: usize = 64;

/// `struct explicit_row`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct RowRecord {
    pub(crate) ipv6: [u64; 2],
    pub(crate) ipv4: u32,
    pub(crate) suffix: u32,
    pub(crate) shift: u32,
    pub(crate) unused: u32,
}

/// The tables of one plan, to be put into its programs' arrays.
pub(crate) struct Explicit {
    ipv4: Option<Arc<dyn Backing>>,
    ipv6: Option<Arc<dyn Backing>>,
    rows: Vec<RowRecord>,
}

impl Explicit {
    pub(crate) fn new(rows: &[Eam]) -> Result<Self, LpmError> {
        if rows.is_empty() {
            return Ok(Self { ipv4: None, ipv6: None, rows: Vec::new() });
        }
        Ok(Self {
            ipv4: Some(column(rows, Eam::ipv4)?),
            ipv6: Some(column(rows, Eam::ipv6)?),
            rows: rows.iter().map(row_record).collect(),
        })
    }

    /// Makes the arrays of the programs as large as the tables.
    pub(crate) fn size<'l, 'g>(&self, loader: &'l mut EbpfLoader<'g>) -> &'l mut EbpfLoader<'g> {
        let lines =
            |span: &Option<Arc<dyn Backing>>| entries(span.as_ref().map_or(0, |span| span.len()).div_ceil(LINE));
        loader
            .map_max_entries("explicit_ipv4", lines(&self.ipv4))
            .map_max_entries("explicit_ipv6", lines(&self.ipv6))
            .map_max_entries("explicit_rows", entries(self.rows.len()))
    }

    /// Copies the tables into the arrays, before any packet is there.
    pub(crate) fn fill(&self, programs: &Ebpf) -> Result<(), FastPathError> {
        for (name, span) in [("explicit_ipv4", &self.ipv4), ("explicit_ipv6", &self.ipv6)] {
            if let Some(span) = span {
                copy(programs, name, span.base().as_ptr(), span.len())?;
            }
        }
        copy_all(programs, "explicit_rows", &self.rows)
    }
}

pub(crate) fn entries(count: usize) -> u32 {
    u32::try_from(count.max(1)).unwrap_or(u32::MAX)
}

pub(crate) fn copy(programs: &Ebpf, name: &'static str, from: *const u8, bytes: usize) -> Result<(), FastPathError> {
    let Some(Map::Array(map)) = programs.map(name) else { return Err(FastPathError::Map(name)) };
    let data: &MapData = map;
    let array = MappedArray::new(data.fd(), bytes).map_err(|_| FastPathError::Map(name))?;
    // SAFETY: `from` has `bytes` bytes (callers pass a whole span or vector), the array was mapped
    // with as many, they do not overlap, and no program that reads the array is attached yet.
    unsafe { std::ptr::copy_nonoverlapping(from, array.base().as_ptr(), bytes) };
    Ok(())
}

/// [`copy`] of whole records, if there are any.
pub(crate) fn copy_all<T>(programs: &Ebpf, name: &'static str, records: &[T]) -> Result<(), FastPathError> {
    if records.is_empty() { Ok(()) } else { copy(programs, name, records.as_ptr().cast(), size_of_val(records)) }
}

/// Keeps the span that a table was built in.
struct Keeper(Option<Arc<dyn Backing>>);

impl MemorySource for Keeper {
    fn take(&mut self, name: &'static str, bytes: usize) -> Result<Arc<dyn Backing>, MemoryError> {
        let span = Heap.take(name, bytes.next_multiple_of(LINE))?;
        self.0 = Some(Arc::clone(&span));
        Ok(span)
    }
}

/// One column as a table, as in `EamTable`: a root of 2^16 entries for a handful of rows would cost
/// a cache miss.
fn column<K: Key>(rows: &[Eam], prefix: impl Fn(&Eam) -> Prefix<K>) -> Result<Arc<dyn Backing>, LpmError> {
    let number = |number: usize| NextHop::new(u32::try_from(number).unwrap_or(u32::MAX));
    let routes: Result<Vec<Route<K>>, LpmError> = rows
        .iter()
        .enumerate()
        .map(|(index, row)| Ok(Route { prefix: prefix(row), next_hop: number(index)? }))
        .collect();
    trie(&routes?)
}

/// The table of `routes` in a span of its own.
pub(crate) fn trie<K: Key>(routes: &[Route<K>]) -> Result<Arc<dyn Backing>, LpmError> {
    let mut shape = Shape::for_routes::<K>(routes.len());
    if routes.len() < 1 << 10 {
        shape.root_bits = 8;
    }
    loop {
        let mut keeper = Keeper(None);
        match Lpm::build(&mut keeper, "explicit", shape, routes) {
            Ok(_) => {
                break keeper.0.ok_or(LpmError::Memory(MemoryError::TooSmall {
                    name: "explicit",
                    needed: 1,
                    found: 0,
                }));
            }
            Err(LpmError::Full { .. }) => shape.bytes *= 2,
            Err(error) => break Err(error),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
fn row_record(row: &Eam) -> RowRecord {
    let (ipv4, ipv6) = (row.ipv4(), row.ipv6());
    let suffix_bits = 32 - u32::from(ipv4.prefix_len());
    let bits = ipv6.key();
    RowRecord {
        ipv6: [(bits >> 64) as u64, bits as u64],
        ipv4: ipv4.key(),
        suffix: u32::MAX.checked_shr(ipv4.prefix_len().into()).unwrap_or(0),
        shift: if suffix_bits == 0 { 0 } else { 128 - u32::from(ipv6.prefix_len()) - suffix_bits },
        unused: 0,
    }
}

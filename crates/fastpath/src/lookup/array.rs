//! What one array of the programs is filled with when they are loaded.

use std::sync::Arc;

use aya::maps::{Map, MapData};
use aya::{Ebpf, EbpfLoader};
use tombolo_records::Plain;
use tombolo_tables::lpm::{Key, Lpm, LpmError, Route, Shape};
use tombolo_tables::memory::{Backing, Heap, MemoryError, MemorySource};

use crate::error::FastPathError;
use crate::memory::MappedArray;

/// Bytes of `struct lpm_line`.
const LINE: usize = 64;

/// The name of an array, how many elements it needs, and their bytes.
pub(crate) struct Content<'t> {
    name: &'static str,
    elements: usize,
    bytes: &'t [u8],
}

impl<'t> Content<'t> {
    pub(crate) fn records<R: Plain>(name: &'static str, records: &'t [R]) -> Self {
        Self { name, elements: records.len(), bytes: R::bytes_of(records) }
    }

    /// Makes the array as large as that; the kernel makes none without elements.
    pub(crate) fn size(&self, loader: &mut EbpfLoader<'_>) {
        loader.map_max_entries(self.name, u32::try_from(self.elements.max(1)).unwrap_or(u32::MAX));
    }

    /// Copies the bytes into the array, before any packet is there.
    pub(crate) fn fill(&self, programs: &Ebpf) -> Result<(), FastPathError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let Some(Map::Array(map)) = programs.map(self.name) else { return Err(FastPathError::Map(self.name)) };
        let data: &MapData = map;
        let array = MappedArray::new(data.fd(), self.bytes.len()).map_err(|_| FastPathError::Map(self.name))?;
        // SAFETY: the array was mapped with as many bytes, which do not overlap with these, and no
        // program that reads it is attached yet.
        unsafe { std::ptr::copy_nonoverlapping(self.bytes.as_ptr(), array.base().as_ptr(), self.bytes.len()) };
        Ok(())
    }
}

/// A longest-prefix table; none if there are no routes.
#[derive(Default)]
pub(crate) struct Trie(Option<Arc<dyn Backing>>);

impl Trie {
    /// The table of `routes`. A root of 2^16 entries for a handful of them would cost a cache miss.
    pub(crate) fn new<K: Key>(routes: &[Route<K>]) -> Result<Self, LpmError> {
        let mut shape = Shape::for_routes::<K>(routes.len());
        if routes.len() < 1 << 10 {
            shape.root_bits = 8;
        }
        loop {
            let mut keeper = Keeper(None);
            match Lpm::build(&mut keeper, "lookup", shape, routes) {
                Ok(_) => break Ok(Self(keeper.0)),
                Err(LpmError::Full { .. }) => shape.bytes *= 2,
                Err(error) => break Err(error),
            }
        }
    }

    pub(crate) fn content(&self, name: &'static str) -> Content<'_> {
        let Some(span) = &self.0 else { return Content { name, elements: 0, bytes: &[] } };
        // SAFETY: the span has as many bytes, and the table that wrote them is gone.
        let bytes = unsafe { std::slice::from_raw_parts(span.base().as_ptr(), span.len()) };
        Content { name, elements: bytes.len() / LINE, bytes }
    }
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

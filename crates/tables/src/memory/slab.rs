//! A span of memory seen as an array of records.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::span::{Backing, CACHE_LINE, MemoryError, MemorySource, Record};

/// An array of records in a span of memory.
pub struct Slab<T: Record> {
    first: NonNull<T>,
    count: usize,
    backing: Arc<dyn Backing>,
    records: PhantomData<T>,
}

// SAFETY: a slab is a shared slice of records, which are Sync, plus an owner that is Send and Sync.
unsafe impl<T: Record> Send for Slab<T> {}
// SAFETY: as above.
unsafe impl<T: Record> Sync for Slab<T> {}

impl<T: Record> Slab<T> {
    /// Takes the span `name` from `source` and views it as `count` records.
    ///
    /// # Errors
    /// [`MemoryError`] if the source has no such span, or a shorter one.
    pub fn take(source: &mut dyn MemorySource, name: &'static str, count: usize) -> Result<Self, MemoryError> {
        const { assert!(align_of::<T>() <= CACHE_LINE) };
        let needed = count * size_of::<T>();
        let backing = source.take(name, needed)?;
        if backing.len() < needed {
            return Err(MemoryError::TooSmall { name, needed, found: backing.len() });
        }
        Ok(Self { first: backing.base().cast(), count, backing, records: PhantomData })
    }

    /// All of a span, as many records as it has room for.
    #[must_use]
    pub fn whole(backing: Arc<dyn Backing>) -> Self {
        const { assert!(align_of::<T>() <= CACHE_LINE) };
        Self { first: backing.base().cast(), count: backing.len() / size_of::<T>(), backing, records: PhantomData }
    }

    /// Bytes that the span takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.backing.len()
    }

    /// Asks the processor to load the line of record `index`; does nothing if there is no such
    /// record.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        if index < self.count {
            // SAFETY: `index` is inside the array, so the pointer stays inside the span.
            prefetch(unsafe { self.first.add(index) }.cast());
        }
    }
}

impl<T: Record> Deref for Slab<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `take` and `whole` see to it that the span holds `count` records; `Backing`
        // promises alignment, validity and that all access is atomic; `Record` promises that any bytes are valid.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T: Record> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slab({} records, {} bytes)", self.count, self.bytes())
    }
}

#[inline]
fn prefetch(line: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch cannot fault and reads nothing that the program sees.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

//! An array of records that a model checker knows one by one: they cannot lie in memory that was
//! found, so they are made.

use std::ops::Deref;

use super::span::{MemoryError, MemorySource, Record};

/// An array of records.
#[derive(Debug)]
pub struct Slab<T> {
    records: Box<[T]>,
}

impl<T: Record> Slab<T> {
    /// `count` records, all zero.
    ///
    /// # Errors
    /// None; as the other one, which may have no memory.
    pub fn take(_: &mut dyn MemorySource, _: &'static str, count: usize) -> Result<Self, MemoryError> {
        Ok(Self { records: std::iter::repeat_with(T::default).take(count).collect() })
    }

    /// Bytes that the records take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len() * size_of::<T>()
    }

    /// Does nothing.
    pub fn prefetch(&self, _: usize) {}
}

impl<T> Deref for Slab<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.records
    }
}

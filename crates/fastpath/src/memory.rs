//! BPF arrays mapped into this process: the same bytes for the tables here and the programs in the
//! kernel.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use tombolo_tables::memory::{Backing, MemoryError, MemorySource};

/// A `BPF_F_MMAPABLE` array, mapped from its first element on. It stays mapped, and the kernel
/// keeps the array, until the value is dropped, whether or not a program still uses it.
#[derive(Debug)]
pub struct MappedArray {
    base: NonNull<libc::c_void>,
    bytes: NonZeroUsize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for MappedArray {}
// SAFETY: this type hands out the address alone; who uses it says why that is sound.
unsafe impl Sync for MappedArray {}

// SAFETY: mmap aligns to pages, which are multiples of a cache line; the mapping stays until drop;
// no reference into it is made here; the kernel zeroes an array when it is created.
unsafe impl Backing for MappedArray {
    fn base(&self) -> NonNull<u8> {
        self.base.cast()
    }

    fn len(&self) -> usize {
        self.bytes.get()
    }
}

impl MappedArray {
    /// Maps the first `bytes` bytes of the array behind `map`, rounded up to whole pages as the
    /// kernel does. Its elements must be multiples of eight bytes, or they would not stand side by
    /// side.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` if the array is shorter.
    pub fn new(map: impl AsFd, bytes: usize) -> io::Result<Self> {
        let bytes = NonZeroUsize::new(bytes.next_multiple_of(page_size())).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses the address, so no other mapping is replaced; the array cannot
        // shrink.
        let base = unsafe { mmap(None, bytes, protection, MapFlags::MAP_SHARED, map, 0) }?;
        Ok(Self { base, bytes })
    }
}

/// Bytes of a page: 4 KiB on x86-64; 4, 16 or 64 on arm64, as its kernel was built.
fn page_size() -> usize {
    // SAFETY: the call has no memory to do with.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and whoever uses the address owns this value.
        let _ = unsafe { munmap(self.base, self.bytes.get()) };
    }
}

/// One array as the memory of one table.
#[derive(Debug)]
pub struct OneArray(Option<Arc<MappedArray>>);

impl OneArray {
    /// Memory that is handed out once.
    #[must_use]
    pub fn new(array: MappedArray) -> Self {
        Self(Some(Arc::new(array)))
    }
}

impl MemorySource for OneArray {
    fn take(&mut self, name: &'static str, bytes: usize) -> Result<Arc<dyn Backing>, MemoryError> {
        match self.0.take() {
            Some(array) => Ok(array),
            None => Err(MemoryError::Unavailable { name, bytes, reason: "the array is in use already".into() }),
        }
    }
}

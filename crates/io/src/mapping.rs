//! Mapped memory: anonymous, or a file's.
//!
//! Zeroed, page-aligned, and for free until it is touched. Huge pages are asked for: at hundreds of
//! megabytes most of a lookup is the walk through the page table.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::fcntl::posix_fallocate;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use tombolo_tables::memory::Backing;

/// Bytes of a huge page on the machines that have them; spans are multiples of it, so that the last
/// page can be a huge one too.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// A mapped span of memory, unmapped when it is dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<libc::c_void>,
    length: NonZeroUsize,
}

// SAFETY: mapped memory belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: this type gives out the address alone; who reads or writes there says why that is sound.
unsafe impl Sync for Mapping {}

// SAFETY: mmap aligns to pages, which are multiples of a cache line. The mapping stays until drop.
// No reference into it is made here. Anonymous pages and the holes of a new file read as zeros; an
// old file is mapped only if its fingerprint is the same (`RunDirectory::open`).
unsafe impl Backing for Mapping {
    fn base(&self) -> NonNull<u8> {
        self.base.cast()
    }

    fn len(&self) -> usize {
        self.length.get()
    }
}

impl Mapping {
    /// Zeroed memory of at least `bytes` bytes that goes with the process. Huge pages are asked
    /// for, and nothing is reserved: a table for a hundred million sessions takes memory as it
    /// fills.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        let length = rounded(bytes)?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: no address is asked for, so no other mapping is replaced.
        let base = unsafe { mmap_anonymous(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags) }?;
        Ok(Self { base, length }.with_huge_pages())
    }

    /// The first `bytes` bytes of a file, rounded up to huge pages, shared with everybody who maps
    /// it. The file is made longer if need be, and has its space from then on; what is added reads
    /// as zeros.
    ///
    /// # Errors
    /// What the kernel says; `ENOSPC` if the file system has no room for all of it.
    pub fn file(file: &File, bytes: usize) -> io::Result<Self> {
        let length = rounded(bytes)?;
        let end = libc::off_t::try_from(length.get()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        // Holes get their space as well: a page that has none cannot be written later.
        posix_fallocate(file, 0, end)?;
        // SAFETY: no address is asked for, so no other mapping is replaced. The file is at least as
        // long as the mapping; the run directory's lock keeps other gateways from shortening it.
        let base =
            unsafe { mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(Self { base, length }.with_huge_pages())
    }

    /// A copy of a file. What is written there does not reach the file.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn copy(file: &File) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len()).ok().and_then(NonZeroUsize::new);
        let length = length.ok_or(io::ErrorKind::InvalidData)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: no address is asked for, so no other mapping is replaced. The file is as long as
        // the mapping, and the run directory's lock keeps other gateways from shortening it.
        let base = unsafe { mmap(None, length, protection, MapFlags::MAP_PRIVATE, file, 0) }?;
        Ok(Self { base, length })
    }

    /// Asks for huge pages. In a file system in memory the administrator may have them (`advise` in
    /// `/sys/kernel/mm/transparent_hugepage/shmem_enabled`); on a disk nothing comes of it.
    fn with_huge_pages(self) -> Self {
        // SAFETY: the span is mapped; MADV_HUGEPAGE changes how it is backed and not what it holds.
        // It may be refused (a kernel without transparent huge pages), and then everything is only
        // slower.
        let _ = unsafe { madvise(self.base, self.length.get(), MmapAdvise::MADV_HUGEPAGE) };
        self
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by a constructor with this length, and unmapped only here. Failing would
        // mean that it is not mapped, which the constructors rule out.
        let _ = unsafe { munmap(self.base, self.length.get()) };
    }
}

/// Bytes of whole huge pages.
pub(crate) fn rounded(bytes: usize) -> io::Result<NonZeroUsize> {
    let length = bytes.max(1).checked_next_multiple_of(HUGE_PAGE).and_then(NonZeroUsize::new);
    length.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tombolo_tables::memory::Slab;

    use super::*;

    #[test]
    fn anonymous_memory_is_zero_and_aligned() {
        let mapping = Mapping::anonymous(10_000).unwrap();
        assert_eq!(mapping.base().as_ptr().addr() % 4096, 0);
        assert_eq!(mapping.len(), HUGE_PAGE);
        let words: Slab<AtomicU64> = Slab::whole(Arc::new(mapping));
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn untouched_memory_is_not_reserved() {
        // Far more than any machine that runs this test has; only the addresses are taken.
        assert!(Mapping::anonymous(1 << 42).is_ok());
        assert!(Mapping::anonymous(usize::MAX).is_err());
    }
}

//! A BPF array, mapped into this process. The programs change it while it is mapped, so every
//! access is volatile.

use std::io;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use tombolo_records::Plain;

/// The elements of one `BPF_F_MMAPABLE` array of `T`.
pub(crate) struct Mapped<T> {
    memory: NonNull<libc::c_void>,
    bytes: usize,
    len: usize,
    _element: PhantomData<T>,
}

// SAFETY: the memory is shared with the kernel anyway; all accesses are volatile copies of plain
// integers.
unsafe impl<T> Send for Mapped<T> {}
// SAFETY: as above; a torn read of a record is a stale number, never an invalid value (see
// `Plain`).
unsafe impl<T> Sync for Mapped<T> {}

impl<T: Plain> Mapped<T> {
    /// Maps `len` elements of the array behind `fd`.
    pub(crate) fn new(fd: impl AsFd, len: usize) -> io::Result<Mapped<T>> {
        let page = page_size();
        let bytes = (len * size_of::<T>()).next_multiple_of(page).max(page);
        let length = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping, shared, at an address that the kernel chooses; nothing else refers
        // to it.
        let memory =
            unsafe { mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, fd, 0) }?;
        Ok(Mapped { memory, bytes, len, _element: PhantomData })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn at(&self, index: usize) -> *mut T {
        assert!(index < self.len, "element {index} of an array of {}", self.len);
        self.memory.as_ptr().cast::<T>().wrapping_add(index)
    }

    /// A copy of one element.
    ///
    /// # Panics
    /// If there is no such element.
    pub(crate) fn get(&self, index: usize) -> T {
        // SAFETY: `at` checked the bounds; the mapping is page-aligned and T is valid for all bit
        // patterns.
        unsafe { self.at(index).read_volatile() }
    }

    /// Overwrites one element.
    ///
    /// # Panics
    /// If there is no such element.
    pub(crate) fn set(&self, index: usize, value: T) {
        // SAFETY: as in `get`.
        unsafe { self.at(index).write_volatile(value) }
    }

    /// Sets `count` elements from `first` to zero.
    ///
    /// # Panics
    /// If they are not all there.
    pub(crate) fn clear(&self, first: usize, count: usize) {
        assert!(first + count <= self.len, "elements {first}+{count} of an array of {}", self.len);
        // SAFETY: in bounds by the line above; no program writes these elements while no trial
        // runs.
        unsafe { self.memory.as_ptr().cast::<T>().wrapping_add(first).write_bytes(0, count) }
    }
}

/// Bytes of a page: 4 KiB on x86-64; 4, 16 or 64 on arm64, as its kernel was built.
fn page_size() -> usize {
    // SAFETY: the call has no memory to do with.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `new` made; no reference into it was ever handed out.
        let _ = unsafe { munmap(self.memory, self.bytes) };
    }
}

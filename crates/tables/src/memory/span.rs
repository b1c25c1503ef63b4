//! Spans of memory, who hands them out, and what may live in them.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Bytes in a cache line; the alignment of every span.
pub const CACHE_LINE: usize = 64;

/// An owned span of memory that stays mapped, readable and writable at one address until it is
/// dropped.
///
/// # Safety
/// `base` is aligned to [`CACHE_LINE`], `len` bytes from it stay valid for reads and writes for the
/// life of the value, and nobody in this process holds a reference into the span other than through
/// atomics. Every byte was zero, or was left by tables of the same layout, when the value was made.
pub unsafe trait Backing: Send + Sync {
    /// First byte of the span.
    fn base(&self) -> NonNull<u8>;
    /// Length of the span in bytes.
    fn len(&self) -> usize;
    /// True if the span has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Hands out spans by name. The name tells the spans of one set of tables apart when they are files
/// or BPF maps that outlive the process.
pub trait MemorySource {
    /// A span of at least `bytes` bytes.
    ///
    /// # Errors
    /// Whatever keeps the memory from being had, named in words.
    fn take(&mut self, name: &'static str, bytes: usize) -> Result<Arc<dyn Backing>, MemoryError>;
}

/// Why memory could not be had or used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The span is shorter than the table that is to live in it.
    #[error("table {name} needs {needed} bytes, its memory has {found}")]
    TooSmall {
        /// Name of the table.
        name: &'static str,
        /// Bytes that it needs.
        needed: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// The memory could not be had.
    #[error("cannot get {bytes} bytes for table {name}: {reason}")]
    Unavailable {
        /// Name of the table.
        name: &'static str,
        /// Bytes asked for.
        bytes: usize,
        /// Why, in words.
        reason: String,
    },
}

/// A type that may live in shared memory: atomics and nothing else, valid when all its bytes are
/// zero.
///
/// # Safety
/// All-zero bytes are a valid value, any bytes are a valid value, the alignment is at most
/// [`CACHE_LINE`], and every field can be changed through a shared reference.
#[cfg(not(loom))]
pub unsafe trait Record: Sync {}

/// As above; made by its `Default` where a model checker wants to know of each atomic.
///
/// # Safety
/// As above.
#[cfg(loom)]
pub unsafe trait Record: Sync + Default {}

// SAFETY: atomics of integers: any bytes are valid and all access goes through `&self`.
unsafe impl Record for AtomicU8 {}
// SAFETY: as above.
unsafe impl Record for AtomicU16 {}
// SAFETY: as above.
unsafe impl Record for AtomicU32 {}
// SAFETY: as above.
unsafe impl Record for AtomicU64 {}

/// Memory of the ordinary heap: for tests, and for tables that need not outlive the process.
#[derive(Debug, Default)]
pub struct Heap;

impl MemorySource for Heap {
    fn take(&mut self, name: &'static str, bytes: usize) -> Result<Arc<dyn Backing>, MemoryError> {
        match HeapSpan::new(bytes) {
            Some(span) => Ok(Arc::new(span)),
            None => Err(MemoryError::Unavailable { name, bytes, reason: "out of memory".into() }),
        }
    }
}

struct HeapSpan {
    base: NonNull<u8>,
    layout: Layout,
}

impl HeapSpan {
    fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(CACHE_LINE), CACHE_LINE).ok()?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { base, layout })
    }
}

impl Drop for HeapSpan {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed only here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

// SAFETY: plain memory without thread affinity.
unsafe impl Send for HeapSpan {}
// SAFETY: as above.
unsafe impl Sync for HeapSpan {}
// SAFETY: zeroed, aligned by the layout, alive until drop, and handed out only through `Backing`.
unsafe impl Backing for HeapSpan {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.layout.size()
    }
}

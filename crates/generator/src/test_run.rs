//! `BPF_PROG_TEST_RUN`: with live frames (Linux 5.18), and once without (Linux 4.12). aya offers
//! neither for XDP programs that are given a frame.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const BPF_PROG_TEST_RUN: libc::c_long = 10;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 2;

/// `struct { ... } test` of `union bpf_attr`, from include/uapi/linux/bpf.h.
#[derive(Default)]
#[repr(C)]
struct TestRunAttr {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    reserved: u32,
}

const _: () = assert!(size_of::<TestRunAttr>() == 80);

/// Runs the XDP program `repeat` times, `batch` frames between two flushes, on pages that begin as
/// `frame`. Blocks until all are done or a signal arrives.
///
/// # Errors
/// `EINTR` after a signal, `EINVAL` where the kernel has no live frames or the frame is longer than
/// a page allows, `EPERM` without `CAP_SYS_ADMIN` (or `CAP_BPF` and `CAP_NET_ADMIN`).
pub(crate) fn run_live(program: BorrowedFd<'_>, frame: &[u8], repeat: u32, batch: u32) -> io::Result<()> {
    let attr = TestRunAttr {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        data_size_in: u32::try_from(frame.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        data_in: frame.as_ptr() as u64,
        repeat,
        flags: BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: batch,
        ..TestRunAttr::default()
    };
    // SAFETY: the frame outlives the call; the kernel only reads it.
    unsafe { test_run(attr) }.map(drop)
}

/// Runs the XDP program once on a copy of `frame`, and gives its answer.
///
/// # Errors
/// `EPERM` without `CAP_BPF`.
pub(crate) fn run_once(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    let attr = TestRunAttr {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        data_size_in: u32::try_from(frame.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        data_in: frame.as_ptr() as u64,
        // More than one would have the kernel rewrite its dispatcher of XDP programs each time.
        repeat: 1,
        ..TestRunAttr::default()
    };
    // SAFETY: the frame outlives the call; the kernel only reads it.
    Ok(unsafe { test_run(attr) }?.retval)
}

/// The system call.
///
/// # Safety
/// The attribute's addresses must be of buffers of the lengths that it gives.
unsafe fn test_run(mut attr: TestRunAttr) -> io::Result<TestRunAttr> {
    // SAFETY: attr is a whole test_run attribute; the caller vouches for its addresses.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_TEST_RUN, &raw mut attr, size_of::<TestRunAttr>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(attr) }
}

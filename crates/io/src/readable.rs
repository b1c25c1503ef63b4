//! Waiting for a socket that has something to read.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Waits until there is something to read, or a signal came: false if `deadline` came before.
///
/// # Errors
/// What the kernel says.
pub(crate) fn wait_until(deadline: Instant, socket: BorrowedFd<'_>) -> io::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(false);
    }
    let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(socket, PollFlags::POLLIN)], limit) {
        Ok(_) | Err(Errno::EINTR) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

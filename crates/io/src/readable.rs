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
    wait_until_any(deadline, std::iter::once(socket))
}

/// The same for several: until one of them has.
///
/// # Errors
/// What the kernel says.
pub(crate) fn wait_until_any<'s>(deadline: Instant, sockets: impl Iterator<Item = BorrowedFd<'s>>) -> io::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(false);
    }
    let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    let mut asked: Vec<_> = sockets.map(|socket| PollFd::new(socket, PollFlags::POLLIN)).collect();
    match poll(&mut asked, limit) {
        Ok(_) | Err(Errno::EINTR) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

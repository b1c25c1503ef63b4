//! The socket on which the kernel announces changes.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use netlink_packet_core::{NLM_F_REPLACE, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::rtnl::messages;

/// A datagram's worth of events.
pub(crate) enum Received {
    /// Changes, in order; true with a route that replaces another.
    Events(Vec<(RouteNetlinkMessage, bool)>),
    /// The socket's buffer overflowed: some changes were not announced.
    Overrun,
    /// Nothing more for now.
    Nothing,
}

#[derive(Debug)]
pub(crate) struct EventSocket(Socket);

impl EventSocket {
    /// Subscribes to groups of changes in the calling thread's namespace.
    pub(crate) fn open(groups: &[u32], buffer_bytes: u32) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        socket.set_rx_buf_sz(buffer_bytes)?;
        for group in groups {
            socket.add_membership(*group)?;
        }
        Ok(Self(socket))
    }

    /// Waits for events, at most this long.
    pub(crate) fn wait(&self, limit: Duration) -> io::Result<()> {
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], limit) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn receive(&self) -> io::Result<Received> {
        let datagram = match self.0.recv_from_full() {
            Ok((datagram, _)) => datagram,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
            Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => return Ok(Received::Overrun),
            Err(error) => return Err(error),
        };
        let mut events = Vec::new();
        for message in messages(&datagram) {
            // A message that cannot be read is as good as one that was lost.
            let Ok(message) = message else { return Ok(Received::Overrun) };
            if let NetlinkPayload::InnerMessage(event) = message.payload {
                events.push((event, message.header.flags & NLM_F_REPLACE != 0));
            }
        }
        Ok(Received::Events(events))
    }
}

//! Whether a path takes packets of a certain size: echo requests that nobody may cut come back, or they do not.
//!
//! Read first: RFC 4443 section 4, RFC 3542 sections 3 and 11.2 (`IPV6_DONTFRAG`).

use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, recvfrom, sendto, setsockopt, socket,
    sockopt,
};

use crate::readable;

/// Bytes of an IPv6 header, and of that of an echo request.
const IPV6_HEADER: usize = 40;
const HEADER: usize = 8;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
/// Bytes that wait at most: all messages of ICMPv6 for the host come here as well.
const RECEIVE_BUFFER: usize = 1 << 18;
/// Longest message.
const LONGEST: usize = 1 << 16;

/// Asks whether paths take packets of a size.
#[derive(Debug)]
pub struct PathProbe {
    descriptor: OwnedFd,
    identifier: u16,
}

/// A request that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echoed {
    /// Who has sent it back.
    pub from: Ipv6Addr,
    /// Its number.
    pub number: u16,
    /// Its size, the IPv6 header included.
    pub size: usize,
}

impl PathProbe {
    /// Opens a socket in the calling thread's network namespace. It takes `CAP_NET_RAW`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let descriptor = socket(AddressFamily::Inet6, SockType::Raw, flags, SockProtocol::IcmpV6)?;
        setsockopt(&descriptor, sockopt::Ipv6DontFrag, &true)?;
        setsockopt(&descriptor, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        let identifier = u16::try_from(std::process::id() & 0xffff).unwrap_or(0);
        Ok(Self { descriptor, identifier })
    }

    /// Sends a request of `size` bytes, the IPv6 header included. False if the next link does not take it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ask(&self, to: Ipv6Addr, size: u16, number: u16) -> io::Result<bool> {
        let mut message = vec![0; usize::from(size).saturating_sub(IPV6_HEADER).max(HEADER)];
        message[0] = ECHO_REQUEST;
        message[4..6].copy_from_slice(&self.identifier.to_be_bytes());
        message[6..8].copy_from_slice(&number.to_be_bytes());
        // The kernel writes the checksum.
        let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, 0));
        match sendto(self.descriptor.as_raw_fd(), &message, &to, MsgFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::EMSGSIZE) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits until something has come: false if `deadline` came before.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&self, deadline: Instant) -> io::Result<bool> {
        readable::wait_until(deadline, self.descriptor.as_fd())
    }

    /// The next request of its own that came back, if there is one. Does not wait.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn echoed(&self) -> io::Result<Option<Echoed>> {
        let mut buffer = vec![0; LONGEST];
        loop {
            let (length, from) = match recvfrom::<SockaddrIn6>(self.descriptor.as_raw_fd(), &mut buffer) {
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
                other => other?,
            };
            let own = self.identifier.to_be_bytes();
            if let ([ECHO_REPLY, _, _, _, a, b, c, d, ..], Some(from)) = (&buffer[..length], from)
                && [*a, *b] == own
            {
                let number = u16::from_be_bytes([*c, *d]);
                return Ok(Some(Echoed { from: from.ip(), number, size: IPV6_HEADER + length }));
            }
        }
    }
}

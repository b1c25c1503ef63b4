//! A raw packet socket: whole Ethernet frames to and from user space.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::namespace::in_namespace;
use crate::port::Port;

/// From include/uapi/linux/if_packet.h.
const PACKET_QDISC_BYPASS: libc::c_int = 20;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const ETH_P_ALL: u16 = 3;
const AF_PACKET: u16 = 17;
const RECEIVE_BUFFER: libc::c_int = 64 << 20;

/// A non-blocking packet socket on one interface. It sees what arrives there, not what is sent.
pub struct PacketSocket {
    socket: OwnedFd,
}

impl PacketSocket {
    /// Opens it.
    ///
    /// # Errors
    /// Without `CAP_NET_RAW`, or if namespace or interface do not exist.
    pub fn open(port: &Port) -> io::Result<PacketSocket> {
        in_namespace(port.namespace.as_ref(), || PacketSocket::open_here(&port.name))?
    }

    fn open_here(interface: &str) -> io::Result<PacketSocket> {
        let index = nix::net::if_::if_nametoindex(interface)?;
        let protocol = ETH_P_ALL.to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: a plain system call; the result is checked before it becomes an owned descriptor.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, kind, libc::c_int::from(protocol));
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let socket = PacketSocket { socket };
        socket.option(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        socket.option(libc::SOL_PACKET, PACKET_QDISC_BYPASS, 1)?;
        socket.option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER)?;
        // SAFETY: sockaddr_ll is plain integers; zero is a value of each.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = AF_PACKET;
        address.sll_protocol = protocol;
        address.sll_ifindex = index.cast_signed();
        // SAFETY: the address is a whole sockaddr_ll and outlives the call.
        let bound = unsafe { libc::bind(socket.socket.as_raw_fd(), (&raw const address).cast(), length_of(&address)) };
        if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
    }

    fn option(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: the value is a whole int and outlives the call.
        let set = unsafe {
            libc::setsockopt(self.socket.as_raw_fd(), level, name, (&raw const value).cast(), length_of(&value))
        };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The next frame that arrived, or `None`. A frame longer than the buffer is cut.
    ///
    /// # Errors
    /// If the interface is gone or down.
    pub fn receive(&self, frame: &mut [u8]) -> io::Result<Option<usize>> {
        // SAFETY: the buffer is ours for the length given.
        let n =
            unsafe { libc::recv(self.socket.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
        match usize::try_from(n) {
            Ok(n) => Ok(Some(n)),
            Err(_) => would_block(None),
        }
    }

    /// Sends a frame; false where the device has no room for it now.
    ///
    /// # Errors
    /// If the interface is gone or down, or the frame too long for it.
    pub fn send(&self, frame: &[u8]) -> io::Result<bool> {
        // SAFETY: the frame is ours for the length given.
        let n = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
        if n >= 0 { Ok(true) } else { would_block(false) }
    }
}

fn length_of<T>(_: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

fn would_block<T>(otherwise: T) -> io::Result<T> {
    let why = io::Error::last_os_error();
    match why.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => Ok(otherwise),
        _ => Err(why),
    }
}

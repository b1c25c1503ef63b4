//! One end of a cable, frame by frame: a packet socket on an interface.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, recv, send, setsockopt, socket,
    sockopt::{RcvBufForce, SndBufForce},
};

use crate::{LabError, Namespace};

/// PACKET_VNET_HDR of linux/if_packet.h.
const PACKET_VNET_HDR: i32 = 15;
/// PACKET_IGNORE_OUTGOING of linux/if_packet.h (Linux 4.20).
const PACKET_IGNORE_OUTGOING: i32 = 23;
/// SOL_PACKET of linux/socket.h.
const SOL_PACKET: i32 = 263;

/// Sends frames out of an interface, and sees exactly those that arrive there.
#[derive(Debug)]
pub struct Frames {
    socket: OwnedFd,
}

impl Namespace {
    /// Opens an interface for whole Ethernet frames, without virtio headers.
    ///
    /// # Errors
    /// [`LabError`] when there is no such interface, or no right to open it.
    pub fn frames(&self, interface: &str) -> Result<Frames, LabError> {
        let index = self.index_of(interface)?;
        let socket = self.run(|| open(index, false))?;
        let socket = socket.map_err(|e| LabError::system(format!("open {interface} in {}", self.name()), e))?;
        Ok(Frames { socket })
    }
}

impl Frames {
    /// Sends a frame, Ethernet header first.
    ///
    /// # Errors
    /// Those of the socket; `WouldBlock` when its buffer is full.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(self.socket.as_raw_fd(), frame, MsgFlags::empty())?;
        Ok(())
    }

    /// Takes the next frame that has arrived, if there is one, and says how long it is. What
    /// `buffer` has no room for is cut off.
    pub fn receive(&self, buffer: &mut [u8]) -> Option<usize> {
        recv(self.socket.as_raw_fd(), buffer, MsgFlags::empty()).ok()
    }
}

impl AsFd for Frames {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Opens a packet socket that sees exactly what arrives on one interface, and does not wait.
/// Frames may have their virtio header in front, so that super-packets keep theirs.
pub(crate) fn open(index: u32, virtio_headers: bool) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    // Protocol 0: nothing is received before the socket is bound to its interface.
    let packet = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
    if virtio_headers {
        set_option(&packet, PACKET_VNET_HDR)?;
    }
    set_option(&packet, PACKET_IGNORE_OUTGOING)?;
    setsockopt(&packet, RcvBufForce, &(16 << 20))?;
    setsockopt(&packet, SndBufForce, &(16 << 20))?;
    bind(&packet, index)?;
    Ok(packet)
}

fn set_option(packet: &OwnedFd, option: i32) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is a live `int`, and its size is passed.
    let status = unsafe { libc::setsockopt(packet.as_raw_fd(), SOL_PACKET, option, (&raw const on).cast(), 4) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn bind(packet: &OwnedFd, index: u32) -> io::Result<()> {
    // In network byte order, as packet(7) wants it.
    const ALL_PROTOCOLS: u16 = 0x0003_u16.to_be();
    let address = libc::sockaddr_ll {
        sll_family: 17, // AF_PACKET
        sll_protocol: ALL_PROTOCOLS,
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the address is a live `sockaddr_ll`, and its size, 20 bytes, is passed.
    let status = unsafe { libc::bind(packet.as_raw_fd(), (&raw const address).cast(), 20) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const _: () = assert!(size_of::<libc::sockaddr_ll>() == 20);
const _: () = assert!(size_of::<libc::c_int>() == 4);

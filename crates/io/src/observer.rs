//! Sees packets with a mark wherever the host takes or sends one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, LinkAddr, SockFlag, SockType, recvfrom, socket};

use crate::readable;

/// AF_PACKET and ETH_P_ALL, the latter in network byte order (packet(7)).
const FAMILY: u16 = 17;
const ALL_PROTOCOLS: u16 = 0x0003_u16.to_be();
/// PACKET_OUTGOING (`linux/if_packet.h`).
const OUTGOING: u8 = 4;
/// Bytes of a packet that are read: more than a probe has.
const LONGEST: usize = 2048;

/// Sees all packets of the network namespace that it was opened in.
#[derive(Debug)]
pub struct Observer(OwnedFd);

impl Observer {
    /// Begins to see.
    ///
    /// # Errors
    /// What the kernel says; without `CAP_NET_RAW` it refuses.
    pub fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let packets = socket(AddressFamily::Packet, SockType::Datagram, flags, None)?;
        let everything = libc::sockaddr_ll {
            sll_family: FAMILY,
            sll_protocol: ALL_PROTOCOLS,
            sll_ifindex: 0,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the address is a live `sockaddr_ll` and its size is passed; the descriptor is open.
        let status = unsafe { libc::bind(packets.as_raw_fd(), (&raw const everything).cast(), ADDRESS) };
        Errno::result(status)?;
        Ok(Self(packets))
    }

    /// The interface by which a packet leaves that has `mark` in it and that `wanted` is true of,
    /// waiting `limit` at the most.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn leaving(&self, mark: &[u8], limit: Duration, wanted: impl Fn(u32) -> bool) -> io::Result<Option<u32>> {
        let deadline = Instant::now() + limit;
        loop {
            match self.next(mark) {
                Ok(Some(interface)) if wanted(interface) => return Ok(Some(interface)),
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
            if !readable::wait_until(deadline, self.0.as_fd())? {
                return Ok(None);
            }
        }
    }

    /// The next packet: where it leaves, if it does and has the mark.
    fn next(&self, mark: &[u8]) -> Result<Option<u32>, Errno> {
        let mut bytes = [0; LONGEST];
        let (length, address) = recvfrom::<LinkAddr>(self.0.as_raw_fd(), &mut bytes)?;
        let leaves = address.filter(|address| address.pkttype() == OUTGOING);
        let has_mark = bytes[..length.min(LONGEST)].windows(mark.len()).any(|window| window == mark);
        Ok(leaves.filter(|_| has_mark).and_then(|address| u32::try_from(address.ifindex()).ok()))
    }
}

const ADDRESS: libc::socklen_t = 20;
const _: () = assert!(size_of::<libc::sockaddr_ll>() == ADDRESS as usize);

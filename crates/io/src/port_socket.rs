//! A UDP port at all addresses of the host: which address each datagram was sent to, where it came in, and answers from
//! that address.
//!
//! Read first: ip(7) on `IP_PKTINFO`; RFC 3542 section 6.2 (`IPV6_PKTINFO`).

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrIn, SockaddrIn6,
    SockaddrStorage, bind, recvmsg, sendmsg, setsockopt, socket, sockopt,
};

use crate::readable;

/// All hosts of a link.
const ALL_IPV4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_IPV6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Waits until one of these has a datagram, or a signal came: false if `deadline` came before.
///
/// # Errors
/// What the kernel says.
pub fn wait(sockets: &[PortSocket], deadline: Instant) -> io::Result<bool> {
    readable::wait_until_any(deadline, sockets.iter().map(AsFd::as_fd))
}

/// A socket of one family.
#[derive(Debug)]
pub struct PortSocket {
    descriptor: OwnedFd,
    is_ipv6: bool,
}

/// A datagram that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Who has sent it.
    pub from: SocketAddr,
    /// To which address of the host, or of a group.
    pub to: IpAddr,
    /// The number of the interface that it came in by.
    pub interface: u32,
    /// Its length, or that of the buffer if it is longer.
    pub length: usize,
}

impl PortSocket {
    /// Takes the port in the calling thread's network namespace.
    ///
    /// # Errors
    /// What the kernel says: `AddrInUse` if somebody has the port, at whichever address.
    pub fn open(is_ipv6: bool, port: u16) -> io::Result<Self> {
        let family = if is_ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let descriptor = socket(family, SockType::Datagram, flags, None)?;
        if is_ipv6 {
            setsockopt(&descriptor, sockopt::Ipv6V6Only, &true)?;
            setsockopt(&descriptor, sockopt::Ipv6RecvPacketInfo, &true)?;
            bind(descriptor.as_raw_fd(), &SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0)))?;
        } else {
            setsockopt(&descriptor, sockopt::Ipv4PacketInfo, &true)?;
            bind(descriptor.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)))?;
        }
        Ok(Self { descriptor, is_ipv6 })
    }

    /// Whether it is of IPv6.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.is_ipv6
    }

    /// The next datagram, if there is one. Does not wait.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Arrived>> {
        let mut control = nix::cmsg_space!(libc::in6_pktinfo, libc::in_pktinfo);
        let mut parts = [IoSliceMut::new(buffer)];
        let message = match recvmsg::<SockaddrStorage>(
            self.descriptor.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::empty(),
        ) {
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(None),
            other => other?,
        };
        let place = message.cmsgs()?.find_map(|part| match part {
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                let to = Ipv4Addr::from_bits(u32::from_be(info.ipi_addr.s_addr));
                Some((IpAddr::V4(to), info.ipi_ifindex.cast_unsigned()))
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                Some((IpAddr::V6(info.ipi6_addr.s6_addr.into()), info.ipi6_ifindex))
            }
            _ => None,
        });
        let Some(((to, interface), from)) = place.zip(message.address.as_ref().and_then(address)) else {
            return Ok(None);
        };
        Ok(Some(Arrived { from, to, interface, length: message.bytes }))
    }

    /// Answers whoever has sent a datagram, from the address that it was sent to.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn answer(&self, arrived: &Arrived, bytes: &[u8]) -> io::Result<()> {
        // Of link-local addresses the kernel has to be told the link.
        let is_link_local = matches!(arrived.to, IpAddr::V6(to) if to.is_unicast_link_local());
        let interface = if is_link_local { arrived.interface } else { 0 };
        self.send(arrived.to, interface, arrived.from, bytes)
    }

    /// Sends to all hosts that are on the link of an interface (224.0.0.1, ff02::1).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn send_to_all(&self, interface: u32, port: u16, bytes: &[u8]) -> io::Result<()> {
        if self.is_ipv6 {
            let to = SocketAddrV6::new(ALL_IPV6, port, 0, interface).into();
            self.send(Ipv6Addr::UNSPECIFIED.into(), interface, to, bytes)
        } else {
            self.send(Ipv4Addr::UNSPECIFIED.into(), interface, SocketAddrV4::new(ALL_IPV4, port).into(), bytes)
        }
    }

    fn send(&self, from: IpAddr, interface: u32, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
        let (socket, parts, flags) = (self.descriptor.as_raw_fd(), [IoSlice::new(bytes)], MsgFlags::empty());
        let sent = match (from, to) {
            (IpAddr::V4(from), SocketAddr::V4(to)) => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: interface.cast_signed(),
                    ipi_spec_dst: libc::in_addr { s_addr: from.to_bits().to_be() },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                sendmsg(socket, &parts, &[ControlMessage::Ipv4PacketInfo(&info)], flags, Some(&SockaddrIn::from(to)))
            }
            (IpAddr::V6(from), SocketAddr::V6(to)) => {
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: from.octets() },
                    ipi6_ifindex: interface as _,
                };
                sendmsg(socket, &parts, &[ControlMessage::Ipv6PacketInfo(&info)], flags, Some(&SockaddrIn6::from(to)))
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        Ok(sent.map(drop)?)
    }
}

impl AsFd for PortSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn address(of: &SockaddrStorage) -> Option<SocketAddr> {
    let ipv4 = of.as_sockaddr_in().map(|of| SocketAddr::V4((*of).into()));
    ipv4.or_else(|| of.as_sockaddr_in6().map(|of| SocketAddr::V6((*of).into())))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    #[test]
    fn answers_come_from_the_address_that_was_asked() {
        for (is_ipv6, asked) in [(false, "127.0.0.7"), (true, "::1")] {
            let asked: IpAddr = asked.parse().unwrap();
            // A port that the kernel finds free.
            let port = UdpSocket::bind((asked, 0)).unwrap().local_addr().unwrap().port();
            let server = PortSocket::open(is_ipv6, port).unwrap();
            assert_eq!(PortSocket::open(is_ipv6, port).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            let client = UdpSocket::bind((if is_ipv6 { "::1" } else { "127.0.0.1" }, 0)).unwrap();
            client.connect((asked, port)).unwrap();
            client.send(b"question").unwrap();
            let deadline = Instant::now() + Duration::from_secs(5);
            assert!(wait(std::slice::from_ref(&server), deadline).unwrap());
            let mut buffer = [0; 5];
            let arrived = server.receive(&mut buffer).unwrap().unwrap();
            assert_eq!((arrived.from, arrived.to, arrived.length), (client.local_addr().unwrap(), asked, 5));
            assert!(arrived.interface > 0 && &buffer == b"quest");
            server.answer(&arrived, b"answer").unwrap();
            client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut buffer = [0; 16];
            let length = client.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"answer");
            assert_eq!(server.receive(&mut buffer).unwrap(), None);
        }
    }
}

//! Router advertisements as this host hears them, and asking for them.
//!
//! Read first: RFC 4861 sections 4.1, 4.2, 6.1.2 and 6.3.7; RFC 8781 section 5 (what they say about
//! NAT64 prefixes).
//!
//! A gateway forwards, so its kernel has no use for advertisements, but a raw socket hears them all
//! the same. Only those count that come from where this host's own default routes lead: otherwise a
//! host inside could move the prefix.

use std::fs;
use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, recvmsg, sendto,
    socket,
};
use tombolo_wire::Pref64Option;
use tombolo_wire::pref64::in_advertisement;

use crate::{links, readable};

const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Of messages that have crossed no router (RFC 4861 section 6.1.2).
const NOT_FORWARDED: i32 = 255;
const ADVERTISEMENT: u32 = 134;
/// Type 133, code, checksum (which the kernel fills in), reserved.
const SOLICITATION: [u8; 8] = [133, 0, 0, 0, 0, 0, 0, 0];
/// Longest advertisement that is read: as long as IPv6 carries in one piece everywhere, and more.
const LONGEST: usize = 4096;

/// What a router says about NAT64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertisement {
    /// Its link-local address.
    pub router: Ipv6Addr,
    /// The prefixes that it names, in its order; maybe none.
    pub prefixes: Vec<Pref64Option>,
}

/// A socket that hears advertisements.
#[derive(Debug)]
pub struct Routers(OwnedFd);

impl Routers {
    /// Opens it in the calling thread's network namespace.
    ///
    /// # Errors
    /// What the kernel says; without `CAP_NET_RAW` it refuses.
    pub fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let descriptor = socket(AddressFamily::Inet6, SockType::Raw, flags, SockProtocol::IcmpV6)?;
        // A bit that is set is a type that is kept back.
        let mut filter = [u32::MAX; 8];
        filter[(ADVERTISEMENT / 32) as usize] &= !(1 << (ADVERTISEMENT % 32));
        set_option(&descriptor, libc::IPPROTO_ICMPV6, ICMP6_FILTER, &filter)?;
        set_option(&descriptor, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &1_i32)?;
        set_option(&descriptor, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, &1_i32)?;
        set_option(&descriptor, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, &NOT_FORWARDED)?;
        Ok(Self(descriptor))
    }

    /// Asks the routers of all uplinks to speak up.
    ///
    /// # Errors
    /// What the kernel says, if no interface takes the question.
    pub fn solicit(&self) -> io::Result<()> {
        let mut result = Err(io::Error::other("there is no interface"));
        for interface in uplinks()? {
            let to = SockaddrIn6::from(SocketAddrV6::new(ALL_ROUTERS, 0, 0, interface));
            let sent = sendto(self.0.as_raw_fd(), &SOLICITATION, &to, MsgFlags::empty());
            if result.is_err() {
                result = sent.map(drop).map_err(io::Error::from);
            }
        }
        result
    }

    /// The next advertisement from an uplink, waiting `limit` at the most.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn receive(&self, limit: Duration) -> io::Result<Option<Advertisement>> {
        let deadline = Instant::now() + limit;
        loop {
            match self.try_receive() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
                Ok(None) => continue,
                Ok(found) => return Ok(found),
            }
            if !readable::wait_until(deadline, self.0.as_fd())? {
                return Ok(None);
            }
        }
    }

    /// One message; none if it is not to be believed.
    fn try_receive(&self) -> io::Result<Option<Advertisement>> {
        let mut bytes = [0; LONGEST];
        let mut control = nix::cmsg_space!(libc::in6_pktinfo, libc::c_int);
        let (length, from, interface, hops) = {
            let mut parts = [io::IoSliceMut::new(&mut bytes)];
            let message =
                recvmsg::<SockaddrIn6>(self.0.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty())?;
            let (mut interface, mut hops) = (0, 0);
            for part in message.cmsgs()? {
                match part {
                    ControlMessageOwned::Ipv6PacketInfo(info) => interface = info.ipi6_ifindex,
                    ControlMessageOwned::Ipv6HopLimit(limit) => hops = limit,
                    _ => {}
                }
            }
            (message.bytes, message.address.map(|address| address.ip()), interface, hops)
        };
        let Some(router) = from.filter(Ipv6Addr::is_unicast_link_local) else { return Ok(None) };
        if hops != NOT_FORWARDED || !uplinks()?.iter().any(|&uplink| i64::from(uplink) == i64::from(interface)) {
            return Ok(None);
        }
        Ok(Some(Advertisement { router, prefixes: in_advertisement(&bytes[..length]).collect() }))
    }
}

impl AsFd for Routers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `linux/icmpv6.h`; the libc crate has no name for it.
const ICMP6_FILTER: libc::c_int = 1;

fn set_option<T>(descriptor: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the descriptor is open, and the kernel reads `length` bytes from `value`, which
    // points to a live T of that size; all callers pass integers or arrays of them.
    let result = unsafe { libc::setsockopt(descriptor.as_raw_fd(), level, name, value, length) };
    Errno::result(result).map(drop).map_err(io::Error::from)
}

/// Numbers of the interfaces that IPv6 default routes lead out of; of all Ethernet interfaces that
/// are up, if there is no such route: it may be an advertisement that makes it.
fn uplinks() -> io::Result<Vec<u32>> {
    let routes = fs::read_to_string("/proc/thread-self/net/ipv6_route")?;
    let mut found: Vec<u32> =
        default_interfaces(&routes).filter_map(|name| nix::net::if_::if_nametoindex(name).ok()).collect();
    if found.is_empty() {
        found = links::ethernet()?.into_iter().filter(|link| link.is_up).map(|link| link.index).collect();
    }
    Ok(found)
}

/// Destination, its length, source, its length, next hop, metric, two counters, flags, interface
/// (`net/ipv6/route.c`).
fn default_interfaces(routes: &str) -> impl Iterator<Item = &str> {
    routes.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_default = words.first()?.bytes().all(|digit| digit == b'0') && *words.get(1)? == "00";
        // The kernel's own entry for "unreachable" is at the loopback interface.
        words.get(9).copied().filter(|&name| is_default && name != "lo")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_tell_the_uplinks() {
        let routes = "\
            fe800000000000000000000000000000 40 00000000000000000000000000000000 00 \
            00000000000000000000000000000000 00000100 00000001 00000000 00000001    inside0\n\
            00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
            20010db8000c00000000000000000001 00000400 00000001 00000000 00000003    core0\n\
            00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
            00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";
        assert_eq!(default_interfaces(routes).collect::<Vec<_>>(), ["core0"]);
        assert_eq!(default_interfaces("").count(), 0);
    }
}

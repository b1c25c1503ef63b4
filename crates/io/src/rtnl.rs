//! A blocking rtnetlink socket: one request, all its answers.
//!
//! Read first: RFC 3549; Linux `Documentation/userspace-api/netlink/intro.rst`.
//!
//! What the gateway asks of the kernel at start and end needs no event loop. The mirror of routes
//! and neighbours, which lives on notifications, does.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::route::RouteAddress;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Protocol number of the gateway's routes and rules, so that `ip route show proto 84` lists them.
/// Numbers are free to choose above 4 where no routing daemon of `/etc/iproute2/rt_protos` has one.
pub(crate) const ROUTE_PROTOCOL: u8 = 84;

/// An open socket. Belongs to the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct RouteSocket {
    socket: Socket,
    sequence: u32,
}

impl RouteSocket {
    /// Opens a socket.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Asks for a change, or for one object. Gives what the kernel answered before its
    /// acknowledgement.
    ///
    /// # Errors
    /// The error number that the kernel answered.
    pub fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags)
    }

    /// Asks for all objects of a kind.
    ///
    /// # Errors
    /// The error number that the kernel answered.
    pub fn dump(&mut self, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_DUMP)
    }

    /// Asks for the objects of a kind that are like `message`: the kernel goes by its members, which
    /// [`dump`](Self::dump) has it ignore. Kernels before 4.20 send all of them.
    ///
    /// # Errors
    /// The error number that the kernel answered. A table that does not exist has no routes.
    pub fn dump_of(&mut self, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        let strict = self.socket.set_netlink_get_strict_chk(true).is_ok();
        let answers = self.dump(message);
        if strict {
            self.socket.set_netlink_get_strict_chk(false)?;
        }
        match answers {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Vec::new()),
            other => other,
        }
    }

    fn exchange(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        self.collect()
    }

    /// Reads datagrams until the acknowledgement, the end of the dump, or an error.
    fn collect(&mut self) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            for message in messages(&datagram) {
                let message = message?;
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    _ => {}
                }
            }
        }
    }
}

/// The messages of a datagram, until one that cannot be read.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = io::Result<NetlinkMessage<RouteNetlinkMessage>>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest);
        // Messages are padded to four bytes; the last one need not be.
        let length = message.as_ref().map_or(rest.len(), |message| message.header.length as usize);
        rest = rest.get(length.next_multiple_of(4).max(16)..).unwrap_or_default();
        Some(message.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string())))
    })
}

/// The address that a default route is for.
pub(crate) fn default_address(family: AddressFamily) -> Option<IpAddr> {
    match family {
        AddressFamily::Inet => Some(IpAddr::from([0; 4])),
        AddressFamily::Inet6 => Some(IpAddr::from([0; 16])),
        _ => None,
    }
}

pub(crate) fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

//! The features, each by an exchange of real packets: what was seen, or what was not.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use tombolo_lab::topology::{CLIENT_V6, SERVER_V4};

use super::cable::Cable;
use super::packets::{ACK, ICMP, ICMPV6, Packet, SYN, TCP, UDP};
use crate::gateway::start::STATIC_PORT;

/// What was seen, or what was not.
pub(super) type Seen = Result<String, String>;

/// A gateway between two cables, and under which addresses the two sides see each other.
pub(super) struct Bed {
    pub(super) inside: Cable,
    pub(super) outside: Cable,
    /// The server, as the client sees it.
    pub(super) server: IpAddr,
    /// The client's [`STATIC_PORT`], as the server sees it.
    pub(super) client: Option<SocketAddr>,
}

/// Inside hosts that share outside addresses; more than the lab's pools have.
pub(super) const HOSTS: u16 = 20;
/// The gateway's own addresses on its two links.
const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const GATEWAY_V4: [u8; 4] = [198, 51, 100, 1];
const ARP: [u8; 2] = [0x08, 0x06];
/// An MTU that every link of the lab has, bytes.
const LINK_MTU: usize = 1500;

/// The addresses of the inside hosts.
pub(super) fn hosts() -> Vec<IpAddr> {
    let more = (0..HOSTS).map(|host| Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 1, host).into());
    std::iter::once(CLIENT_V6.into()).chain(more).collect()
}

impl Bed {
    fn client_at(port: u16) -> SocketAddr {
        SocketAddr::new(CLIENT_V6.into(), port)
    }

    fn server_at(port: u16) -> SocketAddr {
        SocketAddr::new(SERVER_V4.into(), port)
    }

    fn server_seen_at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.server, port)
    }

    /// Sends a packet from inside to the server; what arrives there.
    fn outwards(&self, what: &str, packet: &Packet) -> Result<Packet, String> {
        self.inside.send(std::slice::from_ref(packet))?;
        let wanted = |arrived: &Packet| arrived.destination == IpAddr::from(SERVER_V4);
        self.outside.arrives(&format!("{what}, translated to IPv4,"), |p| wanted(p).then(|| p.clone()))
    }

    /// Likewise from the server to an inside host.
    fn inwards(&self, what: &str, packet: &Packet, host: IpAddr) -> Result<Packet, String> {
        self.outside.send(std::slice::from_ref(packet))?;
        self.inside.arrives(&format!("{what}, translated to IPv6,"), |p| (p.destination == host).then(|| p.clone()))
    }

    /// A datagram of the client's, and from where it arrived: a session, where the gateway has such.
    fn session(&self, port: u16) -> Result<SocketAddr, String> {
        let packet = Packet::udp(Self::client_at(port), self.server_seen_at(port), b"a session");
        Ok(self.outwards("a datagram", &packet)?.from())
    }

    pub(super) fn neighbour_solicitation(&self) -> Seen {
        let solicited = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1);
        let own = [&[1, 1][..], &self.inside.own_address()].concat();
        let rest = [&[0; 4][..], &GATEWAY_V6.octets(), &own].concat();
        let mut packet = Packet::icmp(CLIENT_V6.into(), solicited.into(), (135, 0), &rest);
        packet.hop_limit = 255;
        self.inside.send(&[packet])?;
        let is_answer = |p: &Packet| {
            p.kind() == (136, 0) && p.protocol == ICMPV6 && p.is_right() && p.payload[8..24] == GATEWAY_V6.octets()
        };
        self.inside.arrives("an advertisement", |p| is_answer(p).then_some(()))?;
        Ok("an advertisement of its address on the link, with the right checksum".to_owned())
    }

    pub(super) fn arp(&self) -> Seen {
        let own = self.outside.own_address();
        let request = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &own, &SERVER_V4.octets(), &[0; 6], &GATEWAY_V4];
        self.outside.send_frame([0xff; 6], ARP, &request.concat())?;
        let is_answer = |kind, payload: &[u8]| {
            kind == ARP && payload.get(7) == Some(&2) && payload.get(14..18) == Some(&GATEWAY_V4)
        };
        self.outside.frame("a reply", |kind, payload| is_answer(kind, payload).then_some(()))?;
        Ok("a reply for its address on the link".to_owned())
    }

    pub(super) fn own_echo_v6(&self) -> Seen {
        own_echo(&self.inside, CLIENT_V6.into(), GATEWAY_V6.into(), (128, 129))
    }

    pub(super) fn own_echo_v4(&self) -> Seen {
        own_echo(&self.outside, SERVER_V4.into(), GATEWAY_V4.into(), (8, 0))
    }

    pub(super) fn tcp(&self) -> Seen {
        let (client, server) = (Self::client_at(4001), self.server_seen_at(80));
        let syn = Packet::tcp(client, server, SYN, (1000, 0), b"");
        let arrived = self.outwards("a SYN", &syn)?;
        check(&arrived, TCP, Self::server_at(80), b"")?;
        let answer =
            |flags, numbers, data: &[u8]| Packet::tcp(Self::server_at(80), arrived.from(), flags, numbers, data);
        let back = self.inwards("a SYN+ACK", &answer(SYN | ACK, (2000, 1001), b""), client.ip())?;
        check(&back, TCP, client, b"")?;
        let data = Packet::tcp(client, server, ACK, (1001, 2001), b"a request");
        check(&self.outwards("a segment", &data)?, TCP, Self::server_at(80), b"a request")?;
        let back = self.inwards("a segment", &answer(ACK, (2001, 1010), b"an answer"), client.ip())?;
        check(&back, TCP, client, b"an answer")?;
        match back.from() == server {
            true => Ok("a connection was opened and carried data both ways, every checksum right".to_owned()),
            false => Err(format!("the answer came from {}", back.from())),
        }
    }

    pub(super) fn udp(&self) -> Seen {
        let (client, server) = (Self::client_at(4002), self.server_seen_at(53));
        let arrived = self.outwards("a datagram", &Packet::udp(client, server, b"a question"))?;
        check(&arrived, UDP, Self::server_at(53), b"a question")?;
        let answer = Packet::udp(Self::server_at(53), arrived.from(), b"an answer");
        let back = self.inwards("a datagram", &answer, client.ip())?;
        check(&back, UDP, client, b"an answer")?;
        match back.from() == server {
            true => Ok("a question and its answer, both checksums right".to_owned()),
            false => Err(format!("the answer came from {}", back.from())),
        }
    }

    pub(super) fn icmp(&self) -> Seen {
        let request = Packet::icmp(CLIENT_V6.into(), self.server, (128, 0), b"\x11\x22\0\x01ping");
        let arrived = self.outwards("an echo request", &request)?;
        check_icmp(&arrived, ICMP, (8, 0), b"ping")?;
        let reply = Packet::icmp(SERVER_V4.into(), arrived.source, (0, 0), &arrived.payload[4..]);
        let back = self.inwards("an echo reply", &reply, CLIENT_V6.into())?;
        check_icmp(&back, ICMPV6, (129, 0), b"ping")?;
        match back.ports() == (0x1122, 1) {
            true => Ok("a request and its reply, with the client's identifier, both checksums right".to_owned()),
            false => Err(format!("the reply has identifier {:#x}", back.ports().0)),
        }
    }

    /// Hosts that all send from one port: each has its own endpoint outside, some of them on one
    /// address, and its own answer.
    pub(super) fn sessions(&self) -> Seen {
        let hosts: Vec<SocketAddr> = hosts().into_iter().map(|host| SocketAddr::new(host, 4003)).collect();
        let mut seen = BTreeSet::new();
        for (number, host) in (0..).zip(&hosts) {
            let arrived = self.outwards("a datagram", &Packet::udp(*host, self.server_seen_at(53), &[number]))?;
            check(&arrived, UDP, Self::server_at(53), &[number])?;
            let answer = Packet::udp(Self::server_at(53), arrived.from(), &[number]);
            check(&self.inwards("an answer", &answer, host.ip())?, UDP, *host, &[number])?;
            seen.insert(arrived.from());
        }
        let addresses = seen.iter().map(SocketAddr::ip).collect::<BTreeSet<_>>().len();
        let said = format!("{} hosts had {} endpoints on {addresses} IPv4 addresses", hosts.len(), seen.len());
        match seen.len() == hosts.len() && addresses < hosts.len() {
            true => Ok(format!("{said}, and each its own answers")),
            false => Err(said),
        }
    }

    /// A checksum that is wrong stays wrong by as much: it was adapted, not computed anew, which would
    /// hide the damage.
    pub(super) fn delta_checksum(&self) -> Seen {
        let mut damaged = Packet::udp(Self::client_at(4004), self.server_seen_at(53), b"damaged");
        damaged.payload[9] ^= 0x20;
        let arrived = self.outwards("a datagram with a wrong checksum", &damaged)?;
        match (arrived.sum() == damaged.sum(), arrived.is_right()) {
            (true, _) => Ok("the checksum of a damaged datagram was adapted, and is as wrong as before".to_owned()),
            (false, true) => Err("the checksum was computed anew, which hides the damage".to_owned()),
            (false, false) => Err(format!("off by {:#x} before, by {:#x} behind it", !damaged.sum(), !arrived.sum())),
        }
    }

    /// An IPv4 datagram without a checksum has to get one (RFC 7915 section 4.5).
    pub(super) fn payload_checksum(&self) -> Seen {
        let outside = self.session(4005)?;
        let mut packet = Packet::udp(Self::server_at(4005), outside, b"without a checksum");
        packet.payload[6..8].copy_from_slice(&[0, 0]);
        let arrived = self.inwards("a datagram without a checksum", &packet, CLIENT_V6.into())?;
        check(&arrived, UDP, Self::client_at(4005), b"without a checksum")?;
        Ok("an IPv4 datagram without a checksum arrived with the right one".to_owned())
    }

    /// The server begins.
    pub(super) fn connection_from_outside(&self) -> Seen {
        let client = self.client.ok_or("no address was configured for the client")?;
        let syn = Packet::tcp(Self::server_at(5001), client, SYN, (1, 0), b"");
        let arrived = self.inwards("a SYN from outside", &syn, CLIENT_V6.into())?;
        check(&arrived, TCP, Self::client_at(STATIC_PORT), b"")?;
        let answer = Packet::tcp(arrived.to(), arrived.from(), SYN | ACK, (7, 2), b"");
        let back = self.outwards("the SYN+ACK", &answer)?;
        check(&back, TCP, Self::server_at(5001), b"")?;
        match back.from() == client {
            true => Ok(format!("the server reached the client at {client}, and was answered from there")),
            false => Err(format!("the answer came from {}, not {client}", back.from())),
        }
    }

    /// Every port of the mapped address is the host's, both ways.
    pub(super) fn explicit_mapping(&self) -> Seen {
        let client = self.client.ok_or("no address was configured for the client")?;
        let mapped = SocketAddr::new(client.ip(), 6001);
        let packet = Packet::udp(Self::server_at(6002), mapped, b"unasked");
        check(
            &self.inwards("a datagram from outside", &packet, CLIENT_V6.into())?,
            UDP,
            Self::client_at(6001),
            b"unasked",
        )?;
        let other = Packet::udp(Self::client_at(6003), self.server_seen_at(6004), b"out");
        let arrived = self.outwards("a datagram", &other)?;
        check(&arrived, UDP, Self::server_at(6004), b"out")?;
        match arrived.from() == SocketAddr::new(client.ip(), 6003) {
            true => Ok(format!("{CLIENT_V6} is {}, both ways, with every port kept", client.ip())),
            false => Err(format!("port 6003 of the client was {} outside", arrived.from())),
        }
    }

    /// Both ends say of a datagram that nobody wants it.
    pub(super) fn icmp_errors(&self) -> Seen {
        let (client, server) = (Self::client_at(4006), self.server_seen_at(7000));
        let arrived = self.outwards("a datagram", &Packet::udp(client, server, b"unwanted"))?;
        let embedded = [&[0; 4][..], &arrived.emit()].concat();
        let error = Packet::icmp(SERVER_V4.into(), arrived.source, (3, 3), &embedded);
        let back = self.inwards("an ICMP error", &error, CLIENT_V6.into())?;
        check_error(&back, ICMPV6, (1, 4), (client, server))?;
        let answer = Packet::udp(Self::server_at(7000), arrived.from(), b"an answer");
        let received = self.inwards("a datagram", &answer, CLIENT_V6.into())?;
        let embedded = [&[0; 4][..], &received.emit()].concat();
        let error = Packet::icmp(CLIENT_V6.into(), self.server, (1, 4), &embedded);
        let back = self.outwards("an ICMPv6 error", &error)?;
        check_error(&back, ICMP, (3, 3), (Self::server_at(7000), arrived.from()))?;
        Ok("`port unreachable` came through both ways, with the packet inside it as its sender knows it".to_owned())
    }

    pub(super) fn hop_limit(&self) -> Seen {
        let (client, server) = (Self::client_at(4007), self.server_seen_at(33_434));
        let mut packet = Packet::udp(client, server, b"traceroute");
        packet.hop_limit = 1;
        self.inside.send(&[packet])?;
        let wanted = |p: &Packet| (p.protocol == ICMPV6 && p.kind() == (3, 0)).then(|| p.clone());
        let error = self.inside.arrives("`time exceeded`", wanted)?;
        check_error(&error, ICMPV6, (3, 0), (client, server))?;
        Ok(format!("a packet that ended here was answered by {}", error.source))
    }

    /// A packet from IPv4 grows by 20 bytes, and then does not fit.
    pub(super) fn packet_too_big(&self) -> Seen {
        let outside = self.session(4008)?;
        let mut packet = Packet::udp(Self::server_at(4008), outside, &vec![7; LINK_MTU - 28]);
        packet.dont_fragment = true;
        self.outside.send(&[packet])?;
        let wanted = |p: &Packet| (p.protocol == ICMP && p.kind() == (3, 4)).then(|| p.clone());
        let error = self.outside.arrives("`fragmentation needed`", wanted)?;
        check_error(&error, ICMP, (3, 4), (Self::server_at(4008), outside))?;
        let mtu = usize::from(error.word(6));
        match mtu + 20 <= LINK_MTU && mtu >= 1260 {
            true => Ok(format!("`fragmentation needed`, and that {mtu} bytes fit")),
            false => Err(format!("it says that {mtu} bytes fit")),
        }
    }

    /// A datagram of 2000 bytes in two fragments, both ways, whole again or still in parts.
    pub(super) fn fragments(&self) -> Seen {
        let data: Vec<u8> = (0..2000_u16).map(|n| n.to_be_bytes()[1]).collect();
        let (client, server) = (Self::client_at(4009), self.server_seen_at(4009));
        let outside = self.session(4009)?;
        self.inside.send(&Packet::udp(client, server, &data).in_two(0x0102_0304, 1200))?;
        let arrived = whole("from inside", &self.outside, SERVER_V4.into())?;
        check(&arrived, UDP, Self::server_at(4009), &data)?;
        self.outside.send(&Packet::udp(Self::server_at(4009), outside, &data).in_two(0x0102, 1200))?;
        let back = whole("from outside", &self.inside, CLIENT_V6.into())?;
        check(&back, UDP, client, &data)?;
        Ok("a datagram of 2000 bytes in two fragments arrived unharmed, both ways".to_owned())
    }
}

fn own_echo(cable: &Cable, source: IpAddr, gateway: IpAddr, (request, reply): (u8, u8)) -> Seen {
    cable.send(&[Packet::icmp(source, gateway, (request, 0), b"\0\x07\0\x01own")])?;
    let is_reply = |p: &Packet| p.source == gateway && p.kind() == (reply, 0) && p.data() == b"own" && p.is_right();
    cable.arrives("a reply", |p| is_reply(p).then_some(()))?;
    Ok("a reply with the right checksum".to_owned())
}

/// All parts of a datagram to a host, together.
fn whole(from: &str, cable: &Cable, host: IpAddr) -> Result<Packet, String> {
    let mut parts: Vec<Packet> = Vec::new();
    cable.arrives(&format!("a datagram in fragments {from}"), |part| {
        if part.destination != host || part.protocol != UDP {
            return None;
        }
        parts.push(part.clone());
        parts.sort_by_key(|part| part.fragment.map_or(0, |fragment| fragment.offset));
        let mut together = Packet { fragment: None, payload: Vec::new(), ..parts[0].clone() };
        for part in &parts {
            if part.fragment.map_or(0, |fragment| usize::from(fragment.offset)) != together.payload.len() {
                return None;
            }
            together.payload.extend(&part.payload);
        }
        parts.last().is_some_and(|last| last.fragment.is_none_or(|fragment| !fragment.more)).then_some(together)
    })
}

fn check(packet: &Packet, protocol: u8, to: SocketAddr, data: &[u8]) -> Result<(), String> {
    match () {
        () if packet.protocol != protocol => Err(format!("protocol {} arrived", packet.protocol)),
        () if !packet.is_right() => Err("the checksum is wrong behind it".to_owned()),
        () if packet.to() != to => Err(format!("it arrived at {}, not at {to}", packet.to())),
        () if packet.data() != data => Err("the data are not those that were sent".to_owned()),
        () => Ok(()),
    }
}

fn check_icmp(packet: &Packet, protocol: u8, kind: (u8, u8), data: &[u8]) -> Result<(), String> {
    match () {
        () if packet.protocol != protocol || packet.kind() != kind => {
            Err(format!("type {} arrived, not {}", packet.kind().0, kind.0))
        }
        () if !packet.is_right() => Err("the checksum is wrong behind it".to_owned()),
        () if packet.data() != data => Err("the data are not those that were sent".to_owned()),
        () => Ok(()),
    }
}

/// The packet inside an error is the one that its receiver has sent.
fn check_error(
    packet: &Packet,
    protocol: u8,
    kind: (u8, u8),
    (from, to): (SocketAddr, SocketAddr),
) -> Result<(), String> {
    if packet.protocol != protocol || packet.kind() != kind || !packet.is_right() {
        return Err(format!("type {:?} arrived, not {kind:?}, or its checksum is wrong", packet.kind()));
    }
    let embedded = Packet::parse(packet.data()).ok_or("the packet inside the error cannot be read")?;
    match (embedded.from(), embedded.to()) == (from, to) {
        true => Ok(()),
        false => Err(format!("the packet inside the error goes from {} to {}", embedded.from(), embedded.to())),
    }
}

//! NAT behaviour discovery with STUN (RFC 5780): does a NAT map endpoint-independently, and whom
//! does it let in?
//!
//! Read first: RFC 8489 sections 5 and 14, RFC 5780 sections 4.3, 4.4 and 7.
//!
//! ```text
//! message    type (2) | length (2) | 21 12 a4 42 | transaction (12) | attributes
//! attribute  type (2) | length (2) | value, padded to 4
//! ```
//!
//! [`Server`] answers on two addresses with two ports each, from the endpoint that the request asks
//! for; [`discover`] is the client. The client gets the server's four endpoints instead of
//! reading OTHER-ADDRESS: behind a NAT64 it has other addresses for them. The server sends
//! OTHER-ADDRESS all the same, for other clients.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{LabError, Namespace};

const MAGIC: u32 = 0x2112_a442;
const HEADER: usize = 20;
const REQUEST: u16 = 0x0001;
const RESPONSE: u16 = 0x0101;
const CHANGE_REQUEST: u16 = 0x0003;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;
const RESPONSE_ORIGIN: u16 = 0x802b;
const OTHER_ADDRESS: u16 = 0x802c;
const CHANGE_ADDRESS: u32 = 4;
const CHANGE_PORT: u32 = 2;
/// An answer that has not come by then does not come.
const PATIENCE: Duration = Duration::from_millis(700);
/// Requests are sent again: a lost datagram is no behaviour of a NAT.
const TRIES: usize = 3;

/// How a NAT chooses outside endpoints (RFC 4787 section 4.1), or whom it lets in (section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// The same for all remote endpoints; anybody.
    EndpointIndependent,
    /// By remote address.
    AddressDependent,
    /// By remote address and port.
    AddressAndPortDependent,
}

/// What was found out about a NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Discovered {
    /// The outside endpoint that the server saw first.
    pub outside: SocketAddr,
    /// How outside endpoints are chosen.
    pub mapping: Behaviour,
    /// Who may answer.
    pub filtering: Behaviour,
}

/// The server: two addresses, two ports.
#[derive(Debug)]
pub struct Server {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<(), LabError>>>,
}

impl Server {
    /// Serves `addresses` and `ports` in `namespace` until it is dropped.
    ///
    /// # Errors
    /// [`LabError`] if a thread cannot be started there.
    ///
    /// # Panics
    /// In its threads, if an address cannot be bound; no answers come then.
    pub fn start(namespace: &Namespace, addresses: [Ipv4Addr; 2], ports: [u16; 2]) -> Result<Self, LabError> {
        let bind = |address: usize, port: usize| UdpSocket::bind((addresses[address], ports[port]));
        let sockets = namespace.run(|| [[bind(0, 0), bind(0, 1)], [bind(1, 0), bind(1, 1)]])?;
        let sockets = Arc::new(sockets.map(|row| row.map(|socket| Arc::new(socket.expect("addresses of the lab")))));
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (address, port) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let (sockets, stop) = (Arc::clone(&sockets), Arc::clone(&stop));
            threads.push(namespace.spawn(move || serve(&sockets, address, port, &stop))?);
        }
        Ok(Self { stop, threads })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(sockets: &[[Arc<UdpSocket>; 2]; 2], address: usize, port: usize, stop: &AtomicBool) {
    let socket = &sockets[address][port];
    let _ = socket.set_read_timeout(Some(Duration::from_millis(100)));
    let mut buffer = [0; 1500];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, client)) = socket.recv_from(&mut buffer) else { continue };
        let request = &buffer[..length];
        if kind(request) != Some(REQUEST) {
            continue;
        }
        let change =
            attribute(request, CHANGE_REQUEST).and_then(|value| value.try_into().ok()).map_or(0, u32::from_be_bytes);
        let from_address = if change & CHANGE_ADDRESS == 0 { address } else { 1 - address };
        let from_port = if change & CHANGE_PORT == 0 { port } else { 1 - port };
        let from = &sockets[from_address][from_port];
        let endpoint = |socket: &UdpSocket| socket.local_addr().unwrap_or(client);
        let mut answer = message(RESPONSE, &request[8..HEADER]);
        add(&mut answer, XOR_MAPPED_ADDRESS, &xored(client));
        add(&mut answer, RESPONSE_ORIGIN, &plain(endpoint(from)));
        add(&mut answer, OTHER_ADDRESS, &plain(endpoint(&sockets[1 - address][1 - port])));
        let _ = from.send_to(&answer, client);
    }
}

/// Finds out how the NAT in front of this host behaves. `servers[a][p]` is the server's address `a`
/// with port `p` as this host reaches it; `local` is the address to send from.
///
/// `None` if the server does not answer at all.
#[must_use]
pub fn discover(local: IpAddr, servers: [[SocketAddr; 2]; 2]) -> Option<Discovered> {
    let mapping_socket = UdpSocket::bind((local, 0)).ok()?;
    // RFC 5780 section 4.3: the primary endpoint, the other address, the other address and port.
    let [first, second, third] =
        [servers[0][0], servers[1][0], servers[1][1]].map(|server| ask(&mapping_socket, server, 0));
    let (first, second, third) = (first?, second?, third?);
    let mapping = match (first == second, second == third) {
        (true, _) => Behaviour::EndpointIndependent,
        (false, true) => Behaviour::AddressDependent,
        (false, false) => Behaviour::AddressAndPortDependent,
    };
    // Section 4.4, from a socket that has never sent to the other endpoints.
    let filtering_socket = UdpSocket::bind((local, 0)).ok()?;
    ask(&filtering_socket, servers[0][0], 0)?;
    let filtering = if ask(&filtering_socket, servers[0][0], CHANGE_ADDRESS | CHANGE_PORT).is_some() {
        Behaviour::EndpointIndependent
    } else if ask(&filtering_socket, servers[0][0], CHANGE_PORT).is_some() {
        Behaviour::AddressDependent
    } else {
        Behaviour::AddressAndPortDependent
    };
    Some(Discovered { outside: first, mapping, filtering })
}

/// Sends a request; the endpoint that the server saw, if it answers.
fn ask(socket: &UdpSocket, server: SocketAddr, change: u32) -> Option<SocketAddr> {
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut transaction = [0x5a; 12];
    transaction[..2].copy_from_slice(&socket.local_addr().ok()?.port().to_be_bytes());
    transaction[2..4].copy_from_slice(&server.port().to_be_bytes());
    transaction[4] = u8::try_from(change).ok()?;
    transaction[5] = match server.ip() {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    let mut request = message(REQUEST, &transaction);
    if change != 0 {
        add(&mut request, CHANGE_REQUEST, &change.to_be_bytes());
    }
    for _ in 0..TRIES {
        socket.send_to(&request, server).ok()?;
        let mut buffer = [0; 1500];
        while let Ok((length, _)) = socket.recv_from(&mut buffer) {
            let answer = &buffer[..length];
            // An answer that came late belongs to another transaction.
            if kind(answer) == Some(RESPONSE) && answer[8..HEADER] == transaction {
                return unxored(attribute(answer, XOR_MAPPED_ADDRESS)?);
            }
        }
    }
    None
}

fn message(kind: u16, transaction: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_be_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(MAGIC.to_be_bytes());
    bytes.extend(transaction);
    bytes
}

/// Adds an attribute, whose length must be a multiple of four.
fn add(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend(kind.to_be_bytes());
    message.extend(u16::try_from(value.len()).unwrap_or(0).to_be_bytes());
    message.extend(value);
    let length = u16::try_from(message.len() - HEADER).unwrap_or(0);
    message[2..4].copy_from_slice(&length.to_be_bytes());
}

/// The type of a whole STUN message.
fn kind(message: &[u8]) -> Option<u16> {
    let word = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
    let is_whole = usize::from(word(2)?) + HEADER == message.len();
    (is_whole && message.get(4..8)? == MAGIC.to_be_bytes()).then(|| word(0)).flatten()
}

fn attribute(message: &[u8], kind: u16) -> Option<&[u8]> {
    let mut rest = message.get(HEADER..)?;
    loop {
        let head = rest.get(..4)?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        if head[..2] == kind.to_be_bytes() {
            return rest.get(4..4 + length);
        }
        rest = rest.get(4 + length.next_multiple_of(4)..)?;
    }
}

fn plain(endpoint: SocketAddr) -> Vec<u8> {
    let IpAddr::V4(address) = endpoint.ip() else { return Vec::new() };
    [[0, 1].as_slice(), &endpoint.port().to_be_bytes(), &address.octets()].concat()
}

/// Exclusive or with the magic number, so that no NAT takes the address for one to be translated.
fn xored(endpoint: SocketAddr) -> Vec<u8> {
    let mut bytes = plain(endpoint);
    let magic = MAGIC.to_be_bytes();
    for (byte, mask) in bytes.iter_mut().skip(2).zip(magic[..2].iter().chain(&magic)) {
        *byte ^= mask;
    }
    bytes
}

fn unxored(value: &[u8]) -> Option<SocketAddr> {
    let &[0, 1, p, q, a, b, c, d] = value else { return None };
    let [m, n, o, r] = MAGIC.to_be_bytes();
    let address = Ipv4Addr::new(a ^ m, b ^ n, c ^ o, d ^ r);
    Some((address, u16::from_be_bytes([p ^ m, q ^ n])).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_in_the_test_vectors_of_rfc_5769() {
        // Section 2.2, the XOR-MAPPED-ADDRESS of the sample IPv4 response: 192.0.2.1 port 32853.
        let value = [0x00, 0x01, 0xa1, 0x47, 0xe1, 0x12, 0xa6, 0x43];
        let endpoint: SocketAddr = (Ipv4Addr::new(192, 0, 2, 1), 32_853).into();
        assert_eq!((unxored(&value), xored(endpoint)), (Some(endpoint), value.to_vec()));
    }

    #[test]
    fn attributes_are_found_and_damaged_messages_are_not() {
        let mut bytes = message(REQUEST, &[7; 12]);
        add(&mut bytes, OTHER_ADDRESS, &[1, 2, 3, 4]);
        add(&mut bytes, CHANGE_REQUEST, &6_u32.to_be_bytes());
        assert_eq!(kind(&bytes), Some(REQUEST));
        assert_eq!(attribute(&bytes, CHANGE_REQUEST), Some([0, 0, 0, 6].as_slice()));
        assert_eq!(attribute(&bytes, RESPONSE_ORIGIN), None);
        for length in 0..bytes.len() {
            assert_eq!(kind(&bytes[..length]), None);
            let _ = attribute(&bytes[..length], CHANGE_REQUEST);
        }
    }

    #[test]
    fn a_host_without_nat_is_found_open() {
        let any = |port| (Ipv4Addr::LOCALHOST, port).into();
        let bind = |address: Ipv4Addr| UdpSocket::bind((address, 0)).map(Arc::new).expect("loopback");
        let (one, two) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));
        let sockets = [[bind(one), bind(one)], [bind(two), bind(two)]];
        let port = |a: usize, p: usize| sockets[a][p].local_addr().expect("bound");
        let servers = [[port(0, 0), port(0, 1)], [port(1, 0), port(1, 1)]];
        let stop = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            for (a, p) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let (sockets, stop) = (&sockets, &stop);
                scope.spawn(move || serve(sockets, a, p, stop));
            }
            let found = discover(one.into(), servers);
            stop.store(true, Ordering::Relaxed);
            found
        });
        let found = found.expect("an answer");
        assert_eq!(found.outside.ip(), SocketAddr::ip(&any(1)));
        assert_eq!((found.mapping, found.filtering), (Behaviour::EndpointIndependent, Behaviour::EndpointIndependent));
    }
}

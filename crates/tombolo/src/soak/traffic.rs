//! What the hosts of the soak do, all at once and at a modest rate.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use tombolo_lab::{Lab, LabError};

use super::failures::Failures;

/// The hosts' remote.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const UDP_PORT: u16 = 7000;
const TCP_PORT: u16 = 7001;
/// A gateway that was killed is back after this; whoever got no answer tries again so long.
const PATIENCE: Duration = Duration::from_secs(25);
const ANSWER: Duration = Duration::from_millis(500);
/// Idle for longer than the established time and the transitory time after it: only the gateway's
/// probes keep such a connection.
const SILENCE: Duration = Duration::from_secs(85);

/// What the hosts did, in numbers.
#[derive(Debug, Serialize)]
pub(crate) struct Totals {
    /// Datagrams of long-lived flows that were answered; each flow kept its outside endpoint
    /// throughout.
    pub(crate) steady_answers: u64,
    /// Flows of one datagram: answered, and not.
    pub(crate) short_flows: [u64; 2],
    /// Datagrams in fragments that were answered.
    pub(crate) large_answers: u64,
    /// TCP connections that were opened, used and closed; and those that could not be.
    pub(crate) connections: [u64; 2],
    /// TCP connections that were silent for longer than the established time and went on.
    pub(crate) silent_connections: u64,
    /// Packets of scans from outside.
    pub(crate) scans: u64,
    /// Packets of floods: from one host, and from invented ones.
    pub(crate) floods: [u64; 2],
}

impl Totals {
    /// What should have been done and was not.
    pub(crate) fn idle(&self) -> impl Iterator<Item = &'static str> {
        let numbers = [
            ("answers of steady flows", self.steady_answers),
            ("short flows", self.short_flows[0]),
            ("answers in fragments", self.large_answers),
            ("TCP connections", self.connections[0]),
            ("scans", self.scans),
            ("floods from one host", self.floods[0]),
            ("floods from many hosts", self.floods[1]),
        ];
        numbers.into_iter().filter(|(_, number)| *number == 0).map(|(what, _)| what)
    }
}

#[derive(Debug, Default)]
struct Counts {
    steady: AtomicU64,
    short: [AtomicU64; 2],
    large: AtomicU64,
    connections: [AtomicU64; 2],
    silent: AtomicU64,
    scans: AtomicU64,
    floods: [AtomicU64; 2],
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    counts: Counts,
    failures: Arc<Failures>,
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps in steps, to hear of the end.
    fn pause(&self, duration: Duration) {
        let end = Instant::now() + duration;
        while self.goes_on() && Instant::now() < end {
            std::thread::sleep((end - Instant::now()).min(Duration::from_millis(200)));
        }
    }
}

/// The hosts at work.
pub(crate) struct Traffic {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<(), LabError>>>,
}

type Work = fn(&Shared);

impl Traffic {
    /// Starts everything.
    pub(crate) fn start(lab: &Lab, failures: &Arc<Failures>) -> Result<Self, LabError> {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            counts: Counts::default(),
            failures: Arc::clone(failures),
        });
        let works: [(&str, Work); 13] = [
            ("server", serve_udp),
            ("server", serve_tcp),
            ("client", |shared| steady(shared, Family::Ipv4)),
            ("client", |shared| steady(shared, Family::Ipv6)),
            ("client", |shared| short_flows(shared, Family::Ipv4)),
            ("client", |shared| short_flows(shared, Family::Ipv6)),
            ("client", large),
            ("client", |shared| connections(shared, Family::Ipv4)),
            ("client", |shared| connections(shared, Family::Ipv6)),
            ("client", silent_connections),
            ("client", flood_from_one),
            ("client", flood_from_many),
            ("server", scan),
        ];
        let mut threads = Vec::new();
        for (node, work) in works {
            let shared = Arc::clone(&shared);
            threads.push(lab.node(node)?.spawn(move || work(&shared))?);
            // Servers first, and not all at the same moment.
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Self { shared, threads })
    }

    /// New flows and connections so far: that worked, and that did not.
    pub(crate) fn opened(&self) -> [u64; 2] {
        let Counts { short, connections, .. } = &self.shared.counts;
        [0, 1].map(|n| short[n].load(Ordering::Relaxed) + connections[n].load(Ordering::Relaxed))
    }

    /// Stops everything; what was done.
    pub(crate) fn stop(self, failures: &Failures) -> Totals {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failures.add(format!("a host failed: {error}")),
                Err(_) => failures.add("a host panicked".into()),
            }
        }
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let both = |counters: &[AtomicU64; 2]| [read(&counters[0]), read(&counters[1])];
        let counts = &self.shared.counts;
        Totals {
            steady_answers: read(&counts.steady),
            short_flows: both(&counts.short),
            large_answers: read(&counts.large),
            connections: both(&counts.connections),
            silent_connections: read(&counts.silent),
            scans: read(&counts.scans),
            floods: both(&counts.floods),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    /// The remote, as hosts of this family see it.
    pub(super) fn server(self, port: u16) -> SocketAddr {
        match self {
            Self::Ipv4 => (SERVER, port).into(),
            Self::Ipv6 => (Self::ipv6_server(), port).into(),
        }
    }

    /// Host number `n` of those that the client has addresses for.
    pub(super) fn host(self, n: u32) -> IpAddr {
        match self {
            Self::Ipv4 => Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 128).to_bits() + n % 126).into(),
            Self::Ipv6 => Self::ipv6_host(n).into(),
        }
    }

    /// Of those that have IPv6 alone.
    pub(super) fn ipv6_host(n: u32) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 0xdb8, 1, 0xf, 0, 0, 1, u16::try_from(n % 100).unwrap_or(0))
    }

    /// The remote through the NAT64.
    pub(super) fn ipv6_server() -> Ipv6Addr {
        Ipv6Addr::from_bits(0x64_ff9b << 96 | u128::from(SERVER.to_bits()))
    }
}

/// Numbers that look random: three shifts.
pub(super) struct Random(pub(super) u32);

impl Random {
    pub(super) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    pub(super) fn port(&mut self) -> u16 {
        u16::try_from(1024 + self.next() % 64_000).unwrap_or(1024)
    }

    /// One of `list`, if there is one.
    pub(super) fn pick<'l, T>(&mut self, list: &'l [T]) -> Option<&'l T> {
        list.get(usize::try_from(self.next()).unwrap_or(0).checked_rem(list.len())?)
    }
}

/// Answers each datagram with the endpoint that it came from, in text, and the rest as it came.
fn serve_udp(shared: &Shared) {
    let Ok(socket) = UdpSocket::bind((SERVER, UDP_PORT)) else { return shared.failures.add("no UDP server".into()) };
    let _ = socket.set_read_timeout(Some(ANSWER));
    let mut buffer = vec![0; 65_536];
    while shared.goes_on() {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let mut answer = format!("{from} ").into_bytes();
            answer.extend(&buffer[..length]);
            let _ = socket.send_to(&answer, from);
        }
    }
}

/// Answers what comes, until the client closes.
fn serve_tcp(shared: &Shared) {
    let Ok(listener) = TcpListener::bind((SERVER, TCP_PORT)) else {
        return shared.failures.add("no TCP server".into());
    };
    let _ = listener.set_nonblocking(true);
    while shared.goes_on() {
        match listener.accept() {
            Ok((mut stream, _)) => {
                let _ = stream.set_nonblocking(false);
                let _ = stream.set_read_timeout(Some(SILENCE * 2));
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(length @ 1..) = stream.read(&mut buffer) {
                        if stream.write_all(&buffer[..length]).is_err() {
                            break;
                        }
                    }
                });
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn bind(family: Family, host: u32) -> Option<UdpSocket> {
    let socket = UdpSocket::bind((family.host(host), 0)).ok()?;
    socket.set_read_timeout(Some(ANSWER)).ok()?;
    socket.connect(family.server(UDP_PORT)).ok()?;
    Some(socket)
}

/// Sends `payload`; the outside endpoint that the server saw, if it answered with the same bytes.
fn ask(socket: &UdpSocket, payload: &[u8]) -> Option<String> {
    let mut buffer = vec![0; 65_536];
    socket.send(payload).ok()?;
    loop {
        let length = socket.recv(&mut buffer).ok()?;
        let end = buffer[..length].iter().position(|&byte| byte == b' ')?;
        // What answers an earlier question came too late for it. And while no gateway is there, the
        // lab's kernel forwards IPv4 as it is.
        if &buffer[end + 1..length] == payload && buffer.starts_with(b"192.0.2.") {
            return Some(String::from_utf8_lossy(&buffer[..end]).into_owned());
        }
    }
}

/// Flows that go on all the time: each must keep its outside endpoint, whatever else happens,
/// restarts included.
fn steady(shared: &Shared, family: Family) {
    const FLOWS: u32 = 20;
    let sockets: Vec<UdpSocket> = (0..FLOWS).filter_map(|n| bind(family, 100 + n % 4)).collect();
    if sockets.len() < FLOWS as usize {
        shared.failures.add(format!("{family:?}: only {} of {FLOWS} steady flows could begin", sockets.len()));
    }
    let mut seen: Vec<Option<String>> = vec![None; sockets.len()];
    let mut number = 0_u32;
    while shared.goes_on() {
        for (socket, seen) in sockets.iter().zip(&mut seen) {
            let begin = Instant::now();
            let answer = loop {
                number += 1;
                let payload = format!("steady {number}");
                match ask(socket, payload.as_bytes()) {
                    Some(answer) => break Some(answer),
                    None if shared.goes_on() && begin.elapsed() < PATIENCE => {}
                    None => break None,
                }
            };
            match (answer, seen.as_ref()) {
                (Some(answer), Some(before)) if answer != *before => {
                    shared.failures.add(format!("{family:?}: a steady flow moved from {before} to {answer}"));
                    *seen = Some(answer);
                }
                (Some(answer), _) => {
                    count(&shared.counts.steady);
                    *seen = Some(answer);
                }
                (None, _) if shared.goes_on() => {
                    shared.failures.add(format!("{family:?}: a steady flow got no answer for {PATIENCE:?}"));
                }
                (None, _) => return,
            }
        }
        shared.pause(Duration::from_secs(2));
    }
}

/// Flows of one datagram, from many hosts, forgotten at once.
fn short_flows(shared: &Shared, family: Family) {
    let mut n = 0;
    while shared.goes_on() {
        n += 1;
        let answered = bind(family, n % 60).and_then(|socket| ask(&socket, b"short"));
        count(&shared.counts.short[usize::from(answered.is_none())]);
        shared.pause(Duration::from_millis(25));
    }
}

/// Datagrams that travel in fragments, both ways.
fn large(shared: &Shared) {
    let payload: Vec<u8> = (0..9000_u32).map(|n| u8::try_from(n % 251).unwrap_or(0)).collect();
    let mut n = 0;
    while shared.goes_on() {
        n += 1;
        for family in [Family::Ipv4, Family::Ipv6] {
            if bind(family, 90 + n % 2).and_then(|socket| ask(&socket, &payload)).is_some() {
                count(&shared.counts.large);
            }
        }
        shared.pause(Duration::from_millis(500));
    }
}

fn connect(family: Family) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&family.server(TCP_PORT), Duration::from_secs(3)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    Some(stream)
}

fn say(stream: &mut TcpStream, word: &[u8]) -> bool {
    let mut heard = vec![0; word.len()];
    stream.write_all(word).is_ok() && stream.read_exact(&mut heard).is_ok() && heard == word
}

/// Connections that are opened, used and closed; every fourth goes with a reset, since what came is
/// not read.
fn connections(shared: &Shared, family: Family) {
    let mut n = 0_u32;
    while shared.goes_on() {
        n += 1;
        let worked = connect(family).is_some_and(|mut stream| {
            let worked = say(&mut stream, b"opened and used");
            if n.is_multiple_of(4) {
                let _ = stream.write_all(b"unread");
                std::thread::sleep(Duration::from_millis(20));
            }
            worked
        });
        count(&shared.counts.connections[usize::from(!worked)]);
        shared.pause(Duration::from_millis(100));
    }
}

/// Connections that say nothing for longer than the established time, and then go on.
fn silent_connections(shared: &Shared) {
    while shared.goes_on() {
        let mut streams: Vec<(Family, TcpStream)> = [Family::Ipv4, Family::Ipv6]
            .into_iter()
            .filter_map(|family| Some((family, connect(family)?)))
            .filter_map(|(family, mut stream)| say(&mut stream, b"before").then_some((family, stream)))
            .collect();
        shared.pause(SILENCE);
        if !shared.goes_on() {
            return;
        }
        for (family, stream) in &mut streams {
            // A gateway that is being started again takes its time; TCP sends again.
            let _ = stream.set_read_timeout(Some(PATIENCE));
            if say(stream, b"after") {
                count(&shared.counts.silent);
            } else {
                shared.failures.add(format!("{family:?}: a connection did not survive {SILENCE:?} of silence"));
            }
        }
    }
}

/// One host opens flows without end.
fn flood_from_one(shared: &Shared) {
    let mut random = Random(11);
    let host = Family::Ipv4.host(125);
    while shared.goes_on() {
        for _ in 0..10 {
            if let Ok(socket) = UdpSocket::bind((host, 0)) {
                let _ = socket.send_to(b"flood", (SERVER, random.port()));
                count(&shared.counts.floods[0]);
            }
        }
        shared.pause(Duration::from_millis(100));
    }
}

/// Hosts that nobody has.
fn flood_from_many(shared: &Shared) {
    let mut random = Random(12);
    while shared.goes_on() {
        for _ in 0..10 {
            let low = u128::from(random.next()) << 32 | u128::from(random.next());
            let host = Ipv6Addr::from_bits(Ipv6Addr::new(0x2001, 0xdb8, 1, 0xf, 0, 0, 0, 0).to_bits() | low);
            if let Ok(socket) = UdpSocket::bind((host, 0)) {
                let _ = socket.send_to(b"flood", Family::Ipv6.server(random.port()));
                count(&shared.counts.floods[1]);
            }
        }
        shared.pause(Duration::from_millis(100));
    }
}

/// Somebody outside tries ports.
fn scan(shared: &Shared) {
    let mut random = Random(13);
    let Ok(socket) = UdpSocket::bind((SERVER, 0)) else { return };
    while shared.goes_on() {
        for _ in 0..10 {
            let last = u8::try_from(random.next() % 32).unwrap_or(0);
            let to = SocketAddr::from((Ipv4Addr::new(192, 0, 2, last), random.port()));
            let _ = socket.send_to(b"scan", to);
            let _ = TcpStream::connect_timeout(&to, Duration::from_millis(2));
            count(&shared.counts.scans);
        }
        shared.pause(Duration::from_millis(100));
    }
}

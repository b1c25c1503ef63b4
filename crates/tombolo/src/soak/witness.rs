//! Flows and connections that live throughout: what they lose is what the gateway, or a link, did
//! to somebody who had done nothing.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tombolo_lab::{Lab, LabError};

use super::failures::Failures;
use super::known::{Known, TCP_PORT, UDP_PORT};
use super::traffic::{Family, SERVER};

/// Flows of each family.
const FLOWS: u32 = 4;
/// Time between two datagrams of a flow.
const STEP: Duration = Duration::from_millis(20);
/// Who has not been answered after this never will be, however much the machine has to do.
const GRACE: Duration = Duration::from_secs(5);
/// How long a connection may be silent: TCP sends again, less and less often.
const SILENCE: Duration = Duration::from_secs(40);
/// Phases that are told apart.
const MOST: usize = 4096;

/// What the witnesses saw, stretch by stretch.
pub(super) struct Witnesses {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<(), LabError>>>,
}

struct Shared {
    /// The stretch that is on.
    stretch: AtomicUsize,
    stop: AtomicBool,
    sent: Vec<AtomicU64>,
    answered: Vec<AtomicU64>,
    exchanges: Vec<AtomicU64>,
    /// What is asked now asks with this number.
    epoch: AtomicU64,
    /// Flows of which something was answered that asked with it.
    heard: Mutex<Vec<bool>>,
    known: Mutex<Known>,
    failures: Arc<Failures>,
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn stretch(&self) -> usize {
        self.stretch.load(Ordering::Relaxed).min(MOST - 1)
    }
}

impl Witnesses {
    /// Opens all flows and connections.
    pub(super) fn start(lab: &Lab, failures: &Arc<Failures>) -> Result<Self, LabError> {
        let counters = || (0..MOST).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let shared = Arc::new(Shared {
            stretch: AtomicUsize::new(0),
            stop: false.into(),
            sent: counters(),
            answered: counters(),
            exchanges: counters(),
            epoch: AtomicU64::new(0),
            heard: Mutex::new(vec![false; 2 * FLOWS as usize]),
            known: Mutex::default(),
            failures: Arc::clone(failures),
        });
        let clone = || Arc::clone(&shared);
        let (udp, tcp) = (clone(), clone());
        let server = lab.node("server")?;
        let mut threads = vec![server.spawn(move || echo_udp(&udp))?, server.spawn(move || echo_tcp(&tcp))?];
        std::thread::sleep(Duration::from_millis(100));
        for family in [Family::Ipv4, Family::Ipv6] {
            let (flows, connections) = (clone(), clone());
            threads.push(lab.node("client")?.spawn(move || ask_over_udp(&flows, family))?);
            threads.push(lab.node("client")?.spawn(move || talk_over_tcp(&connections, family))?);
        }
        Ok(Self { shared, threads })
    }

    /// Begins the next stretch.
    pub(super) fn next(&self) {
        self.shared.stretch.fetch_add(1, Ordering::Relaxed);
    }

    /// From now on [`all_heard`](Self::all_heard) goes by what is asked from now on.
    pub(super) fn forget(&self) {
        let mut heard = self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.epoch.fetch_add(1, Ordering::Relaxed);
        heard.fill(false);
    }

    /// True if every flow has been answered.
    pub(super) fn all_heard(&self) -> bool {
        self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner).iter().all(|&heard| heard)
    }

    /// Outside endpoints of the witnesses.
    pub(super) fn known(&self) -> Known {
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Datagrams sent and lost in stretch `number`, and exchanges over TCP. A while after its end.
    pub(super) fn saw(&self, number: usize) -> (u64, u64, u64) {
        let read = |counters: &[AtomicU64]| counters[number.min(MOST - 1)].load(Ordering::Relaxed);
        let (sent, answered) = (read(&self.shared.sent), read(&self.shared.answered));
        (sent, sent.saturating_sub(answered), read(&self.shared.exchanges))
    }

    /// Waits until what is on its way has come, and ends all flows and connections. What was
    /// [`seen`](Self::saw) can be read afterwards.
    pub(super) fn stop(&mut self) {
        let (last, end) = (self.shared.stretch(), Instant::now() + GRACE);
        // What is asked from now on is of no stretch, and may go unanswered.
        self.next();
        while self.saw(last).1 > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if !matches!(thread.join(), Ok(Ok(()))) {
                self.shared.failures.add("a witness failed".into());
            }
        }
    }
}

impl Drop for Witnesses {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// Answers each datagram as it came, and notes where it came from.
fn echo_udp(shared: &Shared) {
    let Ok(socket) = UdpSocket::bind((SERVER, UDP_PORT)) else {
        return shared.failures.add("no UDP server for the witnesses".into());
    };
    let _ = socket.set_read_timeout(Some(Duration::from_millis(200)));
    let mut buffer = [0; 64];
    while shared.goes_on() {
        let Ok((length, SocketAddr::V4(from))) = socket.recv_from(&mut buffer) else { continue };
        if is_translated(from) {
            note(shared, |known| &mut known.udp, from);
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

/// While no gateway is there, the lab's kernel could forward IPv4 as it is.
fn is_translated(from: SocketAddrV4) -> bool {
    from.ip().octets()[..3] == Ipv4Addr::new(192, 0, 2, 0).octets()[..3]
}

fn note(shared: &Shared, list: fn(&mut Known) -> &mut Vec<(Ipv4Addr, u16)>, from: SocketAddrV4) {
    let mut known = shared.known.lock().unwrap_or_else(PoisonError::into_inner);
    let (list, endpoint) = (list(&mut known), (*from.ip(), from.port()));
    if !list.contains(&endpoint) {
        list.push(endpoint);
    }
}

/// Answers on every connection what comes.
fn echo_tcp(shared: &Arc<Shared>) {
    let Ok(listener) = TcpListener::bind((SERVER, TCP_PORT)) else {
        return shared.failures.add("no TCP server for the witnesses".into());
    };
    let _ = listener.set_nonblocking(true);
    while shared.goes_on() {
        let Ok((mut stream, from)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        if let SocketAddr::V4(from) = from {
            note(shared, |known| &mut known.tcp, from);
        }
        let _ = stream.set_nonblocking(false);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            let _ = stream.set_read_timeout(Some(SILENCE * 2));
            let mut buffer = [0; 64];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..length]).is_err() || !shared.goes_on() {
                    break;
                }
            }
        });
    }
}

/// Sends numbered datagrams and counts the answers, each for the stretch in which it was asked.
fn ask_over_udp(shared: &Shared, family: Family) {
    let bind = |n| {
        let socket = UdpSocket::bind((family.host(110 + n), 0)).ok()?;
        socket.connect(family.server(UDP_PORT)).ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(socket)
    };
    let sockets: Vec<UdpSocket> = (0..FLOWS).filter_map(bind).collect();
    if sockets.len() < FLOWS as usize {
        return shared.failures.add(format!("{family:?}: the witnesses' flows could not begin"));
    }
    let first = if matches!(family, Family::Ipv4) { 0 } else { FLOWS as usize };
    let mut buffer = [0; 64];
    while shared.goes_on() {
        let begin = Instant::now();
        for (flow, socket) in sockets.iter().enumerate() {
            let stretch = shared.stretch();
            let mut question = [0; 16];
            question[..8].copy_from_slice(&u64::try_from(stretch).unwrap_or(0).to_be_bytes());
            question[8..].copy_from_slice(&shared.epoch.load(Ordering::Relaxed).to_be_bytes());
            // What the sending host's own kernel does not take, for want of a neighbour, counts too:
            // it is lost on the way to the gateway.
            let _ = socket.send(&question);
            shared.sent[stretch].fetch_add(1, Ordering::Relaxed);
            while let Ok(16) = socket.recv(&mut buffer) {
                let word = |at| <[u8; 8]>::try_from(&buffer[at..at + 8]).map_or(0, u64::from_be_bytes);
                let asked_in = usize::try_from(word(0)).unwrap_or(0).min(MOST - 1);
                shared.answered[asked_in].fetch_add(1, Ordering::Relaxed);
                let mut heard = shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
                heard[first + flow] |= word(8) == shared.epoch.load(Ordering::Relaxed);
            }
        }
        std::thread::sleep(STEP.saturating_sub(begin.elapsed()));
    }
}

/// Says a word over each connection ten times a second. None may end.
fn talk_over_tcp(shared: &Shared, family: Family) {
    let connect = |_| {
        let stream = TcpStream::connect_timeout(&family.server(TCP_PORT), Duration::from_secs(5)).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(SILENCE)).ok()?;
        Some(stream)
    };
    let mut streams: Vec<TcpStream> = (0..FLOWS).filter_map(connect).collect();
    if streams.len() < FLOWS as usize {
        return shared.failures.add(format!("{family:?}: the witnesses' connections could not begin"));
    }
    let mut heard = [0; 8];
    while shared.goes_on() {
        for stream in &mut streams {
            let stretch = shared.stretch();
            let talked = stream.write_all(b"a word..").and_then(|()| stream.read_exact(&mut heard));
            match talked {
                Ok(()) => drop(shared.exchanges[stretch].fetch_add(1, Ordering::Relaxed)),
                Err(_) if !shared.goes_on() => return,
                Err(error) => {
                    return shared.failures.add(format!("{family:?}: a connection that lived before ended: {error}"));
                }
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

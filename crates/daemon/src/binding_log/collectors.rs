//! Who gets the log over the network as well. Each collector has a thread and a queue of its own: one
//! that is slow or gone delays neither the file nor the others, and what its queue has no room for is
//! counted, and told it when it takes lines again.

use std::io::{self, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tombolo_config::{Collector, CollectorFormat, Transport};

use super::ipfix::Ipfix;
use super::record::Record;
use super::syslog::{Syslog, frame};
use super::tls::{Secured, Terms};
use crate::health::Health;
use crate::threads::{self, Guarded};
use crate::utc::Utc;

/// The part of the gateway that health reports name.
const PART: &str = "log collectors";
/// Lines that wait for a collector at most.
const WAITING: u64 = 1 << 17;
/// How long a collector may take for a connection, and to take anything at all.
const PATIENCE: Duration = Duration::from_secs(5);
/// From a connection that failed to the next one.
const PAUSE: Duration = Duration::from_secs(2);
/// Between two looks whether the gateway ends.
const LOOK: Duration = Duration::from_millis(250);
/// How often collectors that get datagrams get the templates.
const TEMPLATES: Duration = Duration::from_secs(60);
/// How long is sent on when the gateway ends.
const TO_END: Duration = Duration::from_secs(2);

/// What a collector has got, and what it has not.
#[derive(Debug)]
pub struct Delivery {
    /// The collector.
    pub collector: Collector,
    sent: AtomicU64,
    lost: AtomicU64,
    waiting: AtomicU64,
    /// Since when it gets no more than what waits for it.
    dismissed: OnceLock<Instant>,
}

impl Delivery {
    fn new(collector: Collector) -> Self {
        let (sent, lost, waiting) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { collector, sent, lost, waiting, dismissed: OnceLock::new() }
    }

    /// Lines that were sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Lines that were not.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Lines, for all collectors.
type Batch = Arc<[Record]>;

/// The collectors, as the log sees them.
#[derive(Debug)]
pub(super) struct Collectors {
    feeds: Vec<Feed>,
    faults: Arc<Faults>,
    /// Name of this host.
    host: String,
    guarded: Guarded,
}

/// A collector's queue and thread. Without the queue the thread ends, once it has sent what it can.
#[derive(Debug)]
pub(super) struct Feed {
    queue: Option<SyncSender<Batch>>,
    delivery: Arc<Delivery>,
    thread: Option<JoinHandle<()>>,
}

impl Collectors {
    /// None yet. They end when this is dropped.
    pub(super) fn none(host: &str, guarded: &Guarded) -> Self {
        let faults = Faults { of: Mutex::default(), health: Arc::clone(&guarded.health) };
        Self { feeds: Vec::new(), faults: Arc::new(faults), host: host.to_owned(), guarded: guarded.clone() }
    }

    /// Starts a thread for each of those that have none.
    ///
    /// # Errors
    /// If there are no more threads, or names, certificates or keys are none.
    pub(super) fn prepare(&self, wanted: &[Collector]) -> io::Result<Vec<Feed>> {
        let has_one = |collector: &&Collector| self.feeds.iter().any(|feed| feed.delivery.collector == **collector);
        wanted.iter().filter(|collector| !has_one(collector)).map(|collector| self.start(collector)).collect()
    }

    fn start(&self, collector: &Collector) -> io::Result<Feed> {
        let delivery = Arc::new(Delivery::new(collector.clone()));
        // Bounded by lines; a batch has one at least.
        let (queue, batches) = sync_channel(1 << 10);
        let mut sender = Sender::new(Arc::clone(&delivery), &self.host, Arc::clone(&self.faults))?;
        let named = Guarded { name: "log-collector", ..self.guarded.clone() };
        let thread = threads::spawn(named, move || sender.run(&batches))?;
        Ok(Feed { queue: Some(queue), delivery, thread: Some(thread) })
    }

    /// Goes over to those that are `wanted`. Those that stay are not disturbed; the others get what waits for
    /// them, and nobody waits for that.
    pub(super) fn follow(&mut self, wanted: &[Collector], prepared: Vec<Feed>) {
        let (stay, leave) = std::mem::take(&mut self.feeds)
            .into_iter()
            .partition::<Vec<_>, _>(|feed| wanted.contains(&feed.delivery.collector));
        leave.iter().for_each(|feed| self.faults.dismiss(&feed.delivery));
        self.feeds = stay;
        self.feeds.extend(prepared);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.feeds.is_empty()
    }

    /// What they got.
    pub(super) fn deliveries(&self) -> Vec<Arc<Delivery>> {
        self.feeds.iter().map(|feed| Arc::clone(&feed.delivery)).collect()
    }

    /// Hands lines to all of them. Never waits.
    pub(super) fn send(&self, records: Vec<Record>) {
        let batch: Batch = records.into();
        let count = batch.len() as u64;
        for Feed { queue, delivery, .. } in &self.feeds {
            let has_room = delivery.waiting.fetch_add(count, Ordering::AcqRel) + count <= WAITING;
            let taken = has_room && queue.as_ref().is_some_and(|queue| queue.try_send(Arc::clone(&batch)).is_ok());
            if !taken {
                delivery.waiting.fetch_sub(count, Ordering::AcqRel);
                delivery.lost.fetch_add(count, Ordering::AcqRel);
            }
        }
    }
}

impl Drop for Collectors {
    fn drop(&mut self) {
        // Whoever tries to reach one that is gone does not do so for ever.
        self.feeds.iter().for_each(|feed| self.faults.dismiss(&feed.delivery));
        self.feeds.iter_mut().for_each(|feed| drop(feed.queue.take()));
        for thread in self.feeds.iter_mut().filter_map(|feed| feed.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// What is wrong with which collector.
#[derive(Debug)]
struct Faults {
    of: Mutex<Vec<(Collector, String)>>,
    health: Arc<Health>,
}

impl Faults {
    fn set(&self, delivery: &Delivery, fault: Option<String>) {
        let mut of = self.lock();
        if delivery.dismissed.get().is_none() {
            self.replace(&mut of, &delivery.collector, fault);
        }
    }

    /// Nothing is wrong with it any more, whatever comes of what waits for it.
    fn dismiss(&self, delivery: &Delivery) {
        let mut of = self.lock();
        let _ = delivery.dismissed.set(Instant::now());
        self.replace(&mut of, &delivery.collector, None);
    }

    fn replace(&self, of: &mut Vec<(Collector, String)>, collector: &Collector, fault: Option<String>) {
        let before = of.iter().position(|(other, _)| other == collector).map(|place| of.remove(place).1);
        let is_news = before != fault;
        of.extend(fault.map(|fault| (collector.clone(), fault)));
        if is_news {
            self.health.set(PART, of.iter().map(|(_, fault)| fault.clone()).collect());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Collector, String)>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone)]
enum Encoder {
    Syslog(Syslog),
    Ipfix(Ipfix),
}

#[derive(Debug)]
enum Connection {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Tls(Box<Secured>),
}

/// The thread of a collector.
#[derive(Debug)]
struct Sender {
    delivery: Arc<Delivery>,
    encoder: Encoder,
    /// Of a collector over TLS.
    terms: Option<Terms>,
    connection: Option<Connection>,
    /// When a connection was last tried.
    tried: Option<Instant>,
    /// When templates were last sent.
    templates: Option<Instant>,
    /// Losses that the collector knows of.
    told: u64,
    faults: Arc<Faults>,
}

impl Sender {
    fn new(delivery: Arc<Delivery>, host: &str, faults: Arc<Faults>) -> io::Result<Self> {
        let terms = delivery.collector.tls.as_ref().map(Terms::new).transpose()?;
        let encoder = match delivery.collector.format {
            CollectorFormat::Syslog => Encoder::Syslog(Syslog::new(host, std::process::id())),
            CollectorFormat::Ipfix => Encoder::Ipfix(Ipfix::default()),
        };
        Ok(Self { delivery, encoder, terms, connection: None, tried: None, templates: None, told: 0, faults })
    }

    fn run(&mut self, batches: &Receiver<Batch>) {
        loop {
            match batches.recv_timeout(LOOK) {
                Ok(batch) => self.deliver(&batch),
                // A connection is there before it is needed.
                Err(RecvTimeoutError::Timeout) => drop(self.connect()),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        for batch in batches.try_iter() {
            self.deliver(&batch);
        }
    }

    /// Sends lines, again on a new connection where one breaks. They are lost when others have no room
    /// behind them any more, or the gateway ends, or goes on without this collector.
    fn deliver(&mut self, batch: &[Record]) {
        let count = batch.len() as u64;
        let is_sent = loop {
            let before = (self.encoder.clone(), self.told);
            let result = self.connect().and_then(|()| self.send(batch));
            let Err(error) = result else { break true };
            // What did not arrive has the same numbers when it is sent again.
            (self.encoder, self.told) = before;
            self.fail(&error);
            let is_late = self.delivery.dismissed.get().is_some_and(|since| since.elapsed() > TO_END);
            if is_late || self.delivery.waiting.load(Ordering::Acquire) >= WAITING / 2 {
                break false;
            }
            std::thread::sleep(LOOK);
        };
        self.delivery.waiting.fetch_sub(count, Ordering::AcqRel);
        let counter = if is_sent { &self.delivery.sent } else { &self.delivery.lost };
        counter.fetch_add(count, Ordering::AcqRel);
    }

    fn fail(&mut self, error: &io::Error) {
        self.connection = None;
        let fault = format!("{} gets no lines: {error}", self.delivery.collector);
        self.faults.set(&self.delivery, Some(fault));
    }

    /// Makes sure that there is a connection.
    fn connect(&mut self) -> io::Result<()> {
        if self.connection.is_some() {
            return Ok(());
        }
        if self.tried.is_some_and(|tried| tried.elapsed() < PAUSE) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.tried = Some(Instant::now());
        let opened = self.open();
        match &opened {
            Ok(()) => self.templates = None,
            Err(error) => self.fail(error),
        }
        opened
    }

    fn open(&mut self) -> io::Result<()> {
        let Collector { transport, address, .. } = self.delivery.collector;
        self.connection = Some(match transport {
            Transport::Udp => {
                let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                Connection::Udp(socket)
            }
            Transport::Tcp | Transport::Tls => {
                let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                match &self.terms {
                    Some(terms) => Connection::Tls(Box::new(Secured::open(stream, terms)?)),
                    None => Connection::Tcp(stream),
                }
            }
        });
        Ok(())
    }

    fn send(&mut self, batch: &[Record]) -> io::Result<()> {
        let now = Utc::now();
        let lost = self.delivery.lost();
        let more = lost - self.told;
        let mut messages = Vec::new();
        match &mut self.encoder {
            Encoder::Syslog(syslog) => {
                messages.extend((more > 0).then(|| syslog.lost(more, now)));
                messages.extend(batch.iter().map(|record| syslog.message(record)));
            }
            Encoder::Ipfix(ipfix) => {
                ipfix.lost(more);
                let is_due = |sent: Instant| sent.elapsed() > TEMPLATES;
                let repeats = self.delivery.collector.transport == Transport::Udp;
                if self.templates.is_none_or(|sent| repeats && is_due(sent)) {
                    messages.push(ipfix.templates(now));
                    self.templates = Some(Instant::now());
                }
                messages.extend(ipfix.messages(batch, now));
            }
        }
        self.told = lost;
        let is_syslog = matches!(self.encoder, Encoder::Syslog(_));
        match &mut self.connection {
            None => return Err(io::ErrorKind::NotConnected.into()),
            Some(Connection::Udp(socket)) => send_datagrams(socket, &messages)?,
            Some(Connection::Tcp(stream)) => stream.write_all(&in_stream(&messages, is_syslog))?,
            Some(Connection::Tls(stream)) => stream.send(&in_stream(&messages, is_syslog))?,
        }
        self.faults.set(&self.delivery, None);
        Ok(())
    }
}

fn in_stream(messages: &[Vec<u8>], is_syslog: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        if is_syslog {
            frame(message, &mut bytes);
        } else {
            bytes.extend_from_slice(message);
        }
    }
    bytes
}

/// Sends each message. What the collector's host has refused of earlier ones is said by an error of the
/// first one, which is then sent again.
fn send_datagrams(socket: &UdpSocket, messages: &[Vec<u8>]) -> io::Result<()> {
    let mut refused = None;
    for message in messages {
        if let Err(error) = socket.send(message) {
            if error.kind() != io::ErrorKind::ConnectionRefused {
                return Err(error);
            }
            socket
                .send(message)
                .or_else(|again| if again.kind() == io::ErrorKind::ConnectionRefused { Ok(0) } else { Err(again) })?;
            refused = Some(error);
        }
    }
    // Nobody listens there. What was sent is gone, and nobody knows how much of it.
    refused.map_or(Ok(()), Err)
}

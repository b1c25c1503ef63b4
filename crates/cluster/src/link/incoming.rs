//! The backup's end of connections: whoever connects says which node it is, and its certificate says so too.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tombolo_tables::Tables;

use super::frame::{self, Frame, Hello, VERSION};
use super::standing::{CopyingState, Standings};
use super::stream::{Stream, StreamError};
use super::terms::{self, Terms};
use super::{COPY_LASTS, HANDSHAKE, PERIOD, Surroundings};
use crate::replica::{Applied, Applier, View};

/// So long after an owner is back no packet is on its way that is served in its place.
const SETTLED: Duration = Duration::from_secs(5);
/// Connections at a time, at most.
const MOST: usize = 64;
/// Batches that are applied before they are acknowledged.
const AT_ONCE: usize = 16;

/// What all connections from owners have in common.
#[derive(Debug)]
pub struct Incoming {
    /// The certificates.
    pub terms: Terms,
    /// Where copies are made.
    pub tables: Arc<Tables>,
    /// How it stands.
    pub standings: Arc<Standings>,
    /// The rest.
    pub around: Arc<dyn Surroundings>,
    /// The copies, by the numbers of owners.
    copies: Mutex<BTreeMap<u8, Arc<Mutex<Copy>>>>,
}

/// What one owner has, here.
#[derive(Debug)]
struct Copy {
    applier: Applier,
    incarnation: u64,
    /// Of the connections that there were, the one that counts.
    connection: u64,
    /// When the last one ended.
    ended: Option<Instant>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("{0}")]
    Refused(String),
}

impl Incoming {
    /// No copy yet.
    #[must_use]
    pub fn new(terms: Terms, tables: Arc<Tables>, standings: Arc<Standings>, around: Arc<dyn Surroundings>) -> Self {
        Self { terms, tables, standings, around, copies: Mutex::default() }
    }

    /// Whether there is a copy of all that a node has: up to date, or as it was when the node could no more be
    /// heard, whose connection ended at most 60 seconds before.
    #[must_use]
    pub fn has_copy(&self, node: u8) -> bool {
        let copy = lock(&self.copies).get(&node).cloned();
        copy.is_some_and(|copy| lock(&copy).is_usable())
    }

    /// The copy of what a node has, for a connection that begins; and the number of the connection.
    fn copy_of(&self, node: u8, hello: &Hello) -> (Arc<Mutex<Copy>>, u64) {
        let (capacity, incarnation) = ((hello.subscribers, hello.bindings), hello.incarnation);
        let none = || Copy {
            applier: Applier::new(Arc::clone(&self.tables), node, capacity),
            incarnation,
            connection: 0,
            ended: None,
        };
        let copy = Arc::clone(lock(&self.copies).entry(node).or_insert_with(|| Arc::new(Mutex::new(none()))));
        let mut held = lock(&copy);
        if held.incarnation != incarnation {
            let connection = held.connection;
            *held = Copy { connection, ..none() };
        }
        held.connection += 1;
        let connection = held.connection;
        drop(held);
        (copy, connection)
    }
}

impl Copy {
    fn is_usable(&self) -> bool {
        self.applier.is_complete() && self.ended.is_none_or(|ended| ended.elapsed() < COPY_LASTS)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes connections until the gateway ends. `spawn` starts a thread for each.
pub fn receive(
    incoming: &Arc<Incoming>,
    listener: &TcpListener,
    spawn: &dyn Fn(Box<dyn FnOnce() + Send>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let running = Arc::new(());
    while !incoming.around.is_over() {
        let Ok((socket, _)) = listener.accept() else {
            std::thread::sleep(PERIOD * 20);
            continue;
        };
        if Arc::strong_count(&running) > MOST {
            continue;
        }
        let (incoming, running) = (Arc::clone(incoming), Arc::clone(&running));
        let serve = move || {
            serve(&incoming, socket);
            drop(running);
        };
        // Without a thread the other end tries again.
        let _ = spawn(Box::new(serve));
    }
    Ok(())
}

/// One connection.
fn serve(incoming: &Incoming, socket: TcpStream) {
    let is_over = || incoming.around.is_over();
    let Ok(tls) = incoming.terms.server() else { return };
    let Ok(mut stream) = Stream::new(socket, tls) else { return };
    // Whoever does not get so far is no node.
    if stream.shake_hands(HANDSHAKE, &is_over).is_err() {
        return;
    }
    let Ok(Frame::Hello(hello)) = stream.wait(HANDSHAKE, &is_over) else { return };
    let plan = incoming.around.plan();
    let Some(view) = View::of(&plan) else { return };
    let node = match number_of(&hello, view, &stream) {
        Ok(node) => node,
        Err(words) => return stream.leave(&Frame::Refusal(words)),
    };
    let (copy, connection) = incoming.copy_of(node, &hello);
    let failure = follow(incoming, node, &hello, &copy, connection, &mut stream).err();
    let mut held = lock(&copy);
    if held.connection == connection {
        held.ended = Some(Instant::now());
        incoming.standings.change(node, |copying| {
            copying.from = CopyingState::Broken;
            copying.faults[1] = failure.as_ref().map(ToString::to_string);
        });
    }
    drop(held);
    if let Some(Failure::Refused(words)) = failure {
        stream.leave(&Frame::Refusal(words));
    }
}

/// Which node it is that introduces itself; or why not, in words.
fn number_of(hello: &Hello, view: View<'_>, stream: &Stream) -> Result<u8, String> {
    if frame::common_version(hello.version).is_none() {
        let own = VERSION;
        return Err(format!("version {} of the protocol is not spoken here, which has {own}", hello.version));
    }
    let place = view.cluster().nodes().iter().position(|node| node.name == hello.name);
    let number = place.filter(|place| *place != view.cluster().own()).and_then(|place| u8::try_from(place).ok());
    let number = number.ok_or_else(|| format!("there is no other node named {}", hello.name))?;
    terms::is_certified(&stream.tls, &hello.name).map_err(|error| error.to_string())?;
    Ok(number)
}

/// Follows what an owner sends, until the connection breaks, a newer one takes its place, or the plan changes.
fn follow(
    incoming: &Incoming,
    node: u8,
    hello: &Hello,
    copy: &Mutex<Copy>,
    connection: u64,
    stream: &mut Stream,
) -> Result<(), Failure> {
    let around = &incoming.around;
    let plan = around.plan();
    let Some(view) = View::of(&plan) else { return Ok(()) };
    let (has_copy, unknown) = {
        let mut copy = lock(copy);
        let has_copy = copy.is_usable();
        copy.ended = None;
        (has_copy, copy.applier.connect(&hello.services, view))
    };
    let version = frame::common_version(hello.version).unwrap_or(VERSION);
    say(stream, &Frame::Welcome { version, has_copy })?;
    incoming.standings.change(node, |copying| {
        copying.from = if has_copy { CopyingState::Complete } else { CopyingState::Copying };
        let what = || format!("there is no service {} here: what it has is not copied", unknown.join(", "));
        copying.faults[1] = (!unknown.is_empty()).then(what);
    });
    let mut since = Instant::now();
    while !around.is_over() && Arc::ptr_eq(&plan, &around.plan()) {
        let has_heard = stream.pump()?;
        if view.cluster().has_acted_for(node) && view.cluster().serves(node.into()) && since.elapsed() > SETTLED {
            lock(copy).applier.end_sessions(view);
            view.cluster().forget_acting(node);
            since = Instant::now();
        }
        let mut applied = None;
        let mut is_empty = true;
        for _ in 0..AT_ONCE {
            let Some(frame) = stream.next().map_err(StreamError::from)? else { break };
            is_empty = false;
            let Frame::Batch(batch) = frame else { continue };
            let mut copy = lock(copy);
            if copy.connection != connection {
                return Ok(());
            }
            let has_acted = view.cluster().has_acted_for(node);
            let epoch = view.cluster().epoch();
            let number = copy.applier.apply(batch, view, epoch, around.now(), has_acted);
            applied = Some((
                number.map_err(|refused| Failure::Refused(refused.to_string()))?,
                copy.applier.applied(),
                copy.applier.is_complete(),
            ));
        }
        if let Some((number, counts, is_complete)) = applied {
            say(stream, &Frame::Applied(number))?;
            note(incoming, node, counts, is_complete);
        }
        if is_empty && !has_heard {
            std::thread::sleep(PERIOD);
        }
    }
    Ok(())
}

fn note(incoming: &Incoming, node: u8, counts: Applied, is_complete: bool) {
    incoming.standings.change(node, |copying| {
        copying.from = if is_complete { CopyingState::Complete } else { CopyingState::Copying };
        copying.applied = counts;
    });
}

fn say(stream: &mut Stream, frame: &Frame<'_>) -> Result<(), StreamError> {
    let mut bytes = Vec::new();
    frame.emit(&mut bytes);
    stream.say(&bytes)?;
    stream.pump()?;
    Ok(())
}

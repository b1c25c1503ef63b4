//! The owner's end of a connection to a backup.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use tombolo_engine::Plan;

use super::ends::{Ended, Outgoing};
use super::frame::{self, Frame, Held, Hello, VERSION};
use super::giving_back;
use super::standing::CopyingState;
use super::stream::{Stream, StreamError};
use super::terms::TermsError;
use super::took::{self, Told, UnknownSlice};
use super::unseen::{self, Unseen};
use super::{CONNECT, HANDSHAKE, PAUSE, PERIOD};
use crate::replica::{Start, To, View};

/// Batches that are written before anything else is looked at.
const AT_ONCE: usize = 16;
/// Rounds in which the whole table of bindings is looked at for connections that have been opened or closed.
const ROUNDS: usize = 10_000;

/// A connection came to nothing.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("connecting to {0} failed: {1}")]
    Connect(SocketAddr, std::io::Error),
    #[error(transparent)]
    Terms(#[from] TermsError),
    #[error("the connection with {0} is over: {1}")]
    Stream(SocketAddr, StreamError),
    #[error("{0} refuses: {1}")]
    Refused(SocketAddr, String),
    #[error("{0} speaks another protocol, version {1}; the versions of two nodes may differ by one step")]
    Version(SocketAddr, u16),
    #[error("{0} says that it has what it was not sent")]
    Acknowledged(SocketAddr),
    #[error("{0} makes no sense: {1}")]
    Took(SocketAddr, UnknownSlice),
    #[error("{0} promises what it was not asked for")]
    Promised(SocketAddr),
}

/// Copies to the backup with this number and name, which listens at `address`, until the gateway ends; and tells it which of its slices
/// this node took over, and that routes have lost it.
pub fn send(outgoing: &Outgoing, node: u8, name: &str, address: SocketAddr) {
    let around = &outgoing.around;
    while !around.is_over() {
        let plan = around.plan();
        let is_idle = |view: View<'_>| {
            let cluster = view.cluster();
            let has_news = cluster.has_deposed(node) || unseen::is_unseen(node, cluster);
            cluster.is_agreed() && !view.copies_to(node) && !has_news
        };
        if View::of(&plan).is_some_and(is_idle) {
            std::thread::sleep(PERIOD * 10);
            continue;
        }
        let failure = connect(outgoing, node, name, address).err();
        outgoing.lock().disconnect(To::Backup(node));
        outgoing.standings.change(node, |copying| {
            copying.to = CopyingState::Broken;
            (copying.in_flight, copying.lag) = (0, 0);
            copying.faults[0] = failure.map(|failure| failure.to_string());
        });
        // Another plan is no failure: it is in force when the gateway is drained before its end, and what was
        // made until then is still to be sent.
        let failed = Instant::now();
        while failed.elapsed() < PAUSE && !around.is_over() && Arc::ptr_eq(&plan, &around.plan()) {
            std::thread::sleep(PERIOD * 10);
        }
    }
}

/// A connection, until it breaks or the plan changes.
fn connect(outgoing: &Outgoing, node: u8, name: &str, address: SocketAddr) -> Result<(), Failure> {
    let Outgoing { terms, around, standings, .. } = outgoing;
    let is_over = || around.is_over();
    let over = |error| Failure::Stream(address, error);
    let plan = around.plan();
    let Some(view) = View::of(&plan) else { return Ok(()) };
    let socket = TcpStream::connect_timeout(&address, CONNECT).map_err(|error| Failure::Connect(address, error))?;
    let mut stream = Stream::new(socket, terms.client(name)?).map_err(|error| over(error.into()))?;
    stream.shake_hands(HANDSHAKE, &is_over).map_err(over)?;
    let own = view.cluster().nodes()[view.cluster().own()].name.clone();
    let (subscribers, bindings) = outgoing.capacity;
    let incarnation = outgoing.incarnation;
    let has_lost = outgoing.returns.lacks(node);
    let services = view.services();
    let hello = Hello { version: VERSION, has_lost, subscribers, bindings, incarnation, name: own, services };
    let mut said = Vec::new();
    Frame::Hello(hello).emit(&mut said);
    stream.say(&said).map_err(|error| over(error.into()))?;
    let has_copy = match stream.wait(HANDSHAKE, &is_over).map_err(over)? {
        Frame::Welcome { version, .. } if frame::common_version(version).is_none() => {
            return Err(Failure::Version(address, version));
        }
        Frame::Welcome { held: Held::More, .. } => {
            giving_back::take(outgoing, node, view, &mut stream).map_err(|ended| match ended {
                Ended::Stream(error) => over(error),
                Ended::Said(words) => Failure::Refused(address, words),
            })?
        }
        Frame::Welcome { held, .. } => held == Held::Copy,
        Frame::Refusal(words) => return Err(Failure::Refused(address, words)),
        _ => return Err(over(StreamError::Silent)),
    };
    outgoing.returns.settle(node);
    let start = outgoing.lock().connect(node, has_copy, view);
    standings.change(node, |copying| {
        copying.to = if start == Start::Whole { CopyingState::Copying } else { CopyingState::Complete };
        copying.heard = Some(Instant::now());
        copying.faults[0] = None;
    });
    copy(outgoing, node, address, &plan, &mut stream)
}

fn copy(
    outgoing: &Outgoing,
    node: u8,
    address: SocketAddr,
    plan: &Arc<Plan>,
    stream: &mut Stream,
) -> Result<(), Failure> {
    let over = |error| Failure::Stream(address, error);
    let Some(view) = View::of(plan) else { return Ok(()) };
    let epochs = |slice| view.cluster().epoch_of(slice);
    let mut sent: VecDeque<(u64, Instant)> = VecDeque::new();
    let (mut told, mut unseen) = (Told::default(), Unseen::default());
    let mut out = Vec::new();
    let mut number = 0;
    // What was to be asked before is too old by now.
    let promises = outgoing.around.promises();
    let _ = promises.and_then(|promises| promises.take_asked(node));
    let mut asked = None;
    while !outgoing.around.is_over() && Arc::ptr_eq(plan, &outgoing.around.plan()) {
        told.tell(node, view.cluster(), stream).map_err(over)?;
        unseen.tell(node, view.cluster(), stream).map_err(over)?;
        let now = outgoing.around.now();
        out.clear();
        if let Some(number) = promises.and_then(|promises| promises.take_asked(node)) {
            Frame::Ask(number).emit(&mut out);
            asked = Some(number);
        }
        {
            let mut sender = outgoing.lock();
            sender.collect(view);
            sender.classify(ROUNDS, now);
            sender.offer(ROUNDS, view, now);
            for _ in 0..if stream.has_room() { AT_ONCE } else { 0 } {
                let start = frame::begin_batch(&mut out);
                if !sender.fill(To::Backup(node), view, &epochs, now, &mut out) {
                    out.truncate(start);
                    break;
                }
                frame::finish(&mut out, start);
                number += 1;
                sent.push_back((number, Instant::now()));
            }
        }
        if !out.is_empty() {
            stream.say(&out).map_err(|error| over(error.into()))?;
        }
        let has_heard = stream.pump().map_err(over)?;
        if has_heard {
            let now = Some(Instant::now());
            outgoing.standings.change(node, |copying| (copying.heard, copying.spoke) = (now, now));
        }
        while let Some(frame) = stream.next().map_err(|error| over(error.into()))? {
            match frame {
                Frame::Applied(number) => {
                    while sent.pop_front_if(|(sent, _)| *sent <= number).is_some() {}
                    if !outgoing.lock().acknowledge(To::Backup(node), number) {
                        return Err(Failure::Acknowledged(address));
                    }
                }
                Frame::Refusal(words) => return Err(Failure::Refused(address, words)),
                Frame::Unseen => unseen::hear(&outgoing.standings, node),
                Frame::Vouch => outgoing.standings.change(node, |copying| copying.vouched = Some(Instant::now())),
                Frame::Took(taken) => {
                    let heard = took::hear(&outgoing.standings, node, taken, view.cluster());
                    heard.map_err(|unknown| Failure::Took(address, unknown))?;
                }
                // Whoever is not asked by this connection has promised nothing to this process.
                Frame::Promise(number) if asked.is_none_or(|asked| number > asked) => {
                    return Err(Failure::Promised(address));
                }
                Frame::Promise(number) => {
                    promises.into_iter().for_each(|promises| promises.hear_promised(node, number));
                }
                Frame::Alive => {}
                Frame::Hello(_) | Frame::Welcome { .. } | Frame::Batch(_) | Frame::Ask(_) => {}
            }
        }
        note(outgoing, node, out.len(), sent.front().map(|(_, at)| *at));
        if out.is_empty() && !has_heard {
            std::thread::sleep(PERIOD);
        }
    }
    Ok(())
}

/// Says how it stands.
fn note(outgoing: &Outgoing, node: u8, bytes: usize, oldest: Option<Instant>) {
    let (pending, in_flight, is_whole) = {
        let (sender, to) = (outgoing.lock(), To::Backup(node));
        (sender.pending(to), sender.in_flight(to), sender.is_whole(to))
    };
    outgoing.standings.change(node, |copying| {
        (copying.pending, copying.in_flight) = (pending as u64, in_flight as u64);
        copying.sent_bytes += bytes as u64;
        copying.lag = oldest.map_or(0, |at| u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX));
        copying.to = if is_whole { CopyingState::Complete } else { CopyingState::Copying };
    });
}

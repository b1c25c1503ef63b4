//! A backup gives an owner back what it lacks, before the owner's own records are copied again: everything where the
//! owner has lost its tables, else what was made while it was not seen to serve.
//!
//! The backup goes on serving meanwhile, and sends what changes, until it sees the owner serve. What it made in the
//! last moments the owner has then as well.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::ends::{Copy, Ended, Failure, Incoming, Outgoing, lock, say};
use super::frame::{self, Frame, Hello, VERSION};
use super::stream::{Stream, StreamError};
use super::took::{self, Told};
use super::{CopyingState, PERIOD};
use crate::replica::{Applier, Lacking, Purpose, Sender, To, View};

/// So long after an owner was seen to serve, no packet is at hand that is served in its place.
const SETTLED: Duration = Duration::from_millis(200);
/// Batches that are written before anything else is looked at.
const AT_ONCE: usize = 16;

/// The backup's end. False if the connection is of no use any more.
pub(super) fn give(
    incoming: &Incoming,
    node: u8,
    hello: &Hello,
    copy: (&Mutex<Copy>, u64),
    stream: &mut Stream,
) -> Result<bool, Failure> {
    let given = give_until_it_serves(incoming, node, hello, copy, stream);
    lock(&incoming.sender).forget(To::Owner(node));
    given
}

fn give_until_it_serves(
    incoming: &Incoming,
    node: u8,
    hello: &Hello,
    (copy, connection): (&Mutex<Copy>, u64),
    stream: &mut Stream,
) -> Result<bool, Failure> {
    let around = &incoming.around;
    let plan = around.plan();
    let Some(view) = View::of(&plan) else { return Ok(false) };
    incoming.standings.change(node, |copying| {
        copying.from = CopyingState::Returning;
        copying.faults[1] = None;
    });
    introduce(incoming, hello, view, stream)?;
    let to = To::Owner(node);
    let lacking = if hello.has_lost { Lacking::Everything } else { Lacking::New };
    lock(&incoming.sender).give_back(node, lacking, view);
    let mut out = Vec::new();
    let (mut serves_since, mut told) = (None, Told::default());
    while !around.is_over() && std::sync::Arc::ptr_eq(&plan, &around.plan()) {
        if lock(copy).connection != connection {
            return Ok(false);
        }
        told.tell(node, view.cluster(), stream)?;
        out.clear();
        let now = around.now();
        let is_done = {
            let mut sender = lock(&incoming.sender);
            // What is taken from now on has all that was made before the owner was seen.
            let has_settled = serves_since.is_some_and(|since: Instant| since.elapsed() > SETTLED);
            sender.collect(view);
            if stream.has_room() {
                fill(&mut sender, (to, view), now, &mut out);
            }
            has_settled && sender.is_whole(to) && sender.pending(to) == 0 && sender.in_flight(to) == 0
        };
        if is_done {
            lock(copy).applier.end_acting(view, now);
            view.cluster().forget_acting(node);
            return Ok(true);
        }
        if view.cluster().serves(node.into()) {
            serves_since.get_or_insert_with(Instant::now);
        } else {
            serves_since = None;
        }
        if !out.is_empty() {
            stream.say(&out).map_err(StreamError::from)?;
        }
        let has_heard = stream.pump()?;
        while let Some(frame) = stream.next().map_err(StreamError::from)? {
            if let Frame::Applied(number) = frame
                && !lock(&incoming.sender).acknowledge(to, number)
            {
                return Err(Failure::Refused("it says that it has what it was not sent".to_owned()));
            }
        }
        if out.is_empty() && !has_heard {
            std::thread::sleep(PERIOD);
        }
    }
    Ok(false)
}

fn fill(sender: &mut Sender, (to, view): (To, View<'_>), now: tombolo_tables::tick::Tick, out: &mut Vec<u8>) {
    for _ in 0..AT_ONCE {
        let start = frame::begin_batch(out);
        if !sender.fill(to, view, &|slice| view.cluster().epoch_of(slice), now, out) {
            out.truncate(start);
            break;
        }
        frame::finish(out, start);
    }
}

/// The numbers of records and services in what follows are this node's.
fn introduce(incoming: &Incoming, hello: &Hello, view: View<'_>, stream: &mut Stream) -> Result<(), StreamError> {
    let version = frame::common_version(hello.version).unwrap_or(VERSION);
    say(stream, &Frame::Welcome { version, held: frame::Held::More })?;
    let own = Hello {
        version,
        has_lost: false,
        subscribers: incoming.tables.subscribers.capacity(),
        bindings: incoming.tables.bindings.capacity(),
        incarnation: 0,
        name: view.cluster().nodes()[view.cluster().own()].name.clone(),
        services: view.services(),
    };
    say(stream, &Frame::Hello(own))
}

/// The owner's end: takes what it is given until it is welcomed again; whether the backup has a copy then.
pub(super) fn take(outgoing: &Outgoing, node: u8, view: View<'_>, stream: &mut Stream) -> Result<bool, Ended> {
    let around = &outgoing.around;
    let is_over = || around.is_over();
    let Frame::Hello(hello) = stream.wait(super::HANDSHAKE, &is_over)? else {
        return Err(StreamError::Silent.into());
    };
    outgoing.standings.change(node, |copying| {
        copying.to = CopyingState::Returning;
        copying.faults[0] = None;
    });
    let tables = std::sync::Arc::clone(lock(&outgoing.sender).tables());
    let mut applier = Applier::new(tables, Purpose::Return, node, (hello.subscribers, hello.bindings));
    let _ = applier.connect(&hello.services, view);
    let epochs = |slice| view.cluster().epoch_of(slice);
    while !is_over() {
        let has_heard = stream.pump()?;
        let mut applied = None;
        let mut welcome = None;
        while let Some(frame) = stream.next().map_err(StreamError::from)? {
            match frame {
                Frame::Batch(batch) => {
                    let number = applier.apply(batch, view, &epochs, around.now(), true);
                    applied = Some(number.map_err(|refused| Ended::Said(refused.to_string()))?);
                }
                Frame::Welcome { held, .. } => {
                    welcome = Some(held == frame::Held::Copy);
                    break;
                }
                Frame::Refusal(words) => return Err(Ended::Said(words)),
                Frame::Took(taken) => {
                    let heard = took::hear(&outgoing.standings, node, taken, view.cluster());
                    heard.map_err(|unknown| Ended::Said(unknown.to_string()))?;
                }
                // A node that gets back what it lacks does not serve.
                Frame::Hello(_) | Frame::Applied(_) | Frame::Vouch | Frame::Alive | Frame::Unseen => {}
                Frame::Ask(_) | Frame::Promise(_) => {}
            }
        }
        if let Some(number) = applied {
            outgoing.standings.change(node, |copying| copying.returned = applier.applied());
            if applier.is_complete() {
                outgoing.returns.settle(node);
            }
            outgoing.returns.hear(node);
            say(stream, &Frame::Applied(number))?;
        }
        if let Some(has_copy) = welcome {
            return Ok(has_copy);
        }
        if !has_heard {
            std::thread::sleep(PERIOD);
        }
    }
    Err(StreamError::Silent.into())
}

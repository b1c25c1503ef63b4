//! The backup's end of connections: whoever connects says which node it is, and its certificate says so too.

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::ends::{Copy, Failure, Incoming, Successor, lock, say};
use super::frame::{self, Frame, Held, Hello, VERSION};
use super::giving_back;
use super::standing::CopyingState;
use super::stream::{Stream, StreamError};
use super::terms;
use super::took::{self, Told};
use super::unseen::{self, Unseen};
use super::{HANDSHAKE, PERIOD};
use crate::replica::{Applied, Refused, View};

/// So long after an owner is back, of which there is no whole copy, no packet is on its way that is served in its place.
const SETTLED: Duration = Duration::from_secs(5);
/// Connections at a time, at most.
const MOST: usize = 64;
/// Batches that are applied before they are acknowledged.
const AT_ONCE: usize = 16;
/// So much later than the owner this node may hear that it has the copy of a slice.
const HEARSAY: Duration = Duration::from_millis(300);
/// How often an owner is told that none of its slices was taken over. That it hears nothing is told by this.
const VOUCHING: Duration = Duration::from_millis(250);
/// So much later than this node an owner may begin a copy anew that was lost here.
const BEGINNING: Duration = Duration::from_secs(1);

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
    let has_more = lock(copy).has_more(node, hello, view);
    if has_more && !giving_back::give(incoming, node, hello, (copy, connection), stream)? {
        return Ok(());
    }
    let (has_copy, unknown) = {
        let mut copy = lock(copy);
        incoming.forget_what_is_no_copy(node, hello, &plan, &mut copy);
        let has_copy = copy.is_usable();
        copy.ended = None;
        (has_copy, copy.applier.connect(&hello.services, view))
    };
    let version = frame::common_version(hello.version).unwrap_or(VERSION);
    let held = if has_copy { Held::Copy } else { Held::Nothing };
    say(stream, &Frame::Welcome { version, held })?;
    incoming.standings.change(node, |copying| {
        copying.from = if has_copy { CopyingState::Complete } else { CopyingState::Copying };
        let what = || format!("there is no service {} here: what it has is not copied", unknown.join(", "));
        copying.faults[1] = (!unknown.is_empty()).then(what);
    });
    // What an earlier connection has not taken was promised to whoever was there then.
    let promises = around.promises();
    let _ = promises.and_then(|promises| promises.take_promised(node));
    let mut since = Instant::now();
    let (mut vouched, mut lacking) = (None, None);
    let (mut told, mut unseen) = (Told::default(), Unseen::default());
    while !around.is_over() && Arc::ptr_eq(&plan, &around.plan()) {
        let has_heard = stream.pump()?;
        if has_heard {
            incoming.standings.change(node, |copying| copying.spoke = Some(Instant::now()));
        }
        if view.cluster().has_acted_for(node) && view.cluster().serves(node.into()) {
            let mut copy = lock(copy);
            if copy.applier.is_complete() {
                // What was made here meanwhile is offered when the owner connects again.
                return Ok(());
            }
            if since.elapsed() > SETTLED {
                copy.applier.end_acting(view, around.now());
                view.cluster().forget_acting(node);
                since = Instant::now();
            }
        }
        let is_due = vouched.is_none_or(|at: Instant| at.elapsed() >= VOUCHING);
        if is_due && view.cluster().is_agreed() && !view.cluster().has_deposed(node) {
            say(stream, &Frame::Vouch)?;
            vouched = Some(Instant::now());
        }
        told.tell(node, view.cluster(), stream)?;
        unseen.tell(node, view.cluster(), stream)?;
        if let Some(number) = promises.and_then(|promises| promises.take_promised(node)) {
            say(stream, &Frame::Promise(number))?;
        }
        let mut applied = None;
        let mut is_empty = true;
        for _ in 0..AT_ONCE {
            let Some(frame) = stream.next().map_err(StreamError::from)? else { break };
            is_empty = false;
            let batch = match frame {
                Frame::Batch(batch) => batch,
                Frame::Took(taken) => {
                    let heard = took::hear(&incoming.standings, node, taken, view.cluster());
                    heard.map_err(|unknown| Failure::Refused(unknown.to_string()))?;
                    continue;
                }
                Frame::Ask(number) => {
                    promises.into_iter().for_each(|promises| promises.hear_asked(node, number));
                    continue;
                }
                Frame::Unseen => {
                    unseen::hear(&incoming.standings, node);
                    continue;
                }
                _ => continue,
            };
            let once = || {
                let mut copy = lock(copy);
                if copy.connection != connection {
                    return Ok(None);
                }
                let number = apply(incoming, node, view, &mut copy, batch)?;
                Ok(Some((number, copy.applier.applied(), copy.applier.is_complete())))
            };
            match once_heard_of(view, once).map_err(|refused| Failure::Refused(refused.to_string()))? {
                Some(done) => applied = Some(done),
                None => return Ok(()),
            }
        }
        if let Some((number, counts, is_complete)) = applied {
            say(stream, &Frame::Applied(number))?;
            note(incoming, node, counts, is_complete);
        }
        if is_empty && !has_heard {
            let mut copy = lock(copy);
            if copy.connection == connection
                && copy.applier.lacks_beginning(view, &|slice| view.cluster().epoch_of(slice))
            {
                if lacking.get_or_insert_with(Instant::now).elapsed() > BEGINNING {
                    copy.applier.begin_anew();
                    return Ok(());
                }
            } else {
                lacking = None;
            }
            drop(copy);
            std::thread::sleep(PERIOD);
        }
    }
    Ok(())
}

/// Applies a batch. What this node has handed over was served by, and gives way to the copy that begins.
fn apply(incoming: &Incoming, node: u8, view: View<'_>, copy: &mut Copy, batch: &[u8]) -> Result<u64, Refused> {
    let now = incoming.around.now();
    let has_served = view.cluster().has_acted_for(node) || lock(&incoming.kept).is_any(node);
    let epochs = |slice| view.cluster().epoch_of(slice);
    let applied = copy.applier.apply(batch, view, &epochs, now, has_served);
    let claimed = copy.applier.take_claimed().into_iter();
    lock(&incoming.successors).extend(claimed.map(|(slice, epoch)| (slice, Successor { slice, epoch, node })));
    let reached = lock(&incoming.kept).give_way(node, &copy.applier);
    if !reached.is_empty() {
        copy.applier.end_serving(|slice| reached.contains(&slice), view, now);
    }
    applied
}

/// Applies a batch, of a slice of which this node may not have heard yet that it has the copy.
fn once_heard_of<T>(view: View<'_>, mut apply: impl FnMut() -> Result<T, Refused>) -> Result<T, Refused> {
    let began = Instant::now();
    loop {
        match apply() {
            Err(Refused::Slice(_)) if view.cluster().is_agreed() && began.elapsed() < HEARSAY => {
                std::thread::sleep(PERIOD);
            }
            applied => return applied,
        }
    }
}

fn note(incoming: &Incoming, node: u8, counts: Applied, is_complete: bool) {
    incoming.standings.change(node, |copying| {
        copying.from = if is_complete { CopyingState::Complete } else { CopyingState::Copying };
        copying.applied = counts;
    });
}

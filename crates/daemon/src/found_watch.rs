//! The thread that follows what plans leave open: addresses that services share with the host, which by DHCP or PPP
//! change, as sockets of the host take ports and give them back; native IPv4, which comes and goes; and names of far
//! ends, which move.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tombolo_io::host::AddressWatch as Events;
use tombolo_io::worker::StopSignal;

use crate::far_ends::{self, Asking};
use crate::own_address::{self, InUse};
use crate::running::Running;
use crate::threads::{self, Guarded};

/// How often is asked whether something was heard; a gateway that ends waits as long.
const WAIT: Duration = Duration::from_millis(250);
/// From a change until it is looked at: tools make several at once.
const SETTLE: Duration = Duration::from_millis(50);
/// How often is looked although nothing was heard, and which ports sockets have.
const PERIOD: Duration = Duration::from_secs(2);

/// The running thread.
#[derive(Debug)]
pub(crate) struct FoundWatch(JoinHandle<()>);

impl FoundWatch {
    /// Starts it; it ends when `stop` is given.
    pub(crate) fn start(running: &Arc<Running>, stop: StopSignal) -> Option<Self> {
        let guarded = Guarded { name: "found-watch", stop: stop.clone(), health: Arc::clone(&running.health) };
        let running = Arc::clone(running);
        let thread = threads::spawn(guarded, move || watch(&running, &stop));
        thread
            .inspect_err(|error| tracing::warn!("what changes around the gateway is not followed: {error}"))
            .ok()
            .map(Self)
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        self.0.thread().unpark();
        let _ = self.0.join();
    }
}

fn watch(running: &Running, stop: &StopSignal) {
    let mut events = None;
    let mut sockets = Sockets::default();
    let (mut asking, mut answers) = (Asking::default(), Vec::new());
    let (mut due, mut is_left) = (Instant::now() + PERIOD, false);
    while !stop.is_given() {
        if !running.leaves_open() {
            running.health.set(far_ends::PART, Vec::new());
            std::thread::park_timeout(WAIT);
            continue;
        }
        let mut heard = match events.get_or_insert_with(Events::open) {
            Ok(events) => events.wait(WAIT).unwrap_or(true),
            Err(_) => {
                std::thread::park_timeout(WAIT);
                true
            }
        };
        tombolo_io::fault::trip("thread-found-watch");
        if heard {
            std::thread::sleep(SETTLE);
        }
        heard |= std::mem::take(&mut is_left);
        let is_due = Instant::now() >= due;
        if is_due || sockets.last.is_none() {
            sockets.look(running.shares_addresses());
            due = Instant::now() + PERIOD;
        }
        let names = far_ends::wanted(&running.plan.load());
        answers.extend(asking.follow(&running.known().far_ends, names, Instant::now()));
        heard |= !answers.is_empty();
        if (heard || is_due) && !stop.is_given() {
            is_left = !running.follow(&sockets.lasting, &mut answers);
            running.health.set(far_ends::PART, running.known().far_ends.faults(&running.plan.load()));
        }
    }
}

/// Ports of the host's sockets. One that is seen once may be gone at once, as those of a resolver's questions
/// are, and no plan is worth that.
#[derive(Debug, Default)]
struct Sockets {
    last: Option<InUse>,
    /// Seen twice in a row.
    lasting: InUse,
}

impl Sockets {
    /// Looks, if it matters.
    fn look(&mut self, matters: bool) {
        if !matters {
            return *self = Self { last: Some(InUse::default()), lasting: InUse::default() };
        }
        let now = own_address::in_use();
        // What was in use before anybody looked was it at the start of the gateway as well.
        let last = self.last.replace(now.clone()).unwrap_or_else(|| now.clone());
        for ((lasting, last), now) in self.lasting.iter_mut().zip(&last).zip(&now) {
            *lasting = now & last;
        }
    }
}

//! The thread that follows the addresses that services share with the host: by DHCP or PPP they change, and
//! sockets of the host take ports and give them back.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tombolo_io::host::AddressWatch as Events;
use tombolo_io::worker::StopSignal;

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
pub(crate) struct AddressWatch(JoinHandle<()>);

impl AddressWatch {
    /// Starts it; it ends when `stop` is given.
    pub(crate) fn start(running: &Arc<Running>, stop: StopSignal) -> Option<Self> {
        let guarded = Guarded { name: "address-watch", stop: stop.clone(), health: Arc::clone(&running.health) };
        let running = Arc::clone(running);
        let thread = threads::spawn(guarded, move || watch(&running, &stop));
        thread.inspect_err(|error| tracing::warn!("the host's addresses are not followed: {error}")).ok().map(Self)
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        self.0.thread().unpark();
        let _ = self.0.join();
    }
}

fn watch(running: &Arc<Running>, stop: &StopSignal) {
    let mut events = None;
    let in_use = own_address::in_use();
    let mut sockets = Sockets { last: in_use.clone(), lasting: in_use };
    let (mut due, mut is_left) = (Instant::now() + PERIOD, false);
    while !stop.is_given() {
        if !running.shares_addresses() {
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
        tombolo_io::fault::trip("thread-address-watch");
        if heard {
            std::thread::sleep(SETTLE);
        }
        heard |= std::mem::take(&mut is_left);
        let is_due = Instant::now() >= due;
        if is_due {
            sockets.look();
            due = Instant::now() + PERIOD;
        }
        if (heard || is_due) && !stop.is_given() {
            is_left = !running.follow_host(&sockets.lasting);
        }
    }
}

/// Ports of the host's sockets. One that is seen once may be gone at once, as those of a resolver's questions
/// are, and no plan is worth that.
#[derive(Debug)]
struct Sockets {
    last: InUse,
    /// Seen twice in a row.
    lasting: InUse,
}

impl Sockets {
    fn look(&mut self) {
        let now = own_address::in_use();
        for ((lasting, last), now) in self.lasting.iter_mut().zip(&self.last).zip(&now) {
            *lasting = now & last;
        }
        self.last = now;
    }
}

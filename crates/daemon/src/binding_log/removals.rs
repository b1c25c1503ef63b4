//! Where it is reported that bindings were removed, whether there is a log or not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use tombolo_tables::binding::Binding;

use super::collectors::Delivery;
use super::losses::Losses;
use crate::utc::Utc;

/// Removals that may wait to be written. More are lost.
const WAITING: usize = 1 << 16;
/// Removals that may wait for one who looks on.
const FOLLOWED: usize = 1 << 14;

/// A binding that was removed, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Removal {
    pub(crate) binding: Binding,
    pub(crate) at: Utc,
}

/// Those who look on. Who is slow misses something.
#[derive(Debug, Default)]
struct Followers {
    is_any: AtomicBool,
    all: Mutex<Vec<SyncSender<Removal>>>,
}

impl Followers {
    fn add(&self) -> Receiver<Removal> {
        let (to, from) = sync_channel(FOLLOWED);
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(to);
        self.is_any.store(true, Ordering::Relaxed);
        from
    }

    fn report(&self, removal: Removal) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|follower| !matches!(follower.try_send(removal), Err(TrySendError::Disconnected(_))));
        self.is_any.store(!all.is_empty(), Ordering::Relaxed);
    }
}

/// Where removals are reported. Clones are of the same log.
#[derive(Debug, Clone, Default)]
pub struct Removals(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    log: ArcSwapOption<SyncSender<Removal>>,
    losses: Arc<Losses>,
    deliveries: ArcSwap<Vec<Arc<Delivery>>>,
    followers: Followers,
}

impl Removals {
    /// Reports that `binding` was removed just now. Never waits.
    pub fn report(&self, binding: &Binding) {
        let is_followed = self.0.followers.is_any.load(Ordering::Relaxed);
        if self.0.log.load().is_some() || is_followed {
            let at = Utc::now();
            self.report_at(binding, at);
            if is_followed {
                self.0.followers.report(Removal { binding: *binding, at });
            }
        }
    }

    /// What is removed from now on, for one who looks on; beside the log, and whether there is one or not.
    pub(crate) fn follow(&self) -> Receiver<Removal> {
        self.0.followers.add()
    }

    /// The same, of another moment.
    pub(super) fn report_at(&self, binding: &Binding, at: Utc) {
        if let Some(log) = &*self.0.log.load()
            && log.try_send(Removal { binding: *binding, at }).is_err()
        {
            self.0.losses.add(1, at);
        }
    }

    /// Events that could not be logged.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.0.losses.count()
    }

    /// What collectors have got of the log.
    #[must_use]
    pub fn deliveries(&self) -> Arc<Vec<Arc<Delivery>>> {
        self.0.deliveries.load_full()
    }

    pub(super) fn losses(&self) -> &Arc<Losses> {
        &self.0.losses
    }

    /// A log begins: it gets what is removed from now on.
    pub(super) fn begin(&self) -> Receiver<Removal> {
        let (log, waiting) = sync_channel(WAITING);
        self.0.log.store(Some(Arc::new(log)));
        waiting
    }

    /// There is no log any more.
    pub(super) fn end(&self) {
        self.0.log.store(None);
        self.deliver_to(Vec::new());
    }

    /// Who gets the log over the network.
    pub(super) fn deliver_to(&self, deliveries: Vec<Arc<Delivery>>) {
        self.0.deliveries.store(Arc::new(deliveries));
    }
}

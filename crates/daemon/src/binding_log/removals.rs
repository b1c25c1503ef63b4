//! Where it is reported that bindings were removed, whether there is a log or not.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use arc_swap::{ArcSwap, ArcSwapOption};
use tombolo_tables::binding::Binding;

use super::collectors::Delivery;
use super::losses::Losses;
use crate::utc::Utc;

/// Removals that may wait to be written. More are lost.
const WAITING: usize = 1 << 16;

/// A binding that was removed, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Removal {
    pub(super) binding: Binding,
    pub(super) at: Utc,
}

/// Where removals are reported. Clones are of the same log.
#[derive(Debug, Clone, Default)]
pub struct Removals(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    log: ArcSwapOption<SyncSender<Removal>>,
    losses: Arc<Losses>,
    deliveries: ArcSwap<Vec<Arc<Delivery>>>,
}

impl Removals {
    /// Reports that `binding` was removed just now. Never waits.
    pub fn report(&self, binding: &Binding) {
        if self.0.log.load().is_some() {
            self.report_at(binding, Utc::now());
        }
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

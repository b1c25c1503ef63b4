//! What connections have in common: those from owners, and those to backups.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use tombolo_engine::Plan;
use tombolo_tables::Tables;

use super::frame::{Frame, Hello};
use super::kept::Kept;
use super::returns::Returns;
use super::standing::Standings;
use super::stream::{Stream, StreamError};
use super::terms::Terms;
use super::{Surroundings, UNHEARD_LASTS};
use crate::replica::{Applier, Purpose, Sender, View};

/// What all connections from owners have in common.
#[derive(Debug)]
pub struct Incoming {
    /// The certificates.
    pub terms: Terms,
    /// Where copies are made.
    pub tables: Arc<Tables>,
    /// What gives owners back what they lack.
    pub sender: Arc<Mutex<Sender>>,
    /// How it stands.
    pub standings: Arc<Standings>,
    /// The rest.
    pub around: Arc<dyn Surroundings>,
    /// The copies, by the numbers of owners.
    pub(super) copies: Mutex<BTreeMap<u8, Arc<Mutex<Copy>>>>,
    /// What this node has handed over.
    pub(super) kept: Mutex<Kept>,
    /// Successors that have spoken as such, by slices.
    pub(super) successors: Mutex<BTreeMap<u16, Successor>>,
}

/// Who owns a slice that this node hands over, as it says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Successor {
    /// The slice.
    pub slice: u16,
    /// Its epoch by now.
    pub epoch: u32,
    /// The number of the node.
    pub node: u8,
}

/// What one owner has, here.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) applier: Applier,
    pub(super) incarnation: u64,
    /// In force when it began.
    plan: Weak<Plan>,
    /// Of the connections that there were, the one that counts.
    pub(super) connection: u64,
    /// When the last one ended.
    pub(super) ended: Option<Instant>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("{0}")]
    Refused(String),
}

impl Incoming {
    /// No copy yet.
    #[must_use]
    pub fn new(
        terms: Terms,
        tables: Arc<Tables>,
        sender: Arc<Mutex<Sender>>,
        standings: Arc<Standings>,
        around: Arc<dyn Surroundings>,
    ) -> Self {
        let (copies, kept, successors) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { terms, tables, sender, standings, around, copies, kept, successors }
    }

    /// Whether there is a copy of all that a node has: up to date, or as it was when the node could no more be
    /// heard, whose connection ended at most 60 seconds before.
    #[must_use]
    pub fn has_copy(&self, node: u8) -> bool {
        let copy = lock(&self.copies).get(&node).cloned();
        copy.is_some_and(|copy| lock(&copy).is_usable())
    }

    /// Whether there is a whole copy of a slice, whose owner this node is as of this epoch; where owners are agreed on.
    #[must_use]
    pub fn holds(&self, slice: u16, node: u8, epoch: u32) -> bool {
        let copy = lock(&self.copies).get(&node).cloned();
        let is_copied = copy.is_some_and(|copy| {
            let held = lock(&copy);
            held.is_usable() && held.applier.has(slice, epoch)
        });
        is_copied || self.keeps(slice, epoch)
    }

    /// This node has handed a slice over to `node`, which owns it as of this epoch: what there is here of it is a whole copy.
    pub fn keep(&self, slice: u16, node: u8, epoch: u32) {
        lock(&self.kept).keep(slice, node, epoch, Instant::now());
    }

    /// Whether what there is of a slice is what this node had when it handed it over, and a whole copy as of this epoch.
    #[must_use]
    pub fn keeps(&self, slice: u16, epoch: u32) -> bool {
        lock(&self.kept).has(slice, epoch, Instant::now())
    }

    /// What there was of some slices is here no more.
    pub fn lose(&self, is_lost: impl Fn(u16) -> bool) {
        lock(&self.kept).lose(&is_lost);
        let copies: Vec<_> = lock(&self.copies).values().cloned().collect();
        copies.iter().for_each(|copy| lock(copy).applier.lose(&is_lost));
    }

    /// Who has said since the last time that it owns a slice which this node hands over to it.
    #[must_use]
    pub fn take_successors(&self) -> Vec<Successor> {
        std::mem::take(&mut *lock(&self.successors)).into_values().collect()
    }

    /// The copy of what a node has, for a connection that begins; and the number of the connection.
    pub(super) fn copy_of(&self, node: u8, hello: &Hello) -> (Arc<Mutex<Copy>>, u64) {
        let none = || Arc::new(Mutex::new(self.no_copy(node, hello)));
        let copy = Arc::clone(lock(&self.copies).entry(node).or_insert_with(none));
        let mut held = lock(&copy);
        held.connection += 1;
        let connection = held.connection;
        drop(held);
        (copy, connection)
    }

    fn no_copy(&self, node: u8, hello: &Hello) -> Copy {
        let (capacity, incarnation) = ((hello.subscribers, hello.bindings), hello.incarnation);
        let applier = Applier::new(Arc::clone(&self.tables), Purpose::Copy, node, capacity);
        Copy { applier, incarnation, plan: Arc::downgrade(&self.around.plan()), connection: 0, ended: None }
    }

    /// Of another life of an owner's tables there is no copy. One that lacks what had no place here is made anew when
    /// another plan is in force, which may have one: its pools, or its services.
    pub(super) fn forget_what_is_no_copy(&self, node: u8, hello: &Hello, plan: &Arc<Plan>, held: &mut Copy) {
        let is_of_this_plan = Weak::ptr_eq(&held.plan, &Arc::downgrade(plan));
        let lacks_something = held.applier.applied().unplaced > 0;
        if held.incarnation != hello.incarnation || lacks_something && !is_of_this_plan {
            *held = Copy { connection: held.connection, ..self.no_copy(node, hello) };
        }
    }
}

impl Copy {
    pub(super) fn is_usable(&self) -> bool {
        self.applier.is_complete() && self.ended.is_none_or(|ended| ended.elapsed() < UNHEARD_LASTS)
    }

    /// Whether the owner lacks something that is here: its tables, or what was made in its place.
    ///
    /// Before the owner is seen to serve, the copy goes on where it broke off, and what was made here is offered later. One that
    /// is made anew would end that, so it is offered first.
    pub(super) fn has_more(&self, node: u8, hello: &Hello, view: View<'_>) -> bool {
        let (cluster, is_complete) = (view.cluster(), self.applier.is_complete());
        let is_good = self.is_usable() || is_complete && cluster.has_copy_of(node);
        let goes_on = self.is_usable() && self.incarnation == hello.incarnation;
        let is_to_offer = cluster.has_acted_for(node) && (cluster.serves(node.into()) || !goes_on);
        is_good && (hello.has_lost || is_to_offer)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why nothing more is taken back.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("{0}")]
    Said(String),
}

/// What connections to all backups have in common.
#[derive(Debug)]
pub struct Outgoing {
    /// The certificates.
    pub terms: Terms,
    /// What is sent.
    pub sender: Arc<Mutex<Sender>>,
    /// What backups are to give back, where this node's tables were lost.
    pub returns: Returns,
    /// One life of these tables.
    pub incarnation: u64,
    /// Room in the tables: subscribers, bindings.
    pub capacity: (u32, u32),
    /// How it stands.
    pub standings: Arc<Standings>,
    /// The rest.
    pub around: Arc<dyn Surroundings>,
}

impl Outgoing {
    pub(super) fn lock(&self) -> MutexGuard<'_, Sender> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says something at once.
pub(super) fn say(stream: &mut Stream, frame: &Frame<'_>) -> Result<(), StreamError> {
    let mut bytes = Vec::new();
    frame.emit(&mut bytes);
    stream.say(&bytes)?;
    stream.pump()?;
    Ok(())
}

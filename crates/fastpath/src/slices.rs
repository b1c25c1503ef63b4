//! Which node of the cluster serves which slice, as the programs read it: `bpf/slice.h`.
//!
//! ```text
//! table 0    16 lines of 16 slices, each where its packets go
//! table 1    the same
//! choice     which of the two counts
//! ```
//!
//! What changes is written into the table that does not count, and then that one does: the programs see all of
//! it in one instant, and are not loaded anew. Nothing but speed depends on their seeing it at once, since a node
//! that gets a packet of another's slice redirects it, or drops it, by the engine's own look at the same.
//!
//! Beside it stands until when this node may hand out ports of each slice that are nobody's before (of blocks and shares the engine
//! alone grants any). A word of each slice, which counts by itself: the programs compare it with the clock where they draw
//! a port, so that an end comes with nobody to say so. It is written when the lease is prolonged, twice a second.
//!
//! The arrays belong to one process, as the mirror of the routes does: the next one makes new ones, and programs
//! of the process before go on with what they have: until their word is over.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use tombolo_engine::Now;
use tombolo_engine::cluster::{Cluster, MOST_NODES, Place};
use tombolo_engine::mapping::slices::MOST_SLICES;
use tombolo_tables::memory::{MemoryError, Record, Slab};

use crate::pinned::PinnedMemory;
use crate::record::{
    GRANT_LINES, GRANTS_OF_A_LINE, GrantLine, NODES, PLACE_HERE, PLACE_NODES, PLACE_NOWHERE, SLICE_CHOICE, SLICE_LINES,
    SLICES_OF_A_LINE, SliceLine,
};

const NAME: &str = "slice-places";
const GRANTS: &str = "slice-grants";

const _: () = assert!(SLICE_LINES * SLICES_OF_A_LINE == MOST_SLICES as usize && SLICE_CHOICE == 2 * SLICE_LINES);
const _: () = assert!(GRANT_LINES * GRANTS_OF_A_LINE == MOST_SLICES as usize);
const _: () = assert!(NODES == MOST_NODES);

// SAFETY: atomics.
unsafe impl Record for SliceLine {}
// SAFETY: atomics.
unsafe impl Record for GrantLine {}

/// The programs cannot be told which node serves which slice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SlicesError {
    /// The memory that the programs read.
    #[error("there is no memory for the slices of the cluster")]
    Memory(#[from] MemoryError),
    /// The array of an earlier process.
    #[error("the slices of an earlier process cannot be removed")]
    Remove(#[source] std::io::Error),
}

/// The tables that the programs read.
#[derive(Debug)]
pub struct Slices {
    lines: Slab<SliceLine>,
    grants: Slab<GrantLine>,
    /// Held by who writes.
    writer: Mutex<()>,
}

impl Slices {
    /// Tables in `memory` that say what is known of `cluster` now. To be made before the programs are loaded
    /// ([`FastPath::load`](crate::FastPath::load)), which look for it there.
    ///
    /// # Errors
    /// [`SlicesError`].
    pub fn open(memory: &PinnedMemory, cluster: &Cluster, now: Now) -> Result<Self, SlicesError> {
        memory.forget(&[NAME, GRANTS]).map_err(SlicesError::Remove)?;
        let mut memory = memory;
        let lines = Slab::take(&mut memory, NAME, SLICE_CHOICE + 1)?;
        let grants = Slab::take(&mut memory, GRANTS, GRANT_LINES)?;
        let slices = Self { lines, grants, writer: Mutex::default() };
        slices.publish(cluster, now);
        Ok(slices)
    }

    /// Has the programs go by what is known of `cluster` now: by who serves which slice in one instant.
    pub fn publish(&self, cluster: &Cluster, now: Now) {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        for (slice, until) in (0..MOST_SLICES).zip(self.grants.iter().flat_map(|line| &line.until)) {
            until.store(cluster.grants_of_slice_until(slice, now), Ordering::Release);
        }
        let choice = &self.lines[SLICE_CHOICE].place[0];
        let counts = choice.load(Ordering::Relaxed);
        let places: Vec<u32> = (0..MOST_SLICES).map(|slice| place(cluster.place_of(slice, now))).collect();
        if self.table(counts).map(|place| place.load(Ordering::Relaxed)).eq(places.iter().copied()) {
            return;
        }
        let next = counts ^ 1;
        self.table(next).zip(places).for_each(|(entry, place)| entry.store(place, Ordering::Relaxed));
        choice.store(next, Ordering::Release);
    }

    fn table(&self, number: u32) -> impl Iterator<Item = &std::sync::atomic::AtomicU32> {
        let first = if number == 0 { 0 } else { SLICE_LINES };
        self.lines[first..first + SLICE_LINES].iter().flat_map(|line| &line.place)
    }
}

fn place(place: Place) -> u32 {
    match place {
        Place::Here | Place::Acting(_) => PLACE_HERE,
        Place::At(node) => PLACE_NODES + u32::from(node),
        Place::Nowhere => PLACE_NOWHERE,
    }
}

//! Copies of slices that begin and become whole on a connection that goes on.
//!
//! ```text
//! owner -> backup   slice begins, as of an epoch   its records, among those of others   slice is whole
//! ```
//!
//! Slices come to a connection and leave it while others stay, and both ends hear of that from etcd, each at another time. So each copy says
//! in its place among the records where it begins, and where all has been said that there was. Not before that what else the receiver has of
//! the slice is known to have ended: until then it may be what a former owner had when it handed the slice over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::batch::{Section, Writer};
use super::record::{Progress, Record};

/// Slices of which a receiver is to be told how far their copies are.
#[derive(Debug, Default)]
pub(super) struct Announced {
    begin: BTreeSet<u16>,
    become_whole: BTreeSet<u16>,
    /// By the numbers of batches.
    flights: VecDeque<(u64, Vec<(u16, Progress)>)>,
}

impl Announced {
    /// Copies of slices begin.
    pub(super) fn begin(&mut self, slices: impl Iterator<Item = u16>) {
        for slice in slices {
            self.begin.insert(slice);
            self.become_whole.insert(slice);
        }
    }

    /// How much the receiver is to be told.
    pub(super) fn pending(&self) -> usize {
        self.begin.len() + self.become_whole.len()
    }

    /// Whether the receiver is to be told that copies begin.
    pub(super) fn begins(&self) -> bool {
        !self.begin.is_empty()
    }

    /// Says in batch `number`, until that is full, of all slices that their copies are so far, in these sections. Of slices without one there
    /// is nothing to be said any more.
    pub(super) fn write(
        &mut self,
        progress: Progress,
        number: u64,
        writer: &mut Writer<'_>,
        is_full: &mut bool,
        section: impl Fn(u16) -> Option<Section>,
    ) {
        let pending = match progress {
            Progress::Begins => &mut self.begin,
            Progress::Whole => &mut self.become_whole,
        };
        let mut said = Vec::new();
        while !*is_full && let Some(slice) = pending.pop_first() {
            let Some(section) = section(slice) else { continue };
            *is_full = !writer.add(section, &Record::Slice(progress));
            if *is_full {
                pending.insert(slice);
            } else {
                said.push((slice, progress));
            }
        }
        if !said.is_empty() {
            self.flights.push_back((number, said));
        }
    }

    /// The receiver has all batches up to `number`.
    pub(super) fn acknowledge(&mut self, number: u64) {
        while self.flights.pop_front_if(|(flight, _)| *flight <= number).is_some() {}
    }

    /// The connection is over.
    pub(super) fn say_again(&mut self) {
        for (slice, progress) in std::mem::take(&mut self.flights).into_iter().flat_map(|(_, said)| said) {
            match progress {
                Progress::Begins => self.begin.insert(slice),
                Progress::Whole => self.become_whole.insert(slice),
            };
        }
    }
}

/// How far copies of one owner's slices are, here.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// Each as of an epoch.
    progress: BTreeMap<u16, (u32, Progress)>,
    /// Of these, what there was is here no more, since the copy was to be elsewhere.
    lost: BTreeSet<u16>,
}

impl Copied {
    /// The owner says how far the copy of a slice is.
    pub(super) fn hear(&mut self, Section { slice, epoch }: Section, progress: Progress) {
        self.progress.insert(slice, (epoch, progress));
        if progress == Progress::Begins {
            self.lost.remove(&slice);
        }
    }

    /// How far the copy of a slice is, as of this epoch.
    pub(super) fn progress(&self, slice: u16, epoch: u32) -> Option<Progress> {
        self.progress.get(&slice).filter(|(known, _)| *known == epoch).map(|(_, progress)| *progress)
    }

    /// Whether a copy of a slice has begun, as of this epoch or of one of which this node has not heard yet.
    pub(super) fn has_begun_since(&self, slice: u16, epoch: u32) -> bool {
        self.progress.get(&slice).is_some_and(|(known, _)| *known >= epoch)
    }

    /// What there was of some slices is here no more.
    pub(super) fn lose(&mut self, is_lost: impl Fn(u16) -> bool) {
        for (slice, (_, progress)) in self.progress.iter_mut().filter(|(slice, _)| is_lost(**slice)) {
            *progress = Progress::Begins;
            self.lost.insert(*slice);
        }
    }

    /// Whether the copy of a slice, as of this epoch, was lost and has not begun anew.
    pub(super) fn is_lost(&self, slice: u16, epoch: u32) -> bool {
        self.lost.contains(&slice) && self.progress(slice, epoch).is_some()
    }

    /// Slices that were lost, whose copies have not begun anew, and as of which epochs they had.
    pub(super) fn lost(&self) -> impl Iterator<Item = (u16, u32)> {
        self.lost.iter().filter_map(|slice| self.progress.get(slice).map(|(epoch, _)| (*slice, *epoch)))
    }

    /// All copies begin anew.
    pub(super) fn clear(&mut self) {
        self.progress.clear();
        self.lost.clear();
    }
}

//! What the nodes of the cluster have agreed on in etcd, for whoever asks: who has each slice, how its state is kept, and why.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tombolo_cluster::ownership::{Assignment, Cause, Event, LastHeard, Moment, Phase};

/// All causes, in the order of their counters.
const CAUSES: [Cause; 6] =
    [Cause::First, Cause::Takeover, Cause::Return, Cause::Vacant, Cause::Handover, Cause::Backup];

/// What was agreed on, as far as this node has heard.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    agreed: Mutex<Heard>,
    /// When etcd has answered.
    heard: Arc<LastHeard>,
}

#[derive(Debug, Default)]
struct Heard {
    slices: Vec<Option<Assignment>>,
    /// How many slices have changed their owner since this process has heard of them, by cause.
    changes: [u64; CAUSES.len()],
}

impl Agreement {
    /// Of so many slices nothing was heard yet.
    pub(crate) fn of(slices: u16) -> Self {
        let agreed = Mutex::new(Heard { slices: vec![None; slices.into()], changes: Default::default() });
        Self { agreed, heard: Arc::default() }
    }

    /// Whoever speaks with etcd notes there that it has answered.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "nobody agrees on owners in such a build"))]
    pub(crate) fn last_heard(&self) -> Arc<LastHeard> {
        Arc::clone(&self.heard)
    }

    /// For how long etcd has said nothing, in milliseconds, by the clock of leases.
    pub(crate) fn silence(&self, now: Moment) -> u64 {
        self.heard.silence(now)
    }

    /// Takes in what etcd says.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "nobody agrees on owners in such a build"))]
    pub(crate) fn hear(&self, event: &Event) {
        match event {
            Event::Read(reading) => {
                reading.slices.iter().for_each(|(slice, assigned, _)| self.lock().assign(*slice, *assigned));
            }
            Event::SliceSeen(slice, assigned, _) => self.lock().assign(*slice, *assigned),
            _ => {}
        }
    }

    /// Who has a slice.
    pub(crate) fn assignment(&self, slice: u16) -> Option<Assignment> {
        self.lock().slices.get(usize::from(slice)).copied().flatten()
    }

    /// How many slices have changed their owner, by the name of the cause.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let changes = self.lock().changes;
        CAUSES.into_iter().map(name_of_cause).zip(changes).take(CAUSES.len() - 1)
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    fn assign(&mut self, slice: u16, assigned: Assignment) {
        let Some(place) = self.slices.get_mut(usize::from(slice)) else { return };
        let former = place.replace(assigned);
        if former.is_some_and(|former| former.epoch < assigned.epoch)
            && let Some(count) = CAUSES.iter().position(|cause| *cause == assigned.cause)
        {
            self.changes[count] += 1;
        }
    }
}

/// How the state of a slice is kept, in a word.
pub(crate) const fn name_of_phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Single => "single",
        Phase::Syncing => "syncing",
        Phase::Protected => "protected",
    }
}

const fn name_of_cause(cause: Cause) -> &'static str {
    match cause {
        Cause::First => "first",
        Cause::Takeover => "takeover",
        Cause::Return => "return",
        Cause::Vacant => "vacant",
        Cause::Handover => "handover",
        Cause::Backup => "backup",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_cluster::ownership::{Epoch, Node, Revision};

    #[test]
    fn changes_of_owners_are_counted_by_cause_and_not_those_of_backups() {
        let agreement = Agreement::of(2);
        let assigned = |epoch, cause| Assignment {
            owner: Node(0),
            owner_revision: Revision(3),
            epoch: Epoch(epoch),
            backup: None,
            phase: Phase::Single,
            cause,
        };
        let changes = [(7, Cause::First), (7, Cause::Backup), (8, Cause::Takeover), (9, Cause::Takeover)];
        for (revision, (epoch, cause)) in (1..).zip(changes) {
            agreement.hear(&Event::SliceSeen(1, assigned(epoch, cause), Revision(revision)));
        }
        let counted: Vec<_> = agreement.changes().collect();
        assert_eq!(counted, [("first", 0), ("takeover", 2), ("return", 0), ("vacant", 0), ("handover", 0)]);
        assert_eq!(agreement.assignment(1).map(|assigned| assigned.epoch), Some(Epoch(9)));
        assert_eq!((agreement.assignment(0), agreement.assignment(2)), (None, None));
    }
}

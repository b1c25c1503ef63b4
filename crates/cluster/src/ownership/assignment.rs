//! Who has a slice: what the key `slices/<nnnn>` says.

use super::node::Node;
use super::number::Revision;

/// How many owners a slice has had, the present one among them: 0 before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u32);

impl Epoch {
    /// That of the next owner.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The metric of the owner's routes, which becomes the MED: the newest owner comes first.
    #[must_use]
    pub const fn owner_metric(self) -> u32 {
        (u32::MAX >> 1).saturating_sub(self.0)
    }

    /// The metric of the backup's routes: behind any owner, before whole pools.
    #[must_use]
    pub const fn backup_metric(self) -> u32 {
        (u32::MAX - 15).saturating_sub(self.0)
    }
}

/// How a slice's state is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// By the owner alone.
    Single,
    /// The backup is a learner: its copy is not whole.
    Syncing,
    /// The backup knows each block that was granted, or may be.
    Protected,
}

/// Why it is as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Nobody had had it.
    First,
    /// Its owner was gone, and its backup took it over.
    Takeover,
    /// Its owner had lost its lease, and nobody had taken it over.
    Return,
    /// Whoever had its state was gone for long.
    Vacant,
    /// Its owner has handed it over to its backup, and has become the backup.
    Handover,
    /// Its owner has found it a backup, or lost it.
    Backup,
}

/// Who has a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Assignment {
    /// The node that serves it.
    pub owner: Node,
    /// When the owner's key was made under which it became the owner. With a later key, or none, it is the owner no more.
    pub owner_revision: Revision,
    /// The number of this ownership.
    pub epoch: Epoch,
    /// The node that has a copy, or gets one.
    pub backup: Option<Node>,
    /// Whether it has.
    pub phase: Phase,
    /// Why it is as it is.
    pub cause: Cause,
}

impl Assignment {
    /// The same owner with another backup, or none.
    #[must_use]
    pub const fn with_backup(self, backup: Option<Node>, phase: Phase) -> Self {
        Self { backup, phase, cause: Cause::Backup, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_owner_comes_first_and_any_owner_before_any_backup() {
        assert_eq!(Epoch(1).owner_metric(), 0x7fff_fffe);
        assert_eq!(Epoch(1).backup_metric(), 0xffff_ffef);
        assert!(Epoch(2).owner_metric() < Epoch(1).owner_metric());
        assert!(Epoch(0).owner_metric() < Epoch(1_000_000).backup_metric());
        assert!(Epoch(0).backup_metric() < u32::MAX - 1, "the metric of a whole pool");
    }
}

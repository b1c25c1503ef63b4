//! What a node is to each slice, and what it says of it: all of this follows from what it knows.

use super::action::{Action, Beginning, Role};
use super::agent::Agent;
use super::assignment::{Assignment, Cause, Epoch, Phase};
use super::node::Node;
use super::view::{Handing, Slice};

impl Agent {
    /// Says what has become otherwise.
    pub(super) fn play(&mut self, act: &mut impl FnMut(Action)) {
        for number in 0..self.count() {
            let kept = self.keep(number);
            let role = self.role_of(self.slice(number));
            let slice = self.slice_mut(number);
            if let Role::Owner { epoch, .. } = role
                && slice.role.owned() != Some(epoch)
            {
                act(Action::Begin(number, epoch, beginning(slice)));
                slice.holds = Some(epoch);
            }
            if let Some(epoch) = kept {
                act(Action::Keep(number, epoch));
            }
            if slice.role != role {
                slice.role = role;
                act(Action::Play(number, role));
            }
            let metric = role.metric();
            if slice.metric != metric {
                slice.metric = metric;
                act(Action::Announce(number, metric));
            }
        }
    }

    /// What this node has handed over it keeps as a copy. Says as of which epoch, if that is new.
    fn keep(&mut self, number: u16) -> Option<Epoch> {
        let own = self.own();
        let slice = self.slice_mut(number);
        let kept = slice.kept(own).filter(|kept| slice.holds.is_some_and(|holds| holds.next() == *kept))?;
        slice.holds = Some(kept);
        Some(kept)
    }

    fn role_of(&self, slice: &Slice) -> Role {
        if let Some((epoch, owner)) = slice.heard {
            return Role::Others { epoch, owner, backup: None };
        }
        let Some(Assignment { owner, owner_revision, epoch, backup, phase, .. }) = slice.assigned else {
            return Role::Nobody;
        };
        let is_held = slice.is_held();
        let is_own = owner == self.own() && self.created() == Some(owner_revision);
        match (slice.handing, backup) {
            (Some(Handing::Done { epoch, .. }), _) if owner != self.own() => {
                return Role::Handing { epoch, backup: owner };
            }
            (Some(_), Some(backup)) if is_own => return Role::Handing { epoch, backup },
            _ => {}
        }
        match () {
            () if is_own => Role::Owner { epoch, backup, by_offers: slice.is_by_offers() },
            () if owner == self.own() && is_held => Role::Former { epoch, backup },
            () if owner == self.own() => Role::Others { epoch, owner: None, backup },
            () if backup == Some(self.own()) && phase == Phase::Protected && is_held && !slice.is_doubted => {
                Role::Backup { epoch, owner }
            }
            () if backup == Some(self.own()) => Role::Learner { epoch, owner },
            () => Role::Others { epoch, owner: Some(owner), backup },
        }
    }
}

/// With which tables an ownership begins. What the tables hold counts, not only what the assignment says.
fn beginning(slice: &Slice) -> Beginning {
    let Some(assigned) = slice.assigned else { return Beginning::Nothing };
    let of_former = slice.holds.is_some_and(|holds| holds.next() == assigned.epoch);
    match assigned.cause {
        _ if slice.is_held() => Beginning::Own,
        Cause::Return if of_former => Beginning::Own,
        Cause::Takeover | Cause::Handover if of_former => Beginning::Copy,
        Cause::First | Cause::Return | Cause::Takeover | Cause::Vacant | Cause::Handover | Cause::Backup => {
            Beginning::Nothing
        }
    }
}

impl Role {
    /// The epoch of a node's own ownership.
    pub(super) const fn owned(self) -> Option<Epoch> {
        if let Self::Owner { epoch, .. } | Self::Handing { epoch, .. } = self { Some(epoch) } else { None }
    }

    /// Where the slice is copied to, in which ownership of this node.
    #[must_use]
    pub const fn copies_to(self) -> Option<(Epoch, Node)> {
        match self {
            Self::Owner { epoch, backup: Some(backup), .. } | Self::Handing { epoch, backup } => Some((epoch, backup)),
            _ => None,
        }
    }

    /// With which metric a node in this role announces the slice.
    #[must_use]
    pub const fn metric(self) -> Option<u32> {
        match self {
            Self::Owner { epoch, .. } | Self::Handing { epoch, .. } | Self::Former { epoch, .. } => {
                Some(epoch.owner_metric())
            }
            Self::Backup { epoch, .. } | Self::Learner { epoch, .. } => Some(epoch.backup_metric()),
            Self::Nobody | Self::Others { .. } => None,
        }
    }
}

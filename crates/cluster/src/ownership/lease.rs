//! The node's own lease: asked for, renewed, counted on.
//!
//! ```text
//!   sent          answered        sent + TTL - 50 ms      etcd removes the key
//!    |---------------|--------------------|------------------------|-----------> others may take over
//!                     <--- counted on --->|
//! ```
//!
//! etcd counts TTL from when the request arrives, which is after it was sent; so the own count ends first, if clocks run at rates
//! within 2 % of each other (50 of 2000 ms are 2.5 %).

use super::action::Action;
use super::number::{Lease, Revision};
use super::time::Moment;
use super::{RENEWAL, TTL};

/// By so much a node counts shorter than etcd.
pub(super) const MARGIN: u64 = 50;

/// What a node knows of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leasing {
    /// It has none, and asks at this moment.
    None(Moment),
    /// It has asked.
    Asked,
    /// It has one.
    Held(Held),
}

/// A lease, with the key under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    lease: Lease,
    created: Revision,
    /// When the newest renewal was sent that was answered.
    confirmed: Moment,
    /// When the newest renewal was sent.
    renewed: Moment,
}

impl Leasing {
    /// When the own key was made; none if there is none.
    pub(super) const fn created(&self) -> Option<Revision> {
        if let Self::Held(held) = self { Some(held.created) } else { None }
    }

    /// When the newest renewal was sent that was answered; none without a lease.
    pub(super) const fn confirmed(&self) -> Option<Moment> {
        if let Self::Held(held) = self { Some(held.confirmed) } else { None }
    }

    /// Until when the lease is counted on.
    pub(super) fn deadline(&self) -> Moment {
        if let Self::Held(held) = self { held.confirmed + (TTL - MARGIN) } else { Moment::default() }
    }

    pub(super) fn registered(&mut self, lease: Lease, created: Revision, sent: Moment) {
        *self = Self::Held(Held { lease, created, confirmed: sent, renewed: sent });
    }

    pub(super) fn not_registered(&mut self, now: Moment) {
        if *self == Self::Asked {
            *self = Self::None(now + RENEWAL);
        }
    }

    /// The key of an earlier life is gone, which stood in the way.
    pub(super) fn freed(&mut self, now: Moment) {
        if let Self::None(at) = self {
            *at = now.min(*at);
        }
    }

    pub(super) fn renewed(&mut self, lease: Lease, sent: Moment) {
        if let Self::Held(held) = self
            && held.lease == lease
        {
            held.confirmed = held.confirmed.max(sent);
        }
    }

    /// Whether it was the one that is counted on.
    pub(super) fn lost(&mut self, lease: Lease, now: Moment) -> bool {
        let is_own = matches!(self, Self::Held(held) if held.lease == lease);
        if is_own {
            *self = Self::None(now);
        }
        is_own
    }

    /// Asks for a lease, or renews it, where it is time to.
    pub(super) fn tend(&mut self, now: Moment, act: &mut impl FnMut(Action)) {
        match self {
            Self::None(at) if now >= *at => {
                *self = Self::Asked;
                act(Action::Register);
            }
            Self::Held(held) if now.since(held.renewed) >= RENEWAL => {
                held.renewed = now;
                act(Action::Renew(held.lease));
            }
            Self::None(_) | Self::Asked | Self::Held(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(leasing: &mut Leasing, now: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        leasing.tend(Moment(now), &mut |action| actions.push(action));
        actions
    }

    #[test]
    fn a_lease_is_counted_on_from_when_its_renewal_was_sent() {
        let mut leasing = Leasing::None(Moment(0));
        assert_eq!(actions(&mut leasing, 1000), [Action::Register]);
        assert_eq!(actions(&mut leasing, 9000), [], "it has asked");
        leasing.registered(Lease(7), Revision(3), Moment(1000));
        assert_eq!((leasing.created(), leasing.deadline()), (Some(Revision(3)), Moment(2950)));
        assert_eq!(actions(&mut leasing, 1499), []);
        assert_eq!(actions(&mut leasing, 1500), [Action::Renew(Lease(7))]);
        assert_eq!(actions(&mut leasing, 2000), [Action::Renew(Lease(7))], "without an answer as well");
        leasing.renewed(Lease(7), Moment(2000));
        leasing.renewed(Lease(7), Moment(1500));
        assert_eq!(leasing.deadline(), Moment(3950), "a late answer takes nothing back");
        leasing.renewed(Lease(6), Moment(2400));
        assert!(!leasing.lost(Lease(6), Moment(2400)));
        assert_eq!(leasing.deadline(), Moment(3950), "that was another lease");
        assert!(leasing.lost(Lease(7), Moment(2500)));
        assert_eq!((leasing.created(), leasing.deadline()), (None, Moment(0)));
        assert_eq!(actions(&mut leasing, 2500), [Action::Register]);
        leasing.not_registered(Moment(2600));
        assert_eq!(actions(&mut leasing, 3000), []);
        assert_eq!(actions(&mut leasing, 3100), [Action::Register]);
    }

    #[test]
    fn a_key_is_asked_for_as_soon_as_the_former_one_is_gone() {
        let mut leasing = Leasing::None(Moment(0));
        assert_eq!(actions(&mut leasing, 1000), [Action::Register]);
        leasing.freed(Moment(1000));
        assert_eq!(actions(&mut leasing, 1000), [], "it has asked");
        leasing.not_registered(Moment(1010));
        assert_eq!(actions(&mut leasing, 1100), []);
        leasing.freed(Moment(1100));
        assert_eq!(actions(&mut leasing, 1100), [Action::Register]);
    }
}

//! Whether others still see this node. A routing daemon that is killed, or stands still, leaves the host all routes that it had; so the host looks
//! as if it served, and nobody brings it anything. Those whose routes have lost it tell it, as long as they hear it.
//!
//! ```text
//!   it says that this node is not seen | this node's routes lead to it |
//!   no                                 |                               | its routes lead here, or it does not serve
//!   yes                                | no                            | the path between the two is gone, or comes back: both know
//!   yes                                | yes                           | its routing daemon hears this one's no more
//! ```
//!
//! One that says so may be wrong: it filters what it should not. So most of those have to that are heard at all.

use std::time::{Duration, Instant};

/// A word is good for so long: it is said ten times a second.
const GOOD: Duration = Duration::from_millis(400);
/// Whoever said anything within so long is heard: it says once a second that it is alive.
const HEARD: Duration = Duration::from_millis(1500);
/// So long has it to be said: two routing daemons do not lose each other at the same moment.
const PATIENCE: Duration = Duration::from_millis(300);

/// What another node says, and what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Witness {
    /// When it said anything last.
    pub(crate) spoke: Option<Instant>,
    /// When it said last that its routes do not lead here.
    pub(crate) unseen: Option<Instant>,
    /// This node's routes lead to it.
    pub(crate) is_reached: bool,
}

/// Since when others say that they do not see this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Seen(Option<Instant>);

impl Seen {
    /// Whether others see this node, as far as it is told.
    pub(crate) fn look(&mut self, witnesses: &[Witness], now: Instant) -> bool {
        let is_recent = |at: Option<Instant>, limit| at.is_some_and(|at| now.saturating_duration_since(at) < limit);
        let says_so = |witness: &&Witness| witness.is_reached && is_recent(witness.unseen, GOOD);
        let heard = witnesses.iter().filter(|witness| is_recent(witness.spoke, HEARD)).count();
        let unseen_by = witnesses.iter().filter(says_so).count();
        if 2 * unseen_by <= heard {
            self.0 = None;
            return true;
        }
        now.saturating_duration_since(*self.0.get_or_insert(now)) < PATIENCE
    }

    /// Whether it is said that they do not.
    pub(crate) const fn is_denied(self) -> bool {
        self.0.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It speaks now, and says what it says.
    fn witness(now: Instant, is_unseen: bool, is_reached: bool) -> Witness {
        Witness { spoke: Some(now), unseen: is_unseen.then_some(now), is_reached }
    }

    /// What is known after all have said it for a second.
    fn is_seen(all: &[(bool, bool)]) -> bool {
        let (begin, mut seen) = (Instant::now(), Seen::default());
        let moments = (0..10_u32).map(|tenth| begin + Duration::from_millis(100) * tenth);
        let looks = moments.map(|now| {
            let witnesses: Vec<Witness> =
                all.iter().map(|(is_unseen, is_reached)| witness(now, *is_unseen, *is_reached)).collect();
            seen.look(&witnesses, now)
        });
        looks.last().unwrap()
    }

    #[test]
    fn a_node_is_not_seen_if_most_that_it_hears_say_so_and_its_routes_lead_to_them() {
        assert!(is_seen(&[]), "nobody is there");
        assert!(is_seen(&[(false, true), (false, true)]));
        assert!(!is_seen(&[(true, true), (true, true)]) && !is_seen(&[(true, true)]));
        assert!(is_seen(&[(true, true), (false, true)]), "one of two may be wrong");
        assert!(!is_seen(&[(true, true), (false, true), (true, true)]));
        assert!(is_seen(&[(true, false), (true, false)]), "the core is gone, or comes back");
        assert!(is_seen(&[(true, false), (true, true)]));
    }

    #[test]
    fn it_is_not_seen_after_a_while_and_is_again_when_nobody_says_so() {
        let (begin, mut seen) = (Instant::now(), Seen::default());
        let at = |millis| begin + Duration::from_millis(millis);
        let mut look = |millis, said| {
            let witness = Witness { spoke: Some(at(said)), unseen: Some(at(said)), is_reached: true };
            seen.look(&[witness], at(millis))
        };
        assert!(look(0, 0) && look(290, 200));
        assert!(!look(310, 300) && !look(690, 300));
        assert!(look(700, 300), "it is not said any more");
        assert!(look(900, 900) && look(1100, 1100) && !look(1200, 1200));
    }

    #[test]
    fn those_that_are_not_heard_have_no_voice() {
        let (begin, mut seen) = (Instant::now(), Seen::default());
        let now = begin + Duration::from_secs(2);
        let silent = Witness { spoke: Some(begin), unseen: None, is_reached: true };
        let never = Witness { spoke: None, ..silent };
        let says_so = |now| Witness { spoke: Some(now), unseen: Some(now), is_reached: true };
        assert!(seen.look(&[silent, never, says_so(now)], now), "not for long yet");
        let later = now + PATIENCE;
        assert!(!seen.look(&[silent, never, says_so(later)], later));
    }
}

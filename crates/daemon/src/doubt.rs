//! Whether other nodes may be there that this one does not see. What comes to a node that is cut off and is others' is lost there; so it
//! announces its entrances behind theirs. Where it is the last one after all, nobody announces them before it.
//!
//! ```text
//!   sees nobody | has a lease | hears etcd |
//!   no          |             |            | others are there, and are seen
//!   yes         | yes         | yes        | the others are gone: who is cut off does not hear etcd
//!   yes         | yes         | no         | in doubt: its lease will be over in less than two seconds
//!   yes         | no          |            | in doubt
//! ```

use std::time::{Duration, Instant};

/// etcd that says nothing for so long is not heard, in milliseconds: what it watches for a node is confirmed after 300 ms of silence.
pub(crate) const UNHEARD: u64 = 500;
/// So long a doubt stays when etcd is heard again: the others' routes come back later, in sessions of BGP that begin anew.
const OUTLASTS: Duration = Duration::from_secs(10);

/// What a node that sees nobody goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signs {
    /// Its lease has not ended.
    pub(crate) has_lease: bool,
    /// For how long etcd has said nothing, in milliseconds.
    pub(crate) silence: u64,
}

/// Until when others may be there, if they may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Doubt(Option<Instant>);

impl Doubt {
    /// Whether others may be there: `alone` is what a node goes by that sees none.
    pub(crate) fn look(&mut self, alone: Option<Signs>, now: Instant) -> bool {
        let Some(Signs { has_lease, silence }) = alone else {
            self.0 = None;
            return false;
        };
        if !has_lease || silence >= UNHEARD {
            self.0 = Some(now + OUTLASTS);
        }
        self.0.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn signs(has_lease: bool, silence: u64) -> Option<Signs> {
        Some(Signs { has_lease, silence })
    }

    #[test]
    fn a_node_is_in_doubt_that_sees_nobody_and_does_not_hear_etcd_before_its_lease_is_over() {
        let now = Instant::now();
        let is_in_doubt = |alone| Doubt::default().look(alone, now);
        assert!(!is_in_doubt(None), "others are seen");
        assert!(!is_in_doubt(signs(true, 350)), "they are gone, and this is the last one");
        assert!(is_in_doubt(signs(true, 500)) && is_in_doubt(signs(false, 0)));
    }

    #[test]
    fn a_doubt_stays_until_the_others_could_have_been_seen() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let mut doubt = Doubt::default();
        assert!(doubt.look(signs(true, 600), at(0)) && doubt.look(signs(false, 2000), at(1400)));
        // The core is back, and BGP is not yet.
        assert!(doubt.look(signs(true, 10), at(3000)) && doubt.look(signs(true, 10), at(11_300)));
        assert!(!doubt.look(signs(true, 10), at(11_400)), "it is alone indeed");
        assert!(doubt.look(signs(true, 600), at(12_000)) && !doubt.look(None, at(12_100)));
        assert!(!doubt.look(signs(true, 10), at(12_200)));
    }
}

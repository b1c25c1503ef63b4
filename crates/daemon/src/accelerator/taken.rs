//! What the fast path has taken.

use std::collections::BTreeMap;

use tombolo_engine::cluster::MOST_NODES;
use tombolo_fastpath::{Counters, Forwarded, Miss};

/// What was counted since the start of the process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    /// Packets translated in the kernel, by the numbers of their services.
    pub services: BTreeMap<u8, Forwarded>,
    /// Bindings made there.
    pub bindings_made: u64,
    /// Sessions made there.
    pub sessions_made: u64,
    /// Of the packets translated, those that the kernel's stack then routed.
    pub to_stack: u64,
    /// Packets that XDP has redirected and the kernel has not sent: they are among those translated.
    /// `None` where the kernel does not tell.
    pub lost: Option<u64>,
    /// Packets that were redirected to each node of the cluster, which are not among those translated, and by each to
    /// this one.
    pub redirected: [[u64; MOST_NODES]; 2],
    /// Packets left to the engine or to the host, by reason.
    pub passed: BTreeMap<Miss, u64>,
}

impl Taken {
    pub(super) fn of(counters: &Counters) -> Self {
        Self {
            services: counters.services.clone(),
            bindings_made: counters.bindings_made,
            sessions_made: counters.sessions_made,
            to_stack: counters.to_stack,
            lost: None,
            redirected: counters.redirected,
            passed: counters.passed().collect(),
        }
    }

    /// Packets of all services.
    #[must_use]
    pub fn forwarded(&self) -> Forwarded {
        let mut all = Forwarded::default();
        self.services.values().for_each(|&service| all += service);
        all
    }

    /// What came since `before`.
    pub(super) fn since(mut self, before: &Self) -> Self {
        for (number, before) in &before.services {
            let Some(now) = self.services.get_mut(number) else { continue };
            for side in 0..2 {
                now.packets[side] = now.packets[side].saturating_sub(before.packets[side]);
                now.bytes[side] = now.bytes[side].saturating_sub(before.bytes[side]);
            }
        }
        self.bindings_made = self.bindings_made.saturating_sub(before.bindings_made);
        self.sessions_made = self.sessions_made.saturating_sub(before.sessions_made);
        self.to_stack = self.to_stack.saturating_sub(before.to_stack);
        for (now, before) in self.redirected.iter_mut().flatten().zip(before.redirected.iter().flatten()) {
            *now = now.saturating_sub(*before);
        }
        for (reason, count) in &before.passed {
            self.passed.entry(*reason).and_modify(|now| *now = now.saturating_sub(*count));
        }
        self.passed.retain(|_, count| *count > 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_begin_with_the_process() {
        let forwarded = |packets, bytes| Forwarded { packets, bytes };
        let before = Taken {
            services: [(2, forwarded([5, 0], [500, 0]))].into(),
            passed: [(Miss::Size, 3), (Miss::Hairpin, 1)].into(),
            redirected: [[5; MOST_NODES], [0; MOST_NODES]],
            ..Taken::default()
        };
        let now = Taken {
            services: [(2, forwarded([7, 1], [700, 60])), (3, forwarded([1, 0], [90, 0]))].into(),
            passed: [(Miss::Size, 3), (Miss::Hairpin, 4), (Miss::NoPort, 1)].into(),
            redirected: [[7; MOST_NODES], [1; MOST_NODES]],
            ..Taken::default()
        };
        let since = now.since(&before);
        assert_eq!(since.services, [(2, forwarded([2, 1], [200, 60])), (3, forwarded([1, 0], [90, 0]))].into());
        assert_eq!(since.forwarded(), forwarded([3, 1], [290, 60]));
        assert_eq!(since.redirected, [[2; MOST_NODES], [1; MOST_NODES]]);
        assert_eq!(since.passed, [(Miss::Hairpin, 3), (Miss::NoPort, 1)].into());
    }
}

//! What the fast path has taken.

use std::collections::BTreeMap;

use tombolo_fastpath::{Counters, Miss};

/// What was counted since the start of the process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    /// Packets translated in the kernel, by side.
    pub forwarded: [u64; 2],
    /// Their bytes.
    pub forwarded_bytes: [u64; 2],
    /// Bindings made there.
    pub bindings_made: u64,
    /// Sessions made there.
    pub sessions_made: u64,
    /// Of the packets translated, those that the kernel's stack then routed.
    pub to_stack: u64,
    /// Packets that XDP has redirected and the kernel has not sent: they are among those translated.
    /// `None` where the kernel does not tell.
    pub lost: Option<u64>,
    /// Packets left to the engine or to the host, by reason.
    pub passed: BTreeMap<Miss, u64>,
}

impl Taken {
    pub(super) fn of(counters: &Counters) -> Self {
        Self {
            forwarded: counters.forwarded,
            forwarded_bytes: counters.forwarded_bytes,
            bindings_made: counters.bindings_made,
            sessions_made: counters.sessions_made,
            to_stack: counters.to_stack,
            lost: None,
            passed: counters.passed().collect(),
        }
    }

    /// What came since `before`.
    pub(super) fn since(mut self, before: &Self) -> Self {
        for side in 0..2 {
            self.forwarded[side] = self.forwarded[side].saturating_sub(before.forwarded[side]);
            self.forwarded_bytes[side] = self.forwarded_bytes[side].saturating_sub(before.forwarded_bytes[side]);
        }
        self.bindings_made = self.bindings_made.saturating_sub(before.bindings_made);
        self.sessions_made = self.sessions_made.saturating_sub(before.sessions_made);
        self.to_stack = self.to_stack.saturating_sub(before.to_stack);
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
        let before =
            Taken { forwarded: [5, 0], passed: [(Miss::Size, 3), (Miss::Hairpin, 1)].into(), ..Taken::default() };
        let now = Taken {
            forwarded: [7, 1],
            passed: [(Miss::Size, 3), (Miss::Hairpin, 4), (Miss::NoPort, 1)].into(),
            ..Taken::default()
        };
        let since = now.since(&before);
        assert_eq!(since.forwarded, [2, 1]);
        assert_eq!(since.passed, [(Miss::Hairpin, 3), (Miss::NoPort, 1)].into());
    }
}

//! How long a datagram from outside need not look at its binding, and what ends that.
//!
//! Where packets make no sessions, what a datagram from outside needs of its binding is the host's address and port, and
//! what it leaves there is that the binding stays. So the outside keeps a binding [ahead](lead_of): what it sends counts as
//! sent [`LEAD`] ticks later. As long as that is not over, the next datagrams leave nothing.
//! For them the programs in the kernel have a word for each outside port (`crates/fastpath/bpf/shortcut.h`):
//!
//! ```text
//! word, 64 bits    63              36  35          16  15           0
//!                  | tick             | subscriber    | inside port |
//! ```
//!
//! The address is in a table of theirs by the subscriber's number. There are few of these, so that the processor's caches hold them, while
//! the lines of slot and binding, one after the other, are as far away as memory is.
//!
//! The word is no part of the tables. Only the programs know it, it goes with them, and it may be lost at any time. It was written
//! in tick `t` by a program that had kept the binding until `t + LEAD` at least, and saw it live after that. It is taken
//! [`HOLDS`] ticks long, so that binding and host outlast a packet that goes by it,
//! unless bindings go meanwhile before their time. One that goes while it is kept until `k` has words of ticks up to `k - LEAD`,
//! and with them the words of all bindings end that are as old (`Bindings::end_shortcuts`), before its slot is closed, so that none is
//! left when another binding gets the slot. One whose time is over has none that holds.
//!
//! An address is written for a subscriber that was touched first, and has a binding after that: its number is not another's as long
//! as the writer may take for it.

use crate::atomic::{AtomicU64, Ordering};
use crate::binding::Bindings;
use crate::sweep::GRACE;
use crate::tick::Tick;

tombolo_records::constants! {
    /// Ticks by which the outside keeps a binding ahead.
    pub const LEAD: u32 as LEAD = 16;
    /// Ticks that a word is taken.
    pub const HOLDS: u32 as SHORTCUT_HOLDS = LEAD - GRACE;
    /// The shortest lifetime of bindings that are kept ahead, ticks. They may go late by a sixteenth of that.
    const KEPT_AHEAD: u32 as KEPT_AHEAD = 16 * LEAD;
    /// Where in a word the tick is.
    pub(crate) const TICK: u32 as SHORTCUT_TICK = 36;
    /// What of a tick there is room for: nine years.
    const TICKS: u32 as SHORTCUT_TICKS = (1 << 28) - 1;
    /// Where in a word the number of the subscriber is.
    pub(crate) const SUBSCRIBER: u32 as SHORTCUT_SUBSCRIBER = 16;
    /// The highest number of a subscriber that there is room for.
    pub const SUBSCRIBERS: u32 as SHORTCUT_SUBSCRIBERS = (1 << 20) - 1;
}

/// Ticks by which the outside keeps a binding ahead whose lifetime is so many.
#[must_use]
pub const fn lead_of(lifetime: u32) -> u32 {
    if lifetime >= KEPT_AHEAD { LEAD } else { 0 }
}

impl Bindings {
    /// A binding goes at `now` that is kept until `kept`: the shortcuts to it end, and others as old.
    pub(crate) fn end_shortcuts(&self, kept: Tick, now: Tick) {
        // Programs store without exchanging: one that keeps the binding for the inside may undo what one beside it has kept
        // ahead, in the tick of its word, or the next one.
        let is_ahead = kept.0 > now.0.saturating_add(1);
        let last = u64::from(if is_ahead { kept.0.saturating_sub(LEAD) } else { kept.0.saturating_add(1) });
        // Packets read the line: for bindings whose time is over it is written once a tick. Whoever gets the slot, or the
        // subscriber's number, sees it: both are released after this.
        let ended = self.shortcuts_ended();
        if ended.load(Ordering::Relaxed) < last {
            ended.fetch_max(last, Ordering::Relaxed);
        }
    }

    /// The tick up to which shortcuts have ended: in the record that has number 0, and is nobody's.
    pub(crate) fn shortcuts_ended(&self) -> &AtomicU64 {
        &self.cells[0].0[0]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::Heap;

    #[test]
    fn one_that_goes_before_its_time_ends_those_as_old_and_no_younger_ones() {
        let bindings = Bindings::new(&mut Heap, 10).unwrap();
        let ended = || bindings.shortcuts_ended().load(Ordering::Relaxed);
        assert_eq!(ended(), 0);
        bindings.end_shortcuts(Tick(116), Tick(107));
        assert_eq!(ended(), 100, "a word of tick 100 was of a binding kept until 116");
        bindings.end_shortcuts(Tick(20), Tick(400));
        assert_eq!(ended(), 100, "one whose time is over");
        bindings.end_shortcuts(Tick(110), Tick(110));
        assert_eq!(ended(), 111, "not kept ahead any more");
        bindings.end_shortcuts(Tick(3), Tick(3));
        assert_eq!(ended(), 111, "in the first ticks of a machine");
    }

    #[test]
    fn bindings_that_live_long_are_kept_ahead() {
        assert_eq!([0, 255, 256, 300].map(lead_of), [0, 0, LEAD, LEAD]);
    }
}

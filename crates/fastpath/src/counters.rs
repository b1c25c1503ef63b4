//! What the programs count, each processor for itself.

use crate::miss::Miss;
use crate::record::{MISSES, ScratchRecord};

const _: () = assert!(Miss::ALL.len() <= MISSES);

// SAFETY: `Plain`: integers without padding; any bytes are valid.
unsafe impl aya::Pod for ScratchRecord {}

/// What the fast path has done since its memory was made, on all processors. Index 0 is the inside,
/// 1 the outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    /// Packets translated and sent on, by the side they came from. A super-packet counts once.
    pub forwarded: [u64; 2],
    /// Bytes of them, IP headers included, as they came.
    pub forwarded_bytes: [u64; 2],
    /// Bindings made in the kernel.
    pub bindings_made: u64,
    /// Sessions made in the kernel.
    pub sessions_made: u64,
    /// Of the packets forwarded, those that TC left to the kernel's stack to route.
    pub to_stack: u64,
    passed: [u64; MISSES],
}

impl Counters {
    pub(crate) fn sum<'a>(processors: impl Iterator<Item = &'a ScratchRecord>) -> Self {
        let mut sum = Self {
            forwarded: [0; 2],
            forwarded_bytes: [0; 2],
            bindings_made: 0,
            sessions_made: 0,
            to_stack: 0,
            passed: [0; MISSES],
        };
        let add = |to: &mut [u64], from: &[u64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        for ScratchRecord { counters, private: _ } in processors {
            add(&mut sum.forwarded, &counters.forwarded);
            add(&mut sum.forwarded_bytes, &counters.forwarded_bytes);
            add(&mut sum.passed, &counters.passed);
            sum.bindings_made += counters.bindings_made;
            sum.sessions_made += counters.sessions_made;
            sum.to_stack += counters.to_stack;
        }
        sum
    }

    /// Packets passed on, by reason; only reasons that occurred.
    pub fn passed(&self) -> impl Iterator<Item = (Miss, u64)> + '_ {
        Miss::ALL.iter().map(|&miss| (miss, self.passed[miss as usize])).filter(|&(_, count)| count > 0)
    }
}

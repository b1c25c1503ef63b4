//! What the programs count, each processor for itself.

use std::collections::BTreeMap;

use tombolo_engine::cluster::MOST_NODES;

use crate::miss::Miss;
use crate::record::{MISSES, NODES, ScratchRecord};

const _: () = assert!(Miss::ALL.len() <= MISSES && MOST_NODES == NODES);

// SAFETY: `Plain`: integers without padding; any bytes are valid.
unsafe impl aya::Pod for ScratchRecord {}

/// Packets translated and sent on. Index 0 is the inside, 1 the outside, where they came from. A
/// super-packet counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Forwarded {
    /// How many.
    pub packets: [u64; 2],
    /// Bytes of them, IP headers included, as they came.
    pub bytes: [u64; 2],
}

impl std::ops::AddAssign for Forwarded {
    fn add_assign(&mut self, other: Self) {
        for side in 0..2 {
            self.packets[side] += other.packets[side];
            self.bytes[side] += other.bytes[side];
        }
    }
}

/// What the fast path has done since its memory was made, on all processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    /// Packets translated and sent on, by the numbers of the services that have had any.
    pub services: BTreeMap<u8, Forwarded>,
    /// Bindings made in the kernel.
    pub bindings_made: u64,
    /// Sessions made in the kernel.
    pub sessions_made: u64,
    /// Of the packets forwarded, those that TC left to the kernel's stack to route.
    pub to_stack: u64,
    /// Packets that were redirected to each node of the cluster, and by each to this one. The latter are among those
    /// that were sent on, the former are not.
    pub redirected: [[u64; MOST_NODES]; 2],
    passed: [u64; MISSES],
}

impl Counters {
    pub(crate) fn sum<'a>(processors: impl Iterator<Item = &'a ScratchRecord>) -> Self {
        let mut sum = Self {
            services: BTreeMap::new(),
            bindings_made: 0,
            sessions_made: 0,
            to_stack: 0,
            redirected: Default::default(),
            passed: [0; MISSES],
        };
        let add = |to: &mut [u64], from: &[u64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        for ScratchRecord { counters, private: _ } in processors {
            for (number, counted) in (0..=u8::MAX).zip(&counters.services) {
                let forwarded = Forwarded { packets: counted.packets, bytes: counted.bytes };
                if forwarded != Forwarded::default() {
                    *sum.services.entry(number).or_default() += forwarded;
                }
            }
            add(&mut sum.passed, &counters.passed);
            sum.redirected.iter_mut().zip(&counters.redirected).for_each(|(to, from)| add(to, from));
            sum.bindings_made += counters.bindings_made;
            sum.sessions_made += counters.sessions_made;
            sum.to_stack += counters.to_stack;
        }
        sum
    }

    /// Packets of all services.
    #[must_use]
    pub fn forwarded(&self) -> Forwarded {
        let mut all = Forwarded::default();
        self.services.values().for_each(|&service| all += service);
        all
    }

    /// Packets passed on, by reason; only reasons that occurred.
    pub fn passed(&self) -> impl Iterator<Item = (Miss, u64)> + '_ {
        Miss::ALL.iter().map(|&miss| (miss, self.passed[miss as usize])).filter(|&(_, count)| count > 0)
    }
}

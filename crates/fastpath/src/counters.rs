//! What the programs count, each processor for itself: `struct counters` of `bpf/scratch.h`.

use tombolo_engine::DropReason;

use crate::miss::Miss;

pub(crate) const REASONS: usize = 64;
const IDENTIFICATIONS: usize = 512;
const AT_HAND: usize = (104 + 96) / 8;

const _: () = assert!(DropReason::COUNT <= REASONS && Miss::ALL.len() <= REASONS);

/// `struct counters`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct CountersRecord {
    pub(crate) forwarded: [u64; 2],
    pub(crate) forwarded_bytes: [u64; 2],
    pub(crate) bindings_made: u64,
    pub(crate) sessions_made: u64,
    pub(crate) reports_lost: u64,
    pub(crate) to_stack: u64,
    pub(crate) passed: [u64; REASONS],
    pub(crate) dropped: [u64; REASONS],
}

/// `struct scratch`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct ScratchRecord {
    pub(crate) counters: CountersRecord,
    pub(crate) used_word: u32,
    pub(crate) unused: u32,
    pub(crate) drawn: u64,
    pub(crate) identifications: [u16; IDENTIFICATIONS],
    /// `struct packet` and `struct rewrite`, which are of no interest here.
    pub(crate) at_hand: [u64; AT_HAND],
}

// SAFETY: integers without padding (8 + 128 counters, two words, one counter, 512 half words); any
// bytes are valid.
unsafe impl aya::Pod for ScratchRecord {}

const _: () = assert!(size_of::<ScratchRecord>() == 8 * (8 + 2 * REASONS) + 16 + 2 * IDENTIFICATIONS + 8 * AT_HAND);

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
    /// Reports that found no room in the ring.
    pub reports_lost: u64,
    /// Of the packets forwarded, those that TC left to the kernel's stack to route.
    pub to_stack: u64,
    passed: [u64; REASONS],
    dropped: [u64; REASONS],
}

impl Counters {
    pub(crate) fn sum<'a>(processors: impl Iterator<Item = &'a ScratchRecord>) -> Self {
        let mut sum = Self {
            forwarded: [0; 2],
            forwarded_bytes: [0; 2],
            bindings_made: 0,
            sessions_made: 0,
            reports_lost: 0,
            to_stack: 0,
            passed: [0; REASONS],
            dropped: [0; REASONS],
        };
        let add = |to: &mut [u64], from: &[u64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        for ScratchRecord { counters, .. } in processors {
            add(&mut sum.forwarded, &counters.forwarded);
            add(&mut sum.forwarded_bytes, &counters.forwarded_bytes);
            add(&mut sum.passed, &counters.passed);
            add(&mut sum.dropped, &counters.dropped);
            sum.bindings_made += counters.bindings_made;
            sum.sessions_made += counters.sessions_made;
            sum.reports_lost += counters.reports_lost;
            sum.to_stack += counters.to_stack;
        }
        sum
    }

    /// Packets passed on, by reason; only reasons that occurred.
    pub fn passed(&self) -> impl Iterator<Item = (Miss, u64)> + '_ {
        Miss::ALL.iter().map(|&miss| (miss, self.passed[miss as usize])).filter(|&(_, count)| count > 0)
    }

    /// Packets dropped, by the engine's reasons; only reasons that occurred.
    pub fn dropped(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&reason| (reason, self.dropped[reason as usize])).filter(|&(_, count)| count > 0)
    }
}

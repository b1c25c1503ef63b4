//! A packet that was seen, and what became of it.

use tombolo_engine::Verdict;
use tombolo_engine::side::Side;
use tombolo_fastpath::Miss;
use tombolo_fastpath::tap::{Fate, Sighting, Stage};

use super::summary::Summary;

/// Where a packet was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// By the engine.
    Engine,
    /// By the kernel's fast path.
    Kernel(Stage),
}

impl Path {
    /// It in a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Kernel(Stage::Xdp) => "xdp",
            Self::Kernel(Stage::Tc) => "tc",
        }
    }
}

/// What became of a packet there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The engine's verdict; of a packet that a program sent on, [`Verdict::Forward`].
    Verdict(Verdict),
    /// A program left it to the next stage, and at last to the engine.
    Passed(Miss),
}

/// A packet, and what became of it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Nanoseconds of the monotonic clock.
    pub time: u64,
    /// Where.
    pub path: Path,
    /// The number of the interface that it came in through, where a program has seen it.
    pub interface: Option<u32>,
    /// Where it came from, where that is known.
    pub side: Option<Side>,
    /// The number of its service, where that is known.
    pub service: Option<u8>,
    /// What became of it.
    pub end: End,
    /// The packet as it came; none if it is no IP packet.
    pub received: Option<Summary>,
    /// What was sent for it: the packet as it left, the first one of several, or an answer.
    pub sent: Option<Summary>,
    /// Its bytes, where they are wanted.
    pub bytes: Option<Bytes>,
}

/// A packet, or as much as is kept of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes {
    /// The first ones.
    pub first: Vec<u8>,
    /// How many there were.
    pub length: usize,
}

impl Seen {
    pub(crate) fn by_program(sighting: &Sighting<'_>) -> Self {
        let (side, service, end) = match sighting.fate {
            Fate::Forwarded { side, service } => (Some(side), Some(service), End::Verdict(Verdict::Forward)),
            Fate::Passed(miss) => (None, None, End::Passed(miss)),
        };
        Self {
            time: sighting.time,
            path: Path::Kernel(sighting.stage),
            interface: Some(sighting.interface),
            side,
            service,
            end,
            received: Summary::of(sighting.received, sighting.received_length),
            sent: Summary::of(sighting.sent, sighting.sent_length),
            bytes: None,
        }
    }
}

//! What one run sends and what it expects back.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::frame::Template;
use crate::layout::{FrameKind, TAGGED_MAX, TupleShape};

/// The most frames of a direction that can be timed one by one.
pub const TIMED_FRAMES_MAX: u32 = 65_536;
const _: () = assert!(TIMED_FRAMES_MAX as usize == TAGGED_MAX);

/// One run of the rig.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// From the left port to the right one.
    pub forward: Option<Direction>,
    /// From the right port to the left one.
    pub reverse: Option<Direction>,
    /// How long to wait for late frames after the last one was sent, where some are missing.
    pub drain: Duration,
    /// Always wait the whole `drain`, also when everything has arrived (RFC 2544 section 23).
    pub always_drain: bool,
}

/// The frames of one direction, and what becomes of them.
#[derive(Clone, Debug)]
pub struct Direction {
    /// Constant part of the frames.
    pub template: Template,
    /// How the four tuple of each frame is chosen.
    pub order: Order,
    /// The four tuples.
    pub shape: TupleShape,
    /// How many frames to send in all.
    pub frames: u32,
    /// When.
    pub pace: Pace,
    /// The cores that send, one stream each.
    pub cores: Vec<usize>,
    /// Native IPv6 traffic mixed in.
    pub background: Option<Background>,
    /// Frames of middle length and long ones: of twelve, seven are as the template says, four have
    /// the first of these lengths and one the second, evenly spread (the simple IMIX).
    pub imix: Option<[Template; 2]>,
    /// Frames whose delay is kept one by one.
    pub timed: Option<Timed>,
    /// What must arrive at the other port.
    pub answer: Answer,
}

impl Direction {
    /// The longest of its frames, bytes with FCS.
    pub(crate) fn longest_bytes(&self) -> u16 {
        let others = self.background.iter().map(|background| &background.template).chain(self.imix.iter().flatten());
        others.chain([&self.template]).map(|template| template.length() + 4).max().unwrap_or(0)
    }
}

/// How the four tuple of frame k is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Every tuple exactly once, in pseudorandom order.
    Enumerate {
        /// Which order.
        seed: u64,
    },
    /// Uniform and independent (RFC 4814).
    Random {
        /// Which sequence.
        seed: u64,
    },
    /// As [`Random`](Order::Random), of the tuples that have begun: one at first, then one more at a
    /// time (RFC 8219 section 10, incremental start).
    OneAfterAnother {
        /// Which sequence.
        seed: u64,
        /// From this frame on, of all.
        all_begun: u32,
    },
    /// Answers to the first `count` recorded tuples, each exactly once, in pseudorandom order.
    RecordsOnce {
        /// Number of records.
        count: u32,
        /// Which order.
        seed: u64,
    },
    /// Answers to the first `count` recorded tuples, uniform and independent.
    RecordsRandom {
        /// Number of records.
        count: u32,
        /// Which sequence.
        seed: u64,
    },
    /// The same of those that have begun.
    RecordsOneAfterAnother {
        /// Number of records.
        count: u32,
        /// Which sequence.
        seed: u64,
        /// From this frame on, of all.
        all_begun: u32,
    },
}

impl Order {
    /// The same with flows that begin one after another, all by the frame `all_begun`; where each
    /// comes once, it stays as it is.
    #[must_use]
    pub fn one_after_another(self, all_begun: u32) -> Order {
        match self {
            Order::Random { seed } => Order::OneAfterAnother { seed, all_begun },
            Order::RecordsRandom { count, seed } => Order::RecordsOneAfterAnother { count, seed, all_begun },
            other => other,
        }
    }
}

/// The schedule: frame k is due at start + k / rate, in bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Frames a second in this direction; 0 sends as fast as the generator can.
    pub rate: u64,
    /// From this frame on, this rate.
    pub then: Option<(u32, u64)>,
    /// Frames sent back to back; `None` chooses what 10 microseconds hold, at most 64.
    pub burst: Option<u32>,
}

impl Pace {
    /// A constant rate.
    pub fn at(rate: u64) -> Pace {
        Pace { rate, then: None, burst: None }
    }

    /// The burst size in force.
    pub fn burst(&self) -> u32 {
        let automatic = match self.rate {
            0 => 64,
            rate => u32::try_from(rate / 100_000).unwrap_or(u32::MAX).clamp(1, 64),
        };
        self.burst.unwrap_or(automatic).clamp(1, 256)
    }

    /// Time from the first frame to the end of the last frame's slot, ns.
    pub fn duration_ns(&self, frames: u32) -> u64 {
        let span = |frames: u32, rate: u64| match rate {
            0 => 0,
            rate => u64::try_from(u128::from(frames) * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX),
        };
        match self.then {
            Some((from, rate)) if from < frames => span(from, self.rate) + span(frames - from, rate),
            _ => span(frames, self.rate),
        }
    }

    /// When frame `number` is due after the start, ns.
    pub fn due_ns(&self, number: u32) -> u64 {
        self.duration_ns(number)
    }
}

/// Native IPv6 traffic that the gateway only routes (RFC 8219 section 5.2): frame k is foreground
/// iff k * m mod n < m, so that m of n are, evenly spread.
#[derive(Clone, Copy, Debug)]
pub struct Background {
    /// Its frames; the kind must be IPv6.
    pub template: Template,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// n.
    pub n: u32,
    /// m.
    pub m: u32,
    /// Hop limit on arrival; 0 is not checked.
    pub hop_limit: u8,
}

/// Frames `from`, `from + every`, ... carry the timed bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Number of the first one.
    pub from: u32,
    /// Distance.
    pub every: u32,
}

/// What must arrive.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Headers on the receiving side.
    pub kind: FrameKind,
    /// What the source address must be.
    pub source: SourceRule,
    /// What the source port must be.
    pub source_port: PortRule,
    /// TTL or hop limit of the outermost header; 0 is not checked.
    pub hop_limit: u8,
    /// TTL of the IPv4 header inside IPv6; 0 is not checked.
    pub inner_hop_limit: u8,
    /// The other fields of the IP headers.
    pub header: HeaderRule,
    /// Link-layer addresses.
    pub link: LinkRule,
    /// Keep the four tuple of every frame, for [`Order::RecordsOnce`] and [`Order::RecordsRandom`].
    pub record: bool,
    /// What is kept of the frames' times.
    pub timing: Timing,
    /// A frame that takes longer, in nanoseconds, is late; 0: none is.
    pub timeout_ns: u64,
}

/// Fields of the IP headers that do not depend on the tuple; what is absent is not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderRule {
    /// Type of service or traffic class, of every header.
    pub traffic_class: Option<u8>,
    /// The "don't fragment" bit of the IPv4 header.
    pub dont_fragment: Option<bool>,
    /// Identification of the IPv4 header.
    pub identification: Option<u16>,
    /// Flow label of the IPv6 header.
    pub flow_label: Option<u32>,
}

/// Link-layer addresses of what arrives; what is absent is not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkRule {
    /// The gateway's port.
    pub source: Option<[u8; 6]>,
    /// The tester's port.
    pub destination: Option<[u8; 6]>,
}

/// What is kept of the frames' times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// No delays, for trials of the highest rate: reading the clock twice a frame costs some 100
    /// ns. It is read once a burst; departures tell when the first and the last burst began, and
    /// arrivals are known to a few milliseconds.
    Off,
    /// The delay of each frame.
    Delays,
    /// The differences of successive delays as well (IPDV, RFC 8219 section 7.3.2).
    Variations,
}

/// A rule for the source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceRule {
    /// Any.
    Any,
    /// That of the tuple's host as seen on this side.
    Exact,
    /// An IPv4 address of this range.
    Pool(Ipv4Addr, Ipv4Addr),
}

/// A rule for the source port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRule {
    /// Any.
    Any,
    /// The tuple's.
    Exact,
    /// One of a set (RFC 7597 section 5.1): these bits of the port are those of `value`, and it is
    /// `least` or more.
    Set {
        /// The bits of the PSID.
        mask: u16,
        /// The PSID in its place.
        value: u16,
        /// The lowest port of all sets.
        least: u16,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_hold_ten_microseconds_of_frames() {
        assert_eq!([50_000, 100_000, 1_000_000, 3_000_000, 9_000_000].map(|r| Pace::at(r).burst()), [1, 1, 10, 30, 64]);
    }

    #[test]
    fn a_change_of_rate_adds_both_spans() {
        let pace = Pace { rate: 1000, then: Some((2000, 500)), burst: None };
        assert_eq!(pace.duration_ns(3000), 4_000_000_000);
        assert_eq!(pace.due_ns(2000), 2_000_000_000);
    }
}

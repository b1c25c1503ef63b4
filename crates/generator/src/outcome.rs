//! What one run did: departures, arrivals, delays.

use crate::bitmap::Bitmap;
use crate::layout::{
    Counters, ERRORS, FrameError, HISTOGRAM_BUCKETS, HISTOGRAM_SUB_BITS, Histogram, Pause, StreamState,
};
use crate::mapped::Mapped;

/// One run, both directions.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Left to right.
    pub forward: Option<DirectionOutcome>,
    /// Right to left.
    pub reverse: Option<DirectionOutcome>,
    /// The run was stopped by request before all frames were sent.
    pub stopped: bool,
}

/// One direction of a run.
#[derive(Clone, Debug)]
pub struct DirectionOutcome {
    /// What was sent.
    pub departures: Departures,
    /// Frames that left late, by pause of the sending core, in the order of their numbers.
    pub pauses: Vec<Pause>,
    /// What arrived.
    pub arrivals: Arrivals,
}

impl DirectionOutcome {
    /// Frames that did not arrive in any shape. Corrupted frames arrived: they are counted as such,
    /// not here.
    pub fn lost(&self) -> u64 {
        let a = &self.arrivals;
        self.departures.sent.saturating_sub(a.received + a.errored + a.unreadable)
    }

    /// Whether every frame arrived once and right.
    pub fn is_perfect(&self) -> bool {
        let a = &self.arrivals;
        a.received == self.departures.sent && a.errored + a.unreadable + a.duplicates == 0
    }
}

/// The sending side of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Departures {
    /// Frames that were asked for.
    pub planned: u64,
    /// Frames sent.
    pub sent: u64,
    /// Of these, background frames.
    pub background: u64,
    /// When frame 0 was due, ns of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// When the first frame was sent.
    pub first_ns: u64,
    /// When the last frame was sent.
    pub last_ns: u64,
    /// When the last frame should have been sent.
    pub last_due_ns: u64,
    /// Bursts sent.
    pub bursts: u64,
    /// Frames in a burst.
    pub burst_frames: u32,
    /// Bursts that left more than 100 microseconds after their time.
    pub late_bursts: u64,
    /// The latest burst, ns after its time.
    pub late_max_ns: u64,
    /// Frames that the program could not build: a fault of the tester, never of the gateway.
    pub failed: u64,
}

impl Departures {
    pub(crate) fn add(&mut self, state: &StreamState) {
        self.sent += u64::from(state.sent) - state.failed;
        self.background += u64::from(state.background);
        self.bursts += state.bursts;
        self.late_bursts += state.late_bursts;
        self.late_max_ns = self.late_max_ns.max(state.late_max_ns);
        self.failed += state.failed;
        self.last_ns = self.last_ns.max(state.last_ns);
        if state.first_ns != 0 && (self.first_ns == 0 || state.first_ns < self.first_ns) {
            self.first_ns = state.first_ns;
        }
    }

    /// The rate that was reached, frames a second: sent frames over the time from the first to the
    /// last slot's end.
    pub fn rate(&self) -> f64 {
        match (self.sent, self.last_ns.saturating_sub(self.first_ns)) {
            (0 | 1, _) | (_, 0) => 0.0,
            (sent, span) => (sent - 1) as f64 * 1e9 / span as f64,
        }
    }

    /// How much later than planned the last frame left, ns.
    pub fn overrun_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.last_due_ns)
    }
}

/// The receiving side of one direction.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// First arrivals without error.
    pub received: u64,
    /// First arrivals with an error.
    pub errored: u64,
    /// Frames with a wrong checksum of UDP or TCP.
    pub unreadable: u64,
    /// Second and later arrivals of a number.
    pub duplicates: u64,
    /// Frames that came after one with a higher number (of the same sending core).
    pub reordered: u64,
    /// Frames of another trial.
    pub stray: u64,
    /// Frames that are not test frames; ARP and neighbour discovery, mostly.
    pub foreign: u64,
    /// ICMP and ICMPv6 messages.
    pub icmp: u64,
    /// Background frames among `received`.
    pub background: u64,
    /// IP bytes of `received`.
    pub bytes: u64,
    /// First and last arrival, ns of CLOCK_MONOTONIC; 0 if none.
    pub first_ns: u64,
    /// See `first_ns`.
    pub last_ns: u64,
    /// Longest time between two arrivals, ns. With several receiving CPUs it was not longer than
    /// this.
    pub gap_max_ns: u64,
    /// When that gap ended, ns of CLOCK_MONOTONIC.
    pub gap_max_at_ns: u64,
    /// TTL or hop limit of the last foreground frame, right or not; 0 if none.
    pub hop_limit_seen: u8,
    /// Frames by error, in the order of [`FrameError::ALL`].
    pub errors: [u64; ERRORS],
    /// One-way delays of all first arrivals.
    pub delays: Delays,
    /// Differences of successive delays that are 0 or more, if asked for.
    pub variations_up: Delays,
    /// The others, negated.
    pub variations_down: Delays,
    /// Delay of each timed frame, ns; `None` where it is missing.
    pub timed: Vec<Option<u64>>,
    /// Which frames arrived.
    pub bitmap: Bitmap,
}

impl Arrivals {
    pub(crate) fn collect(parts: impl Iterator<Item = Counters>, delays: Delays, bitmap: Bitmap) -> Arrivals {
        let mut all = Arrivals { delays, ..Arrivals::empty(bitmap) };
        for part in parts.filter(|p| p.first_ns != 0 || p.foreign + p.icmp + p.stray + p.unreadable + p.duplicates != 0)
        {
            all.add(&part);
        }
        all
    }

    /// Nothing counted yet.
    pub fn empty(bitmap: Bitmap) -> Arrivals {
        Arrivals {
            received: 0,
            errored: 0,
            unreadable: 0,
            duplicates: 0,
            reordered: 0,
            stray: 0,
            foreign: 0,
            icmp: 0,
            background: 0,
            bytes: 0,
            first_ns: 0,
            last_ns: 0,
            gap_max_ns: 0,
            gap_max_at_ns: 0,
            hop_limit_seen: 0,
            errors: [0; ERRORS],
            delays: Delays::default(),
            variations_up: Delays::default(),
            variations_down: Delays::default(),
            timed: Vec::new(),
            bitmap,
        }
    }

    fn add(&mut self, part: &Counters) {
        self.received += part.received;
        self.errored += part.errored;
        self.unreadable += part.unreadable;
        self.duplicates += part.duplicates;
        self.reordered += part.reordered;
        self.stray += part.stray;
        self.foreign += part.foreign;
        self.icmp += part.icmp;
        self.background += part.background;
        self.bytes += part.bytes;
        self.last_ns = self.last_ns.max(part.last_ns);
        if part.first_ns != 0 && (self.first_ns == 0 || part.first_ns < self.first_ns) {
            self.first_ns = part.first_ns;
        }
        // While nothing arrives at all, every CPU has a gap: the shortest of their longest bounds it.
        let has_gap = part.received + part.errored > 1;
        if has_gap && (self.gap_max_ns == 0 || part.gap_max_ns < self.gap_max_ns) {
            (self.gap_max_ns, self.gap_max_at_ns) = (part.gap_max_ns, part.gap_max_at_ns);
        }
        if part.ttl_seen != 0 {
            self.hop_limit_seen = u8::try_from(part.ttl_seen).unwrap_or(u8::MAX);
        }
        for (sum, n) in self.errors.iter_mut().zip(part.errors) {
            *sum += n;
        }
        self.delays.widen(part.delay_min_ns, part.delay_max_ns, part.delay_sum_ns);
    }

    /// How many frames had this error.
    pub fn count(&self, error: FrameError) -> u64 {
        self.errors[error as usize]
    }
}

/// A histogram of times: 128 buckets an octave (0.8 %), with the exact minimum and maximum where
/// known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    buckets: Vec<u64>,
    min_ns: Option<u64>,
    max_ns: Option<u64>,
    sum_ns: u64,
}

impl Delays {
    pub(crate) fn gather(map: &Mapped<Histogram>, slots: impl Iterator<Item = usize>) -> Delays {
        let mut buckets = vec![0; HISTOGRAM_BUCKETS];
        for slot in slots {
            let part = map.get(slot);
            buckets.iter_mut().zip(part.buckets).for_each(|(sum, n)| *sum += n);
        }
        Delays { buckets, ..Delays::default() }
    }

    fn widen(&mut self, min: u64, max: u64, sum: u64) {
        if max == 0 {
            return;
        }
        self.min_ns = Some(self.min_ns.map_or(min, |m| m.min(min)));
        self.max_ns = Some(self.max_ns.map_or(max, |m| m.max(max)));
        self.sum_ns += sum;
    }

    /// Number of times counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The shortest, ns.
    pub fn min_ns(&self) -> Option<u64> {
        self.min_ns.or_else(|| self.buckets.iter().position(|&n| n != 0).map(|b| bounds(b).0))
    }

    /// The longest, ns.
    pub fn max_ns(&self) -> Option<u64> {
        self.max_ns.or_else(|| self.buckets.iter().rposition(|&n| n != 0).map(|b| bounds(b).1 - 1))
    }

    /// The mean, ns.
    pub fn mean_ns(&self) -> Option<f64> {
        match self.count() {
            0 => None,
            count => Some(self.sum_ns as f64 / count as f64),
        }
    }

    /// The smallest time that at least `fraction` of all do not exceed (RFC 2330 section 11.3), to
    /// the bucket's width.
    pub fn percentile_ns(&self, fraction: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a rank is at most the count, which was an integer")]
        let rank = (fraction * count as f64).ceil() as u64;
        self.at_rank(rank.clamp(1, count))
    }

    /// The time at a rank, counted from 1.
    pub fn at_rank(&self, rank: u64) -> Option<u64> {
        let mut below = 0;
        let bucket = self.buckets.iter().position(|&n| {
            below += n;
            below >= rank
        })?;
        let (from, to) = bounds(bucket);
        let middle = from.midpoint(to - 1);
        Some(middle.clamp(self.min_ns.unwrap_or(0), self.max_ns.unwrap_or(u64::MAX)))
    }

    /// Non-empty buckets as (from, to, count), ns; `to` is exclusive.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.buckets.iter().enumerate().filter(|(_, n)| **n != 0).map(|(b, n)| (bounds(b).0, bounds(b).1, *n))
    }
}

/// The times that a bucket holds: [from, to).
fn bounds(bucket: usize) -> (u64, u64) {
    let per_octave = 1u64 << HISTOGRAM_SUB_BITS;
    let bucket = bucket as u64;
    if bucket < per_octave {
        return (bucket, bucket + 1);
    }
    let shift = bucket / per_octave - 1;
    let from = (per_octave + bucket % per_octave) << shift;
    (from, from + (1 << shift))
}

pub(crate) fn merge_states(states: impl Iterator<Item = StreamState>) -> Departures {
    let mut departures = Departures::default();
    states.for_each(|state| departures.add(&state));
    departures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(times: &[(usize, u64)]) -> Delays {
        let mut buckets = vec![0; HISTOGRAM_BUCKETS];
        times.iter().for_each(|&(b, n)| buckets[b] += n);
        Delays { buckets, ..Delays::default() }
    }

    #[test]
    fn buckets_join_without_gap() {
        for bucket in 0..HISTOGRAM_BUCKETS - 1 {
            assert_eq!(bounds(bucket).1, bounds(bucket + 1).0, "bucket {bucket}");
        }
        assert!(bounds(HISTOGRAM_BUCKETS - 1).1 >= 1 << 40);
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let d = delays(&[(10, 999), (100, 1)]);
        assert_eq!(d.percentile_ns(0.999), Some(10));
        assert_eq!(d.percentile_ns(0.9991), Some(100));
        assert_eq!((d.min_ns(), d.max_ns()), (Some(10), Some(100)));
        assert_eq!(Delays::default().percentile_ns(0.5), None);
    }
}

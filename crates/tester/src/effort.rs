//! How long and how often: the full form that the RFCs ask for, a quick one for a first look, and
//! one between them.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::search::Search;

/// Lengths and repetitions of all procedures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Effort {
    /// Its name: results are stamped with it.
    pub form: &'static str,
    /// Scaled down: not comparable with a full run.
    pub quick: bool,
    /// Length of a trial of a search, seconds (RFC 2544 section 24: 60).
    pub trial_seconds: f64,
    /// Length of the trials by which a search for the throughput first finds out where to look, seconds
    /// (RFC 2544 section 24 lets a search use shorter trials, if the last ones have the full length); 0:
    /// all trials are long.
    #[serde(skip_serializing_if = "is_zero")]
    pub exploring_seconds: f64,
    /// Times that every measurement is repeated.
    pub repetitions: u32,
    /// A search ends at this fraction of the value found.
    pub resolution: f64,
    /// Times a failed trial is tried again (RFC 9004 section 5.3, loss verification).
    pub verify_failures: u32,
    /// Times that a search goes on upwards from what it has found.
    pub second_looks: u32,
    /// A trial that lost more than this, in percent, failed without being tried again.
    pub hopeless_loss_percent: u32,
    /// Times an invalid trial of a search is tried again.
    pub repeat_invalid: u32,
    /// How long to wait for late frames, milliseconds ("global timeout").
    pub drain_ms: u64,
    /// Wait the whole `drain_ms` even if all frames have arrived.
    pub always_drain: bool,
    /// A frame that takes longer than this, nanoseconds, counts as lost (Lencse and Shima's per-frame
    /// timeout); 0: none does.
    pub frame_timeout_ns: u64,
    /// Percent of the frames that may be lost, for a second throughput beside that of RFC 2544, of which none
    /// may; of each phase of connection establishment rate and capacity, in place of none. 0: none may.
    #[serde(skip_serializing_if = "is_zero")]
    pub tolerated_loss_percent: f64,
    /// Trials that go up and down around the throughput, for the rate that half of them pass with that loss; 0: none do,
    /// and the second throughput is searched.
    #[serde(skip_serializing_if = "is_none")]
    pub up_and_down_trials: u32,
    /// Pause after each trial, milliseconds.
    pub pause_ms: u64,
    /// Length of the stream of the latency procedure, seconds (RFC 8219 section 7.2: 120).
    pub latency_seconds: f64,
    /// When its first frame is timed (RFC 8219: after 60).
    pub latency_from_seconds: f64,
    /// Frames timed one by one (RFC 8219: at least 500).
    pub timed_frames: u32,
    /// Length of the PDV and IPDV streams, seconds (RFC 8219 section 7.3: 60).
    pub variation_seconds: f64,
    /// Longest burst of the back-to-back procedure, seconds at the tester's highest rate (RFC 9004:
    /// 2 to 30).
    pub burst_seconds: f64,
    /// Repetitions of the back-to-back procedure (RFC 9004: 50).
    pub burst_repetitions: u32,
    /// Length of the overload of the system recovery procedure, seconds (RFC 2544 section 26.5:
    /// 60).
    pub overload_seconds: f64,
    /// Length of the stream around a reset, seconds.
    pub reset_seconds: f64,
    /// Step of the frame loss procedure, percent of the highest rate (RFC 2544 section 26.3: at
    /// most 10).
    pub loss_step_percent: u32,
    /// From one number of flows to the next, in the overload procedure.
    pub flows_step: u64,
    /// Length of a trial of MLRsearch, seconds (CSIT: 1).
    pub short_trial_seconds: f64,
    /// Trials of MLRsearch at a load (CSIT: 21).
    pub short_trials: usize,
    /// Fill the table of connections anew before every trial, not once before a search.
    pub refill_each_trial: bool,
    /// Rate of the validation over that of phase 1 (RFC 9693 section 4.5 "alpha": 0.5 to 0.8).
    pub alpha: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_none(trials: &u32) -> bool {
    *trials == 0
}

/// How near short trials come to the value before long ones decide.
const EXPLORED_TO: f64 = 0.01;

impl Effort {
    /// What the RFCs ask for.
    pub const FULL: Effort = Effort {
        form: "full",
        quick: false,
        trial_seconds: 60.0,
        exploring_seconds: 1.0,
        repetitions: 20,
        resolution: 0.001,
        verify_failures: 0,
        second_looks: 0,
        hopeless_loss_percent: 100,
        repeat_invalid: 4,
        drain_ms: 2000,
        always_drain: true,
        frame_timeout_ns: 0,
        tolerated_loss_percent: 0.0,
        up_and_down_trials: 0,
        pause_ms: 5000,
        latency_seconds: 120.0,
        latency_from_seconds: 60.0,
        timed_frames: 50_000,
        variation_seconds: 60.0,
        burst_seconds: 2.0,
        burst_repetitions: 50,
        overload_seconds: 60.0,
        reset_seconds: 30.0,
        loss_step_percent: 10,
        flows_step: 10,
        short_trial_seconds: 1.0,
        short_trials: 21,
        refill_each_trial: true,
        alpha: 0.8,
    };

    /// Between the two: an evening for all procedures, with a tenth of the trials' length.
    pub const STANDARD: Effort = Effort {
        form: "standard",
        trial_seconds: 5.0,
        exploring_seconds: 0.0,
        repetitions: 5,
        resolution: 0.005,
        hopeless_loss_percent: 10,
        repeat_invalid: 3,
        drain_ms: 1000,
        pause_ms: 500,
        latency_seconds: 12.0,
        latency_from_seconds: 4.0,
        timed_frames: 10_000,
        variation_seconds: 6.0,
        burst_seconds: 0.5,
        burst_repetitions: 10,
        overload_seconds: 5.0,
        reset_seconds: 10.0,
        short_trial_seconds: 0.5,
        short_trials: 11,
        ..Effort::QUICK
    };

    /// A first look, each procedure in well under a minute a gateway.
    pub const QUICK: Effort = Effort {
        form: "quick",
        quick: true,
        trial_seconds: 0.4,
        exploring_seconds: 0.0,
        repetitions: 3,
        resolution: 0.02,
        verify_failures: 1,
        second_looks: 0,
        hopeless_loss_percent: 10,
        repeat_invalid: 2,
        drain_ms: 300,
        always_drain: false,
        frame_timeout_ns: 0,
        tolerated_loss_percent: 0.0,
        up_and_down_trials: 0,
        pause_ms: 0,
        latency_seconds: 1.5,
        latency_from_seconds: 0.5,
        timed_frames: 1000,
        variation_seconds: 1.0,
        burst_seconds: 0.1,
        burst_repetitions: 5,
        overload_seconds: 1.0,
        reset_seconds: 4.0,
        loss_step_percent: 10,
        flows_step: 100,
        short_trial_seconds: 0.1,
        short_trials: 5,
        refill_each_trial: false,
        alpha: 0.8,
    };

    /// How long to wait for late frames.
    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }

    /// Frames that take so many seconds at a rate, at least one.
    pub fn frames(rate: u64, seconds: f64) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to the range of the result"
        )]
        let frames = (rate as f64 * seconds).clamp(1.0, f64::from(u32::MAX)) as u32;
        frames
    }

    /// Short trials that a search begins with: rougher, and a failure is tried again, for a moment weighs more
    /// in a short trial; none of these lengths asks for them if they are as long as the others.
    pub(crate) fn exploring(&self) -> Option<Effort> {
        let is_worth_it = self.exploring_seconds > 0.0 && self.exploring_seconds < self.trial_seconds;
        is_worth_it.then_some(Effort {
            trial_seconds: self.exploring_seconds,
            resolution: self.resolution.max(EXPLORED_TO),
            verify_failures: self.verify_failures.max(1),
            refill_each_trial: false,
            always_drain: false,
            pause_ms: 0,
            ..*self
        })
    }

    /// The search for a rate of at most `max` that these lengths ask for.
    pub(crate) fn search(&self, max: u64, floor: u64, hint: Option<u64>) -> Search {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction of a million")]
        let resolution_ppm = (self.resolution * 1e6) as u64;
        Search {
            max,
            floor,
            resolution: 1,
            resolution_ppm,
            verify_failures: self.verify_failures,
            repeat_invalid: self.repeat_invalid,
            hint: hint.filter(|rate| *rate > 0),
            second_looks: self.second_looks,
        }
    }
}

/// From the order to send to the first frame.
pub(crate) const START_MS: u64 = 200;

/// Age in seconds that what was made then has when a trial of so many seconds, begun now, ends.
pub(crate) fn age_at_the_end(began: Instant, seconds: f64) -> f64 {
    began.elapsed().as_secs_f64() + START_MS as f64 / 1000.0 + seconds
}

//! One trial: what was asked, what came of it, and the verdict.
//!
//! A trial *passes* when every frame arrived once, unharmed and at the right place, in every
//! direction. It *fails* when the gateway lost, duplicated or damaged frames. It is *invalid* when
//! the tester did not do its part: it could not keep the rate, or a pause of the machine tore a
//! hole into the stream and frames were lost, so that nobody can say whose fault it was. An invalid
//! trial says nothing about the gateway and is never counted against it.

use std::collections::BTreeMap;

use serde::Serialize;
use tombolo_generator::{Absence, CoreWork, Delays, DirectionOutcome, FrameError, Order, Outcome, Pause, Timed};

use crate::effort::Effort;
use crate::search::Verdict;

/// The sender must end within this fraction of the planned time (siitperf: 0.001 %, on dedicated
/// hardware).
const OVERRUN_TOLERATED: f64 = 0.001;
const OVERRUN_TOLERATED_NS: u64 = 200_000;
/// Frames that wait in the receive rings between two ports (veth: 256 each).
const RING_FRAMES: u32 = 512;
/// Between two arrivals: longer than a frame every millisecond, and than a scheduler's tick.
const SILENCE_NS: u64 = 5_000_000;

/// In which directions the frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Directions {
    /// Both at the same rate (RFC 8219 section 5.3).
    Both,
    /// Left to right.
    Forward,
    /// Right to left.
    Reverse,
}

impl Directions {
    /// Whether frames go left to right.
    pub fn forward(self) -> bool {
        self != Directions::Reverse
    }

    /// Whether frames go right to left.
    pub fn reverse(self) -> bool {
        self != Directions::Forward
    }

    /// Number of streams.
    pub fn count(self) -> u64 {
        if self == Directions::Both { 2 } else { 1 }
    }
}

/// What to send in one trial.
#[derive(Clone, Copy, Debug)]
pub struct TrialPlan {
    /// What the trial is for.
    pub purpose: &'static str,
    /// Directions of the frames.
    pub directions: Directions,
    /// Frames a second in each direction; 0: as fast as possible.
    pub rate: u64,
    /// Frames in each direction.
    pub frames: u32,
    /// Tuples of forward frames.
    pub forward_order: Order,
    /// Tuples of reverse frames.
    pub reverse_order: Order,
    /// The responder keeps what it sees.
    pub record: bool,
    /// Frames timed one by one.
    pub timed: Option<Timed>,
    /// Keep differences of successive delays.
    pub variation: bool,
    /// From this frame on, this rate.
    pub then: Option<(u32, u64)>,
    /// Percent of the frames that may be lost.
    pub tolerated_loss: f64,
    /// Answers that cannot be built, as the responder never heard of their connections, which is known and
    /// counted already.
    pub unheard: u32,
}

/// One trial, done.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What was sent and received.
    pub outcome: Outcome,
    /// What follows.
    pub verdict: Verdict,
    /// Why it did not pass, in words.
    pub reasons: Vec<String>,
    /// When a core of the gateway was not there for it.
    pub absences: Vec<Absence>,
    /// Seconds of processors that the gateway took, where it has cores to itself.
    pub worked_s: Option<f64>,
    /// What the gateway's cores counted, where they are its own and the machine has counters.
    pub core_work: Option<CoreWork>,
    /// Frames that the tester's own ports dropped, of those that arrived and of those to be sent.
    pub port_drops: (u64, u64),
    /// How busy each processor of the machine was, percent, from the order to send until the last late
    /// frame was waited for.
    pub processors_percent: Vec<f64>,
}

/// Whether the sending core also does the gateway's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// The gateway has cores of its own: an overloaded gateway drops.
    Apart,
    /// The gateway runs on the sending core: an overloaded gateway slows the sender down, so being
    /// late counts as failing.
    Together,
}

/// What else is known of a trial, that its frames do not tell.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Frames that arrived and that the tester's own ports dropped.
    pub receive_drops: u64,
    /// Frames that its own ports dropped instead of sending them.
    pub transmit_drops: u64,
    /// Percent of the frames that may be lost.
    pub tolerated_loss: f64,
    /// Frames that cannot be built, as is known.
    pub unheard: u32,
    /// Whether the sending core also does the gateway's work.
    pub sharing: Sharing,
    /// When a core of the gateway was not there for it.
    pub absences: Vec<Absence>,
    /// Seconds of processors that the gateway took, where it has cores to itself.
    pub worked_s: Option<f64>,
    /// What the gateway's cores counted, where they are its own and the machine has counters.
    pub core_work: Option<CoreWork>,
}

impl Trial {
    /// Judges an outcome.
    pub fn judge(outcome: Outcome, surroundings: &Surroundings) -> Trial {
        let Surroundings { receive_drops, transmit_drops, tolerated_loss, unheard, sharing, .. } = *surroundings;
        let Surroundings { ref absences, worked_s, core_work, .. } = *surroundings;
        // Whoever or whatever lost them.
        let is_tolerated = tolerated_loss > 0.0 && loss_percent(&outcome) <= tolerated_loss;
        let mut faults = Vec::new();
        let mut doubts = Vec::new();
        if receive_drops > 0 {
            doubts.push(format!("the tester's ports dropped {receive_drops} frames that arrived"));
        }
        // What a packet socket offers again is counted by the driver, and is not lost.
        let is_lossy = outcome.forward.iter().chain(&outcome.reverse).any(|direction| direction.lost() > 0);
        if transmit_drops > 0 && is_lossy && !is_tolerated {
            doubts.push(format!("the tester's ports dropped {transmit_drops} frames instead of sending them"));
        }
        for (name, direction) in [("forward", &outcome.forward), ("reverse", &outcome.reverse)] {
            let Some(direction) = direction else { continue };
            if !is_tolerated {
                faults.extend(losses_of(name, direction));
            }
            faults.extend(faults_of(name, direction));
            match (lateness_of(name, direction), sharing) {
                (Some(late), Sharing::Together) => faults.push(format!("{late}: the shared core is saturated")),
                (Some(late), Sharing::Apart) => doubts.push(late),
                (None, _) => {}
            }
            if sharing == Sharing::Apart && !is_tolerated {
                doubts.extend(pause_to_blame(name, direction, absences));
            }
            if sharing == Sharing::Apart
                && !is_tolerated
                && let Some(silence) = silence_of_the_gateway(direction, absences)
            {
                faults.push(format!("{name}: the gateway passed nothing for {} us", silence / 1000));
            }
            if direction.departures.failed > u64::from(unheard) {
                doubts.push(format!("{name}: the tester could not build {} frames", direction.departures.failed));
            }
        }
        let (verdict, reasons) = match (doubts.is_empty(), faults.is_empty()) {
            (true, true) => (Verdict::Passed, Vec::new()),
            (true, false) => (Verdict::Failed, faults),
            (false, _) => (Verdict::Invalid, doubts.into_iter().chain(faults).collect()),
        };
        Trial {
            outcome,
            verdict,
            reasons,
            absences: absences.clone(),
            worked_s,
            core_work,
            port_drops: (receive_drops, transmit_drops),
            processors_percent: Vec::new(),
        }
    }

    /// Both directions, those that were used.
    pub fn directions(&self) -> impl Iterator<Item = &DirectionOutcome> {
        self.outcome.forward.iter().chain(&self.outcome.reverse)
    }

    /// Frames sent, both directions.
    pub fn sent(&self) -> u64 {
        self.directions().map(|d| d.departures.sent).sum()
    }

    /// Frames that arrived once, unharmed and at the right place, both directions.
    pub fn arrived(&self) -> u64 {
        self.directions().map(|d| d.arrivals.received).sum()
    }

    /// Frames lost, both directions; those that came after the frame timeout are.
    pub fn lost(&self) -> u64 {
        self.directions().map(lost_of).sum()
    }

    /// The rate that the slower direction reached, frames a second.
    pub fn reached_rate(&self) -> f64 {
        self.directions().map(|d| d.departures.rate()).reduce(f64::min).unwrap_or(0.0)
    }

    /// Why not passed, in one line.
    pub fn why(&self) -> String {
        self.reasons.join("; ")
    }

    /// Lost frames in percent of those sent (RFC 2544 section 26.3).
    pub fn loss_percent(&self) -> f64 {
        loss_percent(&self.outcome)
    }
}

/// Frames that did not arrive, or too late.
fn lost_of(direction: &DirectionOutcome) -> u64 {
    direction.lost() + direction.arrivals.count(FrameError::Late)
}

fn loss_percent(outcome: &Outcome) -> f64 {
    let directions = || outcome.forward.iter().chain(&outcome.reverse);
    match directions().map(|direction| direction.departures.sent).sum::<u64>() {
        0 => 0.0,
        sent => directions().map(lost_of).sum::<u64>() as f64 * 100.0 / sent as f64,
    }
}

/// Why losses are not the gateway's, if every lost frame is one that a pause of the sending core
/// made late, or that was due while the machine kept the gateway's core away, or so near to one of
/// these that both were in a receive ring at the same time. A loss anywhere else is the gateway's.
fn pause_to_blame(name: &str, direction: &DirectionOutcome, absences: &[Absence]) -> Option<String> {
    if direction.lost() == 0 {
        return None;
    }
    let near = |first: u32, end: u32| first.saturating_sub(RING_FRAMES)..end.saturating_add(RING_FRAMES);
    let mut excused: Vec<_> = direction.pauses.iter().map(|pause| near(pause.first, pause.end)).collect();
    // Frames with a wrong checksum have no number that could be believed: they are missing in the
    // bitmap, but not lost.
    let unreadable = direction.arrivals.unreadable;
    if direction.arrivals.bitmap.missing_outside(&excused) <= unreadable {
        let late = direction.departures.late_max_ns / 1000;
        return Some(format!("{name}: the tester paused for {late} us and lost frames around that"));
    }
    let away = absences.iter().map(|absence| due_between(direction, absence.from_ns, absence.to_ns));
    excused.extend(away.map(|(first, end)| near(first, end)));
    excused.sort_by_key(|range| range.start);
    if direction.arrivals.bitmap.missing_outside(&excused) > unreadable {
        return None;
    }
    let longest = absences.iter().max_by_key(|absence| absence.length_ns())?;
    Some(format!(
        "{name}: the machine kept core {} away from the gateway for {} us, and frames were lost around that",
        longest.core,
        longest.length_ns() / 1000
    ))
}

/// The frames that were due between two times, at a constant rate.
fn due_between(direction: &DirectionOutcome, from_ns: u64, to_ns: u64) -> (u32, u32) {
    let d = &direction.departures;
    let span = d.last_ns.saturating_sub(d.first_ns).max(1);
    let frame = |at: u64| {
        let since = u128::from(at.saturating_sub(d.first_ns));
        u32::try_from(since * u128::from(d.sent) / u128::from(span)).unwrap_or(u32::MAX)
    };
    (frame(from_ns), frame(to_ns))
}

/// How long nothing arrived in a trial that lost frames, although the tester was sending and the
/// gateway's core was there: a pause of the gateway itself.
fn silence_of_the_gateway(direction: &DirectionOutcome, absences: &[Absence]) -> Option<u64> {
    let a = &direction.arrivals;
    let began = a.gap_max_at_ns.saturating_sub(a.gap_max_ns);
    let own = |pause: &Pause| pause.at_ns > began && pause.at_ns.saturating_sub(pause.late_max_ns) < a.gap_max_at_ns;
    let away = |absence: &Absence| absence.to_ns > began && absence.from_ns < a.gap_max_at_ns;
    let d = &direction.departures;
    let period = d.last_ns.saturating_sub(d.first_ns) / d.sent.max(1);
    let is_long = a.gap_max_ns > SILENCE_NS.max(4 * period);
    let is_anothers = direction.pauses.iter().any(own) || absences.iter().any(away);
    let is_gateways = direction.lost() > 0 && is_long && !is_anothers;
    is_gateways.then_some(a.gap_max_ns)
}

fn losses_of(name: &str, direction: &DirectionOutcome) -> impl Iterator<Item = String> {
    let late = direction.arrivals.count(FrameError::Late);
    let losses = [(direction.lost(), "lost"), (late, "later than the frame timeout")];
    losses.into_iter().filter_map(move |(count, what)| fault(name, direction, count, what))
}

fn faults_of(name: &str, direction: &DirectionOutcome) -> Vec<String> {
    let a = &direction.arrivals;
    let errors = FrameError::ALL.into_iter().filter(|error| *error != FrameError::Late);
    let wrong = errors.map(|error| (a.count(error), format!("with a wrong {}", error.name().replace('_', " "))));
    let all = std::iter::once((a.duplicates, "duplicated".to_owned())).chain(wrong);
    all.filter_map(|(count, what)| fault(name, direction, count, &what)).collect()
}

fn fault(name: &str, direction: &DirectionOutcome, count: u64, what: &str) -> Option<String> {
    (count > 0).then(|| format!("{name}: {count} of {} frames {what}", direction.departures.sent))
}

fn lateness_of(name: &str, direction: &DirectionOutcome) -> Option<String> {
    let d = &direction.departures;
    let planned_ns = d.last_due_ns.saturating_sub(d.start_ns);
    // As fast as possible has no schedule to be late against.
    if planned_ns == 0 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a thousandth of a u64 of nanoseconds")]
    let tolerated = OVERRUN_TOLERATED_NS.max((planned_ns as f64 * OVERRUN_TOLERATED) as u64);
    (d.overrun_ns() > tolerated).then(|| format!("{name}: the sender ended {} us late", d.overrun_ns() / 1000))
}

/// Trials of a measurement, and what the machine did to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    /// Trials made.
    pub trials: u32,
    /// Of these, invalid ones.
    pub invalid: u32,
    /// The longest pause of a sending core, microseconds.
    pub longest_pause_us: f64,
    /// The longest silence of the gateway in a trial that lost frames, microseconds.
    pub longest_silence_us: f64,
    /// The longest time that the machine kept a core of the gateway away from it, microseconds.
    pub longest_absence_us: f64,
}

impl Tally {
    /// Counts a trial.
    pub fn count(&mut self, trial: &Trial) {
        self.trials += 1;
        self.invalid += u32::from(trial.verdict == Verdict::Invalid);
        let absence = trial.absences.iter().map(Absence::length_ns).max().unwrap_or(0);
        self.longest_absence_us = self.longest_absence_us.max(absence as f64 / 1000.0);
        for direction in trial.directions() {
            let silence = silence_of_the_gateway(direction, &trial.absences).unwrap_or(0);
            self.longest_pause_us = self.longest_pause_us.max(direction.departures.late_max_ns as f64 / 1000.0);
            self.longest_silence_us = self.longest_silence_us.max(silence as f64 / 1000.0);
        }
    }

    /// Adds those of another measurement.
    pub fn add(&mut self, other: &Tally) {
        self.trials += other.trials;
        self.invalid += other.invalid;
        self.longest_pause_us = self.longest_pause_us.max(other.longest_pause_us);
        self.longest_silence_us = self.longest_silence_us.max(other.longest_silence_us);
        self.longest_absence_us = self.longest_absence_us.max(other.longest_absence_us);
    }
}

/// A trial as a line of a result file.
#[derive(Clone, Debug, Serialize)]
pub struct TrialRecord {
    /// Always `trial`.
    pub record: &'static str,
    /// The gateway.
    pub gateway: String,
    /// What for.
    pub purpose: &'static str,
    /// Asked rate of each direction, frames a second; 0: as fast as possible.
    pub rate: u64,
    /// Verdict.
    pub verdict: Verdict,
    /// Why not passed.
    pub reasons: Vec<String>,
    /// Longest time that the machine kept a core of the gateway away, microseconds.
    pub absence_max_us: f64,
    /// Frames that arrived and that the tester's own ports dropped.
    pub receive_drops: u64,
    /// Frames that its own ports dropped instead of sending them.
    pub transmit_drops: u64,
    /// How busy each processor was, percent.
    pub processors_percent: Vec<f64>,
    /// What the gateway's cores counted from the order to send until the last late frame was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_work: Option<CoreWorkRecord>,
    /// Left to right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward: Option<DirectionRecord>,
    /// Right to left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverse: Option<DirectionRecord>,
}

/// What the gateway's cores counted in a trial.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CoreWorkRecord {
    cycles: u64,
    instructions: u64,
    cache_misses: Option<u64>,
}

impl CoreWorkRecord {
    fn of(work: CoreWork) -> CoreWorkRecord {
        let CoreWork { cycles, instructions, cache_misses } = work;
        CoreWorkRecord { cycles, instructions, cache_misses }
    }
}

/// One direction of a trial.
#[derive(Clone, Debug, Serialize)]
pub struct DirectionRecord {
    sent: u64,
    received: u64,
    lost: u64,
    duplicates: u64,
    reordered: u64,
    errored: u64,
    unreadable: u64,
    errors: BTreeMap<&'static str, u64>,
    icmp: u64,
    stray: u64,
    background: u64,
    /// Rate that was reached, frames a second.
    sent_rate: f64,
    burst_frames: u32,
    bursts: u64,
    late_bursts: u64,
    late_max_us: f64,
    overrun_us: f64,
    pauses: usize,
    gap_max_us: f64,
    hop_limit: u8,
    delay: Option<DelayRecord>,
}

/// One-way delays in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DelayRecord {
    min_us: f64,
    median_us: f64,
    p999_us: f64,
    max_us: f64,
    mean_us: f64,
}

impl DelayRecord {
    fn of(delays: &Delays) -> Option<DelayRecord> {
        let us = |ns: u64| ns as f64 / 1000.0;
        Some(DelayRecord {
            min_us: us(delays.min_ns()?),
            median_us: us(delays.percentile_ns(0.5)?),
            p999_us: us(delays.percentile_ns(0.999)?),
            max_us: us(delays.max_ns()?),
            mean_us: delays.mean_ns()? / 1000.0,
        })
    }
}

impl DirectionRecord {
    fn of(direction: &DirectionOutcome) -> DirectionRecord {
        let (d, a) = (&direction.departures, &direction.arrivals);
        let errors = FrameError::ALL.into_iter().map(|e| (e.name(), a.count(e))).filter(|(_, n)| *n > 0).collect();
        DirectionRecord {
            sent: d.sent,
            received: a.received,
            lost: direction.lost(),
            duplicates: a.duplicates,
            reordered: a.reordered,
            errored: a.errored,
            unreadable: a.unreadable,
            errors,
            icmp: a.icmp,
            stray: a.stray,
            background: a.background,
            sent_rate: d.rate(),
            burst_frames: d.burst_frames,
            bursts: d.bursts,
            late_bursts: d.late_bursts,
            late_max_us: d.late_max_ns as f64 / 1000.0,
            overrun_us: d.overrun_ns() as f64 / 1000.0,
            pauses: direction.pauses.len(),
            gap_max_us: a.gap_max_ns as f64 / 1000.0,
            hop_limit: a.hop_limit_seen,
            delay: DelayRecord::of(&a.delays),
        }
    }
}

impl TrialRecord {
    /// The record of a trial.
    pub fn of(gateway: String, plan: &TrialPlan, trial: &Trial) -> TrialRecord {
        TrialRecord {
            record: "trial",
            gateway,
            purpose: plan.purpose,
            rate: plan.rate,
            verdict: trial.verdict,
            reasons: trial.reasons.clone(),
            absence_max_us: trial.absences.iter().map(Absence::length_ns).max().unwrap_or(0) as f64 / 1000.0,
            receive_drops: trial.port_drops.0,
            transmit_drops: trial.port_drops.1,
            processors_percent: trial.processors_percent.clone(),
            core_work: trial.core_work.map(CoreWorkRecord::of),
            forward: trial.outcome.forward.as_ref().map(DirectionRecord::of),
            reverse: trial.outcome.reverse.as_ref().map(DirectionRecord::of),
        }
    }
}

/// Timed frames: `count` of them, evenly from `from_seconds` to the end.
pub fn evenly_timed(rate: u64, frames: u32, from_seconds: f64, count: u32) -> Timed {
    let from = Effort::frames(rate, from_seconds).min(frames / 2);
    Timed { from, every: ((frames - from) / count.max(1)).max(1) }
}

#[cfg(test)]
mod tests {
    use tombolo_generator::{Arrivals, Bitmap, Departures};

    use super::*;

    const MS: u64 = 1_000_000;

    const ALONE: Surroundings = Surroundings {
        receive_drops: 0,
        transmit_drops: 0,
        tolerated_loss: 0.0,
        unheard: 0,
        sharing: Sharing::Apart,
        absences: Vec::new(),
        worked_s: None,
        core_work: None,
    };

    /// A second of 100,000 frames that lost these, with a pause of 20 ms in the middle.
    fn outcome(missing: &[u32]) -> Outcome {
        let frames = 100_000;
        let departures = Departures {
            planned: u64::from(frames),
            sent: u64::from(frames),
            start_ns: MS,
            first_ns: MS,
            last_ns: 1001 * MS,
            last_due_ns: 1001 * MS,
            bursts: u64::from(frames),
            burst_frames: 1,
            late_bursts: 8_000,
            late_max_ns: 20 * MS,
            ..Departures::default()
        };
        let pause = Pause { first: 50_000, end: 58_000, late_max_ns: 20 * MS, at_ns: 521 * MS };
        let arrivals = Arrivals {
            received: u64::from(frames) - missing.len() as u64,
            ..Arrivals::empty(Bitmap::without(frames, missing))
        };
        Outcome {
            forward: Some(DirectionOutcome { departures, pauses: vec![pause], arrivals }),
            reverse: None,
            stopped: false,
        }
    }

    #[test]
    fn a_pause_excuses_the_frames_around_it_and_no_others() {
        let around: Vec<u32> = (49_600..50_100).chain(58_300..58_400).collect();
        assert_eq!(Trial::judge(outcome(&around), &ALONE).verdict, Verdict::Invalid);
        // Fewer than were late, and than a ring holds; but not where the pause was.
        for elsewhere in [10, 49_000, 60_000, 99_999] {
            let trial = Trial::judge(outcome(&[elsewhere]), &ALONE);
            assert_eq!(trial.verdict, Verdict::Failed, "frame {elsewhere}: {:?}", trial.reasons);
        }
        let both: Vec<u32> = around.iter().copied().chain([99_000]).collect();
        assert_eq!(Trial::judge(outcome(&both), &ALONE).verdict, Verdict::Failed);
    }

    #[test]
    fn a_pause_without_loss_is_harmless() {
        assert_eq!(Trial::judge(outcome(&[]), &ALONE).verdict, Verdict::Passed);
    }

    #[test]
    fn what_the_own_port_dropped_is_not_the_gateways_loss() {
        let dropping = Surroundings { transmit_drops: 3, ..ALONE };
        let trial = Trial::judge(outcome(&[10, 49_000, 99_999]), &dropping);
        assert_eq!(trial.verdict, Verdict::Invalid);
        assert!(
            trial.why().starts_with("the tester's ports dropped 3 frames instead of sending them"),
            "{}",
            trial.why()
        );
        // Nothing is missing: it was offered again.
        assert_eq!(Trial::judge(outcome(&[]), &dropping).verdict, Verdict::Passed);
        let arriving = Surroundings { receive_drops: 3, ..ALONE };
        assert_eq!(Trial::judge(outcome(&[10]), &arriving).verdict, Verdict::Invalid);
    }

    #[test]
    fn a_core_that_was_away_from_the_gateway_is_told_from_its_own_pause() {
        // 100 frames a millisecond from 1 ms on: these were due from 701 to 721 ms.
        let missing: Vec<u32> = (70_000..72_000).collect();
        let judge = |from_ms: u64, to_ms: u64| {
            let mut outcome = outcome(&missing);
            let arrivals = &mut outcome.forward.as_mut().unwrap().arrivals;
            (arrivals.gap_max_ns, arrivals.gap_max_at_ns) = (20 * MS, 721 * MS);
            let absence = Absence { core: 1, from_ns: from_ms * MS, to_ns: to_ms * MS };
            Trial::judge(outcome, &Surroundings { absences: vec![absence], ..ALONE })
        };
        let away = judge(701, 721);
        assert_eq!(away.verdict, Verdict::Invalid, "{:?}", away.reasons);
        assert!(away.reasons[0].contains("kept core 1 away from the gateway for 20000 us"), "{:?}", away.reasons);
        let own = judge(300, 320);
        assert_eq!(own.verdict, Verdict::Failed, "{:?}", own.reasons);
        assert!(own.why().contains("the gateway passed nothing for 20000 us"), "{:?}", own.reasons);
    }

    #[test]
    fn tolerated_losses_fail_nothing_and_other_faults_do() {
        let tolerant = Surroundings { tolerated_loss: 0.5, ..ALONE };
        let lost = |count: u32| outcome(&(0..count).collect::<Vec<u32>>());
        assert_eq!(Trial::judge(lost(500), &tolerant).verdict, Verdict::Passed);
        assert_eq!(Trial::judge(lost(501), &tolerant).verdict, Verdict::Failed);
        assert_eq!(Trial::judge(lost(1), &ALONE).verdict, Verdict::Failed);
        // Frames that were lost around a pause of the tester are lost, too.
        let around: Vec<u32> = (50_000..50_400).collect();
        assert_eq!(Trial::judge(outcome(&around), &tolerant).verdict, Verdict::Passed);
        let mut twice = lost(1);
        twice.forward.as_mut().unwrap().arrivals.duplicates = 1;
        assert_eq!(Trial::judge(twice, &tolerant).verdict, Verdict::Failed);
        let mut late = lost(1);
        late.forward.as_mut().unwrap().departures.last_ns += 100 * MS;
        assert_eq!(Trial::judge(late, &tolerant).verdict, Verdict::Invalid);
    }

    #[test]
    fn a_silence_of_the_gateway_is_not_the_testers_pause() {
        let silent_at = |end_ms: u64| {
            let mut outcome = outcome(&(20_000..21_000).collect::<Vec<u32>>());
            let arrivals = &mut outcome.forward.as_mut().unwrap().arrivals;
            (arrivals.gap_max_ns, arrivals.gap_max_at_ns) = (10 * MS, end_ms * MS);
            Trial::judge(outcome, &ALONE).reasons.join("; ")
        };
        assert!(silent_at(211).contains("the gateway passed nothing for 10000 us"), "{}", silent_at(211));
        assert!(!silent_at(522).contains("the gateway passed nothing"), "{}", silent_at(522));
    }

    #[test]
    fn a_tally_has_the_longest_of_each_kind_whichever_trial_it_was_in() {
        let trial = |late_ms: u64, missing: &[u32], silence_ms: u64, absence_ms: u64| {
            let mut outcome = outcome(missing);
            let direction = outcome.forward.as_mut().unwrap();
            direction.departures.late_max_ns = late_ms * MS;
            direction.pauses.clear();
            (direction.arrivals.gap_max_ns, direction.arrivals.gap_max_at_ns) = (silence_ms * MS, 300 * MS);
            let absence = Absence { core: 1, from_ns: 700 * MS, to_ns: (700 + absence_ms) * MS };
            Trial::judge(outcome, &Surroundings { absences: vec![absence], ..ALONE })
        };
        let trials = [trial(7, &[], 0, 1), trial(30, &[], 0, 3), trial(2, &[25_000], 40, 2), trial(9, &[70_010], 6, 1)];
        let verdicts = [Verdict::Passed, Verdict::Passed, Verdict::Failed, Verdict::Invalid];
        assert_eq!(trials.each_ref().map(|trial| trial.verdict), verdicts, "{:?}", trials[3].reasons);
        let expected = Tally {
            trials: 4,
            invalid: 1,
            longest_pause_us: 30_000.0,
            longest_silence_us: 40_000.0,
            longest_absence_us: 3_000.0,
        };
        // In whatever order they come, and added up from parts.
        for turned in 0..4 {
            let mut tally = Tally::default();
            (0..4).for_each(|at| tally.count(&trials[(turned + at) % 4]));
            assert_eq!(tally, expected);
            let (mut one, mut other) = (Tally::default(), Tally::default());
            trials.iter().take(turned).for_each(|trial| one.count(trial));
            trials.iter().skip(turned).for_each(|trial| other.count(trial));
            one.add(&other);
            assert_eq!(one, expected);
        }
    }
}

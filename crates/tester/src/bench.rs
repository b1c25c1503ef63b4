//! One gateway on the bench: the rig around it, and the steps that all procedures are made of.

use std::collections::BTreeSet;
use std::iter;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tombolo_generator::{
    Answer, Background, Capacity, CoreCounters, CoreWatch, Direction, DirectionOutcome, Ends, Exchange, FrameKind,
    LinkRule, Order, Pace, Port, PortRule, Rig, RigError, Sending, SourceRule, Template, Timed, Timing, Transport,
};

pub use tombolo_generator::Means;

use crate::effort::{Effort, age_at_the_end};
use crate::gateway::{Gateway, GatewayError, TestFrames};
use crate::headers::{Headers, Hops};
use crate::ports::{self, PortDrops, PortRecord};
use crate::processors::Work;
use crate::scale::Scale;
use crate::search::{Attempt, Found, Search, Searching, Verdict};
use crate::trial::{Directions, Sharing, Surroundings, Tally, Trial, TrialPlan, TrialRecord};

/// TTL of the tester's frames (RFC 2544 appendix C.2.6.4.13).
const HOP_LIMIT: u8 = 10;
/// A search ends where this part of the highest rate does not pass.
const LOWEST_RATE_PART: u64 = 4096;
const PROBE_RATE: u64 = 1000;
const PROBE_FRAMES: u32 = 50;
/// Rates at which a quick run tries to fill a table, in connections a second, the fastest first.
pub(crate) const MODEST_RATES: [u64; 3] = [50_000, 20_000, 5_000];

/// Why a measurement has no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The tester itself.
    #[error(transparent)]
    Rig(#[from] RigError),
    /// The gateway's adapter.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// Nothing comes back.
    #[error("{gateway}: of {sent} probe frames {direction} none came back{hint}")]
    Silent {
        /// The gateway.
        gateway: String,
        /// From where to where.
        direction: &'static str,
        /// Frames sent.
        sent: u64,
        /// What else was seen.
        hint: String,
    },
    /// What comes back is wrong.
    #[error("{gateway}: all probe frames came back wrong: {reasons}")]
    Mangled {
        /// The gateway.
        gateway: String,
        /// How.
        reasons: String,
    },
    /// Phase 1 never filled the table.
    #[error(
        "{gateway}: phase 1 did not establish all {sessions} connections at {rate} frames/s in {attempts} attempts: {reasons}"
    )]
    Unfilled {
        /// The gateway.
        gateway: String,
        /// Connections wanted.
        sessions: u64,
        /// Rate of phase 1.
        rate: u64,
        /// Attempts.
        attempts: u32,
        /// The last attempt's reasons.
        reasons: String,
    },
    /// The procedure cannot run as asked.
    #[error("{0}")]
    Unsuitable(String),
    /// Stopped from outside.
    #[error("interrupted")]
    Interrupted,
    /// The results cannot be written.
    #[error("cannot write the results: {0}")]
    Results(#[from] std::io::Error),
}

/// Who hears what happens.
pub trait Observer {
    /// A trial ended.
    ///
    /// # Errors
    /// If the record cannot be kept.
    fn trial(&mut self, record: &TrialRecord) -> std::io::Result<()>;

    /// Called about 20 times a second. Returning false stops the measurement.
    fn tick(&mut self, status: &Status) -> bool;
}

/// What is going on, for a progress line.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// The gateway.
    pub gateway: String,
    /// What the trial is for.
    pub purpose: &'static str,
    /// Asked rate, frames a second in each direction.
    pub rate: u64,
    /// Frames sent so far, and to send in all.
    pub sent: (u64, u64),
    /// Interval that a search has left.
    pub bounds: Option<(u64, u64)>,
}

/// Which cores do what.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placement {
    /// Cores that send.
    pub sending: Vec<usize>,
    /// Cores of the gateway, where it is on this machine.
    pub gateway: Vec<usize>,
    /// Whether they overlap.
    pub sharing: Sharing,
    /// What was done to the gateway.
    pub note: String,
}

/// Native IPv6 traffic mixed in (RFC 8219 section 5.2): frame k is foreground iff k mod n < m.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Mix {
    /// n.
    pub n: u32,
    /// m.
    pub m: u32,
}

/// A gateway, ready to be measured.
pub struct Bench {
    /// The gateway.
    pub gateway: Box<dyn Gateway>,
    /// The frames.
    pub test_frames: TestFrames,
    /// Lengths and repetitions.
    pub effort: Effort,
    /// Directions of the frames.
    pub directions: Directions,
    /// Cores.
    pub placement: Placement,
    /// The tester's own limit, frames a second in one direction alone.
    pub tester_limit: u64,
    /// Interval shown with the progress.
    pub bounds: Option<(u64, u64)>,
    /// Trials since it was last taken.
    pub tally: Tally,
    /// What a scalability series goes over.
    pub scale: Scale,
    /// Flows begin one after another within so many seconds, by which trials are longer.
    pub beginning_seconds: f64,
    /// A search of rates ends where this part of the highest rate does not pass.
    pub lowest_rate_part: u64,
    rig: Rig,
    /// Ports whose drops are the tester's own.
    own_ports: Vec<Port>,
    ends: (Ends, Ends),
    payload: u16,
    /// Payloads of the frames of middle length and of the longest, where frames have three lengths.
    imix: Option<[u16; 2]>,
    mix: Option<Mix>,
    background: Option<Background>,
    /// On the way from port to port.
    routers: u8,
    /// What the gateway has to leave in the headers of forward and reverse frames.
    headers: [Headers; 2],
    /// What it does to every frame that it should not.
    pub deviations: BTreeSet<String>,
    /// The connections that a fill established.
    filled: Option<Filled>,
    seed: u64,
}

/// Connections of a fill.
#[derive(Clone, Copy, Debug)]
struct Filled {
    /// When the first of them was made.
    began: Instant,
    /// Rate of phase 1.
    rate: u64,
}

/// What a bench is made from.
pub struct BenchPlan {
    /// The gateway.
    pub gateway: Box<dyn Gateway>,
    /// The frames.
    pub test_frames: TestFrames,
    /// Length of frames on the left, bytes with FCS.
    pub frame_bytes: u16,
    /// That of the frames of middle length and of the longest, where frames have three lengths.
    pub imix: Option<[u16; 2]>,
    /// Background traffic.
    pub mix: Option<(Mix, Background)>,
    /// Lengths and repetitions.
    pub effort: Effort,
    /// Directions of the frames.
    pub directions: Directions,
    /// Cores that send, cores of the gateway.
    pub cores: (Vec<usize>, Vec<usize>),
    /// The tester's own limit, frames a second.
    pub tester_limit: u64,
    /// Most frames of a direction in a trial.
    pub frames: u32,
    /// How frames leave; the best that the kernel has where absent.
    pub means: Option<Means>,
}

impl BenchError {
    /// Whether the gateway may do better next time: it was there, but a trial had no result.
    pub fn may_pass(&self) -> bool {
        matches!(self, BenchError::Unfilled { .. } | BenchError::Silent { .. } | BenchError::Mangled { .. })
    }
}

impl Bench {
    /// Opens the rig and places the gateway.
    ///
    /// # Errors
    /// If either does not work here.
    pub fn open(plan: BenchPlan) -> Result<Bench, BenchError> {
        let BenchPlan {
            mut gateway,
            test_frames,
            frame_bytes,
            imix,
            mix,
            effort,
            directions,
            cores,
            tester_limit,
            frames,
            means,
        } = plan;
        let (left, right) = gateway.ports();
        let tuples = u32::try_from(test_frames.shape.tuples()).unwrap_or(u32::MAX);
        let capacity = Capacity {
            frames: frames.max(tuples_if_stateful(&test_frames, tuples)).max(PROBE_FRAMES),
            records: tuples_if_stateful(&test_frames, tuples).max(PROBE_FRAMES),
            a_hosts: test_frames.shape.a_hosts,
            b_hosts: test_frames.shape.b_hosts,
        };
        let mut rig = Rig::open(&left, &right, capacity)?;
        means.into_iter().for_each(|means| rig.set_means(means));
        rig.set_endpoints(&test_frames.a, &test_frames.b)?;
        let sharing = if cores.0.iter().any(|c| cores.1.contains(c)) { Sharing::Together } else { Sharing::Apart };
        let note = match sharing {
            Sharing::Apart => gateway.place(&cores.1)?,
            Sharing::Together => "the gateway does its work on the sending cores".to_owned(),
        };
        let ends = gateway.ends()?;
        let routers = gateway.routers(test_frames.technology);
        let template = Template {
            ends: ends.0,
            kind: test_frames.left,
            transport: Transport::Udp,
            frame_bytes,
            hop_limit: HOP_LIMIT,
        };
        let longest = imix.into_iter().flatten().chain([template.frame_bytes]).max().unwrap_or(0);
        let payload = Template { frame_bytes: longest, ..template }.payload_bytes();
        let there = Template::carrying(payload, test_frames.right, ends.1, HOP_LIMIT).frame_bytes;
        rig.prepare(longest.max(there))?;
        let own_ports = ports::with_drops_of_their_own(&[left.clone(), right.clone()], rig.port_xdp());
        Ok(Bench {
            gateway,
            effort,
            directions,
            placement: Placement { sending: cores.0, gateway: cores.1, sharing, note },
            tester_limit,
            bounds: None,
            tally: Tally::default(),
            scale: Scale::default(),
            beginning_seconds: 0.0,
            lowest_rate_part: LOWEST_RATE_PART,
            rig,
            own_ports,
            ends,
            payload: template.payload_bytes(),
            imix: imix.map(|lengths| lengths.map(|bytes| Template { frame_bytes: bytes, ..template }.payload_bytes())),
            mix: mix.map(|(mix, _)| mix),
            background: mix.map(|(_, background)| background),
            routers,
            headers: [false, true].map(|reverse| {
                let (sent, arrives) = sides(&test_frames, reverse);
                let link = if reverse { ends.0 } else { ends.1 };
                // A box elsewhere may answer from another address than it takes frames at.
                let source = left.namespace.is_some().then_some(link.destination);
                let link = LinkRule { source, destination: Some(link.source) };
                let hops = Hops { sent: HOP_LIMIT, routers, remade: test_frames.technology.remakes_ipv4() };
                let mut headers = Headers::of(sent, arrives, hops, template.payload_bytes(), link);
                if imix.is_some() && headers.fields.identification.is_none() && arrives == FrameKind::Ipv4 {
                    // It depends on the length.
                    headers.fields.dont_fragment = None;
                }
                headers
            }),
            deviations: BTreeSet::new(),
            filled: None,
            seed: 1,
            test_frames,
        })
    }

    /// How frames leave.
    pub fn sending(&self) -> Sending {
        self.rig.sending()
    }

    /// The tester's ports, left and right.
    pub fn ports(&self) -> [PortRecord; 2] {
        let (left, right) = self.gateway.ports();
        let [left_xdp, right_xdp] = self.rig.port_xdp();
        [PortRecord::of(&left, left_xdp), PortRecord::of(&right, right_xdp)]
    }

    /// What the tester allocated for it.
    pub fn memory_bytes(&self) -> u64 {
        self.rig.capacity().bytes(thread::available_parallelism().map_or(1, usize::from))
    }

    /// Number of four tuples.
    pub fn tuples(&self) -> u32 {
        u32::try_from(self.test_frames.shape.tuples()).unwrap_or(u32::MAX)
    }

    /// Frames on the left and right, bytes with FCS.
    pub fn frame_bytes(&self) -> (u16, u16) {
        let bytes = |kind, ends| Template::carrying(self.payload, kind, ends, HOP_LIMIT).frame_bytes;
        (bytes(self.test_frames.left, self.ends.0), bytes(self.test_frames.right, self.ends.1))
    }

    /// Moves the gateway to other cores.
    ///
    /// # Errors
    /// If that is not possible.
    pub fn place(&mut self, cores: &[usize]) -> Result<(), BenchError> {
        self.placement.note = self.gateway.place(cores)?;
        self.placement.gateway = cores.to_vec();
        Ok(())
    }

    /// Replaces the flows; the rig must have been opened for at least as many.
    ///
    /// # Errors
    /// If there are more hosts than before.
    pub fn set_test_frames(&mut self, test_frames: TestFrames) -> Result<(), BenchError> {
        self.rig.set_endpoints(&test_frames.a, &test_frames.b)?;
        self.test_frames = test_frames;
        Ok(())
    }

    /// Sends a few frames to see whether anything comes back right, and to resolve neighbours. What
    /// the gateway does to the headers of every frame that it should not is kept as a deviation.
    ///
    /// # Errors
    /// If nothing comes back, or everything is wrong.
    pub fn probe(&mut self, observer: &mut dyn Observer) -> Result<(), BenchError> {
        let stateful = self.test_frames.technology.is_stateful();
        let forward = TrialPlan {
            frames: PROBE_FRAMES.min(self.tuples()),
            record: stateful,
            ..self.plain("probe", Directions::Forward, PROBE_RATE, PROBE_FRAMES)
        };
        // Neighbour resolution may swallow the first frames, so a second probe decides.
        self.trial(&TrialPlan { record: false, ..forward }, observer)?;
        let trial = self.probe_one(&forward, 0, observer)?;
        let frames = match (&trial.outcome.forward, stateful) {
            (Some(forward), true) => u32::try_from(forward.arrivals.received).unwrap_or(PROBE_FRAMES),
            _ => PROBE_FRAMES,
        };
        let records = Order::RecordsOnce { count: frames, seed: self.seed };
        let order = if stateful { records } else { forward.forward_order };
        let reverse = TrialPlan {
            frames,
            reverse_order: order,
            record: false,
            ..self.plain("probe", Directions::Reverse, PROBE_RATE, PROBE_FRAMES)
        };
        if self.directions.reverse() || stateful {
            self.probe_one(&reverse, 1, observer)?;
        }
        if stateful {
            self.gateway.flush()?;
        }
        Ok(())
    }

    /// Probes one direction; once more where every frame has the same deviation.
    fn probe_one(&mut self, plan: &TrialPlan, which: usize, observer: &mut dyn Observer) -> Result<Trial, BenchError> {
        let mut trial = self.trial(plan, observer)?;
        let arrivals = trial.directions().next().map(|outcome| outcome.arrivals.clone());
        let deviations = arrivals.map_or_else(Vec::new, |arrivals| self.headers[which].relax(&arrivals));
        if !deviations.is_empty() {
            self.deviations.extend(deviations);
            trial = self.trial(plan, observer)?;
        }
        if let Some(outcome) = trial.directions().next() {
            self.check_probe(&trial, outcome, if which == 0 { "left to right" } else { "right to left" })?;
            let headers = &mut self.headers[which];
            if headers.hop_limit == 0 {
                headers.hop_limit = outcome.arrivals.hop_limit_seen;
            }
        }
        Ok(trial)
    }

    fn check_probe(
        &self,
        trial: &Trial,
        outcome: &DirectionOutcome,
        direction: &'static str,
    ) -> Result<(), BenchError> {
        let gateway = self.gateway.name();
        let (a, sent) = (&outcome.arrivals, outcome.departures.sent);
        if a.received > 0 {
            return Ok(());
        }
        if a.errored + a.unreadable > 0 {
            return Err(BenchError::Mangled { gateway, reasons: trial.reasons.join("; ") });
        }
        let hint = match a.icmp {
            0 => String::new(),
            icmp => format!("; the gateway answered with {icmp} ICMP messages"),
        };
        Err(BenchError::Silent { gateway, direction, sent, hint })
    }

    /// The usual trial: pseudorandom tuples, and answers from the records where the gateway is
    /// stateful.
    pub fn plain(&self, purpose: &'static str, directions: Directions, rate: u64, frames: u32) -> TrialPlan {
        let seed = self.seed;
        let (forward, reverse) = match self.test_frames.technology.is_stateful() {
            true => (Order::Random { seed }, Order::RecordsRandom { count: self.tuples(), seed }),
            false => (Order::Random { seed }, Order::Random { seed: seed + 1 }),
        };
        TrialPlan {
            purpose,
            directions,
            rate,
            frames,
            forward_order: forward,
            reverse_order: reverse,
            record: false,
            timed: None,
            variation: false,
            then: None,
            tolerated_loss: 0.0,
            unheard: 0,
        }
    }

    /// Goes on for one that the same gateway had before it was made anew.
    pub(crate) fn carry_on(&mut self, before: &mut Bench) {
        self.tally.add(&std::mem::take(&mut before.tally));
        self.deviations.append(&mut before.deviations);
        self.seed = before.seed;
    }

    /// Another pseudorandom sequence from now on.
    pub fn reseed(&mut self, seed: u64) {
        self.seed = seed * 2 + 1;
    }

    /// Phase 1 of RFC 9693: every four tuple exactly once, recorded by the responder.
    pub fn phase_one(&self, rate: u64) -> TrialPlan {
        let frames = self.tuples();
        TrialPlan {
            forward_order: Order::Enumerate { seed: self.seed },
            record: true,
            ..self.plain("phase 1", Directions::Forward, rate, frames)
        }
    }

    /// Answers to each recorded connection exactly once (RFC 9693 section 4.5, validation).
    pub fn validation(&self, rate: u64, connections: u32) -> TrialPlan {
        TrialPlan {
            reverse_order: Order::RecordsOnce { count: connections, seed: self.seed },
            ..self.plain("validation", Directions::Reverse, rate, connections)
        }
    }

    /// The same after a phase 1 in which some could be lost: the responder never heard of those, and as
    /// many again in percent may be.
    pub fn validation_after(&self, phase_one: &Trial, rate: u64, connections: u32) -> TrialPlan {
        let heard = u32::try_from(phase_one.arrived()).map_or(connections, |arrived| arrived.min(connections));
        TrialPlan {
            tolerated_loss: self.effort.tolerated_loss_percent,
            unheard: connections - heard,
            ..self.validation(rate, connections)
        }
    }

    /// Empties the gateway and establishes all connections again; at which rate. A quick run has not measured at which it can be done: where it
    /// took one of the modest rates, now or once before, and the table is not filled at it, it goes on with the next slower one. Stateless gateways
    /// have no connections.
    ///
    /// # Errors
    /// If three attempts at a rate, and at each slower one that is tried, do not do it.
    pub fn fill(&mut self, rate: u64, observer: &mut dyn Observer) -> Result<u64, BenchError> {
        if !self.test_frames.technology.is_stateful() {
            return Ok(rate);
        }
        let is_by_guess = self.effort.quick && MODEST_RATES.contains(&rate);
        let slower = MODEST_RATES.into_iter().filter(|modest| is_by_guess && *modest < rate);
        let mut filled = Ok(rate);
        for rate in iter::once(rate).chain(slower) {
            filled = self.fill_at(rate, observer).map(|()| rate);
            if !matches!(filled, Err(BenchError::Unfilled { .. })) {
                break;
            }
        }
        filled
    }

    fn fill_at(&mut self, rate: u64, observer: &mut dyn Observer) -> Result<(), BenchError> {
        let attempts = 3;
        let mut reasons = String::new();
        for _ in 0..attempts {
            self.gateway.flush()?;
            let began = Instant::now();
            let trial = self.trial(&self.phase_one(rate), observer)?;
            if trial.directions().all(DirectionOutcome::is_perfect) {
                self.filled = Some(Filled { began, rate });
                return Ok(());
            }
            reasons = trial.reasons.join("; ");
        }
        let (gateway, sessions) = (self.gateway.name(), u64::from(self.tuples()));
        Err(BenchError::Unfilled { gateway, sessions, rate, attempts, reasons })
    }

    /// Establishes the connections of the last fill again where some would expire before the trial
    /// ends (RFC 9693 section 4.4), by the time that has really gone since: a search makes many
    /// trials after one fill.
    fn keep_connections(&mut self, plan: &TrialPlan, observer: &mut dyn Observer) -> Result<(), BenchError> {
        let Some(filled) = self.filled else { return Ok(()) };
        let rate = if plan.rate == 0 { self.tester_limit } else { plan.rate };
        let seconds = f64::from(plan.frames) / rate.max(1) as f64;
        if self.check_lifetime(age_at_the_end(filled.began, seconds)).is_ok() {
            return Ok(());
        }
        self.fill(filled.rate, observer)?;
        match self.filled {
            Some(again) => self.check_lifetime(age_at_the_end(again.began, seconds)),
            None => Ok(()),
        }
    }

    /// Refuses what takes longer, in seconds, than the gateway keeps a connection, where it has any and
    /// that is known.
    pub(crate) fn check_lifetime(&self, needed: f64) -> Result<(), BenchError> {
        let is_stateful = self.test_frames.technology.is_stateful();
        let timeout = self.gateway.udp_timeout_seconds().filter(|_| is_stateful).map(|seconds| seconds as f64);
        let Some(timeout) = timeout.filter(|timeout| needed >= *timeout) else { return Ok(()) };
        Err(BenchError::Unsuitable(format!(
            "{} forgets UDP connections after {timeout} s, but phase 1, the gap after it and the measurement take {needed:.1} s; raise its \
             timeout, or take fewer sessions or a shorter trial",
            self.gateway.name()
        )))
    }

    /// Runs one trial.
    ///
    /// # Errors
    /// If it could not be run at all, or was stopped.
    pub fn trial(&mut self, plan: &TrialPlan, observer: &mut dyn Observer) -> Result<Trial, BenchError> {
        self.trial_with(plan, observer, &mut |_, _| Ok(()))
    }

    /// Runs a trial until it is valid, or has been repeated as often as the effort allows; returns
    /// the last one.
    ///
    /// # Errors
    /// As [`Bench::trial`].
    pub fn valid_trial(&mut self, plan: &TrialPlan, observer: &mut dyn Observer) -> Result<Trial, BenchError> {
        let mut trial = self.trial(plan, observer)?;
        for _ in 0..self.effort.repeat_invalid {
            if trial.verdict != Verdict::Invalid {
                break;
            }
            trial = self.trial(plan, observer)?;
        }
        Ok(trial)
    }

    /// Runs one trial, calling `during` about 20 times a second with the gateway and the time since
    /// the start.
    ///
    /// # Errors
    /// As [`Bench::trial`], and what `during` returns.
    pub fn trial_with(
        &mut self,
        plan: &TrialPlan,
        observer: &mut dyn Observer,
        during: &mut dyn FnMut(&mut dyn Gateway, Duration) -> Result<(), GatewayError>,
    ) -> Result<Trial, BenchError> {
        let plan = &self.with_beginning(plan);
        match plan.record {
            // New connections in the place of the old ones.
            true => self.filled = None,
            false => self.keep_connections(plan, observer)?,
        }
        let directions = [plan.directions.forward(), plan.directions.reverse()];
        let total = plan.directions.count() * u64::from(plan.frames);
        let exchange = Exchange {
            forward: directions[0].then(|| self.direction(plan, false)),
            reverse: directions[1].then(|| self.direction(plan, true)),
            drain: self.effort.drain(),
            always_drain: self.effort.always_drain,
        };
        let before = PortDrops::now(&self.own_ports);
        let mut status = Status {
            gateway: self.gateway.name(),
            purpose: plan.purpose,
            rate: plan.rate,
            sent: (0, total),
            bounds: self.bounds,
        };
        let (started, mut trouble, mut go_on) = (Instant::now(), None, true);
        let is_here = self.placement.sharing == Sharing::Apart && self.gateway.ports().0.namespace.is_some();
        let watch = is_here.then(|| CoreWatch::begin(&self.placement.gateway));
        let counters = is_here.then(|| CoreCounters::begin(&self.placement.gateway)).flatten();
        let work = Work::now();
        let worked_before = self.gateway.worked_ns().filter(|_| is_here);
        let (rig, gateway) = (&mut self.rig, &mut self.gateway);
        let outcome = rig.run(&exchange, &mut |sent, _| {
            if let Err(error) = during(gateway.as_mut(), started.elapsed()) {
                trouble = Some(error);
                return false;
            }
            status.sent.0 = sent;
            go_on = observer.tick(&status);
            go_on
        })?;
        if let Some(error) = trouble {
            return Err(error.into());
        }
        if !go_on || outcome.stopped || !observer.tick(&status) {
            return Err(BenchError::Interrupted);
        }
        let drops = PortDrops::now(&self.own_ports).since(before);
        let drops = if self.own_ports.is_empty() { drops } else { drops.corrected(&outcome, self.rig.refused()) };
        let since = |before: u64| Some(self.gateway.worked_ns()?.saturating_sub(before) as f64 / 1e9);
        let surroundings = Surroundings {
            worked_s: worked_before.and_then(since),
            core_work: counters.and_then(CoreCounters::end),
            receive_drops: drops.receive,
            transmit_drops: drops.transmit,
            tolerated_loss: plan.tolerated_loss,
            unheard: plan.unheard,
            sharing: self.placement.sharing,
            // With two rates it is not known which frames were due meanwhile.
            absences: watch.map(CoreWatch::end).filter(|_| plan.then.is_none()).unwrap_or_default(),
        };
        let mut trial = Trial::judge(outcome, &surroundings);
        trial.processors_percent = Work::now().percent_since(&work);
        self.tally.count(&trial);
        observer.trial(&TrialRecord::of(self.gateway.name(), plan, &trial))?;
        thread::sleep(Duration::from_millis(self.effort.pause_ms));
        Ok(trial)
    }

    /// The plan of a trial of random flows, with the time in which they begin before it.
    fn with_beginning(&self, plan: &TrialPlan) -> TrialPlan {
        if self.beginning_seconds == 0.0 || is_about_connections(plan) {
            return *plan;
        }
        let frames = Effort::frames(plan.rate, self.beginning_seconds);
        TrialPlan {
            frames: plan.frames.saturating_add(frames),
            forward_order: plan.forward_order.one_after_another(frames),
            reverse_order: plan.reverse_order.one_after_another(frames),
            timed: plan.timed.map(|timed| Timed { from: timed.from.saturating_add(frames), ..timed }),
            ..*plan
        }
    }

    fn direction(&self, plan: &TrialPlan, reverse: bool) -> Direction {
        let test_frames = &self.test_frames;
        let (sent_as, arrives_as) = sides(test_frames, reverse);
        let (ends, order) = match reverse {
            false => (self.ends.0, plan.forward_order),
            true => (self.ends.1, plan.reverse_order),
        };
        let headers = self.headers[usize::from(reverse)];
        let answer = Answer {
            kind: arrives_as,
            source: if reverse { SourceRule::Exact } else { test_frames.source },
            source_port: if reverse { PortRule::Exact } else { test_frames.source_port },
            hop_limit: headers.hop_limit,
            inner_hop_limit: headers.inner_hop_limit,
            header: headers.fields,
            link: headers.link,
            record: plan.record && !reverse,
            timing: if plan.variation { Timing::Variations } else { Timing::Delays },
            timeout_ns: if is_about_connections(plan) { 0 } else { self.effort.frame_timeout_ns },
        };
        Direction {
            template: Template::carrying(self.payload, sent_as, ends, HOP_LIMIT),
            order,
            shape: test_frames.shape,
            frames: plan.frames,
            pace: Pace { rate: plan.rate, then: plan.then, burst: None },
            cores: self.placement.sending.clone(),
            background: self.background_of(reverse, ends, plan),
            imix: self.imix.map(|payloads| payloads.map(|bytes| Template::carrying(bytes, sent_as, ends, HOP_LIMIT))),
            timed: plan.timed,
            answer,
        }
    }

    fn background_of(&self, reverse: bool, ends: Ends, plan: &TrialPlan) -> Option<Background> {
        let mix = self.mix?;
        let base = self.background?;
        if is_about_connections(plan) {
            return None;
        }
        let (source, destination) = match reverse {
            false => (base.source, base.destination),
            true => (base.destination, base.source),
        };
        let template = Template::carrying(self.payload, FrameKind::Ipv6, ends, HOP_LIMIT);
        Some(Background { template, source, destination, n: mix.n, m: mix.m, hop_limit: HOP_LIMIT - self.routers })
    }

    /// Searches the highest rate that passes, up to the tester's limit; the trial that `attempt`
    /// made decides.
    ///
    /// # Errors
    /// What `attempt` returns.
    pub fn search_rate(
        &mut self,
        max: u64,
        hint: Option<u64>,
        mut attempt: impl FnMut(&mut Bench, u64) -> Result<Trial, BenchError>,
    ) -> Result<Found, BenchError> {
        let mut searching = self.search_of(None, max, hint).begin();
        while self.search_on(&mut searching, &mut attempt)? {}
        Ok(searching.found())
    }

    /// The search of the highest rate that passes, of these lengths or else of the bench's own.
    pub fn search_of(&self, effort: Option<&Effort>, max: u64, hint: Option<u64>) -> Search {
        effort.unwrap_or(&self.effort).search(max, max / self.lowest_rate_part, hint)
    }

    /// Makes one more attempt of a search; false if there is none to make.
    ///
    /// # Errors
    /// What `attempt` returns.
    pub fn search_on(
        &mut self,
        searching: &mut Searching,
        attempt: impl FnOnce(&mut Bench, u64) -> Result<Trial, BenchError>,
    ) -> Result<bool, BenchError> {
        let Some((rate, bounds)) = searching.wanted() else { return Ok(false) };
        self.bounds = Some(bounds);
        let trial = attempt(self, rate);
        self.bounds = None;
        let trial = trial?;
        let hopeless = f64::from(self.effort.hopeless_loss_percent);
        searching.note(Attempt { verdict: trial.verdict, beyond_doubt: trial.loss_percent() > hopeless });
        Ok(true)
    }
}

/// Phase 1 and validation: native traffic makes no connections, and no frame is too late for one.
fn is_about_connections(plan: &TrialPlan) -> bool {
    plan.record || matches!(plan.reverse_order, Order::RecordsOnce { .. })
}

/// What frames of a direction are on the side that they leave from, and on the other one.
fn sides(test_frames: &TestFrames, reverse: bool) -> (FrameKind, FrameKind) {
    match reverse {
        false => (test_frames.left, test_frames.right),
        true => (test_frames.right, test_frames.left),
    }
}

fn tuples_if_stateful(test_frames: &TestFrames, tuples: u32) -> u32 {
    if test_frames.technology.is_stateful() { tuples } else { 0 }
}

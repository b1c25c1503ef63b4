//! The programs, the memory that they share with us, and one run.

use std::io;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{DevMap, Map, MapData};
use aya::programs::{Xdp, xdp::XdpMode};
use aya::{Ebpf, EbpfLoader};

use tombolo_records::Plain;

use crate::bitmap::{Bitmap, lane_words, words_of};
use crate::frame::Template;
use crate::layout::{
    Control, Counters, EXPECT_IPDV, EXPECT_RECORD, EXPECT_UNTIMED, Endpoint, Expectation, FrameKind, Histogram, LANES,
    LaneState, ORDER_ENUMERATE, ORDER_RANDOM, ORDER_RECORDS_ONCE, ORDER_RECORDS_RANDOM, PORT_ANY, PORT_EXACT,
    PermutationRecord, Record, SOURCE_ANY, SOURCE_EXACT, SOURCE_POOL, STREAM_MIXED, STREAM_UNTIMED, STREAMS, Stream,
    StreamState, TAGGED_MAX,
};
use crate::mapped::Mapped;
use crate::namespace::{Namespace, in_namespace};
use crate::outcome::{Arrivals, Delays, DirectionOutcome, Outcome, merge_states};
use crate::packet_socket::PacketSocket;
use crate::permutation::{Permutation, mix64};
use crate::plan::{Direction, Order, Plan, PortRule, SourceRule, Timing};
use crate::sender::{Assignment, Exit, Overseer, Sender, SocketExit, install_wake_signal, monotonic_ns};
use crate::test_run::run_live;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/generator.bpf.o"));

const REVERSE: usize = 1;
/// A burst this late is counted.
const LATE_NS: u64 = 100_000;
/// The page pools of the sending threads are built in this time.
const LEAD: Duration = Duration::from_millis(120);
/// The program waits at least this long before it gives an idle call back, on any machine.
const IDLE_CALL_NS: u64 = 2_000;
/// How long duplicates may trail behind.
const GRACE: Duration = Duration::from_millis(30);

/// One of the tester's two interfaces.
#[derive(Clone, Debug)]
pub struct Port {
    /// Interface name.
    pub name: String,
    /// The namespace it is in; `None` for this process's.
    pub namespace: Option<Namespace>,
}

/// How frames leave. The same program makes them either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Means {
    /// The kernel runs the program once a frame and redirects the frame to the port (Linux 5.18):
    /// millions a second.
    #[default]
    LiveFrames,
    /// Each frame comes back from the kernel and is sent through a packet socket, two system calls
    /// a frame: some hundred thousand a second, on any kernel with XDP.
    PacketSockets,
}

impl Means {
    /// What results call it.
    pub fn name(self) -> &'static str {
        match self {
            Means::LiveFrames => "XDP, live frames (BPF_PROG_TEST_RUN)",
            Means::PacketSockets => "XDP program, packet sockets (AF_PACKET): the slower fallback",
        }
    }
}

/// How much a rig has to hold.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Frames of one direction in one run.
    pub frames: u32,
    /// Four tuples that the responder records: 16 bytes each.
    pub records: u32,
    /// "a" hosts.
    pub a_hosts: u32,
    /// "b" hosts.
    pub b_hosts: u32,
}

/// Why the rig does not work.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// No such interface.
    #[error("interface {name} does not exist{place}", place = place(.namespace))]
    NoInterface {
        /// Its name.
        name: String,
        /// Where it was looked for.
        namespace: Option<Namespace>,
    },
    /// The namespace cannot be entered.
    #[error("cannot enter the network namespace {path}: {source}")]
    Namespace {
        /// Its file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The programs do not load.
    #[error(
        "the kernel did not accept the tester's BPF programs: {source}. They need root (CAP_BPF, CAP_NET_ADMIN) and Linux 5.18"
    )]
    Load {
        /// aya's explanation.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// XDP cannot be attached.
    #[error(
        "cannot attach the receiver to {name}: {source}. Another XDP program may be attached (ip link set dev {name} xdp off)"
    )]
    Attach {
        /// The interface.
        name: String,
        /// aya's explanation.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The shared memory cannot be mapped.
    #[error("cannot map the array {map} ({bytes} bytes): {source}")]
    Map {
        /// The BPF map.
        map: &'static str,
        /// Size.
        bytes: usize,
        /// Why.
        source: io::Error,
    },
    /// The kernel does not run the generator.
    #[error(
        "the kernel refuses to send live frames: {source}. Linux 5.18 is needed, and frames of at most about 3.4 KiB"
    )]
    Send {
        /// Why.
        source: io::Error,
    },
    /// The plan does not fit.
    #[error("{0}")]
    Plan(String),
}

fn place(namespace: &Option<Namespace>) -> String {
    namespace.as_ref().map_or_else(String::new, |n| format!(" in the network namespace {}", n.path().display()))
}

/// Generator and receiver, loaded and attached to two ports. Dropping it detaches everything.
pub struct Rig {
    programs: Ebpf,
    capacity: Capacity,
    means: Means,
    ports: [Port; 2],
    cpus: usize,
    trial: u8,
    control: Mapped<Control>,
    streams: Mapped<Stream>,
    states: Mapped<StreamState>,
    lanes: Mapped<LaneState>,
    expectations: Mapped<Expectation>,
    a: Mapped<Endpoint>,
    b: Mapped<Endpoint>,
    counters: Mapped<Counters>,
    delays: Mapped<Histogram>,
    variations: Mapped<Histogram>,
    bitmap: Mapped<u64>,
    records: Mapped<Record>,
    timed: Mapped<u64>,
}

impl Rig {
    /// Loads the programs and attaches the receivers in native mode where the driver has it, else
    /// in generic mode.
    ///
    /// # Errors
    /// If an interface or namespace is missing, privileges are, or the kernel is too old.
    pub fn open(left: &Port, right: &Port, capacity: Capacity) -> Result<Rig, RigError> {
        install_wake_signal().map_err(|source| RigError::Send { source })?;
        let cpus = possible_cpus();
        let words = words_of(capacity.frames, LANES);
        let slots = 2 * u32::try_from(cpus).unwrap_or(1);
        let mut loader = EbpfLoader::new();
        loader
            .map_max_entries("endpoints_a", capacity.a_hosts.max(1))
            .map_max_entries("endpoints_b", capacity.b_hosts.max(1))
            .map_max_entries("counters", slots)
            .map_max_entries("delays", slots)
            .map_max_entries("variations", 2 * slots)
            .map_max_entries("bitmap", u32::try_from(2 * words).unwrap_or(u32::MAX))
            .map_max_entries("records", capacity.records.max(1));
        let mut programs = loader.load(OBJECT).map_err(load_error)?;
        let (records, slots) = (capacity.records.max(1) as usize, slots as usize);
        let mut rig = Rig {
            control: map(&programs, "control", 1)?,
            streams: map(&programs, "streams", STREAMS)?,
            states: map(&programs, "stream_states", STREAMS)?,
            lanes: map(&programs, "lane_states", LANES)?,
            expectations: map(&programs, "expectations", 2)?,
            a: map(&programs, "endpoints_a", capacity.a_hosts.max(1) as usize)?,
            b: map(&programs, "endpoints_b", capacity.b_hosts.max(1) as usize)?,
            counters: map(&programs, "counters", slots)?,
            delays: map(&programs, "delays", slots)?,
            variations: map(&programs, "variations", 2 * slots)?,
            bitmap: map(&programs, "bitmap", 2 * words)?,
            records: map(&programs, "records", records)?,
            timed: map(&programs, "timed", 2 * TAGGED_MAX)?,
            programs: {
                connect(&mut programs, left, 0, "receive_left")?;
                connect(&mut programs, right, 1, "receive_right")?;
                programs
            },
            capacity,
            means: Means::LiveFrames,
            ports: [left.clone(), right.clone()],
            cpus,
            trial: 0,
        };
        rig.control.set(0, Control { stop: 0, cpus: u32::try_from(cpus).unwrap_or(1), reserved: [0; 7] });
        rig.set_endpoints(&[Endpoint::default()], &[Endpoint::default()])?;
        if !rig.has_live_frames()? {
            rig.means = Means::PacketSockets;
        }
        Ok(rig)
    }

    /// How frames leave: live frames, where the kernel has them, unless told otherwise.
    pub fn means(&self) -> Means {
        self.means
    }

    /// Chooses how frames leave.
    pub fn set_means(&mut self, means: Means) {
        self.means = means;
    }

    /// Asks the kernel for a run without frames. Without live frames it refuses the flag.
    fn has_live_frames(&mut self) -> Result<bool, RigError> {
        let program = loaded(&mut self.programs, "generate0")?;
        let page = Template::page(64);
        match run_live(program.fd().map_err(load_error)?.as_fd(), &page, 1, 1) {
            Ok(()) => Ok(true),
            Err(why) if why.raw_os_error() == Some(libc::EINVAL) => Ok(false),
            Err(source) => Err(RigError::Send { source }),
        }
    }

    /// What it can hold.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Sets the hosts of both sides.
    ///
    /// # Errors
    /// If there are more than the capacity says.
    pub fn set_endpoints(&mut self, a: &[Endpoint], b: &[Endpoint]) -> Result<(), RigError> {
        for (name, map, hosts) in [("left", &self.a, a), ("right", &self.b, b)] {
            if hosts.len() > map.len() {
                return Err(RigError::Plan(format!(
                    "{} {name} hosts, but the rig was opened for {}",
                    hosts.len(),
                    map.len()
                )));
            }
            hosts.iter().enumerate().for_each(|(i, host)| map.set(i, *host));
        }
        Ok(())
    }

    /// The four tuple that frame `number` of a recording run had behind the gateway.
    pub fn record(&self, number: u32) -> Option<Record> {
        (number < self.capacity.records).then(|| self.records.get(number as usize)).filter(|r| r.tuple_plus_one != 0)
    }

    /// Forgets all records.
    pub fn clear_records(&mut self) {
        self.records.clear(0, self.records.len());
    }

    /// Plays the plan. `watch` is called about 20 times a second with (sent, arrived) of both
    /// directions together and stops the run by returning false.
    ///
    /// # Errors
    /// If the plan does not fit the capacity or the kernel refuses.
    pub fn run(&mut self, plan: &Plan, watch: &mut dyn FnMut(u64, u64) -> bool) -> Result<Outcome, RigError> {
        self.trial = self.trial.wrapping_add(1);
        let directions = [plan.forward.as_ref(), plan.reverse.as_ref()];
        self.check(&directions)?;
        self.reset(&directions);
        let start_ns = monotonic_ns() + u64::try_from(LEAD.as_nanos()).unwrap_or(0);
        for (index, direction) in directions.iter().enumerate() {
            if let Some(direction) = direction {
                self.expectations.set(index, self.expectation(index, direction));
            }
        }
        let cores = cores_of(&directions);
        let mut assignments = Vec::new();
        for (lane, core) in cores.iter().enumerate() {
            assignments.push(self.assignment(lane, *core, &directions, start_ns)?);
        }
        let stopped = self.send_all(plan, assignments, watch)?;
        let outcome = self.collect(&directions, start_ns, stopped);
        (0..2).for_each(|d| self.expectations.set(d, Expectation::default()));
        Ok(outcome)
    }

    fn check(&self, directions: &[Option<&Direction>; 2]) -> Result<(), RigError> {
        let lanes = cores_of(directions).len();
        if lanes > LANES {
            return Err(RigError::Plan(format!("{lanes} sending cores, but there are {LANES} generator programs")));
        }
        if let [Some(forward), Some(reverse)] = directions
            && forward.pace.burst() != reverse.pace.burst()
            && forward.cores.iter().any(|core| reverse.cores.contains(core))
        {
            return Err(RigError::Plan("two directions that share a core need the same burst size".to_owned()));
        }
        for direction in directions.iter().flatten() {
            check_direction(direction, self.capacity).map_err(RigError::Plan)?;
        }
        Ok(())
    }

    fn reset(&mut self, directions: &[Option<&Direction>; 2]) {
        self.control.set(0, Control { stop: 0, ..self.control.get(0) });
        self.counters.clear(0, self.counters.len());
        self.delays.clear(0, self.delays.len());
        self.variations.clear(0, self.variations.len());
        self.timed.clear(0, self.timed.len());
        self.streams.clear(0, self.streams.len());
        self.states.clear(0, self.states.len());
        let half = self.bitmap.len() / 2;
        for (index, direction) in directions.iter().enumerate() {
            if let Some(direction) = direction {
                self.bitmap.clear(index * half, words_of(direction.frames, direction.cores.len()));
                if direction.answer.record {
                    self.records.clear(0, direction.frames as usize);
                }
            }
        }
    }

    fn expectation(&self, index: usize, direction: &Direction) -> Expectation {
        let answer = &direction.answer;
        let payload = direction.template.payload_bytes();
        let (pool_first, pool_last) = match answer.source {
            SourceRule::Pool(first, last) => (first.to_bits(), last.to_bits()),
            _ => (0, 0),
        };
        let mut expectation = Expectation {
            active: 1,
            kind: answer.kind as u8,
            trial: self.trial,
            flags: if answer.record { EXPECT_RECORD } else { 0 }
                | match answer.timing {
                    Timing::Off => EXPECT_UNTIMED,
                    Timing::Delays => 0,
                    Timing::Variations => EXPECT_IPDV,
                },
            source_rule: match answer.source {
                SourceRule::Any => SOURCE_ANY,
                SourceRule::Exact => SOURCE_EXACT,
                SourceRule::Pool(..) => SOURCE_POOL,
            },
            source_port_rule: if answer.source_port == PortRule::Exact { PORT_EXACT } else { PORT_ANY },
            hop_limit: answer.hop_limit,
            inner_hop_limit: answer.inner_hop_limit,
            pool_first,
            pool_last,
            ip_bytes: Template::ip_bytes(answer.kind, payload),
            filler_sum: direction.template.filler_sum(),
            sample_mask: if payload <= 128 { 0 } else { 15 },
            index_stride: u32::try_from(direction.cores.len()).unwrap_or(1),
            timed_from: direction.timed.map_or(0, |t| t.from),
            timed_every: direction.timed.map_or(0, |t| t.every),
            bitmap_first: (index * self.bitmap.len() / 2) as u64,
            frames: direction.frames,
            lane_words: u32::try_from(lane_words(direction.frames, direction.cores.len())).unwrap_or(u32::MAX),
            shape: direction.shape,
            ..Expectation::default()
        };
        if let Some(background) = &direction.background {
            expectation.background_hop_limit = background.hop_limit;
            expectation.background_ip_bytes = Template::ip_bytes(FrameKind::Ipv6, background.template.payload_bytes());
            expectation.background_filler_sum = background.template.filler_sum();
            expectation.background_source = background.source.octets();
            expectation.background_destination = background.destination.octets();
        }
        expectation
    }

    /// Stream `lane` of the direction's own cores. `mixed` says that other frames share its pages.
    fn stream(&self, index: usize, lane: usize, direction: &Direction, start_ns: u64, mixed: bool) -> Stream {
        let lanes = u32::try_from(direction.cores.len()).unwrap_or(1);
        let lane = u32::try_from(lane).unwrap_or(0);
        let (order, permutation, seed) = order_of(direction);
        let pace = direction.pace;
        let period = period_of(pace.rate, lanes);
        let (second_from, second_rate) = pace.then.unwrap_or((direction.frames, pace.rate));
        let burst = pace.burst();
        let whole = |period: u64| (period >> 32) * u64::from(burst);
        Stream {
            start_ns: start_ns + pace.due_ns(lane),
            period,
            second_period: period_of(second_rate, lanes),
            batch_gap_ns: whole(period) * 3 / 4,
            late_ns: LATE_NS,
            frames: share(direction.frames, lane, lanes),
            second_from: share(second_from, lane, lanes),
            index_offset: lane,
            index_stride: lanes,
            burst,
            order,
            timed_from: direction.timed.map_or(0, |t| t.from),
            timed_every: direction.timed.map_or(0, |t| t.every),
            mix_n: direction.background.map_or(0, |b| b.n),
            mix_m: direction.background.map_or(0, |b| b.m),
            seed,
            trial: self.trial,
            direction: u8::from(index == REVERSE),
            flags: if mixed { STREAM_MIXED } else { 0 }
                | if direction.answer.timing == Timing::Off { STREAM_UNTIMED } else { 0 },
            reserved: 0,
            permutation,
            shape: direction.shape,
            foreground: direction.template.render(self.trial),
            background: match &direction.background {
                Some(b) => b.template.render_between(self.trial, b.source, b.destination),
                None => direction.template.render(self.trial),
            },
        }
    }

    /// Sets up the streams of one sending core and the thread that will run them.
    fn assignment(
        &mut self,
        lane: usize,
        core: usize,
        directions: &[Option<&Direction>; 2],
        start_ns: u64,
    ) -> Result<Assignment, RigError> {
        let exit = self.exit(directions)?;
        let program = loaded(&mut self.programs, &format!("generate{lane}"))?;
        let program = program.fd().map_err(load_error)?.as_fd().try_clone_to_owned().map_err(load_error)?;
        let both = directions.iter().all(|d| d.is_some_and(|d| d.cores.contains(&core)));
        let (mut frames, mut waiting, mut length, mut burst) = (0u64, 0, 0, 1);
        for (index, direction) in directions.iter().enumerate() {
            let Some(direction) = direction else { continue };
            let Some(position) = direction.cores.iter().position(|c| *c == core) else {
                continue;
            };
            let stream = self.stream(index, position, direction, start_ns, both || direction.background.is_some());
            self.states.set(2 * lane + index, StreamState { due_ns: stream.start_ns, ..StreamState::default() });
            self.streams.set(2 * lane + index, stream);
            frames += u64::from(stream.frames);
            burst = stream.burst;
            waiting = waiting.max(direction.pace.duration_ns(direction.frames));
            length = length.max(direction.template.length());
            length = length.max(direction.background.map_or(0, |b| b.template.length()));
        }
        self.lanes.set(lane, LaneState { burst, ..LaneState::default() });
        waiting += u64::try_from(LEAD.as_nanos()).unwrap_or(0);
        // The last burst of each direction may be short, and its rest is called for nothing.
        let calls = frames + 2 * u64::from(burst) + waiting / IDLE_CALL_NS * u64::from(burst);
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        Ok(Assignment { program, core, page: Template::page(length), burst, calls, exit })
    }

    /// The ways out of the two directions.
    fn exit(&self, directions: &[Option<&Direction>; 2]) -> Result<Exit, RigError> {
        if self.means == Means::LiveFrames {
            return Ok(Exit::Kernel);
        }
        let exits = directions.iter().zip(&self.ports).filter_map(|(direction, port)| {
            let header = direction.as_ref()?.template.ends.header();
            let socket = PacketSocket::open(port).map_err(|source| RigError::Send { source });
            Some(socket.map(|socket| SocketExit { header, socket }))
        });
        exits.collect::<Result<_, _>>().map(Exit::Sockets)
    }

    fn send_all(
        &self,
        plan: &Plan,
        assignments: Vec<Assignment>,
        watch: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool, RigError> {
        let _overseer = Overseer::begin();
        let lanes = assignments.len();
        let finished: Vec<_> = (0..lanes).map(|lane| move || self.is_finished(lane)).collect();
        let mut stopped = false;
        thread::scope(|scope| -> Result<(), RigError> {
            let senders: Vec<Sender<'_>> = assignments
                .into_iter()
                .zip(&finished)
                .map(|(assignment, finished)| Sender::start(scope, assignment, finished))
                .collect();
            let mut reported = Instant::now();
            while !senders.iter().all(Sender::is_done) {
                thread::sleep(Duration::from_millis(2));
                for (lane, sender) in senders.iter().enumerate() {
                    if self.is_finished(lane) {
                        sender.wake();
                    }
                }
                if reported.elapsed() >= Duration::from_millis(50) {
                    reported = Instant::now();
                    let (sent, arrived) = self.progress();
                    if !stopped && !watch(sent, arrived) {
                        stopped = true;
                        self.control.set(0, Control { stop: 1, ..self.control.get(0) });
                    }
                }
            }
            senders.into_iter().try_for_each(Sender::join).map_err(|source| RigError::Send { source })
        })?;
        self.drain(plan, stopped);
        Ok(stopped)
    }

    fn is_finished(&self, lane: usize) -> bool {
        [2 * lane, 2 * lane + 1].into_iter().all(|stream| {
            let state = self.states.get(stream);
            state.stopped != 0 || state.sent >= self.streams.get(stream).frames
        }) || self.control.get(0).stop != 0
    }

    /// Frames sent, and frames that arrived in any shape.
    fn progress(&self) -> (u64, u64) {
        let sent = (0..STREAMS).map(|s| u64::from(self.states.get(s).sent)).sum();
        let arrived = (0..self.counters.len())
            .map(|slot| self.counters.get(slot))
            .map(|c| c.received + c.errored + c.unreadable)
            .sum();
        (sent, arrived)
    }

    fn drain(&self, plan: &Plan, stopped: bool) {
        let since = Instant::now();
        let limit = if stopped { GRACE } else { plan.drain };
        while since.elapsed() < limit {
            let (sent, arrived) = self.progress();
            if arrived >= sent && !plan.always_drain {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        thread::sleep(GRACE);
    }

    fn collect(&self, directions: &[Option<&Direction>; 2], start_ns: u64, stopped: bool) -> Outcome {
        let mut outcomes = directions.iter().enumerate().map(|(index, direction)| {
            let direction = (*direction)?;
            let mut departures = merge_states((0..LANES).map(|lane| self.states.get(2 * lane + index)));
            departures.planned = u64::from(direction.frames);
            departures.start_ns = start_ns;
            departures.last_due_ns = start_ns + direction.pace.due_ns(direction.frames.saturating_sub(1));
            departures.burst_frames = direction.pace.burst();
            let arrivals = self.arrivals(index, direction, departures.sent);
            Some(DirectionOutcome { departures, arrivals })
        });
        let forward = outcomes.next().flatten();
        let reverse = outcomes.next().flatten();
        Outcome { forward, reverse, stopped }
    }

    fn arrivals(&self, index: usize, direction: &Direction, sent: u64) -> Arrivals {
        let slots = index * self.cpus..(index + 1) * self.cpus;
        // A stopped run never sent its last frames, so these are not missing. With several cores
        // the numbers of a stopped run have holes at the end; the bitmap is then only good for what
        // all cores sent.
        let frames = u32::try_from(sent.min(u64::from(direction.frames))).unwrap_or(u32::MAX);
        let (lanes, first_word) = (direction.cores.len(), index * self.bitmap.len() / 2);
        let bitmap = Bitmap::copy(&self.bitmap, first_word, frames, lanes, lane_words(direction.frames, lanes));
        let delays = Delays::gather(&self.delays, slots.clone());
        let mut arrivals = Arrivals::collect(slots.clone().map(|s| self.counters.get(s)), delays, bitmap);
        if direction.answer.timing == Timing::Variations {
            arrivals.variations_up = Delays::gather(&self.variations, slots.clone().map(|s| 2 * s));
            arrivals.variations_down = Delays::gather(&self.variations, slots.map(|s| 2 * s + 1));
        }
        if let Some(timed) = direction.timed {
            let count = frames.saturating_sub(timed.from).div_ceil(timed.every.max(1)) as usize;
            let first = index * TAGGED_MAX;
            arrivals.timed = (0..count.min(TAGGED_MAX)).map(|i| self.timed.get(first + i).checked_sub(1)).collect();
        }
        arrivals
    }
}

/// All cores that send, each once.
fn cores_of(directions: &[Option<&Direction>; 2]) -> Vec<usize> {
    let mut cores: Vec<usize> = directions.iter().flatten().flat_map(|d| d.cores.iter().copied()).collect();
    cores.sort_unstable();
    cores.dedup();
    cores
}

/// How many of `frames` fall to `lane` when dealt out in turn.
fn share(frames: u32, lane: u32, lanes: u32) -> u32 {
    frames / lanes + u32::from(lane < frames % lanes)
}

/// Nanoseconds between two frames of one lane, 32.32 fixed point.
fn period_of(rate: u64, lanes: u32) -> u64 {
    match rate {
        0 => 0,
        rate => u64::try_from(((u128::from(lanes) * 1_000_000_000) << 32) / u128::from(rate)).unwrap_or(u64::MAX),
    }
}

fn order_of(direction: &Direction) -> (u32, PermutationRecord, u32) {
    let tuples = u32::try_from(direction.shape.tuples()).unwrap_or(u32::MAX);
    let low = |seed: u64| (mix64(seed) & 0xffff_ffff) as u32;
    match direction.order {
        Order::Enumerate { seed } => (ORDER_ENUMERATE, Permutation::new(tuples, seed).record(), low(seed)),
        Order::Random { seed } => (ORDER_RANDOM, Permutation::new(tuples, seed).record(), low(seed)),
        Order::RecordsOnce { count, seed } => (ORDER_RECORDS_ONCE, Permutation::new(count, seed).record(), low(seed)),
        Order::RecordsRandom { count, seed } => {
            (ORDER_RECORDS_RANDOM, Permutation::new(count, seed).record(), low(seed))
        }
    }
}

fn check_direction(direction: &Direction, capacity: Capacity) -> Result<(), String> {
    let template = &direction.template;
    let mut cores = direction.cores.clone();
    cores.sort_unstable();
    cores.dedup();
    if cores.is_empty() || cores.len() != direction.cores.len() {
        return Err(format!("sending cores {:?}: there must be at least one, each once", direction.cores));
    }
    if template.frame_bytes < template.kind.shortest() {
        let shortest = template.kind.shortest();
        return Err(format!(
            "frames of {} bytes have no room for the tester's tag; {shortest} is the least here",
            template.frame_bytes
        ));
    }
    if direction.frames > capacity.frames {
        return Err(format!("{} frames, but the rig was opened for {}", direction.frames, capacity.frames));
    }
    if direction.shape.tuples() > u64::from(u32::MAX) || direction.shape.tuples() == 0 {
        return Err(format!("{} four tuples; between 1 and {} are possible", direction.shape.tuples(), u32::MAX));
    }
    if direction.shape.a_hosts > capacity.a_hosts.max(1) || direction.shape.b_hosts > capacity.b_hosts.max(1) {
        return Err(format!(
            "{} x {} hosts are more than the rig was opened for",
            direction.shape.a_hosts, direction.shape.b_hosts
        ));
    }
    if direction.answer.record && direction.frames > capacity.records {
        return Err(format!("{} frames to record, but the rig was opened for {}", direction.frames, capacity.records));
    }
    if let Order::RecordsOnce { count, .. } | Order::RecordsRandom { count, .. } = direction.order
        && (count > capacity.records || count == 0)
    {
        return Err(format!("cannot answer {count} records"));
    }
    if let Some(background) = &direction.background {
        let odd = [template.length(), background.template.length()].iter().any(|l| *l > 80 && *l < 100);
        if odd || background.n < 2 || background.m > background.n || background.template.kind != FrameKind::Ipv6 {
            return Err("background traffic needs n >= 2, m <= n, and frames of 84 or at least 104 bytes".to_owned());
        }
    }
    Ok(())
}

fn load_error(source: impl std::error::Error + Send + Sync + 'static) -> RigError {
    RigError::Load { source: Box::new(source) }
}

fn xdp<'a>(programs: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, RigError> {
    let program = programs.program_mut(name).ok_or_else(|| RigError::Plan(format!("the BPF object has no {name}")))?;
    program.try_into().map_err(load_error)
}

/// The program, verified by the kernel.
fn loaded<'a>(programs: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, RigError> {
    let program = xdp(programs, name)?;
    if program.fd().is_err() {
        program.load().map_err(load_error)?;
    }
    Ok(program)
}

/// Attaches a receiver to the port and enters the port into the device map.
fn connect(programs: &mut Ebpf, port: &Port, index: u32, receiver: &str) -> Result<(), RigError> {
    let namespace = port.namespace.as_ref();
    let work = || connect_here(programs, port, index, receiver);
    in_namespace(namespace, work).map_err(|source| RigError::Namespace {
        path: namespace.map_or_else(String::new, |n| n.path().display().to_string()),
        source,
    })?
}

fn connect_here(programs: &mut Ebpf, port: &Port, index: u32, receiver: &str) -> Result<(), RigError> {
    let missing = |_| RigError::NoInterface { name: port.name.clone(), namespace: port.namespace.clone() };
    let interface = nix::net::if_::if_nametoindex(port.name.as_str()).map_err(missing)?;
    let program = xdp(programs, receiver)?;
    program.load().map_err(load_error)?;
    if program.attach_to_if_index(interface, XdpMode::Driver).is_err() {
        program
            .attach_to_if_index(interface, XdpMode::Skb)
            .map_err(|source| RigError::Attach { name: port.name.clone(), source: Box::new(source) })?;
    }
    let map = programs.map_mut("ports").ok_or_else(|| RigError::Plan("the BPF object has no ports".to_owned()))?;
    let mut ports: DevMap<&mut MapData> = map.try_into().map_err(load_error)?;
    ports.set(index, interface, None, 0).map_err(load_error)
}

fn map<T: Plain>(programs: &Ebpf, name: &'static str, len: usize) -> Result<Mapped<T>, RigError> {
    let Some(Map::Array(data)) = programs.map(name) else {
        return Err(RigError::Plan(format!("the BPF object has no array {name}")));
    };
    Mapped::new(data.fd().as_fd(), len).map_err(|source| RigError::Map {
        map: name,
        bytes: len * size_of::<T>(),
        source,
    })
}

fn possible_cpus() -> usize {
    aya::util::nr_cpus().unwrap_or(1)
}

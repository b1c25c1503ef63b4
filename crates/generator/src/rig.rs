//! The programs, the memory that they share with us, and one run.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use aya::{Ebpf, EbpfLoader};

use tombolo_records::Plain;

use crate::bitmap::{Bitmap, lane_words, words_of};
use crate::capacity::{Capacity, check_direction};
use crate::error::{RigError, load_error};
use crate::exchange::{Direction, Exchange, Timing};
use crate::exits::{Exits, PortXdp};
use crate::frame::Template;
use crate::layout::{
    Arrived, Control, Counters, Endpoint, Expectation, Histogram, LANES, LaneState, MADE_FRAMES, PAUSES_MAX, Pause,
    RECENT, Record, STREAMS, Stream, StreamState, TAGGED_MAX,
};
use crate::lead::Lead;
use crate::mapped::Mapped;
use crate::means::{Means, Sending};
use crate::outcome::{Arrivals, Delays, DirectionOutcome, Outcome, merge_states};
use crate::port::Port;
use crate::programs::{connect, count_refused, loaded, map, possible_cpus};
use crate::realtime::{Overseer, Unlimited};
use crate::sender::{Assignment, Exit, Sender, install_wake_signal, monotonic_ns};
use crate::streams::{StreamPlace, expectation, stream};
use crate::test_run::run_live;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/generator.bpf.o"));

const REVERSE: usize = 1;
const FCS: u16 = 4;
/// The program waits at least this long before it gives an idle call back, on any machine.
const IDLE_CALL_NS: u64 = 2_000;
/// How long duplicates may trail behind, where late frames are waited for as long.
const GRACE: Duration = Duration::from_millis(30);

/// Generator and receiver, loaded and attached to two ports. Dropping it detaches everything.
pub struct Rig {
    programs: Ebpf,
    capacity: Capacity,
    exits: Exits,
    cpus: usize,
    trial: u8,
    lead: Lead,
    control: Mapped<Control>,
    streams: Mapped<Stream>,
    states: Mapped<StreamState>,
    lanes: Mapped<LaneState>,
    pauses: Mapped<Pause>,
    expectations: Mapped<Expectation>,
    a: Mapped<Endpoint>,
    b: Mapped<Endpoint>,
    counters: Mapped<Counters>,
    delays: Mapped<Histogram>,
    variations: Mapped<Histogram>,
    arrived: Mapped<Arrived>,
    recent: Mapped<u64>,
    bitmap: Mapped<u64>,
    records: Mapped<Record>,
    timed: Mapped<u64>,
    /// What lets its threads work without being stopped.
    unlimited: Result<Arc<Unlimited>, String>,
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
            pauses: map(&programs, "pauses", STREAMS * PAUSES_MAX)?,
            expectations: map(&programs, "expectations", 2)?,
            a: map(&programs, "endpoints_a", capacity.a_hosts.max(1) as usize)?,
            b: map(&programs, "endpoints_b", capacity.b_hosts.max(1) as usize)?,
            counters: map(&programs, "counters", slots)?,
            delays: map(&programs, "delays", slots)?,
            variations: map(&programs, "variations", 2 * slots)?,
            arrived: map(&programs, "arrived", STREAMS)?,
            recent: map(&programs, "recent", 2 * RECENT)?,
            bitmap: map(&programs, "bitmap", 2 * words)?,
            records: map(&programs, "records", records)?,
            timed: map(&programs, "timed", 2 * TAGGED_MAX)?,
            exits: {
                let native = [
                    connect(&mut programs, left, 0, "receive_left")?,
                    connect(&mut programs, right, 1, "receive_right")?,
                ];
                let made = map(&programs, "made", LANES * MADE_FRAMES)?;
                Exits::new([left.clone(), right.clone()], native, made)?
            },
            programs,
            capacity,
            cpus,
            trial: 0,
            lead: Lead::SHORTEST,
            unlimited: Unlimited::begin(),
        };
        let (cpus, process) = (u32::try_from(cpus).unwrap_or(1), std::process::id());
        rig.control.set(0, Control { cpus, process, ..Control::default() });
        rig.set_endpoints(&[Endpoint::default()], &[Endpoint::default()])?;
        rig.exits.kernel_has_live_frames = rig.has_live_frames()?;
        if !rig.exits.port_xdp.iter().all(|port| port.interface.is_virtual_cable()) {
            count_refused(&mut rig.programs)?;
        }
        rig.prepare(64)?;
        Ok(rig)
    }

    /// What was done about the kernel's limit for real-time threads, or why it is in force.
    ///
    /// # Errors
    /// In words, where it could not be lifted.
    pub fn realtime_limit(&self) -> Result<&str, &str> {
        self.unlimited.as_ref().map(|unlimited| unlimited.in_words()).map_err(String::as_str)
    }

    /// How the frames of the last run left, or those of the next one will.
    pub fn sending(&self) -> Sending {
        self.exits.sending
    }

    /// Chooses how frames leave. Without it, those of a length that live frames can have leave so
    /// where the kernel and both ports take them, all others by AF_XDP, and where that does not work
    /// by packet sockets.
    pub fn set_means(&mut self, means: Means) {
        self.exits.asked = Some(means);
    }

    /// Gets ready for frames of up to so many bytes, with FCS, and says how they will leave.
    ///
    /// # Errors
    /// If they are too long for the ports, or for the means that were chosen.
    pub fn prepare(&mut self, frame_bytes: u16) -> Result<Sending, RigError> {
        self.exits.prepare(frame_bytes)
    }

    /// How the two ports, left and right, run XDP.
    pub fn port_xdp(&self) -> &[PortXdp; 2] {
        &self.exits.port_xdp
    }

    /// Frames of the last run that a port's driver did not take from the kernel. A veth does not take
    /// what its other end has no room for.
    pub fn refused(&self) -> u64 {
        self.control.get(0).refused + self.exits.refused()
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
                return Err(RigError::Unfit(format!(
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

    /// Plays the exchange. `watch` is called about 20 times a second with (sent, arrived) of both
    /// directions together and stops the run by returning false.
    ///
    /// # Errors
    /// If the exchange does not fit the capacity or the kernel refuses.
    pub fn run(&mut self, exchange: &Exchange, watch: &mut dyn FnMut(u64, u64) -> bool) -> Result<Outcome, RigError> {
        self.trial = self.trial.wrapping_add(1);
        // Another process may have put the limit back since.
        self.unlimited = Unlimited::begin();
        let directions = [exchange.forward.as_ref(), exchange.reverse.as_ref()];
        self.check(&directions)?;
        let longest = directions.iter().flatten().map(|direction| direction.longest_bytes()).max();
        self.prepare(longest.unwrap_or(0).max(64))?;
        self.reset(&directions);
        let start_ns = monotonic_ns() + self.lead.as_ns();
        for (index, direction) in directions.iter().enumerate() {
            if let Some(direction) = direction {
                let bitmap_first = (index * self.bitmap.len() / 2) as u64;
                self.expectations.set(index, expectation(self.trial, bitmap_first, direction));
            }
        }
        let cores = cores_of(&directions);
        let mut assignments = Vec::new();
        for (lane, core) in cores.iter().enumerate() {
            assignments.push(self.assignment(lane, *core, &directions, start_ns)?);
        }
        let stopped = self.send_all(exchange, assignments, watch)?;
        self.lead.note(self.began_late());
        let outcome = self.collect(&directions, start_ns, stopped);
        (0..2).for_each(|d| self.expectations.set(d, Expectation::default()));
        Ok(outcome)
    }

    fn check(&self, directions: &[Option<&Direction>; 2]) -> Result<(), RigError> {
        let lanes = cores_of(directions).len();
        if lanes > LANES {
            return Err(RigError::Unfit(format!("{lanes} sending cores, but there are {LANES} generator programs")));
        }
        if let [Some(forward), Some(reverse)] = directions
            && forward.cores.iter().any(|core| reverse.cores.contains(core))
        {
            let protocol = |direction: &Direction| direction.template.transport.protocol();
            let unlike = if forward.pace.burst() != reverse.pace.burst() {
                Some("burst size")
            } else {
                Some("transport").filter(|_| protocol(forward) != protocol(reverse))
            };
            if let Some(what) = unlike {
                return Err(RigError::Unfit(format!("two directions that share a core need the same {what}")));
            }
        }
        for direction in directions.iter().flatten() {
            check_direction(direction, self.capacity).map_err(RigError::Unfit)?;
        }
        Ok(())
    }

    fn reset(&mut self, directions: &[Option<&Direction>; 2]) {
        self.control.set(0, Control { stop: 0, refused: 0, ..self.control.get(0) });
        self.counters.clear(0, self.counters.len());
        self.delays.clear(0, self.delays.len());
        self.variations.clear(0, self.variations.len());
        self.arrived.clear(0, self.arrived.len());
        self.recent.clear(0, self.recent.len());
        self.timed.clear(0, self.timed.len());
        self.streams.clear(0, self.streams.len());
        self.states.clear(0, self.states.len());
        self.pauses.clear(0, self.pauses.len());
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

    /// Sets up the streams of one sending core and the thread that will run them.
    fn assignment(
        &mut self,
        lane: usize,
        core: usize,
        directions: &[Option<&Direction>; 2],
        start_ns: u64,
    ) -> Result<Assignment, RigError> {
        let exit = self.exits.open(lane, directions)?;
        let name = match exit {
            Exit::Kernel => format!("generate{lane}"),
            Exit::UserSpace(_) => "make_burst".to_owned(),
        };
        let program = loaded(&mut self.programs, &name)?;
        let program = program.fd().map_err(load_error)?.as_fd().try_clone_to_owned().map_err(load_error)?;
        let both = directions.iter().all(|d| d.is_some_and(|d| d.cores.contains(&core)));
        let (mut frames, mut waiting, mut length, mut burst) = (0u64, 0, 0, 1);
        for (index, direction) in directions.iter().enumerate() {
            let Some(direction) = direction else { continue };
            let Some(position) = direction.cores.iter().position(|c| *c == core) else {
                continue;
            };
            let stream = stream(
                direction,
                StreamPlace {
                    trial: self.trial,
                    reverse: index == REVERSE,
                    lane: position,
                    start_ns,
                    mixed: both || direction.background.is_some(),
                },
            );
            self.states.set(2 * lane + index, StreamState { due_ns: stream.start_ns, ..StreamState::zeroed() });
            self.streams.set(2 * lane + index, stream);
            frames += u64::from(stream.frames);
            burst = stream.burst;
            waiting = waiting.max(direction.pace.duration_ns(direction.frames));
            length = length.max(direction.longest_bytes() - FCS);
        }
        self.lanes.set(lane, LaneState { burst, ..LaneState::default() });
        waiting += self.lead.as_ns();
        // The last burst of each direction may be short, and its rest is called for nothing.
        let calls = frames + 2 * u64::from(burst) + waiting / IDLE_CALL_NS * u64::from(burst);
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        Ok(Assignment { program, core, page: Template::page(length), burst, calls, exit })
    }

    fn send_all(
        &self,
        exchange: &Exchange,
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
        self.drain(exchange, stopped);
        Ok(stopped)
    }

    fn is_finished(&self, lane: usize) -> bool {
        [2 * lane, 2 * lane + 1].into_iter().all(|stream| {
            let state = self.states.get(stream);
            state.stopped != 0 || state.sent >= self.streams.get(stream).frames
        }) || self.control.get(0).stop != 0
    }

    /// How much later than due the first frame of the latest sending core left.
    fn began_late(&self) -> Duration {
        let late = |stream: usize| self.states.get(stream).first_ns.saturating_sub(self.streams.get(stream).start_ns);
        Duration::from_nanos((0..STREAMS).map(late).max().unwrap_or(0))
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

    fn drain(&self, exchange: &Exchange, stopped: bool) {
        let since = Instant::now();
        let limit = if stopped { GRACE } else { exchange.drain };
        while since.elapsed() < limit {
            let (sent, arrived) = self.progress();
            if arrived >= sent && !exchange.always_drain {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        thread::sleep(GRACE.min(limit));
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
            Some(DirectionOutcome { departures, pauses: self.pauses_of(index), arrivals })
        });
        let forward = outcomes.next().flatten();
        let reverse = outcomes.next().flatten();
        Outcome { forward, reverse, stopped }
    }

    /// Pauses of all sending cores of a direction.
    fn pauses_of(&self, index: usize) -> Vec<Pause> {
        let streams = (0..LANES).map(|lane| 2 * lane + index);
        let mut pauses: Vec<Pause> = streams
            .flat_map(|stream| {
                let kept = (self.states.get(stream).pauses as usize).min(PAUSES_MAX);
                (0..kept).map(move |slot| self.pauses.get(stream * PAUSES_MAX + slot))
            })
            .collect();
        pauses.sort_by_key(|pause| pause.first);
        pauses
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

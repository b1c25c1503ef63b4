//! Random histories of a gateway, whose log is then asked who had which endpoint: what it names is
//! true, and what it says was nobody's was nobody's, whatever has happened to gateway, tables, disk and
//! clock.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use tombolo_config::LogDetail;
use tombolo_engine::{Now, Plan};
use tombolo_io::worker::StopSignal;
use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, BindingId, InsideKey};
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_tables::tables::Candidate;

use super::event::{BindingEvent, Event};
use super::file::LogFile;
use super::history::{Answer, History, Question};
use super::marks::{StateFound, StateLeft};
use super::removals::Removals;
use super::verify::Verifier;
use super::writer::{Change, Ground, LogSettings, Writer, lock};
use crate::table_clock::Clock;
use crate::threads::Guarded;
use crate::utc::{Moment, Utc};

const HISTORIES: u64 = 1000;
/// Of a port, before it is somebody else's.
const KEPT_BACK: u32 = 4;
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PORTS: [u16; 3] = [4000, 4001, 40001];
const STEP: u64 = 200_000_000;
const SECOND: u64 = 1_000_000_000;
/// What a clock shows when the monotonic one is 0.
const EPOCH: i64 = 1_800_000_000;
/// The log is exact to about a second: a tick, and what is cut off of both ends.
const EXACT: u64 = 2 * SECOND;

/// Numbers that look random (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A place among so many.
    fn place(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap_or_default()
    }
}

/// Who had which port, and when by the monotonic clock.
#[derive(Debug, Clone, Copy)]
struct Truth {
    port: u16,
    inside_port: u16,
    from: u64,
    to: Option<u64>,
}

/// The gateway's world.
struct World {
    random: Random,
    home: tempfile::TempDir,
    plan: Arc<ArcSwap<Plan>>,
    tables: Arc<Tables>,
    writer: Option<(Writer, Removals)>,
    /// The monotonic clock.
    now: u64,
    /// From when on the clock has shown that much more than the monotonic one, in seconds.
    clock: Vec<(u64, i64)>,
    truths: Vec<Truth>,
    live: Vec<(BindingId, Binding, usize)>,
    hosts: u16,
    /// The last step of a writer.
    last: Utc,
    files: u32,
    /// Names that the file has had.
    names: u32,
    boots: u32,
    guarded: Guarded,
}

fn tables() -> Arc<Tables> {
    Arc::new(Tables::new(&mut Heap, plan().capacity, HashKey::new([1, 2, 3, 4])).unwrap())
}

fn plan() -> Plan {
    let text = "[capacity]\nsubscribers = 10\nbindings = 100\nsessions = 100\n[[service]]\nkind = \"nat44\"\nname = \"cgn\"\n\
                inside = [\"10.0.0.0/24\"]\npool = [{ addresses = \"192.0.2.1\" }]\n";
    tombolo_config::parse("test.toml", text).unwrap().plan
}

fn settings() -> LogSettings {
    LogSettings { path: PathBuf::new(), rate: 10_000, detail: LogDetail::Bindings, collectors: Vec::new() }
}

impl World {
    fn new(seed: u64) -> Self {
        let guarded = Guarded { name: "test", stop: StopSignal::new().unwrap(), health: Arc::default() };
        let mut world = Self {
            random: Random(seed),
            // Where the file system syncs for nothing.
            home: tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" }).unwrap(),
            plan: Arc::new(ArcSwap::from_pointee(plan())),
            tables: tables(),
            writer: None,
            now: 100_000 * SECOND,
            clock: vec![(0, EPOCH)],
            truths: Vec::new(),
            live: Vec::new(),
            hosts: 0,
            last: Utc(0),
            files: 0,
            names: 0,
            boots: 0,
            guarded,
        };
        world.start(true);
        world
    }

    fn path(&self) -> PathBuf {
        self.home.path().join(format!("log-{:04}", self.names))
    }

    fn moment(&self) -> Moment {
        let offset = self.clock.last().unwrap().1;
        Moment { now: Now(self.now), utc: Utc((self.now / SECOND).checked_add_signed(offset).unwrap()) }
    }

    fn start(&mut self, is_fresh: bool) {
        let path = self.path();
        let settings = LogSettings { path: path.clone(), ..settings() };
        let ground = Ground {
            tables: Arc::clone(&self.tables),
            plan: Arc::clone(&self.plan),
            clock: Clock::take(&mut Heap).unwrap(),
            gateway: "tombolo".to_owned(),
            boot: self.boots.to_string(),
            host: String::new(),
            guarded: self.guarded.clone(),
        };
        let (file, found) = LogFile::find(&path).unwrap();
        let removals = Removals::default();
        let mut writer = Writer::new(&ground, &settings, file, &removals, self.moment()).unwrap();
        writer.begin(found, if is_fresh { StateFound::None } else { StateFound::Tables }, self.moment());
        self.writer = Some((writer, removals));
    }

    /// Everything ends at once.
    fn discard(&mut self) {
        for (.., truth) in std::mem::take(&mut self.live) {
            self.truths[truth].to = Some(self.now);
        }
        self.tables = tables();
    }

    fn bind(&mut self) {
        let port = PORTS[self.random.place(PORTS.len())];
        let slot = self.plan.load().services[0].kind.pool().unwrap().slot(
            ADDRESS,
            tombolo_engine::mapping::pool::PortSpace::Udp,
            port,
        );
        self.hosts = self.hosts % 60_000 + 1;
        let inside =
            InsideKey { ipv4: [10, 0, 0, 1], port: self.hosts.to_be_bytes(), protocol: 17, ..InsideKey::default() };
        let candidate = Candidate { ipv4: ADDRESS.octets(), port: port.to_be_bytes(), slot: slot.unwrap() };
        let template = Binding { inside, ..Binding::default() };
        if let Ok((id, binding)) = self.tables.bind(&template, [candidate], KEPT_BACK, Now(self.now).tick()) {
            self.live.push((id, binding, self.truths.len()));
            self.truths.push(Truth { port, inside_port: self.hosts, from: self.now, to: None });
        }
    }

    /// As the sweep does it, whose report is lost where too many come.
    fn unbind(&mut self, is_lost: bool) {
        let Some((_, removals)) = &self.writer else { return };
        if self.live.is_empty() {
            return;
        }
        let removals = removals.clone();
        let place = self.random.place(self.live.len());
        let binding = self.end(place);
        let utc = self.moment().utc;
        if is_lost {
            removals.losses().add(1, utc);
        } else {
            removals.report_at(&binding, utc);
        }
    }

    fn end(&mut self, place: usize) -> Binding {
        let (id, binding, truth) = self.live.swap_remove(place);
        let (_, seen) = self.tables.bindings.read(id).unwrap();
        assert!(self.tables.unbind(id, &binding, seen, Now(self.now).tick()));
        self.truths[truth].to = Some(self.now);
        binding
    }

    fn pass(&mut self, steps: u64) {
        for _ in 0..steps {
            self.now += STEP;
            let moment = self.moment();
            if let Some((writer, _)) = &mut self.writer {
                writer.step(2000, moment);
                self.last = moment.utc;
            }
        }
    }

    fn set_disk(&mut self, is_refusing: bool) {
        if let Some((writer, _)) = &self.writer {
            lock(&writer.output).file.is_refusing = is_refusing;
        }
    }

    /// The gateway is killed; of its file nothing is lost.
    fn kill(&mut self) {
        self.writer = None;
    }

    /// The system goes down, and with it whatever was not on the disk.
    fn reboot(&mut self) {
        self.kill();
        let text = std::fs::read_to_string(self.path()).unwrap_or_default();
        // What was written before a line that says how far it is complete was on the disk before that, and
        // so are the lines with which a file, a gateway or another time begins.
        let before = text.rfind("\"event\":\"complete\"").and_then(|place| text[..place].rfind('\n'));
        let begin = ["begin", "start", "all-removed", "clock-set"].map(|event| format!("\"event\":\"{event}\""));
        let begin = begin.iter().filter_map(|mark| text.rfind(mark.as_str())).max();
        let behind = begin.and_then(|place| Some(place + text[place..].find('\n')?));
        let safe = before.max(behind).map_or(0, |end| end + 1);
        let keep = safe + self.random.place(text.len() - safe + 1);
        std::fs::write(self.path(), &text[..keep]).unwrap();
        let ended: Vec<Binding> = self.live.iter().map(|(_, binding, _)| *binding).collect();
        self.discard();
        let was = self.moment();
        self.boots += 1;
        self.now += self.random.below(100) * SECOND;
        if self.random.below(2) == 0 {
            // The tables had nothing beside them.
            return self.start(true);
        }
        // Whoever reads the old tables knows when they were last in use.
        self.start(false);
        let Some((writer, _)) = &self.writer else { return };
        let mut output = lock(&writer.output);
        for binding in ended {
            let made = Utc::of_tick(binding.created, was);
            output.event(&Event::Binding(BindingEvent::ended("cgn", &binding, self.last.max(made), made)));
        }
        output.flush();
    }

    fn stop(&mut self, is_kept: bool) {
        let moment = self.moment();
        if let Some((mut writer, _)) = self.writer.take() {
            writer.stop(if is_kept { StateLeft::Tables } else { StateLeft::None }, moment);
        }
        if !is_kept {
            self.discard();
        }
    }

    fn rotate(&mut self) {
        self.files += 1;
        let old = self.home.path().join(format!("log-{:04}.{:04}", self.names, self.files));
        let _ = std::fs::rename(self.path(), old);
    }

    /// As a reload does it that names another file.
    fn change_name(&mut self) {
        let moment = self.moment();
        self.names += 1;
        let path = self.path();
        let Some((writer, _)) = &mut self.writer else { return };
        let settings = LogSettings { path: path.clone(), ..settings() };
        let file = Some(LogFile::find(&path).unwrap());
        writer.change(Change { settings, file, feeds: Vec::new() }, moment);
    }

    /// As a reload does it that wants no log, and one that wants it again.
    fn switch_off(&mut self) {
        let moment = self.moment();
        if let Some((mut writer, _)) = self.writer.take() {
            writer.stop(StateLeft::InUse, moment);
        }
        let wait = self.random.below(60);
        self.pass(wait);
        self.bind();
        if !self.live.is_empty() {
            let place = self.random.place(self.live.len());
            self.end(place);
        }
        self.pass(wait);
        self.start(false);
    }

    fn set_clock(&mut self) {
        let by = i64::try_from(self.random.below(400)).unwrap() - 200;
        let offset = self.clock.last().unwrap().1;
        self.clock.push((self.now, offset + by));
    }

    fn happen(&mut self) {
        match self.random.below(100) {
            0..30 => self.bind(),
            30..50 => self.unbind(false),
            50..53 => self.unbind(true),
            53..56 => {
                self.set_disk(true);
                let steps = self.random.below(30);
                self.pass(steps);
                (0..3).for_each(|_| self.bind());
                self.unbind(false);
                self.pass(steps);
                self.set_disk(false);
            }
            56..58 => self.reboot(),
            58..61 => {
                self.kill();
                let wait = self.random.below(60);
                self.pass(wait);
                // The programs in the kernel go on.
                self.bind();
                self.pass(wait);
                self.start(false);
            }
            61..63 => {
                self.kill();
                self.pass(20);
                self.discard();
                self.pass(20);
                self.start(true);
            }
            63..66 => {
                let is_kept = self.random.below(2) == 0;
                self.stop(is_kept);
                self.pass(30);
                self.start(!is_kept);
            }
            66..68 => self.rotate(),
            68 => self.set_clock(),
            69 => self.change_name(),
            70 => self.switch_off(),
            _ => {
                let steps = self.random.below(100);
                self.pass(steps);
            }
        }
        self.pass(1);
    }

    fn logs(&self) -> Vec<String> {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(self.home.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        // Of a name the one without a number is the last.
        files.sort_by_key(|path| (path.file_stem().map(OsStr::to_owned), path.extension().is_none(), path.clone()));
        files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }

    /// The moments at which the clock showed `time`: from then on for a second.
    fn moments(&self, time: Utc) -> Vec<u64> {
        let ends = self.clock.iter().skip(1).map(|(begin, _)| *begin).chain([u64::MAX]);
        let found = self.clock.iter().zip(ends).filter_map(|((begin, offset), end)| {
            let moment = time.0.checked_add_signed(-offset)? * SECOND;
            (*begin < moment + SECOND && moment < end).then_some(moment)
        });
        found.collect()
    }
}

/// What came of the questions.
#[derive(Debug, Default)]
struct Score {
    held: u64,
    nobody: u64,
    uncertain: u64,
}

fn ask(world: &World, logs: &[String], port: u16, time: Utc, score: &mut Score, seed: u64) {
    let mut history = History::new(Question { address: ADDRESS, port, time });
    logs.iter().for_each(|log| history.read(log.as_bytes()).unwrap());
    let moments = world.moments(time);
    let of_port = || world.truths.iter().filter(|truth| truth.port == port);
    let context = || format!("history {seed}, port {port} at {time}, moments {moments:?}\n{}", logs.concat());
    match history.binding_of("udp") {
        Answer::Held(held) => {
            let mut his = of_port().filter(|truth| Some(truth.inside_port) == held.holder.inside_port);
            let is_true = his.any(|truth| {
                let around = |moment: &u64| {
                    truth.from < moment + SECOND + EXACT && truth.to.is_none_or(|to| *moment < to + EXACT)
                };
                !moments.is_empty() && moments.iter().all(around) || moments.is_empty()
            });
            assert!(is_true, "{held:?} had it: {:?}\n{}", of_port().collect::<Vec<_>>(), context());
            score.held += 1;
        }
        Answer::Nobody => {
            let had = of_port().find(|truth| {
                moments.iter().any(|moment| {
                    truth.from + EXACT < *moment && truth.to.is_none_or(|to| moment + SECOND + EXACT < to)
                })
            });
            assert!(had.is_none(), "{had:?} had it\n{}", context());
            score.nobody += 1;
        }
        Answer::Uncertain { .. } => score.uncertain += 1,
    }
}

#[test]
fn the_log_names_nobody_who_did_not_have_it_in_a_thousand_histories() {
    let mut score = Score::default();
    for seed in 0..HISTORIES {
        let mut world = World::new(seed);
        let events = 20 + world.random.below(100);
        (0..events).for_each(|_| world.happen());
        let logs = world.logs();
        let (first, last) = (world.clock[0], world.moment().utc);
        let begin = Utc(100_000_u64.checked_add_signed(first.1).unwrap());
        for _ in 0..100 {
            let time = Utc(begin.0 + world.random.below(last.0.saturating_sub(begin.0) + 20));
            let port = PORTS[world.random.place(PORTS.len())];
            ask(&world, &logs, port, time, &mut score, seed);
        }
        // And at the edges, where mistakes are made.
        let edges: Vec<(u16, u64)> = world
            .truths
            .iter()
            .flat_map(|truth| [Some(truth.from), truth.to].map(|moment| moment.map(|moment| (truth.port, moment))))
            .flatten()
            .collect();
        for (port, moment) in edges.into_iter().take(40) {
            let offset = world.clock.iter().rev().find(|(begin, _)| *begin <= moment).unwrap().1;
            let time = (moment / SECOND).checked_add_signed(offset).unwrap();
            for time in [time - 3, time, time + 3] {
                ask(&world, &logs, port, Utc(time), &mut score, seed);
            }
        }
        let mut verifier = Verifier::default();
        logs.iter().for_each(|log| verifier.file("log", log.as_bytes()).unwrap());
        let verdict = verifier.verdict();
        // After a reboot the file may lack lines at its end, never in its middle.
        assert_eq!(verdict.wrong, 0, "history {seed}: {:?}\n{}", verdict.faults, logs.concat());
    }
    println!("{score:?}");
    // It does not say so by saying nothing.
    let all = score.held + score.nobody + score.uncertain;
    assert!(score.held * 5 > all && score.nobody * 10 > all, "{score:?}");
}

//! Nodes, etcd, the networks between them and who uses them, in one thread: what happens, and in which order, is drawn from a seed.
//!
//! The agents are the real ones. What stands beside them in a gateway (adapters, tables, engine, routers) is small here, and does what it
//! does there.

use std::collections::BTreeMap;

use tombolo_cluster::ownership::{
    Action, Beginning, Cause, Epoch, Event, Lease, Moment, Node, Number, Reading, Revision, Role, TICK, Transaction,
};

use crate::clock::Clock;
use crate::etcd::Etcd;
use crate::faults::Fault;
use crate::host::{Asked, Host, Process};
use crate::judge::{Invariant, Judge};
use crate::packets::Packet;
use crate::random::Random;
use crate::replication::{Acknowledged, Batch};
use crate::tables::State;
use crate::trace::Trace;

/// An answer of etcd that has not come after so long is not waited for, in microseconds.
const GIVE_UP: u64 = 1_000_000;
/// A watch that was silent for so long is confirmed by a read, in milliseconds.
const SILENCE: u64 = 300;
/// How often an owner looks through its tables.
const SWEEP: u64 = 250_000;

/// An error that is planted where agents are obeyed, to see whether it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Whoever takes itself for the owner grants, whatever the time is.
    DeadlineIgnored,
    /// Copies of a former owner are taken.
    EpochIgnored,
    /// Any free block is granted.
    NoOffers,
}

/// What happens at a moment.
#[derive(Debug)]
pub(crate) enum What {
    Tick(usize, u64),
    Sweep(usize, u64),
    Begin(Fault),
    End(Fault),
    Request(Letter, Request),
    Answer(Letter, Answer),
    GiveUp(Letter),
    /// A host's watch has come so far.
    Watch(usize, u64, usize),
    Tell(usize, u64, Event),
    Batch(Batch),
    Acknowledged(Acknowledged),
    /// A subscriber sends something.
    Demand,
    Packet(usize, Packet),
    Reply(Packet),
}

/// A request to etcd, and whose it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Letter {
    host: usize,
    generation: u64,
    number: u64,
    sent: Moment,
}

#[derive(Debug, Clone)]
pub(crate) enum Request {
    Register { incarnation: u64, resumed: Option<Lease> },
    Renew(Lease),
    Read,
    Transact(Transaction),
}

#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Registered(Option<(Lease, Revision)>),
    Renewed(Lease, bool),
    Read(Reading, usize),
    Transacted(Number, Option<Revision>),
}

/// How networks are at this moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// Of a thousand requests to etcd, and of a thousand answers, so many are lost.
    pub(crate) lost: u64,
    /// Of a thousand batches and acknowledgements.
    pub(crate) broken: u64,
    /// Of a thousand watches so many end with each word of them: what they would have said is compacted.
    pub(crate) compacted: u64,
    /// The longest that anything takes, in microseconds.
    pub(crate) slowest: u64,
}

#[derive(Debug)]
pub(crate) struct World {
    /// True time, in microseconds.
    pub(crate) now: u64,
    pub(crate) slices: u16,
    pub(crate) random: Random,
    pub(crate) hosts: Vec<Host>,
    pub(crate) etcd: Etcd,
    pub(crate) judge: Judge,
    pub(crate) flaw: Option<Flaw>,
    pub(crate) weather: Weather,
    /// Between each two hosts: faults at this moment.
    pub(crate) cuts: Vec<Vec<u8>>,
    queue: BTreeMap<(u64, u64), What>,
    numbers: u64,
    /// So much of etcd's history was sent to watches.
    watched: usize,
    pub(crate) trace: Trace,
}

impl World {
    pub(crate) fn new(seed: u64, flaw: Option<Flaw>, is_traced: bool) -> Self {
        let mut random = Random::new(seed);
        let count = [3, 3, 3, 2, 4][random.below(5)];
        let slices = random.between(1, 4) as u16;
        // Any two clocks are within 2 % of each other.
        let mut clock = || Clock::new(random.between(990_000, 1_009_000), random.between(1_000_000, 1_000_000_000_000));
        let hosts = (0..count).map(|node| Host::new(Node(node as u8), clock(), slices)).collect();
        let etcd = Etcd::new(clock(), count, slices);
        let slowest = random.between(500, 5000);
        let mut world = Self {
            now: 0,
            slices,
            random,
            hosts,
            etcd,
            judge: Judge::new(slices),
            flaw,
            weather: Weather { lost: 0, broken: 0, compacted: 0, slowest },
            cuts: vec![vec![0; count]; count],
            queue: BTreeMap::new(),
            numbers: 0,
            watched: 0,
            trace: Trace::new(is_traced),
        };
        for host in 0..count {
            let at = world.random.between(0, 2_000_000);
            world.later(at, What::End(Fault::first_start(host)));
            world.hosts[host].down = 1;
        }
        world.later(0, What::Demand);
        world
    }

    /// Goes on until a true time, or a violation.
    pub(crate) fn run(&mut self, until: u64) {
        while self.judge.violation.is_none()
            && let Some(entry) = self.queue.first_entry()
            && entry.key().0 <= until
        {
            let ((at, _), what) = entry.remove_entry();
            self.now = at;
            self.etcd.expire(at);
            self.happen(what);
            self.feed_watches();
        }
        self.now = self.now.max(until);
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Tick(host, generation) => self.tick(host, generation),
            What::Sweep(host, generation) => self.sweep(host, generation),
            What::Begin(fault) => self.begin_fault(fault),
            What::End(fault) => self.end_fault(fault),
            What::Request(letter, request) => self.request(letter, request),
            What::Answer(letter, answer) => self.answer(letter, answer),
            What::GiveUp(letter) => self.give_up(letter),
            What::Watch(host, generation, upto) => self.watch(host, generation, upto),
            What::Tell(host, generation, event) => {
                if self.hosts[host].generation == generation {
                    self.tell(host, event);
                }
            }
            What::Batch(batch) => self.apply(batch),
            What::Acknowledged(acknowledged) => self.acknowledge(&acknowledged),
            What::Demand => self.demand(),
            What::Packet(host, packet) => self.receive(host, packet),
            What::Reply(packet) => self.reply(packet),
        }
    }

    pub(crate) fn later(&mut self, micros: u64, what: What) {
        let number = self.number();
        self.queue.insert((self.now + micros, number), what);
    }

    /// A number that nothing else has.
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// How long something takes on its way.
    pub(crate) fn latency(&mut self) -> u64 {
        self.random.between(100, self.weather.slowest)
    }

    pub(crate) fn are_linked(&self, one: usize, other: usize) -> bool {
        self.cuts[one][other] == 0
    }

    /// A line of the trace, if one is kept.
    pub(crate) fn note(&mut self, slice: Option<u16>, line: impl FnOnce() -> String) {
        self.trace.note(self.now, slice, line);
    }
}

/// The process of a node.
impl World {
    /// A process begins, with the tables that there are.
    pub(crate) fn start(&mut self, host: usize) {
        let incarnation = self.number();
        let slices = self.slices;
        let now = self.now;
        let own = &mut self.hosts[host];
        own.generation += 1;
        own.process = Some(Process::new(own.node, slices, incarnation));
        own.note(now);
        let generation = own.generation;
        for slice in 0..slices {
            let whole = self.hosts[host].table(slice).whole;
            if whole.is_some() {
                self.tell(host, Event::Holds(slice, whole));
            }
        }
        let first = self.random.between(0, 100_000);
        self.later(first, What::Tick(host, generation));
        self.later(first, What::Sweep(host, generation));
    }

    pub(crate) fn stop(&mut self, host: usize) {
        let own = &mut self.hosts[host];
        own.generation += 1;
        own.process = None;
        own.note(self.now);
    }

    fn tick(&mut self, host: usize, generation: u64) {
        if self.hosts[host].generation != generation {
            return;
        }
        let late = if self.random.chance(20) { 150_000 } else { 0 };
        let next = TICK * 1000 + self.random.between(0, 2000) + late;
        self.later(next, What::Tick(host, generation));
        if self.hosts[host].is_awake() {
            for slice in 0..self.slices {
                self.copy(host, slice);
            }
            self.greet(host);
            self.hear_routes(host);
            self.keep_watch(host);
            self.tell(host, Event::Tick);
        }
    }

    /// What was asleep goes on with what has come meanwhile.
    pub(crate) fn wake(&mut self, host: usize) {
        if !self.hosts[host].is_awake() {
            return;
        }
        if self.random.chance(500) {
            self.tell(host, Event::Tick);
        }
        let Some(process) = &mut self.hosts[host].process else { return };
        for event in std::mem::take(&mut process.backlog) {
            self.tell(host, event);
        }
    }

    /// The agent is told, and obeyed.
    pub(crate) fn tell(&mut self, host: usize, event: Event) {
        let own = &mut self.hosts[host];
        let (moment, is_awake) = (own.moment(self.now), own.is_awake());
        let Some(process) = &mut own.process else { return };
        if !is_awake {
            process.backlog.push(event);
            return;
        }
        match &event {
            Event::Registered { lease, sent, .. } => {
                own.saved = Some(*lease);
                own.late = own.late.filter(|late| sent <= late);
            }
            Event::Renewed { sent, .. } => own.late = own.late.filter(|late| sent <= late),
            _ => {}
        }
        let mut actions = Vec::new();
        let line = (self.trace.is_kept() && event != Event::Tick)
            .then(|| (slice_of(&event), format!("n{host} hears {event:?}")));
        process.agent.handle(moment, event, &mut |action| actions.push(action));
        if let Some((slice, line)) = line {
            self.note(slice, || line);
        }
        for action in actions {
            self.perform(host, moment, action);
        }
    }

    fn perform(&mut self, host: usize, moment: Moment, action: Action) {
        if !matches!(action, Action::GrantUntil(_) | Action::ServeUntil(_)) {
            let slice = match &action {
                Action::Begin(slice, ..) | Action::Play(slice, _) | Action::Announce(slice, _) => Some(*slice),
                _ => None,
            };
            self.note(slice, || format!("n{host} does {action:?}"));
        }
        let own = &mut self.hosts[host];
        let resumed = own.saved;
        let Some(process) = &mut own.process else { return };
        match action {
            Action::Register => {
                let incarnation = process.incarnation;
                self.ask(host, moment, Asked::Registration, Request::Register { incarnation, resumed });
            }
            Action::Renew(lease) => self.ask(host, moment, Asked::Renewal, Request::Renew(lease)),
            Action::Transact(transaction) => {
                self.ask(host, moment, Asked::Transaction(transaction.number), Request::Transact(transaction));
            }
            Action::GrantUntil(until) => process.grant_until = until,
            Action::ServeUntil(until) => process.serve_until = until,
            Action::Begin(slice, epoch, beginning) => self.begin(host, moment, slice, epoch, beginning),
            Action::Play(slice, role) => process.roles[usize::from(slice)] = role,
            Action::Announce(slice, metric) => process.metrics[usize::from(slice)] = metric,
            Action::Enter(is_entrance) => process.is_entrance = is_entrance,
        }
    }

    fn begin(&mut self, host: usize, moment: Moment, slice: u16, epoch: Epoch, beginning: Beginning) {
        let assigned = self.etcd.assignment(slice).filter(|assigned| assigned.epoch == epoch);
        if beginning == Beginning::Nothing {
            if let Some(cause @ (Cause::Takeover | Cause::Return)) = assigned.map(|assigned| assigned.cause) {
                self.judge
                    .accuse(Invariant::Succession, slice, || format!("n{host} begins with nothing after a {cause:?}"));
            }
            self.judge.begin_anew(slice, epoch);
        }
        let table = self.hosts[host].table(slice);
        let was_whole = table.whole;
        table.begin(epoch, beginning, moment);
        if beginning == Beginning::Own && was_whole == Some(epoch) {
            return;
        }
        for (block, kept) in self.hosts[host].tables[usize::from(slice)].blocks.iter().enumerate() {
            if let State::Granted { subscriber, since, .. } = kept.state {
                self.judge.log(slice, epoch, block, subscriber, since);
            }
        }
    }

    fn sweep(&mut self, host: usize, generation: u64) {
        if self.hosts[host].generation != generation {
            return;
        }
        let next = SWEEP + self.random.between(0, 10_000);
        self.later(next, What::Sweep(host, generation));
        if !self.hosts[host].runs() {
            return;
        }
        let moment = self.hosts[host].moment(self.now);
        for slice in 0..self.slices {
            let Role::Owner { epoch, .. } = self.hosts[host].role(slice) else { continue };
            let released = self.hosts[host].tables[usize::from(slice)].sweep(moment, &mut self.random);
            for block in released {
                self.judge.log_end(slice, epoch, block, self.now);
            }
            self.copy(host, slice);
        }
    }
}

/// Between the process of a node and etcd.
impl World {
    /// A node that has no watch reads everything, and watches from there. One whose watch is silent does as well, since silence proves nothing.
    fn keep_watch(&mut self, host: usize) {
        let moment = self.hosts[host].moment(self.now);
        let Some(process) = &self.hosts[host].process else { return };
        let is_silent = process.cursor.is_none() || moment.since(process.watched) >= SILENCE;
        if is_silent && !process.asked.values().any(|asked| *asked == Asked::Reading) {
            self.ask(host, moment, Asked::Reading, Request::Read);
        }
    }

    fn ask(&mut self, host: usize, sent: Moment, asked: Asked, request: Request) {
        let number = self.number();
        let own = &mut self.hosts[host];
        let letter = Letter { host, generation: own.generation, number, sent };
        let Some(process) = &mut own.process else { return };
        process.asked.insert(number, asked);
        self.later(GIVE_UP, What::GiveUp(letter));
        if !self.random.chance(self.weather.lost) {
            let delay = self.latency();
            self.later(delay, What::Request(letter, request));
        }
    }

    /// A request has come to etcd.
    fn request(&mut self, letter: Letter, request: Request) {
        if self.hosts[letter.host].no_etcd > 0 {
            return;
        }
        if !self.etcd.is_up() {
            // What a leader has taken before it died may be carried out by the next one.
            if self.random.chance(300) {
                let wait = self.etcd.back_at.saturating_sub(self.now) + self.latency();
                self.later(wait, What::Request(letter, request));
            }
            return;
        }
        let node = self.hosts[letter.host].node;
        let answer = match request {
            Request::Register { incarnation, resumed } => {
                Answer::Registered(self.etcd.register(self.now, node, incarnation, resumed))
            }
            Request::Renew(lease) => Answer::Renewed(lease, self.etcd.renew(self.now, lease)),
            Request::Read => {
                let (reading, cursor) = self.etcd.read();
                Answer::Read(reading, cursor)
            }
            Request::Transact(transaction) => Answer::Transacted(transaction.number, self.transact(&transaction)),
        };
        if self.random.chance(50 * u64::from(self.weather.lost > 0)) {
            let delay = self.latency() * 20;
            self.later(delay, What::Answer(letter, answer.clone()));
        }
        if !self.random.chance(self.weather.lost) {
            let delay = self.latency();
            self.later(delay, What::Answer(letter, answer));
        }
    }

    fn transact(&mut self, transaction: &Transaction) -> Option<Revision> {
        let former: Vec<_> = transaction.puts.iter().map(|(slice, _)| self.etcd.assignment(*slice)).collect();
        let revision = self.etcd.transact(transaction)?;
        self.note(None, || format!("etcd carries out {:?} at {revision:?}", transaction.number));
        for ((slice, put), former) in transaction.puts.iter().zip(former) {
            let seen = &mut self.judge.seen;
            match put.cause {
                Cause::Takeover => seen.takeovers += 1,
                Cause::Return => seen.returns += 1,
                Cause::Vacant => seen.vacancies += 1,
                Cause::First | Cause::Backup => {}
            }
            if former.map(|former| former.epoch) == Some(put.epoch) {
                continue;
            }
            if let Some(former) = former
                && former.epoch.next() != put.epoch
            {
                let what = || format!("{:?} follows {:?}", put.epoch, former.epoch);
                self.judge.accuse(Invariant::Succession, *slice, what);
            }
            for host in 0..self.hosts.len() {
                if Node(host as u8) != put.owner && self.counts_on_lease(host, *slice) {
                    let what = || format!("n{} becomes its owner, and n{host} may grant", put.owner.0);
                    self.judge.accuse(Invariant::Deadline, *slice, what);
                }
            }
        }
        Some(revision)
    }

    /// Whether a node takes itself for the owner, and its deadline has not passed. One that has missed time does not know better.
    fn counts_on_lease(&self, host: usize, slice: u16) -> bool {
        let own = &self.hosts[host];
        let until = own.process.as_ref().map_or(Moment(0), |process| process.grant_until);
        let is_excused = own.late.is_some() || own.clock.is_stopped();
        matches!(own.role(slice), Role::Owner { .. }) && own.moment(self.now) < until && !is_excused
    }

    fn answer(&mut self, letter: Letter, answer: Answer) {
        let Letter { host, generation, number, sent } = letter;
        let own = &mut self.hosts[host];
        if own.no_etcd > 0 || own.generation != generation {
            return;
        }
        let Some(process) = &mut own.process else { return };
        let is_awaited = process.asked.remove(&number).is_some();
        match answer {
            // A renewal is of use even if it was not waited for.
            Answer::Renewed(lease, true) => self.tell(host, Event::Renewed { lease, sent }),
            Answer::Renewed(lease, false) => self.tell(host, Event::LeaseLost(lease)),
            _ if !is_awaited => {}
            Answer::Registered(Some((lease, created))) => self.tell(host, Event::Registered { lease, created, sent }),
            Answer::Registered(None) => self.tell(host, Event::NotRegistered),
            // The watch has said more since this was asked for, or has said all of it.
            Answer::Read(_, cursor) if process.cursor >= Some(cursor) => process.watched = sent,
            Answer::Read(reading, cursor) => {
                (process.cursor, process.watched) = (Some(cursor), sent);
                self.tell(host, Event::Read(reading));
                let generation = self.hosts[host].generation;
                self.send_watch(host, generation);
            }
            Answer::Transacted(number, Some(revision)) => self.tell(host, Event::Done(number, revision)),
            Answer::Transacted(number, None) => self.tell(host, Event::Refused(number)),
        }
    }

    fn give_up(&mut self, letter: Letter) {
        let own = &mut self.hosts[letter.host];
        if own.generation != letter.generation {
            return;
        }
        let Some(process) = &mut own.process else { return };
        match process.asked.remove(&letter.number) {
            Some(Asked::Registration) => self.tell(letter.host, Event::NotRegistered),
            Some(Asked::Transaction(number)) => {
                self.judge.seen.unknown += 1;
                self.tell(letter.host, Event::Unknown(number));
            }
            Some(Asked::Renewal | Asked::Reading) | None => {}
        }
    }

    /// What etcd has done goes to all who watch.
    fn feed_watches(&mut self) {
        if self.etcd.history() == self.watched {
            return;
        }
        self.watched = self.etcd.history();
        for host in 0..self.hosts.len() {
            let generation = self.hosts[host].generation;
            self.send_watch(host, generation);
        }
    }

    fn send_watch(&mut self, host: usize, generation: u64) {
        let slow = self.hosts[host].slow_until.saturating_sub(self.now);
        let delay = self.latency() + slow;
        self.later(delay, What::Watch(host, generation, self.etcd.history()));
    }

    fn watch(&mut self, host: usize, generation: u64, upto: usize) {
        let own = &mut self.hosts[host];
        if own.generation != generation {
            return;
        }
        let Some(process) = &mut own.process else { return };
        let Some(cursor) = process.cursor else { return };
        if own.no_etcd > 0 || self.random.chance(self.weather.compacted) {
            process.cursor = None;
            return;
        }
        if cursor >= upto {
            return;
        }
        (process.cursor, process.watched) = (Some(upto), own.clock.moment(self.now));
        for event in self.etcd.since(cursor)[..upto - cursor].to_vec() {
            self.tell(host, event);
        }
    }
}

/// The slice that an event is about, if it is about one.
const fn slice_of(event: &Event) -> Option<u16> {
    match event {
        Event::SliceSeen(slice, ..)
        | Event::Copying { slice, .. }
        | Event::Holds(slice, _)
        | Event::Deposed(slice, ..) => Some(*slice),
        _ => None,
    }
}

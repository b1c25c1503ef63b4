//! Nodes, etcd, the networks between them and who uses them, in one thread: what happens, and in which order, is drawn from a seed.
//!
//! The agents are the real ones. What stands beside them in a gateway (adapters, tables, engine, routers) is small here, and does what it
//! does there.

use std::collections::BTreeMap;

use tombolo_cluster::ownership::{Event, Node};

use crate::clock::Clock;
use crate::etcd::Etcd;
use crate::faults::{Fault, Script};
use crate::flaw::Flaw;
use crate::host::Host;
use crate::judge::{Invariant, Judge};
use crate::packets::Packet;
use crate::random::Random;
use crate::replication::{Acknowledged, Batch};
use crate::requests::{Answer, Letter, Request};
use crate::trace::Trace;

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

/// What is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    pub(crate) seed: u64,
    /// The faults, where they are not drawn.
    pub(crate) script: Option<&'static Script>,
    pub(crate) flaw: Option<Flaw>,
    /// The one invariant that counts, if not all do.
    pub(crate) only: Option<Invariant>,
    pub(crate) is_traced: bool,
}

impl Schedule {
    /// What is drawn from a seed.
    pub(crate) const fn of(seed: u64) -> Self {
        Self { seed, script: None, flaw: None, only: None, is_traced: false }
    }
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
    /// How often it is wanted at this moment that nothing moves for the sake of balance.
    pub(crate) holds: u8,
    queue: BTreeMap<(u64, u64), What>,
    numbers: u64,
    /// So much of etcd's history was sent to watches.
    pub(crate) watched: usize,
    /// When the last fault ends.
    pub(crate) last: u64,
    /// So many faults may still begin while a slice is handed over.
    pub(crate) ambushes: u8,
    /// When a planned change of each slice was carried out last.
    pub(crate) stirred: Vec<u64>,
    pub(crate) trace: Trace,
}

impl World {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let Schedule { seed, script, flaw, only, is_traced } = *schedule;
        let mut random = Random::new(seed);
        let (count, slices) = ([3, 3, 3, 2, 4][random.below(5)], random.between(1, 4) as u16);
        let count = script.map_or(count, |script| script.nodes);
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
            judge: Judge::new(slices, only),
            flaw,
            weather: Weather { lost: 0, broken: 0, compacted: 0, slowest },
            cuts: vec![vec![0; count]; count],
            holds: 0,
            queue: BTreeMap::new(),
            numbers: 0,
            watched: 0,
            last: 0,
            ambushes: 0,
            stirred: vec![0; slices.into()],
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

//! What must hold, whatever happens.
//!
//! | invariant | looked at |
//! |---|---|
//! | no outside endpoint is two subscribers' within `port_reuse` | with each packet that leaves |
//! | no packet reaches another subscriber | with each packet that comes back |
//! | each block has exactly one accountable subscriber at any time, by epoch | with each packet that leaves, by the joined logs |
//! | the deadline precedes any successor, and so does the end of grace | with each transaction |
//! | nobody grants but who owns the slice in etcd at this moment | with each grant |
//! | whoever is handed a slice has all that its former owner has | with each transaction |
//! | a slice is PROTECTED again 10 s after the last fault, unless it moves | then |
//! | 30 s after it each slice is where it should be, by plan | at the end |
//!
//! Two things are left out. What has neither owner nor whole copy any more begins anew, and `port_reuse` does not hold across that: what
//! tables of an earlier epoch do is void, at either end of a packet. And a machine that was paused together with its clock is excused
//! until it hears of its lease, for 6 s of its own clock at most.

use std::collections::BTreeSet;
use std::fmt;

use tombolo_cluster::ownership::{Assignment, Epoch, Node, Phase, Role};

use crate::faults::Kind;
use crate::host::Host;
use crate::tables::{BLOCKS, COPY_LASTS, PORT_REUSE};
use crate::world::World;

/// So long after its end a line in the logs still says who used the block, in microseconds: a backup that acts has not heard of the end.
/// Before it is another's it rests for longer than that.
const TAIL: u64 = COPY_LASTS * 1030;

/// So long a planned change may leave a slice without a whole copy, in microseconds.
const MOVING: u64 = 3_000_000;

/// A line in the joined logs: a subscriber has a block.
#[derive(Debug, Clone, Copy)]
struct Line {
    epoch: Epoch,
    subscriber: u8,
    from: u64,
    to: u64,
}

#[derive(Debug, Clone, Default)]
struct Past {
    /// What is older does not count.
    floor: Epoch,
    /// The subscriber that used each block last, and when.
    used: [Option<(u8, u64)>; BLOCKS],
    lines: [Vec<Line>; BLOCKS],
}

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Invariant {
    /// No outside endpoint is two subscribers' within `port_reuse`.
    Reuse,
    /// No packet reaches another subscriber.
    Delivery,
    /// Each block has exactly one accountable subscriber.
    Accountable,
    /// The deadline precedes any successor.
    Deadline,
    /// Nobody grants but the owner.
    Granting,
    /// Epochs rise one by one, and whoever takes over has the tables.
    Succession,
    /// Nothing is lost with a planned change of the owner.
    Handover,
    /// After faults all is well again.
    Recovery,
    /// And all is where it should be.
    Balance,
}

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) of: Invariant,
    pub(crate) slice: u16,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: slice {}: {}", self.of, self.slice, self.what)
    }
}

#[derive(Debug)]
pub(crate) struct Judge {
    slices: Vec<Past>,
    /// The one invariant that counts, if not all do.
    only: Option<Invariant>,
    pub(crate) violation: Option<Violation>,
    /// The kinds of faults that there were.
    pub(crate) faults: BTreeSet<Kind>,
    /// How often what happened: a simulation in which nothing does proves nothing.
    pub(crate) seen: Seen,
}

/// What has happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) grants: u64,
    pub(crate) packets_out: u64,
    pub(crate) packets_in: u64,
    pub(crate) acting: u64,
    pub(crate) redirected: u64,
    pub(crate) takeovers: u64,
    pub(crate) returns: u64,
    pub(crate) vacancies: u64,
    pub(crate) unknown: u64,
    pub(crate) reused: u64,
    pub(crate) full: u64,
    pub(crate) handovers: u64,
    pub(crate) kept: u64,
    pub(crate) ambushes: u64,
    /// Grants without a lease, by the word of backups,
    pub(crate) graced: u64,
    /// and how often they gave it.
    pub(crate) promises: u64,
}

impl Seen {
    const fn all(&self) -> [u64; 16] {
        let Self {
            grants,
            packets_out,
            packets_in,
            acting,
            redirected,
            takeovers,
            returns,
            vacancies,
            unknown,
            reused,
            full,
            handovers,
            kept,
            ambushes,
            graced,
            promises,
        } = *self;
        let packets = [grants, packets_out, packets_in, acting, redirected, reused, full, graced];
        let moves = [takeovers, returns, vacancies, unknown, handovers, kept, ambushes, promises];
        let mut all = [0; 16];
        let mut place = 0;
        while place < 8 {
            (all[place], all[place + 8]) = (packets[place], moves[place]);
            place += 1;
        }
        all
    }

    pub(crate) fn has_all(&self) -> bool {
        self.all().iter().all(|count| *count > 0)
    }

    pub(crate) const fn add(&mut self, other: &Self) {
        self.grants += other.grants;
        self.packets_out += other.packets_out;
        self.packets_in += other.packets_in;
        self.acting += other.acting;
        self.redirected += other.redirected;
        self.takeovers += other.takeovers;
        self.returns += other.returns;
        self.vacancies += other.vacancies;
        self.unknown += other.unknown;
        self.reused += other.reused;
        self.full += other.full;
        self.handovers += other.handovers;
        self.kept += other.kept;
        self.ambushes += other.ambushes;
        self.graced += other.graced;
        self.promises += other.promises;
    }
}

impl Judge {
    pub(crate) fn new(slices: u16, only: Option<Invariant>) -> Self {
        let slices = vec![Past::default(); slices.into()];
        Self { slices, only, violation: None, faults: BTreeSet::new(), seen: Seen::default() }
    }

    /// Something is not as it must be. What comes after the first of it is of no interest.
    pub(crate) fn accuse(&mut self, of: Invariant, slice: u16, what: impl FnOnce() -> String) {
        if self.violation.is_none() && self.only.is_none_or(|only| only == of) {
            self.violation = Some(Violation { of, slice, what: what() });
        }
    }

    /// The slice begins without a state, and what older owners do does not count.
    pub(crate) fn begin_anew(&mut self, slice: u16, epoch: Epoch) {
        let past = &mut self.slices[usize::from(slice)];
        if epoch > past.floor {
            *past = Past { floor: epoch, ..Past::default() };
        }
    }

    /// The slice has begun anew since this epoch.
    pub(crate) fn is_void(&self, slice: u16, epoch: Epoch) -> bool {
        epoch < self.slices[usize::from(slice)].floor
    }

    /// A line is logged: granted now, or adopted with the time at which it was granted.
    pub(crate) fn log(&mut self, slice: u16, epoch: Epoch, block: usize, subscriber: u8, from: u64) {
        self.slices[usize::from(slice)].lines[block].push(Line { epoch, subscriber, from, to: u64::MAX });
    }

    /// The owner with this epoch logs that it has released a block.
    pub(crate) fn log_end(&mut self, slice: u16, epoch: Epoch, block: usize, now: u64) {
        let lines = &mut self.slices[usize::from(slice)].lines[block];
        for line in lines.iter_mut().filter(|line| line.epoch == epoch && line.to == u64::MAX) {
            line.to = now;
        }
    }

    /// A packet of `subscriber` leaves from a block.
    pub(crate) fn leave(&mut self, now: u64, slice: u16, epoch: Epoch, block: usize, subscriber: u8, by: Node) {
        self.seen.packets_out += 1;
        let past = &mut self.slices[usize::from(slice)];
        if epoch < past.floor {
            return;
        }
        let former = past.used[block].replace((subscriber, now));
        let lines = past.lines[block].iter().filter(|line| line.from <= now && now < line.to.saturating_add(TAIL));
        let highest = lines.clone().map(|line| line.epoch).max();
        let mut accountable = lines.filter(|line| Some(line.epoch) == highest).map(|line| line.subscriber);
        let (first, second) = (accountable.next(), accountable.next());
        if let Some((other, at)) = former
            && other != subscriber
        {
            self.seen.reused += 1;
            if now - at < PORT_REUSE * 1000 {
                let since = (now - at) / 1000;
                self.accuse(Invariant::Reuse, slice, || {
                    format!(
                        "block {block}: subscriber {subscriber} at n{} has it {since} ms after subscriber {other}",
                        by.0
                    )
                });
            }
        }
        if first != Some(subscriber) || second.is_some_and(|second| second != subscriber) {
            self.accuse(Invariant::Accountable, slice, || {
                let by = by.0;
                format!("block {block}: used by subscriber {subscriber} at n{by}; the logs say {first:?}, {second:?}")
            });
        }
    }

    /// A packet that was an answer to `meant` has come to `reached`.
    pub(crate) fn arrive(&mut self, slice: u16, block: usize, meant: u8, reached: u8, by: Node) {
        self.seen.packets_in += 1;
        if meant != reached {
            self.accuse(Invariant::Delivery, slice, || {
                format!("block {block}: a packet for subscriber {meant} reached subscriber {reached} at n{}", by.0)
            });
        }
    }
}

impl World {
    /// When faults have ended for long enough: each slice has an owner that may grant, and a backup that has its state, and all know it, unless
    /// it moves just now.
    pub(crate) fn judge_recovery(&mut self) {
        for slice in 0..self.slices {
            if let Some(wrong) = self.wrong_with(slice).filter(|_| !self.moves(slice)) {
                self.judge.accuse(Invariant::Recovery, slice, || wrong);
            }
        }
    }

    fn moves(&self, slice: u16) -> bool {
        let is_handed = |host: &Host| matches!(host.role(slice), Role::Handing { .. });
        self.now - self.stirred[usize::from(slice)] < MOVING || self.hosts.iter().any(is_handed)
    }

    /// And when all is calm for longer: besides, each slice is where it should be.
    pub(crate) fn judge_balance(&mut self) {
        for slice in 0..self.slices {
            if let Some(wrong) = self.wrong_with(slice) {
                self.judge.accuse(Invariant::Recovery, slice, || wrong);
            }
        }
        let plan = self.etcd.plan();
        if let Some(slice) = plan.moves().first() {
            let (has, wanted) = (self.etcd.assignment(*slice), plan.target(*slice));
            self.judge.accuse(Invariant::Balance, *slice, || format!("{has:?} is not {wanted:?}"));
        }
    }

    fn wrong_with(&self, slice: u16) -> Option<String> {
        let Some(Assignment { owner, epoch, backup, phase, .. }) = self.etcd.assignment(slice) else {
            return Some("it has no owner".to_owned());
        };
        let Some(backup) = backup.filter(|_| phase == Phase::Protected) else {
            return Some(format!("it is {phase:?}"));
        };
        let by_etcd = |host: usize| match Node(host as u8) {
            node if node == owner => Role::Owner { epoch, backup: Some(backup), by_offers: true },
            node if node == backup => Role::Backup { epoch, owner },
            _ => Role::Others { epoch, owner: Some(owner), backup: Some(backup) },
        };
        let differs = |host: &usize| self.hosts[*host].role(slice) != by_etcd(*host);
        if let Some(host) = (0..self.hosts.len()).find(differs) {
            return Some(format!(
                "node {host} is {:?}, and etcd has {:?}",
                self.hosts[host].role(slice),
                by_etcd(host)
            ));
        }
        let host = &self.hosts[usize::from(owner.0)];
        let until = host.process.as_ref().map(|process| process.grant_until);
        (until <= Some(host.moment(self.now))).then(|| format!("its owner grants until {until:?}"))
    }
}

//! Between the process of a node and etcd: requests and answers that are late, lost or doubled, and the watch.

use tombolo_cluster::ownership::{
    Assignment, Cause, Compare, Epoch, Event, Lease, Moment, Node, Number, Phase, Reading, Revision, Role, Transaction,
};

use crate::flaw::Flaw;
use crate::host::Asked;
use crate::judge::Invariant;
use crate::tables::State;
use crate::world::{What, World};

/// An answer of etcd that has not come after so long is not waited for, in microseconds.
const GIVE_UP: u64 = 1_000_000;
/// A watch that was silent for so long is confirmed by a read, in milliseconds.
const SILENCE: u64 = 300;

/// A request to etcd, and whose it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Letter {
    pub(crate) host: usize,
    generation: u64,
    number: u64,
    sent: Moment,
}

#[derive(Debug, Clone)]
pub(crate) enum Request {
    Register { incarnation: u64, is_bare: bool, resumed: Option<Lease> },
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

impl World {
    /// A node that has no watch reads everything, and watches from there. One whose watch is silent does as well, since silence proves nothing.
    pub(crate) fn keep_watch(&mut self, host: usize) {
        let moment = self.hosts[host].moment(self.now);
        let Some(process) = &self.hosts[host].process else { return };
        let is_silent = process.cursor.is_none() || moment.since(process.watched) >= SILENCE;
        if is_silent && !process.asked.values().any(|asked| *asked == Asked::Reading) {
            self.ask(host, moment, Asked::Reading, Request::Read);
        }
    }

    pub(crate) fn ask(&mut self, host: usize, sent: Moment, asked: Asked, request: Request) {
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
    pub(crate) fn request(&mut self, letter: Letter, request: Request) {
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
            Request::Register { incarnation, is_bare, resumed } => {
                Answer::Registered(self.etcd.register(self.now, node, (incarnation, is_bare), resumed))
            }
            Request::Renew(lease) => Answer::Renewed(lease, self.etcd.renew(self.now, lease)),
            Request::Read => {
                let (reading, cursor) = self.etcd.read();
                Answer::Read(reading, cursor)
            }
            Request::Transact(transaction) => {
                Answer::Transacted(transaction.number, self.transact(letter, &transaction))
            }
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

    fn transact(&mut self, letter: Letter, transaction: &Transaction) -> Option<Revision> {
        let former: Vec<_> = transaction.puts.iter().map(|(slice, _)| self.etcd.assignment(*slice)).collect();
        let mut transaction = transaction.clone();
        if self.flaw == Some(Flaw::SliceNotCompared) {
            transaction.compares.retain(|compare| !matches!(compare, Compare::SliceIs(..)));
        }
        let revision = self.etcd.transact(&transaction)?;
        self.note(None, || format!("etcd carries out {:?} at {revision:?}", transaction.number));
        for ((slice, put), former) in transaction.puts.iter().zip(former) {
            let seen = &mut self.judge.seen;
            match put.cause {
                Cause::Takeover => seen.takeovers += 1,
                Cause::Return => seen.returns += 1,
                Cause::Vacant => seen.vacancies += 1,
                Cause::Handover => seen.handovers += 1,
                Cause::First | Cause::Backup => {}
            }
            if let Some(former) = former {
                self.see_move(letter, *slice, &former, put);
            }
            if let Some(former) = former
                && (former.epoch, former.owner) == (put.epoch, put.owner)
            {
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

    /// A slice moves by plan. What is handed over is all that there is, unless the process that has asked for it is not there any more.
    fn see_move(&mut self, letter: Letter, slice: u16, former: &Assignment, put: &Assignment) {
        let is_handover = put.cause == Cause::Handover;
        if is_handover || former.phase == Phase::Protected && put.phase == Phase::Syncing {
            self.stirred[usize::from(slice)] = self.now;
        }
        if !is_handover {
            return;
        }
        let [owner, successor] = [former.owner, put.owner].map(|node| usize::from(node.0));
        self.ambush(owner, successor);
        if self.hosts[owner].generation == letter.generation
            && let Some(lost) = self.lost(slice, former.epoch, owner, successor)
        {
            self.judge.accuse(Invariant::Handover, slice, || lost);
        }
    }

    /// Whether a node whose copy is of this epoch, as far as it has one, knows a block otherwise than the owner.
    fn lost(&self, slice: u16, epoch: Epoch, owner: usize, successor: usize) -> Option<String> {
        let [had, has] = [owner, successor].map(|host| &self.hosts[host].tables[usize::from(slice)]);
        let blocks = had.blocks.iter().zip(&has.blocks).enumerate().filter(|_| has.epoch == epoch);
        let granted = |state| if let State::Granted { subscriber, .. } = state { Some(subscriber) } else { None };
        let mut lost = blocks.filter(|(_, (had, has))| {
            granted(had.state).is_some_and(|subscriber| granted(has.state) != Some(subscriber))
        });
        lost.next().map(|(block, (had, has))| {
            format!("n{successor} becomes its owner, and has block {block} as {:?}, not {:?}", has.state, had.state)
        })
    }

    /// Whether a node takes itself for the owner, and its deadline has not passed. One that has missed time does not know better.
    fn counts_on_lease(&self, host: usize, slice: u16) -> bool {
        let own = &self.hosts[host];
        let until = own.process.as_ref().map_or(Moment(0), |process| process.grant_until);
        matches!(own.role(slice), Role::Owner { .. }) && own.moment(self.now) < until && !own.is_excused(self.now)
    }

    pub(crate) fn answer(&mut self, letter: Letter, answer: Answer) {
        let Letter { host, generation, number, sent } = letter;
        let own = &mut self.hosts[host];
        if own.no_etcd > 0 || own.generation != generation {
            return;
        }
        let Some(process) = &mut own.process else { return };
        let is_awaited = process.asked.remove(&number).is_some();
        match answer {
            // A renewal is of use even if it was not waited for.
            Answer::Renewed(lease, true) => {
                let sent =
                    if self.flaw == Some(Flaw::CountedFromAnswer) { self.hosts[host].moment(self.now) } else { sent };
                self.tell(host, Event::Renewed { lease, sent });
            }
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

    pub(crate) fn give_up(&mut self, letter: Letter) {
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
    pub(crate) fn feed_watches(&mut self) {
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

    pub(crate) fn watch(&mut self, host: usize, generation: u64, upto: usize) {
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
        for place in cursor..upto {
            let event = self.etcd.said(place);
            self.tell(host, event);
        }
    }
}

//! Copies of slices at their backups: what has changed is sent as it is now, one batch at a time; a new connection sends everything.

use tombolo_cluster::ownership::{CopyState, Epoch, Event, Moment, Node, Role};

use crate::flaw::Flaw;
use crate::tables::{BLOCKS, Block, State};
use crate::world::{What, World};

/// A batch without an answer for so long, in microseconds: the copy lags.
const LAG: u64 = 1_000_000;

/// The owner's end.
#[derive(Debug, Clone)]
pub(crate) struct Copying {
    pub(crate) to: Node,
    /// Of which ownership.
    epoch: Epoch,
    /// The number of the connection; what an earlier one brings is not heard.
    session: u64,
    is_connected: bool,
    /// The process at the other end: a connection ends with it.
    peer: u64,
    /// Since when a batch is on its way.
    in_flight: Option<u64>,
    sent: [u64; BLOCKS],
    acknowledged: [u64; BLOCKS],
    /// Everything was sent on this connection, and acknowledged.
    is_near: bool,
    /// What the agent has been told.
    told: Option<CopyState>,
}

/// Why the owner sees to a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// It looks at all of them, with each tick.
    Look,
    /// Something has changed.
    Change,
}

/// A block, what it is, and which version that is.
type Record = (usize, State, u64);

/// Records as they are sent: ages, not times.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) from: Node,
    pub(crate) to: Node,
    pub(crate) slice: u16,
    epoch: Epoch,
    session: u64,
    /// For which process.
    peer: u64,
    blocks: Vec<Record>,
    /// With these the copy is whole.
    is_last: bool,
    sent: Moment,
}

impl Copying {
    fn new(to: Node, epoch: Epoch) -> Self {
        let (sent, acknowledged) = ([0; BLOCKS], [0; BLOCKS]);
        Self {
            to,
            epoch,
            session: 0,
            is_connected: false,
            peer: 0,
            in_flight: None,
            sent,
            acknowledged,
            is_near: false,
            told: None,
        }
    }

    /// The backup has this version of a block.
    pub(crate) fn has(&self, block: usize, version: u64) -> bool {
        self.acknowledged[block] == version
    }

    /// A connection is made where there is none, and ends where the other end is not reached, is another process, or does not answer.
    fn connect(&mut self, peer: Option<u64>, now: u64, number: u64) {
        let lags = self.in_flight.is_some_and(|since| now - since > LAG);
        if self.is_connected && (lags || peer != Some(self.peer)) {
            (self.is_connected, self.in_flight) = (false, None);
        } else if let Some(peer) = peer.filter(|_| !self.is_connected) {
            (self.is_connected, self.peer, self.session) = (true, peer, number);
            (self.sent, self.in_flight, self.is_near) = ([0; BLOCKS], None, false);
        }
    }

    /// The blocks of the next batch, and whether none is left after it.
    fn next(&mut self, blocks: &[Block; BLOCKS], most: usize) -> Option<(Vec<Record>, bool)> {
        if !self.is_connected || self.in_flight.is_some() || self.has_sent(blocks) {
            return None;
        }
        let changed = blocks.iter().enumerate().filter(|(block, kept)| self.sent[*block] != kept.version);
        let records: Vec<_> = changed.take(most).map(|(block, kept)| (block, kept.state, kept.version)).collect();
        for (block, _, version) in &records {
            self.sent[*block] = *version;
        }
        Some((records, self.has_sent(blocks)))
    }

    fn has_sent(&self, blocks: &[Block; BLOCKS]) -> bool {
        blocks.iter().zip(self.sent).all(|(kept, sent)| kept.version == sent)
    }

    fn state(&mut self, blocks: &[Block; BLOCKS], role: Role, is_seen: bool, flaw: Option<Flaw>) -> CopyState {
        let is_done = self.is_connected && self.in_flight.is_none() && self.has_sent(blocks);
        self.is_near |= is_done;
        let is_done = is_done || self.is_near && flaw == Some(Flaw::NotAwaited);
        let is_handing = matches!(role, Role::Handing { .. }) && flaw != Some(Flaw::SettledNotTold);
        match () {
            () if !self.is_connected && !is_seen => CopyState::Lost,
            () if !self.is_connected => CopyState::Broken,
            () if is_done && is_handing => CopyState::Settled,
            () if is_done && !matches!(role, Role::Owner { by_offers: false, .. }) => CopyState::Whole,
            () if self.is_near => CopyState::Near,
            () => CopyState::Copying,
        }
    }
}

impl World {
    /// A role that names a backup which the one before did not name begins a copy.
    pub(crate) fn copy_as_played(&mut self, owner: usize, slice: u16) {
        let role = self.hosts[owner].role(slice);
        let Some(process) = &mut self.hosts[owner].process else { return };
        let copying = &mut process.copies[usize::from(slice)];
        if let Some((epoch, backup)) = role.copies_to() {
            if copying.is_none()
                || self.flaw != Some(Flaw::CopyNotTold)
                    && copying.as_ref().is_none_or(|copying| (copying.to, copying.epoch) != (backup, epoch))
            {
                *copying = Some(Copying::new(backup, epoch));
            }
        } else if self.flaw != Some(Flaw::CopyNotTold) {
            *copying = None;
        }
        if let Some(copying) = copying.as_mut().filter(|_| matches!(role, Role::Handing { .. })) {
            copying.told = None;
        }
    }

    /// The owner's part for a slice: connects, sends, and says how the copy stands. That it stands worse than before is seen with a look only.
    pub(crate) fn copy(&mut self, owner: usize, slice: u16, by: By) {
        let place = usize::from(slice);
        if !self.hosts[owner].is_awake() {
            return;
        }
        let role = self.hosts[owner].role(slice);
        let Some((epoch, backup)) = role.copies_to() else { return };
        let other = usize::from(backup.0);
        let peer = self.hosts[other].process.as_ref().filter(|_| self.are_linked(owner, other));
        let peer = peer.map(|_| self.hosts[other].generation);
        let flaw = self.flaw;
        // Who sees nobody at all may be cut off itself.
        let is_alone = !(0..self.hosts.len()).any(|host| self.sees(owner, Node(host as u8)));
        let is_seen = is_alone || self.sees(owner, backup);
        let (now, number, most) = (self.now, self.number(), self.random.between(1, BLOCKS as u64) as usize);
        let host = &mut self.hosts[owner];
        let sent = host.moment(now);
        let Some(process) = &mut host.process else { return };
        let Some(copying) = &mut process.copies[place] else { return };
        let blocks = &host.tables[place].blocks;
        copying.connect(peer, now, number);
        let batch = copying.next(blocks, most).map(|(blocks, is_last)| {
            copying.in_flight = Some(now);
            let (session, peer) = (copying.session, copying.peer);
            Batch { from: host.node, to: backup, slice, epoch, session, peer, blocks, is_last, sent }
        });
        let state = copying.state(blocks, role, is_seen, flaw);
        let is_news = copying.told != Some(state) && (by == By::Look || copying.told < Some(state));
        if is_news {
            copying.told = Some(state);
        }
        if let Some(batch) = batch
            && !self.random.chance(self.weather.broken)
        {
            let delay = self.latency();
            self.later(delay, What::Batch(batch));
        }
        if is_news {
            self.tell(owner, Event::Copying { slice, backup, state });
        }
    }

    /// The backup's part: a batch has come.
    pub(crate) fn apply(&mut self, batch: Batch) {
        let (from, to) = (usize::from(batch.from.0), usize::from(batch.to.0));
        let place = usize::from(batch.slice);
        if self.hosts[to].process.is_some() && !self.hosts[to].is_awake() {
            self.later(20_000, What::Batch(batch));
            return;
        }
        let is_linked = self.are_linked(from, to) && self.hosts[to].generation == batch.peer;
        let Some(process) = self.hosts[to].process.as_mut().filter(|_| is_linked) else { return };
        if process.incoming[place] > batch.session {
            return;
        }
        process.incoming[place] = batch.session;
        let known = match self.hosts[to].role(batch.slice) {
            Role::Nobody => Epoch(0),
            Role::Owner { epoch, .. }
            | Role::Handing { epoch, .. }
            | Role::Former { epoch, .. }
            | Role::Learner { epoch, .. }
            | Role::Backup { epoch, .. }
            | Role::Others { epoch, .. } => epoch,
        };
        let known = known.max(self.hosts[to].table(batch.slice).epoch);
        let is_own = matches!(self.hosts[to].role(batch.slice), Role::Owner { .. });
        if batch.epoch < known && self.flaw != Some(Flaw::EpochIgnored) {
            let by = is_own.then_some(batch.to);
            self.send(from, Event::Deposed(batch.slice, known, by));
            return;
        }
        if batch.epoch == known && is_own {
            return;
        }
        if batch.epoch > known {
            self.tell(to, Event::Deposed(batch.slice, batch.epoch, Some(batch.from)));
        }
        let now = self.hosts[to].moment(self.now);
        let table = self.hosts[to].table(batch.slice);
        if table.epoch != batch.epoch {
            (table.epoch, table.whole) = (batch.epoch, None);
        }
        for &(block, state, _) in &batch.blocks {
            let state = match state {
                State::Resting { until } => State::Resting { until: now + until.since(batch.sent) },
                State::Granted { subscriber, since, .. } => State::Granted { subscriber, since, used: now },
                State::Free | State::Offered => state,
            };
            table.set(block, state);
        }
        if batch.is_last {
            table.whole = Some(batch.epoch);
        }
        let whole = table.whole;
        if let Some(process) = &mut self.hosts[to].process {
            process.heard[usize::from(batch.slice)] = now;
        }
        self.tell(to, Event::Holds(batch.slice, whole));
        let versions = batch.blocks.iter().map(|(block, _, version)| (*block, *version)).collect();
        let (delay, is_lost) = (self.latency(), self.random.chance(self.weather.broken));
        let acknowledged =
            Acknowledged { owner: batch.from, by: batch.to, slice: batch.slice, session: batch.session, versions };
        if !is_lost {
            self.later(delay, What::Acknowledged(acknowledged));
        }
    }

    /// The owner's part again: the backup has a batch.
    pub(crate) fn acknowledge(&mut self, acknowledged: &Acknowledged) {
        let (owner, by) = (usize::from(acknowledged.owner.0), usize::from(acknowledged.by.0));
        if !self.are_linked(owner, by) || !self.hosts[owner].is_awake() {
            return;
        }
        let Some(process) = &mut self.hosts[owner].process else { return };
        let Some(copying) = &mut process.copies[usize::from(acknowledged.slice)] else { return };
        if copying.session != acknowledged.session || !copying.is_connected {
            return;
        }
        copying.in_flight = None;
        for &(block, version) in &acknowledged.versions {
            copying.acknowledged[block] = version;
        }
        self.copy(owner, acknowledged.slice, By::Change);
    }

    /// Says something to another node's agent.
    fn send(&mut self, to: usize, event: Event) {
        let (delay, generation) = (self.latency(), self.hosts[to].generation);
        self.later(delay, What::Tell(to, generation, event));
    }

    /// Says something on a connection, as long as there is one, to the process that is at its other end now. It may have to wait behind what was
    /// said before.
    pub(crate) fn pass(&mut self, from: usize, to: usize, event: Event) {
        let (is_lost, is_behind) = (self.random.chance(self.weather.broken), self.random.chance(50));
        let delay = self.latency() * if is_behind { 100 } else { 1 };
        if self.are_linked(from, to) && !is_lost {
            self.later(delay, What::Tell(to, self.hosts[to].generation, event));
        }
    }

    /// What goes over the connections besides: owners are alive, backups vouch, successors depose.
    pub(crate) fn greet(&mut self, own: usize) {
        for other in 0..self.hosts.len() {
            if other == own || !self.are_linked(own, other) || !self.hosts[other].is_awake() {
                continue;
            }
            let mut vouches = true;
            for slice in 0..self.slices {
                let (mine, theirs) = (self.hosts[own].role(slice), self.hosts[other].role(slice));
                match (mine, theirs) {
                    (
                        Role::Owner { epoch, .. },
                        Role::Owner { epoch: theirs, .. }
                        | Role::Handing { epoch: theirs, .. }
                        | Role::Former { epoch: theirs, .. },
                    ) if epoch > theirs => {
                        vouches = false;
                        self.send(other, Event::Deposed(slice, epoch, Some(Node(own as u8))));
                    }
                    (
                        Role::Owner { epoch, backup, .. },
                        Role::Backup { epoch: theirs, .. } | Role::Learner { epoch: theirs, .. },
                    ) if backup == Some(Node(other as u8)) && epoch == theirs => self.hear_owner(own, other, slice),
                    _ => {}
                }
            }
            if vouches {
                self.send(other, Event::Vouched(Node(own as u8)));
            }
        }
    }
}

/// The backup's part again.
impl World {
    /// The owner says that it lives.
    fn hear_owner(&mut self, owner: usize, own: usize, slice: u16) {
        let place = usize::from(slice);
        let copying = self.hosts[owner].process.as_ref().and_then(|process| process.copies[place].as_ref());
        if copying.is_none_or(|copying| !copying.is_connected) {
            return;
        }
        let (now, whole) = (self.hosts[own].moment(self.now), self.hosts[own].table(slice).whole);
        let Some(process) = &mut self.hosts[own].process else { return };
        process.heard[place] = now;
        if matches!(process.roles[place], Role::Learner { epoch, .. } if whole == Some(epoch)) {
            self.tell(own, Event::Holds(slice, whole));
        }
    }
}

/// The backup has these versions of blocks.
#[derive(Debug, Clone)]
pub(crate) struct Acknowledged {
    owner: Node,
    by: Node,
    slice: u16,
    session: u64,
    versions: Vec<(usize, u64)>,
}

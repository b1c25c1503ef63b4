//! Copies of slices at their backups: what has changed is sent as it is now, one batch at a time; a new connection sends everything.

use tombolo_cluster::ownership::{CopyState, Epoch, Event, Moment, Node, Role};

use crate::tables::{BLOCKS, State};
use crate::world::{Flaw, What, World};

/// A batch without an answer for so long, in microseconds: the copy lags.
const LAG: u64 = 1_000_000;

/// The owner's end.
#[derive(Debug, Clone)]
pub(crate) struct Copying {
    pub(crate) to: Node,
    /// The number of the connection; what an earlier one brings is not heard.
    session: u64,
    is_connected: bool,
    /// Since when a batch is on its way.
    in_flight: Option<u64>,
    sent: [u64; BLOCKS],
    acknowledged: [u64; BLOCKS],
    /// Everything was sent on this connection, and acknowledged.
    is_near: bool,
}

/// Records as they are sent: ages, not times.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) from: Node,
    pub(crate) to: Node,
    pub(crate) slice: u16,
    epoch: Epoch,
    session: u64,
    blocks: Vec<(usize, State, u64)>,
    /// With these the copy is whole.
    is_last: bool,
    sent: Moment,
}

impl Copying {
    fn new(to: Node) -> Self {
        let (sent, acknowledged) = ([0; BLOCKS], [0; BLOCKS]);
        Self { to, session: 0, is_connected: false, in_flight: None, sent, acknowledged, is_near: false }
    }

    /// The backup has this version of a block.
    pub(crate) fn has(&self, block: usize, version: u64) -> bool {
        self.acknowledged[block] == version
    }
}

impl World {
    /// The owner's part for a slice: connects, sends, and says how the copy stands.
    pub(crate) fn copy(&mut self, owner: usize, slice: u16) {
        let place = usize::from(slice);
        let Role::Owner { epoch, backup, by_offers } = self.hosts[owner].role(slice) else {
            if let Some(process) = &mut self.hosts[owner].process {
                process.copies[place] = None;
            }
            return;
        };
        if !self.hosts[owner].runs() {
            return;
        }
        let Some(backup) = backup else { return };
        let is_reached = self.are_linked(owner, usize::from(backup.0)) && self.hosts[usize::from(backup.0)].runs();
        let session = self.random.next();
        let now = self.now;
        let moment = self.hosts[owner].moment(now);
        let Self { hosts, .. } = self;
        let host = &mut hosts[owner];
        let Some(process) = &mut host.process else { return };
        let copying = process.copies[place].get_or_insert_with(|| Copying::new(backup));
        if copying.to != backup {
            *copying = Copying::new(backup);
        }
        if is_reached && !copying.is_connected {
            (copying.session, copying.sent, copying.in_flight) = (session, [0; BLOCKS], None);
            copying.is_near = false;
        }
        copying.is_connected = is_reached;
        let lags = copying.in_flight.is_some_and(|since| now - since > LAG);
        if lags {
            copying.is_connected = false;
        }
        let blocks = &host.tables[place].blocks;
        let is_sent = |copying: &Copying| (0..BLOCKS).all(|block| copying.sent[block] == blocks[block].version);
        let batch = if copying.is_connected && copying.in_flight.is_none() && !is_sent(copying) {
            let changed = (0..BLOCKS).filter(|&block| copying.sent[block] != blocks[block].version);
            let blocks = changed.map(|block| (block, blocks[block].state, blocks[block].version)).collect();
            copying.in_flight = Some(now);
            for (block, _, version) in &blocks {
                let _: (&usize, &u64) = (block, version);
                copying.sent[*block] = *version;
            }
            let session = copying.session;
            Some(Batch { from: host.node, to: backup, slice, epoch, session, blocks, is_last: true, sent: moment })
        } else {
            None
        };
        copying.is_near |= copying.is_connected && copying.in_flight.is_none() && is_sent(copying);
        let is_whole = copying.is_near && copying.in_flight.is_none() && is_sent(copying);
        let state = match () {
            () if !copying.is_connected => CopyState::Broken,
            () if is_whole && by_offers => CopyState::Whole,
            () if copying.is_near => CopyState::Near,
            () => CopyState::Copying,
        };
        if let Some(batch) = batch {
            let delay = self.latency();
            self.later(delay, What::Batch(batch));
        }
        self.tell(owner, Event::Copying { slice, backup, state });
    }

    /// The backup's part: a batch has come.
    pub(crate) fn apply(&mut self, batch: &Batch) {
        let (from, to) = (usize::from(batch.from.0), usize::from(batch.to.0));
        if !self.are_linked(from, to) || !self.hosts[to].runs() {
            return;
        }
        let known = match self.hosts[to].role(batch.slice) {
            Role::Nobody => Epoch(0),
            Role::Owner { epoch, .. }
            | Role::Former { epoch, .. }
            | Role::Learner { epoch, .. }
            | Role::Backup { epoch, .. }
            | Role::Others { epoch, .. } => epoch,
        };
        let is_own = matches!(self.hosts[to].role(batch.slice), Role::Owner { .. });
        if batch.epoch < known && self.flaw != Some(Flaw::EpochIgnored) {
            let by = is_own.then_some(batch.to);
            self.tell(from, Event::Deposed(batch.slice, known, by));
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
        let delay = self.latency();
        let acknowledged = Acknowledged { owner: batch.from, by: batch.to, slice: batch.slice, session: batch.session, versions };
        self.later(delay, What::Acknowledged(acknowledged));
    }

    /// The owner's part again: the backup has a batch.
    pub(crate) fn acknowledge(&mut self, acknowledged: &Acknowledged) {
        let (owner, by) = (usize::from(acknowledged.owner.0), usize::from(acknowledged.by.0));
        if !self.are_linked(owner, by) || !self.hosts[owner].runs() {
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
        self.copy(owner, acknowledged.slice);
    }

    /// What goes over the connections besides: owners are alive, backups vouch, successors depose.
    pub(crate) fn greet(&mut self, own: usize) {
        for other in 0..self.hosts.len() {
            if other == own || !self.are_linked(own, other) || !self.hosts[other].runs() {
                continue;
            }
            let mut vouches = true;
            for slice in 0..self.slices {
                let (mine, theirs) = (self.hosts[own].role(slice), self.hosts[other].role(slice));
                match (mine, theirs) {
                    (Role::Owner { epoch, .. }, Role::Owner { epoch: theirs, .. } | Role::Former { epoch: theirs, .. }) => {
                        if epoch > theirs {
                            vouches = false;
                            self.tell(other, Event::Deposed(slice, epoch, Some(Node(own as u8))));
                        }
                    }
                    (Role::Owner { epoch, backup, .. }, Role::Backup { epoch: theirs, .. })
                        if backup == Some(Node(other as u8)) && epoch == theirs =>
                    {
                        let now = self.hosts[other].moment(self.now);
                        let copies = self.hosts[own].process.as_ref().map(|process| &process.copies);
                        let is_connected = copies.and_then(|copies| copies[usize::from(slice)].as_ref());
                        if is_connected.is_some_and(|copying| copying.is_connected)
                            && let Some(process) = &mut self.hosts[other].process
                        {
                            process.heard[usize::from(slice)] = now;
                        }
                    }
                    _ => {}
                }
            }
            if vouches {
                self.tell(other, Event::Vouched(Node(own as u8)));
            }
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

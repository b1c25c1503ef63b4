//! The agent of a node: what it is told changes what it knows, and from what it knows follows what it does.

use std::collections::{BTreeMap, BTreeSet};

use super::action::{Action, Role, Transaction};
use super::assignment::{Cause, Phase};
use super::change::Claim;
use super::event::{Event, Reading};
use super::lease::Leasing;
use super::node::Node;
use super::number::{Lease, Number, Revision};
use super::plan::Plan;
use super::promises::Promises;
use super::time::Moment;
use super::view::{Handing, Nodes, Slice};
use super::wishes::Wishes;
use super::{RENEWAL, TICK};

/// So far ahead a node serves what is its own without looking for anybody else, in milliseconds.
const SERVING: u64 = 3000;
/// So far ahead it serves that where nobody else is reached: longer than a process takes to be started again, shorter than ports rest.
const ALONE: u64 = 6000;
/// So long a backup's word counts.
const VOUCHED: u64 = 1000;

/// The agent of one node.
#[derive(Debug, Clone)]
pub struct Agent {
    own: Node,
    leasing: Leasing,
    nodes: Nodes,
    slices: Vec<Slice>,
    wishes: Wishes,
    /// Who should have which slice. Nothing from which it follows was otherwise when it was made, if it is current.
    plan: Plan,
    is_plan_current: bool,
    /// It knows all that etcd had at some time.
    has_read: bool,
    /// This process has served, if only what it had.
    has_served: bool,
    /// The newest number of a transaction.
    newest: Number,
    /// The transaction whose answer is awaited.
    pending: Option<Transaction>,
    /// Not before this the next one.
    next: Moment,
    /// When each backup said that it has taken over nothing.
    vouched: BTreeMap<Node, Moment>,
    /// What backups say that they will not do.
    promises: Promises,
    grant_until: Moment,
    serve_until: Moment,
    alone_until: Moment,
    is_entrance: bool,
    /// It has a way to routers of both sides.
    reaches: bool,
    /// Routers have said that somebody else owns what was this node's, which knew nothing of it.
    is_stranded: bool,
}

impl Agent {
    /// That of node `own`, in a cluster with so many slices. It plays nobody to all of them.
    #[must_use]
    pub fn new(own: Node, slices: u16) -> Self {
        Self {
            own,
            leasing: Leasing::None(Moment(0)),
            nodes: Nodes::default(),
            slices: vec![Slice::new(); usize::from(slices)],
            wishes: Wishes::default(),
            plan: Plan::default(),
            is_plan_current: false,
            has_read: false,
            has_served: false,
            newest: Number(0),
            pending: None,
            next: Moment(0),
            vouched: BTreeMap::new(),
            promises: Promises::default(),
            grant_until: Moment(0),
            serve_until: Moment(0),
            alone_until: Moment(0),
            is_entrance: false,
            reaches: true,
            is_stranded: false,
        }
    }

    /// Takes in what it is told at `now`, and says what it wants done.
    pub fn handle(&mut self, now: Moment, event: Event, act: &mut impl FnMut(Action)) {
        let asked = if let Event::Asked(owner, number) = event { Some((owner, number)) } else { None };
        self.promises.begin(now);
        self.learn(now, event);
        self.has_served |= self.nodes.serves(self.own) || self.nodes.drains(self.own);
        self.see_who_is_gone(now);
        self.see_to_handovers(now);
        self.shorten(act);
        self.play(act);
        self.ask(now, act);
        self.prolong(now, act);
        self.enter(act);
        self.leasing.tend(now, act);
        if let Some((owner, number)) = asked.filter(|_| self.has_read) {
            self.answer(owner, number, now, act);
        }
        self.transact(now, act);
    }

    /// Until when the node counts on its lease.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.leasing.deadline()
    }

    /// What the node is to a slice.
    #[must_use]
    pub fn role(&self, slice: u16) -> Role {
        self.slices.get(usize::from(slice)).map_or(Role::Nobody, |slice| slice.role)
    }

    fn learn(&mut self, now: Moment, event: Event) {
        self.is_plan_current &= !is_of_etcd(&event);
        match event {
            Event::Tick => self.plan_anew(),
            Event::Registered { lease, created, sent } => {
                self.leasing.registered(lease, created, sent);
                self.is_stranded = false;
            }
            Event::NotRegistered => self.leasing.not_registered(now),
            Event::Renewed { lease, sent } => self.leasing.renewed(lease, sent),
            Event::LeaseLost(lease) => self.lose(lease, now),
            Event::Read(reading) => self.read(&reading, now),
            Event::NodeSeen(node, presence) => self.nodes.see(node, presence, now),
            Event::NodeGone(node) => {
                self.nodes.lose(node, now);
                if node == self.own {
                    self.leasing.freed(now);
                }
            }
            Event::SliceSeen(number, assigned, modified) => {
                self.change(number, |slice| slice.assign(assigned, modified, now, false));
            }
            Event::Wished(wish) => self.wishes.take(wish),
            Event::Done(number, revision) => self.done(number, revision, now),
            Event::Refused(number) | Event::Unknown(number) => {
                if self.pending.take_if(|pending| pending.number == number).is_some() {
                    self.next = now + TICK;
                }
            }
            Event::Copying { slice, backup, state } => self.change(slice, |slice| slice.copy(backup, state, now)),
            Event::Holds(number, epoch) => {
                self.change(number, |slice| (slice.holds, slice.is_doubted) = (epoch, false));
            }
            Event::Vouched(node) => drop(self.vouched.insert(node, now)),
            // Answered when all is known.
            Event::Asked(..) => {}
            Event::Promised(node, number) => self.promises.hear(node, Moment(number), now),
            Event::Reaches(reaches) => self.reaches = reaches,
            Event::Deposed(number, epoch, owner) => {
                self.is_stranded |= owner.is_none() && now >= self.leasing.deadline();
                self.change(number, |slice| slice.hear(epoch, owner));
            }
        }
    }

    /// The machine may have been asleep together with its clock: how old copies are cannot be told from it.
    fn lose(&mut self, lease: Lease, now: Moment) {
        if self.leasing.lost(lease, now) {
            self.slices.iter_mut().for_each(|slice| slice.is_doubted = true);
        }
    }

    fn change(&mut self, number: u16, change: impl FnOnce(&mut Slice)) {
        if let Some(slice) = self.slices.get_mut(usize::from(number)) {
            change(slice);
        }
    }

    fn read(&mut self, reading: &Reading, now: Moment) {
        let is_first = !self.has_read;
        self.has_read = true;
        self.nodes.replace(reading, now);
        self.wishes = reading.wishes.clone();
        for &(number, assigned, modified) in &reading.slices {
            self.change(number, |slice| slice.assign(assigned, modified, now, is_first));
        }
    }

    fn done(&mut self, number: Number, revision: Revision, now: Moment) {
        let Some(done) = self.pending.take_if(|pending| pending.number == number) else { return };
        for (number, assigned) in done.puts {
            self.change(number, |slice| slice.assign(assigned, revision, now, false));
        }
    }

    /// Notes since when the owners of slices are gone.
    fn see_who_is_gone(&mut self, now: Moment) {
        for number in 0..self.count() {
            let Some(assigned) = self.slice(number).assigned else { continue };
            let is_own = assigned.owner == self.own;
            let created = if is_own { self.created() } else { self.nodes.created(assigned.owner) };
            let is_gone = self.has_read && created != Some(assigned.owner_revision);
            let slice = self.slice_mut(number);
            slice.gone = is_gone.then(|| slice.gone.unwrap_or(now));
        }
    }

    /// Takes the word by which this node grants back where it goes too far: a slice may become its own whose backup has promised nothing.
    fn shorten(&mut self, act: &mut impl FnMut(Action)) {
        let until = self.grants_until();
        if until < self.grant_until {
            self.grant_until = until;
            act(Action::GrantUntil(until));
        }
    }

    /// Prolongs the three words.
    fn prolong(&mut self, now: Moment, act: &mut impl FnMut(Action)) {
        let grants = self.grants_until();
        if self.grant_until != grants {
            self.grant_until = grants;
            act(Action::GrantUntil(grants));
        }
        let until = now + SERVING;
        if until.since(self.serve_until) >= RENEWAL && self.is_assured(now) {
            self.serve_until = until;
            act(Action::ServeUntil(until));
        }
        let alone = now + ALONE;
        if alone.since(self.alone_until) >= RENEWAL {
            self.alone_until = alone;
            act(Action::AloneUntil(alone));
        }
    }

    /// Whether nobody can have taken over a slice of this node's: its lease holds under which it became the owner, or each backup that
    /// may take over says that it has not. A lease of a later life says nothing about the slices of an earlier one, nor about one that was
    /// perhaps handed over.
    fn is_assured(&self, now: Moment) -> bool {
        let mut has_former = false;
        let mut backups = BTreeSet::new();
        for slice in &self.slices {
            has_former |= matches!(slice.role, Role::Former { .. }) || slice.handing == Some(Handing::Asked);
            let protected = slice.assigned.filter(|assigned| assigned.phase == Phase::Protected);
            if matches!(slice.role, Role::Owner { .. } | Role::Handing { .. } | Role::Former { .. }) {
                backups.extend(protected.and_then(|assigned| assigned.backup));
            }
        }
        let vouches = |backup: &Node| self.vouched.get(backup).is_some_and(|at| now.since(*at) < VOUCHED);
        let is_vouched_for = || !backups.is_empty() && backups.iter().all(vouches);
        now < self.leasing.deadline() && !has_former || is_vouched_for()
    }

    fn enter(&mut self, act: &mut impl FnMut(Action)) {
        let is_open = !self.is_stranded && !self.is_left_out();
        let is_entrance = is_open && (self.is_entrance || self.has_read && self.created().is_some());
        if self.is_entrance != is_entrance {
            self.is_entrance = is_entrance;
            act(Action::Enter(is_entrance));
        }
    }

    /// Sends the next transaction, if there is something to change, and no answer is awaited.
    fn transact(&mut self, now: Moment, act: &mut impl FnMut(Action)) {
        let Some(own) = self.created() else { return };
        if !self.has_read || self.pending.is_some() || now < self.next || now >= self.leasing.deadline() {
            return;
        }
        let next = self.next_claim(own, now).or_else(|| self.hand_over(own)).or_else(|| self.tend(own, now));
        let Some(Claim { compares, puts }) = next else { return };
        for (number, put) in &puts {
            let is_other = put.owner != self.own;
            let slice = self.slice_mut(*number);
            if put.cause == Cause::Handover && is_other {
                slice.handing = Some(Handing::Asked);
                continue;
            }
            if put.phase == Phase::Protected {
                slice.protecting = Some(slice.modified);
            }
        }
        self.newest = Number(self.newest.0 + 1);
        let transaction = Transaction { number: self.newest, compares, puts };
        self.pending = Some(transaction.clone());
        act(Action::Transact(transaction));
    }

    fn next_claim(&self, own: Revision, now: Moment) -> Option<Claim> {
        if self.reaches { self.claim(own, now) } else { None }
    }

    pub(super) const fn own(&self) -> Node {
        self.own
    }

    /// When the own key was made.
    pub(super) const fn created(&self) -> Option<Revision> {
        self.leasing.created()
    }

    /// When the newest renewal of the own lease was sent that was answered.
    pub(super) const fn confirmed(&self) -> Option<Moment> {
        self.leasing.confirmed()
    }

    pub(super) const fn has_served(&self) -> bool {
        self.has_served
    }

    pub(super) const fn promises(&self) -> &Promises {
        &self.promises
    }

    pub(super) const fn promises_mut(&mut self) -> &mut Promises {
        &mut self.promises
    }

    pub(super) const fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    pub(super) const fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    pub(super) const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The plan follows from what is known now.
    fn plan_anew(&mut self) {
        if !self.is_plan_current {
            let slices: Vec<_> = self.slices.iter().map(|slice| slice.assigned).collect();
            self.plan = Plan::of(&self.nodes.members(&self.wishes), &slices, &self.wishes.pins);
            self.is_plan_current = true;
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "it was made of so many")]
    pub(super) const fn count(&self) -> u16 {
        self.slices.len() as u16
    }

    pub(super) fn slice(&self, number: u16) -> &Slice {
        &self.slices[usize::from(number)]
    }

    pub(super) fn slice_mut(&mut self, number: u16) -> &mut Slice {
        &mut self.slices[usize::from(number)]
    }
}

/// Whether it says what etcd has.
const fn is_of_etcd(event: &Event) -> bool {
    matches!(
        event,
        Event::Read(_)
            | Event::NodeSeen(..)
            | Event::NodeGone(_)
            | Event::SliceSeen(..)
            | Event::Wished(_)
            | Event::Done(..)
    )
}

//! etcd as its clients find it: revisions, transactions, leases by its own clock, elections. Its transactions are strictly
//! serializable; here they are carried out one after the other.

use tombolo_cluster::ownership::{
    Assignment, Compare, Event, Lease, Member, Moment, Node, Plan, Presence, Reading, Revision, TTL, Transaction, Wish,
    Wishes,
};

use crate::clock::Clock;

/// A node's key.
#[derive(Debug, Clone, Copy)]
struct Key {
    created: Revision,
    lease: Lease,
    incarnation: u64,
    began_bare: bool,
    /// By etcd's clock.
    expires: Moment,
}

#[derive(Debug)]
pub(crate) struct Etcd {
    clock: Clock,
    revision: u64,
    leases: i64,
    nodes: Vec<Option<Key>>,
    slices: Vec<Option<(Assignment, Revision)>>,
    wishes: Wishes,
    /// All changes, in order: what watches say.
    history: Vec<Event>,
    /// Outages at this moment: no leader, or no quorum.
    outages: u8,
    /// When the last one ends.
    pub(crate) back_at: u64,
}

impl Etcd {
    pub(crate) fn new(clock: Clock, nodes: usize, slices: u16) -> Self {
        let (nodes, slices) = (vec![None; nodes], vec![None; slices.into()]);
        let (wishes, history) = (Wishes::default(), Vec::new());
        Self { clock, revision: 1, leases: 0, nodes, slices, wishes, history, outages: 0, back_at: 0 }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.outages == 0
    }

    pub(crate) fn fail(&mut self, until: u64) {
        self.outages += 1;
        self.back_at = self.back_at.max(until);
    }

    /// A leader is elected, which starts all leases anew.
    pub(crate) fn recover(&mut self, now: u64) {
        self.outages -= 1;
        let expires = self.clock.moment(now) + TTL;
        for key in self.nodes.iter_mut().flatten() {
            key.expires = expires;
        }
    }

    /// Removes the keys whose leases have ended.
    pub(crate) fn expire(&mut self, now: u64) {
        let clock = self.clock.moment(now);
        for node in 0..self.nodes.len() {
            if self.is_up() && self.nodes[node].is_some_and(|key| key.expires <= clock) {
                self.nodes[node] = None;
                self.revision += 1;
                self.history.push(Event::NodeGone(Node(node as u8)));
            }
        }
    }

    /// Makes a node's key, or finds the one that is of this life, or under a lease that it goes on with.
    pub(crate) fn register(
        &mut self,
        now: u64,
        node: Node,
        (incarnation, began_bare): (u64, bool),
        resumed: Option<Lease>,
    ) -> Option<(Lease, Revision)> {
        let expires = self.clock.moment(now) + TTL;
        let place = usize::from(node.0);
        if let Some(key) = &mut self.nodes[place] {
            let is_own = key.incarnation == incarnation || Some(key.lease) == resumed;
            return is_own.then(|| {
                key.expires = expires;
                (key.lease, key.created)
            });
        }
        self.revision += 1;
        self.leases += 1;
        let (lease, created) = (Lease(self.leases), Revision(self.revision));
        let key = Key { created, lease, incarnation, began_bare, expires };
        self.nodes[place] = Some(key);
        self.history.push(Event::NodeSeen(node, presence(&key)));
        Some((lease, created))
    }

    /// Whether there is such a lease, which lasts from now on again.
    pub(crate) fn renew(&mut self, now: u64, lease: Lease) -> bool {
        let expires = self.clock.moment(now) + TTL;
        let key = self.nodes.iter_mut().flatten().find(|key| key.lease == lease);
        key.map(|key| key.expires = expires).is_some()
    }

    /// Carries a transaction out, if all compares hold.
    pub(crate) fn transact(&mut self, transaction: &Transaction) -> Option<Revision> {
        let created = |node: &Node| self.nodes[usize::from(node.0)].map_or(Revision(0), |key| key.created);
        let modified = |slice: &u16| self.slices[usize::from(*slice)].map_or(Revision(0), |(_, modified)| modified);
        let holds = |compare: &Compare| match compare {
            Compare::NodeIs(node, revision) => created(node) == *revision,
            Compare::NodeIsNot(node, revision) => created(node) != *revision,
            Compare::SliceIs(slice, revision) => modified(slice) == *revision,
        };
        if !transaction.compares.iter().all(holds) {
            return None;
        }
        self.revision += 1;
        let revision = Revision(self.revision);
        for &(slice, assignment) in &transaction.puts {
            self.slices[usize::from(slice)] = Some((assignment, revision));
            self.history.push(Event::SliceSeen(slice, assignment, revision));
        }
        Some(revision)
    }

    /// An operator wants something.
    pub(crate) fn wish(&mut self, wish: Wish) {
        self.revision += 1;
        self.wishes.take(wish);
        self.history.push(Event::Wished(wish));
    }

    pub(crate) const fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    /// Who should have what, by all that there is.
    pub(crate) fn plan(&self) -> Plan {
        let is_there = |node: &Node| self.nodes[usize::from(node.0)].is_some();
        let member = |node| Member { node, weight: 1, is_drained: self.wishes.drained.contains(&node) };
        let members: Vec<_> = (0..self.nodes.len() as u8).map(Node).filter(is_there).map(member).collect();
        let slices: Vec<_> = self.slices.iter().map(|slice| slice.map(|(assignment, _)| assignment)).collect();
        Plan::of(&members, &slices, &self.wishes.pins)
    }

    pub(crate) fn assignment(&self, slice: u16) -> Option<Assignment> {
        self.slices[usize::from(slice)].map(|(assignment, _)| assignment)
    }

    /// All that there is, and where a watch goes on from.
    pub(crate) fn read(&self) -> (Reading, usize) {
        let nodes = self.nodes.iter().enumerate();
        let nodes = nodes.filter_map(|(node, key)| Some((Node(node as u8), presence(key.as_ref()?)))).collect();
        let slices = self.slices.iter().zip(0..);
        let slices = slices.filter_map(|(value, slice)| value.map(|(value, at)| (slice, value, at))).collect();
        (Reading { nodes, slices, wishes: self.wishes.clone() }, self.history.len())
    }

    /// How much a watch could have said by now.
    pub(crate) const fn history(&self) -> usize {
        self.history.len()
    }

    /// What a watch says at a place of its history.
    pub(crate) fn said(&self, place: usize) -> Event {
        self.history[place].clone()
    }
}

const fn presence(key: &Key) -> Presence {
    Presence { created: key.created, is_serving: true, is_draining: false, weight: 1, began_bare: key.began_bare }
}

//! What the daemon learns for its agent besides what etcd says: how copies stand, there and here, what other nodes say on the connections
//! on which they are made, and whether the host has its routes. The agent is told what is news.

use std::collections::BTreeMap;

use tombolo_cluster::link::{Successor, Taken};
use tombolo_cluster::ownership::{CopyState, Epoch, Event, Node, Role};
use tombolo_engine::cluster::Cluster;

use super::agreeing::Agreeing;
use crate::copies::Copies;

impl Agreeing {
    /// What the agent has not been told yet.
    pub(super) fn news(&mut self) -> Vec<Event> {
        let mut news: Vec<Event> = reaching(&mut self.told.lacks_routes, &self.cluster).into_iter().collect();
        let Some(copies) = self.running.copies.clone() else { return news };
        news.extend(deposed(copies.taken(), &self.cluster, |slice| self.agent.role(slice)));
        news.extend(self.held());
        for slice in self.cluster.slices() {
            let copied = self.agent.role(slice).copies_to();
            news.extend(copied.and_then(|(epoch, backup)| self.copying(slice, backup, epoch, &copies)));
        }
        news.extend(self.successors_of(&copies));
        for (node, at) in copies.vouched() {
            if self.told.vouched.insert(node, at) != Some(at) {
                news.push(Event::Vouched(Node(node)));
            }
        }
        news
    }

    /// Copies here that have become whole, or are none any more. An owner that has heard so may hand its slice over before the next look:
    /// whoever is told that before this begins with empty tables.
    pub(super) fn held(&mut self) -> Vec<Event> {
        let Some(copies) = self.running.copies.clone() else { return Vec::new() };
        let mut news = Vec::new();
        for slice in self.cluster.slices() {
            if let Role::Learner { epoch, owner } | Role::Backup { epoch, owner } = self.agent.role(slice) {
                news.extend(self.holding(slice, copies.holds(slice, owner.0, epoch.0).then_some(epoch)));
            }
        }
        news
    }

    /// Successors that this node hands slices over to, and that have spoken as their owners; as etcd has said as well. From now on nothing has to
    /// be served here in their place.
    fn successors_of(&self, copies: &Copies) -> Vec<Event> {
        let is_known = |said: &Successor| {
            let role = Role::Handing { epoch: Epoch(said.epoch.saturating_sub(1)), backup: Node(said.node) };
            let agreed = self.agreement.assignment(said.slice);
            self.agent.role(said.slice) == role && agreed.is_some_and(|agreed| agreed.epoch.0 == said.epoch)
        };
        let known = copies.take_successors().into_iter().filter(is_known);
        known.map(|said| Event::Deposed(said.slice, Epoch(said.epoch), Some(Node(said.node)))).collect()
    }

    /// How the copy of a slice stands, if that is news, which it is until all agree that it is whole.
    fn copying(&mut self, slice: u16, backup: Node, epoch: Epoch, copies: &Copies) -> Option<Event> {
        let most = match self.agent.role(slice) {
            Role::Handing { .. } => CopyState::Settled,
            _ => CopyState::Whole,
        };
        let state = copies.state_at(backup.0).min(most);
        let is_told = self.told.copying.insert(slice, (backup.0, epoch, state)) == Some((backup.0, epoch, state));
        // Another copy at the same node may have begun since.
        let is_news = !is_told || !self.cluster.assigned(slice).is_protected;
        is_news.then_some(Event::Copying { slice, backup, state })
    }

    fn holding(&mut self, slice: u16, holds: Option<Epoch>) -> Option<Event> {
        let is_told = self.told.holds.insert(slice, holds) == Some(holds);
        (!is_told).then_some(Event::Holds(slice, holds))
    }
}

/// Whether the routes are there without which this node cannot serve. The agent takes them to be before it is told.
fn reaching(lacks_routes: &mut bool, cluster: &Cluster) -> Option<Event> {
    let is_routed = cluster.is_routed();
    let is_news = std::mem::replace(lacks_routes, !is_routed) == is_routed;
    is_news.then_some(Event::Reaches(is_routed))
}

/// Slices that other nodes took over from this one, as far as it knows of no such owner yet. While it hands one over it hears from etcd
/// alone what has become of that: it may have to keep the tables as the new owner's copy.
fn deposed(taken: BTreeMap<u8, Vec<Taken>>, cluster: &Cluster, role: impl Fn(u16) -> Role) -> Vec<Event> {
    let is_news = |taken: &Taken| {
        taken.epoch > cluster.epoch_of(taken.slice) && !matches!(role(taken.slice), Role::Handing { .. })
    };
    let mut events = Vec::new();
    for (node, taken) in taken {
        let news = taken.into_iter().filter(is_news);
        events.extend(news.map(|Taken { slice, epoch }| Event::Deposed(slice, Epoch(epoch), Some(Node(node)))));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_engine::cluster::{Holders, Node as ClusterNode};

    fn cluster() -> Cluster {
        let node = |name: &str| ClusterNode { name: name.to_owned(), locator: std::net::Ipv6Addr::LOCALHOST };
        let slices = vec![Holders { owner: 0, backup: Some(1) }; 4];
        let cluster = Cluster::new(vec![node("n1"), node("n2"), node("n3")], 0).unwrap();
        cluster.with_slices(slices).with_epoch(3).with_agreement()
    }

    #[test]
    fn routes_are_told_of_when_they_go_and_come() {
        let (cluster, mut lacks_routes) = (cluster(), false);
        let mut look = |is_routed| {
            cluster.set_routed(is_routed);
            reaching(&mut lacks_routes, &cluster)
        };
        assert_eq!(look(true), None, "the agent takes them to be there");
        assert_eq!(look(false), Some(Event::Reaches(false)));
        assert_eq!(look(false), None);
        assert_eq!(look(true), Some(Event::Reaches(true)));
        assert_eq!(look(true), None);
    }

    #[test]
    fn what_another_node_has_taken_over_is_told_until_it_is_known() {
        let cluster = cluster();
        let owner = |_| Role::Owner { epoch: Epoch(3), backup: Some(Node(1)), by_offers: true };
        let handing = |_| Role::Handing { epoch: Epoch(3), backup: Node(1) };
        let taken = |slice, epoch| Taken { slice, epoch };
        let said = || BTreeMap::from([(1, vec![taken(0, 4), taken(1, 3), taken(2, 2)]), (2, vec![taken(3, 9)])]);
        let deposed_by = |slice, epoch, node| Event::Deposed(slice, Epoch(epoch), Some(Node(node)));
        assert_eq!(deposed(said(), &cluster, owner), [deposed_by(0, 4, 1), deposed_by(3, 9, 2)]);
        assert!(deposed(said(), &cluster, handing).is_empty());
        cluster.assign(0, tombolo_engine::cluster::Assigned { epoch: 4, ..cluster.assigned(0) });
        assert_eq!(deposed(said(), &cluster, owner), [deposed_by(3, 9, 2)]);
    }
}

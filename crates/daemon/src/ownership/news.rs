//! What the daemon learns for its agent besides what etcd says: how copies stand, there and here. The agent is told what is news.

use tombolo_cluster::ownership::{CopyState, Epoch, Event, Node, Role};

use super::agreeing::Agreeing;
use crate::copies::Copies;

impl Agreeing {
    /// How copies stand, there and here, as far as that is news for the agent.
    pub(super) fn look_at_copies(&mut self) -> Vec<Event> {
        let mut seen = Vec::new();
        let Some(copies) = self.running.copies.clone() else { return seen };
        for slice in self.cluster.slices() {
            let event = match self.agent.role(slice) {
                Role::Learner { epoch, owner } | Role::Backup { epoch, owner } => {
                    let is_kept = self.told.kept.get(&slice) == Some(&epoch);
                    self.holding(slice, (is_kept || copies.has(owner.0.into())).then_some(epoch))
                }
                role => role.copies_to().and_then(|(epoch, backup)| self.copying(slice, backup, epoch, &copies)),
            };
            seen.extend(event);
        }
        for (node, at) in copies.vouched() {
            if self.told.vouched.insert(node, at) != Some(at) {
                seen.push(Event::Vouched(Node(node)));
            }
        }
        seen
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

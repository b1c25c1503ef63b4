//! What an owner does for its slices: each has a backup, whose copy becomes whole.
//!
//! ```text
//!            a node serves              copy near: grant by offers; then whole
//!   SINGLE ------------------> SYNCING ----------------------------------------> PROTECTED
//!     ^ ^                         |  gone, or broken for 1 s while another serves    |
//!     | +-------------------------+                                                  |
//!     +---------------------------------------- gone, lost, or broken for 1 s -------+
//! ```
//!
//! A whole copy is *lost* if it is broken and the routes say as well that its host is gone: then nothing is waited for. One that is being
//! made is given time all the same, or an owner that reaches none of the others would change the slice's key without end.
//!
//! A backup that is to be another one, by plan, is changed while the slice is PROTECTED: it is SYNCING then.
//!
//! Between *near* and *whole* the owner begins to grant by offers. What it granted before is acknowledged when the copy is whole, and
//! only then etcd is told that the backup may take over. The other way round it grants freely when etcd has said that nobody may.

use super::action::{Compare, Role};
use super::agent::Agent;
use super::assignment::{Assignment, Phase};
use super::change::{AT_ONCE, Claim};
use super::event::CopyState;
use super::node::Node;
use super::number::Revision;
use super::time::Moment;

/// So long a copy may be broken until another backup is looked for, in milliseconds.
const PATIENCE: u64 = 1000;

impl Agent {
    /// The next slices of this node's to change, with the own key made at `own`, if there are any.
    pub(super) fn tend(&self, own: Revision, now: Moment) -> Option<Claim> {
        let mut load = self.load();
        let mut change = Claim { compares: vec![Compare::NodeIs(self.own(), own)], puts: Vec::new() };
        for number in 0..self.count() {
            if change.puts.len() == AT_ONCE {
                break;
            }
            let Some(put) = self.tended(number, &mut load, now) else { continue };
            change.compares.push(Compare::SliceIs(number, self.slice(number).modified));
            change.puts.push((number, put));
        }
        (!change.puts.is_empty()).then_some(change)
    }

    /// What becomes of a slice of this node's, if it changes.
    fn tended(&self, number: u16, load: &mut [u16; 256], now: Moment) -> Option<Assignment> {
        let slice = self.slice(number);
        let assigned = slice.assigned.filter(|_| matches!(slice.role, Role::Owner { .. }))?;
        let Some(backup) = assigned.backup else {
            let learner = self.backup_for(number, None, load)?;
            return Some(assigned.with_backup(Some(learner), Phase::Syncing));
        };
        let (state, since) = slice.copying;
        let is_gone = self.nodes().created(backup).is_none();
        let is_broken = state <= CopyState::Broken && now.since(since) >= PATIENCE;
        let is_lost = state == CopyState::Lost;
        match assigned.phase {
            Phase::Protected if is_gone || is_broken || is_lost => Some(assigned.with_backup(None, Phase::Single)),
            Phase::Syncing if is_gone || is_broken => match self.backup_for(number, Some(backup), load) {
                Some(other) if other != backup => Some(assigned.with_backup(Some(other), Phase::Syncing)),
                // Its protection may be carried out yet, and would be void then.
                Some(_) if slice.protecting.is_none() => None,
                Some(_) | None => Some(assigned.with_backup(None, Phase::Single)),
            },
            Phase::Syncing if state >= CopyState::Whole => Some(assigned.with_backup(Some(backup), Phase::Protected)),
            Phase::Protected => {
                self.planned_backup(number, now).map(|other| assigned.with_backup(Some(other), Phase::Syncing))
            }
            Phase::Single | Phase::Syncing => None,
        }
    }

    /// The node that should have the copy by plan; else the one that has the fewest copies of this one's slices. One whose copy was broken
    /// last comes after all others, and one that is to be drained before it.
    fn backup_for(&self, number: u16, broken: Option<Node>, load: &mut [u16; 256]) -> Option<Node> {
        let avoided = broken.or(self.slice(number).avoided.map(|(node, _)| node));
        let planned = self.successor_or_backup(number).filter(|node| Some(*node) != avoided);
        let is_drained = |node: Node| self.wishes().drained.contains(&node);
        let rotated = |node: Node| u16::from(node.0).wrapping_sub(number) % 16;
        let key = |node: &Node| {
            let comes_last = (Some(*node) == avoided, is_drained(*node));
            (comes_last, Some(*node) != planned, load[usize::from(node.0)], rotated(*node))
        };
        let chosen = self.nodes().serving().filter(|node| *node != self.own()).min_by_key(key)?;
        load[usize::from(chosen.0)] += 1;
        Some(chosen)
    }

    /// How many copies of this node's slices each node has.
    fn load(&self) -> [u16; 256] {
        let mut load = [0; 256];
        for number in 0..self.count() {
            if let Role::Owner { backup: Some(backup), .. } = self.slice(number).role {
                load[usize::from(backup.0)] += 1;
            }
        }
        load
    }
}

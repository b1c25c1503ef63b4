//! The slices of the cluster, in rows.

use serde::Serialize;
use tombolo_engine::cluster::{Assigned, Cluster, Place};
use tombolo_engine::{Now, Plan};

use super::rows::{Failure, Rows};
use crate::agreement::{Agreement, name_of_phase};

/// Slices in a row that are in the same hands, as of the same epoch.
#[derive(Debug, Serialize)]
struct SliceRow<'p> {
    /// The first and the last.
    first: u16,
    last: u16,
    owner: &'p str,
    backup: Option<&'p str>,
    /// How many owners they have had.
    epoch: u32,
    /// `single`, `syncing` or `protected`, where nodes agree on owners; else nothing.
    phase: Option<&'static str>,
    /// `own`, `acting`, `redirected` or `unowned`.
    state: &'static str,
    /// The node that their packets go to from here.
    served_by: Option<&'p str>,
}

/// Every slice: who has it, and where its packets go from here.
pub(crate) fn slices(plan: &Plan, agreement: Option<&Agreement>, now: Now, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let cluster = plan.cluster.as_deref().filter(|cluster| cluster.has_slices());
    let Some(cluster) = cluster else {
        return Err(Failure::Refused(
            "the gateway has no slices: its file has no slices in [cluster], and no etcd".to_owned(),
        ));
    };
    let mut first = 0;
    while let Some((Assigned { holders, epoch, .. }, last)) = run(cluster, first) {
        let name = |node: u8| cluster.nodes().get(usize::from(node)).map(|node| node.name.as_str());
        let place = cluster.place_of(first, now);
        let served_by = match place {
            Place::Here | Place::Acting(_) => Some(cluster.nodes()[cluster.own()].name.as_str()),
            Place::At(node) => name(node),
            Place::Nowhere => None,
        };
        let owner = name(holders.owner).unwrap_or_default();
        let backup = holders.backup.and_then(name);
        let phase = agreement.and_then(|agreement| agreement.assignment(first));
        let phase = phase.map(|assigned| name_of_phase(assigned.phase));
        rows.row(&SliceRow { first, last, owner, backup, epoch, phase, state: place.name(), served_by })?;
        first = last + 1;
    }
    Ok(())
}

/// The holders of a slice, and the last one behind it that has the same.
fn run(cluster: &Cluster, first: u16) -> Option<(Assigned, u16)> {
    let assigned = cluster.assigned(first);
    let last = cluster.slices().skip(first.into()).take_while(|slice| cluster.assigned(*slice) == assigned).last()?;
    Some((assigned, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    use tombolo_engine::cluster::{Holders, Node};

    #[test]
    fn slices_in_the_same_hands_are_one_row() {
        let node = |number: u16| Node {
            name: format!("n{number}"),
            locator: std::net::Ipv6Addr::new(0x2001, 0xdb8, 0xc1, number, 0, 0, 0, 0),
        };
        let holders = |owner, backup| Holders { owner, backup };
        let of = [holders(0, Some(1)), holders(0, Some(1)), holders(0, None), holders(1, None), holders(0, None)];
        let cluster = Cluster::new(vec![node(1), node(2)], 0).unwrap().with_slices(of.to_vec());
        let ends: Vec<_> = [0, 2, 3, 4, 5]
            .into_iter()
            .map(|first| run(&cluster, first))
            .map(|run| run.map(|(assigned, last)| (assigned.holders, last)))
            .collect();
        let expected = [(of[0], 1), (of[2], 2), (of[3], 3), (of[4], 4)].map(Some);
        assert_eq!(ends[..4], expected);
        assert_eq!(ends[4], None);
    }
}

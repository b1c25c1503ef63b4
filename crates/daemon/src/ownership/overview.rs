//! A cluster in etcd as an operator sees it: begun once, and how it stands.

use std::path::Path;

use serde::Serialize;
use tombolo_cluster::etcd::{Contents, Etcd, Shape, ShapeError, init, read_all};
use tombolo_cluster::ownership::{Member, Names, NodeState, NodeValue, Phase, Plan, Revision, SliceValue};
use tombolo_config::{ConfigError, Configuration};
use tombolo_engine::mapping::slices::{MOST_SLICES, Slicing};

use super::{etcd_of, found};
use crate::agreement::name_of_phase;

/// A cluster cannot be begun, or seen.
#[derive(Debug, thiserror::Error)]
pub enum OverviewError {
    /// The file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It has none.
    #[error("{0} has no [cluster.etcd]: owners of slices are in a file, or there are none")]
    NoEtcd(String),
    /// What was asked for.
    #[error("{0} slices: not a power of two, 1 to {MOST_SLICES}")]
    Count(u16),
    /// etcd.
    #[error(transparent)]
    Etcd(#[from] ShapeError),
    /// It does not answer.
    #[error(
        "{0}; whether a node admits new subscribers without it, and for how long, `tombolo show status` says there"
    )]
    Silent(ShapeError),
    /// No node of this name is in the file.
    #[error("no node of the cluster is called {0}; its nodes are {1}")]
    Node(String, String),
    /// There is no such slice.
    #[error("there is no slice {0}; there are {1}, from 0 on")]
    Slice(u16, u16),
    /// Nobody could take what a node is to give away, or is to get.
    #[error("{0}")]
    Nowhere(String),
    /// A slice is not without an owner.
    #[error("slice {0} is not vacant: {1}")]
    Served(u16, String),
    /// It is wanted, and was not carried out in time.
    #[error("after {0} s: {1}; it is still wanted, and `tombolo cluster status` says how it stands")]
    Late(u64, String),
    /// The system's random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}

/// How state is kept, in a word, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// Its owner serves, and its backup knows all that is granted.
    Protected,
    /// Its owner serves, alone.
    Single,
    /// Its owner is gone, and its backup serves in its place until it takes it over.
    Acting,
    /// Nobody serves it.
    Vacant,
}

/// How far a node is that is to be drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Drain {
    /// It still owns slices.
    Draining,
    /// It owns none.
    Drained,
}

/// Slices in a row that stand alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SliceStatus {
    /// The first one,
    pub first: u16,
    /// and the last.
    pub last: u16,
    /// Who has them.
    pub owner: Option<String>,
    /// Who has their copy, or gets it.
    pub backup: Option<String>,
    /// The node that an operator wants to own them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<String>,
    /// How many owners they have had.
    pub epoch: u32,
    /// How they stand.
    pub status: Condition,
    /// Why.
    pub reason: String,
}

/// A node whose key is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// Its name.
    pub node: String,
    /// `joining`, `serving` or `draining`.
    pub state: NodeState,
    /// Whether an operator wants that it owns nothing, and it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
    /// Slices that it owns.
    pub owns: usize,
    /// Slices of others that it has the copy of, or gets.
    pub backs_up: usize,
    /// The version of its software.
    pub software: String,
}

/// The cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Overview {
    /// How it stands: as its worst slice.
    pub status: Condition,
    /// Why.
    pub reason: String,
    /// Slices that are to move next.
    pub moves: usize,
    /// Whether an operator has what is only uneven left as it is.
    #[serde(rename = "held")]
    pub is_held: bool,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// The slices.
    pub slices: Vec<SliceStatus>,
}

/// Begins the cluster that a file describes: with so many slices, or as many as its pools allow for. Says how many.
///
/// # Errors
/// [`OverviewError`]: above all if there is one.
pub fn begin(file: &Path, configuration: &Configuration, slices: Option<u16>) -> Result<u16, OverviewError> {
    let cluster = configuration.host.cluster.as_ref();
    let etcd = cluster.and_then(etcd_of).ok_or_else(|| OverviewError::NoEtcd(file.display().to_string()))?;
    let mut secret = [0; 4];
    for word in &mut secret {
        *word = getrandom::u64().map_err(|error| OverviewError::Random(error.to_string()))?;
    }
    let divide = |count: u16| -> Result<u16, OverviewError> {
        let slicing = Slicing::new(secret, count).ok_or(OverviewError::Count(count))?;
        configuration.clone().divide(file, slicing)?;
        Ok(count)
    };
    let count = match slices {
        Some(count) => divide(count)?,
        // The error of one slice is not about slices.
        None => {
            let counts = (0..=MOST_SLICES.ilog2()).rev().map(|bits| 1 << bits);
            counts.clone().find(|count| divide(*count).is_ok()).map_or_else(|| divide(1), Ok)?
        }
    };
    init(&etcd, Shape { slices: count, secret })?;
    Ok(count)
}

/// How the cluster stands that a file describes.
///
/// # Errors
/// [`OverviewError`].
pub fn look(file: &Path, configuration: &Configuration) -> Result<Overview, OverviewError> {
    let etcd = etcd_in(file, configuration)?;
    let silent = |error| match error {
        ShapeError::Etcd(_) => OverviewError::Silent(error),
        error => error.into(),
    };
    let shape = found(&etcd).map_err(silent)?;
    Ok(Overview::of(shape.slices, &read_all(&etcd).map_err(silent)?))
}

/// Where the etcd of the cluster is that a file describes.
pub(super) fn etcd_in(file: &Path, configuration: &Configuration) -> Result<Etcd, OverviewError> {
    let cluster = configuration.host.cluster.as_ref();
    cluster.and_then(etcd_of).ok_or_else(|| OverviewError::NoEtcd(file.display().to_string()))
}

/// Which slices are to move next, by all that there is.
fn plan(count: u16, contents: &Contents) -> Plan {
    let mut names = Names::default();
    let mut serving: Vec<&(String, Revision, NodeValue)> =
        contents.nodes.iter().filter(|(_, _, value)| value.state == NodeState::Serving).collect();
    // By any order of names slices are as even; nodes have another one, so which of them move is theirs to say.
    serving.sort_by_key(|(name, ..)| name.clone());
    let members: Vec<Member> = serving
        .into_iter()
        .filter_map(|(name, _, value)| {
            let (node, is_drained) = (names.number(name)?, contents.drained.contains(name));
            Some(Member { node, weight: value.weight, is_drained })
        })
        .collect();
    let mut slices = vec![None; count.into()];
    for (slice, value) in &contents.slices {
        if let Some(place) = slices.get_mut(usize::from(*slice)) {
            *place = value.assignment(&mut names).ok();
        }
    }
    let pins = contents.pins.iter().filter_map(|(slice, name)| Some((*slice, names.number(name)?))).collect();
    Plan::of(&members, &slices, &pins)
}

impl Overview {
    /// How a slice stands.
    #[must_use]
    pub fn slice(&self, slice: u16) -> Option<&SliceStatus> {
        self.slices.iter().find(|status| (status.first..=status.last).contains(&slice))
    }

    pub(super) fn of(count: u16, contents: &Contents) -> Self {
        let value_of = |slice: u16| contents.slices.iter().find(|(number, _)| *number == slice).map(|(_, value)| value);
        let mut slices: Vec<SliceStatus> = Vec::new();
        for slice in 0..count {
            let next = SliceStatus::of(slice, value_of(slice), contents);
            match slices.last_mut() {
                Some(last) if (SliceStatus { first: last.first, last: last.last, ..next.clone() }) == *last => {
                    last.last = slice;
                }
                _ => slices.push(next),
            }
        }
        let values = || contents.slices.iter().filter(|(slice, _)| *slice < count).map(|(_, value)| value);
        let nodes = contents.nodes.iter().map(|(name, _, NodeValue { state, software, .. })| {
            let owns = values().filter(|value| value.owner == *name).count();
            let drain = if owns > 0 { Drain::Draining } else { Drain::Drained };
            NodeStatus {
                node: name.clone(),
                state: *state,
                drain: contents.drained.contains(name).then_some(drain),
                owns,
                backs_up: values().filter(|value| value.backup.as_ref() == Some(name)).count(),
                software: software.clone(),
            }
        });
        let worst = slices.iter().max_by_key(|slice| slice.status);
        let status = worst.map_or(Condition::Vacant, |worst| worst.status);
        let reason = worst.map_or_else(String::new, |worst| {
            let alike = slices.iter().filter(|slice| slice.status == status);
            let alike: usize = alike.map(|slice| usize::from(slice.last - slice.first) + 1).sum();
            match status {
                Condition::Protected => format!("all {count} slices have an owner and a whole copy"),
                _ => format!("{alike} of {count} slices; of slice {}: {}", worst.first, worst.reason),
            }
        });
        let moves = plan(count, contents).moves().len();
        Self { status, reason, moves, is_held: contents.is_held, nodes: nodes.collect(), slices }
    }
}

impl SliceStatus {
    fn of(slice: u16, value: Option<&SliceValue>, contents: &Contents) -> Self {
        let pinned = contents.pins.get(&slice).cloned();
        let Some(value) = value else {
            let reason = "nobody has had it yet: no node serves, or it is not three seconds since the first one does";
            let (owner, backup, epoch, status) = (None, None, 0, Condition::Vacant);
            return Self { first: slice, last: slice, owner, backup, pinned, epoch, status, reason: reason.to_owned() };
        };
        let made = |name: &str| contents.nodes.iter().find(|(node, ..)| node == name).map(|(_, made, _)| *made);
        let SliceValue { owner, owner_rev, epoch, backup, phase, .. } = value;
        let is_owned = made(owner) == Some(Revision(*owner_rev));
        let there = backup.as_deref().filter(|backup| made(backup).is_some());
        let (status, reason) = match (is_owned, *phase, there) {
            (true, Phase::Protected, Some(_)) => (Condition::Protected, "owner and copy".to_owned()),
            (true, Phase::Protected, None) => (Condition::Single, "its backup is gone".to_owned()),
            (true, Phase::Syncing, _) => (Condition::Single, "its copy is being made".to_owned()),
            (true, Phase::Single, _) => (Condition::Single, "it has no backup".to_owned()),
            (false, Phase::Protected, Some(backup)) => {
                (Condition::Acting, format!("its owner {owner} is gone, {backup} takes it over"))
            }
            (false, phase, _) => {
                let phase = name_of_phase(phase);
                (Condition::Vacant, format!("its owner {owner} is gone, it was {phase}, and 40 s are not over"))
            }
        };
        let (owner, backup) = (Some(owner.clone()), backup.clone());
        Self { first: slice, last: slice, owner, backup, pinned, epoch: *epoch, status, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_cluster::ownership::{Capacity, Cause, VALUE_VERSION};

    fn node(name: &str, made: u64) -> (String, Revision, NodeValue) {
        let value = NodeValue {
            version: VALUE_VERSION,
            incarnation: made,
            locator: std::net::Ipv6Addr::LOCALHOST,
            software: "1".to_owned(),
            protocol: 1,
            weight: 1,
            state: NodeState::Serving,
            began_bare: false,
            configuration: 0,
            capacity: Capacity { subscribers: 1, bindings: 1 },
        };
        (name.to_owned(), Revision(made), value)
    }

    fn slice(owner: &str, owner_rev: u64, backup: Option<&str>, phase: Phase) -> SliceValue {
        let (owner, backup) = (owner.to_owned(), backup.map(str::to_owned));
        SliceValue { version: 1, owner, owner_rev, epoch: 3, backup, phase, since: 0, cause: Cause::First }
    }

    #[test]
    fn a_cluster_stands_as_its_worst_slice() {
        let protected = |number| (number, slice("n1", 7, Some("n2"), Phase::Protected));
        let mut contents = Contents {
            nodes: vec![node("n1", 7), node("n2", 8)],
            slices: (0..3).map(protected).collect(),
            ..Contents::default()
        };
        let all = Overview::of(3, &contents);
        assert_eq!((all.status, all.slices.len(), all.slices[0].last), (Condition::Protected, 1, 2));
        assert_eq!((all.nodes[0].owns, all.nodes[1].backs_up), (3, 3));
        contents.slices[1].1 = slice("n1", 7, None, Phase::Single);
        let one = Overview::of(3, &contents);
        assert_eq!((one.status, one.slices.len()), (Condition::Single, 3));
        assert_eq!(one.reason, "1 of 3 slices; of slice 1: it has no backup");
        // Another life of the owner is not the owner.
        contents.nodes[0].1 = Revision(9);
        let gone = Overview::of(4, &contents);
        let conditions: Vec<Condition> = gone.slices.iter().map(|slice| slice.status).collect();
        assert_eq!(conditions, [Condition::Acting, Condition::Vacant, Condition::Acting, Condition::Vacant]);
        assert_eq!((gone.status, gone.slices[3].owner.is_none()), (Condition::Vacant, true));
    }

    #[test]
    fn drained_nodes_pinned_slices_and_moves_are_seen() {
        let of = |number: u16, owner| {
            (number, slice(owner, if owner == "n1" { 7 } else { 8 }, Some("n2"), Phase::Protected))
        };
        let mut contents = Contents {
            nodes: vec![node("n1", 7), node("n2", 8)],
            slices: vec![of(0, "n1"), of(1, "n1")],
            ..Contents::default()
        };
        let uneven = Overview::of(2, &contents);
        assert_eq!((uneven.moves, uneven.is_held, uneven.nodes[0].drain), (1, false, None));
        contents.is_held = true;
        let held = serde_json::to_value(Overview::of(2, &contents)).unwrap();
        assert_eq!((held["held"].as_bool(), held["moves"].as_u64()), (Some(true), Some(1)));
        contents.drained.insert("n1".to_owned());
        contents.pins.insert(1, "n2".to_owned());
        let draining = Overview::of(2, &contents);
        assert_eq!(
            (draining.moves, draining.nodes[0].drain, draining.nodes[1].drain),
            (2, Some(Drain::Draining), None)
        );
        assert_eq!(draining.slice(1).and_then(|slice| slice.pinned.as_deref()), Some("n2"));
        assert!(draining.slice(2).is_none());
        for (_, value) in &mut contents.slices {
            (value.owner, value.owner_rev, value.backup) = ("n2".to_owned(), 8, Some("n1".to_owned()));
        }
        let drained = Overview::of(2, &contents);
        assert_eq!(
            (drained.moves, drained.nodes[0].drain, drained.status),
            (0, Some(Drain::Drained), Condition::Protected)
        );
    }
}

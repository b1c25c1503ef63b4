//! Flows of numbered datagrams, and what a fault does to them.

use std::net::SocketAddr;
use std::time::Duration;

use tombolo_lab::{Flow, Lab};

use crate::boxes::{Cluster, SERVER};

/// Who sends, and to where: by MAP-T, by Lightweight 4over6, and by SIIT.
const SENDERS: [(&str, &str); 3] =
    [("client", SERVER), ("neighbour", SERVER), ("web", "[2001:db8:64::198.51.100.2]:7")];
/// Flows of each.
const FLOWS: usize = 8;
/// What the design allows for a node that is gone without a word.
pub(super) const SILENCE: Duration = Duration::from_millis(400);
/// A node that comes back announces nothing before it has routes itself, so that what is lost is lost while routes change.
pub(super) const RETURN: Duration = Duration::from_millis(100);
/// Routers move flows of the others, too. Nothing is lost by that, but for once: seven datagrams within 9 ms, on a busy
/// machine.
const MOVED: Duration = Duration::from_millis(25);

/// What a fault did to a flow, and whether that passes the node.
pub(super) struct Effect {
    pub(super) seen: tombolo_lab::Effect,
    pub(super) by_the_node: bool,
}

fn senders(lab: &Lab) -> Vec<Flow> {
    let flows = SENDERS.iter().flat_map(|&(node, to)| {
        (0..FLOWS).map(move |number| {
            let any: SocketAddr = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" }.parse().unwrap();
            Flow::open(lab.node(node).unwrap(), format!("{node} {number}"), any, to.parse().unwrap()).unwrap()
        })
    });
    flows.collect()
}

/// Which flows pass a node, in either direction.
fn flows_by(cluster: &Cluster, flows: &[Flow], node: &str) -> Vec<bool> {
    let passes = |flow: &Flow| {
        let before = cluster.received(node);
        for _ in 0..60 {
            flow.send();
            assert!(flow.receive(), "{}: no answer while all is well", flow.name());
        }
        cluster.received(node) - before >= 50
    };
    flows.iter().map(passes).collect()
}

/// What each flow notices of a fault of a node, which `recovers` within a second or two.
pub(super) fn during(cluster: &mut Cluster, node: &str, fault: impl FnOnce(&mut Cluster)) -> Vec<Effect> {
    let flows = senders(&cluster.lab);
    let by_the_node = flows_by(cluster, &flows, node);
    under_load(cluster, &flows, &by_the_node, fault)
}

/// The same of these flows, of which some pass the node.
pub(super) fn under_load(
    cluster: &mut Cluster,
    flows: &[Flow],
    by_the_node: &[bool],
    fault: impl FnOnce(&mut Cluster),
) -> Vec<Effect> {
    let ((), effects) = tombolo_lab::under_load(flows, || fault(cluster));
    effects.into_iter().zip(by_the_node).map(|(seen, by)| Effect { seen, by_the_node: *by }).collect()
}

/// Says what was seen, for the figures of the documentation.
pub(super) fn report(what: &str, effects: &[Effect]) {
    for by in [true, false] {
        let of = effects.iter().filter(|effect| effect.by_the_node == by);
        let (count, lost) = (of.clone().count(), of.clone().map(|effect| effect.seen.lost).sum::<usize>());
        let silence = of.map(|effect| effect.seen.silence).max().unwrap_or_default();
        let whose = if by { "through the node" } else { "past it" };
        let stalled = effects.iter().map(|effect| effect.seen.stalled).max().unwrap_or_default();
        eprintln!(
            "{what}: {count} flows {whose}: {lost} datagrams lost, longest silence {silence:?}; stalled for {stalled:?}"
        );
    }
}

/// Flows through the node are silent for `limit` at most; the others hardly notice.
pub(super) fn check(what: &str, effects: &[Effect], limit: Duration) {
    report(what, effects);
    assert!(effects.iter().filter(|effect| effect.by_the_node).count() >= 4, "{what}: the routers spread nothing");
    for Effect { seen, by_the_node } in effects {
        let tombolo_lab::Effect { name, lost, silence, .. } = seen;
        if *by_the_node {
            assert!(seen.is_within(limit), "{what}: {name} was silent for {silence:?}");
        } else {
            let why = "which does not pass the node";
            assert!(seen.is_within(MOVED), "{what}: {name}, {why}, lost {lost} and was silent for {silence:?}");
        }
    }
}

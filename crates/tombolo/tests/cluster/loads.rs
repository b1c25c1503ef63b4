//! Flows of numbered datagrams, and what a fault does to them.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tombolo_lab::Lab;

use crate::boxes::{Cluster, SERVER};
use crate::flows::EndOnDrop;

/// Who sends, and to where: by MAP-T, by Lightweight 4over6, and by SIIT.
const SENDERS: [(&str, &str); 3] =
    [("client", SERVER), ("neighbour", SERVER), ("web", "[2001:db8:64::198.51.100.2]:7")];
/// Flows of each.
const FLOWS: usize = 8;
/// From one datagram of a flow to the next.
const PACE: Duration = Duration::from_millis(4);
/// What the design allows for a node that is gone without a word.
pub(super) const SILENCE: Duration = Duration::from_millis(400);
/// A node that comes back announces nothing before it has routes itself, so that what is lost is lost while routes change.
pub(super) const RETURN: Duration = Duration::from_millis(100);
/// Routers move flows of the others, too. Nothing is lost by that, but for once: seven datagrams within 9 ms, on a busy
/// machine.
const MOVED: Duration = Duration::from_millis(25);

/// A flow: numbered datagrams to the server, and what comes back.
pub(super) struct Flow {
    pub(super) name: String,
    pub(super) socket: UdpSocket,
    pub(super) seen: Mutex<Seen>,
}

#[derive(Default)]
pub(super) struct Seen {
    sent: Vec<Instant>,
    back: BTreeMap<usize, Instant>,
}

/// What a fault did to a flow.
pub(super) struct Effect {
    pub(super) name: String,
    pub(super) lost: usize,
    pub(super) silence: Duration,
    pub(super) by_the_node: bool,
}

impl Flow {
    pub(super) fn all(lab: &Lab) -> Vec<Self> {
        let flows = SENDERS.iter().flat_map(|&(node, to)| {
            (0..FLOWS).map(move |number| {
                let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
                let socket = lab.node(node).unwrap().run(|| UdpSocket::bind(any).unwrap()).unwrap();
                socket.connect(to.parse::<SocketAddr>().unwrap()).unwrap();
                socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
                Self { name: format!("{node} {number}"), socket, seen: Mutex::default() }
            })
        });
        flows.collect()
    }

    pub(super) fn send(&self) {
        let mut seen = self.seen.lock().unwrap();
        let number = seen.sent.len();
        if self.socket.send(&number.to_be_bytes()).is_ok() {
            seen.sent.push(Instant::now());
        }
    }

    pub(super) fn receive(&self) -> bool {
        let mut bytes = [0; 8];
        let Ok(8) = self.socket.recv(&mut bytes) else { return false };
        self.seen.lock().unwrap().back.entry(usize::from_be_bytes(bytes)).or_insert_with(Instant::now);
        true
    }

    /// The longest time without an answer, of those that were sent from `since` on, and how many were not answered.
    pub(super) fn effect(&self, since: Instant, by_the_node: bool) -> Effect {
        let seen = self.seen.lock().unwrap();
        let sent = seen.sent.iter().enumerate().filter(|(_, at)| **at >= since);
        let lost = sent.clone().filter(|(number, _)| !seen.back.contains_key(number)).count();
        // Of lost ones in a row, from the first to the next that is answered.
        let (mut silence, mut quiet_since) = (Duration::ZERO, None);
        for (number, at) in sent {
            match (seen.back.contains_key(&number), quiet_since) {
                (false, None) => quiet_since = Some(*at),
                (true, Some(from)) => {
                    silence = silence.max(*at - from);
                    quiet_since = None;
                }
                _ => {}
            }
        }
        if let Some((from, last)) = quiet_since.zip(seen.sent.last()) {
            silence = silence.max(*last - from);
        }
        Effect { name: self.name.clone(), lost, silence, by_the_node }
    }
}

/// Which flows pass a node, in either direction.
fn flows_by(cluster: &Cluster, flows: &[Flow], node: &str) -> Vec<bool> {
    let passes = |flow: &Flow| {
        let before = cluster.received(node);
        for _ in 0..60 {
            flow.send();
            assert!(flow.receive(), "{}: no answer while all is well", flow.name);
        }
        cluster.received(node) - before >= 50
    };
    flows.iter().map(passes).collect()
}

/// What each flow notices of a fault of a node, which `recovers` within a second or two.
pub(super) fn during(cluster: &mut Cluster, node: &str, fault: impl FnOnce(&mut Cluster)) -> Vec<Effect> {
    let flows = Flow::all(&cluster.lab);
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
    let stop = AtomicBool::new(false);
    let since = Instant::now();
    std::thread::scope(|scope| {
        let _ends = EndOnDrop(&stop);
        let stop = &stop;
        for flow in flows {
            scope.spawn(move || while flow.receive() || !stop.load(Ordering::Acquire) {});
        }
        scope.spawn(move || {
            while !stop.load(Ordering::Acquire) {
                let began = Instant::now();
                flows.iter().for_each(Flow::send);
                std::thread::sleep(PACE.saturating_sub(began.elapsed()));
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        fault(cluster);
        std::thread::sleep(Duration::from_millis(1500));
    });
    flows.iter().zip(by_the_node).map(|(flow, by)| flow.effect(since, *by)).collect()
}

/// Says what was seen, for the figures of the documentation.
pub(super) fn report(what: &str, effects: &[Effect]) {
    for by in [true, false] {
        let of = effects.iter().filter(|effect| effect.by_the_node == by);
        let (count, lost) = (of.clone().count(), of.clone().map(|effect| effect.lost).sum::<usize>());
        let silence = of.map(|effect| effect.silence).max().unwrap_or_default();
        let whose = if by { "through the node" } else { "past it" };
        eprintln!("{what}: {count} flows {whose}: {lost} datagrams lost, longest silence {silence:?}");
    }
}

/// Flows through the node are silent for `limit` at most; the others hardly notice.
pub(super) fn check(what: &str, effects: &[Effect], limit: Duration) {
    report(what, effects);
    assert!(effects.iter().filter(|effect| effect.by_the_node).count() >= 4, "{what}: the routers spread nothing");
    for Effect { name, lost, silence, by_the_node } in effects {
        if *by_the_node {
            assert!(*silence <= limit, "{what}: {name} was silent for {silence:?}");
        } else {
            let why = "which does not pass the node";
            assert!(*silence <= MOVED, "{what}: {name}, {why}, lost {lost} and was silent for {silence:?}");
        }
    }
}

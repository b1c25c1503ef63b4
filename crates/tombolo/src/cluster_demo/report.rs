//! What the demo of the cluster shows.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tombolo_lab::{Effect, Heard};

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The node that lost its power.
    pub(crate) killed: &'static str,
    /// How many slices there are.
    pub(crate) slices: u16,
    /// What was seen, in order.
    pub(crate) phases: Vec<Phase>,
    /// How long all of it took.
    pub(crate) seconds: f64,
}

/// What was seen in a stretch of time.
#[derive(Debug, Serialize)]
pub(crate) struct Phase {
    /// `before`, `death`, `takeover`, `after`.
    pub(crate) phase: &'static str,
    /// What happened.
    pub(crate) what: &'static str,
    /// Datagrams of known hosts that were not answered, of 250 a second each.
    pub(crate) lost: usize,
    /// The longest time without an answer for any known host.
    pub(crate) silence_ms: u128,
    /// The longest time for which a host heard nothing over TCP, and the server.
    pub(crate) tcp_silence_ms: [u128; 2],
    /// Connections that live, and all.
    pub(crate) connections: [usize; 2],
    /// The longest time that a new host of the dead node's waited for its first answer.
    pub(crate) new_hosts_wait_ms: Option<u128>,
    /// How many slices each node owns, as etcd has it.
    pub(crate) owners: BTreeMap<String, usize>,
    /// Slices that nodes serve in their owner's place.
    pub(crate) acting: u64,
    /// `protected`, `single`, `acting` or `vacant`, as etcd has it.
    pub(crate) state: String,
}

/// How the cluster stood at a moment.
#[derive(Debug, Default)]
pub(super) struct Standing {
    pub(super) owners: BTreeMap<String, usize>,
    pub(super) acting: u64,
    pub(super) state: String,
    pub(super) wait: Option<Duration>,
}

impl Phase {
    pub(super) fn of(
        phase: &'static str,
        what: &'static str,
        effects: &[Effect],
        heard: &[Heard],
        standing: Standing,
    ) -> Self {
        let Standing { owners, acting, state, wait } = standing;
        let longest = |end: usize| heard.iter().map(|heard| heard.silence[end].as_millis()).max().unwrap_or_default();
        Self {
            phase,
            what,
            lost: effects.iter().map(|effect| effect.lost).sum(),
            silence_ms: effects.iter().map(|effect| effect.silence.as_millis()).max().unwrap_or_default(),
            tcp_silence_ms: [longest(0), longest(1)],
            connections: [heard.iter().filter(|heard| heard.is_alive).count(), heard.len()],
            new_hosts_wait_ms: wait.map(|wait| wait.as_millis()),
            owners,
            acting,
            state,
        }
    }
}

impl Report {
    /// What is not as it should be.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for Phase { phase, connections: [alive, all], .. } in &self.phases {
            if alive < all {
                failures.push(format!("{phase}: {} of {all} connections are dead", all - alive));
            }
        }
        if let Some(last) =
            self.phases.last().filter(|last| last.state != "protected" || last.owners.contains_key(self.killed))
        {
            failures.push(format!("in the end the slices are {}, owned by {:?}", last.state, last.owners));
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_connections_and_slices_of_a_dead_node_are_failures() {
        let phase = |connections, state: &str, owner: &str| {
            let heard: Vec<Heard> = (0..3)
                .map(|number| Heard {
                    name: number.to_string(),
                    silence: [Duration::from_millis(number), Duration::from_millis(7)],
                    is_alive: number < connections,
                })
                .collect();
            let owners = BTreeMap::from([(owner.to_owned(), 8)]);
            let standing = Standing { owners, acting: 0, state: state.to_owned(), wait: None };
            Phase::of("after", "", &[], &heard, standing)
        };
        let of = |phase| Report { killed: "n2", slices: 8, phases: vec![phase], seconds: 1.0 }.failures().len();
        let fine = phase(3, "protected", "n1");
        assert_eq!((fine.tcp_silence_ms, fine.connections), ([2, 7], [3, 3]));
        assert_eq!(of(fine), 0);
        assert_eq!(of(phase(2, "protected", "n1")), 1);
        assert_eq!(of(phase(3, "vacant", "n1")), 1);
        assert_eq!(of(phase(3, "protected", "n2")), 1);
    }
}

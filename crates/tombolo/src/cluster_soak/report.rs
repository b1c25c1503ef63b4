//! What came of the soak.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tombolo_lab::{Effect, Heard};

/// What came of it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// What the faults followed from.
    pub(crate) seed: u64,
    /// Seconds of faults.
    pub(crate) seconds: u64,
    /// What was seen of each fault, by its name.
    pub(crate) faults: BTreeMap<&'static str, Seen>,
    /// Guests that were served at once, and that were not.
    pub(crate) guests: [u64; 2],
    /// The sum of the epochs of all slices, in the beginning and in the end.
    pub(crate) epochs: [u64; 2],
    /// Times that a block of ports was a subscriber's, by the logs of all nodes.
    pub(crate) claims: usize,
    /// Outside endpoints in the tables of all nodes in the end.
    pub(crate) endpoints: usize,
    /// Everything that should not have been; empty if all is well.
    pub(crate) failures: Vec<String>,
    /// Where something failed, what nodes have written into etcd, in the order in which they did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) history: Vec<String>,
}

/// What was seen of a fault: the longest of all times that it happened.
#[derive(Debug, Default, Clone, Serialize)]
pub(crate) struct Seen {
    /// How often it happened.
    pub(crate) times: u64,
    /// How long a known host was without an answer.
    pub(crate) silence_ms: u128,
    /// How long a connection heard nothing, at either end.
    pub(crate) tcp_silence_ms: u128,
    /// From when it was mended until all slices were protected.
    pub(crate) protected_ms: u128,
}

impl Seen {
    /// It happened once more.
    pub(super) fn add(&mut self, effects: &[Effect], heard: &[Heard], protected: Duration) {
        let silence = effects.iter().map(|effect| effect.silence.as_millis()).max().unwrap_or_default();
        let tcp = heard.iter().flat_map(|heard| heard.silence).map(|silence| silence.as_millis()).max();
        self.times += 1;
        self.silence_ms = self.silence_ms.max(silence);
        self.tcp_silence_ms = self.tcp_silence_ms.max(tcp.unwrap_or_default());
        self.protected_ms = self.protected_ms.max(protected.as_millis());
    }
}

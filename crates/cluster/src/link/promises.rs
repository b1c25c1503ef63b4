//! What agents of two nodes ask of each other and promise, on its way: connections take it from here, and bring here what they hear.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::ownership::{Event, Node};

/// What is to be said to other nodes, the newest to each, and who is told what they say.
#[derive(Debug, Default)]
pub struct Promises {
    asked: Mutex<BTreeMap<u8, u64>>,
    promised: Mutex<BTreeMap<u8, u64>>,
    agent: OnceLock<Sender<Event>>,
}

impl Promises {
    /// This agent is told from now on; the first one is.
    pub fn tell(&self, agent: Sender<Event>) {
        let _ = self.agent.set(agent);
    }

    /// The backup with this number is asked for a promise.
    pub fn ask(&self, node: u8, number: u64) {
        lock(&self.asked).insert(node, number);
    }

    /// The owner with this number is promised what it has asked for.
    pub fn promise(&self, node: u8, number: u64) {
        lock(&self.promised).insert(node, number);
    }

    pub(super) fn take_asked(&self, node: u8) -> Option<u64> {
        lock(&self.asked).remove(&node)
    }

    pub(super) fn take_promised(&self, node: u8) -> Option<u64> {
        lock(&self.promised).remove(&node)
    }

    pub(super) fn hear_asked(&self, node: u8, number: u64) {
        self.say(Event::Asked(Node(node), number));
    }

    pub(super) fn hear_promised(&self, node: u8, number: u64) {
        self.say(Event::Promised(Node(node), number));
    }

    fn say(&self, event: Event) {
        if let Some(agent) = self.agent.get() {
            // Nobody listens any more: the gateway ends.
            let _ = agent.send(event);
        }
    }
}

fn lock(said: &Mutex<BTreeMap<u8, u64>>) -> MutexGuard<'_, BTreeMap<u8, u64>> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

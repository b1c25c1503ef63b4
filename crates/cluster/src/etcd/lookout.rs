//! What etcd has: all of it once, and then what changes. A watch that says nothing is no proof that nothing has happened, so after a while
//! a linearizable read confirms it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::timeout;

use super::connection::{Connection, EtcdError};
use super::keys::{Key, Keys};
use super::registration::revision;
use super::wire::{Change, KeyValue, RangeRequest, WatchRequest};
use crate::ownership::{
    Epoch, Event, Names, Node, NodeState, NodeValue, Presence, Reading, SliceValue, ValueError, Wish, WishValue,
};

/// How long a read may take.
pub(super) const LIMIT: Duration = Duration::from_millis(450);
/// A watch that was silent for so long is confirmed.
const SILENCE: Duration = Duration::from_millis(300);
/// From a read that failed to the next.
const PAUSE: Duration = Duration::from_millis(100);

/// Where it goes.
pub(super) struct Lookout<'a> {
    pub(super) connection: &'a Connection,
    pub(super) keys: &'a Keys,
    pub(super) names: &'a RefCell<Names>,
    pub(super) tell: &'a dyn Fn(Event),
    pub(super) fault: &'a dyn Fn(String),
}

/// The keys that are there, and when each was changed last.
type Known = BTreeMap<Vec<u8>, i64>;

impl Lookout<'_> {
    /// Tells what there is, for ever.
    pub(super) async fn keep(&self) {
        loop {
            let failed = match self.read().await {
                Ok((known, seen)) => self.follow(known, seen).await.err(),
                Err(error) => Some(error),
            };
            if let Some(error) = failed {
                (self.fault)(error.to_string());
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// All that there is.
    async fn read(&self) -> Result<(Known, i64), EtcdError> {
        let all = RangeRequest::below(self.keys.prefix());
        let all = self.connection.call(LIMIT, async |client| client.range(all).await).await?;
        let mut reading = Reading::default();
        for kv in &all.kvs {
            match self.seen(kv) {
                Ok(Some(Event::NodeSeen(node, presence))) => reading.nodes.push((node, presence)),
                Ok(Some(Event::SliceSeen(slice, assignment, at))) => reading.slices.push((slice, assignment, at)),
                Ok(Some(Event::Wished(wish))) => reading.wishes.take(wish),
                Ok(_) => {}
                Err(error) => self.say(kv, &error),
            }
        }
        (self.tell)(Event::Read(reading));
        let known = all.kvs.iter().map(|kv| (kv.key.clone(), kv.mod_revision)).collect();
        Ok((known, all.header.map_or(0, |header| header.revision)))
    }

    /// What changes, until the watch breaks or has missed something.
    async fn follow(&self, mut known: Known, seen: i64) -> Result<(), EtcdError> {
        let watch = WatchRequest::of(self.keys.prefix(), seen + 1);
        let mut watch = self.connection.call(LIMIT, async |client| client.watch(watch).await).await?;
        loop {
            match timeout(SILENCE, watch.message()).await {
                Ok(Ok(Some(response))) if !response.canceled => {
                    self.connection.hear();
                    for change in &response.events {
                        self.hear(change, &mut known);
                    }
                }
                Ok(_) => return Ok(()),
                Err(_) if self.confirm(&known).await? => {}
                Err(_) => return Ok(()),
            }
        }
    }

    fn hear(&self, change: &Change, known: &mut Known) {
        let Some(kv) = &change.kv else { return };
        if change.is_gone() {
            known.remove(&kv.key);
            self.gone(&kv.key).into_iter().for_each(self.tell);
            return;
        }
        known.insert(kv.key.clone(), kv.mod_revision);
        match self.seen(kv) {
            Ok(event) => event.into_iter().for_each(self.tell),
            Err(error) => self.say(kv, &error),
        }
    }

    /// What it says that a key is not there any more.
    fn gone(&self, key: &[u8]) -> Option<Event> {
        let number = |name: &str| self.names.borrow_mut().number(name);
        match self.keys.parse(key) {
            Key::Node(name) => Some(Event::NodeGone(number(name)?)),
            Key::WishOfNode(name) => Some(Event::Wished(Wish::Drain(number(name)?, false))),
            Key::WishOfSlice(slice) => Some(Event::Wished(Wish::Pin(slice, None))),
            Key::WishOfState(slice) => Some(Event::Wished(Wish::Assume(slice, None))),
            Key::WishToHold => Some(Event::Wished(Wish::Hold(false))),
            Key::Slice(_) | Key::Other => None,
        }
    }

    /// Whether there is nothing that the watch has not brought.
    async fn confirm(&self, known: &Known) -> Result<bool, EtcdError> {
        let newest = RangeRequest::below(self.keys.prefix()).newest();
        let newest = self.connection.call(LIMIT, async |client| client.range(newest).await).await?;
        let count = usize::try_from(newest.count).unwrap_or(usize::MAX);
        let changed = newest.kvs.first().map_or(0, |kv| kv.mod_revision);
        Ok(count == known.len() && changed == known.values().copied().max().unwrap_or(0))
    }

    /// What a key says.
    fn seen(&self, kv: &KeyValue) -> Result<Option<Event>, ValueError> {
        let names = &mut *self.names.borrow_mut();
        Ok(match self.keys.parse(&kv.key) {
            Key::Node(name) => {
                let value = NodeValue::parse(&kv.value)?;
                let node: Node = names.number(name).ok_or(ValueError::Nodes)?;
                let created = revision(kv.create_revision);
                let [is_serving, is_draining] =
                    [NodeState::Serving, NodeState::Draining].map(|state| value.state == state);
                let NodeValue { weight, began_bare, .. } = value;
                Some(Event::NodeSeen(node, Presence { created, is_serving, is_draining, weight, began_bare }))
            }
            Key::Slice(slice) => {
                let assignment = SliceValue::parse(&kv.value)?.assignment(names)?;
                Some(Event::SliceSeen(slice, assignment, revision(kv.mod_revision)))
            }
            Key::WishOfNode(name) => {
                let node = names.number(name).ok_or(ValueError::Nodes)?;
                Some(Event::Wished(Wish::Drain(node, WishValue::parse(&kv.value)?.drain)))
            }
            Key::WishOfSlice(slice) => {
                let node = WishValue::parse(&kv.value)?.node.and_then(|name| names.number(&name));
                Some(Event::Wished(Wish::Pin(slice, node)))
            }
            Key::WishOfState(slice) => {
                let epoch = WishValue::parse(&kv.value)?.epoch.map(Epoch);
                Some(Event::Wished(Wish::Assume(slice, epoch)))
            }
            Key::WishToHold => Some(Event::Wished(Wish::Hold(WishValue::parse(&kv.value)?.hold))),
            Key::Other => None,
        })
    }

    fn say(&self, kv: &KeyValue, error: &ValueError) {
        (self.fault)(format!("{}: {error}", String::from_utf8_lossy(&kv.key)));
    }
}

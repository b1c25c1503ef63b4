//! A node's own key, under its lease.

use std::time::Duration;

use super::connection::{Connection, EtcdError};
use super::keys::Keys;
use super::wire::{Compare, KeyValue, RequestOp, TxnRequest};
use crate::ownership::{Event, Lease, Moment, NodeValue, Revision, TTL};

/// How long each call may take.
const LIMIT: Duration = Duration::from_millis(450);

/// What is registered, and where.
pub(super) struct Registrar<'a> {
    pub(super) connection: &'a Connection,
    pub(super) keys: &'a Keys,
    pub(super) name: &'a str,
    pub(super) value: &'a NodeValue,
    /// This process has the tables of the one that made a key which is there.
    pub(super) has_adopted: bool,
    pub(super) clock: fn() -> Moment,
}

impl Registrar<'_> {
    /// A lease, and the key under it; or the one that is there, where that is of this life.
    pub(super) async fn register(&self) -> Result<Event, EtcdError> {
        let sent = (self.clock)();
        let seconds = i64::try_from(TTL / 1000).unwrap_or(2);
        let granted = self.connection.call(LIMIT, async |client| client.grant(seconds).await).await?;
        let key = self.keys.node(self.name);
        let value = self.value.emit().unwrap_or_default();
        let made = TxnRequest {
            compare: vec![Compare::made_at(key.clone(), 0)],
            failure: vec![RequestOp::get(&key)],
            success: vec![RequestOp::put(key, value, granted.id)],
        };
        let answer = self.connection.call(LIMIT, async |client| client.txn(made).await).await?;
        if answer.succeeded {
            return Ok(Event::Registered { lease: Lease(granted.id), created: revision(answer.revision()), sent });
        }
        match answer.found().flatten().next() {
            Some(found) if self.is_own(&found) => self.resume(found).await,
            _ => Ok(Event::NotRegistered),
        }
    }

    fn is_own(&self, found: &KeyValue) -> bool {
        let is_of_this_life =
            NodeValue::parse(&found.value).is_ok_and(|value| value.incarnation == self.value.incarnation);
        is_of_this_life || self.has_adopted
    }

    /// Goes on with the lease of the key that is there.
    async fn resume(&self, found: KeyValue) -> Result<Event, EtcdError> {
        let (lease, created) = (Lease(found.lease), revision(found.create_revision));
        let event = match self.renew(lease).await? {
            Event::Renewed { sent, .. } => Event::Registered { lease, created, sent },
            _ => return Ok(Event::NotRegistered),
        };
        self.describe(lease, created).await?;
        Ok(event)
    }

    /// One renewal. Without an answer nothing is told.
    pub(super) async fn renew(&self, lease: Lease) -> Result<Event, EtcdError> {
        let sent = (self.clock)();
        let is_renewed = self.connection.call(LIMIT, async |client| client.renew(lease.0).await).await?;
        Ok(if is_renewed { Event::Renewed { lease, sent } } else { Event::LeaseLost(lease) })
    }

    /// The key says what there is to be said now, if it is the one that was made then.
    pub(super) async fn describe(&self, lease: Lease, created: Revision) -> Result<(), EtcdError> {
        let key = self.keys.node(self.name);
        let value = self.value.emit().unwrap_or_default();
        let created = i64::try_from(created.0).unwrap_or(i64::MAX);
        let said = TxnRequest {
            compare: vec![Compare::made_at(key.clone(), created)],
            success: vec![RequestOp::put(key, value, lease.0)],
            failure: Vec::new(),
        };
        self.connection.call(LIMIT, async |client| client.txn(said).await).await.map(drop)
    }
}

pub(super) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or(0))
}

//! A node's own key, under its lease.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, Error, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse};

use super::connection::{Connection, EtcdError};
use super::keys::Keys;
use crate::ownership::{Event, Lease, Moment, NodeValue, Revision, TTL};

/// How long each call may take.
const LIMIT: Duration = Duration::from_millis(450);

/// The key as it was found.
struct Found {
    lease: i64,
    created: i64,
    value: Vec<u8>,
}

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
        let granted = self.connection.call(LIMIT, async |mut client| client.lease_grant(seconds, None).await).await?;
        let key = self.keys.node(self.name);
        let value = self.value.emit().unwrap_or_default();
        let put = TxnOp::put(key.as_str(), value, Some(PutOptions::new().with_lease(granted.id())));
        let made = Txn::new()
            .when([Compare::create_revision(key.as_str(), CompareOp::Equal, 0)])
            .and_then([put])
            .or_else([TxnOp::get(key.as_str(), Some(GetOptions::new()))]);
        let answer = self.connection.call(LIMIT, async |mut client| client.txn(made).await).await?;
        if answer.succeeded() {
            let created = revision(answer.header().map_or(0, etcd_client::ResponseHeader::revision));
            return Ok(Event::Registered { lease: Lease(granted.id()), created, sent });
        }
        let found = answer.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(get) => get.kvs().first().map(|kv| Found {
                lease: kv.lease(),
                created: kv.create_revision(),
                value: kv.value().to_vec(),
            }),
            _ => None,
        });
        match found {
            Some(found) if self.is_own(&found) => self.resume(found).await,
            _ => Ok(Event::NotRegistered),
        }
    }

    fn is_own(&self, found: &Found) -> bool {
        let is_of_this_life =
            NodeValue::parse(&found.value).is_ok_and(|value| value.incarnation == self.value.incarnation);
        is_of_this_life || self.has_adopted
    }

    /// Goes on with the lease of the key that is there.
    async fn resume(&self, found: Found) -> Result<Event, EtcdError> {
        let (lease, created) = (Lease(found.lease), revision(found.created));
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
        match self.connection.call(LIMIT, async |mut client| client.lease_keep_alive(lease.0).await).await {
            Ok(_) => Ok(Event::Renewed { lease, sent }),
            // The client's own words for a lifetime of 0.
            Err(EtcdError::Call { error: Error::LeaseKeepAliveError(said), .. }) if said == "lease not found" => {
                Ok(Event::LeaseLost(lease))
            }
            Err(error) => Err(error),
        }
    }

    /// The key says what there is to be said now, if it is the one that was made then.
    pub(super) async fn describe(&self, lease: Lease, created: Revision) -> Result<(), EtcdError> {
        let key = self.keys.node(self.name);
        let value = self.value.emit().unwrap_or_default();
        let created = i64::try_from(created.0).unwrap_or(i64::MAX);
        let put = TxnOp::put(key.as_str(), value, Some(PutOptions::new().with_lease(lease.0)));
        let said = Txn::new().when([Compare::create_revision(key.as_str(), CompareOp::Equal, created)]).and_then([put]);
        self.connection.call(LIMIT, async |mut client| client.txn(said).await).await.map(drop)
    }
}

pub(super) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or(0))
}

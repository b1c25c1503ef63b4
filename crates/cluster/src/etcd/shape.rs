//! What `tombolo cluster init` writes once, and all of what there is, for whoever asks for once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::client::{CallError, Client};
use super::connection::{Connection, Etcd, EtcdError};
use super::keys::{Key, Keys};
use super::wire::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest};
use crate::ownership::{NodeValue, Revision, SliceValue, ValueError, WishValue};

/// The version of the keys that this software knows.
const SCHEMA: u32 = 1;
/// How long is waited for an answer of one member.
const LIMIT: Duration = Duration::from_secs(1);
/// Digits of the secret.
const DIGITS: usize = 64;

/// The key of the hash that gives subscribers their slices.
pub type Secret = [u64; 4];

/// What stays as it is for as long as the cluster is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// How many slices there are.
    pub slices: u16,
    /// The key of the hash.
    pub secret: Secret,
}

/// All that there is.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    /// Nodes by their names, and when their keys were made.
    pub nodes: Vec<(String, Revision, NodeValue)>,
    /// Slices by their numbers.
    pub slices: Vec<(u16, SliceValue)>,
    /// The names of nodes that are to be drained.
    pub drained: BTreeSet<String>,
    /// Slices, and the names of the nodes that are to own them.
    pub pins: BTreeMap<u16, String>,
    /// Nothing is to move for the sake of balance.
    pub is_held: bool,
}

/// There is no shape.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// No member has answered.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// Nobody has written it.
    #[error("etcd knows no cluster of this name; run: tombolo cluster init")]
    Missing,
    /// Somebody has.
    #[error("etcd has a cluster of this name, and its shape stays")]
    There,
    /// Newer software has written it.
    #[error("the keys are of version {0}; this software knows version {SCHEMA}")]
    Schema(String),
    /// It cannot be read.
    #[error("{0} is not what it should be")]
    Malformed(&'static str),
    /// A value cannot be read.
    #[error("{0}: {1}")]
    Value(String, ValueError),
    /// There is no thread's worth of what it takes.
    #[error("waiting for etcd")]
    Io(#[from] std::io::Error),
}

#[derive(Serialize, Deserialize)]
struct ShapeValue {
    version: u32,
    slices: u16,
}

/// Writes the shape of a new cluster.
///
/// # Errors
/// [`ShapeError`]: [`There`](ShapeError::There) if there is one.
pub fn init(etcd: &Etcd, shape: Shape) -> Result<(), ShapeError> {
    let keys = Keys::of(&etcd.cluster);
    let value = serde_json::to_vec(&ShapeValue { version: SCHEMA, slices: shape.slices });
    let value = value.map_err(|_| ShapeError::Malformed("shape"))?;
    let secret: String = shape.secret.iter().map(|word| format!("{word:016x}")).collect();
    let all = [(keys.schema(), SCHEMA.to_string().into_bytes()), (keys.shape(), value), (keys.secret(), secret.into())];
    let begin = TxnRequest {
        compare: all.iter().map(|(key, _)| Compare::made_at(key.clone(), 0)).collect(),
        success: all.into_iter().map(|(key, value)| RequestOp::put(key, value, 0)).collect(),
        failure: Vec::new(),
    };
    let answer = once(etcd, async |client: Client| client.txn(begin.clone()).await)?;
    // A request that was not answered may have been carried out.
    if answer.succeeded || found(etcd)? == shape { Ok(()) } else { Err(ShapeError::There) }
}

/// The shape of a cluster.
///
/// # Errors
/// [`ShapeError`].
pub fn found(etcd: &Etcd) -> Result<Shape, ShapeError> {
    let keys = Keys::of(&etcd.cluster);
    let success = [keys.schema(), keys.shape(), keys.secret()].map(|key| RequestOp::get(&key)).to_vec();
    let read = TxnRequest { success, ..TxnRequest::default() };
    let answer = once(etcd, async |client: Client| client.txn(read.clone()).await)?;
    let mut values = answer.found().map(|found| found.map(|kv| kv.value));
    let mut next = || values.next().flatten().ok_or(ShapeError::Missing);
    let (schema, shape, secret) = (next()?, next()?, next()?);
    if schema != SCHEMA.to_string().as_bytes() {
        return Err(ShapeError::Schema(String::from_utf8_lossy(&schema).into_owned()));
    }
    let ShapeValue { slices, .. } = serde_json::from_slice(&shape).map_err(|_| ShapeError::Malformed("shape"))?;
    Ok(Shape { slices, secret: parse(&secret).ok_or(ShapeError::Malformed("secret"))? })
}

/// All nodes and slices.
///
/// # Errors
/// [`ShapeError`].
pub fn read_all(etcd: &Etcd) -> Result<Contents, ShapeError> {
    let keys = Keys::of(&etcd.cluster);
    let all = RangeRequest::below(keys.prefix());
    let answer = once(etcd, async |client: Client| client.range(all.clone()).await)?;
    let mut contents = Contents::default();
    for kv in &answer.kvs {
        take(&keys, kv, &mut contents)
            .map_err(|error| ShapeError::Value(String::from_utf8_lossy(&kv.key).into_owned(), error))?;
    }
    Ok(contents)
}

fn take(keys: &Keys, kv: &KeyValue, contents: &mut Contents) -> Result<(), ValueError> {
    match keys.parse(&kv.key) {
        Key::Node(name) => {
            let created = super::registration::revision(kv.create_revision);
            contents.nodes.push((name.to_owned(), created, NodeValue::parse(&kv.value)?));
        }
        Key::Slice(slice) => contents.slices.push((slice, SliceValue::parse(&kv.value)?)),
        Key::WishOfNode(name) if WishValue::parse(&kv.value)?.drain => contents.drained.extend([name.to_owned()]),
        Key::WishOfSlice(slice) => {
            contents.pins.extend(WishValue::parse(&kv.value)?.node.map(|node| (slice, node)));
        }
        Key::WishToHold => contents.is_held = WishValue::parse(&kv.value)?.hold,
        Key::WishOfNode(_) | Key::WishOfState(_) | Key::Other => {}
    }
    Ok(())
}

fn parse(secret: &[u8]) -> Option<Secret> {
    let text = std::str::from_utf8(secret).ok().filter(|text| text.len() == DIGITS)?;
    let word = |place: usize| u64::from_str_radix(text.get(place * 16..(place + 1) * 16)?, 16).ok();
    Some([word(0)?, word(1)?, word(2)?, word(3)?])
}

/// Asks each member in turn, until one answers.
pub(super) fn once<T>(etcd: &Etcd, ask: impl AsyncFn(Client) -> Result<T, CallError>) -> Result<T, ShapeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let connection = Connection::new(etcd.clone(), || ());
    runtime.block_on(async {
        let mut failed = EtcdError::Nowhere;
        for _ in &etcd.endpoints {
            match connection.call(LIMIT, &ask).await {
                Ok(answer) => return Ok(answer),
                Err(error) => failed = error,
            }
        }
        Err(failed.into())
    })
}

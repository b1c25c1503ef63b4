//! Transactions: what must hold, and what is written then.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::connection::{Connection, EtcdError};
use super::keys::Keys;
use super::registration::revision;
use super::wire::{Compare as Condition, RequestOp, TxnRequest};
use crate::ownership::{Compare, Event, Names, Revision, SliceValue, Transaction};

/// How long the answer is waited for. It may still be carried out.
const LIMIT: Duration = Duration::from_secs(1);

/// Has a transaction carried out; what became of it, and why that is not known.
pub(super) async fn transact(
    connection: &Connection,
    keys: &Keys,
    names: &Names,
    transaction: &Transaction,
) -> (Event, Option<EtcdError>) {
    let number = transaction.number;
    // Of a node that has no name nothing can be said: nothing was sent.
    let Some(request) = request(keys, names, transaction) else { return (Event::Refused(number), None) };
    match connection.call(LIMIT, async |client| client.txn(request).await).await {
        Ok(answer) if answer.succeeded => (Event::Done(number, revision(answer.revision())), None),
        Ok(_) => (Event::Refused(number), None),
        Err(error) => (Event::Unknown(number), Some(error)),
    }
}

fn request(keys: &Keys, names: &Names, transaction: &Transaction) -> Option<TxnRequest> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let since = u64::try_from(since).unwrap_or(u64::MAX);
    let put = |(slice, assignment): &(u16, _)| {
        let value = SliceValue::of(assignment, names, since).and_then(|value| value.emit()).ok()?;
        Some(RequestOp::put(keys.slice(*slice), value, 0))
    };
    let puts: Option<Vec<RequestOp>> = transaction.puts.iter().map(put).collect();
    let conditions: Option<Vec<Condition>> =
        transaction.compares.iter().map(|compare| condition(keys, names, *compare)).collect();
    Some(TxnRequest { compare: conditions?, success: puts?, failure: Vec::new() })
}

fn condition(keys: &Keys, names: &Names, compare: Compare) -> Option<Condition> {
    let number = |Revision(number)| i64::try_from(number).unwrap_or(i64::MAX);
    match compare {
        Compare::NodeIs(node, revision) => Some(Condition::made_at(keys.node(names.name(node)?), number(revision))),
        Compare::NodeIsNot(node, revision) => {
            Some(Condition::not_made_at(keys.node(names.name(node)?), number(revision)))
        }
        Compare::SliceIs(slice, revision) => Some(Condition::changed_at(keys.slice(slice), number(revision))),
    }
}

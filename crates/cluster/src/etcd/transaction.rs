//! Transactions: what must hold, and what is written then.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use etcd_client::{Compare as Condition, CompareOp, ResponseHeader, Txn, TxnOp};

use super::connection::{Connection, EtcdError};
use super::keys::Keys;
use super::registration::revision;
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
    match connection.call(LIMIT, async |mut client| client.txn(request).await).await {
        Ok(answer) if answer.succeeded() => {
            (Event::Done(number, revision(answer.header().map_or(0, ResponseHeader::revision))), None)
        }
        Ok(_) => (Event::Refused(number), None),
        Err(error) => (Event::Unknown(number), Some(error)),
    }
}

fn request(keys: &Keys, names: &Names, transaction: &Transaction) -> Option<Txn> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let since = u64::try_from(since).unwrap_or(u64::MAX);
    let put = |(slice, assignment): &(u16, _)| {
        let value = SliceValue::of(assignment, names, since).and_then(|value| value.emit()).ok()?;
        Some(TxnOp::put(keys.slice(*slice), value, None))
    };
    let puts: Option<Vec<TxnOp>> = transaction.puts.iter().map(put).collect();
    let conditions: Option<Vec<Condition>> =
        transaction.compares.iter().map(|compare| condition(keys, names, *compare)).collect();
    Some(Txn::new().when(conditions?).and_then(puts?))
}

fn condition(keys: &Keys, names: &Names, compare: Compare) -> Option<Condition> {
    let number = |Revision(number)| i64::try_from(number).unwrap_or(i64::MAX);
    let of_node = |node, revision, is: CompareOp| {
        Some(Condition::create_revision(keys.node(names.name(node)?), is, number(revision)))
    };
    match compare {
        Compare::NodeIs(node, revision) => of_node(node, revision, CompareOp::Equal),
        Compare::NodeIsNot(node, revision) => of_node(node, revision, CompareOp::NotEqual),
        Compare::SliceIs(slice, revision) => {
            Some(Condition::mod_revision(keys.slice(slice), CompareOp::Equal, number(revision)))
        }
    }
}

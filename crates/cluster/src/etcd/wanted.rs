//! What operators want: keys below `wishes/`, written once, and obeyed by all agents that read them.

use super::client::Client;
use super::connection::Etcd;
use super::keys::Keys;
use super::shape::{ShapeError, once};
use super::wire::{RequestOp, TxnRequest};
use crate::ownership::{Epoch, WishValue};

/// Steps of a transaction, at most: etcd takes 128 (`--max-txn-ops`).
const MOST_STEPS: usize = 64;

/// What is wanted, or no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Whether the node with this name is to be drained.
    Drain(String, bool),
    /// The name of the node that is to own a slice; whichever has room, if none.
    Pin(u16, Option<String>),
    /// Slices, and the epochs whose owners and backups are gone for good.
    Assume(Vec<(u16, Epoch)>),
    /// Whether slices are to stay where they are, but for what else is wanted.
    Hold(bool),
}

/// Writes it.
///
/// # Errors
/// [`ShapeError::Etcd`]: nobody knows whether it is written, and to write it again does no harm.
pub fn want(etcd: &Etcd, wanted: &Wanted) -> Result<(), ShapeError> {
    let keys = Keys::of(&etcd.cluster);
    let written = |key: String, value: WishValue| match value.emit() {
        Ok(value) => Ok(RequestOp::put(key, value, 0)),
        Err(error) => Err(ShapeError::Value(key, error)),
    };
    let steps: Result<Vec<RequestOp>, ShapeError> = match wanted {
        Wanted::Drain(node, true) => {
            written(keys.wish_of_node(node), WishValue { drain: true, ..WishValue::NONE }).map(|step| vec![step])
        }
        Wanted::Drain(node, false) => Ok(vec![RequestOp::remove(keys.wish_of_node(node))]),
        Wanted::Pin(slice, node @ Some(_)) => {
            written(keys.wish_of_slice(*slice), WishValue { node: node.clone(), ..WishValue::NONE })
                .map(|step| vec![step])
        }
        Wanted::Pin(slice, None) => Ok(vec![RequestOp::remove(keys.wish_of_slice(*slice))]),
        Wanted::Assume(slices) => {
            let assumed = |(slice, Epoch(epoch)): &(u16, Epoch)| {
                written(keys.wish_of_state(*slice), WishValue { epoch: Some(*epoch), ..WishValue::NONE })
            };
            slices.iter().map(assumed).collect()
        }
        Wanted::Hold(true) => {
            written(keys.wish_to_hold(), WishValue { hold: true, ..WishValue::NONE }).map(|step| vec![step])
        }
        Wanted::Hold(false) => Ok(vec![RequestOp::remove(keys.wish_to_hold())]),
    };
    for steps in steps?.chunks(MOST_STEPS) {
        let txn = TxnRequest { success: steps.to_vec(), ..TxnRequest::default() };
        once(etcd, async |client: Client| client.txn(txn.clone()).await)?;
    }
    Ok(())
}

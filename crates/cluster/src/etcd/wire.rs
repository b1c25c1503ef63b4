//! What is said to etcd and by it, as far as it is needed here: messages of Protocol Buffers by etcd's `rpc.proto` and `kv.proto`,
//! version 3.4. Written by hand, so that building needs no protoc; a test has their bytes.

use prost::{Message, Oneof};

/// In front of each answer.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    /// That of the whole store.
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

/// A key with its value.
#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

/// Keys are asked for.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    /// Behind the last key; empty: there is one key.
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
    /// 0: no limit.
    #[prost(int64, tag = "3")]
    limit: i64,
    /// 2: the highest first.
    #[prost(int32, tag = "5")]
    sort_order: i32,
    /// 3: by the revisions at which they were changed.
    #[prost(int32, tag = "6")]
    sort_target: i32,
    #[prost(bool, tag = "8")]
    keys_only: bool,
}

/// The keys.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    /// How many there are, limit or not.
    #[prost(int64, tag = "4")]
    pub(super) count: i64,
}

/// A key gets a value.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    /// 0: none.
    #[prost(int64, tag = "3")]
    lease: i64,
}

/// It has it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PutResponse {}

/// A key is removed.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

/// There is none any more.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeResponse {}

/// What must hold for a transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    /// 0: equal, 3: not equal.
    #[prost(int32, tag = "1")]
    result: i32,
    /// 1: the revision at which the key was made, 2: at which it was changed.
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(oneof = "Revision", tags = "5, 6")]
    revision: Option<Revision>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Revision {
    #[prost(int64, tag = "5")]
    Create(i64),
    #[prost(int64, tag = "6")]
    Mod(i64),
}

/// A step of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    request: Option<Request>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

/// What came of a step.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(oneof = "Response", tags = "1, 2, 3")]
    response: Option<Response>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Response {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeResponse),
}

/// A transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    /// Steps if all compares hold,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    /// and if not.
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

/// What came of it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    responses: Vec<ResponseOp>,
}

/// A lease is asked for.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    /// In seconds.
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

/// The lease.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
}

/// A lease is renewed.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

/// It is, or there is none.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeepAliveResponse {
    /// 0: there is none.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

/// What changes is asked for.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    start_revision: i64,
}

/// What has changed.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    /// Nothing more comes.
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Change>,
}

/// A change of a key.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Change {
    /// 0: it has got a value, 1: it is gone.
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

impl RangeRequest {
    /// One key.
    pub(super) fn of(key: &str) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    /// All keys that begin so.
    pub(super) fn below(prefix: &str) -> Self {
        Self { range_end: end(prefix), ..Self::of(prefix) }
    }

    /// Of these only the key that was changed last, without its value.
    pub(super) fn newest(self) -> Self {
        Self { limit: 1, sort_order: 2, sort_target: 3, keys_only: true, ..self }
    }
}

/// Behind all keys that begin so.
fn end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // Names of keys are text: no byte of them is 0xff.
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

impl Compare {
    /// A key was made at this revision; 0: there is none.
    pub(super) fn made_at(key: String, revision: i64) -> Self {
        Self { result: 0, target: 1, key: key.into(), revision: Some(Revision::Create(revision)) }
    }

    /// It was not.
    pub(super) fn not_made_at(key: String, revision: i64) -> Self {
        Self { result: 3, ..Self::made_at(key, revision) }
    }

    /// It was changed last at this revision; 0: there is none.
    pub(super) fn changed_at(key: String, revision: i64) -> Self {
        Self { result: 0, target: 2, key: key.into(), revision: Some(Revision::Mod(revision)) }
    }
}

impl RequestOp {
    pub(super) fn get(key: &str) -> Self {
        Self { request: Some(Request::Range(RangeRequest::of(key))) }
    }

    pub(super) fn put(key: String, value: Vec<u8>, lease: i64) -> Self {
        Self { request: Some(Request::Put(PutRequest { key: key.into(), value, lease })) }
    }

    pub(super) fn remove(key: String) -> Self {
        Self { request: Some(Request::DeleteRange(DeleteRangeRequest { key: key.into() })) }
    }
}

impl TxnResponse {
    /// What each step found: nothing for one that asked for nothing.
    pub(super) fn found(self) -> impl Iterator<Item = Option<KeyValue>> {
        self.responses.into_iter().map(|response| match response.response {
            Some(Response::Range(range)) => range.kvs.into_iter().next(),
            _ => None,
        })
    }

    pub(super) fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }
}

impl WatchRequest {
    /// What changes of keys that begin so, from this revision on.
    pub(super) fn of(prefix: &str, start_revision: i64) -> Self {
        let create = WatchCreateRequest { key: prefix.into(), range_end: end(prefix), start_revision };
        Self { create: Some(create) }
    }
}

impl Change {
    pub(super) fn is_gone(&self) -> bool {
        self.kind == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_bytes_of_protocol_buffers() {
        assert_eq!(RangeRequest::below("/t/").encode_to_vec(), b"\x0a\x03/t/\x12\x03/t0");
        assert_eq!(RangeRequest::of("k").newest().encode_to_vec(), b"\x0a\x01k\x18\x01\x28\x02\x30\x03\x40\x01");
        let txn = TxnRequest {
            compare: vec![Compare::not_made_at("n".to_owned(), 7), Compare::changed_at("s".to_owned(), 0)],
            success: vec![RequestOp::put("s".to_owned(), b"v".to_vec(), 5)],
            failure: vec![RequestOp::get("n")],
        };
        let compares = b"\x0a\x09\x08\x03\x10\x01\x1a\x01n\x28\x07\x0a\x07\x10\x02\x1a\x01s\x30\x00";
        let steps = b"\x12\x0a\x12\x08\x0a\x01s\x12\x01v\x18\x05\x1a\x05\x0a\x03\x0a\x01n";
        assert_eq!(txn.encode_to_vec(), [compares.as_slice(), steps].concat());
        assert_eq!(RequestOp::remove("k".to_owned()).encode_to_vec(), b"\x1a\x03\x0a\x01k");
        assert_eq!(WatchRequest::of("/t/", 9).encode_to_vec(), b"\x0a\x0c\x0a\x03/t/\x12\x03/t0\x18\x09");
    }

    #[test]
    fn what_is_not_needed_of_an_answer_is_left_out() {
        // Member and term in the header; "more" behind the keys; a version in the key.
        let bytes = b"\x0a\x06\x10\x01\x18\x2a\x20\x03\x12\x0e\x0a\x01k\x10\x02\x18\x03\x20\x09\x2a\x01v\x30\x04\x18\x01\x20\x01";
        let range = RangeResponse::decode(bytes.as_slice()).unwrap();
        assert_eq!((range.header.unwrap().revision, range.count), (42, 1));
        let kv = KeyValue { key: b"k".to_vec(), create_revision: 2, mod_revision: 3, value: b"v".to_vec(), lease: 4 };
        assert_eq!(range.kvs, std::slice::from_ref(&kv));
        let change = Change { kind: 1, kv: Some(kv) };
        let watch = WatchResponse { canceled: false, events: vec![change] };
        assert!(WatchResponse::decode(watch.encode_to_vec().as_slice()).unwrap().events[0].is_gone());
    }
}

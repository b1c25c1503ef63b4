//! Numbers by which etcd and the agent know things.

/// The revision of etcd at which a key was made, or changed for the last time. 0: there is no such key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

/// The number of a lease in etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease(pub i64);

/// The number of a transaction, by which its answer is told from others'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Number(pub u64);

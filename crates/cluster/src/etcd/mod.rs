//! The adapter to etcd: what an agent wants done there ([`Action`](crate::ownership::Action)) becomes requests, and what etcd says
//! becomes events ([`Event`](crate::ownership::Event)). It decides nothing.
//!
//! ```text
//! /tombolo/<cluster>/schema         1
//! /tombolo/<cluster>/shape          {"version":1,"slices":256}
//! /tombolo/<cluster>/secret         64 hexadecimal digits
//! /tombolo/<cluster>/nodes/<name>   ownership::NodeValue, under the node's lease
//! /tombolo/<cluster>/slices/<nnnn>  ownership::SliceValue
//! /tombolo/<cluster>/wishes/...      ownership::WishValue, written by operators: nodes/<name>, slices/<nnnn>, assumed/<nnnn>, held
//! ```
//!
//! Each call has a time limit, and who does not answer within it is asked no more before all others were: a member that is dead, or cut
//! off from the others, costs one call. What is sent and not answered may have been carried out all the same, so the answer is
//! that nobody knows.

mod adapter;
mod client;
mod connection;
mod credentials;
mod keys;
mod lookout;
mod registration;
mod shape;
mod transaction;
mod wanted;
mod wire;

pub use adapter::{Adapter, Driver, Own};
pub use client::CallError;
pub use connection::{Etcd, EtcdError};
pub use credentials::Credentials;
pub use shape::{Contents, Secret, Shape, ShapeError, found, init, read_all};
pub use wanted::{Wanted, want};

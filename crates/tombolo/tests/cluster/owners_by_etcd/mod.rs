//! Nodes agree by etcd on who owns what: each row of the table of failures in docs/cluster.md is a case here. A case that is over is
//! mended, and the next one begins when all slices are protected again.

mod bed;
mod limits;
mod members;
mod paths;
mod shown;
mod takeover;
mod together;

/// What a lab of these needs.
const PROGRAMS: [&str; 5] = ["bird", "etcd", "etcdctl", "ip", "openssl"];

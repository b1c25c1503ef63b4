//! How a node is known to etcd.

/// Certificates, in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// Of those who may certify members.
    pub ca: Vec<u8>,
    /// The node's own.
    pub certificate: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
}

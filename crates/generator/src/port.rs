//! Where frames leave and arrive.

use crate::namespace::Namespace;

/// One of the tester's two interfaces.
#[derive(Clone, Debug)]
pub struct Port {
    /// Interface name.
    pub name: String,
    /// The namespace it is in; `None` for this process's.
    pub namespace: Option<Namespace>,
}

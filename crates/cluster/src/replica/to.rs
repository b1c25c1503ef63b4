//! Both ways that records go.

/// To whom records go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// The node with this number, what this one owns and that one backs up.
    Backup(u8),
    /// The node with this number, what that one owns and this one backs up.
    Owner(u8),
}

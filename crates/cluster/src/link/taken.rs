//! A slice that its new owner has taken over, as it is said.

/// A slice that was taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Its number.
    pub slice: u16,
    /// How many owners it has had, the new one among them.
    pub epoch: u32,
}

//! The two sides of a gateway.

/// Where a packet comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Side {
    /// The subscribers' side.
    Inside = 0,
    /// The public IPv4 side.
    Outside = 1,
}

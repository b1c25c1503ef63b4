//! The services, one file each. A service only composes mechanisms and mappings.

pub mod nat44;
pub mod nat64;
pub mod siit;

pub(crate) mod own;
pub(crate) mod stateful;

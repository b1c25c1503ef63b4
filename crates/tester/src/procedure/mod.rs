//! The procedures, one file or folder each.

pub mod route_lookup;
pub mod tcp;

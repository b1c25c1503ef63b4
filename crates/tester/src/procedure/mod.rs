//! The procedures, one file each.

pub mod tcp;

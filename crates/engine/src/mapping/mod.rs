//! How addresses and ports of one side belong to those of the other.

pub mod eam;
pub mod pool;
pub mod stateless;

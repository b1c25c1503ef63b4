//! How addresses and ports of one side belong to those of the other.

pub mod address_ranges;
pub mod allocation;
pub mod assigned;
pub mod deterministic;
pub mod dynamic_pool;
pub mod eam;
pub(crate) mod embedding;
pub mod error_sources;
pub mod exemptions;
pub mod map_domain;
pub mod map_rule;
pub mod networks;
pub mod pool;
pub mod port_ranges;
pub mod port_set;
pub mod port_space;
pub mod slices;
pub mod softwire_table;
pub mod stateless;

mod ranges;

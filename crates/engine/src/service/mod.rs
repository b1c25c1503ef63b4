//! The services, one file each. A service only composes mechanisms and mappings.

pub mod aftr;
pub mod b4;
pub mod lwaftr;
pub mod lwb4;
pub mod map;
pub mod map_e_br;
pub mod map_e_ce;
pub mod map_t_br;
pub mod map_t_ce;
pub mod nat44;
pub mod nat64;
pub mod siit;

pub(crate) mod napt44;
pub(crate) mod own;
pub(crate) mod softwires;
pub(crate) mod stateful;

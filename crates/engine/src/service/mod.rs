//! The services, one file each. A service only composes mechanisms and mappings.
//!
//! What the engine asks of a service is the trait in `serve`. To add one: a file that implements it,
//! and a line in [`list`].

pub mod aftr;
pub mod b4;
pub mod list;
pub mod lwaftr;
pub mod lwb4;
pub mod map;
pub mod map_e_br;
pub mod map_e_ce;
pub mod map_t_br;
pub mod map_t_ce;
pub mod nat44;
pub mod nat64;
mod serve;
mod shape;
pub mod siit;

pub use list::{Service, ServiceKind};
pub use shape::Shape;

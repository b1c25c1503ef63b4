//! The services, one file each. A service only composes mechanisms and mappings.

pub mod aftr;
pub mod b4;
pub mod lwaftr;
pub mod lwb4;
pub mod nat44;
pub mod nat64;
pub mod siit;

pub(crate) mod napt44;
pub(crate) mod softwires;
pub(crate) mod stateful;

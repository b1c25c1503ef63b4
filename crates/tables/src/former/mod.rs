//! Tables of an earlier process, read by what lies beside them says of their bytes
//! ([`description`]): this program may have other records, in other places, and another hash.
//!
//! Records are gone through one by one and nothing is looked up, so no index is needed. Programs in
//! the kernel may still work on the tables.

pub mod description;
mod reader;

pub use description::{Description, DescriptionError};
pub use reader::{FormerMemory, FormerSubscriber, FormerTables};

//! The accelerator inside the kernel: programs in C (`bpf/`), their loader, and the memory that
//! they share with the tables of this process.
//!
//! ```no_run
//! # fn example(plan: &tombolo_engine::Plan, key: tombolo_tables::hash::HashKey) -> Result<(), Box<dyn std::error::Error>> {
//! use std::path::Path;
//! use tombolo_fastpath::{FastPath, Mode, PinnedMemory, Settings};
//! use tombolo_tables::Tables;
//!
//! // The tables lie in arrays that the kernel keeps, pinned below /sys/fs/bpf.
//! let mut memory = PinnedMemory::open(Path::new("/sys/fs/bpf/tombolo"), "what the tables were made for")?;
//! let tables = Tables::new(&mut memory, plan.capacity, key)?;
//! // The programs are loaded for one plan; `update` replaces them for another.
//! let mut fast_path = FastPath::load(&memory, &tables, plan, Settings::default())?;
//! fast_path.attach("eth0", Mode::Tc)?;
//! println!("{:?}", fast_path.counters()?);
//! // Dropping leaves the programs attached; this takes them away.
//! fast_path.detach("eth0")?;
//! # Ok(())
//! # }
//! ```
//!
//! What `fast_path` does not take goes on to the kernel's routes, and so to the engine. It may be
//! missing, fail to load, or be switched off at any time: that changes speed and nothing else.
//!
//! * [`pinned`]: BPF arrays as memory for the tables that outlives the process.
//! * [`loader`], with [`FastPath`]; [`mode`] and [`error`].
//! * [`file_system`]: where the kernel keeps what is pinned, and for how long.
//! * [`Slices`]: which node of a cluster serves what.
//! * [`counters`], [`miss`]: what the programs did, and what they left to the engine.
//! * [`tap`]: packets that the programs show while somebody traces.
//! * [`memory`]: one BPF array, mapped.
//! * [`Injector`]: packets that come in as if they had been received.
//! * [`trial`]: the programs on single packets, for tests.
//! * [`lpm`]: the reader of `bpf/lpm.h` on its own, to compare it with the one in Rust.

mod cluster;
pub mod counters;
pub mod error;
pub mod file_system;
mod filter;
mod injection;
mod interface;
pub mod loader;
mod lookup;
mod losses;
pub mod lpm;
pub mod memory;
pub mod miss;
pub mod mode;
mod part;
pub mod pinned;
mod plan;
mod record;
mod routes;
mod service;
mod slices;
pub mod tap;
pub mod trial;

pub use counters::{Counters, Forwarded};
pub use error::FastPathError;
pub use injection::Injector;
pub use loader::{FastPath, Loaded, Lost};
pub use miss::Miss;
pub use mode::{Attached, Mode, TcKind};
pub use pinned::{Content, PinnedMemory, PinnedMemoryError};
pub use plan::{ServiceStatus, Settings};
pub use routes::{Routes, RoutesError};
pub use slices::{Slices, SlicesError};

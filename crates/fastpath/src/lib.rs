//! The accelerator inside the kernel: programs in C (`bpf/`), their loader, and the memory that they share with
//! the tables of this process.
//!
//! * [`memory`]: BPF arrays as memory for the tables.
//! * [`lpm`]: the reader of `bpf/lpm.h` on its own, to compare it with the one in Rust.

pub mod lpm;
pub mod memory;

//! The five technologies with the kernel's fast path: everything that works without works with it.
//! Needs root and skips loudly without it.

#[path = "softwires.rs"]
mod softwires_with_tc;

#[path = "scenarios.rs"]
mod scenarios_with_tc;

//! The mirror of the kernel's routes.

use std::sync::atomic::AtomicU32;

tombolo_records::constants! {
    /// In the next hop of a route: all its packets go by one gateway
    /// (crates/io/src/netlink/targets.rs).
    pub(crate) const ROUTE_BY_GATEWAY: u32 = 1;
    /// Each of its packets goes to its destination, on one link.
    pub(crate) const ROUTE_ON_LINK: u32 = 2;
}

tombolo_records::records! {
    /// Whether the mirror counts.
    line pub(crate) struct RouteWatch as route_watch {
        /// It does in ticks before this one.
        until: AtomicU32,
        /// Rises with each change that makes a next hop another one.
        generation: AtomicU32,
        unused: [AtomicU32; 14],
    }
}

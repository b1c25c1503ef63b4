//! The kernel's routes as the programs read them, to know which destinations share a next hop:
//! `bpf/route.h`.
//!
//! ```text
//! kernel --netlink--> Mirror --> routes_ipv4, routes_ipv6 --> programs: gateway of a destination
//!                       |                                     --> next hop, asked once a second
//!                       +------> route_watch: until which tick the mirror counts, and a number
//!                                that rises with each change
//! ```
//!
//! Without the mirror XDP asks the kernel for the next hop of each destination, and remembers a
//! thousand of them; TC leaves the routing to the kernel's stack. Nothing but speed depends on the
//! mirror: what it is not certain of goes without it.
//!
//! The arrays belong to one process. The next one makes new ones, so that a mirror under
//! construction is never read by programs of the process before; those read the old one until it
//! does not count any more, two ticks after the last confirmation.

use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tombolo_io::netlink::{BY_GATEWAY, Mirror, MirrorError, ON_LINK};
use tombolo_tables::lpm::epoch::Epochs;
use tombolo_tables::memory::{MemoryError, Record, Slab};
use tombolo_tables::tick::Tick;

use crate::pinned::PinnedMemory;
use crate::record::{ROUTE_BY_GATEWAY, ROUTE_ON_LINK, RouteWatch};

/// Room for routes of each family, if the kernel has fewer than half as many.
const LEAST_ROOM: usize = 1 << 14;
/// Ticks that a confirmation holds for: this one and the next.
const CONFIRMED: u32 = 2;

const NAMES: [&str; 3] = ["routes-ipv4", "routes-ipv6", "route-watch"];

const _: () = assert!(ROUTE_BY_GATEWAY == BY_GATEWAY && ROUTE_ON_LINK == ON_LINK);

// SAFETY: atomics.
unsafe impl Record for RouteWatch {}

/// The routes cannot be mirrored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoutesError {
    /// The kernel's routes.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// The memory that the program reads.
    #[error("there is no memory for the routes")]
    Memory(#[from] MemoryError),
    /// An array of an earlier process.
    #[error("the routes of an earlier process cannot be removed")]
    Remove(#[source] std::io::Error),
}

/// The mirror that the programs read, until it is dropped.
#[derive(Debug)]
pub struct Routes {
    mirror: Mirror,
    watch: Slab<RouteWatch>,
}

impl Routes {
    /// Mirrors the routes of the calling thread's network namespace into `memory`. To be made
    /// before the programs are loaded ([`FastPath::load`](crate::FastPath::load)), which look for
    /// it there.
    ///
    /// # Errors
    /// [`RoutesError`].
    pub fn open(memory: &PinnedMemory) -> Result<Self, RoutesError> {
        memory.forget(&NAMES).map_err(RoutesError::Remove)?;
        let mut memory = memory;
        let room = Mirror::count_routes()?.saturating_mul(2).next_power_of_two().max(LEAST_ROOM);
        let mirror = Mirror::open(&mut memory, room)?;
        mirror.epochs().into_iter().for_each(Epochs::expect_kernel);
        let watch = Slab::take(&mut memory, NAMES[2], 1)?;
        let routes = Self { mirror, watch };
        routes.confirm(true);
        Ok(routes)
    }

    /// Waits for changes, at most `limit`, and applies them. To be called again and again: after
    /// two seconds without, the programs stop counting on the mirror.
    ///
    /// # Errors
    /// [`RoutesError::Mirror`]. The mirror goes on with the next call.
    pub fn follow(&mut self, limit: Duration) -> Result<(), RoutesError> {
        let followed = self.mirror.follow(limit);
        match &followed {
            Ok(changed) => self.confirm(*changed),
            Err(_) => self.watch[0].until.store(0, Ordering::Release),
        }
        Ok(followed.map(|_| ())?)
    }

    /// Why the programs ask for each destination; nothing if they need not.
    #[must_use]
    pub fn falls_short(&self) -> Option<&'static str> {
        self.mirror.falls_short()
    }

    /// Prefixes that have a route.
    #[must_use]
    pub fn prefixes(&self) -> usize {
        self.mirror.prefixes()
    }

    fn confirm(&self, changed: bool) {
        if changed {
            self.watch[0].generation.fetch_add(1, Ordering::Release);
            self.let_go();
        }
        let until = if self.mirror.falls_short().is_some() { 0 } else { now().0 + CONFIRMED };
        self.watch[0].until.store(until, Ordering::Release);
    }

    /// Waits until no program reads what was replaced, and lets it be used again.
    fn let_go(&self) {
        let epochs = self.mirror.epochs();
        let seen = epochs.map(Epochs::current);
        // SAFETY: the call has no memory to do with.
        if unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) } == 0 {
            epochs.into_iter().zip(seen).for_each(|(epochs, epoch)| epochs.kernel_passed(epoch));
        }
    }
}

impl Drop for Routes {
    fn drop(&mut self) {
        self.watch[0].until.store(0, Ordering::Release);
    }
}

fn now() -> Tick {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map(Duration::from).unwrap_or_default();
    Tick::from_nanos(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

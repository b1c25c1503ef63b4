//! A moment.

use tombolo_tables::tick::Tick;

/// A moment: nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now(pub u64);

impl Now {
    /// The same moment on the tables' clock.
    #[must_use]
    pub const fn tick(self) -> Tick {
        Tick::from_nanos(self.0)
    }

    /// The moment `ticks` ticks later.
    #[must_use]
    pub const fn after_ticks(self, ticks: u32) -> Self {
        Self(self.0 + ((ticks as u64) << Tick::SHIFT))
    }
}

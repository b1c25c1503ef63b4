//! A host's clock: it has a rate, and stops where a virtual machine is paused together with it.

use tombolo_cluster::ownership::Moment;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// Parts of a million of the true rate.
    rate: u64,
    /// Microseconds that it showed at a true time.
    shown: u64,
    at: u64,
    is_stopped: bool,
}

impl Clock {
    pub(crate) const fn new(rate: u64, shown: u64) -> Self {
        Self { rate, shown, at: 0, is_stopped: false }
    }

    pub(crate) fn micros(&self, now: u64) -> u64 {
        if self.is_stopped { self.shown } else { self.shown + (now - self.at) * self.rate / 1_000_000 }
    }

    pub(crate) fn moment(&self, now: u64) -> Moment {
        Moment(self.micros(now) / 1000)
    }

    pub(crate) const fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    pub(crate) fn stop(&mut self, now: u64) {
        (self.shown, self.at, self.is_stopped) = (self.micros(now), now, true);
    }

    pub(crate) fn go_on(&mut self, now: u64) {
        (self.at, self.is_stopped) = (now, false);
    }
}

//! What was found to have no free port, so that a flood does not search it again and again.

use std::net::Ipv4Addr;

use tombolo_tables::subscriber::SubscriberId;
use tombolo_tables::tick::Tick;

use crate::mapping::pool::PortSpace;

/// A small memory of what has no free port, good for the tick.
#[derive(Debug, Clone)]
pub struct Exhausted([(u64, Tick); 64]);

impl Default for Exhausted {
    fn default() -> Self {
        Self([(0, Tick(0)); 64])
    }
}

impl Exhausted {
    pub(super) fn address(address: Ipv4Addr, space: PortSpace) -> u64 {
        1 << 40 | u64::from(address.to_bits()) << 2 | space as u64
    }

    pub(super) fn subscriber(id: SubscriberId, space: PortSpace) -> u64 {
        2 << 40 | u64::from(id.get()) << 2 | space as u64
    }

    pub(super) fn share(id: SubscriberId, space: PortSpace) -> u64 {
        3 << 40 | u64::from(id.get()) << 2 | space as u64
    }

    fn slot(key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
    }

    pub(super) fn contains(&self, key: u64, now: Tick) -> bool {
        self.0[Self::slot(key)] == (key, now)
    }

    pub(super) fn note(&mut self, key: u64, now: Tick) {
        self.0[Self::slot(key)] = (key, now);
    }
}

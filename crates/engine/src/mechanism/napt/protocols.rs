//! Which protocols a service translates.

use crate::mapping::pool::PortSpace;

/// Which protocols a service translates: TCP, UDP and ICMP always, others by choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocols(u8);

impl Protocols {
    /// TCP, UDP and ICMP, and `further` ones.
    #[must_use]
    pub fn with(further: impl IntoIterator<Item = PortSpace>) -> Self {
        let all = PortSpace::WITH_SLOTS.into_iter().chain(further);
        Self(all.fold(0, |bits, space| bits | 1 << space as u8))
    }

    /// True if `space` is among them.
    #[inline]
    #[must_use]
    pub const fn has(self, space: PortSpace) -> bool {
        self.0 >> space as u8 & 1 != 0
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = PortSpace> {
        PortSpace::ALL.into_iter().filter(move |space| self.has(*space))
    }
}

impl Default for Protocols {
    /// Those with ports: whoever uses them takes nothing from others but a port. Of ESP and GRE one
    /// host has a whole address.
    fn default() -> Self {
        Self::with([PortSpace::Sctp, PortSpace::Dccp, PortSpace::UdpLite])
    }
}

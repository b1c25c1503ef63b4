//! UDP ports of remotes whose datagrams keep a binding for less than others do: DNS and the like.
//!
//! Read first: RFC 4787 REQ-5.
//!
//! A datagram to or from such a port counts as one that came earlier, by what its time is shorter than
//! the usual one. So a binding that is used for DNS alone ends soon; one that is used for something else
//! as well ends when the last of its uses does, as if each had a session of its own. Nothing has to be
//! remembered for it.

use tombolo_tables::tick::{Tick, ticks};
use tombolo_wire::Port;

use crate::mapping::pool::PortSpace;

/// A port with a time of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShortPort {
    /// The port of the remote.
    pub port: Port,
    /// By how many ticks a datagram counts as earlier; 0 ends the list.
    pub earlier: u32,
}

/// The ports that have times of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShortPorts([ShortPort; Self::MOST]);

impl ShortPorts {
    /// So many there may be.
    pub const MOST: usize = 8;

    /// `ports` with their seconds, where the usual time is `usual` ticks. Of more than [`Self::MOST`] the
    /// first count; those that are not shorter have no effect.
    #[must_use]
    pub fn new(ports: &[(Port, u32)], usual: u32) -> Self {
        let shorter = ports.iter().filter_map(|&(port, seconds)| {
            let earlier = usual.saturating_sub(ticks(seconds));
            (earlier > 0).then_some(ShortPort { port, earlier })
        });
        let mut found = Self::default();
        for (entry, short) in found.0.iter_mut().zip(shorter) {
            *entry = short;
        }
        found
    }

    /// The ports.
    pub fn iter(&self) -> impl Iterator<Item = &ShortPort> {
        self.0.iter().take_while(|short| short.earlier > 0)
    }

    /// The moment that a packet of `space`, to or from port `remote` of a remote, counts as at `now`.
    #[inline]
    #[must_use]
    pub fn counts_as(&self, space: PortSpace, remote: Port, now: Tick) -> Tick {
        if self.0[0].earlier == 0 || space != PortSpace::Udp {
            return now;
        }
        let short = self.iter().find(|short| short.port == remote);
        // Tick 0 means "never".
        short.map_or(now, |short| Tick(now.0.saturating_sub(short.earlier).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_datagrams_of_the_ports_count_as_earlier() {
        let ports = ShortPorts::new(&[(Port(53), 30), (Port(123), 300), (Port(161), 60)], ticks(300));
        assert_eq!(ports.iter().map(|short| short.port.0).collect::<Vec<_>>(), [53, 161]);
        let at = |space, port| ports.counts_as(space, Port(port), Tick(1000)).0;
        assert_eq!(at(PortSpace::Udp, 53), 1000 - (ticks(300) - ticks(30)));
        assert_eq!(at(PortSpace::Udp, 123), 1000);
        assert_eq!(at(PortSpace::Udp, 5353), 1000);
        assert_eq!(at(PortSpace::Tcp, 53), 1000);
        assert_eq!(ports.counts_as(PortSpace::Udp, Port(53), Tick(5)), Tick(1));
        assert_eq!(ShortPorts::default().counts_as(PortSpace::Udp, Port(0), Tick(9)), Tick(9));
    }
}

//! The tester's own two ports: what they are, for who reads a result, and what they dropped.

use serde::Serialize;
pub use tombolo_generator::Port;
use tombolo_generator::{Interface, Outcome, PortXdp, port_counters};

/// A port, as results have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortRecord {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// Megabits a second; absent where there is no link, or the driver does not say.
    pub speed_mbps: Option<u32>,
    /// Whether both ends may send at once; absent likewise.
    pub full_duplex: Option<bool>,
    /// The longest IP packet, bytes.
    pub mtu: u32,
    /// Where the receiver runs: `native`, in the driver, or `generic`, in the kernel on a copy.
    pub xdp: &'static str,
    /// Time stamps by a clock of its own; the tester does not use them.
    pub hardware_timestamps: &'static str,
    /// All of it in words.
    #[serde(skip)]
    words: String,
}

impl PortRecord {
    /// What the kernel says of it.
    pub fn of(port: &Port, xdp: &PortXdp) -> PortRecord {
        let Interface { driver, speed_mbps, full_duplex, mtu, .. } = xdp.interface.clone();
        PortRecord {
            name: port.name.clone(),
            driver,
            speed_mbps,
            full_duplex,
            mtu,
            xdp: if xdp.is_native { "native" } else { "generic" },
            hardware_timestamps: hardware_timestamps(&xdp.interface),
            words: xdp.interface.to_string(),
        }
    }

    /// For people.
    pub fn in_words(&self) -> String {
        format!("{}: {}, {} XDP", self.name, self.words, self.xdp)
    }
}

/// Which time stamps an interface offers, and what the tester does with them.
pub(crate) fn hardware_timestamps(interface: &Interface) -> &'static str {
    match interface.hardware_timestamps {
        (false, false) => "none",
        (true, false) => "on sending, not used",
        (false, true) => "on receiving, not used",
        (true, true) => "on both, not used",
    }
}

/// Those whose drops are the tester's own. A virtual cable counts as dropped what its other end, the
/// gateway, had no room for.
pub(crate) fn with_drops_of_their_own(ports: &[Port; 2], xdp: &[PortXdp; 2]) -> Vec<Port> {
    let own = ports.iter().zip(xdp).filter(|(_, xdp)| !xdp.interface.is_virtual_cable());
    own.map(|(port, _)| port.clone()).collect()
}

/// Frames that ports dropped since they were made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortDrops {
    /// Of those that arrived.
    pub(crate) receive: u64,
    /// Of those that were to be sent.
    pub(crate) transmit: u64,
}

impl PortDrops {
    pub(crate) fn now(ports: &[Port]) -> PortDrops {
        let counted = ports.iter().filter_map(|port| port_counters(port).ok());
        counted.fold(PortDrops::default(), |sum, port| PortDrops {
            receive: sum.receive + port.receive_drops,
            transmit: sum.transmit + port.transmit_drops,
        })
    }

    pub(crate) fn since(self, before: PortDrops) -> PortDrops {
        PortDrops {
            receive: self.receive.saturating_sub(before.receive),
            transmit: self.transmit.saturating_sub(before.transmit),
        }
    }

    /// What drivers count, made the same. Some (virtio, tap) count as dropped on arrival every frame
    /// that the receiver has checked and done with; and what a driver does not take from the kernel
    /// (`refused`), hardly one counts.
    pub(crate) fn corrected(self, outcome: &Outcome, refused: u64) -> PortDrops {
        let directions = outcome.forward.iter().chain(&outcome.reverse).map(|direction| &direction.arrivals);
        let checked: u64 = directions.map(|a| a.received + a.errored + a.unreadable + a.duplicates + a.stray).sum();
        PortDrops {
            receive: self.receive.checked_sub(checked).unwrap_or(self.receive),
            transmit: self.transmit.max(refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use tombolo_generator::{Arrivals, Bitmap, Departures, DirectionOutcome};

    use super::*;

    #[test]
    fn frames_that_the_receiver_is_done_with_are_no_drops() {
        let arrivals = Arrivals { received: 990, duplicates: 10, ..Arrivals::empty(Bitmap::without(1000, &[])) };
        let forward = DirectionOutcome { departures: Departures::default(), pauses: Vec::new(), arrivals };
        let outcome = Outcome { forward: Some(forward), reverse: None, stopped: false };
        let drops = |receive| PortDrops { receive, transmit: 1 }.corrected(&outcome, 2);
        // One driver counts what the program drops, another does not; both dropped five of their own.
        assert_eq!((drops(1005).receive, drops(5).receive, drops(1000).receive), (5, 5, 0));
        assert_eq!(drops(0).transmit, 2);
    }
}

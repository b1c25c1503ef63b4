//! The two ends of the laboratory, by hand: the kernels of client and server are deaf, so that all
//! that is sent there is sent from here, and all that arrives is looked at here.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use tombolo_generator::Ends;
use tombolo_lab::{Frames, Lab, LabError, Offload, wait_until};

use super::packets::Packet;

/// How long an answer may take; what does not come within it does not come.
const PATIENCE: Duration = Duration::from_millis(1500);
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const HEADER: usize = 14;

/// One end of the cable to the gateway.
pub(super) struct Cable {
    frames: Frames,
    ends: Ends,
}

impl Cable {
    /// Takes the end from the kernel of `node`, which is a host no more; the gateway knows where
    /// these addresses are without asking.
    ///
    /// # Errors
    /// [`LabError`] where a command of iproute2 fails.
    pub(super) fn take(
        lab: &Lab,
        (node, port): (&str, &str),
        ends: Ends,
        addresses: &[IpAddr],
    ) -> Result<Cable, LabError> {
        let ip = |node: &str, arguments: &[&str]| -> Result<(), LabError> {
            lab.node(node)?.command("ip").args(arguments.iter().copied()).run()?.success().map(drop)
        };
        ip(node, &["address", "flush", "dev", port])?;
        let own = ends.source.map(|byte| format!("{byte:02x}")).join(":");
        for address in addresses {
            let address = address.to_string();
            ip("gateway", &["neighbour", "replace", &address, "lladdr", &own, "dev", port, "nud", "permanent"])?;
        }
        // A veth would hand on checksums that a device is to fill in.
        lab.node("gateway")?.set_offload(port, Offload::TxChecksum, false)?;
        let frames = lab.node(node)?.frames(port)?;
        Ok(Cable { frames, ends })
    }

    pub(super) fn own_address(&self) -> [u8; 6] {
        self.ends.source
    }

    /// Sends packets to the gateway, in this order.
    pub(super) fn send(&self, packets: &[Packet]) -> Result<(), String> {
        packets.iter().try_for_each(|packet| {
            let (kind, destination) = match packet.destination {
                IpAddr::V4(_) => (IPV4, self.ends.destination),
                IpAddr::V6(address) => (IPV6, link_of(address).unwrap_or(self.ends.destination)),
            };
            self.send_frame(destination, kind, &packet.emit())
        })
    }

    pub(super) fn send_frame(&self, destination: [u8; 6], kind: [u8; 2], payload: &[u8]) -> Result<(), String> {
        let frame = [&destination[..], &self.ends.source, &kind, payload].concat();
        self.frames.send(&frame).map_err(|error| format!("a frame could not be sent: {error}"))
    }

    /// The first packet that arrives of which something is wanted.
    pub(super) fn arrives<T>(&self, what: &str, mut wanted: impl FnMut(&Packet) -> Option<T>) -> Result<T, String> {
        self.frame(what, |kind, payload| {
            let is_ip = kind == IPV4 || kind == IPV6;
            wanted(&Packet::parse(payload).filter(|_| is_ip)?)
        })
    }

    /// Likewise of frames: their EtherType, and what follows it.
    pub(super) fn frame<T>(
        &self,
        what: &str,
        mut wanted: impl FnMut([u8; 2], &[u8]) -> Option<T>,
    ) -> Result<T, String> {
        let mut buffer = vec![0; 65_536];
        let mut next = || {
            while let Some(length) = self.frames.receive(&mut buffer) {
                let Some((header, payload)) = buffer[..length].split_at_checked(HEADER) else { continue };
                if let Some(found) = wanted([header[12], header[13]], payload) {
                    return Some(found);
                }
            }
            None
        };
        wait_until(what, PATIENCE, &mut next).map_err(|_| format!("{what} did not arrive"))
    }
}

/// Where an IPv6 multicast packet goes (RFC 2464 section 7).
fn link_of(address: Ipv6Addr) -> Option<[u8; 6]> {
    let [.., a, b, c, d] = address.octets();
    address.is_multicast().then_some([0x33, 0x33, a, b, c, d])
}

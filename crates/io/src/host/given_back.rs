//! What the gateway gives back to the host as it came: packets for an address that both share, and those from
//! inside that keep their addresses because of a port.
//!
//! The kernel checks the source of what comes from the device as of any other packet. Strictly it would
//! have to come from elsewhere, and loosely it may come in by any device that has an address: so the device
//! gets one, which nobody uses (RFC 7600), and is loose.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use netlink_packet_route::address::{AddressMessage, AddressScope};

use super::changes::{Host, What};
use super::error::{HostError, fail};
use super::messages::address_message;

/// The dummy IPv4 address (RFC 7600): the device has to have one.
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// What the device with this index needs for it.
pub(super) fn giving_back(index: u32, gives_back: bool) -> Option<What> {
    gives_back.then(|| What::Address(dummy(index)))
}

fn dummy(index: u32) -> AddressMessage {
    let mut message = address_message(index, IpNet::from(IpAddr::from(DUMMY)));
    // No packet gets it for its source.
    message.header.scope = AddressScope::Host;
    message
}

impl Host {
    /// Has the kernel take back what the device with this index gives back, or not.
    ///
    /// # Errors
    /// [`HostError`].
    pub(super) fn take_back(&mut self, index: u32, gives_back: bool) -> Result<(), HostError> {
        if let Some(address) = giving_back(index, gives_back).filter(|what| !self.has(what)) {
            self.take_over(address).map_err(|source| fail("giving packets back to the host", source))?;
        }
        self.source_check.iter_mut().for_each(|check| check.set_loose(gives_back));
        Ok(())
    }
}

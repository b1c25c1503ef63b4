//! Interfaces that the programs are attached to.

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;

use crate::error::FastPathError;
use crate::record::InterfaceRecord;

// SAFETY: `Plain`: integers without padding; any bytes are valid.
unsafe impl aya::Pod for InterfaceRecord {}

/// An interface of the calling thread's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) number: u32,
    pub(crate) mac: [u8; 6],
}

impl Interface {
    pub(crate) fn named(name: &str) -> Result<Self, FastPathError> {
        let number = if_nametoindex(name).map_err(|_| FastPathError::NoInterface(name.to_owned()))?;
        let addresses = getifaddrs().map_err(|_| FastPathError::NoInterface(name.to_owned()))?;
        let mac = addresses
            .filter(|interface| interface.interface_name == name)
            .find_map(|interface| interface.address?.as_link_addr()?.addr())
            .filter(|mac| *mac != [0; 6]);
        let mac = mac.ok_or_else(|| FastPathError::NotEthernet(name.to_owned()))?;
        Ok(Self { number, mac })
    }

    /// As the programs have it.
    pub(crate) fn record(self, xdp_sends: bool, inside_of: u8) -> InterfaceRecord {
        let Self { number, mac } = self;
        InterfaceRecord { number, mac, xdp_sends: xdp_sends.into(), inside_of, ..InterfaceRecord::default() }
    }
}

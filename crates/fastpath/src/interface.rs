//! Interfaces that the programs are attached to.

use std::path::Path;

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
}

/// True for a card: XDP pays there. On virtual interfaces it costs the segmentation offload of TCP.
pub(crate) fn is_physical(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).join("device").exists()
}

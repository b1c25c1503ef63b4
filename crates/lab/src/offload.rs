//! Segmentation and checksum offloads of an interface, through the ethtool ioctl.
//!
//! veth hands super-packets of up to 64 KiB and packets without checksums from one end to the
//! other. That is what makes TCP fast, and what a test of single frames has to switch off.

use std::{ffi::c_char, io, os::fd::AsRawFd as _};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::{LabError, Namespace};

/// An offload that can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// TCP segments are cut by the device (or never, on veth).
    Tso,
    /// Segments are cut just before the device.
    Gso,
    /// Arriving segments are merged.
    Gro,
    /// The device fills in checksums (or nobody does, on veth).
    TxChecksum,
}

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// `struct ifreq` with the union read as `ifr_data`: 16 bytes of name, then the pointer, 40 bytes
/// in all on 64-bit Linux.
#[repr(C)]
struct InterfaceRequest {
    name: [c_char; libc::IFNAMSIZ],
    data: *mut EthtoolValue,
    rest: [u8; 16],
}

impl Offload {
    /// ETHTOOL_S... of linux/ethtool.h.
    const fn command(self) -> u32 {
        match self {
            Self::TxChecksum => 0x17,
            Self::Tso => 0x1f,
            Self::Gso => 0x24,
            Self::Gro => 0x2c,
        }
    }
}

impl Namespace {
    /// Switches an offload of an interface.
    ///
    /// # Errors
    /// [`LabError::System`] when there is no such interface or its driver cannot switch it.
    pub fn set_offload(&self, interface: &str, offload: Offload, on: bool) -> Result<(), LabError> {
        self.run(|| switch(interface, offload, on))?.map_err(|e| {
            let action = format!("switch {offload:?} of {interface} in {}", self.name());
            LabError::system(action, e)
        })
    }
}

fn switch(interface: &str, offload: Offload, on: bool) -> io::Result<()> {
    if interface.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let control = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut value = EthtoolValue { command: offload.command(), data: u32::from(on) };
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(interface.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    let mut request = InterfaceRequest { name, data: &raw mut value, rest: [0; 16] };
    // SAFETY: SIOCETHTOOL reads a `struct ifreq`, whose layout `InterfaceRequest` has (asserted
    // below), with a NUL-terminated name (shorter than IFNAMSIZ, checked above) and a pointer to a
    // live `struct ethtool_value`, which is all that the ETHTOOL_S* commands used here read.
    let status = unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const _: () = assert!(size_of::<InterfaceRequest>() == size_of::<libc::ifreq>());
const _: () = assert!(std::mem::offset_of!(InterfaceRequest, data) == libc::IFNAMSIZ);

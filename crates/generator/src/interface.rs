//! What an interface is: driver, speed, MTU, time stamps, XDP. By `ioctl`, which, unlike `/sys`,
//! answers for the namespace of the thread that asks.

use std::fmt;
use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::namespace::in_namespace;
use crate::port::Port;
use crate::xdp_features::XdpFeatures;

/// From include/uapi/linux/sockios.h and ethtool.h.
const SIOCGIFMTU: libc::Ioctl = 0x8921;
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GSET: u32 = 1;
const ETHTOOL_GDRVINFO: u32 = 3;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
const SOF_TIMESTAMPING_TX_HARDWARE: u32 = 1;
const SOF_TIMESTAMPING_RX_HARDWARE: u32 = 4;
const DUPLEX_UNKNOWN: u8 = 0xff;

/// What an interface is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The driver's name; empty where it has none.
    pub driver: String,
    /// Megabits a second; `None` where it is not known, as without a link.
    pub speed_mbps: Option<u32>,
    /// Whether both ends may send at once; `None` where it is not known.
    pub full_duplex: Option<bool>,
    /// The longest IP packet, bytes.
    pub mtu: u32,
    /// Time stamps by the interface's own clock, on sending and on receiving.
    pub hardware_timestamps: (bool, bool),
    /// What its driver can do with XDP; `None` on kernels that do not tell (before Linux 6.3).
    pub xdp: Option<XdpFeatures>,
}

impl Interface {
    /// Asks the kernel.
    ///
    /// # Errors
    /// If namespace or interface do not exist.
    pub fn of(port: &Port) -> io::Result<Interface> {
        in_namespace(port.namespace.as_ref(), || Interface::of_here(&port.name))?
    }

    fn of_here(name: &str) -> io::Result<Interface> {
        let index = nix::net::if_::if_nametoindex(name)?;
        let (speed_mbps, full_duplex) = link_of(name).unwrap_or((None, None));
        Ok(Interface {
            driver: driver_of(name).unwrap_or_default(),
            speed_mbps,
            full_duplex,
            mtu: mtu_of(name)?,
            hardware_timestamps: timestamps_of(name).unwrap_or((false, false)),
            xdp: XdpFeatures::of(index),
        })
    }

    /// Whether it is one end of a cable between two namespaces of this machine: what its statistics
    /// call dropped, the other end had no room for.
    pub fn is_virtual_cable(&self) -> bool {
        self.driver == "veth"
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = if self.driver.is_empty() { "unknown driver" } else { &self.driver };
        match self.speed_mbps {
            Some(speed) => write!(f, "{driver}, {speed} Mb/s")?,
            None => write!(f, "{driver}, speed not known")?,
        }
        match self.full_duplex {
            Some(true) => f.write_str(" full duplex")?,
            Some(false) => f.write_str(" HALF DUPLEX")?,
            None => {}
        }
        write!(f, ", MTU {}", self.mtu)?;
        f.write_str(match self.hardware_timestamps {
            (false, false) => ", no hardware time stamps",
            _ => ", has hardware time stamps, which are not used",
        })
    }
}

/// The driver's name, behind the command word.
fn driver_of(name: &str) -> Option<String> {
    let info: [u8; 196] = ethtool(name, ETHTOOL_GDRVINFO).ok()?;
    let text = info.get(4..36)?.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// `struct ethtool_cmd`: the speed in two halves, at 12 and at 28, and the duplex at 14.
fn link_of(name: &str) -> Option<(Option<u32>, Option<bool>)> {
    let link: [u8; 44] = ethtool(name, ETHTOOL_GSET).ok()?;
    let half = |at: usize| u32::from(u16::from_ne_bytes([link[at], link[at + 1]]));
    let speed = half(28) << 16 | half(12);
    let is_known = speed != 0 && speed != u32::MAX && speed != u32::from(u16::MAX);
    let duplex = Some(link[14]).filter(|duplex| *duplex != DUPLEX_UNKNOWN).map(|duplex| duplex == 1);
    Some((is_known.then_some(speed), duplex))
}

fn timestamps_of(name: &str) -> Option<(bool, bool)> {
    let info: [u8; 44] = ethtool(name, ETHTOOL_GET_TS_INFO).ok()?;
    let offered = u32::from_ne_bytes([info[4], info[5], info[6], info[7]]);
    Some((offered & SOF_TIMESTAMPING_TX_HARDWARE != 0, offered & SOF_TIMESTAMPING_RX_HARDWARE != 0))
}

/// One question to the driver, whose number is the first word of the record that it fills in.
fn ethtool<const N: usize>(name: &str, command: u32) -> io::Result<[u8; N]> {
    let mut record = Aligned([0; N]);
    record.0[..4].copy_from_slice(&command.to_ne_bytes());
    let mut request = request_for(name)?;
    request.ifr_ifru.ifru_data = record.0.as_mut_ptr().cast();
    // SAFETY: the request points to a record of the size that this command fills in, aligned for its
    // words; both outlive the call.
    unsafe { interface_ioctl(SIOCETHTOOL, &mut request) }?;
    Ok(record.0)
}

/// As `struct ethtool_*` is.
#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);

fn mtu_of(name: &str) -> io::Result<u32> {
    let mut request = request_for(name)?;
    // SAFETY: this command reads the name and writes the MTU; it follows no pointer.
    unsafe { interface_ioctl(SIOCGIFMTU, &mut request) }?;
    // SAFETY: the member that the kernel wrote; every bit pattern is an int.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn request_for(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: the record is plain integers and a pointer; zero is a value of each.
    let mut request: libc::ifreq = unsafe { zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Ok(request)
}

/// The system call.
///
/// # Safety
/// The request must be as the command wants it, and what it points to must be there.
unsafe fn interface_ioctl(command: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    let asking = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: the request is whole; the caller vouches for what it points to.
    let answer = unsafe { libc::ioctl(asking.as_raw_fd(), command, std::ptr::from_mut(request)) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_an_mtu_and_no_clock() {
        let loopback = Interface::of(&Port { name: "lo".to_owned(), namespace: None }).unwrap();
        assert!(loopback.mtu > 0 && !loopback.is_virtual_cable());
        assert_eq!((loopback.speed_mbps, loopback.hardware_timestamps), (None, (false, false)));
        let missing = Port { name: "no-such-port".to_owned(), namespace: None };
        assert!(Interface::of(&missing).is_err());
    }
}

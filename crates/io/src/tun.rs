//! Makes the TUN device: several queues, a virtio header in front of each packet, segmentation and
//! checksums left to the kernel.
//!
//! Read first: Linux `Documentation/networking/tuntap.rst`, `drivers/net/tun.c`.
//!
//! The device lives as long as its queues are open, unless it was there before
//! ([`ExistingDevice::Adopt`]).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use nix::errno::Errno;

use crate::queue::TunQueue;
use crate::vnet::VNET_HEADER_BYTES;

const DEVICE_NODE: &str = "/dev/net/tun";

/// Queues that Linux gives one device (`MAX_TAP_QUEUES`).
pub const MAX_QUEUES: usize = 256;

/// What device to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunConfig {
    /// Name of the interface, 1 to 15 bytes.
    pub name: String,
    /// How many queues, 1 to [`MAX_QUEUES`]; one for each worker.
    pub queues: usize,
    /// What to do with a device that already has the name.
    pub existing: ExistingDevice,
    /// How packets written to the device enter the kernel.
    pub entry: KernelEntry,
}

/// What to do with a device that already has the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExistingDevice {
    /// Fail. Otherwise the queues would silently join a device that another process serves.
    #[default]
    Refuse,
    /// Attach to it: a persistent device made for an unprivileged gateway by `ip tuntap add mode
    /// tun multi_queue vnet_hdr user ...`. One that was made without `multi_queue` has one queue,
    /// whatever was asked for.
    Adopt,
}

/// How long a device lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// As long as a process serves it.
    EndsWithProcess,
    /// Until it is removed.
    OutlivesProcess,
}

/// How packets written to the device enter the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KernelEntry {
    /// At once, in the system call of the writer.
    #[default]
    Direct,
    /// Through NAPI (`IFF_NAPI`), which merges segments of one flow (GRO). See
    /// `docs/decisions/tun-io.md` for what it brings.
    Napi,
}

/// What the kernel does for us on this device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offloads {
    /// Checksums may be left partial, and TCP super-packets cross whole, in both directions.
    pub tcp_segmentation: bool,
    /// UDP super-packets too (USO; Linux 6.2 and later).
    pub udp_segmentation: bool,
}

/// The device was not made, or not as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunError {
    /// The name cannot be one of an interface.
    #[error("\"{name}\" cannot be the name of a tun device: use 1 to 15 bytes without blanks, \"/\", \":\" or \"%\"")]
    Name {
        /// The name.
        name: String,
    },
    /// No queue, or too many.
    #[error("{queues} queues for tun device {name}: use 1 to {MAX_QUEUES}")]
    Queues {
        /// Name of the device.
        name: String,
        /// The number.
        queues: usize,
    },
    /// No device node.
    #[error(
        "{DEVICE_NODE} is missing: load the module (modprobe tun), or pass the device into the container (--device {DEVICE_NODE})"
    )]
    NodeMissing,
    /// The device node may not be opened.
    #[error("{DEVICE_NODE} may not be opened: run as root, or give this user read and write access to it")]
    NodeDenied {
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The device node is there but nothing is behind it.
    #[error("{DEVICE_NODE} does not work: this kernel has no tun driver (CONFIG_TUN), or the container may not use it")]
    NodeDead {
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// No privilege.
    #[error(
        "tun device {name} may not be made: the process needs CAP_NET_ADMIN; run as root, or make the device beforehand with \"ip tuntap add dev {name} mode tun multi_queue vnet_hdr user NAME\" and adopt it"
    )]
    Denied {
        /// Name of the device.
        name: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The name is taken.
    #[error(
        "the name {name} is taken by another interface: choose another name, stop the process that owns it, or remove it with \"ip link del {name}\""
    )]
    NameTaken {
        /// Name of the device.
        name: String,
    },
    /// A device of that name is there, but of another shape.
    #[error(
        "{name} cannot be adopted: it is not a tun device with multi_queue and vnet_hdr; remove it with \"ip link del {name}\""
    )]
    NotAdoptable {
        /// Name of the device.
        name: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel refused one of the requests.
    #[error("tun device {name}: the kernel refused {request}")]
    Request {
        /// Name of the device.
        name: String,
        /// What was asked for.
        request: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// A TUN device with its queues.
#[derive(Debug)]
pub struct Tun {
    name: Arc<str>,
    offloads: Offloads,
    queues: Vec<TunQueue>,
}

impl Tun {
    /// Makes the device with all its queues. It is down and has no addresses; see [`crate::host`].
    ///
    /// # Errors
    /// [`TunError`], which says what to do about it.
    pub fn create(config: &TunConfig) -> Result<Self, TunError> {
        check(config)?;
        let mut queues = Vec::with_capacity(config.queues);
        let mut name = config.name.as_str().into();
        let mut offloads = Offloads { tcp_segmentation: false, udp_segmentation: false };
        let mut count = config.queues;
        for number in 0..config.queues {
            if number == count {
                break;
            }
            let node = open_node()?;
            if number == 0 {
                name = match attach(&node, config, Attach::First) {
                    Err(TunError::NotAdoptable { .. }) => {
                        count = 1;
                        attach(&node, config, Attach::Only)?
                    }
                    attached => attached?,
                };
            } else {
                attach(&node, config, Attach::Further)?;
            }
            set_header_bytes(&node, config)?;
            offloads = set_offloads(&node, config)?;
            queues.push(TunQueue::new(OwnedFd::from(node), Arc::clone(&name), number));
        }
        Ok(Self { name, offloads, queues })
    }

    /// Name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the kernel does for us on this device.
    #[must_use]
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// Makes the device outlive the process, or ends that.
    ///
    /// # Errors
    /// [`TunError::Request`].
    pub fn set_persistent(&self, persistence: Persistence) -> Result<(), TunError> {
        let Some(queue) = self.queues.first() else { return Ok(()) };
        let on = libc::c_ulong::from(persistence == Persistence::OutlivesProcess);
        // SAFETY: the queue's descriptor is open; TUNSETPERSIST takes its argument as a number and
        // follows no pointer.
        let result = unsafe { libc::ioctl(queue.as_fd().as_raw_fd(), libc::TUNSETPERSIST, on) };
        Errno::result(result).map(drop).map_err(|errno| TunError::Request {
            name: self.name.to_string(),
            request: "to make the device persistent or end that (TUNSETPERSIST)",
            source: errno.into(),
        })
    }

    /// The queues, one for each worker.
    #[must_use]
    pub fn into_queues(self) -> Vec<TunQueue> {
        self.queues
    }
}

fn check(config: &TunConfig) -> Result<(), TunError> {
    let name = &config.name;
    let is_forbidden = |byte: u8| byte.is_ascii_whitespace() || byte == 0 || b"/:%".contains(&byte);
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.bytes().any(is_forbidden) || name == "." || name == ".."
    {
        return Err(TunError::Name { name: name.clone() });
    }
    if config.queues == 0 || config.queues > MAX_QUEUES {
        return Err(TunError::Queues { name: name.clone(), queues: config.queues });
    }
    Ok(())
}

fn open_node() -> Result<File, TunError> {
    let opened =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(DEVICE_NODE);
    opened.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => TunError::NodeMissing,
        io::ErrorKind::PermissionDenied => TunError::NodeDenied { source },
        _ => TunError::NodeDead { source },
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Attach {
    First,
    Further,
    /// To a device that has one queue.
    Only,
}

/// Binds an open node to the device, making the device if need be. Gives the name of the device.
fn attach(node: &File, config: &TunConfig, which: Attach) -> Result<Arc<str>, TunError> {
    let mut flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if which != Attach::Only {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    if config.entry == KernelEntry::Napi {
        flags |= libc::IFF_NAPI;
    }
    if which == Attach::First && config.existing == ExistingDevice::Refuse {
        flags |= libc::IFF_TUN_EXCL;
    }
    let request = interface_request(&config.name, flags);
    // SAFETY: the descriptor is open, and TUNSETIFF reads and writes one `ifreq`, which `request`
    // is.
    let result = unsafe { set_interface(node.as_raw_fd(), &raw const request) };
    match result {
        Ok(_) => Ok(config.name.as_str().into()),
        Err(errno) => Err(attach_error(errno, config, which)),
    }
}

fn attach_error(errno: Errno, config: &TunConfig, which: Attach) -> TunError {
    let (name, source) = (config.name.clone(), io::Error::from(errno));
    match (errno, which, config.existing) {
        (Errno::EPERM | Errno::EACCES, ..) => TunError::Denied { name, source },
        (Errno::EBUSY | Errno::EEXIST, Attach::First | Attach::Only, _) => TunError::NameTaken { name },
        (Errno::EINVAL, Attach::First, ExistingDevice::Refuse) if exists(&name) => TunError::NameTaken { name },
        (Errno::EINVAL, Attach::First | Attach::Only, ExistingDevice::Adopt) => TunError::NotAdoptable { name, source },
        _ => TunError::Request { name, request: "to attach a queue (TUNSETIFF)", source },
    }
}

fn exists(name: &str) -> bool {
    nix::net::if_::if_nametoindex(name).is_ok()
}

fn set_header_bytes(node: &File, config: &TunConfig) -> Result<(), TunError> {
    const BYTES: libc::c_int = 10;
    const _: () = assert!(BYTES as usize == VNET_HEADER_BYTES);
    let bytes = BYTES;
    // SAFETY: the descriptor is open, and TUNSETVNETHDRSZ reads one int.
    unsafe { set_vnet_header_bytes(node.as_raw_fd(), &raw const bytes) }.map_err(|errno| TunError::Request {
        name: config.name.clone(),
        request: "the size of the virtio header (TUNSETVNETHDRSZ)",
        source: errno.into(),
    })?;
    Ok(())
}

/// Switches on as much as the kernel has: everything, all but USO (before Linux 6.2), nothing.
fn set_offloads(node: &File, config: &TunConfig) -> Result<Offloads, TunError> {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    let choices = [
        (tcp | udp, Offloads { tcp_segmentation: true, udp_segmentation: true }),
        (tcp, Offloads { tcp_segmentation: true, udp_segmentation: false }),
        (0, Offloads { tcp_segmentation: false, udp_segmentation: false }),
    ];
    let mut refusal = Errno::EINVAL;
    for (flags, offloads) in choices {
        // SAFETY: the descriptor is open; TUNSETOFFLOAD takes the flags by value.
        match unsafe { set_offload(node.as_raw_fd(), libc::c_ulong::from(flags)) } {
            Ok(_) => return Ok(offloads),
            Err(errno) => refusal = errno,
        }
    }
    Err(TunError::Request {
        name: config.name.clone(),
        request: "every choice of offloads (TUNSETOFFLOAD)",
        source: refusal.into(),
    })
}

fn interface_request(name: &str, flags: libc::c_int) -> libc::ifreq {
    // SAFETY: `ifreq` is a plain C struct; all zeros is a valid value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the flags are sixteen bits; IFF_TUN_EXCL is the sign bit")]
    let flags = flags as libc::c_short;
    request.ifr_ifru.ifru_flags = flags;
    request
}

mod request_codes {
    //! The ioctl wrappers, apart so that what the macros generate needs no documentation of its
    //! own.
    nix::ioctl_write_ptr_bad!(set_interface, libc::TUNSETIFF, libc::ifreq);
    nix::ioctl_write_ptr_bad!(set_vnet_header_bytes, libc::TUNSETVNETHDRSZ, libc::c_int);
}
use request_codes::{set_interface, set_vnet_header_bytes};

/// TUNSETOFFLOAD, whose argument is a word and not a pointer.
///
/// # Safety
/// `fd` must be an open descriptor.
unsafe fn set_offload(fd: libc::c_int, flags: libc::c_ulong) -> nix::Result<libc::c_int> {
    // SAFETY: the caller vouches for `fd`; the kernel takes `flags` as a number and follows no
    // pointer.
    Errno::result(unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD, flags) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, queues: usize) -> TunConfig {
        TunConfig { name: name.to_owned(), queues, existing: ExistingDevice::Refuse, entry: KernelEntry::Direct }
    }

    #[test]
    fn names_that_no_interface_can_have_are_refused() {
        for name in ["", "a/b", "tun%d", "two words", "sixteen-bytes-ab", ".", ".."] {
            assert!(matches!(check(&config(name, 1)), Err(TunError::Name { .. })), "{name:?}");
        }
        assert!(check(&config("tombolo0", 1)).is_ok());
        assert!(check(&config("fifteen-bytes-a", 1)).is_ok());
    }

    #[test]
    fn the_number_of_queues_has_bounds() {
        assert!(matches!(check(&config("t", 0)), Err(TunError::Queues { queues: 0, .. })));
        assert!(check(&config("t", 256)).is_ok());
        let text = check(&config("t", 257)).unwrap_err().to_string();
        assert_eq!(text, "257 queues for tun device t: use 1 to 256");
    }

    #[test]
    fn errors_name_the_device_and_the_fix() {
        let text = attach_error(Errno::EPERM, &config("t0", 1), Attach::First).to_string();
        assert!(text.contains("t0") && text.contains("CAP_NET_ADMIN") && text.contains("ip tuntap add"), "{text}");
        let text = attach_error(Errno::EBUSY, &config("t0", 1), Attach::First).to_string();
        assert!(text.contains("ip link del t0"), "{text}");
    }

    #[test]
    fn the_interface_request_carries_name_and_flags() {
        let request = interface_request("abc", libc::IFF_TUN | libc::IFF_TUN_EXCL);
        let name: Vec<u8> = request.ifr_name[..4].iter().map(|&c| c.to_ne_bytes()[0]).collect();
        assert_eq!(name, b"abc\0");
        // SAFETY: `interface_request` has just written this member of the union.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        assert_eq!(flags.cast_unsigned(), 0x8001);
    }
}

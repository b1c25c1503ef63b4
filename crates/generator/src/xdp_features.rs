//! What a driver can do with XDP, by the kernel's own list (the generic netlink family `netdev`,
//! Linux 6.3; Documentation/netlink/specs/netdev.yaml).

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

/// From include/uapi/linux/genetlink.h and netdev.h.
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 4;
const NETDEV_XDP_ACT_XSK_ZEROCOPY: u64 = 8;
const NETLINK_HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;

/// What a driver can do with XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpFeatures {
    /// It takes redirected frames (`ndo_xdp_xmit`), as live frames are. A veth does while its other
    /// end has an XDP program or receive offload.
    pub transmits: bool,
    /// AF_XDP without copies.
    pub zero_copy: bool,
}

impl XdpFeatures {
    /// Those of an interface of this thread's namespace; `None` where the kernel has no such list.
    pub(crate) fn of(interface: u32) -> Option<XdpFeatures> {
        let family = ask(
            u16::try_from(libc::GENL_ID_CTRL).ok()?,
            u8::try_from(libc::CTRL_CMD_GETFAMILY).ok()?,
            (CTRL_ATTR_FAMILY_NAME, b"netdev\0"),
            CTRL_ATTR_FAMILY_ID,
        );
        let family = u16::from_ne_bytes(family.ok()??.try_into().ok()?);
        let wanted = (NETDEV_A_DEV_IFINDEX, &interface.to_ne_bytes()[..]);
        let features = ask(family, NETDEV_CMD_DEV_GET, wanted, NETDEV_A_DEV_XDP_FEATURES).ok()??;
        let bits = u64::from_ne_bytes(features.try_into().ok()?);
        Some(XdpFeatures {
            transmits: bits & NETDEV_XDP_ACT_NDO_XMIT != 0,
            zero_copy: bits & NETDEV_XDP_ACT_XSK_ZEROCOPY != 0,
        })
    }
}

/// One question with one attribute, and one attribute of the answer.
fn ask(family: u16, command: u8, attribute: (u16, &[u8]), wanted: u16) -> io::Result<Option<Vec<u8>>> {
    let asking = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkGeneric)?;
    send(asking.as_raw_fd(), &question(family, command, attribute), MsgFlags::empty())?;
    let mut answer = vec![0; 16 << 10];
    let length = recv(asking.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    Ok(found(&answer[..length], family, wanted).map(<[u8]>::to_vec))
}

fn question(family: u16, command: u8, (kind, value): (u16, &[u8])) -> Vec<u8> {
    let attribute = ATTRIBUTE_HEADER + value.len();
    let length = NETLINK_HEADER + GENERIC_HEADER + attribute.next_multiple_of(4);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(u32::try_from(length).unwrap_or(0).to_ne_bytes());
    bytes.extend(family.to_ne_bytes());
    bytes.extend(u16::try_from(libc::NLM_F_REQUEST).unwrap_or(0).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([command, 1, 0, 0]);
    bytes.extend(u16::try_from(attribute).unwrap_or(0).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length, 0);
    bytes
}

/// The attribute of this kind in the first message, if that is an answer of the family and no error.
fn found(message: &[u8], family: u16, wanted: u16) -> Option<&[u8]> {
    let word = |at: usize| Some(u16::from_ne_bytes(message.get(at..at + 2)?.try_into().ok()?));
    if word(4)? != family {
        return None;
    }
    let mut at = NETLINK_HEADER + GENERIC_HEADER;
    loop {
        let length = usize::from(word(at)?);
        if length < ATTRIBUTE_HEADER {
            return None;
        }
        if word(at + 2)? == wanted {
            return message.get(at + ATTRIBUTE_HEADER..at + length);
        }
        at += length.next_multiple_of(4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_found_behind_others_and_not_in_an_error() {
        let mut message = question(30, 1, (1, &[7, 0, 0, 0]));
        message.extend([12, 0, 3, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(found(&message, 30, 3), Some(&[5, 0, 0, 0, 0, 0, 0, 0][..]));
        assert_eq!((found(&message, 30, 4), found(&message, 2, 3)), (None, None));
        assert_eq!(found(&message[..30], 30, 3), None);
    }

    #[test]
    fn the_loopback_takes_no_redirected_frames() {
        // Interface 1 of every namespace. Kernels before 6.3 say nothing.
        assert!(XdpFeatures::of(1).is_none_or(|features| !features.transmits && !features.zero_copy));
    }
}

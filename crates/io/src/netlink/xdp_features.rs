//! Whether an interface sends what XDP redirects to it.
//!
//! Read first: Linux `Documentation/netlink/specs/netdev.yaml`, `Documentation/userspace-api/netlink/intro.rst`.
//!
//! A veth gives such frames to the other end's NAPI, which that end has only with an XDP program of
//! its own or with GRO; without it the kernel drops them, and the program that has redirected them
//! does not learn it. The kernel says of each interface whether it takes them (since Linux 6.3).
//!
//! ```text
//! | nlmsghdr 16: length, type (the family), flags, sequence, port | genlmsghdr 4: command, version | attributes |
//! ```

use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;

const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
/// Lengths of both headers together, and of an attribute's.
const HEADERS: usize = 20;
const ATTRIBUTE: usize = 4;

/// The family that knows the others, and what it is asked (`linux/genetlink.h`).
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// `linux/netdev.h`.
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 4;

/// Whether the interface with the number `index` sends what XDP redirects to it; `None` if the kernel
/// does not say (before Linux 6.3).
///
/// # Errors
/// What the kernel says.
pub fn sends_redirected(index: u32) -> io::Result<Option<bool>> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let family = match ask(&socket, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"netdev\0") {
        Ok(answer) => attribute(&answer, CTRL_ATTR_FAMILY_ID).and_then(|bytes| bytes.first_chunk().copied()),
        Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => None,
        Err(error) => return Err(error),
    };
    let Some(family) = family.map(u16::from_ne_bytes) else { return Ok(None) };
    let answer = ask(&socket, family, NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes())?;
    let features = attribute(&answer, NETDEV_A_DEV_XDP_FEATURES).and_then(|bytes| bytes.first_chunk().copied());
    Ok(features.map(|bytes| u64::from_ne_bytes(bytes) & NETDEV_XDP_ACT_NDO_XMIT != 0))
}

/// Sends a request with one attribute; gives the answer's attributes.
fn ask(socket: &Socket, family: u16, command: u8, kind: u16, value: &[u8]) -> io::Result<Vec<u8>> {
    let length = HEADERS + ATTRIBUTE + value.len().next_multiple_of(4);
    let mut request = Vec::with_capacity(length);
    request.extend(u32::try_from(length).unwrap_or_default().to_ne_bytes());
    request.extend(family.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([command, 1, 0, 0]);
    request.extend(u16::try_from(ATTRIBUTE + value.len()).unwrap_or_default().to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(value);
    request.resize(length, 0);
    socket.send(&request, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let short = || io::Error::new(io::ErrorKind::InvalidData, "an answer of netlink that is too short");
    let header = answer.get(..HEADERS).ok_or_else(short)?;
    if u16::from_ne_bytes([header[4], header[5]]) == NLMSG_ERROR {
        let code = i32::from_ne_bytes([header[16], header[17], header[18], header[19]]);
        return Err(io::Error::from_raw_os_error(-code));
    }
    Ok(answer[HEADERS..].to_vec())
}

/// The value of an attribute.
fn attribute(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut rest = attributes;
    while let Some(&[a, b, c, d]) = rest.first_chunk::<ATTRIBUTE>() {
        let (length, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let value = rest.get(ATTRIBUTE..length)?;
        if kind == wanted {
            return Some(value);
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_behind_others_and_padding() {
        let bytes = [[5_u8, 0, 1, 0], [9, 0, 0, 0], [6, 0, 3, 0], [7, 8, 0, 0]].concat();
        assert_eq!(attribute(&bytes, 1), Some([9].as_slice()));
        assert_eq!(attribute(&bytes, 3), Some([7, 8].as_slice()));
        assert_eq!(attribute(&bytes, 2), None);
        assert_eq!(attribute(&[200, 0, 1, 0], 1), None, "longer than there is");
        assert_eq!(attribute(&[0, 0, 1, 0, 0], 2), None, "a length of nothing ends the list");
    }
}

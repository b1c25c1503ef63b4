//! Which IPv4 addresses a prefix may stand for (RFC 6052 section 3.1), for every service that
//! embeds addresses.

use std::net::Ipv4Addr;

use tombolo_wire::Prefix64;

use crate::verdict::DropReason;

/// Asks whether `prefix` may stand for `address`. The well-known prefix may not stand for addresses
/// that are not global, unless the operator has lifted that rule (`strict` is false): packets that
/// use it so must be dropped, at each translator that they pass.
///
/// # Errors
/// [`DropReason::PrivateInWellKnownPrefix`].
#[inline]
pub(crate) fn check_embedding(prefix: Prefix64, strict: bool, address: Ipv4Addr) -> Result<(), DropReason> {
    if strict && prefix.forbids(address) { Err(DropReason::PrivateInWellKnownPrefix) } else { Ok(()) }
}

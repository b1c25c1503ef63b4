//! Sets of capabilities, as capget(2) and capset(2) have them.

use std::fmt;
use std::io;

use nix::errno::Errno;

/// A capability that a running gateway may need (`linux/capability.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Links, addresses, routes and rules; programs on interfaces.
    NetAdmin = 12,
    /// Raw sockets.
    NetRaw = 13,
    /// Programs that read the kernel's memory, and whose pointers the kernel's verifier trusts.
    Perfmon = 38,
    /// Programs and maps.
    Bpf = 39,
}

impl Capability {
    const ALL: [(Self, &'static str); 4] = [
        (Self::NetAdmin, "CAP_NET_ADMIN"),
        (Self::NetRaw, "CAP_NET_RAW"),
        (Self::Perfmon, "CAP_PERFMON"),
        (Self::Bpf, "CAP_BPF"),
    ];
}

/// A set of capabilities: one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(u64);

impl Capabilities {
    /// The set with one more.
    #[must_use]
    pub fn with(self, capability: Capability) -> Self {
        Self(self.0 | 1 << capability as u8)
    }

    /// Those that are in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The bits, as `/proc/PID/status` shows them.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Those that the calling thread is permitted.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn permitted() -> io::Result<Self> {
        let (mut header, mut data) = (HEADER, [Words::default(); 2]);
        // SAFETY: header and two elements of data, as version 3 has them; the kernel writes to both.
        let result = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), data.as_mut_ptr()) };
        Errno::result(result)?;
        Ok(Self(u64::from(data[0].permitted) | u64::from(data[1].permitted) << 32))
    }

    /// Leaves the calling thread these and no others: permitted, effective, none to be handed down.
    /// Safe in a signal's handler.
    pub(super) fn take(self) -> Result<(), Errno> {
        let half = |bits: u64| {
            let bits = u32::try_from(bits & u64::from(u32::MAX)).unwrap_or_default();
            Words { effective: bits, permitted: bits, inheritable: 0 }
        };
        let (mut header, data) = (HEADER, [half(self.0), half(self.0 >> 32)]);
        // SAFETY: header and two elements of data, as version 3 has them.
        let result = unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), data.as_ptr()) };
        Errno::result(result).map(drop)
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Capability::ALL.into_iter().filter(|(capability, _)| self.0 & 1 << *capability as u8 != 0);
        let names: Vec<_> = known.map(|(_, name)| name).collect();
        f.write_str(if names.is_empty() { "none".to_owned() } else { names.join(" ") }.as_str())
    }
}

/// `__user_cap_header_struct`: version 3, the calling thread.
const HEADER: [u32; 2] = [0x2008_0522, 0];

/// `__user_cap_data_struct`: 32 capabilities.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Words {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_kernels_bits_and_names() {
        let set = Capabilities::default().with(Capability::NetAdmin).with(Capability::Bpf);
        assert_eq!(set.bits(), 1 << 12 | 1 << 39);
        assert_eq!(set.to_string(), "CAP_NET_ADMIN CAP_BPF");
        assert_eq!(set.and(Capabilities::default()).to_string(), "none");
        assert!(Capabilities::permitted().is_ok());
    }
}

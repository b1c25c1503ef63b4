//! Interfaces that the programs are attached to.

use tombolo_io::links::{self, Intake, Link};

use crate::error::FastPathError;
use crate::plan::Role;
use crate::record::{CHECKS_SOURCES, InterfaceRecord, REFUSES_IPV4, REFUSES_IPV6};

// SAFETY: `Plain`: integers without padding; any bytes are valid.
unsafe impl aya::Pod for InterfaceRecord {}

/// An interface of the calling thread's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) number: u32,
    mac: [u8; 6],
    stack_refuses: u8,
}

impl Interface {
    pub(crate) fn named(name: &str) -> Result<Self, FastPathError> {
        let links = links::all().map_err(|_| FastPathError::NoInterface(name.to_owned()))?;
        let link = links.iter().find(|link| link.name == name);
        let link = link.ok_or_else(|| FastPathError::NoInterface(name.to_owned()))?;
        if link.mac == [0; 6] {
            return Err(FastPathError::NotEthernet(name.to_owned()));
        }
        Ok(Self::of(link))
    }

    pub(crate) fn of(link: &Link) -> Self {
        Self { number: link.index, mac: link.mac, stack_refuses: stack_refuses(link.intake) }
    }

    /// As the programs have it.
    pub(crate) fn record(self, xdp_sends: bool, Role { inside_of, is_core }: Role) -> InterfaceRecord {
        let Self { number, mac, stack_refuses } = self;
        let (xdp_sends, is_core) = (xdp_sends.into(), is_core.into());
        InterfaceRecord { number, mac, xdp_sends, inside_of, stack_refuses, is_core, ..InterfaceRecord::default() }
    }
}

fn stack_refuses(intake: Intake) -> u8 {
    let Intake { forwards_ipv4, takes_ipv6, checks_sources } = intake;
    let bits = [(!forwards_ipv4, REFUSES_IPV4), (!takes_ipv6, REFUSES_IPV6), (checks_sources, CHECKS_SOURCES)];
    bits.iter().filter(|(is_so, _)| *is_so).map(|(_, bit)| bit).sum()
}

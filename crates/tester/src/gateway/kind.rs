//! The gateways that a lab can start, by name.

use std::fmt;
use std::str::FromStr;

use tombolo_lab::{Scenario, Topology};

use super::technology::Technology;

/// A kind of gateway that a lab can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The kernel's IPv6 forwarding, no gateway at all: the yardstick.
    Plain,
    /// The kernel's IPv4 forwarding.
    Plain4,
    /// This project's gateway, as stateful NAT64.
    Tombolo,
    /// Debian's Tayga, a stateless NAT64 in user space.
    Tayga,
    /// The same with the kernel's NAPT beside it: stateful.
    TaygaNat,
    /// The kernel's stateful NAT44 (iptables MASQUERADE).
    Iptables,
    /// The same, by nftables.
    Nftables,
    /// Jool's stateful NAT64, a kernel module.
    Jool,
    /// Jool's SIIT, a kernel module.
    JoolSiit,
    /// The kernel's IPv4 forwarding over three hops, through a `cpe`: the yardstick for pairs.
    PlainPair,
    /// This project's gateway at both ends of 464XLAT.
    Xlat464,
    /// Of DS-Lite.
    DsLite,
    /// Of Lightweight 4over6.
    Lw4o6,
    /// Of MAP-E.
    MapE,
    /// Of MAP-T.
    MapT,
}

impl Kind {
    /// All of them, in the order in which tables show them.
    pub const ALL: [Self; 15] = [
        Self::Plain,
        Self::Plain4,
        Self::Tombolo,
        Self::Tayga,
        Self::TaygaNat,
        Self::Iptables,
        Self::Nftables,
        Self::Jool,
        Self::JoolSiit,
        Self::PlainPair,
        Self::Xlat464,
        Self::DsLite,
        Self::Lw4o6,
        Self::MapE,
        Self::MapT,
    ];
    /// The five technologies, with this project's gateway at both ends.
    pub const PAIRS: [Self; 5] = [Self::Xlat464, Self::DsLite, Self::Lw4o6, Self::MapE, Self::MapT];

    /// The name on command lines and in result files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Plain4 => "plain4",
            Self::Tombolo => "tombolo",
            Self::Tayga => "tayga",
            Self::TaygaNat => "tayga-nat",
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
            Self::Jool => "jool",
            Self::JoolSiit => "jool_siit",
            Self::PlainPair => "plain-pair",
            Self::Xlat464 => "464xlat",
            Self::DsLite => "ds-lite",
            Self::Lw4o6 => "lw4o6",
            Self::MapE => "map-e",
            Self::MapT => "map-t",
        }
    }

    /// Whether its connections are in the kernel's connection tracking.
    pub(super) fn uses_conntrack(self) -> bool {
        matches!(self, Self::Iptables | Self::Nftables | Self::TaygaNat)
    }

    /// The scenario of a pair, which has its name.
    pub(super) fn scenario(self) -> Option<Scenario> {
        Scenario::named(self.name())
    }

    /// The lab that it needs.
    #[must_use]
    pub fn topology(self) -> Topology {
        match self.scenario() {
            Some(scenario) => scenario.topology,
            None if self == Self::PlainPair => Topology::client_cpe_gateway_server_with_ipv4(),
            None => Topology::client_gateway_server(),
        }
    }

    /// The kind that is both ends of this technology; none for what is no pair.
    #[must_use]
    pub fn of_pair(technology: Technology) -> Option<Self> {
        Self::PAIRS.into_iter().find(|kind| kind.name() == technology.name())
    }

    /// Plain forwarding over as many hops.
    #[must_use]
    pub fn yardstick(self) -> Self {
        if self == Self::PlainPair || Self::PAIRS.contains(&self) { Self::PlainPair } else { Self::Plain }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("no gateway is called `{text}`; there are {known}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_the_kind_of_its_technology() {
        let pairs: Vec<Kind> = Technology::ALL.into_iter().filter_map(Kind::of_pair).collect();
        assert_eq!(pairs, Kind::PAIRS);
        assert!(Technology::ALL.into_iter().all(|t| t.is_pair() == Kind::of_pair(t).is_some()));
    }

    #[test]
    fn every_gateway_is_found_by_its_name() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("router".parse::<Kind>().unwrap_err().contains("plain, plain4, tombolo"));
    }
}

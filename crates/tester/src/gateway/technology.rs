//! What a gateway does, and so what its two sides speak (RFC 8219 section 3, RFC 9693 section 4).
//!
//! The left side is the subscribers' (the gateway's inside), the right side the other one: the IPv4
//! Internet behind a PE device, the IPv6 core behind a CE device. Two gateways in series (CE and
//! PE) behave as one NAT44 and are measured as such; RFC 8219 sections 5 and 6 want each end alone as
//! well, for the pair hides which of them set the limit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tombolo_generator::FrameKind;

/// What the gateway does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Technology {
    /// IPv4 forwarding: the yardstick for NAT44.
    Forward4,
    /// IPv6 forwarding: the yardstick for everything with IPv6.
    Forward6,
    /// Stateful NAT44 (also a CE and a PE in series).
    Nat44,
    /// Stateful NAT64 (also the PLAT of 464XLAT).
    Nat64,
    /// Stateless NAT64 with explicit address mappings (RFC 7757).
    Siit,
    /// The CLAT of 464XLAT: IPv4 on the left, IPv6 on the right.
    Clat,
    /// DS-Lite B4: IPv4 on the left, IPv4 in IPv6 on the right.
    B4,
    /// DS-Lite AFTR: IPv4 in IPv6 on the left, IPv4 on the right.
    Aftr,
    /// lw4o6 lwB4.
    Lwb4,
    /// lw4o6 lwAFTR.
    Lwaftr,
    /// MAP-E customer edge.
    MapECe,
    /// MAP-E border relay.
    MapEBr,
    /// MAP-T customer edge.
    MapTCe,
    /// MAP-T border relay.
    MapTBr,
    /// Both ends of 464XLAT in series: CLAT and PLAT.
    #[serde(rename = "464xlat")]
    Xlat464,
    /// Both ends of DS-Lite: B4 and AFTR.
    DsLite,
    /// Both ends of Lightweight 4over6: lwB4 and lwAFTR.
    Lw4o6,
    /// Both ends of MAP-E: customer edge and border relay.
    MapE,
    /// Both ends of MAP-T.
    MapT,
}

impl Technology {
    /// All of them.
    pub const ALL: [Technology; 19] = [
        Technology::Forward4,
        Technology::Forward6,
        Technology::Nat44,
        Technology::Nat64,
        Technology::Siit,
        Technology::Clat,
        Technology::B4,
        Technology::Aftr,
        Technology::Lwb4,
        Technology::Lwaftr,
        Technology::MapECe,
        Technology::MapEBr,
        Technology::MapTCe,
        Technology::MapTBr,
        Technology::Xlat464,
        Technology::DsLite,
        Technology::Lw4o6,
        Technology::MapE,
        Technology::MapT,
    ];

    /// Its name on the command line and in result files.
    pub fn name(self) -> &'static str {
        match self {
            Technology::Forward4 => "forward4",
            Technology::Forward6 => "forward6",
            Technology::Nat44 => "nat44",
            Technology::Nat64 => "nat64",
            Technology::Siit => "siit",
            Technology::Clat => "clat",
            Technology::B4 => "b4",
            Technology::Aftr => "aftr",
            Technology::Lwb4 => "lwb4",
            Technology::Lwaftr => "lwaftr",
            Technology::MapECe => "map-e-ce",
            Technology::MapEBr => "map-e-br",
            Technology::MapTCe => "map-t-ce",
            Technology::MapTBr => "map-t-br",
            Technology::Xlat464 => "464xlat",
            Technology::DsLite => "ds-lite",
            Technology::Lw4o6 => "lw4o6",
            Technology::MapE => "map-e",
            Technology::MapT => "map-t",
        }
    }

    /// Frames on the left and on the right.
    pub fn kinds(self) -> (FrameKind, FrameKind) {
        use FrameKind::{Ipv4, Ipv4InIpv6, Ipv6};
        match self {
            Technology::Forward4
            | Technology::Nat44
            | Technology::Xlat464
            | Technology::DsLite
            | Technology::Lw4o6
            | Technology::MapE
            | Technology::MapT => (Ipv4, Ipv4),
            Technology::Forward6 => (Ipv6, Ipv6),
            Technology::Nat64 | Technology::Siit | Technology::MapTBr => (Ipv6, Ipv4),
            Technology::Clat | Technology::MapTCe => (Ipv4, Ipv6),
            Technology::B4 | Technology::Lwb4 | Technology::MapECe => (Ipv4, Ipv4InIpv6),
            Technology::Aftr | Technology::Lwaftr | Technology::MapEBr => (Ipv4InIpv6, Ipv4),
        }
    }

    /// Whether the gateway keeps a table of connections, so that RFC 9693 applies.
    pub fn is_stateful(self) -> bool {
        use Technology::{Aftr, Lwb4, MapECe, MapTCe, Nat44, Nat64};
        matches!(self, Nat44 | Nat64 | Aftr | Lwb4 | MapECe | MapTCe) || self.is_pair()
    }

    /// Whether it is both ends of a technology in series, which outwardly are a NAT44.
    pub fn is_pair(self) -> bool {
        use Technology::{DsLite, Lw4o6, MapE, MapT, Xlat464};
        matches!(self, Xlat464 | DsLite | Lw4o6 | MapE | MapT)
    }

    /// Whether IPv4 crosses it translated to IPv6 and back, so that its header is a new one.
    pub(crate) fn remakes_ipv4(self) -> bool {
        matches!(self, Technology::Xlat464 | Technology::MapT)
    }

    /// Whether it is one end of a technology, so that only the other end understands what it sends.
    pub fn is_one_end(self) -> bool {
        use Technology::{Aftr, B4, Clat, Lwaftr, Lwb4, MapEBr, MapECe, MapTBr, MapTCe};
        matches!(self, Clat | B4 | Aftr | Lwb4 | Lwaftr | MapECe | MapEBr | MapTCe | MapTBr)
    }

    /// Whether it is one of these that stands at the customer's.
    pub(super) fn is_customers_end(self) -> bool {
        self.is_one_end() && self.kinds().0 == FrameKind::Ipv4
    }

    /// Whether subscribers share IPv4 addresses by port sets (RFC 7597 section 5.1), and the tester
    /// plays many of them.
    pub(crate) fn shares_ports(self) -> bool {
        use Technology::{Lwaftr, MapEBr, MapTBr};
        matches!(self, Lwaftr | MapEBr | MapTBr)
    }

    /// Whether the hosts inside share the ports of one subscriber, by a NAPT at the customer's.
    pub(crate) fn has_one_port_set(self) -> bool {
        use Technology::{Lw4o6, Lwb4, MapE, MapECe, MapT, MapTCe};
        matches!(self, Lwb4 | MapECe | MapTCe | Lw4o6 | MapE | MapT)
    }
}

impl fmt::Display for Technology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Technology {
    type Err = String;

    fn from_str(text: &str) -> Result<Technology, String> {
        Technology::ALL.into_iter().find(|t| t.name() == text).ok_or_else(|| {
            let known = Technology::ALL.map(Technology::name).join(", ");
            format!("no technology is called `{text}`; there are {known}")
        })
    }
}

//! By what a NAT tells hosts apart, protocol by protocol: ports, identifiers, or nothing.
//!
//! Read first: RFC 6146 section 3.1; RFC 9260 (SCTP), RFC 5597 (DCCP), RFC 3828 (UDP-Lite), RFC 6092
//! section 3.2.4 (ESP), RFC 2784 (GRE).
//!
//! Outside addresses have slots for the ports of TCP and of UDP, and for identifiers of ICMP. The
//! other protocols have theirs among these, so that tables and pools are the same with them and
//! without:
//!
//! | protocol | told apart by | slots | lives and is filtered like |
//! |---|---|---|---|
//! | TCP, SCTP, DCCP | port | of TCP | TCP: a connection is opened and closed |
//! | UDP, UDP-Lite | port | of UDP | UDP |
//! | ICMP | identifier | of ICMP | ICMP |
//! | ESP | nothing: one host has an outside address | port 0 of TCP | UDP |
//! | GRE | nothing: one host has an outside address | port 0 of UDP | UDP |
//!
//! So a port has one owner with TCP, SCTP and DCCP together. ESP has SPIs and PPTP's GRE call ids,
//! but these are agreed upon out of a NAT's sight (docs/decisions/protocols-besides-tcp-and-udp.md).

/// What an endpoint of a protocol is told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortSpace {
    /// TCP ports.
    Tcp,
    /// UDP ports.
    Udp,
    /// ICMP query identifiers.
    Icmp,
    /// SCTP ports.
    Sctp,
    /// DCCP ports.
    Dccp,
    /// UDP-Lite ports.
    UdpLite,
    /// Hosts that use ESP.
    Esp,
    /// Hosts that use GRE.
    Gre,
}

impl PortSpace {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Tcp, Self::Udp, Self::Icmp, Self::Sctp, Self::Dccp, Self::UdpLite, Self::Esp, Self::Gre];

    /// Those that have slots of their own, in the order of their slots.
    pub const WITH_SLOTS: [Self; 3] = [Self::Tcp, Self::Udp, Self::Icmp];

    /// The IP protocol number on the IPv4 side.
    #[must_use]
    pub const fn protocol(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Icmp => 1,
            Self::Sctp => 132,
            Self::Dccp => 33,
            Self::UdpLite => 136,
            Self::Esp => 50,
            Self::Gre => 47,
        }
    }

    /// The one of an IP protocol number of the IPv4 side.
    #[must_use]
    pub fn of_protocol(protocol: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|space| space.protocol() == protocol)
    }

    /// Its name in configurations, logs and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
            Self::Sctp => "sctp",
            Self::Dccp => "dccp",
            Self::UdpLite => "udp-lite",
            Self::Esp => "esp",
            Self::Gre => "gre",
        }
    }

    /// All of them by their names.
    #[must_use]
    pub fn names() -> [(&'static str, Self); 8] {
        Self::ALL.map(|space| (space.name(), space))
    }

    /// The one among whose slots it has its own.
    #[inline]
    #[must_use]
    pub const fn slots(self) -> Self {
        match self {
            Self::Tcp | Self::Sctp | Self::Dccp | Self::Esp => Self::Tcp,
            Self::Udp | Self::UdpLite | Self::Gre => Self::Udp,
            Self::Icmp => Self::Icmp,
        }
    }

    /// The one whose lifetimes and filtering it has.
    #[inline]
    #[must_use]
    pub const fn like(self) -> Self {
        match self {
            Self::Tcp | Self::Sctp | Self::Dccp => Self::Tcp,
            Self::Udp | Self::UdpLite | Self::Esp | Self::Gre => Self::Udp,
            Self::Icmp => Self::Icmp,
        }
    }

    /// True if connections are opened and closed.
    #[inline]
    #[must_use]
    pub const fn has_connections(self) -> bool {
        matches!(self.like(), Self::Tcp)
    }

    /// True if it has ports or identifiers. Others have port 0 wherever a port is asked for.
    #[inline]
    #[must_use]
    pub const fn has_ports(self) -> bool {
        !matches!(self, Self::Esp | Self::Gre)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_of_one_each() {
        for space in PortSpace::ALL {
            assert_eq!(PortSpace::of_protocol(space.protocol()), Some(space));
            assert_eq!(PortSpace::names().iter().filter(|(name, _)| *name == space.name()).count(), 1);
            assert!(PortSpace::WITH_SLOTS.contains(&space.slots()) && PortSpace::WITH_SLOTS.contains(&space.like()));
        }
        assert_eq!(PortSpace::of_protocol(41), None);
        assert!(PortSpace::WITH_SLOTS.iter().enumerate().all(|(place, space)| *space as usize == place));
    }

    #[test]
    fn what_has_no_ports_has_a_slot_that_no_port_has() {
        // Port 0 of TCP and UDP is never handed out, and each belongs to one of them.
        let without: Vec<_> = PortSpace::ALL.into_iter().filter(|space| !space.has_ports()).collect();
        assert_eq!(without.iter().map(|space| space.slots()).collect::<Vec<_>>(), [PortSpace::Tcp, PortSpace::Udp]);
    }
}

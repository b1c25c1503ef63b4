//! What a translation is given: the addresses and ports that were decided, and the operator's
//! choices.

use tombolo_wire::Port;

/// Addresses and ports that a packet gets. `A` is the address type of the packet as it leaves.
///
/// A port that is `None` stays. An echo has one identifier: it becomes `source_port` if that is
/// given, else `destination_port` if that is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewrite<A> {
    /// New source address.
    pub source: A,
    /// New destination address.
    pub destination: A,
    /// New source port.
    pub source_port: Option<Port>,
    /// New destination port.
    pub destination_port: Option<Port>,
}

impl<A> Rewrite<A> {
    /// Changes addresses only, as stateless translation does.
    #[must_use]
    pub const fn addresses(source: A, destination: A) -> Self {
        Self { source, destination, source_port: None, destination_port: None }
    }
}

/// What becomes of TOS and traffic class (RFC 7915 sections 4.1, 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrafficClass {
    /// All eight bits are copied.
    #[default]
    Copy,
    /// The six bits of the DSCP are those of this octet; ECN, the lower two, is copied, or marks of
    /// congestion would be lost (RFC 3168 section 5, RFC 6040).
    Force(u8),
}

/// The bits of TOS and traffic class that mark a class of service (RFC 2474).
pub const DSCP: u8 = 0b1111_1100;
/// Those that tell of congestion (RFC 3168).
pub const ECN: u8 = 0b11;

impl TrafficClass {
    /// The octet that leaves, for the octet that came.
    #[must_use]
    #[inline]
    pub const fn apply(self, received: u8) -> u8 {
        match self {
            Self::Copy => received,
            Self::Force(octet) => octet & DSCP | received & ECN,
        }
    }
}

/// What becomes of a UDP datagram that has no checksum (RFC 7915 section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UdpZeroChecksum {
    /// It is dropped.
    #[default]
    Drop,
    /// A checksum is computed over the payload; a fragment, of which not all is there, is dropped.
    Compute,
    /// It is forwarded without one. In IPv6 only certain tunnels may be sent so (RFC 6935).
    Forward,
}

/// The operator's choices, and what is known about the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranslateSettings {
    /// Traffic class of IPv6 packets that were IPv4.
    pub traffic_class_4to6: TrafficClass,
    /// TOS of IPv4 packets that were IPv6.
    pub traffic_class_6to4: TrafficClass,
    /// Datagrams without checksum from IPv4.
    pub udp_zero_4to6: UdpZeroChecksum,
    /// Datagrams without checksum from IPv6, where they are illegal outside certain tunnels.
    pub udp_zero_6to4: UdpZeroChecksum,
    /// IPv4 packets without DF become IPv6 packets of at most this many bytes; larger ones are
    /// fragmented (RFC 7915 section 4: "lowest-ipv6-mtu"). At least 1280.
    pub lowest_ipv6_mtu: u32,
    /// MTU of the IPv6 next hop in bytes. At least 1280.
    pub ipv6_mtu: u32,
    /// MTU of the IPv4 next hop in bytes. At least 68.
    pub ipv4_mtu: u32,
    /// Largest TCP segment that a SYN may announce, in bytes; larger announcements are lowered to
    /// it. `None` leaves them.
    pub largest_segment: Option<u16>,
    /// Path MTUs to choose from where a router does not give its own (RFC 1191 section 7.1).
    pub plateaus: Plateaus,
}

impl TranslateSettings {
    /// The same, for a packet that is hairpinned: it never meets the IPv4 link.
    #[must_use]
    #[inline]
    pub const fn without_ipv4_limit(self) -> Self {
        Self { ipv4_mtu: u32::MAX, ..self }
    }
}

/// Path MTUs that occur, from large to small, at most [`Plateaus::MOST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plateaus([u16; Self::MOST]);

impl Plateaus {
    /// How many there can be.
    pub const MOST: usize = 16;

    /// The plateaus `sizes`; `None` if there are too many, or they do not fall.
    #[must_use]
    pub fn new(sizes: &[u16]) -> Option<Self> {
        let mut plateaus = [0; Self::MOST];
        plateaus.get_mut(..sizes.len())?.copy_from_slice(sizes);
        sizes.is_sorted_by(|larger, smaller| larger > smaller).then_some(Self(plateaus))
    }

    /// The largest below `size`; 0 if there is none.
    #[must_use]
    pub fn below(self, size: u32) -> u32 {
        self.0.into_iter().map(u32::from).find(|&plateau| plateau < size).unwrap_or(0)
    }
}

/// As RFC 7915 section 4.2 has them.
impl Default for Plateaus {
    fn default() -> Self {
        let mut plateaus = [0; Self::MOST];
        let known = [65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];
        plateaus[..known.len()].copy_from_slice(&known);
        Self(plateaus)
    }
}

impl Default for TranslateSettings {
    fn default() -> Self {
        Self {
            traffic_class_4to6: TrafficClass::Copy,
            traffic_class_6to4: TrafficClass::Copy,
            udp_zero_4to6: UdpZeroChecksum::Drop,
            udp_zero_6to4: UdpZeroChecksum::Drop,
            lowest_ipv6_mtu: 1280,
            ipv6_mtu: 1500,
            ipv4_mtu: 1500,
            largest_segment: None,
            plateaus: Plateaus::default(),
        }
    }
}

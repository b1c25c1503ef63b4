//! One mapping rule of MAP: which IPv4 address and ports belong to which IPv6 prefix, by
//! arithmetic.
//!
//! Read first: RFC 7597 sections 5 (rules), 5.1 (ports), 5.2 (Basic Mapping Rule), 5.3 (Forwarding
//! Mapping Rule), 6 (interface identifier); RFC 7599 section 6 uses the same for MAP-T.
//!
//! ```text
//!           |<---- n bits ---->|<----- o EA bits ----->|<- to 64 ->|<-------- 64 bits --------->|
//! IPv6      | Rule IPv6 prefix | IPv4 suffix p | PSID q | 0         | 16 x 0 | IPv4 | 0 .. PSID |
//!           |<----------- End-user prefix ------------->|           |<-- interface identifier -->|
//! IPv4      | Rule IPv4 prefix, r bits | suffix p |         r + p < 32: a prefix; = 32: an address
//! port      | A: offset bits | PSID: k bits | j |           only where an address is shared (k > 0)
//! ```
//!
//! MAP-E of the third draft (draft-ietf-softwire-map-03), which providers in Japan have deployed, has the interface
//! identifier eight bits further to the left, with zeros behind it: [`InterfaceIdentifier::Draft3`].
//!
//! An End-user prefix of more than 64 bits overwrites the high bits of the interface identifier.
//! Without EA bits (o = 0) the rule is for one subscriber; its PSID, if any, is given and not
//! embedded.
//!
//! Invariants of a [`MapRule`]: n + o <= 128, r + p <= 32, offset bits + k <= 16, and k = q unless
//! o = 0.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use tombolo_tables::lpm::Prefix;

use super::port_set::{PortDivision, PortOwner, TooManyBits};

/// Most EA bits that a rule may have (RFC 7598 section 4.1).
pub const MOST_EA_BITS: u8 = 48;
/// Offset bits where nobody says otherwise (RFC 7597 section 5.1): ports 0 to 1023 belong to
/// nobody.
pub const DEFAULT_OFFSET_BITS: u8 = 6;

/// A mapping rule.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MapRule {
    ipv6: Prefix<u128>,
    ipv4: Prefix<u32>,
    ea_bits: u8,
    /// Bits of the IPv4 address among the EA bits (p).
    suffix_bits: u8,
    division: PortDivision,
    /// The PSID of a rule without EA bits.
    given_psid: Option<u16>,
    identifier: InterfaceIdentifier,
}

/// Where the interface identifier of a MAP address has IPv4 address and PSID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InterfaceIdentifier {
    /// At its end (RFC 7597 section 6).
    #[default]
    Rfc7597,
    /// Eight bits in front of its end (draft-ietf-softwire-map-03 section 6).
    Draft3,
}

impl InterfaceIdentifier {
    /// Bits behind the PSID.
    #[must_use]
    pub const fn bits_behind(self) -> u8 {
        match self {
            Self::Rfc7597 => 0,
            Self::Draft3 => 8,
        }
    }
}

/// A PSID that a rule without EA bits gives to its one subscriber (RFC 7598 section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenPsid {
    /// Bits of it (k), 1 to 16.
    pub bits: u8,
    /// Its value, aligned to the right.
    pub psid: u16,
}

/// What a rule gives to a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// An IPv4 prefix.
    Prefix,
    /// A whole IPv4 address.
    Address,
    /// A set of ports of an address that is shared.
    Shared,
}

/// What belongs to a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// IPv4 address, or the first one of a prefix.
    pub ipv4: Ipv4Addr,
    /// Port set identifier; 0 where the address is not shared.
    pub psid: u16,
}

/// Why a rule, or an End-user prefix for it, is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MapRuleError {
    /// Too many EA bits.
    #[error("{0} EA bits are too many; use at most {MOST_EA_BITS} (RFC 7598 section 4.1)")]
    EaBits(u8),
    /// Rule IPv6 prefix and EA bits do not fit an address.
    #[error("the rule's IPv6 prefix and its EA bits have {0} bits together, an address only 128; use fewer of either")]
    EndUserPrefix(u16),
    /// Offset and PSID do not fit a port.
    #[error(
        "{offset_bits} offset bits and {psid_bits} PSID bits do not fit the 16 bits of a port; use fewer of either"
    )]
    Port {
        /// Offset bits (a).
        offset_bits: u8,
        /// PSID bits (k).
        psid_bits: u8,
    },
    /// A PSID is given where the EA bits have one, or where a prefix is assigned.
    #[error(
        "a PSID can be given only to a rule of one whole IPv4 address (/32) without EA bits (RFC 7597 section 5.2)"
    )]
    GivenPsid,
    /// The given PSID has more bits than said.
    #[error("PSID {psid} does not fit {bits} bits; use at most {}", (1_u32 << bits) - 1)]
    PsidRange {
        /// Bits (k).
        bits: u8,
        /// The value.
        psid: u16,
    },
    /// The End-user prefix is not in the rule.
    #[error("the prefix does not lie in the rule's IPv6 prefix {0}")]
    OutsideRule(Prefix<u128>),
    /// The End-user prefix lacks EA bits.
    #[error("the prefix has {length} bits; with the rule's EA bits it has {needed} at least")]
    TooShort {
        /// Bits of the prefix.
        length: u8,
        /// Bits needed.
        needed: u8,
    },
}

impl MapRule {
    /// A rule of two prefixes, `ea_bits` embedded bits and `offset_bits` (usually
    /// [`DEFAULT_OFFSET_BITS`]).
    ///
    /// # Errors
    /// [`MapRuleError`] if the numbers do not fit together.
    pub fn new(
        ipv6: Prefix<u128>,
        ipv4: Prefix<u32>,
        ea_bits: u8,
        offset_bits: u8,
        given: Option<GivenPsid>,
    ) -> Result<Self, MapRuleError> {
        if ea_bits > MOST_EA_BITS {
            return Err(MapRuleError::EaBits(ea_bits));
        }
        let end = u16::from(ipv6.prefix_len()) + u16::from(ea_bits);
        if end > 128 {
            return Err(MapRuleError::EndUserPrefix(end));
        }
        let suffix_bits = ea_bits.min(32 - ipv4.prefix_len());
        let psid_bits = match given {
            None => ea_bits - suffix_bits,
            Some(_) if ea_bits > 0 || ipv4.prefix_len() < 32 => return Err(MapRuleError::GivenPsid),
            Some(GivenPsid { bits, psid }) if bits > 16 || u32::from(psid) >> bits != 0 => {
                return Err(MapRuleError::PsidRange { bits: bits.min(16), psid });
            }
            Some(GivenPsid { bits, .. }) => bits,
        };
        let division = PortDivision::new(offset_bits, psid_bits)
            .map_err(|TooManyBits| MapRuleError::Port { offset_bits, psid_bits })?;
        Ok(Self {
            ipv6,
            ipv4,
            ea_bits,
            suffix_bits,
            division,
            given_psid: given.map(|given| given.psid),
            identifier: InterfaceIdentifier::Rfc7597,
        })
    }

    /// The same rule with another interface identifier.
    #[must_use]
    pub const fn with_identifier(self, identifier: InterfaceIdentifier) -> Self {
        Self { identifier, ..self }
    }

    /// Where MAP addresses have IPv4 address and PSID.
    #[must_use]
    pub const fn identifier(&self) -> InterfaceIdentifier {
        self.identifier
    }

    /// The Rule IPv6 prefix.
    #[must_use]
    pub const fn ipv6(&self) -> Prefix<u128> {
        self.ipv6
    }

    /// The Rule IPv4 prefix.
    #[must_use]
    pub const fn ipv4(&self) -> Prefix<u32> {
        self.ipv4
    }

    /// Embedded address bits (o).
    #[must_use]
    pub const fn ea_bits(&self) -> u8 {
        self.ea_bits
    }

    /// Bits of the IPv4 address among the EA bits (p).
    #[must_use]
    pub const fn suffix_bits(&self) -> u8 {
        self.suffix_bits
    }

    /// Bits of the PSID among the EA bits (q).
    #[must_use]
    pub const fn embedded_psid_bits(&self) -> u8 {
        self.ea_bits - self.suffix_bits
    }

    /// How the ports of an address are divided.
    #[must_use]
    pub const fn division(&self) -> PortDivision {
        self.division
    }

    /// The PSID of a rule without EA bits that has one.
    #[must_use]
    pub const fn given_psid(&self) -> Option<u16> {
        self.given_psid
    }

    /// What the rule gives to a subscriber.
    #[must_use]
    #[inline]
    pub fn assignment(&self) -> Assignment {
        if self.division.is_shared() {
            Assignment::Shared
        } else if self.assigned_length() < 32 {
            Assignment::Prefix
        } else {
            Assignment::Address
        }
    }

    /// Bits of the IPv4 prefix or address that a subscriber gets: r + p.
    #[must_use]
    #[inline]
    pub fn assigned_length(&self) -> u8 {
        self.ipv4.prefix_len() + self.suffix_bits
    }

    /// Bits of the part of an IPv6 address that tells subscribers apart: n + o.
    #[must_use]
    pub fn end_user_length(&self) -> u8 {
        self.ipv6.prefix_len() + self.ea_bits
    }

    /// Whose `port` of `address` is; `None` if nobody's, or if the rule does not have the address.
    #[must_use]
    #[inline]
    pub fn share_of(&self, address: Ipv4Addr, port: u16) -> Option<Share> {
        if !self.ipv4.contains(address.to_bits()) {
            return None;
        }
        let psid = match self.division.owner(port) {
            PortOwner::Nobody => return None,
            PortOwner::Everything => 0,
            PortOwner::Psid(psid) if self.given_psid.is_some_and(|given| given != psid) => return None,
            PortOwner::Psid(psid) => psid,
        };
        Some(Share { ipv4: self.subnet_of(address), psid })
    }

    /// The address itself, or the first one of the prefix that a subscriber has.
    #[inline]
    fn subnet_of(&self, address: Ipv4Addr) -> Ipv4Addr {
        Ipv4Addr::from_bits(Prefix::covering(address.to_bits(), self.assigned_length()).key())
    }

    /// The End-user prefix of a subscriber, as far as the rule tells (RFC 7597 section 5.3): n + o
    /// bits.
    #[must_use]
    #[inline]
    pub fn end_user_prefix(&self, share: Share) -> Prefix<u128> {
        let suffix =
            low_bits(u64::from(share.ipv4.to_bits() >> (32 - self.assigned_length()).min(31)), self.suffix_bits);
        let psid = low_bits(u64::from(share.psid), self.embedded_psid_bits());
        let ea = u128::from(suffix << self.embedded_psid_bits() | psid);
        let shift = 128 - u32::from(self.end_user_length());
        Prefix::covering(self.ipv6.key() | ea.checked_shl(shift).unwrap_or(0), self.end_user_length())
    }

    /// The MAP address of a subscriber (RFC 7597 section 6).
    #[must_use]
    #[inline]
    pub fn map_address(&self, share: Share) -> Ipv6Addr {
        self.address_in(self.end_user_prefix(share), share)
    }

    /// The MAP address within an End-user prefix, which may have more bits than the rule knows.
    fn address_in(&self, end_user: Prefix<u128>, share: Share) -> Ipv6Addr {
        let psid = if self.division.is_shared() { share.psid } else { 0 };
        let identifier = (u128::from(share.ipv4.to_bits()) << 16 | u128::from(psid)) << self.identifier.bits_behind();
        let behind = u128::MAX.checked_shr(end_user.prefix_len().into()).unwrap_or(0);
        Ipv6Addr::from_bits(end_user.key() | identifier & behind)
    }

    /// What belongs to the subscriber with `address` in its End-user prefix, by the EA bits alone;
    /// `None` outside the rule.
    #[must_use]
    #[inline]
    pub fn share_in(&self, address: Ipv6Addr) -> Option<Share> {
        let bits = address.to_bits();
        if !self.ipv6.contains(bits) {
            return None;
        }
        let shift = 128 - u32::from(self.end_user_length());
        let ea = low_bits_of(bits.checked_shr(shift).unwrap_or(0), self.ea_bits);
        let psid_bits = self.embedded_psid_bits();
        let suffix = ea >> psid_bits;
        let host_bits = u32::from(32 - self.assigned_length());
        let ipv4 = self.ipv4.key() | low_32(suffix).checked_shl(host_bits).unwrap_or(0);
        let psid = self.given_psid.unwrap_or_else(|| low_16(low_bits(ea, psid_bits)));
        Some(Share { ipv4: Ipv4Addr::from_bits(ipv4), psid })
    }

    /// What belongs to the subscriber whose MAP address `address` is: the whole address must be as
    /// the rule makes it, interface identifier included, which is stricter than RFC 7597 section
    /// 8.1 and leaves nothing to choose for those who forge addresses.
    #[must_use]
    #[inline]
    pub fn share_at(&self, address: Ipv6Addr) -> Option<Share> {
        self.share_in(address).filter(|share| self.map_address(*share) == address)
    }

    /// The address that stands for IPv4 address `host` of a subscriber when packets are translated
    /// (MAP-T).
    ///
    /// That is the MAP address, but where a prefix is assigned the interface identifier has the
    /// whole IPv4 address. RFC 7599 section 6 pads the prefix with zeros there, which would lose
    /// the host.
    #[must_use]
    #[inline]
    pub fn host_address(&self, share: Share, host: Ipv4Addr) -> Ipv6Addr {
        self.address_in(self.end_user_prefix(share), Share { ipv4: host, ..share })
    }

    /// The reverse of [`host_address`](Self::host_address): the subscriber and its host. The whole
    /// address counts, as in [`share_at`](Self::share_at).
    #[must_use]
    #[inline]
    pub fn host_at(&self, address: Ipv6Addr) -> Option<(Share, Ipv4Addr)> {
        let share = self.share_in(address)?;
        let host = self.host_in(share, address);
        (self.host_address(share, host) == address).then_some((share, host))
    }

    /// As [`host_at`](Self::host_at), by the End-user prefix alone, which says whose the address is:
    /// other implementations write other interface identifiers into the packets that their ICMP
    /// errors quote. Good for whom an error is about, not for who may send.
    #[must_use]
    pub fn host_near(&self, address: Ipv6Addr) -> Option<(Share, Ipv4Addr)> {
        let share = self.share_in(address)?;
        Some((share, self.host_in(share, address)))
    }

    /// The host of `share` that an interface identifier names.
    fn host_in(&self, share: Share, address: Ipv6Addr) -> Ipv4Addr {
        let host_bits = u32::MAX.checked_shr(self.assigned_length().into()).unwrap_or(0);
        let named = low_32(low_bits_of(address.to_bits() >> (16 + self.identifier.bits_behind()), 32));
        Ipv4Addr::from_bits(share.ipv4.to_bits() | named & host_bits)
    }

    /// True if `port` of `address` belongs to `share`.
    #[must_use]
    #[inline]
    pub fn owns(&self, share: Share, address: Ipv4Addr, port: u16) -> bool {
        self.share_of(address, port) == Some(share)
    }

    /// Configures a CE: this is its Basic Mapping Rule, `end_user` the prefix that it was given
    /// (RFC 7597 section 5.2).
    ///
    /// # Errors
    /// [`MapRuleError::OutsideRule`], [`MapRuleError::TooShort`].
    pub fn provision(&self, end_user: Prefix<u128>) -> Result<MapCe, MapRuleError> {
        let share = self.share_in(Ipv6Addr::from_bits(end_user.key())).ok_or(MapRuleError::OutsideRule(self.ipv6))?;
        if end_user.prefix_len() < self.end_user_length() {
            return Err(MapRuleError::TooShort { length: end_user.prefix_len(), needed: self.end_user_length() });
        }
        Ok(MapCe { rule: *self, end_user, share, address: self.address_in(end_user, share) })
    }
}

impl fmt::Debug for MapRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for MapRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}, {} EA bits", self.ipv4, self.ipv6, self.ea_bits)?;
        if self.division.is_shared() {
            write!(f, ", {} offset and {} PSID bits", self.division.offset_bits(), self.division.psid_bits())?;
        }
        if let Some(psid) = self.given_psid {
            write!(f, ", PSID {psid:#x}")?;
        }
        Ok(())
    }
}

/// What a CE is, by its Basic Mapping Rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapCe {
    rule: MapRule,
    end_user: Prefix<u128>,
    share: Share,
    address: Ipv6Addr,
}

impl MapCe {
    /// Its Basic Mapping Rule.
    #[must_use]
    pub const fn rule(&self) -> &MapRule {
        &self.rule
    }

    /// The prefix that it was given.
    #[must_use]
    pub const fn end_user_prefix(&self) -> Prefix<u128> {
        self.end_user
    }

    /// Its IPv4 address and PSID.
    #[must_use]
    pub const fn share(&self) -> Share {
        self.share
    }

    /// Its IPv4 address, as a prefix of 32 bits, or its IPv4 prefix.
    #[must_use]
    pub fn ipv4(&self) -> Prefix<u32> {
        Prefix::covering(self.share.ipv4.to_bits(), self.rule.assigned_length())
    }

    /// Its MAP address: from here its packets come, and here they go.
    #[must_use]
    pub const fn address(&self) -> Ipv6Addr {
        self.address
    }

    /// The address that stands for its IPv4 address `host` in translation; see
    /// [`MapRule::host_address`].
    #[must_use]
    #[inline]
    pub fn host_address(&self, host: Ipv4Addr) -> Ipv6Addr {
        self.rule.address_in(self.end_user, Share { ipv4: host, ..self.share })
    }

    /// The IPv4 address of its own that `address` stands for in translation.
    #[must_use]
    #[inline]
    pub fn host_at(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let host = self.rule.host_in(self.share, address);
        (self.host_address(host) == address).then_some(host)
    }

    /// Its ports, ascending; one range of all ports where its address is not shared.
    pub fn ports(&self) -> impl Iterator<Item = RangeInclusive<u16>> + use<> {
        self.rule.division.ranges(self.share.psid)
    }

    /// True if `port` of `address` is its own.
    #[must_use]
    #[inline]
    pub fn owns(&self, address: Ipv4Addr, port: u16) -> bool {
        self.rule.owns(self.share, address, port)
    }

    /// True if others can compute its MAP address from its IPv4 address and port: not if its prefix
    /// has bits set that the rule does not know (RFC 7597 section 5.3).
    #[must_use]
    pub fn is_computable(&self) -> bool {
        self.rule.map_address(self.share) == self.address
    }
}

/// The lowest `count` (at most 48) bits.
#[inline]
const fn low_bits(value: u64, count: u8) -> u64 {
    value & ((1 << count) - 1)
}

/// The lowest `count` (at most 48) bits of a wide number.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the bits wanted are among the lowest 48")]
const fn low_bits_of(value: u128, count: u8) -> u64 {
    low_bits(value as u64, count)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "an IPv4 suffix has at most 32 bits")]
const fn low_32(value: u64) -> u32 {
    value as u32
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a PSID has at most 16 bits")]
const fn low_16(value: u64) -> u16 {
    value as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::eam::parse_prefix;

    fn rule(ipv6: &str, ipv4: &str, ea_bits: u8, offset_bits: u8) -> MapRule {
        MapRule::new(parse_prefix(ipv6).unwrap(), parse_prefix(ipv4).unwrap(), ea_bits, offset_bits, None).unwrap()
    }

    #[test]
    fn every_share_is_found_again_in_its_address() {
        for rule in [
            rule("2001:db8::/40", "192.0.2.0/24", 16, 6),
            rule("2001:db8:f800::/37", "203.0.113.128/25", 13, 6),
            rule("2001:db8::/64", "192.0.2.0/24", 12, 0),
            rule("::/0", "0.0.0.0/0", 32, 4),
            rule("2001:db8::/80", "192.0.2.0/24", 48 - 32, 6),
            rule("2001:db8::/32", "192.0.2.0/24", 4, 6),
            rule("2001:db8::/128", "192.0.2.1/32", 0, 0),
        ] {
            for host in [0_u32, 1, 18, 200, 255] {
                let address = Ipv4Addr::from_bits(
                    rule.ipv4().key() | host & u32::MAX.checked_shr(rule.ipv4().prefix_len().into()).unwrap_or(0),
                );
                for port in [0_u16, 1, 80, 1023, 1024, 1232, 5000, 40_000, 65_535] {
                    let Some(share) = rule.share_of(address, port) else { continue };
                    let found = rule.map_address(share);
                    assert_eq!(rule.share_at(found), Some(share), "{rule} {address} {port} {found}");
                    assert!(rule.owns(share, address, port));
                    let ce = rule.provision(rule.end_user_prefix(share)).unwrap();
                    assert_eq!((ce.share(), ce.address(), ce.is_computable()), (share, found, true));
                    assert!(ce.ports().any(|range| range.contains(&port)));
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let new = |ipv6: &str, ipv4: &str, ea, offset, given: Option<(u8, u16)>| {
            let given = given.map(|(bits, psid)| GivenPsid { bits, psid });
            MapRule::new(parse_prefix(ipv6).unwrap(), parse_prefix(ipv4).unwrap(), ea, offset, given).unwrap_err()
        };
        assert_eq!(new("2001:db8::/32", "10.0.0.0/8", 49, 0, None), MapRuleError::EaBits(49));
        assert_eq!(new("2001:db8::/120", "10.0.0.0/8", 9, 0, None), MapRuleError::EndUserPrefix(129));
        let port = |offset_bits, psid_bits| MapRuleError::Port { offset_bits, psid_bits };
        assert_eq!(new("2001:db8::/32", "10.0.0.0/8", 41, 0, None), port(0, 17));
        assert_eq!(new("2001:db8::/32", "10.0.0.0/24", 24, 6, None), port(6, 16));
        assert_eq!(new("2001:db8::/32", "10.0.0.0/24", 8, 16, None), port(16, 0));
        assert_eq!(new("2001:db8::/32", "10.0.0.0/24", 0, 6, Some((8, 1))), MapRuleError::GivenPsid);
        assert_eq!(new("2001:db8::/32", "10.0.0.1/32", 8, 6, Some((8, 1))), MapRuleError::GivenPsid);
        let range = MapRuleError::PsidRange { bits: 4, psid: 16 };
        assert_eq!(new("2001:db8::/56", "10.0.0.1/32", 0, 6, Some((4, 16))), range);
    }

    #[test]
    fn an_end_user_prefix_has_to_be_in_the_rule_and_long_enough() {
        let rule = rule("2001:db8::/40", "192.0.2.0/24", 16, 6);
        let provision = |text: &str| rule.provision(parse_prefix(text).unwrap());
        assert_eq!(provision("2001:db9::/56"), Err(MapRuleError::OutsideRule(rule.ipv6())));
        assert_eq!(provision("2001:db8:12::/48"), Err(MapRuleError::TooShort { length: 48, needed: 56 }));
        assert!(!provision("2001:db8:12:34a0::/60").unwrap().is_computable());
        assert!(provision("2001:db8:12:3400::/60").unwrap().is_computable());
    }

    #[test]
    fn hosts_of_an_assigned_prefix_have_addresses_of_their_own_in_translation() {
        let rule = rule("2001:db8::/32", "192.0.2.0/24", 4, 6);
        let host = Ipv4Addr::new(192, 0, 2, 83);
        let share = rule.share_of(host, 80).unwrap();
        assert_eq!(rule.map_address(share), "2001:db8:5000::c000:250:0".parse::<Ipv6Addr>().unwrap());
        let address = rule.host_address(share, host);
        assert_eq!(address, "2001:db8:5000::c000:253:0".parse::<Ipv6Addr>().unwrap());
        assert_eq!(rule.host_at(address), Some((share, host)));
        assert_eq!(rule.share_at(address), None);
        // Neither another subscriber's host nor anything but a MAP identifier.
        assert_eq!(rule.host_at("2001:db8:5000::c000:263:0".parse().unwrap()), None);
        assert_eq!(rule.host_at("2001:db8:5000::c000:253:1".parse().unwrap()), None);
        let ce = rule.provision(parse_prefix("2001:db8:5000:1::/64").unwrap()).unwrap();
        let address = ce.host_address(host);
        assert_eq!(address, "2001:db8:5000:1:0:c000:253:0".parse::<Ipv6Addr>().unwrap());
        assert_eq!((ce.host_at(address), ce.host_at(rule.host_address(share, host))), (Some(host), None));
    }

    #[test]
    fn a_given_psid_owns_its_ports_and_no_others() {
        let given = Some(GivenPsid { bits: 8, psid: 0x34 });
        let (ipv6, ipv4) = (parse_prefix("2001:db8:12:3400::/56").unwrap(), parse_prefix("192.0.2.18").unwrap());
        let rule = MapRule::new(ipv6, ipv4, 0, 6, given).unwrap();
        let address = Ipv4Addr::new(192, 0, 2, 18);
        let share = Share { ipv4: address, psid: 0x34 };
        assert_eq!(rule.share_of(address, 1232), Some(share));
        assert_eq!(rule.share_of(address, 1236), None);
        assert_eq!(rule.share_of(address, 80), None);
        assert_eq!(rule.map_address(share), "2001:db8:12:3400:0:c000:212:34".parse::<Ipv6Addr>().unwrap());
    }

    #[test]
    fn the_interface_identifier_of_the_third_draft_lies_eight_bits_further_to_the_left() {
        let end_user = || parse_prefix("2001:db8:12:3400::/56").unwrap();
        let rule = rule("2001:db8::/40", "192.0.2.0/24", 16, 6).with_identifier(InterfaceIdentifier::Draft3);
        let ce = rule.provision(end_user()).unwrap();
        assert_eq!(ce.address().to_string(), "2001:db8:12:3400:c0:2:1200:3400");
        assert_eq!(rule.share_at(ce.address()), Some(ce.share()));
        assert!(ce.is_computable() && ce.host_at(ce.address()) == Some(ce.share().ipv4));
        // Of the RFC's address it knows nothing.
        assert_eq!(rule.share_at("2001:db8:12:3400:0:c000:212:34".parse().unwrap()), None);
        assert_eq!(rule.host_at("2001:db8:12:3400:0:c000:212:34".parse().unwrap()), None);
    }
}

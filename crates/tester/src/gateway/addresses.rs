//! The addresses of the tester's hosts, and how the technologies map them.
//!
//! They are computed here on their own, from the RFCs, so that a mistake of the gateway under test
//! is not repeated.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// The prefix of the stateless translators in the lab, a /96. Not 64:ff9b::/96: Tayga follows RFC
/// 6052 section 3.1 to the letter and refuses to represent non-global IPv4 addresses under the
/// well-known prefix, and documentation addresses are such.
pub(super) const SIIT_PREFIX: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0), 96);

/// The addresses of the hosts and of the gateway's rules. Hosts are numbered upwards from the
/// first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// First subscriber, IPv4.
    pub inside_ipv4: Ipv4Addr,
    /// First subscriber, IPv6; also its softwire address.
    pub inside_ipv6: Ipv6Addr,
    /// First server, IPv4.
    pub outside_ipv4: Ipv4Addr,
    /// First server, IPv6.
    pub outside_ipv6: Ipv6Addr,
    /// What the gateway gives stateful subscribers: first and last address. Anything is accepted
    /// where absent.
    pub pool: Option<(Ipv4Addr, Ipv4Addr)>,
    /// The IPv4 address that SIIT maps the first subscriber to.
    pub mapped_ipv4: Ipv4Addr,
    /// Prefix under which IPv6 hosts see IPv4 ones (RFC 6052), and its length: 32, 40, 48, 56, 64
    /// or 96.
    pub translation_prefix: (Ipv6Addr, u8),
    /// The softwire address of AFTR, lwAFTR or BR.
    pub softwire_concentrator: Ipv6Addr,
    /// The basic mapping rule, for lw4o6, MAP-E and MAP-T.
    pub rule: MapRule,
    /// Which subscriber of the rule a customer's edge is; the tester plays all of them where the
    /// gateway is the provider's end.
    pub edge: u32,
}

/// A basic mapping rule (RFC 7597 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapRule {
    /// Rule IPv6 prefix and its length.
    pub ipv6: (Ipv6Addr, u8),
    /// Rule IPv4 prefix and its length.
    pub ipv4: (Ipv4Addr, u8),
    /// Length of the EA bits.
    pub ea_bits: u8,
    /// RFC 7597 "a": 6 leaves ports 0 to 1023 out, 0 makes the sets contiguous.
    pub psid_offset: u8,
}

impl MapRule {
    /// RFC 7597 "k".
    pub(super) fn psid_bits(&self) -> u8 {
        self.ea_bits.saturating_sub(32 - self.ipv4.1)
    }

    /// Refuses a rule that is none (RFC 7597 section 5).
    ///
    /// # Errors
    /// In words.
    pub fn check(&self) -> Result<(), String> {
        let (ipv6, ipv4) = (self.ipv6.1, self.ipv4.1);
        let ports = u32::from(self.psid_offset) + u32::from(self.ea_bits) + u32::from(ipv4);
        if !(1..=31).contains(&ipv4) || u32::from(ipv6) + u32::from(self.ea_bits) > 64 {
            return Err(format!(
                "a rule of IPv6 /{ipv6}, IPv4 /{ipv4} and {} EA bits has no prefixes of at most 64 bits",
                self.ea_bits
            ));
        }
        if self.ea_bits < 32 - ipv4 || ports > 32 + 16 || self.psid_offset > 15 {
            return Err(format!(
                "{} EA bits behind an IPv4 /{ipv4} with a PSID offset of {} give no port sets",
                self.ea_bits, self.psid_offset
            ));
        }
        Ok(())
    }

    /// The IPv6 prefix of a subscriber, and its length (RFC 7597 section 5.2).
    pub(super) fn end_user_prefix(&self, subscriber: u32) -> (Ipv6Addr, u8) {
        let (ipv4, psid) = self.share(subscriber);
        let interface_id = u128::from(u64::MAX);
        (Ipv6Addr::from_bits(self.ipv6_address(ipv4, psid).to_bits() & !interface_id), self.ipv6.1 + self.ea_bits)
    }

    /// RFC 7597 "m".
    pub(super) fn contiguous_bits(&self) -> u8 {
        16 - self.psid_offset - self.psid_bits()
    }

    /// Ports that a subscriber may use.
    pub fn ports_per_subscriber(&self) -> u32 {
        let blocks = if self.psid_offset == 0 { 1 } else { (1u32 << self.psid_offset) - 1 };
        blocks << self.contiguous_bits()
    }

    /// Subscribers whose IPv4 suffix is neither all zeros nor all ones, and with contiguous sets
    /// not PSID 0, which holds the system ports.
    pub fn subscribers(&self) -> u32 {
        let suffixes = (1u32 << (32 - self.ipv4.1)).saturating_sub(2).max(1);
        suffixes * self.psids()
    }

    fn psids(&self) -> u32 {
        let all = 1u32 << self.psid_bits();
        if self.psid_offset == 0 && all > 1 { all - 1 } else { all }
    }

    /// IPv4 address and PSID of a subscriber.
    pub(super) fn share(&self, subscriber: u32) -> (Ipv4Addr, u16) {
        let skipped = u32::from(self.psid_offset == 0 && self.psid_bits() > 0);
        let first_suffix = u32::from(self.ipv4.1 < 31);
        let psid = subscriber % self.psids() + skipped;
        let address = self.ipv4.0.to_bits() + first_suffix + subscriber / self.psids();
        (Ipv4Addr::from_bits(address), u16::try_from(psid).unwrap_or(u16::MAX))
    }

    /// The MAP address (RFC 7597 sections 5.2 and 6): rule prefix, EA bits, then 16 zero bits, IPv4
    /// address, PSID.
    pub(super) fn ipv6_address(&self, ipv4: Ipv4Addr, psid: u16) -> Ipv6Addr {
        let suffix_bits = 32 - self.ipv4.1;
        let suffix = if suffix_bits == 0 { 0 } else { ipv4.to_bits() & (u32::MAX >> self.ipv4.1) };
        let ea = u128::from(suffix) << self.psid_bits() | u128::from(psid);
        let interface_id = u128::from(ipv4.to_bits()) << 16 | u128::from(psid);
        let prefix = self.ipv6.0.to_bits() | ea << (128 - u32::from(self.ipv6.1) - u32::from(self.ea_bits));
        Ipv6Addr::from_bits(prefix | interface_id)
    }
}

impl Addresses {
    /// The MAP address of the customer's edge.
    pub(super) fn map_address(&self) -> Ipv6Addr {
        let (ipv4, psid) = self.rule.share(self.edge);
        self.rule.ipv6_address(ipv4, psid)
    }
}

impl Default for Addresses {
    /// Those of the laboratory: client 10.0.0.2 and 2001:db8:1::2, server 198.51.100.2 and
    /// 2001:db8:2::2.
    fn default() -> Addresses {
        Addresses {
            inside_ipv4: Ipv4Addr::new(10, 0, 0, 2),
            inside_ipv6: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2),
            outside_ipv4: Ipv4Addr::new(198, 51, 100, 2),
            outside_ipv6: Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2),
            pool: None,
            mapped_ipv4: Ipv4Addr::new(192, 0, 2, 2),
            translation_prefix: (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96),
            softwire_concentrator: Ipv6Addr::new(0x2001, 0xdb8, 0xaf, 0, 0, 0, 0, 1),
            rule: MapRule {
                ipv6: (Ipv6Addr::new(0x2001, 0xdb8, 0xce, 0, 0, 0, 0, 0), 51),
                ipv4: (Ipv4Addr::new(192, 0, 2, 0), 24),
                ea_bits: 13,
                psid_offset: 6,
            },
            edge: 0,
        }
    }
}

/// An IPv4 address in an IPv6 prefix (RFC 6052 section 2.2): the bytes go around bits 64 to 71,
/// which stay zero.
pub(super) fn embed((prefix, length): (Ipv6Addr, u8), ipv4: Ipv4Addr) -> Ipv6Addr {
    let mut bytes = prefix.octets();
    let mut at = usize::from(length / 8);
    for byte in ipv4.octets() {
        if at == 8 {
            at += 1;
        }
        bytes[at] = byte;
        at += 1;
    }
    Ipv6Addr::from(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_embedded_as_in_rfc_6052_section_2_4() {
        let ipv4 = Ipv4Addr::new(192, 0, 2, 33);
        for (prefix, length, expected) in [
            ("2001:db8::", 32, "2001:db8:c000:221::"),
            ("2001:db8:100::", 40, "2001:db8:1c0:2:21::"),
            ("2001:db8:122::", 48, "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::", 56, "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::", 64, "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::", 96, "2001:db8:122:344::192.0.2.33"),
        ] {
            assert_eq!(embed((prefix.parse().unwrap(), length), ipv4), expected.parse::<Ipv6Addr>().unwrap());
        }
    }

    #[test]
    fn the_map_address_of_rfc_7597_appendix_a_example_1() {
        let rule = MapRule {
            ipv6: ("2001:db8::".parse().unwrap(), 40),
            ipv4: (Ipv4Addr::new(192, 0, 2, 0), 24),
            ea_bits: 16,
            psid_offset: 6,
        };
        assert_eq!(rule.psid_bits(), 8);
        let address = rule.ipv6_address(Ipv4Addr::new(192, 0, 2, 18), 0x34);
        assert_eq!(address, "2001:db8:12:3400:0:c000:212:34".parse::<Ipv6Addr>().unwrap());
        assert_eq!(rule.ports_per_subscriber(), 63 * 4);
    }

    #[test]
    fn subscribers_have_different_shares_and_none_is_a_network_or_broadcast_address() {
        for psid_offset in [0, 6] {
            let rule = MapRule { psid_offset, ..Addresses::default().rule };
            let mut shares: Vec<(Ipv4Addr, u16)> = (0..rule.subscribers()).map(|s| rule.share(s)).collect();
            assert!(shares.iter().all(|(a, _)| ![0, 255].contains(&a.octets()[3])));
            shares.sort_unstable();
            shares.dedup();
            assert_eq!(shares.len(), rule.subscribers() as usize);
        }
    }
}

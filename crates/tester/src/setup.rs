//! Which frames a technology needs on each side of the gateway (RFC 8219 section 3, RFC 9693
//! section 4).
//!
//! The left side is the subscribers' (the gateway's inside), the right side the other one: the IPv4
//! Internet behind a PE device, the IPv6 core behind a CE device. Two gateways in series (CE and
//! PE) behave as one NAT44 and are measured as such. Addresses are computed here on their own, from
//! the RFCs, so that a mistake of the gateway under test is not repeated.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tombolo_generator::{Endpoint, FrameKind, PortRule, SourceRule, TupleShape};

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
}

impl Technology {
    /// All of them.
    pub const ALL: [Technology; 14] = [
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
        }
    }

    /// Frames on the left and on the right.
    pub fn kinds(self) -> (FrameKind, FrameKind) {
        use FrameKind::{Ipv4, Ipv4InIpv6, Ipv6};
        match self {
            Technology::Forward4 | Technology::Nat44 => (Ipv4, Ipv4),
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
        matches!(self, Nat44 | Nat64 | Aftr | Lwb4 | MapECe | MapTCe)
    }

    /// Whether subscribers share IPv4 addresses by port sets (RFC 7597 section 5.1).
    fn shares_ports(self) -> bool {
        use Technology::{Lwaftr, MapEBr, MapTBr};
        matches!(self, Lwaftr | MapEBr | MapTBr)
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
    fn psid_bits(&self) -> u8 {
        self.ea_bits.saturating_sub(32 - self.ipv4.1)
    }

    /// RFC 7597 "m".
    fn contiguous_bits(&self) -> u8 {
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
    fn share(&self, subscriber: u32) -> (Ipv4Addr, u16) {
        let skipped = u32::from(self.psid_offset == 0 && self.psid_bits() > 0);
        let first_suffix = u32::from(self.ipv4.1 < 31);
        let psid = subscriber % self.psids() + skipped;
        let address = self.ipv4.0.to_bits() + first_suffix + subscriber / self.psids();
        (Ipv4Addr::from_bits(address), u16::try_from(psid).unwrap_or(u16::MAX))
    }

    /// The MAP address (RFC 7597 sections 5.2 and 6): rule prefix, EA bits, then 16 zero bits, IPv4
    /// address, PSID.
    fn ipv6_address(&self, ipv4: Ipv4Addr, psid: u16) -> Ipv6Addr {
        let suffix_bits = 32 - self.ipv4.1;
        let suffix = if suffix_bits == 0 { 0 } else { ipv4.to_bits() & (u32::MAX >> self.ipv4.1) };
        let ea = u128::from(suffix) << self.psid_bits() | u128::from(psid);
        let interface_id = u128::from(ipv4.to_bits()) << 16 | u128::from(psid);
        let prefix = self.ipv6.0.to_bits() | ea << (128 - u32::from(self.ipv6.1) - u32::from(self.ea_bits));
        Ipv6Addr::from_bits(prefix | interface_id)
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
        }
    }
}

/// How many four tuples there are, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// First port of a subscriber. With port sets, the set decides.
    pub inside_first: u16,
    /// Ports of each subscriber.
    pub inside_ports: u32,
    /// First port of a server.
    pub outside_first: u16,
    /// Ports of each server.
    pub outside_ports: u32,
    /// Subscribers.
    pub inside_hosts: u32,
    /// Servers.
    pub outside_hosts: u32,
}

impl Flows {
    /// All ports of RFC 4814: 64,512 source and 49,151 destination ports of one host each.
    pub const RFC_4814: Flows = Flows {
        inside_first: 1024,
        inside_ports: 64_512,
        outside_first: 1,
        outside_ports: 49_151,
        inside_hosts: 1,
        outside_hosts: 1,
    };

    /// A restricted range, as stateful tests want it (RFC 9693 section 4.1).
    pub fn sessions(inside_ports: u32, outside_ports: u32) -> Flows {
        Flows { inside_ports, outside_ports, ..Flows::RFC_4814 }
    }

    /// Number of four tuples.
    pub fn count(&self) -> u64 {
        [self.inside_ports, self.outside_ports, self.inside_hosts, self.outside_hosts].map(u64::from).iter().product()
    }
}

/// Everything that the frames of one technology need.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What the gateway does.
    pub technology: Technology,
    /// Frames on the left.
    pub left: FrameKind,
    /// Frames on the right.
    pub right: FrameKind,
    /// The hosts on the left.
    pub a: Vec<Endpoint>,
    /// The hosts on the right.
    pub b: Vec<Endpoint>,
    /// How tuple numbers decompose.
    pub shape: TupleShape,
    /// What the source of forward frames must be behind the gateway.
    pub source: SourceRule,
    /// What their source port must be.
    pub source_port: PortRule,
}

impl Setup {
    /// Computes the setup.
    ///
    /// # Errors
    /// In words, if the flows do not fit the technology.
    pub fn new(technology: Technology, addresses: &Addresses, flows: &Flows) -> Result<Setup, String> {
        let (left, right) = technology.kinds();
        let ports = if technology.shares_ports() { addresses.rule.ports_per_subscriber() } else { 65_536 };
        check(technology, addresses, flows, ports)?;
        let mut shape =
            TupleShape::plain(flows.inside_first, flows.inside_ports, flows.outside_first, flows.outside_ports);
        shape.a_hosts = flows.inside_hosts;
        shape.b_hosts = flows.outside_hosts;
        if technology.shares_ports() {
            let offset = addresses.rule.psid_offset;
            shape.a_psid_shift = addresses.rule.contiguous_bits();
            shape.a_offset_shift = 16 - offset;
            shape.a_first = if offset == 0 { 0 } else { 1 << (16 - offset) };
        }
        let (source, source_port) = match (technology.is_stateful(), right, addresses.pool) {
            (false, ..) => (SourceRule::Exact, PortRule::Exact),
            (true, FrameKind::Ipv4, Some((first, last))) => (SourceRule::Pool(first, last), PortRule::Any),
            (true, FrameKind::Ipv4, None) => (SourceRule::Any, PortRule::Any),
            (true, ..) => (SourceRule::Exact, PortRule::Any),
        };
        let a = (0..flows.inside_hosts).map(|host| subscriber(technology, addresses, host)).collect();
        let b = (0..flows.outside_hosts).map(|host| server(technology, addresses, host)).collect();
        Ok(Setup { technology, left, right, a, b, shape, source, source_port })
    }
}

fn check(technology: Technology, addresses: &Addresses, flows: &Flows, ports: u32) -> Result<(), String> {
    if flows.count() == 0 || flows.count() > u64::from(u32::MAX) {
        return Err(format!("{} four tuples; between 1 and {} are possible", flows.count(), u32::MAX));
    }
    let last = |first: u16, count: u32| u32::from(first) + count;
    let beyond = !technology.shares_ports() && last(flows.inside_first, flows.inside_ports) > 65_536;
    if flows.inside_ports > ports || beyond || last(flows.outside_first, flows.outside_ports) > 65_536 {
        return Err(format!(
            "{} inside and {} outside ports do not fit; a subscriber of {technology} has at most {ports}",
            flows.inside_ports, flows.outside_ports
        ));
    }
    if technology.shares_ports() && flows.inside_hosts > addresses.rule.subscribers() {
        return Err(format!("the mapping rule has {} subscribers only", addresses.rule.subscribers()));
    }
    Ok(())
}

/// A host on the left.
fn subscriber(technology: Technology, addresses: &Addresses, host: u32) -> Endpoint {
    let private = Ipv4Addr::from_bits(addresses.inside_ipv4.to_bits().wrapping_add(host));
    let own_ipv6 = Ipv6Addr::from_bits(addresses.inside_ipv6.to_bits().wrapping_add(u128::from(host)));
    let mapped = Ipv4Addr::from_bits(addresses.mapped_ipv4.to_bits().wrapping_add(host));
    let (shared, psid) = addresses.rule.share(host);
    let map_address = addresses.rule.ipv6_address(shared, psid);
    let port_part = psid << addresses.rule.contiguous_bits();
    let plain = |left: IpAddr, right: IpAddr| endpoint(left, right, None, None);
    let private4 = IpAddr::V4(private);
    match technology {
        Technology::Forward4 | Technology::Nat44 => plain(private4, private4),
        Technology::Forward6 | Technology::Nat64 => plain(own_ipv6.into(), own_ipv6.into()),
        Technology::Siit => plain(own_ipv6.into(), mapped.into()),
        Technology::Clat => plain(private4, own_ipv6.into()),
        Technology::B4 => endpoint(private4, own_ipv6.into(), None, Some(private)),
        Technology::Aftr => endpoint(own_ipv6.into(), private4, Some(private), None),
        Technology::Lwb4 => endpoint(private4, own_ipv6.into(), None, Some(shared)),
        Technology::MapECe => endpoint(private4, map_address.into(), None, Some(shared)),
        Technology::MapTCe => plain(private4, map_address.into()),
        Technology::Lwaftr => Endpoint { port_part, ..endpoint(own_ipv6.into(), shared.into(), Some(shared), None) },
        Technology::MapEBr => Endpoint { port_part, ..endpoint(map_address.into(), shared.into(), Some(shared), None) },
        Technology::MapTBr => Endpoint { port_part, ..plain(map_address.into(), shared.into()) },
    }
}

/// A host on the right.
fn server(technology: Technology, addresses: &Addresses, host: u32) -> Endpoint {
    let ipv4 = Ipv4Addr::from_bits(addresses.outside_ipv4.to_bits().wrapping_add(host));
    let ipv6 = Ipv6Addr::from_bits(addresses.outside_ipv6.to_bits().wrapping_add(u128::from(host)));
    let (prefix, length) = addresses.translation_prefix;
    let embedded = embed(prefix, length, ipv4);
    let concentrator = addresses.softwire_concentrator;
    match technology {
        Technology::Forward4 | Technology::Nat44 => endpoint(ipv4.into(), ipv4.into(), None, None),
        Technology::Forward6 => endpoint(ipv6.into(), ipv6.into(), None, None),
        Technology::Nat64 | Technology::Siit | Technology::MapTBr => endpoint(embedded.into(), ipv4.into(), None, None),
        Technology::Clat | Technology::MapTCe => endpoint(ipv4.into(), embedded.into(), None, None),
        Technology::B4 | Technology::Lwb4 | Technology::MapECe => {
            endpoint(ipv4.into(), concentrator.into(), None, Some(ipv4))
        }
        Technology::Aftr | Technology::Lwaftr | Technology::MapEBr => {
            endpoint(concentrator.into(), ipv4.into(), Some(ipv4), None)
        }
    }
}

fn endpoint(left: IpAddr, right: IpAddr, left_inner: Option<Ipv4Addr>, right_inner: Option<Ipv4Addr>) -> Endpoint {
    let bytes = |address: IpAddr| match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
    };
    let inner = |address: Option<Ipv4Addr>| address.map_or([0; 4], |a| a.octets());
    Endpoint {
        left: bytes(left),
        right: bytes(right),
        left_inner: inner(left_inner),
        right_inner: inner(right_inner),
        ..Endpoint::default()
    }
}

/// An IPv4 address in an IPv6 prefix (RFC 6052 section 2.2): the bytes go around bits 64 to 71,
/// which stay zero.
fn embed(prefix: Ipv6Addr, length: u8, ipv4: Ipv4Addr) -> Ipv6Addr {
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
            assert_eq!(embed(prefix.parse().unwrap(), length, ipv4), expected.parse::<Ipv6Addr>().unwrap());
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

    #[test]
    fn flows_that_do_not_fit_are_refused_in_words() {
        let addresses = Addresses::default();
        let refuse = |technology, flows: Flows, words: &str| {
            let error = Setup::new(technology, &addresses, &flows).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        refuse(Technology::Nat44, Flows::sessions(0, 10), "0 four tuples");
        refuse(Technology::Nat44, Flows::sessions(65_000, 10), "do not fit");
        refuse(Technology::MapTBr, Flows::sessions(4000, 10), "at most 2016");
        refuse(Technology::Lwaftr, Flows { inside_hosts: 9000, ..Flows::sessions(10, 10) }, "8128 subscribers");
    }

    #[test]
    fn every_technology_is_found_by_its_name_and_has_a_setup() {
        for technology in Technology::ALL {
            assert_eq!(technology.name().parse(), Ok(technology));
            let flows = Flows { inside_hosts: 3, outside_hosts: 2, ..Flows::sessions(100, 10) };
            let setup = Setup::new(technology, &Addresses::default(), &flows).unwrap();
            assert_eq!((setup.a.len(), setup.b.len(), setup.shape.tuples()), (3, 2, 6000));
        }
    }
}

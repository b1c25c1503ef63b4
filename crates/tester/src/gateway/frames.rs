//! Which frames a technology needs on each side of the gateway, for so many flows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use tombolo_generator::{Endpoint, FrameKind, PortRule, SourceRule, TupleShape};

use super::addresses::{Addresses, embed};
use super::technology::Technology;

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
pub struct TestFrames {
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

impl TestFrames {
    /// Computes them.
    ///
    /// # Errors
    /// In words, if the flows do not fit the technology.
    pub fn new(technology: Technology, addresses: &Addresses, flows: &Flows) -> Result<TestFrames, String> {
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
        let source = match (technology.is_stateful(), right, addresses.pool) {
            (true, FrameKind::Ipv4, Some((first, last))) => SourceRule::Pool(first, last),
            (true, FrameKind::Ipv4, None) => SourceRule::Any,
            _ => SourceRule::Exact,
        };
        let source_port = match technology.is_stateful() {
            true if technology.has_one_port_set() => port_set(addresses),
            true => PortRule::Any,
            false => PortRule::Exact,
        };
        let a = (0..flows.inside_hosts).map(|host| subscriber(technology, addresses, host)).collect();
        let b = (0..flows.outside_hosts).map(|host| server(technology, addresses, host)).collect();
        Ok(TestFrames { technology, left, right, a, b, shape, source, source_port })
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

/// The ports of the subscriber that a customer's edge is.
fn port_set(addresses: &Addresses) -> PortRule {
    let rule = &addresses.rule;
    let (_, psid) = rule.share(addresses.edge);
    let shift = rule.contiguous_bits();
    let least = if rule.psid_offset == 0 { 0 } else { 1 << (16 - rule.psid_offset) };
    let bits = u16::MAX.checked_shr(16 - u32::from(rule.psid_bits())).unwrap_or(0);
    PortRule::Set { mask: bits << shift, value: psid << shift, least }
}

/// A host on the left.
fn subscriber(technology: Technology, addresses: &Addresses, host: u32) -> Endpoint {
    let private = Ipv4Addr::from_bits(addresses.inside_ipv4.to_bits().wrapping_add(host));
    let own_ipv6 = Ipv6Addr::from_bits(addresses.inside_ipv6.to_bits().wrapping_add(u128::from(host)));
    let mapped = Ipv4Addr::from_bits(addresses.mapped_ipv4.to_bits().wrapping_add(host));
    // Hosts behind a customer's edge are one subscriber; at the provider's end each is another one.
    let (shared, psid) = addresses.rule.share(if technology.is_customers_end() { addresses.edge } else { host });
    let map_address = addresses.rule.ipv6_address(shared, psid);
    let port_part = psid << addresses.rule.contiguous_bits();
    let plain = |left: IpAddr, right: IpAddr| endpoint(left, right, None, None);
    let private4 = IpAddr::V4(private);
    match technology {
        Technology::Forward4
        | Technology::Nat44
        | Technology::Xlat464
        | Technology::DsLite
        | Technology::Lw4o6
        | Technology::MapE
        | Technology::MapT => plain(private4, private4),
        Technology::Forward6 | Technology::Nat64 => plain(own_ipv6.into(), own_ipv6.into()),
        Technology::Siit => plain(own_ipv6.into(), mapped.into()),
        Technology::Clat => plain(private4, own_ipv6.into()),
        Technology::B4 => endpoint(private4, addresses.inside_ipv6.into(), None, Some(private)),
        Technology::Aftr => endpoint(own_ipv6.into(), private4, Some(private), None),
        Technology::Lwb4 => endpoint(private4, addresses.inside_ipv6.into(), None, Some(shared)),
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
    let embedded = embed(addresses.translation_prefix, ipv4);
    let concentrator = addresses.softwire_concentrator;
    match technology {
        Technology::Forward4
        | Technology::Nat44
        | Technology::Xlat464
        | Technology::DsLite
        | Technology::Lw4o6
        | Technology::MapE
        | Technology::MapT => endpoint(ipv4.into(), ipv4.into(), None, None),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::MapRule;

    #[test]
    fn flows_that_do_not_fit_are_refused_in_words() {
        let addresses = Addresses::default();
        let refuse = |technology, flows: Flows, words: &str| {
            let error = TestFrames::new(technology, &addresses, &flows).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        refuse(Technology::Nat44, Flows::sessions(0, 10), "0 four tuples");
        refuse(Technology::Nat44, Flows::sessions(65_000, 10), "do not fit");
        refuse(Technology::MapTBr, Flows::sessions(4000, 10), "at most 2016");
        refuse(Technology::Lwaftr, Flows { inside_hosts: 9000, ..Flows::sessions(10, 10) }, "8128 subscribers");
    }

    #[test]
    fn the_hosts_of_a_customers_edge_share_its_address_and_its_ports() {
        let flows = Flows { inside_hosts: 3, ..Flows::sessions(100, 10) };
        // 2001:db8:4600::/40 = 192.0.2.0/24 with 16 EA bits: 192.0.2.18 and PSID 0x34 (RFC 7597 appendix A).
        let rule = MapRule {
            ipv6: ("2001:db8:4600::".parse().unwrap(), 40),
            ipv4: (Ipv4Addr::new(192, 0, 2, 0), 24),
            ea_bits: 16,
            psid_offset: 6,
        };
        let addresses = Addresses { rule, edge: 17 * 256 + 0x34, ..Addresses::default() };
        let frames = TestFrames::new(Technology::MapECe, &addresses, &flows).unwrap();
        assert!(frames.a.iter().all(|host| host.right == frames.a[0].right && host.right_inner == [192, 0, 2, 18]));
        assert_eq!(frames.source_port, PortRule::Set { mask: 0x3fc, value: 0x34 << 2, least: 1024 });
        assert_eq!(rule.end_user_prefix(addresses.edge), ("2001:db8:4612:3400::".parse().unwrap(), 56));
        let pair = TestFrames::new(Technology::MapE, &addresses, &flows).unwrap();
        assert_eq!((pair.source_port, pair.source), (frames.source_port, SourceRule::Any));
        let nat44 = TestFrames::new(Technology::Nat44, &addresses, &flows).unwrap();
        assert_eq!(nat44.source_port, PortRule::Any);
    }

    #[test]
    fn every_technology_is_found_by_its_name_and_has_frames() {
        for technology in Technology::ALL {
            assert_eq!(technology.name().parse(), Ok(technology));
            let flows = Flows { inside_hosts: 3, outside_hosts: 2, ..Flows::sessions(100, 10) };
            let frames = TestFrames::new(technology, &Addresses::default(), &flows).unwrap();
            assert_eq!((frames.a.len(), frames.b.len(), frames.shape.tuples()), (3, 2, 6000));
        }
    }
}

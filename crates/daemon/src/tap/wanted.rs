//! Which packets are shown: those for which all that is named holds.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tombolo_engine::Plan;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::side::Side;
use tombolo_fastpath::tap::Watch;

use super::seen::{End, Seen};
use super::summary::Summary;

/// Which packets are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Of the service with this number.
    pub service: Option<u8>,
    /// Of this protocol.
    pub space: Option<PortSpace>,
    /// With this port, as they come or as they leave.
    pub port: Option<u16>,
    /// With an address in it, as they come or as they leave.
    pub address: Option<IpNet>,
    /// Of a host inside, or behind a softwire whose end is in it.
    pub inside: Option<IpNet>,
    /// With an outside address in it.
    pub outside: Option<IpNet>,
    /// Of a remote in it.
    pub remote: Option<IpNet>,
    /// Those that are not forwarded, for a reason; without it, all.
    pub drops: bool,
    /// With their bytes.
    pub bytes: bool,
}

impl Wanted {
    /// Whether a packet is shown.
    #[must_use]
    pub fn matches(&self, plan: &Plan, seen: &Seen) -> bool {
        let is_drop = matches!(seen.end, End::Verdict(verdict) if verdict.reason().is_some());
        if self.drops && !is_drop || self.service.is_some() && self.service != seen.service {
            return false;
        }
        let packets = [seen.received, seen.sent].into_iter().flatten();
        let has_port = |packet: &Summary| {
            packet.ports.is_some_and(|(from, to)| self.port.is_none_or(|port| from == port || to == port))
        };
        if self.port.is_some() && !packets.clone().any(|packet| has_port(&packet)) {
            return false;
        }
        let is_of = |space: PortSpace| seen.received.is_some_and(|packet| space_of(packet.protocol) == Some(space));
        self.space.is_none_or(is_of)
            && self.address.is_none_or(|net| has_address(plan, seen, net))
            && self.inside.is_none_or(|net| is_inside(seen, net))
            && self.outside.is_none_or(|net| has_outside(seen, net))
            && self.remote.is_none_or(|net| has_remote(plan, seen, net))
    }

    /// What the programs are to show of it: no less, and not much more. `None` if that is nothing.
    #[must_use]
    pub fn watch(&self, plan: &Plan) -> Option<Watch> {
        // Programs drop nothing.
        if self.drops {
            return None;
        }
        let any = match self.inside.or(self.outside) {
            Some(net) => vec![net],
            None => self.remote.or(self.address).map_or_else(Vec::new, |net| with_embedded(plan, net)),
        };
        Some(Watch { any, space: self.space, port: self.port })
    }
}

fn space_of(protocol: u8) -> Option<PortSpace> {
    const ICMPV6: u8 = 58;
    if protocol == ICMPV6 { Some(PortSpace::Icmp) } else { PortSpace::of_protocol(protocol) }
}

/// All addresses of a packet as it came and as it left.
fn addresses(packet: Summary) -> impl Iterator<Item = IpAddr> {
    let outer = packet.outer.into_iter().flat_map(|(from, to)| [IpAddr::from(from), to.into()]);
    [packet.source, packet.destination].into_iter().chain(outer)
}

fn has_address(plan: &Plan, seen: &Seen, net: IpNet) -> bool {
    let packets = [seen.received, seen.sent].into_iter().flatten();
    packets.flat_map(addresses).any(|address| is_in(plan, address, net))
}

/// The host inside sent it, or gets it. Of what a program leaves to the engine it is not known yet where it
/// comes from.
fn is_inside(seen: &Seen, net: IpNet) -> bool {
    let is_source = |packet: Summary| {
        net.contains(&packet.source) || packet.outer.is_some_and(|(from, _)| net.contains(&IpAddr::from(from)))
    };
    let is_destination = |packet: Summary| {
        net.contains(&packet.destination) || packet.outer.is_some_and(|(_, to)| net.contains(&IpAddr::from(to)))
    };
    match seen.side {
        Some(Side::Outside) => seen.sent.is_some_and(is_destination),
        Some(Side::Inside) | None => seen.received.is_some_and(is_source),
    }
}

fn has_outside(seen: &Seen, net: IpNet) -> bool {
    match seen.side {
        Some(Side::Inside) => seen.sent.is_some_and(|packet| net.contains(&packet.source)),
        Some(Side::Outside) | None => seen.received.is_some_and(|packet| net.contains(&packet.destination)),
    }
}

fn has_remote(plan: &Plan, seen: &Seen, net: IpNet) -> bool {
    let is_remote = |packet: Summary| match seen.side {
        Some(Side::Inside) => is_in(plan, packet.destination, net),
        Some(Side::Outside) => net.contains(&packet.source),
        None => is_in(plan, packet.destination, net) || net.contains(&packet.source),
    };
    seen.received.is_some_and(is_remote)
}

/// Whether an address is in a prefix, by itself or as the IPv4 address that it stands for.
fn is_in(plan: &Plan, address: IpAddr, net: IpNet) -> bool {
    net.contains(&address)
        || matches!(address, IpAddr::V6(address)
            if plan.services.iter().filter_map(|service| service.kind.pref64()?.extract(address))
                .any(|embedded: Ipv4Addr| net.contains(&IpAddr::from(embedded))))
}

/// A prefix, and those in which services show its addresses.
fn with_embedded(plan: &Plan, net: IpNet) -> Vec<IpNet> {
    let mut any = vec![net];
    if let IpNet::V4(net) = net {
        let prefixes = plan.services.iter().filter_map(|service| service.kind.pref64());
        any.extend(prefixes.filter_map(|prefix| {
            // Only behind 96 bits do all of an address stand together.
            let length = if prefix.length() == 96 { 96 + net.prefix_len() } else { prefix.length() };
            Some(IpNet::V6(Ipv6Net::new(prefix.embed(Ipv4Net::network(&net)), length).ok()?.trunc()))
        }));
    }
    any
}

#[cfg(test)]
mod tests {
    use tombolo_engine::{DropReason, Verdict};

    use super::*;
    use crate::control::testing;
    use crate::tap::seen::Path;

    fn net(text: &str) -> Option<IpNet> {
        Some(text.parse().unwrap())
    }

    fn packet(from: &str, to: &str) -> Option<Summary> {
        let [from, to] = [from, to].map(|text| text.parse::<std::net::SocketAddr>().unwrap());
        let mut bytes = vec![0x60, 0, 0, 0, 0, 0, 6, 64];
        let mut summary = Summary::of(&[bytes.as_slice(), &[0; 32]].concat(), 60)?;
        bytes.clear();
        summary.source = from.ip();
        summary.destination = to.ip();
        summary.ports = Some((from.port(), to.port()));
        Some(summary)
    }

    fn seen(side: Side, received: Option<Summary>, sent: Option<Summary>, verdict: Verdict) -> Seen {
        Seen {
            time: 0,
            path: Path::Engine,
            interface: None,
            side: Some(side),
            service: Some(0),
            end: End::Verdict(verdict),
            received,
            sent,
            bytes: None,
        }
    }

    #[test]
    fn a_host_is_found_in_both_directions() {
        let plan = testing::plan();
        let out = seen(
            Side::Inside,
            packet("[2001:db8::7]:5000", "[64:ff9b::c633:6402]:80"),
            packet("192.0.2.1:2000", "198.51.100.2:80"),
            Verdict::Forward,
        );
        let back = seen(
            Side::Outside,
            packet("198.51.100.2:80", "192.0.2.1:2000"),
            packet("[64:ff9b::c633:6402]:80", "[2001:db8::7]:5000"),
            Verdict::Forward,
        );
        let yes = [
            Wanted { inside: net("2001:db8::/64"), ..Wanted::default() },
            Wanted { outside: net("192.0.2.1/32"), ..Wanted::default() },
            Wanted { remote: net("198.51.100.0/24"), ..Wanted::default() },
            Wanted { address: net("198.51.100.2/32"), space: Some(PortSpace::Tcp), ..Wanted::default() },
            Wanted { port: Some(2000), service: Some(0), ..Wanted::default() },
        ];
        let no = [
            Wanted { inside: net("198.51.100.2/32"), ..Wanted::default() },
            Wanted { outside: net("198.51.100.2/32"), ..Wanted::default() },
            Wanted { remote: net("2001:db8::7/128"), ..Wanted::default() },
            Wanted { space: Some(PortSpace::Udp), ..Wanted::default() },
            Wanted { port: Some(2001), ..Wanted::default() },
            Wanted { service: Some(1), ..Wanted::default() },
            Wanted { drops: true, ..Wanted::default() },
        ];
        for seen in [&out, &back] {
            assert!(yes.iter().all(|wanted| wanted.matches(&plan, seen)), "{seen:?}");
            assert!(!no.iter().any(|wanted| wanted.matches(&plan, seen)), "{seen:?}");
        }
        // What was dropped has no other end yet; the remote is known all the same.
        let dropped = Seen { sent: None, end: End::Verdict(Verdict::Drop(DropReason::PoolExhausted)), ..out };
        assert!(Wanted { drops: true, remote: net("198.51.100.2/32"), ..Wanted::default() }.matches(&plan, &dropped));
    }

    #[test]
    fn the_programs_are_asked_for_no_less() {
        let plan = testing::plan();
        let watch = |wanted: Wanted| wanted.watch(&plan).unwrap().any;
        assert_eq!(
            watch(Wanted { inside: net("2001:db8::/64"), remote: net("5.0.0.0/8"), ..Wanted::default() }).len(),
            1
        );
        let remote = watch(Wanted { remote: net("5.9.0.0/16"), ..Wanted::default() });
        assert_eq!(remote, [net("5.9.0.0/16").unwrap(), net("64:ff9b::509:0/112").unwrap()]);
        assert!(watch(Wanted::default()).is_empty());
        assert_eq!(Wanted { drops: true, ..Wanted::default() }.watch(&plan), None);
    }
}

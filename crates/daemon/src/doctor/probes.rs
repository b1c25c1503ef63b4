//! A packet for each leg, which comes in as if it had been received, and what becomes of it.
//!
//! It is a datagram of UDP with a mark in it, and dies soon after the host: its hop limit is 2. Of an
//! exchange the first packet goes before its answer, so that firewalls which know connections take
//! the one for new and the other for its answer. Where the fast path takes a packet, it is seen where it leaves.

use std::error::Error;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tombolo_fastpath::Injector;
use tombolo_io::links::Link;
use tombolo_io::netfilter::{Dropped, ForeignRules, Selector, Tracer, admission_by};
use tombolo_io::netlink::{Found, Neighbours};
use tombolo_io::observer::Observer;
use tombolo_wire::{
    EthernetHeader, Ipv4Header, Ipv6Header, MacAddress, Port, Protocol, UdpHeader, ethernet, ipv4, ipv6, udp, write_u16,
};

use super::finding::{Finding, Report};
use super::ground::Ground;
use super::legs::{Leg, Towards};

/// One that the host sends on, and that whoever gets it does not.
const HOPS: u8 = 2;
const MARK: usize = 16;
/// How long a packet may take to the device, and to a neighbour that has to be found first.
const TO_DEVICE: Duration = Duration::from_millis(500);
const TO_NEIGHBOUR: Duration = Duration::from_millis(3500);
/// How often is asked whether a chain has dropped it.
const PACE: Duration = Duration::from_millis(50);
/// From it ports of probes are taken: none that a server has.
const PORTS: u16 = 40_000;
/// Who sends the frames: a locally administered address.
const SENDER: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

/// Sends a packet for each leg whose ends are known to be there.
///
/// # Errors
/// If packets cannot be sent or seen.
pub(super) fn send(legs: &[Leg], ground: &Ground, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let (known, unknown): (Vec<&Leg>, Vec<&Leg>) = legs.iter().partition(|leg| leg.is_real && leg.entrance.is_some());
    report.left_out.extend(unknown.iter().map(|leg| {
        let end = if leg.name.contains("inside") { "--inside" } else { "--remote" };
        format!("no packet was sent {}: no host there is known; name one with {end}", leg.name)
    }));
    let Some(device) = ground.device().filter(|_| !known.is_empty()) else { return Ok(()) };
    let mut random = [0; MARK + 4];
    getrandom::fill(&mut random)?;
    let (mark, ports) = random.split_at(MARK);
    let port = |bytes: &[u8]| PORTS + u16::from_be_bytes([bytes[0], bytes[1]]) % 20_000;
    let ports = [port(&ports[..2]), port(&ports[2..])];
    let mut bench = Bench { observer: Observer::open()?, tracer: Tracer::raise(ports).ok(), ports, device, ground };
    for (number, leg) in (0_u8..).zip(known) {
        let mark = [&[number], &mark[1..]].concat();
        bench.probe(leg, &mark)?.into_iter().for_each(|finding| report.add(finding));
        report.probed += 1;
    }
    Ok(())
}

/// What probes are sent and seen with.
struct Bench<'g> {
    observer: Observer,
    tracer: Option<Tracer>,
    ports: [u16; 2],
    device: &'g Link,
    ground: &'g Ground,
}

impl Bench<'_> {
    fn probe(&mut self, leg: &Leg, mark: &[u8]) -> Result<Option<Finding>, Box<dyn Error>> {
        let Some(entrance) = leg.entrance.and_then(|entrance| self.ground.link(entrance)) else { return Ok(None) };
        Injector::load(entrance.index)?.inject(&self.frame(leg, entrance, mark))?;
        let (device, limit) = (self.device.index, if leg.towards == Towards::World { TO_NEIGHBOUR } else { TO_DEVICE });
        let arrives = |interface: u32| match leg.towards {
            Towards::Device => interface == device || interface != entrance.index,
            Towards::World => interface != device,
        };
        let began = Instant::now();
        while began.elapsed() < limit {
            if self.observer.leaving(mark, PACE, arrives)?.is_some() {
                return Ok(None);
            }
            if let Some(dropped) = self.tracer.as_mut().and_then(|tracer| tracer.dropped().pop()) {
                return Ok(Some(self.dropped(leg, entrance, &dropped)));
            }
        }
        Ok(Some(self.vanished(leg, entrance)?))
    }

    fn frame(&self, leg: &Leg, entrance: &Link, mark: &[u8]) -> Vec<u8> {
        let [one, other] = self.ports.map(Port);
        let (source_port, destination_port) = if leg.begins { (one, other) } else { (other, one) };
        let length = u16::try_from(udp::HEADER_LENGTH + mark.len()).unwrap_or(u16::MAX);
        let mut datagram = vec![0; udp::HEADER_LENGTH];
        UdpHeader { source_port, destination_port, length, checksum: 0 }.emit(&mut datagram);
        datagram.extend(mark);
        let (ether_type, header) = match (leg.source, leg.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let checksum = ipv4::transport_checksum(source, destination, Protocol::UDP, &datagram);
                write_u16(&mut datagram, udp::CHECKSUM, checksum);
                let mut header = vec![0; ipv4::HEADER_LENGTH];
                let total_length = u16::try_from(ipv4::HEADER_LENGTH + datagram.len()).unwrap_or(u16::MAX);
                let fields = Ipv4Header {
                    tos: 0,
                    total_length,
                    identification: 0,
                    fragment_word: ipv4::DF,
                    ttl: HOPS,
                    protocol: Protocol::UDP,
                    source,
                    destination,
                };
                fields.emit(&mut header);
                (ethernet::TYPE_IPV4, header)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let checksum = ipv6::transport_checksum(source, destination, Protocol::UDP, &datagram);
                write_u16(&mut datagram, udp::CHECKSUM, checksum);
                let mut header = vec![0; ipv6::HEADER_LENGTH];
                let fields = Ipv6Header {
                    traffic_class: 0,
                    flow_label: 0,
                    payload_length: length,
                    next_header: Protocol::UDP,
                    hop_limit: HOPS,
                    source,
                    destination,
                };
                fields.emit(&mut header);
                (ethernet::TYPE_IPV6, header)
            }
            // A leg is of one family.
            _ => return Vec::new(),
        };
        let mut frame = vec![0; ethernet::HEADER_LENGTH];
        EthernetHeader { destination: MacAddress(entrance.mac), source: SENDER, ether_type }.emit(&mut frame);
        [frame, header, datagram].concat()
    }

    /// A chain has dropped it.
    fn dropped(&self, leg: &Leg, entrance: &Link, dropped: &Dropped) -> Finding {
        let Dropped { chain, rule, is_routed } = dropped;
        let by =
            rule.map_or_else(|| "since none of its rules accepts them".into(), |rule| format!("by its rule {rule}"));
        let what = format!("packets from {} to {}", leg.source, leg.destination);
        let found = format!("{}: {chain} drops {what}, {by}", leg.name);
        if chain.table == format!("tombolo-{}", self.device.name) {
            let found =
                format!("{}: {what} come in by {}, which their source is not routed to", leg.name, entrance.name);
            let finding = Finding::fault("netfilter", found, String::new());
            return finding.with_words("route the source there, or name the interface in gateway.inside_interfaces");
        }
        Finding::fault("netfilter", found, chain.admission(*rule, &self.selector(leg, *is_routed)))
    }

    /// Which packets are to be let in: as few as a chain can tell.
    fn selector(&self, leg: &Leg, is_routed: bool) -> Selector<'_> {
        match leg.towards {
            Towards::World => Selector::ComesInBy(&self.device.name),
            Towards::Device if is_routed => Selector::LeavesBy(&self.device.name),
            Towards::Device if leg.by_source => Selector::ComesFrom(leg.routed),
            Towards::Device => Selector::GoesTo(leg.routed),
        }
    }

    /// It was dropped, and no chain of nf_tables has said so.
    fn vanished(&self, leg: &Leg, entrance: &Link) -> Result<Finding, Box<dyn Error>> {
        let what = format!("a packet from {} to {}", leg.source, leg.destination);
        if leg.towards == Towards::World
            && let Some(way) = leg.way(self.ground)
            && let Found::Route(_, route) = self.ground.lookup.find(way)
            && let Some(hop) = route.hops().first()
        {
            let next = (hop.interface, hop.gateway.unwrap_or(leg.destination));
            if Neighbours::read()?.silent.contains(&next) {
                let (neighbour, name) = (next.1, self.ground.name(next.0));
                let found = format!("{}: {neighbour} does not answer on {name} (ARP, neighbour discovery)", leg.name);
                let finding = Finding::fault("neighbour", found, String::new());
                return Ok(finding.with_words("look whether it is there, and on that link; else route by another"));
            }
        }
        let (is_ipv6, mut rules) = (leg.destination.is_ipv6(), ForeignRules::watch()?);
        let program = if is_ipv6 { "ip6tables-legacy" } else { "iptables-legacy" };
        let found = format!("{}: {what} came in by {} and did not leave", leg.name, entrance.name);
        if rules.legacy()?.iter().any(|(kept_by, _)| *kept_by == program) {
            let line = admission_by(program, "filter", "FORWARD", &self.selector(leg, true));
            return Ok(Finding::fault("netfilter", format!("{found}; {program} has rules on the way"), line));
        }
        let others = rules.find()?.map(|place| format!("; {place} is on the way")).unwrap_or_default();
        let finding = Finding::fault("probe", format!("{found}{others}"), String::new());
        Ok(finding.with_words(
            "look at the kernel's counters (nstat -az, ip -s link) and at filters of tc and XDP on the way",
        ))
    }
}

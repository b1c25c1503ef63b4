//! Ports of destinations to which the hosts of a NAT44 send with their own addresses (RFC 6888 REQ-6).

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::net::{IpAddr, Ipv4Addr};

use support::*;
use tombolo_engine::Verdict;
use tombolo_engine::mapping::exemptions::{Exemption, Exemptions};
use tombolo_engine::mapping::pool::PortRanges;

/// A NAT44 whose hosts reach port 53 of a server by UDP as they are.
fn gateway() -> Gateway {
    let mut gateway = Gateway::new(Setup { nat44: true, ..Setup::default() });
    let udp = PortRanges::new([53..=53]);
    gateway.nat44().exempt =
        Exemptions(vec![Exemption { addresses: SERVER..=SERVER, tcp: PortRanges::default(), udp }]);
    gateway
}

fn bindings(gateway: &Gateway) -> usize {
    gateway.tables.bindings.iter().count()
}

#[test]
fn what_goes_to_the_port_keeps_its_address_and_nothing_else_does() {
    let mut gateway = gateway();
    let own = gateway.forward(&udp((HOST4, 4000), (SERVER, 53), b"query"));
    assert_eq!((own.source, own.ports, own.hop_limit), (HOST4.into(), (4000, 53), 63));
    assert_eq!(bindings(&gateway), 0);
    for packet in [
        udp((HOST4, 4000), (SERVER, 54), b"other port"),
        udp((HOST4, 4000), (Ipv4Addr::new(198, 51, 100, 3), 53), b"other server"),
        tcp((HOST4, 4000), (SERVER, 53), SYN, b""),
        icmp(HOST4, SERVER, 8, 0, 53 << 16 | 53, b"ping"),
    ] {
        assert_eq!(gateway.forward(&packet).source, IpAddr::from(POOL));
    }
    // Also from an endpoint that has a binding.
    assert_eq!(gateway.forward(&udp((HOST4, 4000), (SERVER, 53), b"query")).source, IpAddr::from(HOST4));
}

#[test]
fn pieces_are_put_together_before_it_is_decided() {
    let mut gateway = gateway();
    for (port, source) in [(53, HOST4), (54, POOL)] {
        let whole = udp((HOST4, 4000), (SERVER, port), &[7; 1200]);
        let pieces = fragments_ipv4(&whole, 600);
        let last = pieces.len() - 1;
        for (n, piece) in pieces.iter().enumerate().rev() {
            let (verdict, sent) = gateway.pass(piece);
            assert_eq!(verdict, if n == 0 { Verdict::Forward } else { Verdict::Hold }, "{n} of {last}");
            if n == 0 {
                let seen = see(&sent[0]);
                assert_eq!((seen.source, seen.payload.len()), (source.into(), 1200));
            }
        }
    }
}

#[test]
fn an_error_about_an_answer_keeps_its_address_too() {
    let mut gateway = gateway();
    let answer = udp((SERVER, 53), (HOST4, 4000), b"answer");
    let (verdict, sent) = gateway.pass(&icmp(HOST4, SERVER, 3, 3, 0, &answer));
    assert_eq!((verdict, see(&sent[0]).source), (Verdict::Forward, HOST4.into()));
    // About others there is no session.
    let answer = udp((SERVER, 54), (HOST4, 4000), b"answer");
    assert!(matches!(gateway.pass(&icmp(HOST4, SERVER, 3, 3, 0, &answer)).0, Verdict::Drop(_)));
}

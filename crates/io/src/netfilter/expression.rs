//! Expressions of rules (`linux/netfilter/nf_tables.h`): each loads something into a register,
//! compares a register, or decides.

use std::net::Ipv4Addr;

use ipnet::Ipv6Net;
use libc::NFPROTO_IPV4;

use super::batch::Writer;

/// Type of object (NFT_OBJECT_COUNTER).
pub(super) const COUNTER: u32 = 1;

const LIST_ELEMENT: u16 = 1;
const NAME: u16 = 1;
const DATA: u16 = 2;
const VALUE: u16 = 1;
const VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;

/// The register that verdicts go to, and one of 16 bytes.
const TO_VERDICT: u32 = 0;
const REGISTER: u32 = 1;

/// What `meta` loads.
const NFPROTO: u32 = 15;
const PROTOCOL: u32 = 16;
const TRACE: u32 = 12;
const IIFNAME: u32 = 6;
const OIFNAME: u32 = 7;

/// Of a network header (NFT_PAYLOAD_NETWORK_HEADER): where it has addresses.
const NETWORK_HEADER: u32 = 1;
const IPV4_CHECKSUM: u32 = 10;
const IPV4_SOURCE: u32 = 12;
const IPV4_DESTINATION: u32 = 16;
const IPV6_DESTINATION: u32 = 24;
/// NFT_PAYLOAD_TRANSPORT_HEADER: it begins with both ports.
const TRANSPORT_HEADER: u32 = 2;
/// Of an ICMP error: the destination of the packet that it is about.
const QUOTED_DESTINATION: u32 = 8 + IPV4_DESTINATION;
/// NFT_PAYLOAD_CSUM_INET.
const INTERNET_CHECKSUM: u32 = 1;

/// Of `fib`: the interface that the source is routed to, if it is the one that the packet came in
/// by; else 0 (NFT_FIB_RESULT_OIF, NFTA_FIB_F_SADDR | NFTA_FIB_F_IIF).
const FIB_EGRESS: u32 = 1;
const FIB_SOURCE_AND_INGRESS: u32 = 1 | 8;

/// How a register is compared.
#[derive(Debug, Clone, Copy)]
pub(super) enum Compare {
    Same = 0,
    Other = 1,
    AtMost = 3,
    AtLeast = 5,
}

/// A rule under construction.
#[derive(Debug, Default)]
pub(super) struct Rule(Writer);

impl Rule {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// It is of IPv4 or of IPv6.
    pub(super) fn of_family(self, family: i32) -> Self {
        self.meta(NFPROTO).compare(Compare::Same, &[family.to_le_bytes()[0]])
    }

    /// It is UDP between these ports.
    pub(super) fn between_udp_ports(self, source: u16, destination: u16) -> Self {
        let udp = self.meta(PROTOCOL).compare(Compare::Same, &[libc::IPPROTO_UDP.to_le_bytes()[0]]);
        let ports = udp.payload_of(TRANSPORT_HEADER, 0, 4);
        ports.compare(Compare::Same, &[source.to_be_bytes(), destination.to_be_bytes()].concat())
    }

    /// The kernel tells what each chain decides about it.
    pub(super) fn traced(self) -> Self {
        let one = self.expression("immediate", |data| {
            data.number(1, REGISTER);
            data.nested(2, |value| value.bytes(VALUE, &[1]));
        });
        one.expression("meta", |data| {
            data.number(2, TRACE);
            data.number(3, REGISTER);
        })
    }

    pub(super) fn comes_in_by(self, compare: Compare, interface: &str) -> Self {
        self.meta(IIFNAME).compare(compare, &padded(interface))
    }

    pub(super) fn leaves_by(self, compare: Compare, interface: &str) -> Self {
        self.meta(OIFNAME).compare(compare, &padded(interface))
    }

    /// To be asked of IPv6 alone.
    pub(super) fn goes_to(self, prefix: Ipv6Net) -> Self {
        let mask = prefix.netmask().octets();
        let masked = self.payload(IPV6_DESTINATION, 16).expression("bitwise", |data| {
            data.number(1, REGISTER);
            data.number(2, REGISTER);
            data.number(3, 16);
            data.nested(4, |bits| bits.bytes(VALUE, &mask));
            data.nested(5, |bits| bits.bytes(VALUE, &[0; 16]));
        });
        masked.compare(Compare::Same, &prefix.network().octets())
    }

    /// To be asked of IPv4 alone.
    pub(super) fn comes_from(self, first: Ipv4Addr, last: Ipv4Addr) -> Self {
        self.payload(IPV4_SOURCE, 4).between(first, last)
    }

    /// To be asked of IPv4 alone.
    pub(super) fn goes_to_hosts(self, first: Ipv4Addr, last: Ipv4Addr) -> Self {
        self.payload(IPV4_DESTINATION, 4).between(first, last)
    }

    /// It is ICMP of this type.
    pub(super) fn of_icmp(self, kind: u8) -> Self {
        let icmp = self.meta(PROTOCOL).compare(Compare::Same, &[libc::IPPROTO_ICMP.to_le_bytes()[0]]);
        icmp.payload_of(TRANSPORT_HEADER, 0, 1).compare(Compare::Same, &[kind])
    }

    /// To be asked of ICMP errors alone.
    pub(super) fn quotes_packet_to(self, first: Ipv4Addr, last: Ipv4Addr) -> Self {
        self.payload_of(TRANSPORT_HEADER, QUOTED_DESTINATION, 4).between(first, last)
    }

    /// Gives an ICMP error the source that the packet was for that it quotes.
    pub(super) fn comes_from_quoted_destination(self) -> Self {
        self.payload_of(TRANSPORT_HEADER, QUOTED_DESTINATION, 4).expression("payload", |data| {
            data.number(2, NETWORK_HEADER);
            data.number(3, IPV4_SOURCE);
            data.number(4, 4);
            data.number(5, REGISTER);
            data.number(6, INTERNET_CHECKSUM);
            data.number(7, IPV4_CHECKSUM);
        })
    }

    pub(super) fn comes_by_its_route(self) -> Self {
        let asked = self.expression("fib", |data| {
            data.number(1, REGISTER);
            data.number(2, FIB_EGRESS);
            data.number(3, FIB_SOURCE_AND_INGRESS);
        });
        asked.compare(Compare::Other, &[0; 4])
    }

    /// Hands what is of IPv4 to the socket at a local port.
    pub(super) fn goes_to_socket_at(self, port: u16) -> Self {
        let loaded = self.expression("immediate", |data| {
            data.number(1, REGISTER);
            data.nested(2, |value| value.bytes(VALUE, &port.to_be_bytes()));
        });
        loaded.expression("tproxy", |data| {
            data.number(1, NFPROTO_IPV4.cast_unsigned());
            data.number(3, REGISTER);
        })
    }

    pub(super) fn count(self, counter: &str) -> Self {
        self.expression("objref", |data| {
            data.number(1, COUNTER);
            data.text(2, counter);
        })
    }

    pub(super) fn verdict(self, code: i32, chain: Option<&str>) -> Self {
        self.expression("immediate", |data| {
            data.number(1, TO_VERDICT);
            data.nested(2, |value| {
                value.nested(VERDICT, |verdict| {
                    verdict.number(VERDICT_CODE, code.cast_unsigned());
                    if let Some(chain) = chain {
                        verdict.text(VERDICT_CHAIN, chain);
                    }
                });
            });
        })
    }

    pub(super) fn write(&self, list: &mut Writer) {
        list.append(&self.0);
    }

    fn meta(self, key: u32) -> Self {
        self.expression("meta", |data| {
            data.number(1, REGISTER);
            data.number(2, key);
        })
    }

    fn payload(self, offset: u32, length: u32) -> Self {
        self.payload_of(NETWORK_HEADER, offset, length)
    }

    fn payload_of(self, header: u32, offset: u32, length: u32) -> Self {
        self.expression("payload", |data| {
            data.number(1, REGISTER);
            data.number(2, header);
            data.number(3, offset);
            data.number(4, length);
        })
    }

    fn compare(self, compare: Compare, value: &[u8]) -> Self {
        self.expression("cmp", |data| {
            data.number(1, REGISTER);
            data.number(2, compare as u32);
            data.nested(3, |data| data.bytes(VALUE, value));
        })
    }

    fn between(self, first: Ipv4Addr, last: Ipv4Addr) -> Self {
        self.compare(Compare::AtLeast, &first.octets()).compare(Compare::AtMost, &last.octets())
    }

    fn expression(mut self, name: &str, data: impl FnOnce(&mut Writer)) -> Self {
        self.0.nested(LIST_ELEMENT, |element| {
            element.text(NAME, name);
            element.nested(DATA, data);
        });
        self
    }
}

/// A name as registers have it: IFNAMSIZ bytes.
fn padded(interface: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(interface.bytes()).for_each(|(byte, letter)| *byte = letter);
    bytes
}

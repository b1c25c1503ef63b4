//! Packets of IPv4, for tests that make state with them.

use std::net::Ipv4Addr;

use tombolo_wire::{Ipv4Header, Protocol};

/// A segment of TCP, or a datagram without payload. Nobody looks at the checksum.
pub(crate) fn transport(protocol: Protocol, source: u16, destination: u16, flags: u8) -> Vec<u8> {
    let mut bytes = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    if protocol == Protocol::TCP {
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0x20, 0, 0x12, 0x34, 0, 0]);
    } else {
        bytes.extend([0, 8, 0x12, 0x34]);
    }
    bytes
}

/// A packet with that in it.
pub(crate) fn v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: Protocol, transport: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20 + transport.len()];
    let header = Ipv4Header {
        tos: 0,
        total_length: u16::try_from(bytes.len()).unwrap(),
        identification: 1,
        fragment_word: 0,
        ttl: 64,
        protocol,
        source,
        destination,
    };
    header.emit(&mut bytes);
    bytes[20..].copy_from_slice(transport);
    bytes
}

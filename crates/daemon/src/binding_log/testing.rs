//! What tests of the log share.

use std::net::Ipv4Addr;

use tombolo_wire::{Ipv4Header, Protocol};

/// From a host inside, to port 53 of a remote.
pub(super) fn datagram(source: Ipv4Addr, port: u16, destination: Ipv4Addr) -> Vec<u8> {
    let mut bytes = vec![0; 28];
    let header = Ipv4Header {
        tos: 0,
        total_length: 28,
        identification: 1,
        fragment_word: 0,
        ttl: 64,
        protocol: Protocol::UDP,
        source,
        destination,
    };
    header.emit(&mut bytes);
    let [high, low] = port.to_be_bytes();
    bytes[20..].copy_from_slice(&[high, low, 0, 53, 0, 8, 0x12, 0x34]);
    bytes
}

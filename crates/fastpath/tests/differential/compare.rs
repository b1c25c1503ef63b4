//! Packets, compared.

/// The bytes of the outer header of a packet in a softwire; 0 for any other.
fn outer_bytes(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 6 && packet[6] == 4 { 40 } else { 0 }
}

/// What the engine sends as TC sends it: the stack that routes the packet takes the hop, and cuts
/// off the padding. The outer header of a softwire is new in either case.
pub(crate) fn expected_in_tc(sent: &[u8]) -> Vec<u8> {
    let mut expected = sent.to_vec();
    if outer_bytes(sent) > 0 {
        return expected;
    }
    if sent[0] >> 4 == 4 {
        expected[8] += 1;
        write_ipv4_checksum(&mut expected);
    } else {
        expected[7] += 1;
    }
    expected
}

/// What the engine sends as it looks behind the router that its packets come to, and that XDP goes
/// past.
pub(crate) fn expected_in_xdp(sent: &[u8]) -> Vec<u8> {
    let mut expected = sent.to_vec();
    expected[7] -= u8::from(outer_bytes(sent) > 0);
    expected
}

/// Whether two IP packets are the same. The identification of an IPv4 packet that IPv6 did not have
/// is anything; with a new binding so is the source port, and then the checksum has to be right if
/// the other's is.
pub(crate) fn same_packet(one: &[u8], other: &[u8], new_binding: bool) -> Result<(), String> {
    let (one, other) = (one.get(..other.len()).ok_or("shorter")?, other);
    let outer = outer_bytes(other);
    if outer > 0 {
        if one[..outer] != other[..outer] {
            return Err(format!("the outer header {:02x?} is not {:02x?}", &one[..outer], &other[..outer]));
        }
        return same_packet(&one[outer..], &other[outer..], new_binding);
    }
    if one[0] >> 4 == 4 && other[0] >> 4 == 4 && !verifies(&one[..20]) {
        return Err("the checksum of the IPv4 header is wrong".into());
    }
    let (mut one, mut other) = (one.to_vec(), other.to_vec());
    // A datagram without checksum stays without.
    let without_checksum = one[0] >> 4 == 4 && one[9] == 17 && one[26..28] == [0, 0] && other[26..28] == [0, 0];
    let (before, after) = (transport_sum(&one), transport_sum(&other));
    for packet in [&mut one, &mut other] {
        let is_ipv4 = packet[0] >> 4 == 4;
        let transport = if is_ipv4 { 20 } else { 40 };
        if is_ipv4 {
            packet[4..6].fill(0);
            packet[10..12].fill(0);
        }
        if new_binding {
            let protocol = if is_ipv4 { packet[9] } else { packet[6] };
            let (port, checksum) = match protocol {
                6 => (0, 16),
                17 => (0, 6),
                _ => (4, 2),
            };
            packet[transport + port..transport + port + 2].fill(0);
            packet[transport + checksum..transport + checksum + 2].fill(0);
        }
    }
    if new_binding && !without_checksum && before % 0xffff != after % 0xffff {
        return Err(format!("the transport's sum is {before:04x} and should be {after:04x}"));
    }
    if one == other { Ok(()) } else { Err(format!("{one:02x?} is not {other:02x?}")) }
}

/// The sum of the transport with its pseudo-header, which a right checksum makes 0xffff.
pub(crate) fn transport_sum(packet: &[u8]) -> u32 {
    let is_ipv4 = packet[0] >> 4 == 4;
    let (transport, protocol) = if is_ipv4 { (20, packet[9]) } else { (40, packet[6]) };
    let mut sum = sum(&packet[transport..]);
    if protocol != 1 {
        sum += self::sum(if is_ipv4 { &packet[12..20] } else { &packet[8..40] });
        sum += u32::from(protocol) + u32::try_from(packet.len() - transport).unwrap();
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += word(pair);
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

pub(crate) fn verifies(header: &[u8]) -> bool {
    let mut sum = sum(header);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

pub(crate) fn write_ipv4_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let mut sum = sum(&packet[..20]);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[10..12].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
}

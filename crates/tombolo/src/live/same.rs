//! Whether the live gateway sent what the offline one sends.
//!
//! Byte by byte, but for two things that each draws for itself: the identifications of packets
//! that it makes or renews, and the outside ports of new bindings. Identifications of one packet's
//! fragments must be the same where the others' are, and checksums must be right where the others'
//! are right. A port that the live gateway has for another stands for it from then on, wherever it
//! appears.

use std::collections::HashMap;

use tombolo_wire::crc32c;

use super::datagram::{Space, checksum_at, fold, sum};

/// An identification that is drawn may be the one that came by chance: so often among the packets of
/// one gateway, and hardly ever more.
const COINCIDENCES: u32 = 4;

/// What the two gateways have drawn for themselves: which outside ports are of the same binding.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    live_of: HashMap<(Space, u16), u16>,
    offline_of: HashMap<(Space, u16), u16>,
    /// Identifications that differ, and of which one is that of the packet that came.
    coincidences: u32,
    /// Live and offline, in the order in which they were learned.
    of_space: HashMap<Space, Vec<[u16; 2]>>,
}

impl Pairs {
    pub(super) fn of(&self, space: Space) -> &[[u16; 2]] {
        self.of_space.get(&space).map_or(&[], Vec::as_slice)
    }

    pub(super) fn learn(&mut self, space: Space, live: u16, offline: u16) {
        if self.live_of.insert((space, offline), live).is_none() {
            self.offline_of.insert((space, live), offline);
            self.of_space.entry(space).or_default().push([live, offline]);
        }
    }

    /// In words, why two ports do not stand for each other.
    fn disagree(&self, space: Space, live: u16, offline: u16) -> String {
        let known = |of: Option<&u16>| of.map_or_else(|| "nothing".to_owned(), u16::to_string);
        let [for_offline, for_live] =
            [self.live_of.get(&(space, offline)), self.offline_of.get(&(space, live))].map(known);
        format!(
            "port {live} instead of {offline}, which are not of one binding: live, {for_offline} stands for {offline}, and \
             {live} for {for_live}"
        )
    }

    /// Whether two ports may stand for each other.
    fn agree(&self, space: Space, live: u16, offline: u16, new: bool) -> bool {
        match (self.live_of.get(&(space, offline)), self.offline_of.get(&(space, live))) {
            (Some(&known), _) => known == live,
            (None, Some(_)) => false,
            // The parity of a UDP port is kept.
            (None, None) => new && (space != Space::Udp || (live ^ offline) & 1 == 0),
        }
    }
}

/// What the sending of one packet led to.
pub(super) struct Comparison<'c> {
    pub(super) pairs: &'c mut Pairs,
    /// The packet that came, as the offline gateway got it.
    pub(super) input: &'c [u8],
    /// It may have made a binding.
    pub(super) may_bind: bool,
    /// Identifications that stand for each other: offline, live.
    pub(super) identifications: HashMap<u32, u32>,
}

impl Comparison<'_> {
    /// Compares one packet that was sent. One that left outside may show a new binding.
    ///
    /// # Errors
    /// What differs, in words.
    pub(super) fn same(&mut self, live: &[u8], offline: &[u8], left_outside: bool) -> Result<(), String> {
        if live.len() != offline.len() {
            return Err(format!("{} bytes instead of {}", live.len(), offline.len()));
        }
        if self.may_bind {
            self.learn(live, offline, left_outside);
        }
        if live == offline {
            return Ok(());
        }
        let (mut live, mut offline) = (live.to_vec(), offline.to_vec());
        self.level(&mut live, &mut offline, false)?;
        if live == offline { Ok(()) } else { Err("bytes differ".into()) }
    }

    /// Learns the source's port of a packet from inside. An echo that was hairpinned has that of its
    /// destination.
    fn learn(&mut self, live: &[u8], offline: &[u8], left_outside: bool) {
        let Some((space, at)) = source_port(offline) else { return };
        let [live, offline] = [live, offline].map(|packet| word(packet, at));
        if (left_outside || space != Space::Icmp) && self.pairs.agree(space, live, offline, true) {
            self.pairs.learn(space, live, offline);
        }
    }

    /// Takes out of both what may differ, after a look at it.
    fn level(&mut self, live: &mut [u8], offline: &mut [u8], quoted: bool) -> Result<(), String> {
        let (Some(layout), Some(same)) = (Layout::of(offline), Layout::of(live)) else { return Ok(()) };
        if layout.header != same.header || layout.transport != same.transport || layout.protocol != same.protocol {
            return Err("the headers differ".into());
        }
        if !quoted {
            self.identification(live, offline, &layout)?;
        }
        let Layout { transport, protocol, first_fragment, .. } = layout;
        if layout.tunnels {
            return self.level(&mut live[transport..], &mut offline[transport..], quoted);
        }
        if !first_fragment || live[transport..] == offline[transport..] {
            return Ok(());
        }
        let Some(space) = Space::of(protocol) else { return Ok(()) };
        let is_whole = !quoted && !is_piece(offline, &layout);
        let (live, offline) = (&mut live[transport..], &mut offline[transport..]);
        let Some(checksum) = checksum_at(protocol) else {
            crc(live, offline, is_whole)?;
            return self.ports(live, offline, &[0, 2], space, quoted);
        };
        let without = protocol == 17 && [&*live, &*offline].iter().all(|bytes| bytes.get(6..8) == Some(&[0, 0]));
        if live.len() >= checksum + 2 && !without {
            let [ours, theirs] = [&*live, &*offline].map(|bytes| u64::from(fold(sum(bytes))) % 0xffff);
            if ours != theirs {
                return Err(format!("the sum of protocol {protocol} is {ours:04x} and should be {theirs:04x}"));
            }
            for bytes in [&mut *live, &mut *offline] {
                bytes[checksum..checksum + 2].fill(0);
            }
        }
        if live.len() == checksum + 1 {
            // A quotation that ends within it.
            live[checksum] = offline[checksum];
        }
        if space == Space::Icmp && !is_query(protocol, offline[0]) {
            return if live.len() > 8 { self.level(&mut live[8..], &mut offline[8..], true) } else { Ok(()) };
        }
        let places: &[usize] = if space == Space::Icmp { &[4] } else { &[0, 2] };
        self.ports(live, offline, places, space, quoted)
    }

    /// Takes ports out of both that are of one binding.
    fn ports(
        &mut self,
        live: &mut [u8],
        offline: &mut [u8],
        places: &[usize],
        space: Space,
        quoted: bool,
    ) -> Result<(), String> {
        let length = offline.len();
        for &at in places.iter().filter(|&&at| at + 2 <= length) {
            let [ours, theirs] = [&*live, &*offline].map(|bytes| word(bytes, at));
            // A binding that an echo made that was hairpinned, or a packet that was refused as too big, shows
            // itself in an error only.
            if ours != theirs && !self.pairs.agree(space, ours, theirs, quoted) {
                return Err(self.pairs.disagree(space, ours, theirs));
            }
            if ours != theirs && quoted {
                self.pairs.learn(space, ours, theirs);
            }
            for bytes in [&mut *live, &mut *offline] {
                bytes[at..at + 2].fill(0);
            }
        }
        Ok(())
    }

    /// Identifications may differ where neither is that of the packet that came.
    fn identification(&mut self, live: &mut [u8], offline: &mut [u8], layout: &Layout) -> Result<(), String> {
        let (at, bytes) = match (offline[0] >> 4, layout.fragment_header) {
            (4, _) => (4, 2),
            (_, Some(at)) => (at + 4, 4),
            _ => return Ok(()),
        };
        let read = |packet: &[u8]| packet[at..at + bytes].iter().fold(0_u32, |id, &byte| id << 8 | u32::from(byte));
        let (ours, theirs) = (read(live), read(offline));
        let expected = *self.identifications.entry(theirs).or_insert(ours);
        if expected != ours {
            return Err(format!("identification {ours:#x} instead of {expected:#x}, which the fragment before had"));
        }
        if ours == theirs {
            return Ok(());
        }
        if identifications(self.input).contains(&theirs) {
            // Drawn by chance, once in 65,536 packets; else it was to stay.
            self.pairs.coincidences += 1;
            if self.pairs.coincidences > COINCIDENCES {
                return Err(format!("identification {ours:#x} instead of {theirs:#x}, which came"));
            }
        }
        for packet in [&mut *live, &mut *offline] {
            if packet[0] >> 4 == 4 {
                if fold(sum(&packet[..layout.header])) != 0xffff {
                    return Err("the checksum of an IPv4 header is wrong".into());
                }
                packet[10..12].fill(0);
            }
            packet[at..at + bytes].fill(0);
        }
        Ok(())
    }
}

/// Takes SCTP's checksum out of both: as far from right in the one as in the other, where all of the packet is there.
fn crc(live: &mut [u8], offline: &mut [u8], is_whole: bool) -> Result<(), String> {
    let mut doubts = [&mut *live, &mut *offline].map(|packet| {
        let field = packet.get(8..12)?.first_chunk::<4>().copied()?;
        packet[8..12].fill(0);
        let right = crc32c::of(packet);
        Some([0, 1, 2, 3].map(|at| field[at] ^ right[at]))
    });
    if is_whole && doubts[0] != doubts[1] {
        return Err(format!("the CRC32c is off by {:x?} instead of {:x?}", doubts[0].take(), doubts[1].take()));
    }
    if let (Some(ours), Some(theirs)) = (live.get_mut(8..), offline.get(8..))
        && ours.len() < 4
    {
        // A quotation that ends within it.
        ours.copy_from_slice(theirs);
    }
    Ok(())
}

/// Whether the packet is a piece of one, or was cut with the softwire's packet that it is in.
fn is_piece(packet: &[u8], layout: &Layout) -> bool {
    match layout.fragment_header {
        Some(at) => word(packet, at + 2) & 0xfff9 != 0,
        None => packet[0] >> 4 == 4 && (word(packet, 6) & 0x3fff != 0 || packet.len() < usize::from(word(packet, 2))),
    }
}

/// The identifications in the headers of a packet.
fn identifications(packet: &[u8]) -> Vec<u32> {
    let Some(layout) = Layout::of(packet) else { return Vec::new() };
    let mut found = Vec::new();
    if packet[0] >> 4 == 4 {
        found.push(u32::from(word(packet, 4)));
    }
    if let Some(at) = layout.fragment_header.filter(|at| at + 8 <= packet.len()) {
        let low = u32::from(word(packet, at + 6));
        found.extend([low, u32::from(word(packet, at + 4)) << 16 | low]);
    }
    if layout.tunnels {
        found.extend(packet.get(layout.transport..).map(identifications).unwrap_or_default());
    }
    found
}

/// Where what is in a packet.
struct Layout {
    /// Bytes of the first header.
    header: usize,
    /// Where the transport begins.
    transport: usize,
    protocol: u8,
    first_fragment: bool,
    fragment_header: Option<usize>,
    /// An IPv4 packet is in an IPv6 packet.
    tunnels: bool,
}

impl Layout {
    fn of(packet: &[u8]) -> Option<Self> {
        if packet.len() >= 20 && packet[0] >> 4 == 4 {
            let header = usize::from(packet[0] & 15) * 4;
            let first_fragment = word(packet, 6) & 0x1fff == 0;
            let protocol = packet[9];
            let layout =
                Self { header, transport: header, protocol, first_fragment, fragment_header: None, tunnels: false };
            return (packet.len() > header && header >= 20).then_some(layout);
        }
        if packet.len() < 40 || packet[0] >> 4 != 6 {
            return None;
        }
        let (mut next, mut at, mut first_fragment, mut fragment_header) = (packet[6], 40, true, None);
        while matches!(next, 0 | 43 | 44 | 60) && packet.len() >= at + 8 {
            let bytes = if next == 44 { 8 } else { usize::from(packet[at + 1]) * 8 + 8 };
            if next == 44 {
                fragment_header = Some(at);
                first_fragment &= word(packet, at + 2) & 0xfff8 == 0;
            }
            next = packet[at];
            at += bytes;
        }
        let tunnels = next == 4 && first_fragment;
        let layout = Self { header: 40, transport: at, protocol: next, first_fragment, fragment_header, tunnels };
        (packet.len() > at).then_some(layout)
    }
}

/// Where the port, or the identifier of an echo, of who has sent the packet is; in a softwire that of
/// the packet inside.
fn source_port(packet: &[u8]) -> Option<(Space, usize)> {
    let Layout { transport, protocol, first_fragment, tunnels, .. } = Layout::of(packet)?;
    if tunnels {
        return source_port(packet.get(transport..)?).map(|(space, at)| (space, transport + at));
    }
    let at = match protocol {
        6 | 17 | 33 | 132 | 136 => 0,
        1 | 58 if is_query(protocol, packet[transport]) => 4,
        _ => return None,
    };
    let is_there = first_fragment && packet.len() >= transport + at + 2;
    Space::of(protocol).filter(|_| is_there).map(|space| (space, transport + at))
}

fn is_query(protocol: u8, kind: u8) -> bool {
    if protocol == 1 { !matches!(kind, 3 | 4 | 5 | 11 | 12) } else { kind >= 128 }
}

fn word(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::super::datagram::{Datagram, ip};
    use super::*;
    use crate::numbers::Numbers;

    const ADDRESSES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8))];

    fn packet(port: u16, identification: u16) -> Vec<u8> {
        let datagram = Datagram::tcp(&mut Numbers(1), ADDRESSES, [port, 80], 9);
        let mut packet = ip(ADDRESSES[0], ADDRESSES[1], 6, 64, &datagram.bytes);
        packet[4..6].copy_from_slice(&identification.to_be_bytes());
        super::super::datagram::write_checksum(&mut packet);
        packet
    }

    fn compare(pairs: &mut Pairs, input: &[u8], live: &[u8], offline: &[u8], may_bind: bool) -> Result<(), String> {
        let identifications = HashMap::new();
        Comparison { pairs, input, may_bind, identifications }.same(live, offline, true)
    }

    #[test]
    fn a_new_port_stands_for_another_from_then_on() {
        let mut pairs = Pairs::default();
        let input = packet(1, 7);
        assert!(compare(&mut pairs, &input, &packet(2000, 7), &packet(3000, 7), false).is_err());
        assert_eq!(compare(&mut pairs, &input, &packet(2000, 7), &packet(3000, 7), true), Ok(()));
        assert_eq!(compare(&mut pairs, &input, &packet(2000, 7), &packet(3000, 7), false), Ok(()));
        assert!(compare(&mut pairs, &input, &packet(2001, 7), &packet(3000, 7), true).is_err());
        assert!(compare(&mut pairs, &input, &packet(2000, 7), &packet(3001, 7), true).is_err());
    }

    #[test]
    fn what_neither_draws_must_be_the_same() {
        let mut pairs = Pairs::default();
        let input = packet(1, 7);
        let offline = packet(2000, 9);
        assert_eq!(compare(&mut pairs, &input, &packet(2000, 5), &offline, true), Ok(()));
        for _ in 0..COINCIDENCES {
            assert_eq!(compare(&mut pairs, &input, &packet(2000, 5), &packet(2000, 7), true), Ok(()));
        }
        assert!(compare(&mut pairs, &input, &packet(2000, 5), &packet(2000, 7), true).is_err(), "it came with it");
        for at in 0..offline.len() {
            let mut live = offline.clone();
            live[at] ^= 4;
            assert!(compare(&mut pairs, &input, &live, &offline, true).is_err(), "byte {at}");
        }
    }
}

use std::fs::File;

use proptest::prelude::*;
use tombolo_engine::packet::{ChecksumState, HEADROOM, Offload, Segmentation};
use tombolo_wire::{Protocol, Sum, ipv4, ipv6, read_u16, read_u32, tcp, write_u16, write_u32};

use super::*;

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;
const FULL: usize = 1000;

/// A port that has always a packet, keeps what is sent, and may refuse it.
struct Record {
    node: File,
    sent: Vec<(Vec<u8>, Offload)>,
    refusal: Option<DropReason>,
}

impl Record {
    fn merging() -> Merging<Self> {
        Merging::new(Self { node: File::open("/dev/null").unwrap(), sent: Vec::new(), refusal: None })
    }
}

impl Outbox for Record {
    fn send(&mut self, packet: &mut Packet<'_>) -> Result<(), DropReason> {
        self.sent.push((packet.bytes().to_vec(), packet.offload));
        self.refusal.map_or(Ok(()), Err)
    }
}

impl AsFd for Record {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.node.as_fd()
    }
}

impl Port for Record {
    fn recv<'b>(&mut self, buffer: &'b mut Buffer) -> io::Result<Option<Packet<'b>>> {
        Ok(Packet::new(buffer.bytes_mut(), HEADROOM, 1, Offload::default()))
    }
}

/// What a packet says; `bytes` makes it.
#[derive(Debug, Clone)]
struct Fields {
    is_ipv6: bool,
    port: u16,
    class: u8,
    label: u16,
    hops: u8,
    fragment_word: u16,
    identification: u16,
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    window: u16,
    urgent: u16,
    options: Vec<u8>,
    payload: usize,
}

fn fields(is_ipv6: bool, port: u16) -> Fields {
    Fields {
        is_ipv6,
        port,
        class: 0,
        label: 0x1234,
        hops: 64,
        fragment_word: ipv4::DF,
        identification: 0xffff,
        sequence: 0xffff_f000,
        acknowledgement: 77,
        flags: ACK,
        window: 500,
        urgent: 0,
        options: vec![1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8],
        payload: FULL,
    }
}

impl Fields {
    fn bytes(&self) -> Vec<u8> {
        let mut segment = vec![0; tcp::HEADER_LENGTH];
        write_u16(&mut segment, 0, self.port);
        write_u16(&mut segment, 2, 443);
        write_u32(&mut segment, tcp::SEQUENCE, self.sequence);
        write_u32(&mut segment, tcp::ACKNOWLEDGEMENT, self.acknowledgement);
        segment[tcp::DATA_OFFSET] = u8::try_from((tcp::HEADER_LENGTH + self.options.len()) / 4 * 16).unwrap();
        segment[tcp::FLAGS] = self.flags;
        write_u16(&mut segment, 14, self.window);
        write_u16(&mut segment, 18, self.urgent);
        segment.extend(&self.options);
        segment
            .extend((0..self.payload).map(|index| (self.sequence as usize + index).wrapping_mul(31).to_le_bytes()[0]));
        let mut packet = if self.is_ipv6 {
            let mut header = vec![0x60 | self.class >> 4, self.class << 4, 0, 0, 0, 0, 6, self.hops];
            write_u16(&mut header, 2, self.label);
            header.extend((0..32).map(|byte| byte * 7));
            header
        } else {
            let mut header =
                vec![0x45, self.class, 0, 0, 0, 0, 0, 0, self.hops, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2];
            write_u16(&mut header, ipv4::IDENTIFICATION, self.identification);
            write_u16(&mut header, ipv4::FRAGMENT_OFFSET, self.fragment_word);
            header
        };
        let ip = packet.len();
        packet.append(&mut segment);
        finish(&mut packet, ip);
        packet
    }

    /// What the sender sends next.
    fn next(&mut self) -> Vec<u8> {
        let bytes = self.bytes();
        self.sequence = self.sequence.wrapping_add(u32::try_from(self.payload).unwrap());
        self.identification = self.identification.wrapping_add(1);
        bytes
    }
}

/// Writes lengths and checksums, with a sum of its own.
fn finish(packet: &mut [u8], ip: usize) {
    let length = packet.len();
    if ip == ipv4::HEADER_LENGTH {
        write_u16(packet, ipv4::TOTAL_LENGTH, u16::try_from(length).unwrap());
        write_u16(packet, ipv4::CHECKSUM, 0);
        let sum = slow_sum(&packet[..ip]);
        write_u16(packet, ipv4::CHECKSUM, !sum);
    } else {
        write_u16(packet, ipv6::PAYLOAD_LENGTH, u16::try_from(length - ip).unwrap());
    }
    write_u16(packet, ip + tcp::CHECKSUM, 0);
    let sum = slow_sum(&[&pseudo_header(packet, ip)[..], &packet[ip..]].concat());
    write_u16(packet, ip + tcp::CHECKSUM, !sum);
}

fn pseudo_header(packet: &[u8], ip: usize) -> Vec<u8> {
    let addresses = if ip == ipv4::HEADER_LENGTH { 12..20 } else { 8..40 };
    let mut pseudo = packet[addresses].to_vec();
    pseudo.extend(u32::try_from(packet.len() - ip).unwrap().to_be_bytes());
    pseudo.extend([0, 0, 0, 6]);
    pseudo
}

fn slow_sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) * 256 + u32::from(*word.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

/// What leaves the host of a packet that is sent so: as Linux cuts it (`inet_gso_segment`,
/// `ipv6_gso_segment`, `tcp_gso_segment`), and with the checksums that were left to the card.
fn on_the_wire((packet, offload): &(Vec<u8>, Offload)) -> Vec<Vec<u8>> {
    let ip = if packet[0] >> 4 == 4 { ipv4::HEADER_LENGTH } else { ipv6::HEADER_LENGTH };
    let Segmentation::Tcp { size, ecn } = offload.segmentation else {
        let mut packet = packet.clone();
        if offload.checksum != ChecksumState::Complete {
            finish(&mut packet, ip);
        }
        return vec![packet];
    };
    assert!(!ecn);
    let start = u16::try_from(ip).unwrap();
    assert_eq!(offload.checksum, ChecksumState::Partial { start, offset: 16 });
    assert_eq!(read_u16(packet, ip + tcp::CHECKSUM), slow_sum(&pseudo_header(packet, ip)), "what Linux takes it for");
    if ip == ipv4::HEADER_LENGTH {
        assert_eq!(usize::from(read_u16(packet, ipv4::TOTAL_LENGTH)), packet.len());
        assert_eq!(slow_sum(&packet[..ip]), 0xffff);
    } else {
        assert_eq!(usize::from(read_u16(packet, ipv6::PAYLOAD_LENGTH)), packet.len() - ip);
    }
    let headers = ip + usize::from(packet[ip + tcp::DATA_OFFSET] >> 4) * 4;
    let payloads: Vec<&[u8]> = packet[headers..].chunks(size.into()).collect();
    assert!(payloads.len() > 1, "a super-packet of one segment");
    let mut sequence = read_u32(packet, ip + tcp::SEQUENCE);
    let mut segments = Vec::new();
    for (number, payload) in payloads.iter().enumerate() {
        let mut segment = [&packet[..headers], payload].concat();
        write_u32(&mut segment, ip + tcp::SEQUENCE, sequence);
        if number + 1 < payloads.len() {
            segment[ip + tcp::FLAGS] &= !(FIN | PSH);
        }
        if number > 0 {
            segment[ip + tcp::FLAGS] &= !CWR;
        }
        if ip == ipv4::HEADER_LENGTH {
            let identification = read_u16(packet, ipv4::IDENTIFICATION);
            write_u16(&mut segment, ipv4::IDENTIFICATION, identification.wrapping_add(u16::try_from(number).unwrap()));
        }
        finish(&mut segment, ip);
        segments.push(segment);
        sequence = sequence.wrapping_add(u32::try_from(payload.len()).unwrap());
    }
    segments
}

/// Something that a sender does otherwise.
type Change = fn(&mut Fields);

/// Sends packets as what came of one packet each.
fn send_all(merging: &mut Merging<Record>, packets: &[Vec<u8>]) {
    let mut buffer = Buffer::new();
    for packet in packets {
        merging.recv(&mut buffer).unwrap().unwrap();
        send(merging, packet, Offload::default());
    }
}

fn send(merging: &mut Merging<Record>, bytes: &[u8], offload: Offload) {
    let mut room = vec![0; HEADROOM + bytes.len()];
    room[HEADROOM..].copy_from_slice(bytes);
    merging.send(&mut Packet::new(&mut room, HEADROOM, bytes.len(), offload).unwrap()).unwrap();
}

/// Sends a batch, and says what left: bytes, and segment sizes where they were merged.
fn batch(packets: &[Vec<u8>]) -> Vec<(Vec<u8>, Offload)> {
    let mut merging = Record::merging();
    send_all(&mut merging, packets);
    assert_eq!(merging.flush(), []);
    assert_eq!((merging.held.len(), merging.spare.len()), (0, MOST_HELD));
    merging.port.sent
}

/// Asserts that the batch leaves in so many packets, and reaches the wire as it is.
fn leaves_in(packets: &[Vec<u8>], count: usize) {
    let sent = batch(packets);
    let lengths: Vec<usize> = sent.iter().map(|(bytes, _)| bytes.len()).collect();
    assert_eq!(sent.len(), count, "{lengths:?}");
    assert!(sent.iter().flat_map(on_the_wire).eq(packets.iter().cloned()), "{lengths:?}");
}

#[test]
fn segments_of_a_connection_leave_as_one() {
    for is_ipv6 in [false, true] {
        let mut sender = fields(is_ipv6, 5000);
        let packets: Vec<_> = (0..20).map(|_| sender.next()).collect();
        leaves_in(&packets, 1);
        let sent = batch(&packets);
        let checksum = ChecksumState::Partial { start: if is_ipv6 { 40 } else { 20 }, offset: 16 };
        assert_eq!(sent[0].1, Offload { segmentation: Segmentation::Tcp { size: 1000, ecn: false }, checksum });
    }
}

#[test]
fn a_segment_alone_leaves_as_it_came() {
    let packet = fields(false, 5000).bytes();
    assert_eq!(batch(std::slice::from_ref(&packet)), [(packet, Offload::default())]);
}

#[test]
fn a_short_one_psh_and_fin_come_last() {
    for is_ipv6 in [false, true] {
        for (flags, payload) in [(ACK, FULL - 1), (ACK | PSH, FULL), (ACK | FIN, FULL), (ACK | FIN | PSH, 1)] {
            let mut sender = fields(is_ipv6, 5000);
            let mut packets = vec![sender.next(), sender.next()];
            (sender.flags, sender.payload) = (flags, payload);
            packets.push(sender.next());
            (sender.flags, sender.payload) = (ACK, FULL);
            packets.extend([sender.next(), sender.next()]);
            leaves_in(&packets, 2);
        }
    }
}

#[test]
fn a_longer_one_begins_anew() {
    let mut sender = fields(false, 5000);
    let mut packets = vec![sender.next(), sender.next()];
    sender.payload = FULL + 1;
    packets.extend([sender.next(), sender.next()]);
    leaves_in(&packets, 2);
}

#[test]
fn what_differs_in_any_field_is_not_merged() {
    let changes: &[(&str, Change)] = &[
        ("class", |fields| fields.class ^= 3),
        ("label", |fields| fields.label += u16::from(fields.is_ipv6)),
        ("hops", |fields| fields.hops -= 1),
        ("may be fragmented", |fields| fields.fragment_word = 0),
        ("identification", |fields| fields.identification += 1),
        ("the same identification", |fields| fields.identification = fields.identification.wrapping_sub(1)),
        ("sequence", |fields| fields.sequence += 1),
        ("acknowledgement", |fields| fields.acknowledgement += 1),
        ("window", |fields| fields.window += 1),
        ("urgent", |fields| fields.urgent += 1),
        ("ECE", |fields| fields.flags |= ECE),
        ("CWR", |fields| fields.flags |= CWR),
        ("SYN", |fields| fields.flags |= SYN),
        ("no ACK", |fields| fields.flags &= !ACK),
        ("options", |fields| fields.options[11] += 1),
        ("longer options", |fields| fields.options.extend([1; 4])),
        ("port", |fields| fields.port += 1),
    ];
    for is_ipv6 in [false, true] {
        for (what, change) in changes {
            let is_of_ipv4 = ["may be fragmented", "identification", "the same identification"].contains(what);
            if is_ipv6 && is_of_ipv4 || !is_ipv6 && *what == "label" {
                continue;
            }
            let mut sender = fields(is_ipv6, 5000);
            let mut packets = vec![sender.next()];
            change(&mut sender);
            packets.push(sender.next());
            assert_eq!(batch(&packets).len(), 2, "{what}");
            leaves_in(&packets, 2);
        }
    }
}

#[test]
fn identifications_count_up_whether_fragments_are_allowed_or_not() {
    for fragment_word in [0, ipv4::DF] {
        let mut sender = Fields { fragment_word, ..fields(false, 5000) };
        let packets: Vec<_> = (0..5).map(|_| sender.next()).collect();
        leaves_in(&packets, 1);
        let constant: Vec<_> = (0..5)
            .map(|_| {
                sender.identification = 0;
                sender.next()
            })
            .collect();
        leaves_in(&constant, 5);
    }
}

#[test]
fn a_damaged_segment_stays_damaged() {
    for offset in [10, 20 + tcp::CHECKSUM, 100] {
        for damaged in 0..3 {
            let mut sender = fields(false, 5000);
            let mut packets: Vec<_> = (0..3).map(|_| sender.next()).collect();
            packets[damaged][offset] ^= 0x40;
            leaves_in(&packets, if damaged == 1 { 3 } else { 2 });
        }
    }
}

#[test]
fn a_checksum_of_zero_is_sent_as_it_came() {
    // Payloads are looked for of which the checksum is zero.
    let mut sender = fields(false, 5000);
    let first = sender.next();
    let mut second = sender.next();
    let checksum = read_u16(&second, 20 + tcp::CHECKSUM);
    let end = second.len() - 2;
    let sum = Sum::ZERO.word(read_u16(&second, end)).word(checksum).fold();
    write_u16(&mut second, end, sum);
    finish(&mut second, 20);
    assert!([0, 0xffff].contains(&read_u16(&second, 20 + tcp::CHECKSUM)));
    for zero in [0, 0xffff] {
        write_u16(&mut second, 20 + tcp::CHECKSUM, zero);
        leaves_in(&[first.clone(), second.clone()], 2);
    }
}

#[test]
fn checksums_that_were_left_to_the_card_are_merged_too() {
    let mut sender = fields(false, 5000);
    let packets: Vec<_> = (0..3).map(|_| sender.next()).collect();
    let mut merging = Record::merging();
    let mut buffer = Buffer::new();
    for packet in &packets {
        merging.recv(&mut buffer).unwrap().unwrap();
        let mut packet = packet.clone();
        let pseudo = slow_sum(&pseudo_header(&packet, 20));
        write_u16(&mut packet, 20 + tcp::CHECKSUM, pseudo);
        let checksum = ChecksumState::Partial { start: 20, offset: 16 };
        send(&mut merging, &packet, Offload { segmentation: Segmentation::None, checksum });
    }
    merging.flush();
    assert_eq!(merging.port.sent.len(), 1);
    assert_eq!(on_the_wire(&merging.port.sent[0]), packets);
}

#[test]
fn a_super_packet_is_not_longer_than_links_take() {
    for is_ipv6 in [false, true] {
        let mut sender = fields(is_ipv6, 5000);
        sender.payload = 1448;
        let packets: Vec<_> = (0..BATCH).map(|_| sender.next()).collect();
        leaves_in(&packets, 2);
        let sent = batch(&packets);
        assert!(sent[0].0.len() > 63_000 && sent[0].0.len() <= 65_535 - 128, "{}", sent[0].0.len());
    }
}

#[test]
fn connections_that_take_turns_merge_each_by_itself() {
    let mut senders: Vec<_> = (0..4).map(|number| fields(number % 2 == 0, 5000 + number)).collect();
    let packets: Vec<_> = (0..40).map(|number| senders[number % 4].next()).collect();
    let sent = batch(&packets);
    assert_eq!(sent.len(), 4);
    let mut arrived: Vec<_> = sent.iter().flat_map(on_the_wire).collect();
    let mut expected = packets;
    arrived.sort();
    expected.sort();
    assert!(arrived == expected);
}

#[test]
fn of_more_connections_than_have_room_the_others_leave_singly() {
    let mut senders: Vec<_> = (0..20).map(|number| fields(false, 5000 + number)).collect();
    let packets: Vec<_> = (0..60).map(|number| senders[number % 20].next()).collect();
    assert_eq!(batch(&packets).len(), MOST_HELD + 4 * 3);
}

#[test]
fn what_is_not_merged_stays_behind_what_is_held_of_its_connection() {
    let mut sender = fields(false, 5000);
    let mut packets = vec![sender.next(), sender.next()];
    let other = fields(false, 6000).next();
    packets.push(other.clone());
    // An acknowledgement without payload; a fragment, of which no port is known; a reset.
    for alone in [
        Fields { payload: 0, ..sender.clone() }.bytes(),
        Fields { fragment_word: ipv4::MF, ..sender.clone() }.bytes(),
        Fields { flags: 0x14, payload: 0, ..sender.clone() }.bytes(),
    ] {
        let of_addresses = read_u16(&alone, ipv4::FRAGMENT_OFFSET) == ipv4::MF;
        let sent = batch(&[packets.clone(), vec![alone.clone()]].concat());
        assert_eq!(sent.len(), 3);
        assert_eq!(on_the_wire(&sent[0]), packets[..2]);
        let rest = if of_addresses { [&other, &alone] } else { [&alone, &other] };
        assert_eq!([&sent[1].0, &sent[2].0], rest);
    }
}

#[test]
fn other_protocols_wait_for_nothing() {
    let mut sender = fields(true, 5000);
    let mut datagram = sender.next();
    datagram[ipv6::NEXT_HEADER] = Protocol::UDP.0;
    let segment = sender.next();
    let sent = batch(&[segment.clone(), datagram.clone()]);
    assert_eq!([&sent[0].0, &sent[1].0], [&datagram, &segment]);
}

#[test]
fn super_packets_cross_as_they_are() {
    let mut sender = fields(false, 5000);
    let first = sender.next();
    sender.payload = 3 * FULL;
    let whole = sender.next();
    let segmentation = Segmentation::Tcp { size: 1000, ecn: true };
    let offload = Offload { segmentation, checksum: ChecksumState::Partial { start: 20, offset: 16 } };
    let mut merging = Record::merging();
    send_all(&mut merging, std::slice::from_ref(&first));
    send(&mut merging, &whole, offload);
    merging.flush();
    assert_eq!(merging.port.sent, [(first, Offload::default()), (whole, offload)]);
}

#[test]
fn outside_a_batch_nothing_is_held() {
    let mut merging = Record::merging();
    let packet = fields(false, 5000).bytes();
    send(&mut merging, &packet, Offload::default());
    assert_eq!(merging.port.sent.len(), 1);
    send_all(&mut merging, std::slice::from_ref(&packet));
    assert_eq!(merging.port.sent.len(), 1);
    merging.flush();
    send(&mut merging, &packet, Offload::default());
    assert_eq!(merging.port.sent.len(), 3);
}

#[test]
fn each_packet_of_a_super_packet_that_is_refused_is_lost_once() {
    let mut sender = fields(false, 5000);
    let mut merging = Record::merging();
    merging.port.refusal = Some(DropReason::DeviceBusy);
    let mut buffer = Buffer::new();
    // Of the first packet come two segments.
    merging.recv(&mut buffer).unwrap().unwrap();
    for _ in 0..2 {
        send(&mut merging, &sender.next(), Offload::default());
    }
    sender.flags |= PSH;
    send_all(&mut merging, &[sender.next()]);
    assert_eq!(merging.port.sent.len(), 1, "PSH ended it");
    sender.flags = ACK;
    send_all(&mut merging, &[sender.next()]);
    send(&mut merging, &sender.next(), Offload::default());
    let lost = |number| Loss { number, reason: DropReason::DeviceBusy };
    assert_eq!(merging.flush(), [lost(0), lost(1), lost(2)]);
    // The next batch has losses of its own.
    merging.port.refusal = None;
    send_all(&mut merging, &[sender.next()]);
    assert_eq!(merging.flush(), []);
}

/// What a sender does before it sends.
fn change(sender: &mut Fields, kind: u8, amount: usize) {
    sender.flags = ACK;
    sender.payload = FULL;
    match kind {
        0 => sender.payload = 1 + amount % FULL,
        1 => sender.payload = FULL + amount % 500,
        2 => sender.payload = 0,
        3 => sender.flags |= PSH,
        4 => (sender.flags, sender.payload) = (ACK | FIN | PSH, amount % FULL),
        5 => sender.flags |= ECE,
        6 => sender.flags |= CWR,
        7 => sender.acknowledgement = sender.acknowledgement.wrapping_add(1),
        8 => sender.window ^= 1,
        9 => sender.class ^= 1,
        10 => sender.hops ^= 1,
        11 => sender.fragment_word ^= ipv4::DF,
        12 => sender.identification = amount.to_le_bytes()[0].into(),
        13 => sender.sequence = sender.sequence.wrapping_sub(1),
        14 => sender.options[4] ^= 1,
        15 => sender.options = vec![1; amount % 9 * 4 + 8],
        16 => sender.label ^= 1,
        17 => sender.flags |= SYN,
        18 => sender.urgent ^= 1,
        // Most are what comes next.
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever is sent reaches the wire unchanged, each connection's packets in order.
    #[test]
    fn what_is_cut_again_is_what_was_sent(
        steps in prop::collection::vec((0_usize..4, 0_u8..60, any::<usize>(), 0_u8..40), 1..=BATCH)
    ) {
        let mut senders: Vec<_> = (0..4).map(|number| fields(number % 2 == 0, 5000 + number)).collect();
        let mut packets = Vec::new();
        for (number, kind, amount, damage) in steps {
            let sender = &mut senders[number];
            change(sender, kind, amount);
            let mut packet = sender.next();
            if damage == 0 {
                let place = amount % packet.len();
                // Not where it would become another connection's, or no TCP.
                if place >= packet.len() - sender.payload {
                    packet[place] ^= 0x10;
                }
            }
            packets.push(packet);
        }
        let sent = batch(&packets);
        prop_assert!(sent.len() <= packets.len());
        let arrived: Vec<_> = sent.iter().flat_map(on_the_wire).collect();
        prop_assert_eq!(arrived.len(), packets.len());
        for number in 0..4 {
            let is_its = |packet: &&Vec<u8>| {
                let ip = if packet[0] >> 4 == 4 { 20 } else { 40 };
                read_u16(packet, ip) == 5000 + number
            };
            prop_assert!(arrived.iter().filter(is_its).eq(packets.iter().filter(is_its)));
        }
    }
}

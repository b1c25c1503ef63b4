//! The helper for FTP: whole conversations, segment by segment, between a client and a server that keep TCP's account.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::net::IpAddr;

use support::*;
use tombolo_engine::mechanism::Helpers;
use tombolo_engine::mechanism::napt::{Filtering, Filters, InboundTcp, Policy};
use tombolo_engine::packet::{ChecksumState, Offload};
use tombolo_engine::{DropReason, Verdict};

const CLIENT_PORT: u16 = 40_000;
const FTP: u16 = 21;
const DATA: u16 = 20;

fn policy() -> Policy {
    Policy { helpers: Helpers { ftp: true }, ..Policy::default() }
}

/// A client and a server, each with what it has sent and received.
struct Talk {
    gateway: Gateway,
    client: IpAddr,
    /// As the client knows it.
    server: IpAddr,
    outside_port: u16,
    /// The next number of each: client, server.
    next: [u32; 2],
    /// What each expects of the other.
    expected: [u32; 2],
}

/// A segment as its receiver gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Heard {
    sequence: u32,
    acknowledgement: u32,
    text: String,
}

fn numbered(mut packet: Vec<u8>, sequence: u32, acknowledgement: u32, options: &[u8], text: &[u8]) -> Vec<u8> {
    let header = if packet[0] >> 4 == 4 { 20 } else { 40 };
    packet.truncate(header + 20);
    packet[header + 4..header + 8].copy_from_slice(&sequence.to_be_bytes());
    packet[header + 8..header + 12].copy_from_slice(&acknowledgement.to_be_bytes());
    packet[header + 12] = u8::try_from(((20 + options.len()) / 4) << 4).unwrap();
    packet.extend(options);
    packet.extend(text);
    finish(packet)
}

/// Lengths and checksums as they are to be.
fn finish(mut packet: Vec<u8>) -> Vec<u8> {
    let is_ipv4 = packet[0] >> 4 == 4;
    let header = if is_ipv4 { 20 } else { 40 };
    let length = packet.len();
    let transport = u32::try_from(length - header).unwrap();
    if is_ipv4 {
        packet[2..4].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        packet[10..12].copy_from_slice(&[0, 0]);
        let checksum = !sum(&packet[..20]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        packet[4..6].copy_from_slice(&u16::try_from(transport).unwrap().to_be_bytes());
    }
    packet[header + 16..header + 18].copy_from_slice(&[0, 0]);
    let mut pseudo = packet[if is_ipv4 { 12 } else { 8 }..header].to_vec();
    pseudo.extend(transport.to_be_bytes());
    pseudo.extend([0, 0, 0, 6]);
    pseudo.extend(&packet[header..]);
    let checksum = !sum(&pseudo);
    packet[header + 16..header + 18].copy_from_slice(&checksum.to_be_bytes());
    packet
}

fn heard(packet: &[u8]) -> Heard {
    let _all_checksums_are_right = see(packet);
    let header = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let number = |at: usize| u32::from_be_bytes(packet[header + at..header + at + 4].try_into().unwrap());
    let data = header + usize::from(packet[header + 12] >> 4) * 4;
    let text = String::from_utf8_lossy(&packet[data..]).into_owned();
    Heard { sequence: number(4), acknowledgement: number(8), text }
}

impl Talk {
    fn over_ipv4(policy: Policy) -> Self {
        let gateway = Gateway::new(Setup { nat44: true, policy, ..Setup::default() });
        Self::open(gateway, HOST4.into(), SERVER.into())
    }

    fn over_ipv6(policy: Policy) -> Self {
        Self::open(Gateway::new(Setup { policy, ..Setup::default() }), HOST.into(), embed(SERVER).into())
    }

    fn open(gateway: Gateway, client: IpAddr, server: IpAddr) -> Self {
        let next = [0xffff_fff0, 7_000];
        let mut talk = Self { gateway, client, server, outside_port: 0, next, expected: [next[1], next[0]] };
        let syn = talk.packet(0, SYN, talk.next[0], 0, &[], b"");
        let sent = talk.gateway.pass(&syn).1.remove(0);
        talk.outside_port = see(&sent).ports.0;
        let syn_ack = talk.packet(1, SYN | ACK, talk.next[1], talk.next[0].wrapping_add(1), &[], b"");
        assert_eq!(talk.gateway.pass(&syn_ack).0, Verdict::Forward);
        for side in 0..2 {
            talk.next[side] = talk.next[side].wrapping_add(1);
            talk.expected[side] = talk.expected[side].wrapping_add(1);
        }
        talk
    }

    fn packet(
        &self,
        side: usize,
        flags: u8,
        sequence: u32,
        acknowledgement: u32,
        options: &[u8],
        text: &[u8],
    ) -> Vec<u8> {
        let packet = match side {
            0 => tcp((self.client, CLIENT_PORT), (self.server, FTP), flags, b""),
            _ => tcp((SERVER, FTP), (POOL, self.outside_port), flags, b""),
        };
        numbered(packet, sequence, acknowledgement, options, text)
    }

    /// What arrives of a segment that one side sends, whatever its numbers.
    fn pass(&mut self, side: usize, sequence: u32, text: &[u8]) -> (Verdict, Option<Heard>) {
        let packet = self.packet(side, ACK, sequence, self.expected[side], &[], text);
        let (verdict, sent) = self.gateway.pass(&packet);
        (verdict, sent.first().map(|packet| heard(packet)))
    }

    /// One side says something, and the other has received all that came before.
    #[track_caller]
    fn says(&mut self, side: usize, text: &str) -> String {
        let (verdict, got) = self.pass(side, self.next[side], text.as_bytes());
        let got = got.unwrap_or_else(|| panic!("{verdict:?}"));
        assert_eq!(got.sequence, self.expected[1 - side], "it follows what was received before");
        assert_eq!(got.acknowledgement, self.next[1 - side], "all that the receiver has sent is acknowledged");
        self.next[side] = self.next[side].wrapping_add(u32::try_from(text.len()).unwrap());
        self.expected[1 - side] = got.sequence.wrapping_add(u32::try_from(got.text.len()).unwrap());
        got.text
    }

    #[track_caller]
    fn unchanged(&mut self, side: usize, text: &str) {
        assert_eq!(self.says(side, text), text);
    }

    /// The port that an address in a PORT command has, and that the address is the pool's.
    #[track_caller]
    fn port_of(&self, command: &str) -> u16 {
        let numbers: Vec<u8> =
            command.trim_end().strip_prefix("PORT ").unwrap().split(',').map(|n| n.parse().unwrap()).collect();
        assert_eq!(numbers[..4], POOL.octets());
        u16::from_be_bytes([numbers[4], numbers[5]])
    }

    /// The server opens a connection from `from` to the port that it was told; the host's port that it comes to.
    #[track_caller]
    fn opens_data(&mut self, from: u16, port: u16) -> u16 {
        self.gateway.forward(&tcp((SERVER, from), (POOL, port), SYN, b"")).ports.1
    }

    fn unhelped(&self) -> u64 {
        self.gateway.tables.conversations.unchanged()
    }
}

#[test]
fn port_names_an_outside_port_that_leads_to_the_host() {
    let mut talk = Talk::over_ipv4(policy());
    talk.unchanged(1, "220 ready\r\n");
    talk.unchanged(0, "USER anonymous\r\n");
    talk.unchanged(1, "230-several\r\n lines\r\n230 in\r\n");
    for (n, port) in [(0_u16, 41_000_u16), (1, 1024), (2, 65_535)] {
        let [high, low] = port.to_be_bytes();
        let said = talk.says(0, &format!("PORT 10,0,0,2,{high},{low}\r\n"));
        let outside = talk.port_of(&said);
        talk.unchanged(1, "200 PORT command successful.\r\n");
        talk.unchanged(0, &format!("RETR file{n}\r\n"));
        assert_eq!(talk.opens_data(DATA, outside), port);
        talk.unchanged(1, "150 here\r\n226 done\r\n");
    }
    let said = talk.says(0, "eprt |1|10.0.0.2|42000|\r\n");
    let outside = said.strip_prefix("EPRT |1|192.0.2.1|").and_then(|rest| rest.strip_suffix("|\r\n")).unwrap();
    assert_eq!(talk.opens_data(DATA, outside.parse().unwrap()), 42_000);
    talk.unchanged(1, "200 ok\r\n");
    assert_eq!((talk.unhelped(), talk.gateway.tables.conversations.count()), (0, 1));
    talk.gateway.audit();
}

#[test]
fn nothing_is_rewritten_unless_it_is_asked_for() {
    let mut talk = Talk::over_ipv4(Policy::default());
    talk.unchanged(0, "PORT 10,0,0,2,4,1\r\n");
    assert_eq!(talk.gateway.tables.conversations.count(), 0);
}

#[test]
fn filtering_lets_the_server_in_and_nobody_else() {
    let filtering = Filters::from(Filtering::AddressDependent);
    for policy in [Policy { filtering, ..policy() }, Policy { inbound_tcp: InboundTcp::Denied, ..policy() }] {
        let mut talk = Talk::over_ipv4(policy);
        let said = talk.says(0, "PORT 10,0,0,2,160,40\r\n");
        let port = talk.port_of(&said);
        let stranger = tcp((OTHER_SERVER, DATA), (POOL, port), SYN, b"");
        assert!(matches!(talk.gateway.pass(&stranger).0, Verdict::Drop(_) | Verdict::Reply(_)), "{policy:?}");
        assert_eq!(talk.opens_data(DATA, port), 41_000, "{policy:?}");
    }
}

const OTHER_SERVER: std::net::Ipv4Addr = std::net::Ipv4Addr::new(203, 0, 113, 9);

#[test]
fn the_port_stays_open_as_long_as_opening_may_take() {
    let mut talk = Talk::over_ipv4(policy());
    let said = talk.says(0, "PORT 10,0,0,2,160,40\r\n");
    let port = talk.port_of(&said);
    talk.gateway.wait(200);
    talk.gateway.sweep();
    assert_eq!(talk.opens_data(DATA, port), 41_000);
    talk.unchanged(1, "200 ok\r\n");
    let said = talk.says(0, "PORT 10,0,0,2,160,41\r\n");
    let port = talk.port_of(&said);
    talk.gateway.wait(250);
    talk.gateway.sweep();
    let late = tcp((SERVER, DATA), (POOL, port), SYN, b"");
    assert_eq!(talk.gateway.pass(&late).0, Verdict::Drop(DropReason::NoBinding), "nobody came");
}

#[test]
fn a_client_that_announces_nothing_is_reached_at_the_port_of_its_control_connection() {
    let mut talk = Talk::over_ipv6(policy());
    assert_eq!(talk.opens_data(DATA, talk.outside_port), CLIENT_PORT);
}

#[test]
fn another_hosts_address_and_low_ports_are_left() {
    let mut talk = Talk::over_ipv4(policy());
    for (n, command) in [
        "PORT 10,0,3,3,160,40\r\n",
        "PORT 10,0,0,2,0,22\r\n",
        "PORT 10,0,0,2,3,255\r\n",
        "PORT 10,0,0,2,160\r\n",
        "PORT 10,0,0,2,160,40,1\r\n",
        "PORT 10,0,0,2,+1,300\r\n",
        "PORT \r\n",
        "EPRT |1|10.0.3.3|41000|\r\n",
        "EPRT |2|2001:db8::2|41000|\r\n",
        "EPRT |1|10.0.0.2|41000\r\n",
        "EPRT |1|10.0.0.2|41000||\r\n",
        "EPRT |1|10.0.0.2|70000|\r\n",
        "EPRT \r\n",
        "EPRT é1é10.0.0.2é41000é\r\n",
    ]
    .into_iter()
    .enumerate()
    {
        talk.unchanged(0, command);
        talk.unchanged(1, "500 no\r\n");
        assert_eq!(talk.unhelped(), n as u64 + 1, "{command}");
    }
    assert_eq!(talk.gateway.tables.bindings.count(), 1, "the control connection's");
    for command in ["PORTO 10,0,0,2,160,40\r\n", "EPSV\r\n", "ALGS STATUS64\r\n", "\r\n", "\u{1}\u{2}\r\n"] {
        talk.unchanged(0, command);
    }
    assert_eq!(talk.unhelped(), 14);
}

#[test]
fn over_nat64_epsv_becomes_pasv_and_the_reply_one_to_epsv() {
    let mut talk = Talk::over_ipv6(policy());
    for (n, command) in ["EPSV\r\n", "epsv 2\r\n", "EPSV 1\r\n"].into_iter().enumerate() {
        assert_eq!(talk.says(0, command), "PASV\r\n");
        let reply = talk.says(1, &format!("227 Entering Passive Mode (198,51,100,2,200,{n}).\r\n"));
        assert_eq!(reply, format!("229 Entering Extended Passive Mode (|||{}|)\r\n", 51_200 + n));
        talk.unchanged(0, "RETR file\r\n");
        talk.unchanged(1, "150 here\r\n");
        talk.unchanged(1, "226 done\r\n");
    }
    assert_eq!(talk.says(0, "EPSV\r\n"), "PASV\r\n");
    talk.unchanged(1, "502 not implemented\r\n");
    // A server that names an address that the client cannot reach by the one that it knows.
    assert_eq!(talk.says(0, "EPSV\r\n"), "PASV\r\n");
    assert_eq!(talk.says(1, "227 =203,0,113,9,1,2\r\n"), "425 Can't open data connection.\r\n");
    // Whoever says PASV knows what comes back.
    talk.unchanged(0, "PASV\r\n");
    talk.unchanged(1, "227 Entering Passive Mode (198,51,100,2,200,1).\r\n");
    assert_eq!(talk.unhelped(), 0);
}

#[test]
fn over_nat64_eprt_becomes_port() {
    let mut talk = Talk::over_ipv6(policy());
    let said = talk.says(0, "EPRT |2|2001:db8:1::2|41000|\r\n");
    let outside = talk.port_of(&said);
    talk.unchanged(1, "200 ok\r\n");
    assert_eq!(talk.opens_data(DATA, outside), 41_000);
    talk.unchanged(0, "EPRT |2|2001:db8:1::3|41000|\r\n");
    talk.unchanged(0, "EPRT |1|10.0.0.2|41000|\r\n");
    talk.unchanged(0, "PORT 10,0,0,2,160,40\r\n");
    assert_eq!(talk.unhelped(), 2, "PORT is not the business of a translator");
}

#[test]
fn the_gateway_answers_what_is_asked_of_it() {
    let mut talk = Talk::over_ipv6(policy());
    let mut ask = |command: &str, reply: &str| {
        assert_eq!(talk.says(0, command), "NOOP\r\n", "{command}");
        talk.says(1, reply)
    };
    assert_eq!(ask("ALGS STATUS64\r\n", "200 NOOP ok.\r\n"), "216 EPSV EPRT\r\n");
    assert_eq!(ask("EPSV ALL\r\n", "200 NOOP ok.\r\n"), "504 Command not implemented for that parameter.\r\n");
    assert_eq!(ask("ALGS WHAT\r\n", "200 ok\r\n"), "504 Command not implemented for that parameter.\r\n");
    assert_eq!(ask("algs disable64\r\n", "530 log in first\r\n"), "216 NONE\r\n");
    talk.unchanged(0, "EPSV\r\n");
    talk.unchanged(1, "229 Entering Extended Passive Mode (|||50000|)\r\n");
    talk.unchanged(0, "EPRT |2|2001:db8:1::2|41000|\r\n");
    talk.unchanged(1, "200 ok\r\n");
    assert_eq!(talk.says(0, "ALGS ENABLE64\r\n"), "NOOP\r\n");
    assert_eq!(talk.says(1, "200 ok\r\n"), "216 EPSV EPRT\r\n");
    talk.unchanged(1, "200 nobody has asked\r\n");
    assert_eq!(talk.says(0, "EPSV\r\n"), "PASV\r\n");
}

#[test]
fn what_is_encrypted_is_left_and_numbered() {
    let mut talk = Talk::over_ipv6(policy());
    assert_eq!(talk.says(0, "ALGS STATUS64\r\n"), "NOOP\r\n");
    assert_eq!(talk.says(1, "200 NOOP ok.\r\n"), "216 EPSV EPRT\r\n");
    talk.unchanged(0, "AUTH NONSENSE\r\n");
    talk.unchanged(1, "504 unknown\r\n");
    assert_eq!(talk.says(0, "EPSV\r\n"), "PASV\r\n");
    assert_eq!(talk.says(1, "227 (198,51,100,2,1,2)\r\n"), "229 Entering Extended Passive Mode (|||258|)\r\n");
    talk.unchanged(0, "AUTH TLS\r\n");
    talk.unchanged(1, "234 go ahead\r\n");
    talk.unchanged(0, "EPSV\r\n");
    talk.unchanged(1, "227 (198,51,100,2,1,2)\r\n");
    assert_eq!(talk.unhelped(), 0);
}

#[test]
fn a_retransmission_is_rewritten_and_numbered_alike() {
    let mut talk = Talk::over_ipv4(policy());
    let (begin, command) = (talk.next[0], b"PORT 10,0,0,2,160,40\r\n");
    let first = talk.pass(0, begin, command);
    assert_eq!(talk.pass(0, begin, command), first);
    // Together with what came in front of it, and what comes behind it.
    let more = [&command[..], b"LIST\r\n"].concat();
    let longer = talk.pass(0, begin, &more).1.unwrap();
    let text = first.1.clone().unwrap().text;
    assert_eq!((longer.sequence, longer.text), (begin, format!("{text}LIST\r\n")));
    let behind = begin.wrapping_add(u32::try_from(command.len()).unwrap());
    let list = talk.pass(0, behind, b"LIST\r\n").1.unwrap();
    let received = begin.wrapping_add(u32::try_from(text.len()).unwrap());
    assert_eq!((list.sequence, list.text.as_str()), (received, "LIST\r\n"));
    // The server acknowledges a part of the command, which is none of it, and then all.
    for (acknowledged, known) in [(begin.wrapping_add(3), begin), (received, behind)] {
        talk.expected[1] = acknowledged;
        assert_eq!(talk.pass(1, talk.next[1], b"").1.unwrap().acknowledgement, known);
    }
    // Another one, and the first once more: it is what the server has.
    let behind = behind.wrapping_add(6);
    let second = talk.pass(0, behind, b"PORT 10,0,0,2,4,1\r\n").1.unwrap();
    assert_eq!(second.sequence, received.wrapping_add(6));
    assert_ne!(second.text, text);
}

#[test]
fn a_reply_that_is_sent_again_is_the_same_reply() {
    let mut talk = Talk::over_ipv6(policy());
    assert_eq!(talk.says(0, "EPSV\r\n"), "PASV\r\n");
    let begin = talk.next[1];
    let reply = "227 Entering Passive Mode (198,51,100,2,200,1). This takes a while to say.\r\n";
    let first = talk.says(1, reply);
    assert!(first.len() < reply.len());
    assert_eq!(talk.pass(1, begin, reply.as_bytes()).1.unwrap().text, first);
    talk.unchanged(1, "150 more\r\n");
    talk.unchanged(0, "NOOP\r\n");
}

#[test]
fn a_second_rewriting_waits_for_the_first() {
    let mut talk = Talk::over_ipv4(policy());
    let begin = talk.next[0];
    let said = talk.says(0, "PORT 10,0,0,2,160,40\r\n");
    let before = talk.pass(0, talk.next[0], b"PORT 10,0,0,2,160,41\r\n");
    assert_eq!(before, (Verdict::Drop(DropReason::RewritingUnacknowledged), None));
    talk.unchanged(1, "200 ok\r\n");
    assert_ne!(talk.says(0, "PORT 10,0,0,2,160,41\r\n"), said);
    assert_eq!((talk.unhelped(), talk.next[0]), (0, begin.wrapping_add(44)));
}

#[test]
fn what_is_pipelined_is_rewritten_once_a_segment() {
    let mut talk = Talk::over_ipv4(policy());
    let said = talk.says(0, "TYPE I\r\nPORT 10,0,0,2,160,40\r\nRETR a\r\nPORT 10,0,0,2,160,41\r\nRETR b\r\n");
    let lines: Vec<_> = said.split_inclusive("\r\n").collect();
    assert_eq!(
        (lines[0], lines[2], lines[3], lines[4]),
        ("TYPE I\r\n", "RETR a\r\n", "PORT 10,0,0,2,160,41\r\n", "RETR b\r\n")
    );
    assert_eq!(talk.opens_data(DATA, talk.port_of(lines[1])), 41_000);
    assert_eq!(talk.unhelped(), 1);
    talk.unchanged(1, "200 ok\r\n200 ok\r\n150 here\r\n500 not there\r\n");
    talk.unchanged(0, "QUIT\r\n");
}

#[test]
fn a_line_in_pieces_is_left_and_so_is_what_only_looks_like_one() {
    let mut talk = Talk::over_ipv4(policy());
    talk.unchanged(0, "PORT 10,0,0,");
    talk.unchanged(0, "2,160,40\r\n");
    assert_eq!(talk.unhelped(), 1);
    talk.unchanged(0, "STOR what ends in ");
    talk.unchanged(0, "PORT 10,0,0,2,160,40\r\n");
    assert_eq!(talk.unhelped(), 1, "it is a part of a name");
    assert_ne!(talk.says(0, "PORT 10,0,0,2,160,40\r\n"), "PORT 10,0,0,2,160,40\r\n", "and the next line is one");
}

/// RFC 6384 section 4: commands may straddle packets. Either half reaches the other end as it is, no port opens, no
/// number moves, and what comes next is what it would have been.
#[test]
fn lines_in_pieces_open_nothing_and_nothing_is_taken_for_their_answer() {
    let mut talk = Talk::over_ipv6(policy());
    let bindings = |talk: &Talk| talk.gateway.tables.bindings.iter().count();
    let before = bindings(&talk);
    talk.unchanged(0, "EPRT |2|2001:db8");
    talk.unchanged(0, ":1::2|41000|\r\n");
    talk.unchanged(1, "522 not this protocol\r\n");
    assert_eq!(bindings(&talk), before);
    // A server that knows EPSV answers it as the client wants it.
    talk.unchanged(0, "EP");
    talk.unchanged(0, "SV\r\n");
    talk.unchanged(1, "229 Entering Extended Passive Mode (|||50000|)\r\n");
    assert_eq!(talk.says(0, "EPSV\r\n"), "PASV\r\n");
    talk.unchanged(1, "227 Entering Passive Mode (198,51,");
    talk.unchanged(1, "100,2,195,80)\r\n");
    assert_eq!(talk.unhelped(), 3);
    assert_eq!(talk.says(0, "EPSV\r\n"), "PASV\r\n");
    let reply = talk.says(1, "227 Entering Passive Mode (198,51,100,2,195,80)\r\n");
    assert_eq!(reply, "229 Entering Extended Passive Mode (|||50000|)\r\n");
    assert_eq!(bindings(&talk), before);
}

#[test]
fn long_lines_and_garbage_pass() {
    let mut talk = Talk::over_ipv4(policy());
    let long = "x".repeat(60_000);
    talk.gateway.nat44().inside_mtu = 65_535;
    talk.gateway.nat44().outside_mtu = 65_535;
    talk.unchanged(0, &long);
    talk.unchanged(0, &format!("{long}\r\n"));
    talk.unchanged(1, &format!("{long}\r\n"));
    talk.unchanged(0, &format!("PORT 10,0,0,2,160,40{}\r\n", " ".repeat(2_000)));
    assert_eq!(talk.unhelped(), 1);
    let said = talk.says(0, &format!("PORT 10,0,0,2,160,40{}\r\n", " ".repeat(107)));
    assert_eq!((said.len(), talk.unhelped()), (129, 2), "lines of up to 127 bytes");
    talk.unchanged(1, "500 no\r\n");
    let said = talk.says(0, &format!("PORT 10,0,0,2,160,40{}\r\n", " ".repeat(100)));
    assert!(said.len() < 40);
    talk.unchanged(1, "200 ok\r\n");
    for _ in 0..100 {
        talk.unchanged(0, "\0\r\n\n\n\r");
        talk.unchanged(1, "\n999\n22\n227 \n227\n");
    }
}

#[test]
fn many_transfers_add_up() {
    let mut talk = Talk::over_ipv6(policy());
    for n in 0..6_500_u16 {
        let said = talk.says(0, &format!("EPRT |2|2001:db8:1::2|{}|\r\n", 2_000 + n % 10));
        talk.port_of(&said);
        talk.unchanged(1, "200 ok\r\n");
    }
    let streams = talk.gateway.tables.conversations.iter().next().unwrap().0.streams;
    assert!(streams[0].difference < -33_000 && streams[1].difference == 0, "{streams:?}");
}

#[test]
fn selective_acknowledgements_are_numbered_too() {
    let mut talk = Talk::over_ipv4(policy());
    let begin = talk.next[0];
    let said = talk.says(0, "PORT 10,0,0,2,160,40\r\n");
    talk.unchanged(0, "NOOP\r\n");
    let grown = u32::try_from(said.len()).unwrap().wrapping_sub(22);
    let edges = [22_u32, 28].map(|edge| begin.wrapping_add(edge));
    let mut options = vec![1, 1, 5, 10];
    edges.iter().for_each(|edge| options.extend(edge.wrapping_add(grown).to_be_bytes()));
    let packet = talk.packet(1, ACK, talk.next[1], begin, &options, b"");
    let sent = talk.gateway.pass(&packet).1.remove(0);
    assert_eq!(heard(&sent).acknowledgement, begin);
    let edge = |at: usize| u32::from_be_bytes(sent[at..at + 4].try_into().unwrap());
    assert_eq!([edge(44), edge(48)], edges);
}

#[test]
fn a_checksum_that_the_card_completes_stays_one() {
    let mut talk = Talk::over_ipv4(policy());
    let mut packet = talk.packet(0, ACK, talk.next[0], talk.expected[0], &[], b"PORT 10,0,0,2,160,40\r\n");
    let length = u16::try_from(packet.len() - 20).unwrap();
    let mut pseudo = packet[12..20].to_vec();
    pseudo.extend([0, 6]);
    pseudo.extend(length.to_be_bytes());
    packet[36..38].copy_from_slice(&sum(&pseudo).to_be_bytes());
    let checksum = ChecksumState::Partial { start: 20, offset: 16 };
    let (verdict, sent) = talk.gateway.pass_with(&packet, Offload { checksum, ..Offload::default() });
    assert_eq!(verdict, Verdict::Forward);
    let (mut sent, offload) = sent[0].clone();
    assert_eq!(offload.checksum, checksum);
    let complete = !sum(&sent[20..]);
    sent[36..38].copy_from_slice(&complete.to_be_bytes());
    assert!(heard(&sent).text.starts_with("PORT 192,0,2,1,"));
}

#[test]
fn what_has_urgent_data_around_it_is_left() {
    const URG: u8 = 32;
    let mut talk = Talk::over_ipv4(policy());
    let packet = talk.packet(0, ACK | URG, talk.next[0], talk.expected[0], &[], b"PORT 10,0,0,2,160,40\r\n");
    let sent = talk.gateway.pass(&packet).1.remove(0);
    assert_eq!((heard(&sent).text.as_str(), talk.unhelped()), ("PORT 10,0,0,2,160,40\r\n", 1));
}

#[test]
fn a_connection_that_is_older_than_the_helper_passes_as_it_is() {
    let mut talk = Talk::over_ipv4(Policy::default());
    talk.gateway.nat44().nat.policy.helpers = Helpers { ftp: true };
    talk.unchanged(0, "PORT 10,0,0,2,160,40\r\n");
    talk.unchanged(1, "500 no\r\n");
}

#[test]
fn a_subscriber_at_its_limit_gets_no_port() {
    let mut talk = Talk::over_ipv4(Policy { bindings_per_subscriber: Some(2), ..policy() });
    assert_ne!(talk.says(0, "PORT 10,0,0,2,160,40\r\n"), "PORT 10,0,0,2,160,40\r\n");
    talk.unchanged(1, "200 ok\r\n");
    talk.unchanged(0, "PORT 10,0,0,2,160,41\r\n");
    assert_eq!((talk.unhelped(), talk.gateway.tables.bindings.count()), (1, 2));
}

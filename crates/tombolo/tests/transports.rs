//! Protocols besides TCP, UDP and ICMP between hosts of a lab, through a NAT44, a NAT64, and a B4 with its AFTR: UDP-Lite by the
//! kernel's own sockets, the others by raw ones, whose checksums are made and verified here, as the RFCs have
//! them. Needs root and skips loudly without it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
#![allow(unsafe_code, reason = "sockets of protocols that the standard library does not know")]

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use nix::sys::socket::{SockaddrStorage, bind};
use tombolo_lab::{Lab, Process, Scenario, Topology, skip_without};

mod running;

use running::{PATIENCE, TOMBOLO, end, run, show};

const CONFIGURATION: &str = r#"
[gateway]
fastpath = "FASTPATH"

[[service]]
kind   = "nat44"
inside = ["10.0.0.0/24"]
pool   = [{ addresses = "192.0.2.16", ports = "2000-65535" }]
further_protocols = ["sctp", "dccp", "udp-lite", "esp", "gre"]

[[service]]
kind   = "nat64"
prefix = "64:ff9b::/96"
well_known_prefix_strict = false
pool   = [{ addresses = "192.0.2.1", ports = "2000-65535" }]
further_protocols = ["sctp", "dccp", "udp-lite", "esp", "gre"]
"#;

const SCTP: u8 = 132;
const DCCP: u8 = 33;
const UDP_LITE: u8 = 136;
const ESP: u8 = 50;
const GRE: u8 = 47;

/// A socket of a protocol at an address. Those that are raw have packets without their IP headers, which
/// IPv4 shows to who receives.
fn socket(protocol: u8, address: SocketAddr) -> io::Result<UdpSocket> {
    use nix::libc::{AF_INET, AF_INET6, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_RAW, socket};
    let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
    let kind = if protocol == UDP_LITE { SOCK_DGRAM } else { SOCK_RAW };
    // SAFETY: the call has no pointers.
    let number = unsafe { socket(family, kind | SOCK_CLOEXEC, protocol.into()) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the socket was made just now, and nobody else has its number.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// RFC 3828 section 3.1: so many bytes of what is sent are covered by its checksum, 8 of them the header's.
fn cover(socket: &UdpSocket, bytes: i32) {
    const UDPLITE_SEND_CSCOV: i32 = 10;
    let size = nix::libc::socklen_t::try_from(size_of::<i32>()).unwrap();
    // SAFETY: the pointer is to an integer of the size that is given.
    let result = unsafe {
        nix::libc::setsockopt(socket.as_raw_fd(), UDP_LITE.into(), UDPLITE_SEND_CSCOV, (&raw const bytes).cast(), size)
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// RFC 9260 appendix A, bit by bit.
fn crc32c(packet: &[u8]) -> [u8; 4] {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    let crc = packet.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)));
    (!crc).to_le_bytes()
}

/// RFC 1071, over the pseudo-header of either family and the packet.
fn internet_checksum(source: IpAddr, destination: IpAddr, protocol: u8, packet: &[u8]) -> u16 {
    let octets = |address| match address {
        IpAddr::V4(address) => std::net::Ipv4Addr::octets(&address).to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut bytes = [octets(source), octets(destination)].concat();
    bytes.extend(u32::try_from(packet.len()).unwrap().to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes.extend(packet);
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum = words.fold(0, |sum, word| (sum + word) % 0xffff);
    u16::try_from(sum).unwrap()
}

/// A packet with right checksums between two endpoints; `opens` says whether it is a client's first.
fn packet(protocol: u8, from: SocketAddr, to: SocketAddr, opens: bool) -> Vec<u8> {
    let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    match protocol {
        SCTP => {
            // INIT or INIT ACK (RFC 9260 section 3.3.2), without parameters.
            let chunk = [1 + u8::from(!opens), 0, 0, 20, 0, 0, 0, 9, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 7];
            let mut packet = [&ports[..], &[0, 0, 0, u8::from(!opens), 0, 0, 0, 0], &chunk].concat();
            let checksum = crc32c(&packet);
            packet[8..12].copy_from_slice(&checksum);
            packet
        }
        DCCP => {
            // Request, or Response to it (RFC 4340 sections 5.1 to 5.3), with a service code and odd data.
            let words = if opens { 5 } else { 7 };
            let mut packet = [&ports[..], &[words, 0, 0, 0, u8::from(!opens) << 1 | 1, 0, 0, 0, 0, 0, 0, 5]].concat();
            packet.resize(usize::from(words) * 4, 0);
            packet.extend(b"odd");
            let sum = internet_checksum(from.ip(), to.ip(), DCCP, &packet);
            packet[6..8].copy_from_slice(&(!sum).to_be_bytes());
            packet
        }
        _ => [&[0, 0, 0x10, 1, 0, 0, 0, 1][..], b"sealed, or in GRE"].concat(),
    }
}

/// Its ports, having seen that the packet is what was sent but for them.
fn verified(protocol: u8, from: IpAddr, to: IpAddr, received: &[u8], opens: bool) -> (u16, u16) {
    let word = |at: usize| u16::from_be_bytes([received[at], received[at + 1]]);
    let ports = if matches!(protocol, SCTP | DCCP) { (word(0), word(2)) } else { (0, 0) };
    let expected = packet(protocol, SocketAddr::new(from, ports.0), SocketAddr::new(to, ports.1), opens);
    assert_eq!(received, expected, "protocol {protocol} from {from}: the checksum, or what should not change");
    ports
}

/// What a raw socket has received: from whom, without the header of IPv4.
fn receive(socket: &UdpSocket) -> (IpAddr, Vec<u8>) {
    let mut buffer = [0; 2000];
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    let header = if from.is_ipv4() { usize::from(buffer[0] & 15) * 4 } else { 0 };
    (from.ip(), buffer[header..length].to_vec())
}

/// A client and a server exchange the first packets of a protocol; who the server saw.
fn exchange_raw(lab: &Lab, protocol: u8, client: &str, as_seen: &str) -> SocketAddr {
    let (here, there): (IpAddr, IpAddr) = (client.parse().unwrap(), as_seen.parse().unwrap());
    let real: IpAddr = "198.51.100.2".parse().unwrap();
    let at = |node: &str, address: IpAddr| {
        lab.node(node).unwrap().run(move || socket(protocol, SocketAddr::new(address, 0)).unwrap()).unwrap()
    };
    let (from, to) = (at("client", here), at("server", real));
    let (mine, yours) = (40_001, 5001);
    let first = packet(protocol, SocketAddr::new(here, mine), SocketAddr::new(there, yours), true);
    from.send_to(&first, SocketAddr::new(there, 0)).unwrap();
    let (seen, received) = receive(&to);
    let (port, own) = verified(protocol, seen, real, &received, true);
    let answer = packet(protocol, SocketAddr::new(real, own), SocketAddr::new(seen, port), false);
    to.send_to(&answer, SocketAddr::new(seen, 0)).unwrap();
    let (peer, received) = receive(&from);
    let ports = verified(protocol, peer, here, &received, false);
    assert_eq!(peer, there);
    if matches!(protocol, SCTP | DCCP) {
        assert_eq!((own, ports), (yours, (yours, mine)));
    }
    SocketAddr::new(seen, port)
}

/// The kernel checks what it receives.
fn exchange_udp_lite(lab: &Lab, client: &str, as_seen: &str) -> SocketAddr {
    let at = |node: &str, address: SocketAddr| {
        lab.node(node).unwrap().run(move || socket(UDP_LITE, address).unwrap()).unwrap()
    };
    let from = at("client", SocketAddr::new(client.parse().unwrap(), 40_001));
    let to = at("server", "198.51.100.2:5001".parse().unwrap());
    let there = SocketAddr::new(as_seen.parse().unwrap(), 5001);
    let mut seen = None;
    let mut buffer = [0; 2000];
    for covered in [8, 20, 0] {
        cover(&from, covered);
        cover(&to, covered);
        for length in [0, 1, 100, 1401] {
            let question: Vec<u8> = (0..length).map(|n: u32| n.to_le_bytes()[0]).collect();
            from.send_to(&question, there).unwrap();
            let (received, peer) = to.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..received], question);
            assert_eq!(*seen.get_or_insert(peer), peer);
            to.send_to(&question, peer).unwrap();
            let (received, peer) = from.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..received], peer), (&question[..], there));
        }
    }
    seen.unwrap()
}

/// Programs in the kernel know TCP, UDP and ICMP: where there are any they have left all these packets to the engine.
#[track_caller]
fn assert_left_to_the_engine(lab: &Lab, has_programs: bool) {
    let rows = show(lab, "fastpath");
    let value = |name: &str| rows.iter().find(|row| row["name"] == name).map(|row| row["value"].as_str().unwrap());
    let taken = ["taken-inside", "taken-outside"].map(value);
    assert_eq!(taken, if has_programs { [Some("0"); 2] } else { [None; 2] }, "{rows:?}");
}

/// How full the pools are for a protocol: SCTP and DCCP have ports of TCP, one of each service each; ESP and GRE the one
/// address.
#[track_caller]
fn assert_pools_show(lab: &Lab, has_udp_lite: bool) {
    let of_udp_lite = (63_536, u64::from(has_udp_lite));
    let all =
        [("sctp", (63_536, 2)), ("dccp", (63_536, 2)), ("udp-lite", of_udp_lite), ("esp", (1, 1)), ("gre", (1, 1))];
    for (protocol, expected) in all {
        let asked = lab.node("gateway").unwrap().command(TOMBOLO);
        let asked = asked.args(["show", "pools", "--json", "--protocol", protocol]).run().unwrap();
        let rows = running::rows(&asked.success().unwrap().stdout);
        let number = |row: &serde_json::Value, name: &str| row[name].as_u64().unwrap();
        let found: Vec<_> = rows.iter().map(|row| (number(row, "ports"), number(row, "taken"))).collect();
        assert_eq!(found, [expected; 2], "{protocol}: {rows:?}");
        assert!(rows.iter().all(|row| row["protocol"] == protocol), "{rows:?}");
    }
}

#[test]
fn sctp_dccp_udp_lite_esp_and_gre_cross_with_right_checksums() {
    let name = "sctp_dccp_udp_lite_esp_and_gre_cross_with_right_checksums";
    if skip_without(name, &["ip"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let probe = lab.node("server").unwrap().run(|| socket(UDP_LITE, "198.51.100.2:9".parse().unwrap())).unwrap();
    let has_udp_lite = probe.is_ok();
    if let Err(error) = probe {
        eprintln!("SKIP: {name}, the part of UDP-Lite: there is none in this kernel ({error})");
    }
    let file = lab.directory().unwrap().join("gateway.toml");
    for fastpath in ["off", "auto"] {
        fs::write(&file, CONFIGURATION.replace("FASTPATH", fastpath)).unwrap();
        let gateway = run(TOMBOLO, &lab, &file);
        for (client, as_seen, pool) in
            [("10.0.0.2", "198.51.100.2", "192.0.2.16"), ("2001:db8:1::2", "64:ff9b::c633:6402", "192.0.2.1")]
        {
            for protocol in [SCTP, DCCP, ESP, GRE] {
                let seen = exchange_raw(&lab, protocol, client, as_seen);
                assert_eq!(seen.ip().to_string(), pool);
                assert!(seen.port() >= 2000 || !matches!(protocol, SCTP | DCCP), "{seen}");
            }
            if has_udp_lite {
                assert_eq!(exchange_udp_lite(&lab, client, as_seen).ip().to_string(), pool);
            }
        }
        let bindings = show(&lab, "bindings");
        let mut protocols: Vec<&str> = bindings.iter().map(|row| row["protocol"].as_str().unwrap()).collect();
        protocols.sort_unstable();
        protocols.dedup();
        let expected = ["dccp", "esp", "gre", "sctp", "udp-lite"];
        assert_eq!(protocols, &expected[..expected.len() - usize::from(!has_udp_lite)]);
        assert_pools_show(&lab, has_udp_lite);
        assert_left_to_the_engine(&lab, fastpath == "auto");
        let established = show(&lab, "sessions").iter().filter(|row| row["state"] == "established").count();
        assert_eq!(established, 4, "SCTP and DCCP through each service");
        let asked = lab.node("gateway").unwrap().command(TOMBOLO);
        let asked = asked.args(["explain", "--live", "sctp", "10.0.0.2:40001", "198.51.100.2:5001"]).run().unwrap();
        assert!(asked.success().unwrap().stdout.contains("10.0.0.2 port 40001 is bound to 192.0.2.16 port"));
        let asked = lab.node("gateway").unwrap().command(TOMBOLO);
        let asked = asked.args(["explain", "--live", "esp", "2001:db8:1::2", "198.51.100.2"]).run().unwrap();
        let text = asked.success().unwrap().stdout;
        assert!(text.contains("2001:db8:1::2 with esp is bound to 192.0.2.1 with esp"), "{text}");
        end(gateway);
    }
}

/// Starts the gateways of DS-Lite; the AFTR translates what it would not by default as well.
fn start_ds_lite(lab: &Lab, scenario: &Scenario, fastpath: &str) -> Vec<Process> {
    let further = "further_protocols = [\"sctp\", \"dccp\", \"udp-lite\", \"esp\", \"gre\"]\n";
    let start = |(node, text): &(&str, String)| {
        let more = if *node == "gateway" { further } else { "" };
        let text = format!("[gateway]\nfastpath = \"{fastpath}\"\n{text}{more}");
        lab.start_gateway(node, TOMBOLO, &text).unwrap()
    };
    scenario.gateways.iter().map(start).collect()
}

#[test]
fn further_protocols_cross_the_softwire_of_a_b4_and_its_aftr() {
    let name = "further_protocols_cross_the_softwire_of_a_b4_and_its_aftr";
    if skip_without(name, &["ip"]) {
        return;
    }
    let scenario = Scenario::named("ds-lite").unwrap();
    let lab = Lab::create(&scenario.topology).unwrap();
    for fastpath in ["off", "auto"] {
        let gateways = start_ds_lite(&lab, &scenario, fastpath);
        let mut seen = Vec::new();
        for protocol in [SCTP, DCCP, ESP, GRE] {
            seen.push(exchange_raw(&lab, protocol, "10.0.0.2", "198.51.100.2"));
        }
        assert_left_to_the_engine(&lab, fastpath == "auto");
        assert!(seen.iter().all(|from| from.ip() == seen[0].ip()), "paired: {seen:?}");
        assert!(seen[0].ip().to_string().starts_with("192.0.2.") && seen[0].port() >= 1024, "{seen:?}");
        gateways.into_iter().for_each(|gateway| _ = end(gateway));
    }
}

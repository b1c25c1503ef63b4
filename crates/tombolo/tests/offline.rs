//! `tombolo translate` and `tombolo explain`, on the golden cases.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use tombolo_io::pcap::{CaptureReader, CaptureWriter, LinkType};
use tombolo_io::queue::Buffer;
use toml::{Table, Value};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases")
}

fn tombolo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tombolo")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// The packets of all cases that use `config`, in the order of the cases' names.
fn packets(service: &str, config: &str) -> Vec<Table> {
    let mut files: Vec<_> = std::fs::read_dir(cases().join(service))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("case.toml"))
        .collect();
    files.retain(|file| file.exists());
    files.sort();
    let mut packets = Vec::new();
    for file in files {
        let case: Table = std::fs::read_to_string(file).unwrap().parse().unwrap();
        if case["config"].as_str() == Some(config) {
            packets.extend(case["packet"].as_array().unwrap().iter().map(|packet| packet.as_table().unwrap().clone()));
        }
    }
    packets
}

/// The first packet that a case's gateway receives, in hexadecimal.
fn received(case: &str) -> String {
    let case: Table = std::fs::read_to_string(cases().join(case).join("case.toml")).unwrap().parse().unwrap();
    text(case["packet"][0].as_table().unwrap(), "in").to_owned()
}

fn text<'t>(packet: &'t Table, key: &str) -> &'t str {
    packet[key].as_str().unwrap()
}

fn read(path: &Path) -> Vec<(Duration, Vec<u8>)> {
    let mut reader = CaptureReader::open(path).unwrap();
    let mut buffer = Buffer::new();
    let mut packets = Vec::new();
    while let Some((at, packet)) = reader.next_packet(&mut buffer).unwrap() {
        packets.push((at, packet.bytes().to_vec()));
    }
    packets
}

/// Identification and header checksum of IPv4, which the gateway may choose.
fn masked(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}

/// Runs the packets of all cases of a configuration through `tombolo translate`, a second apart,
/// and compares verdicts and what leaves.
fn check_translate(service: &str, config: &str, at_least: usize) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    // Packets that are no IP do not come out of a capture.
    let mut packets = packets(service, config);
    packets.retain(|packet| matches!(bytes(text(packet, "in"))[0] >> 4, 4 | 6));
    assert!(packets.len() >= at_least, "{}", packets.len());
    let mut inputs: BTreeMap<bool, _> = [true, false]
        .map(|is_v4| {
            let name = if is_v4 { "4.pcap" } else { "6.pcap" };
            (is_v4, CaptureWriter::create(&path(name), LinkType::RawIp).unwrap())
        })
        .into();
    let mut expected = Vec::new();
    for (second, packet) in (1_700_000_000..).zip(&packets) {
        let received = bytes(text(packet, "in"));
        inputs.get_mut(&(received[0] >> 4 == 4)).unwrap().write(Duration::from_secs(second), &received).unwrap();
        let sent = packet.get("out").and_then(Value::as_array).cloned().unwrap_or_default();
        expected.extend(sent.iter().map(|sent| (second, masked(bytes(sent.as_str().unwrap())))));
    }
    for input in inputs.into_values() {
        input.finish().unwrap();
    }
    let [v4, v6, inside, outside] = ["4.pcap", "6.pcap", "inside.pcap", "outside.pcap"].map(path);
    let config = cases().join(service).join(config);
    let (from_inside, from_outside) = if service == "clat" { (&v4, &v6) } else { (&v6, &v4) };
    let output = tombolo(&[
        "translate",
        "--json",
        "--config",
        config.to_str().unwrap(),
        "--inside",
        from_inside.to_str().unwrap(),
        "--outside",
        from_outside.to_str().unwrap(),
        "--inside-out",
        inside.to_str().unwrap(),
        "--outside-out",
        outside.to_str().unwrap(),
    ]);
    let lines: Vec<serde_json::Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), packets.len());
    for (line, packet) in lines.iter().zip(&packets) {
        let found = match line.get("reason") {
            Some(reason) => format!("{} {}", line["verdict"].as_str().unwrap(), reason.as_str().unwrap()),
            None => line["verdict"].as_str().unwrap().to_owned(),
        };
        assert_eq!(found, text(packet, "verdict"), "{line}");
    }
    let mut found: Vec<_> =
        [inside, outside].iter().flat_map(|path| read(path)).map(|(at, sent)| (at.as_secs(), masked(sent))).collect();
    found.sort_by_key(|(at, _)| *at);
    assert_eq!(found, expected);
}

#[test]
fn translate_gives_what_the_cases_say() {
    check_translate("siit", "eam.toml", 200);
    check_translate("siit", "simple.toml", 2);
    check_translate("clat", "clat.toml", 7);
}

#[test]
fn translate_prints_a_line_for_each_packet() {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("4.pcap");
    let mut writer = CaptureWriter::create(&input, LinkType::RawIp).unwrap();
    writer.write(Duration::from_secs(5), &bytes(&received("siit/eam-192-0-2-24-4to6"))).unwrap();
    writer.finish().unwrap();
    let config = cases().join("siit/eam.toml");
    let output = tombolo(&["translate", "-c", config.to_str().unwrap(), "--outside", input.to_str().unwrap()]);
    let text = stdout(&output);
    assert!(
        text.starts_with("outside      1     0.000000") && text.trim_end().ends_with("1 inside, 0 outside"),
        "{text}"
    );
    assert_eq!(tombolo(&["translate", "-c", config.to_str().unwrap()]).status.code(), Some(2));
    let missing = tombolo(&["translate", "-c", config.to_str().unwrap(), "--inside", "/nonexistent.pcap"]);
    assert_eq!(missing.status.code(), Some(1));
}

fn explain(config: &str, from: &str, case: &str) -> String {
    let (service, _) = case.split_once('/').unwrap();
    let config = cases().join(service).join(config);
    stdout(&tombolo(&["explain", "-c", config.to_str().unwrap(), "--from", from, &received(case)]))
}

#[test]
fn explain_names_decisions_and_clauses() {
    let text = explain("eam.toml", "outside", "siit/eam-192-0-2-24-4to6");
    for part in [
        "destination 192.0.2.24 is 2001:db8:cccc::8 by explicit mapping 192.0.2.16/28 <-> 2001:db8:cccc::/124  [RFC 7757 section 3.3]",
        "source 198.51.100.2 is 64:ff9b::c633:6402 by prefix 64:ff9b::/96  [RFC 6052 section 2.3]",
        "hop limit 63 from TTL 64  [RFC 7915 section 4.1]",
        "forward\nto inside: IPv6 64:ff9b::c633:6402 to 2001:db8:cccc::8",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let text = explain("eam.toml", "inside", "siit/t42-hairpin-error-of-a-router");
    for part in ["RFC 6791 section 3", "RFC 7757 section 4.2.2 (B)", "RFC 7757 section 4.2.1", "to inside: IPv6"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let text = explain("eam.toml", "inside", "siit/t67-hop-limit-1");
    for part in [
        "ICMP error to its sender: TimeExceeded",
        "reply: hop-limit-exceeded",
        "remedy: ",
        "to inside: IPv6 2001:db8:ffff::1",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let text = explain("eam.toml", "inside", "siit/t50-to-somebody-else-6");
    assert!(text.contains("no service has 2001:db8:5555::1") && text.trim_end().ends_with("to-host"), "{text}");
}

#[test]
fn explain_refuses_what_is_no_packet() {
    let config = cases().join("siit/eam.toml");
    let output = tombolo(&["explain", "-c", config.to_str().unwrap(), "--from", "inside", "abc"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("neither a file nor a packet"));
}

/// A datagram of IPv4.
fn datagram([source, destination]: [[u8; 4]; 2], ports: [u16; 2]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet.extend([source, destination].concat());
    packet.extend(ports.map(u16::to_be_bytes).concat());
    packet.extend([0, 8, 0, 0]);
    tombolo_wire::ipv4::write_checksum(&mut packet);
    packet
}

fn write(path: &Path, packets: &[(u64, Vec<u8>)]) {
    let mut writer = CaptureWriter::create(path, LinkType::RawIp).unwrap();
    for (second, packet) in packets {
        writer.write(Duration::from_secs(*second), packet).unwrap();
    }
    writer.finish().unwrap();
}

const NAT44: &str = r#"
[[service]]
kind = "nat44"
inside = ["10.0.0.0/24"]
pool = [{ addresses = "192.0.2.1", ports = "1024-65535" }]
static = [{ inside = "10.0.0.2:53", outside = "192.0.2.1:53", protocol = "udp" }]
"#;

/// Runs captures through a `nat44`; gives the lines and what left inside and outside.
fn nat44(from_inside: &[(u64, Vec<u8>)], from_outside: &[(u64, Vec<u8>)]) -> (Vec<serde_json::Value>, [usize; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let [config, inside, outside, to_inside, to_outside] =
        ["nat.toml", "i.pcap", "o.pcap", "ti.pcap", "to.pcap"].map(|name| directory.path().join(name));
    std::fs::write(&config, NAT44).unwrap();
    write(&inside, from_inside);
    write(&outside, from_outside);
    let mut arguments = vec!["translate".to_owned(), "--json".to_owned()];
    for (option, path) in [
        ("--config", &config),
        ("--inside", &inside),
        ("--outside", &outside),
        ("--inside-out", &to_inside),
        ("--outside-out", &to_outside),
    ] {
        arguments.extend([option.to_owned(), path.display().to_string()]);
    }
    let output = tombolo(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let lines = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (lines, [to_inside, to_outside].map(|path| read(&path).len()))
}

const HOST: [u8; 4] = [10, 0, 0, 7];
const POOL: [u8; 4] = [192, 0, 2, 1];
const REMOTE: [u8; 4] = [198, 51, 100, 2];

#[test]
fn what_a_nat44_sends_leaves_on_its_side() {
    let from_inside = [
        (5, datagram([HOST, REMOTE], [4000, 53])),
        // To a server inside, by its outside address.
        (6, datagram([HOST, POOL], [4000, 53])),
    ];
    let (lines, sent) = nat44(&from_inside, &[(7, datagram([REMOTE, POOL], [4000, 53]))]);
    let sides: Vec<_> = lines.iter().map(|line| (&line["sent_inside"], &line["sent_outside"])).collect();
    assert_eq!(sides, [(&0.into(), &1.into()), (&1.into(), &0.into()), (&1.into(), &0.into())]);
    assert_eq!(sent, [2, 1]);
}

#[test]
fn what_expired_by_the_time_of_the_captures_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.pcap");
    let config = directory.path().join("nat.toml");
    std::fs::write(&config, NAT44).unwrap();
    write(&directory.path().join("in.pcap"), &[(5, datagram([HOST, REMOTE], [4000, 53]))]);
    let input = directory.path().join("in.pcap").display().to_string();
    let (config, out) = (config.display().to_string(), path.display().to_string());
    stdout(&tombolo(&["translate", "-c", &config, "--inside", &input, "--outside-out", &out]));
    let sent = read(&path).remove(0).1;
    let port = u16::from_be_bytes([sent[20], sent[21]]);
    let answer = datagram([REMOTE, POOL], [53, port]);
    let first = [(5, datagram([HOST, REMOTE], [4000, 53]))];
    let verdict = |second| nat44(&first, &[(second, answer.clone())]).0[1]["verdict"].clone();
    assert_eq!(verdict(65), "forward");
    assert_eq!(verdict(86_400), "drop");
}

#[test]
fn frames_that_are_no_ip_have_numbers_too() {
    let packets = [(5, vec![0x10; 30]), (6, datagram([HOST, REMOTE], [4000, 53]))];
    let (lines, _) = nat44(&packets, &[]);
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["packet"], 2);
    let directory = tempfile::tempdir().unwrap();
    let [config, capture] = ["nat.toml", "in.pcap"].map(|name| directory.path().join(name).display().to_string());
    std::fs::write(&config, NAT44).unwrap();
    write(Path::new(&capture), &packets);
    let text = stdout(&tombolo(&["explain", "-c", &config, "--number", "2", &capture]));
    assert!(text.contains("10.0.0.7 to 198.51.100.2") && text.contains("to outside: IPv4 192.0.2.1"), "{text}");
    assert_eq!(tombolo(&["explain", "-c", &config, "--number", "1", &capture]).status.code(), Some(1));
}

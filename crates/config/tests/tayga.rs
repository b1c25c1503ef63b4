//! Tayga's configuration file: every directive, and every mistake with file, line, directive,
//! reason and fix.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::Arc;

use tombolo_config::Provision;
use tombolo_config::tayga::{LogOption, MapFile, Tayga, parse};
use tombolo_engine::mechanism::UdpZeroChecksum;
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::plan::{AnsweredBy, ServiceKind};
use tombolo_engine::service::siit::{Role, Siit};
use tombolo_engine::{DropReason, Engine, Now, Verdict};
use tombolo_tables::Tables;
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_wire::{Ipv4Header, Ipv6Header, Protocol};

/// For experiments (RFC 3692).
const UNKNOWN: Protocol = Protocol(253);
const LEAST: &str = "tun-device nat64\nipv4-addr 192.168.255.1\nprefix 2001:db8:1:ffff::/96\n";

fn accepted(text: &str) -> Tayga {
    parse("tayga.conf", text, None).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(text: &str) -> Vec<String> {
    let error = parse("tayga.conf", text, None).err().unwrap_or_else(|| panic!("accepted"));
    error.problems().iter().map(ToString::to_string).collect()
}

#[test]
fn every_directive_is_understood() {
    let tayga = accepted(
        "# a comment\nTUN-DEVICE nat64 # in capitals\nipv4-addr 192.0.2.1\nipv6-addr 2001:db8::1\nprefix 64:ff9b::/96\n\
         wkpf-strict no\nmap 192.0.2.8 2001:db8::8\nmap 192.0.2.16/28\t2001:db8:2::/124\ndynamic-pool 192.0.2.128/25\n\
         data-dir /var/spool/tayga\nstrict-frag-hdr on\nudp-cksum-mode forward\nlog drop REJECT icmp self dyn\n\
         offlink-mtu 1492\nworkers 0\nmap-file static.map\ntun-up yes\ntun-ip 192.0.0.1/29\ntun-ip 2001:db8::9\n\
         tun-route 192.0.2.0/24\ntun-route 64:ff9b::/96\n",
    );
    assert_eq!((tayga.device.as_str(), tayga.ipv6.to_string()), ("nat64", "2001:db8::1".to_owned()));
    assert_eq!((tayga.maps.len(), tayga.lowest_ipv6_mtu, tayga.workers), (2, 1492, Some(1)));
    assert_eq!((tayga.udp_zero, tayga.well_known_prefix_strict), (UdpZeroChecksum::Forward, false));
    assert_eq!(tayga.dynamic_map_path().unwrap(), Path::new("/var/spool/tayga/dynamic.map"));
    assert_eq!(tayga.map_file_path().unwrap(), Path::new("/var/spool/tayga/static.map"));
    assert_eq!(tayga.log[..2], [LogOption::Drop, LogOption::Reject]);
    assert_eq!((tayga.device_up, tayga.addresses.len(), tayga.routes.len()), (true, 2, 2));
    let [warning] = &tayga.warnings[..] else { panic!("{:?}", tayga.warnings) };
    assert!(warning.to_string().starts_with("tayga.conf:11: strict-frag-hdr on: has no effect"), "{warning}");
}

#[test]
fn the_plan_translates_whatever_is_routed_to_the_device() {
    let tayga = accepted(&format!("{LEAST}map 192.0.2.8 2001:db8::8\n"));
    assert_eq!(tayga.ipv6.to_string(), "2001:db8:1:ffff::c0a8:ff01");
    let configuration = tayga.configuration(&MapFile::default(), tayga.make_dynamic_pool(), 1400).unwrap();
    assert!(matches!(configuration.host.provision, Provision::Administrator { up: false, .. }));
    assert_eq!(configuration.plan.own.answered_by, AnsweredBy::Gateway);
    let ServiceKind::Siit(Siit { role, translate, mapping, dynamic, .. }) = &configuration.plan.services[0].kind else {
        panic!("no SIIT")
    };
    assert_eq!((*role, translate.ipv4_mtu, translate.udp_zero_4to6), (Role::Everything, 1400, UdpZeroChecksum::Drop));
    assert_eq!(mapping.explicit.rows().len(), 1);
    assert!(dynamic.is_none() && translate.largest_segment.is_none());
}

#[test]
fn rows_of_the_map_file_that_the_file_has_already_are_left_out() {
    let tayga = accepted(&format!("{LEAST}ipv6-addr 2001:db8::1\nmap 192.0.2.8 2001:db8::8\n"));
    let loaded = tayga.parse_map_file("static.map", "map 192.0.2.9 2001:db8::9\nmap 192.0.2.8 2001:db8::88\n");
    let configuration = tayga.configuration(&loaded, None, 1500).unwrap();
    let ServiceKind::Siit(siit) = &configuration.plan.services[0].kind else { panic!("no SIIT") };
    // The two of the gateway itself stand for each other, too.
    assert_eq!(siit.mapping.explicit.rows().len(), 3);
    let [warning] = &configuration.warnings[..] else { panic!("{:?}", configuration.warnings) };
    assert!(warning.to_string().starts_with("static.map:2: map 192.0.2.8 2001:db8::88: an address of it"), "{warning}");
}

#[test]
fn bad_and_double_lines_of_the_map_file_are_skipped_and_said() {
    let text = "prefix 64:ff9b::/96\nmap 192.0.2.9 2001:db8::9\nmap 192.0.2.300 2001:db8::a\n\
                map 192.0.2.11 2001:db8::9\nmap 192.0.2.9 2001:db8::c\nmap 192.0.2.13 2001:db8::d\n\
                map 192.168.255.1 2001:db8::e\nmap 192.0.2.14 2001:db8:1:ffff::e\n";
    let tayga = accepted(LEAST);
    let loaded = tayga.parse_map_file("static.map", text);
    let rows: Vec<_> = loaded.maps.iter().map(|map| map.row.ipv4().to_string()).collect();
    assert_eq!(rows.len(), 2, "{rows:?}");
    let configuration = tayga.configuration(&loaded, None, 1500).unwrap();
    let said: Vec<_> = configuration.warnings.iter().map(ToString::to_string).collect();
    let [prefix, bad, ipv6, ipv4, own, inside] = &said[..] else { panic!("{said:?}") };
    assert_eq!(prefix, "static.map:1: prefix: unknown directive; known here: map");
    assert!(bad.starts_with("static.map:3: map 192.0.2.300 2001:db8::a: "), "{bad}");
    assert!(ipv6.starts_with("static.map:4: map 192.0.2.11 2001:db8::9: maps what line 2 maps already"), "{ipv6}");
    assert!(ipv4.starts_with("static.map:5: map 192.0.2.9 2001:db8::c: maps what line 2 maps already"), "{ipv4}");
    let start = "static.map:7: map 192.168.255.1 2001:db8::e: maps ipv4-addr, which the gateway answers itself";
    assert!(own.starts_with(start) && own.ends_with("the line is ignored"), "{own}");
    let start = "static.map:8: map 192.0.2.14 2001:db8:1:ffff::e: lies inside 2001:db8:1:ffff::/96, which is routed";
    assert!(inside.starts_with(start) && inside.ends_with("the line is ignored"), "{inside}");
}

#[test]
fn maps_that_lead_back_to_the_gateway_are_refused_with_their_lines() {
    let own = "ipv6-addr 2001:db8::1\n";
    for (map, expected) in [
        ("192.168.255.1 2001:db8::2", "maps ipv4-addr, which the gateway answers itself; map another address"),
        ("192.0.2.1 2001:db8::1", "maps ipv6-addr, which the gateway answers itself; map another address"),
        (
            "192.0.2.1 2001:db8:1:ffff::1",
            "lies inside 2001:db8:1:ffff::/96, which is routed to this gateway: packets to it would come back; \
             map an address outside of it",
        ),
        ("10.0.0.0/8 2001:db8:1:ffff::/96", "holds 2001:db8:1:ffff::/96, which is routed to this gateway"),
    ] {
        let found = refused(&format!("{LEAST}{own}map {map}\n"));
        let [found] = &found[..] else { panic!("{found:?}") };
        assert!(found.starts_with(&format!("tayga.conf:5: map {map}: {expected}")), "{found}");
    }
}

#[test]
fn mistakes_come_with_line_directive_reason_and_fix() {
    assert_eq!(
        refused(
            "tun-device a/b\nprefix 2001:db8::/95\nmap 192.0.2.1 2001:db8::1/127 x\nmap 192.0.2.1/24 2001:db8::/120\n\
             offlink-mtu 1279\nwkpf-strict maybe\ndata-dir here\nlog everything\ndata-dir /here\nudp-cksum-mode keep\n\
             dynamic-pool 192.0.2.1/32\ntun-ip nowhere\nipv4-addr 224.0.0.1\nipv6-addr fe80::1\nworkers 65\n"
        ),
        [
            "tayga.conf:1: tun-device a/b: cannot be the name of a device; use 1 to 15 letters, digits and hyphens",
            "tayga.conf:2: prefix 2001:db8::/95: prefix length 95 is not 32, 40, 48, 56, 64 or 96 (RFC 6052 section 2.2); choose one of these lengths",
            "tayga.conf:3: map 192.0.2.1 2001:db8::1/127 x: takes 2 arguments; comments begin with \"#\" and a blank before",
            "tayga.conf:4: map 192.0.2.1/24 2001:db8::/120: 192.0.2.1/24 has host bits set; the prefix is 192.0.2.0/24; write the prefix without host bits",
            "tayga.conf:5: offlink-mtu 1279: out of range; use a number from 1280 to 65535",
            "tayga.conf:6: wkpf-strict maybe: neither yes nor no; write one of them",
            "tayga.conf:7: data-dir here: not an absolute path; begin with \"/\"",
            "tayga.conf:8: log everything: \"everything\" is unknown; use some of drop, reject, icmp, self and dyn",
            "tayga.conf:9: data-dir /here: stands in the file twice; remove one of the lines",
            "tayga.conf:10: udp-cksum-mode keep: unknown; use drop, fwd or calc",
            "tayga.conf:11: dynamic-pool 192.0.2.1/32: a dynamic pool has 2 to 2^20 addresses; use a prefix of 12 to 31 bits",
            "tayga.conf:12: tun-ip nowhere: neither an address nor a prefix; write it as 192.168.255.0/24 or 2001:db8::1",
            "tayga.conf:13: ipv4-addr 224.0.0.1: a reserved address; choose a unicast address",
            "tayga.conf:14: ipv6-addr fe80::1: a reserved address; choose a unicast address",
            "tayga.conf:15: workers 65: out of range; use a number from 0 to 64",
        ]
    );
    assert_eq!(
        refused("map 192.0.2.1 2001:db8::1\nmap 192.0.2.1 2001:db8::2\n")[2..],
        [
            "tayga.conf: ipv6-addr: missing; add \"ipv6-addr 2001:db8:1::2\"",
            "tayga.conf:2: map 192.0.2.1 2001:db8::2: maps what line 1 maps already; remove one of them",
        ]
    );
    assert_eq!(
        refused("tun-device t\nipv4-addr 192.168.255.1\nprefix 64:ff9b::/96\n"),
        [
            "tayga.conf:2: ipv4-addr 192.168.255.1: may not be combined with 64:ff9b::/96 (RFC 6052 section 3.1); add \"ipv6-addr\" with an address of your own"
        ]
    );
}

/// A CLAT without `ipv6-addr`: its own IPv6 address is 192.0.0.2 in the well-known prefix.
#[test]
fn the_well_known_prefix_is_for_what_tayga_combines_it_with() {
    let tayga = accepted("tun-device clat\nipv4-addr 192.0.0.2\nprefix 64:ff9b::/96\nmap 192.0.0.1 2001:db8::7\n");
    assert_eq!(tayga.ipv6.to_string(), "64:ff9b::c000:2");
    let configuration = tayga.configuration(&MapFile::default(), None, 1500).unwrap();
    let ServiceKind::Siit(siit) = &configuration.plan.services[0].kind else { panic!("no SIIT") };
    let is_combined = |text: &str| siit.mapping.to_ipv6(text.parse().unwrap()).is_ok();
    for address in ["8.8.8.8", "192.0.0.9", "192.88.99.1"] {
        assert!(is_combined(address), "{address}");
    }
    for address in [
        "10.1.2.3",
        "100.64.0.1",
        "172.16.0.1",
        "192.0.2.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
    ] {
        assert!(!is_combined(address), "{address}");
    }
    let other = accepted("tun-device clat\nipv4-addr 192.0.0.2\nprefix 64:ff9b::/96\nwkpf-strict no\n");
    let configuration = other.configuration(&MapFile::default(), None, 1500).unwrap();
    let ServiceKind::Siit(siit) = &configuration.plan.services[0].kind else { panic!("no SIIT") };
    assert!(siit.mapping.to_ipv6([10, 1, 2, 3].into()).is_ok());
}

/// What docs/tayga.md says of it.
#[test]
fn class_e_is_translated_neither_way() {
    let tayga = accepted(&format!("{LEAST}map 192.0.2.8 2001:db8::8\n"));
    let plan = tayga.configuration(&MapFile::default(), None, 1500).unwrap().plan;
    let tables = Tables::new(&mut Heap, plan.capacity, HashKey::new([1, 2, 3, 4])).unwrap();
    let mut engine = Engine::new(Arc::new(tables), [9; 32], 0, 1);
    let mut pass = |packet: &[u8]| {
        let mut buffer = vec![0; HEADROOM + packet.len()];
        buffer[HEADROOM..].copy_from_slice(packet);
        let mut packet = Packet::new(&mut buffer, HEADROOM, packet.len(), Offload::default()).unwrap();
        engine.process(&plan, &mut packet, Now(1_000_000_000), &mut |_: &mut Packet<'_>| {})
    };
    let embedded = |address: [u8; 4]| tayga.prefix.unwrap().embed(address.into());
    let (host, remote, class_e) = ([192, 0, 2, 8], [198, 51, 100, 7], [240, 0, 0, 1]);
    let host6: Ipv6Addr = "2001:db8::8".parse().unwrap();
    assert_eq!(pass(&ipv6(host6, embedded(remote))), Verdict::Forward);
    assert_eq!(pass(&ipv6(host6, embedded(class_e))), Verdict::Drop(DropReason::IllegalDestination));
    assert_eq!(pass(&ipv4(remote, host)), Verdict::Forward);
    assert_eq!(pass(&ipv4(class_e, host)), Verdict::Drop(DropReason::IllegalSource));
    assert_eq!(pass(&ipv4(remote, class_e)), Verdict::Drop(DropReason::IllegalDestination));
}

/// A packet of a protocol that nobody knows.
fn ipv6(source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: 8,
        next_header: UNKNOWN,
        hop_limit: 64,
        source,
        destination,
    };
    let mut packet = vec![0; 48];
    header.emit(&mut packet);
    packet
}

fn ipv4(source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
    let header = Ipv4Header {
        tos: 0,
        total_length: 28,
        identification: 0,
        fragment_word: 0,
        ttl: 64,
        protocol: UNKNOWN,
        source: source.into(),
        destination: destination.into(),
    };
    let mut packet = vec![0; 28];
    header.emit(&mut packet);
    packet
}

#[test]
fn the_checksum_mode_holds_both_ways() {
    for (word, expected) in
        [("drop", UdpZeroChecksum::Drop), ("calc", UdpZeroChecksum::Compute), ("fwd", UdpZeroChecksum::Forward)]
    {
        let tayga = accepted(&format!("{LEAST}udp-cksum-mode {word}\n"));
        let configuration = tayga.configuration(&MapFile::default(), None, 1500).unwrap();
        let ServiceKind::Siit(siit) = &configuration.plan.services[0].kind else { panic!("no SIIT") };
        assert_eq!((siit.translate.udp_zero_4to6, siit.translate.udp_zero_6to4), (expected, expected));
    }
}

#[test]
fn systemds_state_directory_stands_in_for_data_dir() {
    let tayga = parse("tayga.conf", &format!("{LEAST}dynamic-pool 192.168.255.0/24\n"), Some("/var/lib/a:/b")).unwrap();
    assert_eq!(tayga.dynamic_map_path().unwrap(), Path::new("/var/lib/a/dynamic.map"));
}

//! How headers change: what services that translate or encapsulate have in common.

use tombolo_engine::mechanism::mtu::segment_size_of_translation;
use tombolo_engine::mechanism::{Plateaus, TrafficClass, TranslateSettings, UdpZeroChecksum};

use crate::document::{Node, Table};
use crate::problem::{Log, Problem};

/// Reads the settings of a translation.
pub(crate) fn translate(table: &Table<'_>, log: &mut Log) -> TranslateSettings {
    const UDP_ZERO: [(&str, UdpZeroChecksum); 3] =
        [("compute", UdpZeroChecksum::Compute), ("drop", UdpZeroChecksum::Drop), ("forward", UdpZeroChecksum::Forward)];
    let defaults = TranslateSettings::default();
    let read_ipv6_mtu = |node: &Node<'_>| node.number32(1280..=65_535);
    let ipv6_mtu = table.read_or("ipv6_mtu", defaults.ipv6_mtu, log, read_ipv6_mtu);
    let ipv4_mtu = table.read_or("ipv4_mtu", defaults.ipv4_mtu, log, |node| node.number32(68..=65_535));
    let udp_zero = |node: &Node<'_>| node.choice(&UDP_ZERO);
    TranslateSettings {
        traffic_class_4to6: table.read_or("traffic_class_4to6", defaults.traffic_class_4to6, log, traffic_class),
        traffic_class_6to4: table.read_or("traffic_class_6to4", defaults.traffic_class_6to4, log, traffic_class),
        udp_zero_4to6: table.read_or("udp_zero_checksum", UdpZeroChecksum::Compute, log, udp_zero),
        lowest_ipv6_mtu: table.read_or("lowest_ipv6_mtu", defaults.lowest_ipv6_mtu, log, read_ipv6_mtu),
        ipv6_mtu,
        udp_zero_6to4: table.read_or("udp_zero_checksum_6to4", defaults.udp_zero_6to4, log, udp_zero),
        ipv4_mtu,
        largest_segment: largest_segment(table, segment_size_of_translation(ipv4_mtu, ipv6_mtu), log),
        plateaus: table.read_or("mtu_plateaus", defaults.plateaus, log, plateaus),
    }
}

/// What `tcp_mss` says; `automatic` if it says that the MTUs decide.
pub(crate) fn largest_segment(table: &Table<'_>, automatic: u16, log: &mut Log) -> Option<u16> {
    table.read_or("tcp_mss", Some(automatic), log, |node| match node.text() {
        Ok("auto") => Ok(Some(automatic)),
        Ok("off") => Ok(None),
        Ok(_) => Err(node.problem("unknown; use \"auto\", \"off\" or a number of bytes")),
        // The least that every host takes is 536 (RFC 9293 section 3.7.1), and tunnels in tunnels
        // may leave less.
        Err(_) => Ok(Some(u16::try_from(node.number32(88..=65_495)?).unwrap_or(u16::MAX))),
    })
}

fn plateaus(node: &Node<'_>) -> Result<Plateaus, Problem> {
    let sizes: Result<Vec<u16>, Problem> =
        node.items()?.iter().map(|item| Ok(u16::try_from(item.number32(68..=65_535)?).unwrap_or(u16::MAX))).collect();
    Plateaus::new(&sizes?).ok_or_else(|| {
        node.problem(format!("not falling, or too many; write at most {} sizes from large to small", Plateaus::MOST))
    })
}

pub(crate) fn traffic_class(node: &Node<'_>) -> Result<TrafficClass, Problem> {
    match node.text() {
        Ok("copy") => Ok(TrafficClass::Copy),
        Ok(_) => Err(node.problem("unknown; use \"copy\" or a number from 0 to 255")),
        Err(_) => {
            let octet = u8::try_from(node.number32(0..=255)?).unwrap_or_default();
            Ok(TrafficClass::Force(octet))
        }
    }
}

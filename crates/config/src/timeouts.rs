//! Table `[timeouts]`.

use tombolo_engine::mechanism::napt::{ShortPorts, Times};
use tombolo_engine::mechanism::session_state::Timeouts;
use tombolo_wire::Port;

use crate::document::{Node, Table};
use crate::problem::{Log, Problem};
use crate::reference::TIMEOUTS;

/// Ten years, in seconds: far inside the tables' 32-bit ticks.
const LONGEST: u32 = 10 * 365 * 86_400;

/// Seconds that a UDP mapping has to last, but for ports up to `WELL_KNOWN` (RFC 4787 REQ-5).
const SHORTEST_UDP: u32 = 120;
const WELL_KNOWN: u16 = 1023;

/// Seconds that a closed port is kept back (RFC 6888 REQ-8).
const PORT_REUSE: u32 = 120;

/// Reads `[timeouts]`. What is shorter than an RFC asks for is taken, with a warning: test networks
/// need it.
pub(crate) fn read(file: &Table<'_>, log: &mut Log) -> Times {
    let mut timeouts = Timeouts::default();
    let mut port_reuse = PORT_REUSE;
    let mut most_ports_kept_back = None;
    let mut short_ports = Vec::new();
    if let Some(table) = file.table("timeouts", &TIMEOUTS, log) {
        let fields: [(&'static str, &mut u32, u32, &str); 7] = [
            ("udp", &mut timeouts.udp, SHORTEST_UDP, "RFC 4787 REQ-5"),
            ("icmp", &mut timeouts.icmp, 60, "RFC 5508 REQ-2"),
            ("tcp_established", &mut timeouts.tcp_established, 7200, "RFC 5382 REQ-5"),
            ("tcp_opening", &mut timeouts.tcp_opening, 240, "RFC 5382 REQ-5"),
            ("tcp_transitory", &mut timeouts.tcp_transitory, 240, "RFC 5382 REQ-5"),
            ("tcp_incoming_syn", &mut timeouts.tcp_incoming_syn, 6, "RFC 5382 REQ-4"),
            ("port_reuse", &mut port_reuse, PORT_REUSE, "RFC 6888 REQ-8"),
        ];
        for (key, field, least, source) in fields {
            // Without any pause a port may be reused at once; without any lifetime nothing would
            // work.
            let shortest = u32::from(key != "port_reuse");
            let Some(node) = table.find(key) else { continue };
            let Some(seconds) = log.keep(node.number32(shortest..=LONGEST)) else { continue };
            *field = seconds;
            if seconds < least {
                log.warning(advice(&node, least, source));
            }
        }
        short_ports = read_short_ports(&table, timeouts.udp, log);
        most_ports_kept_back = table.read_or("ports_kept_back", None, log, |node| node.number32(0..=65_535).map(Some));
    }
    let mut times = Times::new(&timeouts, port_reuse).with_short_ports(&short_ports);
    times.most_ports_kept_back = most_ports_kept_back;
    times
}

/// UDP ports of remotes with times of their own, which are no longer than `usual` seconds.
fn read_short_ports(table: &Table<'_>, usual: u32, log: &mut Log) -> Vec<(Port, u32)> {
    let Some(node) = table.find("udp_ports") else { return Vec::new() };
    let entries = log.keep(node.entries()).unwrap_or_default();
    if entries.len() > ShortPorts::MOST {
        log.mistake(node.problem(format!("{} ports are too many; use at most {}", entries.len(), ShortPorts::MOST)));
    }
    let mut read = |(key, node): &(&str, Node<'_>)| {
        let port = key.parse::<u16>().ok().filter(|port| *port > 0);
        let port = port.ok_or_else(|| node.problem("not a port; write it as { 53 = 30 }"));
        let (port, seconds) = (log.keep(port)?, log.keep(node.number32(1..=LONGEST))?);
        if seconds > usual {
            log.mistake(node.problem(format!(
                "longer than the {usual} seconds that other ports have (\"udp\"), and no port may have more; raise that, \
                 or lower this"
            )));
        }
        if port > WELL_KNOWN && seconds < SHORTEST_UDP {
            log.warning(node.problem(format!(
                "less than {SHORTEST_UDP} seconds are for ports up to {WELL_KNOWN} alone (RFC 4787 REQ-5 (a))"
            )));
        }
        Some((Port(port), seconds))
    };
    entries.iter().filter_map(&mut read).collect()
}

fn advice(node: &Node<'_>, least: u32, source: &str) -> Problem {
    node.problem(format!("shorter than {source} asks for; use {least} or more outside of tests"))
}

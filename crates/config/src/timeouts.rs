//! Table `[timeouts]`.

use tombolo_engine::mechanism::napt::Times;
use tombolo_engine::mechanism::session_state::Timeouts;

use crate::document::{Node, Table};
use crate::problem::{Log, Problem};
use crate::reference::TIMEOUTS;

/// Ten years, in seconds: far inside the tables' 32-bit ticks.
const LONGEST: u32 = 10 * 365 * 86_400;

/// Seconds that a closed port is kept back (RFC 6888 REQ-8).
const PORT_REUSE: u32 = 120;

/// Reads `[timeouts]`. What is shorter than an RFC asks for is taken, with a warning: test networks
/// need it.
pub(crate) fn read(file: &Table<'_>, log: &mut Log) -> Times {
    let mut timeouts = Timeouts::default();
    let mut port_reuse = PORT_REUSE;
    let mut most_ports_kept_back = None;
    if let Some(table) = file.table("timeouts", &TIMEOUTS, log) {
        let fields: [(&'static str, &mut u32, u32, &str); 7] = [
            ("udp", &mut timeouts.udp, 120, "RFC 4787 REQ-5"),
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
        most_ports_kept_back = table.read_or("ports_kept_back", None, log, |node| node.number32(0..=65_535).map(Some));
    }
    let mut times = Times::new(&timeouts, port_reuse);
    times.most_ports_kept_back = most_ports_kept_back;
    times
}

fn advice(node: &Node<'_>, least: u32, source: &str) -> Problem {
    node.problem(format!("shorter than {source} asks for; use {least} or more outside of tests"))
}

//! The states of a session as data: one table for the engine and for programs inside the kernel.
//!
//! TCP follows RFC 6146 section 3.5.2.2, which RFC 7857 section 2 recommends for NAT44 as well;
//! "V6" there is the inside here, "V4" the outside. Only the SYN, FIN and RST flags and the
//! direction matter. Times are RFC 6146 section 4's.
//!
//! | state | inside SYN | outside SYN | inside FIN | outside FIN | RST | other |
//! |---|---|---|---|---|---|---|
//! | outside-init | established* | same | same | same | same | same |
//! | inside-init | same* | established* | same | same | same | same |
//! | established | same* | same* | inside-fin | outside-fin | trans* | same* |
//! | outside-fin | same* | same* | both-fin* | same* | same* | same* |
//! | inside-fin | same* | same* | same* | both-fin* | same* | same* |
//! | both-fin | same | same | same | same | same | same |
//! | trans | established* | established* | established* | established* | same | established* |
//!
//! `*`: the lifetime starts anew. Without it the session goes on with the time it has left.

use tombolo_tables::session::{Lifetimes, State};
use tombolo_tables::tick::ticks;

pub use crate::side::Side;

/// A UDP session.
pub const UDP: State = State(1);
/// A session of ICMP queries.
pub const ICMP: State = State(2);
/// Opened from outside ("V4 INIT").
pub const OUTSIDE_INIT: State = State(3);
/// Opened from outside, and the SYN is kept until the inside opens too ("V4 INIT" with a stored
/// packet).
pub const OUTSIDE_INIT_HELD: State = State(4);
/// Opened from inside ("V6 INIT").
pub const INSIDE_INIT: State = State(5);
/// Open.
pub const ESTABLISHED: State = State(6);
/// The outside has closed ("V4 FIN RCV").
pub const OUTSIDE_FIN: State = State(7);
/// The inside has closed ("V6 FIN RCV").
pub const INSIDE_FIN: State = State(8);
/// Both have closed ("V6 FIN + V4 FIN RCV").
pub const BOTH_FIN: State = State(9);
/// Reset, or silent for too long: about to go ("TRANS").
pub const TRANS: State = State(10);
/// Not a session of packets: the inside has sent UDP or ICMP to this remote address, whatever the
/// port. Kept for address-dependent filtering only.
pub const PERMISSION: State = State(11);
/// As [`PERMISSION`], for TCP.
pub const PERMISSION_TCP: State = State(12);

/// Names of the states, as in the table above; for people, logs and filters.
pub const NAMES: [(State, &str); 12] = [
    (UDP, "udp"),
    (ICMP, "icmp"),
    (OUTSIDE_INIT, "outside-init"),
    (OUTSIDE_INIT_HELD, "outside-init-held"),
    (INSIDE_INIT, "inside-init"),
    (ESTABLISHED, "established"),
    (OUTSIDE_FIN, "outside-fin"),
    (INSIDE_FIN, "inside-fin"),
    (BOTH_FIN, "both-fin"),
    (TRANS, "trans"),
    (PERMISSION, "permission"),
    (PERMISSION_TCP, "permission-tcp"),
];

/// The name of a state.
#[must_use]
pub fn name(state: State) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == state).map_or("unknown", |(_, name)| name)
}

/// The state with this name.
#[must_use]
pub fn named(name: &str) -> Option<State> {
    NAMES.iter().find(|(_, known)| *known == name).map(|(state, _)| *state)
}

/// What a packet is to the session that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Event {
    /// A TCP SYN, with or without ACK.
    Syn = 0,
    /// A TCP FIN.
    Fin = 1,
    /// A TCP RST.
    Rst = 2,
    /// Any other packet.
    Other = 3,
}

/// What becomes of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Its next state.
    pub next: State,
    /// Its lifetime starts anew.
    pub refresh: bool,
}

const REFRESH: u8 = 0x80;

/// The table as it is shared: `TABLE[state][side * 4 + event]` is the next state, and 0x80 is added
/// where the lifetime starts anew.
pub static TABLE: [[u8; 8]; 16] = {
    const fn same(state: State) -> [u8; 8] {
        [state.0; 8]
    }
    const fn refreshed(state: State) -> [u8; 8] {
        [state.0 | REFRESH; 8]
    }
    const fn with(mut row: [u8; 8], side: Side, event: Event, next: u8) -> [u8; 8] {
        row[side as usize * 4 + event as usize] = next;
        row
    }
    use Event::{Fin, Rst, Syn};
    use Side::{Inside, Outside};
    let mut table = [[0; 8]; 16];
    table[UDP.0 as usize] = refreshed(UDP);
    table[ICMP.0 as usize] = refreshed(ICMP);
    table[PERMISSION.0 as usize] = refreshed(PERMISSION);
    table[PERMISSION_TCP.0 as usize] = refreshed(PERMISSION_TCP);
    let open = ESTABLISHED.0 | REFRESH;
    table[OUTSIDE_INIT.0 as usize] = with(same(OUTSIDE_INIT), Inside, Syn, open);
    table[OUTSIDE_INIT_HELD.0 as usize] = with(same(OUTSIDE_INIT_HELD), Inside, Syn, open);
    let row = with(same(INSIDE_INIT), Outside, Syn, open);
    table[INSIDE_INIT.0 as usize] = with(row, Inside, Syn, INSIDE_INIT.0 | REFRESH);
    let row = with(refreshed(ESTABLISHED), Outside, Fin, OUTSIDE_FIN.0);
    let row = with(row, Inside, Fin, INSIDE_FIN.0);
    let row = with(row, Inside, Rst, TRANS.0 | REFRESH);
    table[ESTABLISHED.0 as usize] = with(row, Outside, Rst, TRANS.0 | REFRESH);
    let both = BOTH_FIN.0 | REFRESH;
    table[OUTSIDE_FIN.0 as usize] = with(refreshed(OUTSIDE_FIN), Inside, Fin, both);
    table[INSIDE_FIN.0 as usize] = with(refreshed(INSIDE_FIN), Outside, Fin, both);
    table[BOTH_FIN.0 as usize] = same(BOTH_FIN);
    let row = with(refreshed(ESTABLISHED), Inside, Rst, TRANS.0);
    table[TRANS.0 as usize] = with(row, Outside, Rst, TRANS.0);
    table
};

/// What becomes of a session in `state` when `event` comes from `side`.
#[inline]
#[must_use]
pub fn step(state: State, side: Side, event: Event) -> Step {
    let entry = TABLE[usize::from(state.0 & 15)][side as usize * 4 + event as usize];
    Step { next: State(entry & !REFRESH), refresh: entry & REFRESH != 0 }
}

/// Lifetimes in seconds, as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// UDP sessions (`UDP_DEFAULT`; RFC 6146 and RFC 4787 REQ-5: not below 120).
    pub udp: u32,
    /// ICMP query sessions (`ICMP_DEFAULT`; RFC 5508 REQ-2: not below 60).
    pub icmp: u32,
    /// Open TCP sessions (`TCP_EST`; with [`tcp_transitory`](Self::tcp_transitory) after it not
    /// below 2 h 4 min, RFC 5382 REQ-5).
    pub tcp_established: u32,
    /// TCP sessions that open (`TCP_TRANS`; RFC 5382 REQ-5: not below 240, RFC 7857 section 2.1:
    /// may be less).
    pub tcp_opening: u32,
    /// TCP sessions that close (`TCP_TRANS`; RFC 5382 REQ-5: not below 240, RFC 7857 section 2.1:
    /// may be less).
    pub tcp_transitory: u32,
    /// A SYN from outside that waits for the inside to open (`TCP_INCOMING_SYN`; RFC 5382 REQ-4).
    pub tcp_incoming_syn: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { udp: 300, icmp: 60, tcp_established: 7200, tcp_opening: 240, tcp_transitory: 240, tcp_incoming_syn: 6 }
    }
}

impl Timeouts {
    /// How long a session may be silent in each state before it is gone or, if established, in
    /// TRANS.
    #[must_use]
    pub fn lifetimes(&self) -> Lifetimes {
        let mut lifetimes = [0; 16];
        let mut set = |state: State, seconds| lifetimes[usize::from(state.0)] = ticks(seconds);
        set(UDP, self.udp);
        set(ICMP, self.icmp);
        set(OUTSIDE_INIT, self.tcp_opening);
        set(OUTSIDE_INIT_HELD, self.tcp_incoming_syn);
        set(INSIDE_INIT, self.tcp_opening);
        set(ESTABLISHED, self.tcp_established);
        set(OUTSIDE_FIN, self.tcp_established);
        set(INSIDE_FIN, self.tcp_established);
        set(BOTH_FIN, self.tcp_transitory);
        set(TRANS, self.tcp_transitory);
        set(PERMISSION, self.udp);
        set(PERMISSION_TCP, self.tcp_established.saturating_add(self.tcp_transitory));
        Lifetimes(lifetimes)
    }

    /// As [`lifetimes`](Self::lifetimes), but an established session lives on through TRANS: when
    /// an entry may be given to another session.
    #[must_use]
    pub fn reuse_after(&self) -> Lifetimes {
        let mut lifetimes = self.lifetimes();
        let established = &mut lifetimes.0[usize::from(ESTABLISHED.0)];
        *established = established.saturating_add(ticks(self.tcp_transitory));
        lifetimes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn state(name: &str) -> Option<State> {
        Some(match name {
            "CLOSED" => return None,
            "V4_INIT" => OUTSIDE_INIT,
            "V6_INIT" => INSIDE_INIT,
            "ESTABLISHED" => ESTABLISHED,
            "V4_FIN_RCV" => OUTSIDE_FIN,
            "V6_FIN_RCV" => INSIDE_FIN,
            "V6_FIN_V4_FIN_RCV" => BOTH_FIN,
            "TRANS" => TRANS,
            other => panic!("unknown state {other}"),
        })
    }

    /// Events that `name` stands for. `OTHER` without a side is every event that the state has no
    /// row for.
    fn events(name: &str, listed: &[&str]) -> Vec<(Side, Event)> {
        let all = [("SYN", Event::Syn), ("FIN", Event::Fin), ("RST", Event::Rst), ("OTHER", Event::Other)];
        let sides = [("V6", Side::Inside), ("V4", Side::Outside)];
        let pairs = sides.iter().flat_map(|side| all.iter().map(move |event| (side, event)));
        pairs
            .filter(|(side, event)| {
                let full = format!("{}_{}", side.0, event.0);
                full == name || name == "OTHER" && !listed.contains(&full.as_str())
            })
            .map(|(side, event)| (side.1, event.1))
            .collect()
    }

    #[test]
    fn every_transition_of_rfc_6146_is_in_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/tcp_fsm.json");
        let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let text = |case: &Value, key: &str| case[key].as_str().unwrap_or_default().to_owned();
        let cases = vectors["cases"].as_array().unwrap();
        let mut checked = 0;
        for case in cases {
            let (from, event) = (text(case, "state"), text(case, "event"));
            // CLOSED has no session to be in a state; TIMEOUT is `lifetimes`, tested below.
            let Some(state_before) = state(&from) else { continue };
            if event == "TIMEOUT" {
                continue;
            }
            let listed: Vec<&str> =
                cases.iter().filter(|c| text(c, "state") == from).filter_map(|c| c["event"].as_str()).collect();
            let expected = Step {
                next: state(&text(case, "next_state")).unwrap(),
                refresh: text(case, "lifetime") != "unchanged",
            };
            let events = events(&event, &listed);
            assert!(!events.is_empty(), "{case}");
            for (side, event) in events {
                assert_eq!(step(state_before, side, event), expected, "{case}");
                checked += 1;
            }
        }
        assert!(checked >= 50, "{checked}");
    }

    #[test]
    fn lifetimes_are_those_of_rfc_6146() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/tcp_fsm.json");
        let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let seconds = |name: &str| u32::try_from(vectors["timers"][name].as_u64().unwrap()).unwrap();
        let lifetimes = Timeouts::default().lifetimes();
        for (state, timer) in [
            (UDP, "UDP_DEFAULT"),
            (ICMP, "ICMP_DEFAULT"),
            (OUTSIDE_INIT, "TCP_TRANS"),
            (OUTSIDE_INIT_HELD, "TCP_INCOMING_SYN"),
            (INSIDE_INIT, "TCP_TRANS"),
            (ESTABLISHED, "TCP_EST"),
            (OUTSIDE_FIN, "TCP_EST"),
            (INSIDE_FIN, "TCP_EST"),
            (BOTH_FIN, "TCP_TRANS"),
            (TRANS, "TCP_TRANS"),
        ] {
            assert_eq!(lifetimes.of(state), ticks(seconds(timer)), "{timer}");
        }
        let both = ticks(seconds("TCP_EST")) + ticks(seconds("TCP_TRANS"));
        assert_eq!(Timeouts::default().reuse_after().of(ESTABLISHED), both);
    }

    #[test]
    fn opening_and_closing_have_times_of_their_own() {
        let lifetimes = Timeouts { tcp_opening: 30, tcp_transitory: 60, ..Timeouts::default() }.lifetimes();
        assert!([INSIDE_INIT, OUTSIDE_INIT].iter().all(|&state| lifetimes.of(state) == ticks(30)));
        assert!([BOTH_FIN, TRANS].iter().all(|&state| lifetimes.of(state) == ticks(60)));
    }

    #[test]
    fn every_state_has_a_name_of_its_own() {
        for number in 1..=PERMISSION_TCP.0 {
            assert_eq!(named(name(State(number))), Some(State(number)));
        }
        assert_eq!(named("unknown"), None);
    }

    #[test]
    fn a_refused_connection_that_tries_again_is_established() {
        // V6 SYN, V4 SYN+ACK, V6 RST, V6 SYN: V6 INIT, ESTABLISHED, TRANS, ESTABLISHED.
        let mut state = INSIDE_INIT;
        let mut path = Vec::new();
        for (side, event) in [(Side::Outside, Event::Syn), (Side::Inside, Event::Rst), (Side::Inside, Event::Syn)] {
            state = step(state, side, event).next;
            path.push(state);
        }
        assert_eq!(path, [ESTABLISHED, TRANS, ESTABLISHED]);
    }
}

//! The states of a session as data: one table for the engine and for programs inside the kernel.
//!
//! TCP follows RFC 6146 section 3.5.2.2, which RFC 7857 section 2 recommends for NAT44 as well;
//! "V6" there is the inside here, "V4" the outside. Only the SYN, FIN and RST flags and the
//! direction matter. Times are RFC 6146 section 4's. Where hosts close connections in ways that the
//! RFC's table does not foresee, this one goes on: a SYN opens anew what was closing, and what was
//! reset stays so until both sides have shown that they know nothing of it. Each entry and the
//! clause that asks for it: `docs/tcp-sessions.md`, which a test compares with the table.
//!
//! | state | inside SYN | outside SYN | inside FIN | outside FIN | RST | inside other | outside other |
//! |---|---|---|---|---|---|---|---|
//! | outside-init | established* | same | same | same | same | same | same |
//! | inside-init | same* | established* | same | same | same | same | same |
//! | established | same* | same* | inside-fin | outside-fin | reset* | same* | same* |
//! | outside-fin | inside-init* | outside-init* | both-fin* | same* | reset* | same* | same* |
//! | inside-fin | inside-init* | outside-init* | same* | both-fin* | reset* | same* | same* |
//! | both-fin | inside-init* | outside-init* | same | same | same | same | same |
//! | trans | established* | established* | established* | established* | reset* | established* | established* |
//! | reset | inside-init* | outside-init* | same | same | same | reset-inside | reset-outside |
//! | reset-inside | inside-init* | outside-init* | same | same | reset | same | established* |
//! | reset-outside | inside-init* | outside-init* | same | same | reset (inside), same | established* | same |
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
/// Silent for too long: about to go ("TRANS", where RFC 6146 has what was reset, too).
pub const TRANS: State = State(10);
/// Not a session of packets: the inside has sent UDP or ICMP to this remote address, whatever the
/// port. Kept for address-dependent filtering only.
pub const PERMISSION: State = State(11);
/// As [`PERMISSION`], for TCP.
pub const PERMISSION_TCP: State = State(12);
/// Reset by one of the hosts, or by somebody who says so: about to go.
pub const RESET: State = State(13);
/// As [`RESET`], and the inside has sent something since.
pub const RESET_INSIDE: State = State(14);
/// As [`RESET`], and the outside has sent something since.
pub const RESET_OUTSIDE: State = State(15);

/// Names of the states, as in the table above; for people, logs and filters.
pub const NAMES: [(State, &str); 15] = [
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
    (RESET, "reset"),
    (RESET_INSIDE, "reset-inside"),
    (RESET_OUTSIDE, "reset-outside"),
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
    use Event::{Fin, Other, Rst, Syn};
    use Side::{Inside, Outside};
    /// A SYN opens anew.
    const fn reopened(row: [u8; 8]) -> [u8; 8] {
        let row = with(row, Inside, Syn, INSIDE_INIT.0 | REFRESH);
        with(row, Outside, Syn, OUTSIDE_INIT.0 | REFRESH)
    }
    const fn reset(row: [u8; 8], next: u8) -> [u8; 8] {
        with(with(row, Inside, Rst, next), Outside, Rst, next)
    }
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
    let anew = RESET.0 | REFRESH;
    table[ESTABLISHED.0 as usize] = reset(row, anew);
    let both = BOTH_FIN.0 | REFRESH;
    table[OUTSIDE_FIN.0 as usize] = reset(with(reopened(refreshed(OUTSIDE_FIN)), Inside, Fin, both), anew);
    table[INSIDE_FIN.0 as usize] = reset(with(reopened(refreshed(INSIDE_FIN)), Outside, Fin, both), anew);
    table[BOTH_FIN.0 as usize] = reopened(same(BOTH_FIN));
    table[TRANS.0 as usize] = reset(refreshed(ESTABLISHED), anew);
    let row = with(reopened(same(RESET)), Inside, Other, RESET_INSIDE.0);
    table[RESET.0 as usize] = with(row, Outside, Other, RESET_OUTSIDE.0);
    let row = reset(reopened(same(RESET_INSIDE)), RESET.0);
    table[RESET_INSIDE.0 as usize] = with(row, Outside, Other, open);
    // Whoever resets again and again must not drown the answer from inside.
    let row = with(reopened(same(RESET_OUTSIDE)), Inside, Rst, RESET.0);
    table[RESET_OUTSIDE.0 as usize] = with(row, Inside, Other, open);
    table
};

/// Ticks after a reset from outside until the host inside is asked whether it knows of it: longer
/// than what was on its way is on its way.
pub const ASK_AFTER: u32 = ticks(30);

/// Whether a session was reset.
#[must_use]
pub fn is_reset(state: State) -> bool {
    matches!(state, RESET | RESET_INSIDE | RESET_OUTSIDE)
}

/// True if a packet that leaves its session in state `next` has the host inside asked later on: an
/// RST from outside may be anybody's who guesses addresses and ports (RFC 7857 section 2.2).
#[inline]
#[must_use]
pub fn raises_doubt(side: Side, event: Event, next: State) -> bool {
    side == Side::Outside && event == Event::Rst && is_reset(next)
}

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
        for state in [TRANS, RESET, RESET_INSIDE, RESET_OUTSIDE] {
            set(state, self.tcp_transitory);
        }
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

    const REOPENS: &str = "RFC 5382 REQ-2: all valid sequences, and a new SYN is one; REQ-5: as long as one that opens";
    const STAYS_RESET: &str = "RFC 7857 section 2.2: kept for four minutes after a RST, whatever the state before";

    /// Where the table does more than RFC 6146's: states, events, what comes of them, and the
    /// clause that asks for it.
    type Deviation = (&'static [State], Event, fn(Side) -> State, &'static str);
    const DEVIATIONS: [Deviation; 2] = [
        (
            &[OUTSIDE_FIN, INSIDE_FIN, BOTH_FIN],
            Event::Syn,
            |side| if side == Side::Inside { INSIDE_INIT } else { OUTSIDE_INIT },
            REOPENS,
        ),
        (&[ESTABLISHED, OUTSIDE_FIN, INSIDE_FIN, TRANS], Event::Rst, |_| RESET, STAYS_RESET),
    ];

    #[test]
    fn every_transition_of_rfc_6146_is_in_the_table_but_for_deviations_with_a_clause() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/tcp_fsm.json");
        let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let text = |case: &Value, key: &str| case[key].as_str().unwrap_or_default().to_owned();
        let cases = vectors["cases"].as_array().unwrap();
        let (mut checked, mut deviating) = (0, 0);
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
                let deviation =
                    DEVIATIONS.iter().find(|(states, of, ..)| states.contains(&state_before) && *of == event);
                let (expected, clause) = deviation
                    .map_or((expected, "RFC 6146 section 3.5.2.2"), |(.., next, clause)| {
                        (Step { next: next(side), refresh: true }, clause)
                    });
                assert_eq!(step(state_before, side, event), expected, "{clause}: {case}");
                checked += 1;
                deviating += usize::from(deviation.is_some());
            }
        }
        assert!(checked >= 50, "{checked}");
        assert_eq!(deviating, 14, "states and sides");
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
            (RESET, "TCP_TRANS"),
            (RESET_INSIDE, "TCP_TRANS"),
            (RESET_OUTSIDE, "TCP_TRANS"),
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
        for number in 1..=RESET_OUTSIDE.0 {
            assert_eq!(named(name(State(number))), Some(State(number)));
        }
        assert_eq!(named("unknown"), None);
    }

    /// The states that a session in `state` goes through, and whether its lifetime starts anew.
    fn path(mut state: State, events: &[(Side, Event)]) -> Vec<(&'static str, bool)> {
        let mut path = Vec::new();
        for &(side, event) in events {
            let Step { next, refresh } = step(state, side, event);
            path.push((name(next), refresh));
            state = next;
        }
        path
    }

    #[test]
    fn a_refused_connection_that_tries_again_is_established() {
        let events = [
            (Side::Outside, Event::Syn),
            (Side::Inside, Event::Rst),
            (Side::Inside, Event::Syn),
            (Side::Outside, Event::Syn),
        ];
        let expected = [("established", true), ("reset", true), ("inside-init", true), ("established", true)];
        assert_eq!(path(INSIDE_INIT, &events), expected);
    }

    #[test]
    fn a_syn_opens_anew_from_every_closing_state_and_lives_no_longer_than_one_that_opens() {
        let sides = [(Side::Inside, Side::Outside, INSIDE_INIT), (Side::Outside, Side::Inside, OUTSIDE_INIT)];
        for state in [INSIDE_FIN, OUTSIDE_FIN, BOTH_FIN, RESET, RESET_INSIDE, RESET_OUTSIDE] {
            for (opener, other, opening) in sides {
                let events = [(opener, Event::Syn), (opener, Event::Other), (other, Event::Syn)];
                let expected = [(name(opening), true), (name(opening), false), ("established", true)];
                assert_eq!(path(state, &events), expected, "{}", name(state));
            }
        }
    }

    #[test]
    fn what_was_reset_is_established_again_only_if_both_sides_go_on() {
        let (inside, outside) = ((Side::Inside, Event::Other), (Side::Outside, Event::Other));
        let reset = (Side::Inside, Event::Rst);
        for late in [inside, outside] {
            for before in [ESTABLISHED, INSIDE_FIN, OUTSIDE_FIN, TRANS] {
                let path = path(before, &[reset, late, late, late, reset]);
                assert_eq!(path[0], ("reset", true));
                assert!(path[1..].iter().all(|(name, refresh)| name.starts_with("reset") && !refresh), "{path:?}");
            }
        }
        // Somebody else has sent the RST: the hosts know nothing of it.
        assert_eq!(path(ESTABLISHED, &[reset, outside, inside])[2], ("established", true));
        assert_eq!(path(ESTABLISHED, &[reset, inside, outside])[2], ("established", true));
    }

    #[test]
    fn the_docs_have_the_table() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tcp-sessions.md");
        let text = std::fs::read_to_string(file).unwrap();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect())
            .collect();
        let words = [("SYN", Event::Syn), ("FIN", Event::Fin), ("RST", Event::Rst), ("other", Event::Other)];
        let mut checked = 0;
        for (state, name) in NAMES.iter().filter(|(_, name)| !["udp", "icmp"].contains(name)) {
            if name.starts_with("permission") {
                continue;
            }
            for (side, of_side) in [("inside", Side::Inside), ("outside", Side::Outside)] {
                for (word, event) in words {
                    let full = format!("{side} {word}");
                    let row = rows.iter().find(|row| row[0] == *name && [word, &full, "any"].contains(&row[1]));
                    let row = row.unwrap_or_else(|| panic!("{name}, {full}: not in the docs"));
                    let next = if row[2] == "same" { *state } else { named(row[2]).expect(row[2]) };
                    let expected = Step { next, refresh: row[3] == "anew" };
                    assert_eq!(step(*state, of_side, event), expected, "{row:?}");
                    assert!(row[4].starts_with("RFC"), "{row:?}");
                    checked += 1;
                }
            }
        }
        assert_eq!(checked, 11 * 8);
    }
}

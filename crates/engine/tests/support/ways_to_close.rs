//! The rows of `docs/tcp-sessions.md`, "Ways to close".

/// A row.
pub struct Way {
    pub what: String,
    pub steps: Vec<Step>,
    /// The session's state in the end.
    pub state: String,
    /// Seconds until the session goes if nothing follows.
    pub seconds: u64,
}

/// What happens next.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// A packet from inside, by its flags, and whether it has data.
    Inside(u8, bool),
    /// The same from outside.
    Outside(u8, bool),
    /// So many seconds of silence.
    Pause(u64),
}

/// All rows.
pub fn ways() -> Vec<Way> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tcp-sessions.md");
    let text = std::fs::read_to_string(file).unwrap();
    let (_, table) = text.split_once("## Ways to close").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #"));
    let ways: Vec<_> = rows.map(way).collect();
    assert!(ways.len() >= 20, "only {} ways", ways.len());
    ways
}

fn way(row: &str) -> Way {
    let cells: Vec<_> = row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
    Way {
        what: cells[1].into(),
        steps: cells[2].split(' ').map(step).collect(),
        state: cells[3].into(),
        seconds: cells[4].parse().unwrap(),
    }
}

fn step(word: &str) -> Step {
    if let Some(seconds) = word.strip_suffix('s') {
        return Step::Pause(seconds.parse().unwrap());
    }
    let names = word.trim_matches(['<', '>']);
    let flags = names.split('+').map(|name| match name {
        "FIN" => 1,
        "SYN" => 2,
        "RST" => 4,
        "ACK" | "DATA" => 16,
        other => panic!("{other}"),
    });
    let (flags, data) = (flags.fold(0, |all, flag| all | flag), names.contains("DATA"));
    if word.ends_with('>') { Step::Inside(flags, data) } else { Step::Outside(flags, data) }
}

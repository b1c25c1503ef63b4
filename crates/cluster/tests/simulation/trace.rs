//! The last lines of what has happened, for a person who looks for the fault of a seed.
//!
//! ```text
//!   19.106336 n0 does Register
//!   19.639546 n0 hears NodeGone(n0)
//!   19.642489 n0 hears Registered { lease: 3, created: r14, sent: 439362347 }
//!   19.644161 etcd carries out 1 at r15
//! ```

use std::collections::VecDeque;

/// Lines that are kept.
const LINES: usize = 4000;
/// Lines that are printed.
const PRINTED: usize = 4000;
/// Types whose names say nothing that the place does not say, and what stands for them.
const SHORT: [(&str, &str); 6] =
    [("Node(", "n"), ("Epoch(", "e"), ("Revision(", "r"), ("Moment(", ""), ("Number(", ""), ("Lease(", "")];

#[derive(Debug)]
struct Line {
    /// The slice that it is about; of none, or of several.
    slice: Option<u16>,
    text: String,
}

#[derive(Debug, Default)]
pub(crate) struct Trace(Option<VecDeque<Line>>);

impl Trace {
    pub(crate) fn new(is_kept: bool) -> Self {
        Self(is_kept.then(VecDeque::new))
    }

    pub(crate) const fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn note(&mut self, now: u64, slice: Option<u16>, line: impl FnOnce() -> String) {
        let Some(lines) = &mut self.0 else { return };
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(Line { slice, text: format!("{:>11.6} {}", now as f64 / 1e6, shortened(&line())) });
    }

    /// The last lines that are about a slice, or about all of them.
    pub(crate) fn about(&self, slice: Option<u16>) -> Vec<&str> {
        let lines = self.0.iter().flatten();
        let is_about = |line: &&Line| line.slice.is_none() || slice.is_none() || line.slice == slice;
        let mut texts: Vec<_> = lines.filter(is_about).map(|line| line.text.as_str()).collect();
        texts.split_off(texts.len().saturating_sub(PRINTED))
    }
}

/// `Epoch(3)` becomes `e3`.
fn shortened(line: &str) -> String {
    SHORT.iter().fold(line.to_owned(), |line, (name, short)| {
        let mut parts = line.split(name);
        let mut result = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (number, rest) = part.split_once(')').unwrap_or((part, ""));
            result += short;
            result += number;
            result += rest;
        }
        result
    })
}

#[test]
fn numbers_stand_without_their_types() {
    assert_eq!(shortened("Vouched(Node(2)), Some(Epoch(31)), Holds(1)"), "Vouched(n2), Some(e31), Holds(1)");
}

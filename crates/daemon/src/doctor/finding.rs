//! What stands in packets' way, and what mends it.

use std::net::{IpAddr, Ipv4Addr};

/// How grave something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gravity {
    /// Packets do not pass.
    Fault,
    /// Some do not, or not for long, or not under all circumstances.
    Warning,
}

/// What mends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cure {
    /// A line for the shell.
    Line(String),
    /// What a person has to do.
    Words(String),
}

/// Something that stands in packets' way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How grave it is.
    pub gravity: Gravity,
    /// What was looked at.
    pub subject: &'static str,
    /// What was found.
    pub found: String,
    /// What mends it.
    pub cure: Cure,
}

impl Finding {
    pub(super) fn fault(subject: &'static str, found: String, line: String) -> Self {
        Self { gravity: Gravity::Fault, subject, found, cure: Cure::Line(line) }
    }

    pub(super) fn warning(subject: &'static str, found: String, line: String) -> Self {
        Self { gravity: Gravity::Warning, subject, found, cure: Cure::Line(line) }
    }

    pub(super) fn with_words(self, words: &str) -> Self {
        Self { cure: Cure::Words(words.to_owned()), ..self }
    }
}

/// Who sends and receives, as far as somebody knows.
#[derive(Debug, Clone, Default)]
pub struct Ends {
    /// Hosts inside.
    pub inside: Vec<IpAddr>,
    /// A host outside.
    pub remote: Option<Ipv4Addr>,
}

/// What was found, and what could not be looked at.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What stands in the way, in the order of the ways.
    pub findings: Vec<Finding>,
    /// Ways that were walked by a packet.
    pub probed: usize,
    /// What was not looked at, and why.
    pub left_out: Vec<String>,
}

impl Report {
    /// What one line mends is told once, however many ways it stands in.
    pub(super) fn add(&mut self, finding: Finding) {
        let is_told = self.findings.iter().any(|told| match &finding.cure {
            Cure::Line(_) => told.cure == finding.cure,
            Cure::Words(_) => *told == finding,
        });
        if !is_told {
            self.findings.push(finding);
        }
    }
}

//! Why a packet went the way it went: decisions, each with the clause that it rests on.
//!
//! Off unless somebody asks ([`Engine::explain`](crate::Engine::explain)); then a note costs a test
//! of a pointer, and its text is never made.

use std::fmt;

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What was decided, and from what.
    pub text: String,
    /// The clause behind it; empty where there is none.
    pub clause: &'static str,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if self.clause.is_empty() { Ok(()) } else { write!(f, " ({})", self.clause) }
    }
}

/// The decisions about one packet, in the order in which they were made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    steps: Vec<Step>,
}

impl Trace {
    /// The decisions.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

/// Where decisions are noted, if anywhere.
#[derive(Debug, Default)]
pub(crate) struct Notes<'a>(pub(crate) Option<&'a mut Trace>);

impl Notes<'_> {
    /// The same place, lent to somebody else.
    pub(crate) fn lend(&mut self) -> Notes<'_> {
        Notes(self.0.as_deref_mut())
    }

    /// False if notes are thrown away.
    #[inline]
    pub(crate) const fn are_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Notes a decision; `text` is made only if somebody asked.
    #[inline]
    pub(crate) fn add(&mut self, clause: &'static str, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.0 {
            trace.steps.push(Step { text: text(), clause });
        }
    }
}

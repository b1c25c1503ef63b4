//! One thing that a doctor has looked at.

use serde::Serialize;

use super::print;

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Ok,
    Warning,
    /// Packets do not pass.
    Fault,
    Missing,
}

/// What was looked at, and what was found.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) check: String,
    pub(super) state: State,
    pub(super) found: String,
    /// What works without it, or what does not.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) without: &'static str,
    /// What is to be done about it, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) remedy: String,
    /// The line for the shell that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<String>,
}

impl Check {
    pub(super) fn ok(check: &str, found: impl Into<String>) -> Self {
        let (check, found) = (check.into(), found.into());
        Self { check, state: State::Ok, found, without: "", remedy: String::new(), run: None }
    }

    pub(super) fn lacks(
        check: &str,
        state: State,
        found: impl Into<String>,
        without: &'static str,
        remedy: &str,
    ) -> Self {
        Self { state, without, remedy: remedy.to_owned(), ..Self::ok(check, found) }
    }

    /// It is printed for people.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let mark = match self.state {
            State::Ok => "ok      ",
            State::Warning => "warning ",
            State::Fault => "FAULT   ",
            State::Missing => "MISSING ",
        };
        print::line(&format!("{mark} {:16} {}", self.check, self.found))?;
        let more = |name: &str, text: &str| match text {
            "" => Ok(()),
            text => print::line(&format!("{:25} {name}: {text}", "")),
        };
        more("without it", self.without)?;
        more("remedy", &self.remedy)?;
        more("run", self.run.as_deref().unwrap_or_default())
    }
}

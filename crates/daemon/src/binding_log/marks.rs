//! What the log says of itself, in lines of its own: where it begins, who writes it, how far it is
//! complete, and what it lacks. Who reads it knows by them what is certain.

use serde::{Deserialize, Serialize};

use crate::utc::Utc;

/// A line about the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// When it was written.
    pub time: Utc,
    /// What it says.
    #[serde(flatten)]
    pub kind: MarkKind,
}

/// What a line about the log says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum MarkKind {
    /// A file begins.
    Begin {
        /// The hash of the last line of the file before, zeros if there is none.
        previous: String,
    },
    /// A gateway begins to write.
    Start {
        /// Name of its device.
        gateway: String,
        /// Its version.
        version: String,
        /// What it has found of earlier processes.
        state: StateFound,
        /// Which run of the system it is in.
        boot: String,
        /// Seconds of the clock that nobody sets.
        uptime: u64,
        /// Bytes that an earlier process has left of a line, which it did not complete.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        torn: Option<u64>,
    },
    /// All goes on: everything that began or ended until then has been written.
    Complete {
        /// Until when.
        until: Utc,
        /// Seconds of the clock that nobody sets.
        uptime: u64,
    },
    /// Events between the two times could not be logged.
    Lost {
        /// How many.
        count: u64,
        /// From when on.
        from: Utc,
    },
    /// Somebody has set the clock.
    ClockSet {
        /// What it would show now if nobody had.
        before: Utc,
    },
    /// Whatever was open has ended, by now at the latest.
    AllRemoved,
    /// The gateway ends, and everything has been written.
    Stop {
        /// What becomes of what is open.
        state: StateLeft,
    },
}

impl MarkKind {
    /// The name of the event.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Begin { .. } => "begin",
            Self::Start { .. } => "start",
            Self::Complete { .. } => "complete",
            Self::Lost { .. } => "lost",
            Self::ClockSet { .. } => "clock-set",
            Self::AllRemoved => "all-removed",
            Self::Stop { .. } => "stop",
        }
    }
}

/// What a gateway has found of earlier processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateFound {
    /// Nothing: what they had open has ended.
    None,
    /// Tables. What goes on is logged as `adopted`.
    Tables,
}

/// What becomes of what is open when a gateway ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateLeft {
    /// It has ended.
    None,
    /// It is kept for the next start.
    Tables,
    /// The gateway goes on with it, and logs it no more.
    InUse,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_back_as_they_were_written() {
        let start = |torn| MarkKind::Start {
            gateway: "tombolo".into(),
            version: "0.1.0".into(),
            state: StateFound::Tables,
            boot: "1".into(),
            uptime: 50,
            torn,
        };
        for kind in [
            MarkKind::Begin { previous: "00".into() },
            start(None),
            start(Some(3)),
            MarkKind::Complete { until: Utc(90), uptime: 60 },
            MarkKind::Lost { count: 7, from: Utc(90) },
            MarkKind::ClockSet { before: Utc(50) },
            MarkKind::AllRemoved,
            MarkKind::Stop { state: StateLeft::None },
        ] {
            let mark = Mark { time: Utc(100), kind };
            let text = serde_json::to_string(&mark).unwrap();
            assert_eq!(serde_json::from_str::<Mark>(&text).unwrap(), mark, "{text}");
            assert!(text.contains(&format!("\"event\":\"{}\"", mark.kind.name())), "{text}");
        }
        let mark = Mark { time: Utc(0), kind: MarkKind::Lost { count: 2, from: Utc(0) } };
        assert_eq!(
            serde_json::to_string(&mark).unwrap(),
            "{\"time\":\"1970-01-01T00:00:00Z\",\"event\":\"lost\",\"count\":2,\"from\":\"1970-01-01T00:00:00Z\"}"
        );
    }
}

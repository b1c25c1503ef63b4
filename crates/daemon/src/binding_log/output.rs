//! Where the log is written to, and what it says of itself there.

use std::sync::Arc;

use super::collectors::Collectors;
use super::event::Event;
use super::file::{Found, LogFile};
use super::losses::Losses;
use super::marks::{Mark, MarkKind, StateFound};
use super::record::{Change, Record};
use crate::health::Health;
use crate::utc::{Moment, Utc};

/// The part of the gateway that health reports name.
const PART: &str = "binding log";

/// The file, and what it lacks.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) file: LogFile,
    losses: Arc<Losses>,
    /// Losses that the file tells of,
    told: u64,
    /// and those of a line that is not written yet: how many, and since when.
    telling: Option<(u64, Utc)>,
    /// Events whose lines are not written yet.
    kept: u64,
    /// Everything until then has been written.
    complete: Utc,
    /// Lines about what is there were lost.
    has_forgotten: bool,
    pub(super) collectors: Collectors,
    /// Lines that they do not have yet.
    records: Vec<Record>,
    health: Arc<Health>,
    has_failed: bool,
}

impl Output {
    /// Of a gateway that begins `now`.
    pub(super) fn new(
        file: LogFile,
        collectors: Collectors,
        losses: Arc<Losses>,
        health: Arc<Health>,
        now: Utc,
    ) -> Self {
        Self {
            file,
            told: losses.count(),
            losses,
            telling: None,
            kept: 0,
            complete: now,
            has_forgotten: false,
            collectors,
            records: Vec::new(),
            health,
            has_failed: false,
        }
    }

    /// A gateway begins to write, after what was `found`.
    pub(super) fn start(&mut self, found: Found, kind: MarkKind, now: Utc) {
        self.record_begin(now);
        let has_ended = matches!(kind, MarkKind::Start { state: StateFound::None, .. });
        self.mark(now, kind);
        if has_ended && found.has_lines {
            self.mark(now, MarkKind::AllRemoved);
        }
        self.flush();
        self.sync();
    }

    /// Goes on in another file, whose chain goes on from this one's unless it has one of its own.
    pub(super) fn exchange(&mut self, file: LogFile, now: Utc) {
        self.flush();
        self.sync();
        let before = self.file.chain();
        self.file = file;
        self.file.begin_after(before, now);
    }

    /// Writes what happened to a binding or a block.
    pub(super) fn event(&mut self, event: &Event<'_>) {
        self.file.add(event);
        self.kept += 1;
        if !self.collectors.is_empty() {
            let (time, name) = event.head();
            self.record(time, name, Some(Change::of(event)));
        }
        if self.file.is_full() {
            self.flush();
        }
    }

    /// Writes what the log says of itself.
    pub(super) fn mark(&mut self, time: Utc, kind: MarkKind) {
        let name = kind.name();
        self.file.add(&Mark { time, kind });
        if !self.collectors.is_empty() {
            self.record(time, name, None);
        }
    }

    /// The line with which a file has begun, if one has.
    fn record_begin(&mut self, now: Utc) {
        if self.file.has_begun() && !self.collectors.is_empty() {
            self.record(now, "begin", None);
        }
    }

    /// The line that was added last, for collectors.
    fn record(&mut self, time: Utc, event: &'static str, change: Option<Change>) {
        self.records.push(Record { time, event, line: self.file.line().into(), change });
    }

    /// Goes on in a new file if this one was moved away, and tells what was lost.
    pub(super) fn begin_step(&mut self, now: Utc) {
        let followed = self.file.follow(now);
        self.record_begin(now);
        self.note(followed);
        if self.telling.is_none()
            && let Some((count, from)) = self.losses.behind(self.told)
        {
            self.telling = Some((count, from));
            self.mark(now, MarkKind::Lost { count, from });
        }
    }

    /// Writes what is kept. What cannot be written is lost.
    pub(super) fn flush(&mut self) {
        if !self.records.is_empty() {
            self.collectors.send(std::mem::take(&mut self.records));
        }
        let result = self.file.flush();
        let kept = std::mem::take(&mut self.kept);
        match (self.telling.take(), result.is_ok()) {
            (Some((count, _)), true) => self.told += count,
            // To be told again.
            (Some((_, from)), false) => self.losses.add(0, from),
            (None, _) => {}
        }
        if result.is_err() && kept > 0 {
            self.losses.add(kept, self.complete);
            self.has_forgotten = true;
        }
        self.note(result);
    }

    /// Says that everything until then has been written, and is on the disk; unless something is lost
    /// that the log does not tell of yet.
    pub(super) fn complete(&mut self, moment: Moment, until: Utc) {
        if self.losses.count() > self.told {
            return;
        }
        self.sync();
        self.mark(moment.utc, MarkKind::Complete { until, uptime: moment.uptime() });
        self.flush();
        self.complete = until;
    }

    /// True once after lines were lost: whatever is there has to be said again.
    pub(super) fn has_forgotten(&mut self) -> bool {
        !self.has_failed && std::mem::take(&mut self.has_forgotten)
    }

    /// What was written is on the disk.
    pub(super) fn sync(&mut self) {
        if let Err(error) = self.file.sync() {
            self.note(Err(error));
        }
    }

    /// Says it where the file cannot be written any more, and where it can again.
    fn note(&mut self, result: std::io::Result<()>) {
        if result.is_ok() != self.has_failed {
            return;
        }
        let path = self.file.path().display();
        let faults = result.err().map(|error| format!("{path} cannot be written, so events are lost: {error}"));
        self.has_failed = faults.is_some();
        self.health.set(PART, faults.into_iter().collect());
    }
}

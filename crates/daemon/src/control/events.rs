//! What has happened, and what happens, in rows: the lines of the log, and bindings and blocks as they come
//! and go.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, UNIX_EPOCH};

use humantime::{format_rfc3339_micros, format_rfc3339_seconds};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tombolo_engine::Plan;

use super::request::Happened;
use super::rows::{Failure, Rows};
use crate::binding_log::blocks::BlockWalk;
use crate::binding_log::event::{BindingEvent, BlockEvent};
use crate::binding_log::removals::Removal;
use crate::events::{self, Event};
use crate::running::Running;
use crate::utc::Moment;

/// How often is looked for something new.
const PERIOD: Duration = Duration::from_millis(100);
/// Events about bindings in a second, unless something else is asked for.
const RATE: u64 = 1000;
/// How often bindings are looked at.
const WALK: Duration = Duration::from_secs(1);

/// An event.
#[derive(Debug, Serialize)]
struct EventRow<'e> {
    time: String,
    level: &'e str,
    part: &'e str,
    event: &'e str,
    #[serde(skip_serializing_if = "Map::is_empty")]
    details: Map<String, Value>,
}

/// Shows the last events, and then those that come, if they are wanted.
pub(crate) fn events(running: &Running, wanted: &Happened, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let all = events::count();
    let mut next = all.saturating_sub(wanted.limit.unwrap_or(if wanted.follow { 10 } else { u64::MAX }));
    if !wanted.follow {
        // What is kept no more is not missing.
        return events::since(next).0.iter().try_for_each(|event| rows.row(&row(event)));
    }
    let mut bindings = wanted.bindings.then(|| Bindings::begin(running));
    let until = Instant::now() + Duration::from_secs(wanted.seconds.unwrap_or(86_400).min(86_400));
    rows.row(&json!({ "begun": { "kept": all } }))?;
    next = next.max(all.saturating_sub(events::KEPT as u64));
    rows.follow(until, PERIOD, |rows| {
        let (found, forgotten) = events::since(next);
        found.iter().try_for_each(|event| rows.row(&row(event)))?;
        next += found.len() as u64 + forgotten;
        let mut lost = forgotten;
        if let Some(bindings) = &mut bindings {
            lost += bindings.show(running, wanted.rate.map_or(RATE, u64::from), rows)?;
        }
        Ok((lost, true))
    })
}

fn row(event: &Event) -> EventRow<'_> {
    let Event { time, level, part, words, details } = event;
    let time = format_rfc3339_micros(*time).to_string();
    EventRow { time, level, part, event: words, details: details.clone() }
}

/// Bindings and blocks as they come and go, for one who follows. New ones are found in the tables, each
/// once; of the ends, whoever removes a binding speaks.
struct Bindings {
    removed: Receiver<Removal>,
    /// Bindings that were made before this tick have been shown.
    from: u32,
    blocks: BlockWalk,
    walked: Option<Instant>,
    /// Events of this second.
    shown: u64,
}

impl Bindings {
    fn begin(running: &Running) -> Self {
        let moment = Moment::current();
        let mut blocks = BlockWalk::new(moment.utc);
        // What is there already has not happened now.
        blocks.walk(&running.tables, &running.plan.load(), moment, &mut |_: &BlockEvent<'_>| ());
        let (removed, from) = (running.removals.follow(), moment.now.tick().0);
        Self { removed, from, blocks, walked: None, shown: 0 }
    }

    /// Shows what is new, at most `rate` events a second. Says how many more there were.
    fn show(&mut self, running: &Running, rate: u64, rows: &mut Rows<'_>) -> Result<u64, Failure> {
        let (plan, moment) = (running.plan.load_full(), Moment::current());
        let (mut lost, mut failure) = (0, None);
        let is_due = self.walked.is_none_or(|walked| walked.elapsed() >= WALK);
        if is_due {
            (self.walked, self.shown) = (Some(Instant::now()), 0);
        }
        let shown = &mut self.shown;
        let mut show = |event: &Value| {
            if *shown >= rate {
                lost += 1;
            } else if failure.is_none() {
                *shown += 1;
                failure = rows.row(&row_of(event)).err();
            }
        };
        if is_due {
            self.blocks.walk(&running.tables, &plan, moment, &mut |event: &BlockEvent<'_>| show(&json!(event)));
            // Of the tick that goes on there may be more.
            let until = moment.now.tick().0;
            let tables = &running.tables;
            for (binding, _) in tables.bindings.iter().filter_map(|id| tables.bindings.read(id)) {
                let age = until.wrapping_sub(binding.created.0);
                if (1..=until.wrapping_sub(self.from)).contains(&age) {
                    show(&json!(BindingEvent::begun(&plan, "created", &binding, moment)));
                }
            }
            self.from = until;
        }
        removed(&self.removed, &plan, moment, &mut show);
        failure.map_or(Ok(lost), Err)
    }
}

fn removed(removed: &Receiver<Removal>, plan: &Plan, moment: Moment, show: &mut dyn FnMut(&Value)) {
    for Removal { binding, at } in removed.try_iter() {
        show(&json!(BindingEvent::removed(plan, &binding, at, moment)));
    }
}

/// The row of a line as the log of bindings has it.
fn row_of(line: &Value) -> EventRow<'_> {
    let mut details = line.as_object().cloned().unwrap_or_default();
    let time = details.remove("time").and_then(|time| Some(time.as_str()?.to_owned()));
    details.remove("event");
    let time = time.unwrap_or_else(|| format_rfc3339_seconds(UNIX_EPOCH).to_string());
    EventRow { time, level: "info", part: "bindings", event: line["event"].as_str().unwrap_or_default(), details }
}

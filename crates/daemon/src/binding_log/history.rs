//! Who had an outside endpoint at some time, out of the lines of the log, as far as that is certain.
//!
//! A line that something was removed tells of the whole time that it was there. Of what only has a line
//! that it began, it is certain up to the last time until which the log says that it is complete; and no
//! longer if events were lost, if the gateway ended without a word, or if the tables were discarded.
//! `adopted` says that it was there all the time. Nobody had the endpoint for certain only where the log
//! is complete.

use std::io::{self, BufRead};
use std::net::{IpAddr, Ipv4Addr};

use serde::Deserialize;

use tombolo_engine::mapping::pool::PortSpace;

use super::marks::{Mark, MarkKind, StateFound, StateLeft};
use crate::table_rows::protocol_named;
use crate::utc::Utc;

/// Seconds by which two lines may differ about when the same binding was made.
const TICK: u64 = 2;

/// Who had it, as a line has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Name of the service.
    pub service: String,
    /// Its address inside.
    pub inside: IpAddr,
    /// Its port inside; none if the line is about a block of ports.
    pub inside_port: Option<u16>,
    /// The softwire that it is behind.
    pub softwire: Option<IpAddr>,
}

/// Who had an endpoint, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Who.
    pub holder: Holder,
    /// From when on.
    pub since: Utc,
    /// When it ended, if the log has that.
    pub ended: Option<Utc>,
    /// Until when it is certain.
    pub certain_until: Utc,
}

/// What the log knows of a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It was this one's.
    Held(Held),
    /// It was nobody's.
    Nobody,
    /// It is not certain whose it was.
    Uncertain {
        /// Who had it before, and may have had it still.
        last: Option<Held>,
        /// Why that is not known.
        why: String,
    },
}

/// An endpoint and a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Outside address.
    pub address: Ipv4Addr,
    /// Outside port or identifier.
    pub port: u16,
    /// When.
    pub time: Utc,
}

/// The lines of a log that matter for a question.
#[derive(Debug)]
pub struct History {
    question: Question,
    /// How lines that may be about it have its address and port.
    marks: [String; 2],
    /// By protocol, in the order of [`PortSpace::ALL`].
    bindings: [Spans; PortSpace::ALL.len()],
    blocks: Spans,
    coverage: Coverage,
}

/// Where the bindings of the protocol with this name are.
fn place_of(protocol: &str) -> Option<usize> {
    protocol_named(protocol).map(|space| space as usize)
}

/// A line about a binding.
#[derive(Debug, Deserialize)]
struct BindingLine {
    time: Utc,
    event: String,
    service: String,
    protocol: String,
    inside: IpAddr,
    inside_port: u16,
    softwire: Option<IpAddr>,
    outside: Ipv4Addr,
    outside_port: u16,
    created: Option<Utc>,
}

/// A line about a block of ports.
#[derive(Debug, Deserialize)]
struct BlockLine {
    time: Utc,
    event: String,
    service: String,
    inside: IpAddr,
    softwire: Option<IpAddr>,
    outside: Ipv4Addr,
    first_port: u16,
    last_port: u16,
    created: Option<Utc>,
}

impl History {
    /// Of no lines yet.
    #[must_use]
    pub fn new(question: Question) -> Self {
        let Question { address, port, .. } = question;
        Self {
            question,
            marks: [format!("\"outside\":\"{address}\","), format!("\"outside_port\":{port}")],
            bindings: Default::default(),
            blocks: Spans::default(),
            coverage: Coverage::default(),
        }
    }

    /// Reads all lines of a log.
    ///
    /// # Errors
    /// What reading says.
    pub fn read(&mut self, mut lines: impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            // What was torn apart is no line.
            if let Ok(text) = std::str::from_utf8(&line) {
                self.line(text.trim_end());
            }
            line.clear();
        }
        Ok(())
    }

    /// Reads the next line. Most are about others, and cost little.
    pub fn line(&mut self, line: &str) {
        if line.contains("\"event\":\"session-") {
            // Of a binding that has lines of its own.
        } else if line.contains("\"service\":") {
            let [address, port] = &self.marks;
            match line.contains(address) {
                true if line.contains(port) => self.binding(line),
                true if line.contains("\"first_port\":") => self.block(line),
                _ => {}
            }
        } else if let Ok(mark) = serde_json::from_str::<Mark>(line) {
            self.coverage.mark(&mark);
            self.bindings.iter_mut().chain([&mut self.blocks]).for_each(|spans| spans.mark(&mark));
        }
    }

    fn binding(&mut self, line: &str) {
        let Ok(line) = serde_json::from_str::<BindingLine>(line) else { return };
        let Question { address, port, .. } = self.question;
        let protocol = place_of(&line.protocol);
        let Some(protocol) = protocol.filter(|_| line.outside == address && line.outside_port == port) else { return };
        let BindingLine { time, service, inside, softwire, created, .. } = line;
        let holder = Holder { service, inside, inside_port: Some(line.inside_port), softwire };
        let spans = &mut self.bindings[protocol];
        match line.event.as_str() {
            "removed" => spans.ended(holder, created, time),
            // The table knew when it was made, so that it is the same one if that is the same.
            _ => spans.begun(holder, time, |span| span.since.0.abs_diff(time.0) <= TICK),
        }
        spans.not_before(self.coverage.set.last());
    }

    fn block(&mut self, line: &str) {
        let Ok(line) = serde_json::from_str::<BlockLine>(line) else { return };
        let Question { address, port, .. } = self.question;
        if line.outside != address || !(line.first_port..=line.last_port).contains(&port) {
            return;
        }
        let BlockLine { time, service, inside, softwire, created, .. } = line;
        let holder = Holder { service, inside, inside_port: None, softwire };
        match line.event.as_str() {
            "block-released" => self.blocks.ended(holder, created, time),
            // Nobody knows when it was granted. Only if the gateway before has ended in order, and left its
            // tables, it cannot have been somebody else's meanwhile. Of a block that was another node's of a cluster, and is this
            // one's by now, it is known.
            "block-adopted" => self.blocks.begun(holder, time, |span| {
                span.doubt == Some(Doubt::Restarted) || span.doubt.is_none() && span.since == time
            }),
            _ => self.blocks.begun(holder, time, |_| false),
        }
        self.blocks.not_before(self.coverage.set.last());
    }

    /// Whose binding of this protocol the endpoint was.
    #[must_use]
    pub fn binding_of(&self, protocol: &str) -> Answer {
        place_of(protocol).map_or(Answer::Nobody, |place| self.answer(&self.bindings[place]))
    }

    /// In whose block of ports it was.
    #[must_use]
    pub fn block_of(&self) -> Answer {
        self.answer(&self.blocks)
    }

    fn answer(&self, spans: &Spans) -> Answer {
        let time = self.question.time;
        if let Some((first, last)) = self.coverage.set.iter().find(|(first, last)| (*first..=*last).contains(&time)) {
            let why = format!("the clock was set, so that times from {first} to {last} may mean two moments");
            return Answer::Uncertain { last: None, why };
        }
        let mut certain = spans.0.iter().filter(|span| span.certain_from <= time && time <= span.certain_until());
        if let Some(span) = certain.next_back() {
            return match certain.find(|other| other.holder != span.holder) {
                None => Answer::Held(span.held()),
                Some(_) => Answer::Uncertain { last: None, why: "it changed hands in that very second".to_owned() },
            };
        }
        if let Some(span) = spans.0.iter().rev().find(|span| span.may_be(time)) {
            // Of one that has an end only the beginning is uncertain.
            let doubt = if span.ended.is_some() { Some(Doubt::Clock) } else { span.doubt };
            return Answer::Uncertain { last: Some(span.held()), why: self.why(doubt, time) };
        }
        match self.coverage.lacks(time) {
            None => Answer::Nobody,
            Some(why) => Answer::Uncertain { last: None, why },
        }
    }

    /// Why somebody who had it may not have had it any more.
    fn why(&self, doubt: Option<Doubt>, time: Utc) -> String {
        match doubt {
            Some(Doubt::Lost) => "the log has lost events, its end may be one of them".to_owned(),
            Some(Doubt::Stopped | Doubt::Restarted | Doubt::NotFound) => {
                "the gateway was started anew, and did not find it again".to_owned()
            }
            Some(Doubt::Killed) => "the gateway has ended without a word, and its end may be missing".to_owned(),
            Some(Doubt::Discarded) => "the tables were discarded at some time before the next start".to_owned(),
            Some(Doubt::Unlogged) => "the log was switched off for a time, and its end may have been then".to_owned(),
            Some(Doubt::Taken) => "its end is not in the log, and somebody else had it later".to_owned(),
            Some(Doubt::Clock) => "the clock was set while it had it".to_owned(),
            None => self.coverage.lacks(time).unwrap_or_else(|| "its end may not be in the log yet".to_owned()),
        }
    }
}

/// Why it is not certain how long somebody had an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// Events were lost.
    Lost,
    /// The gateway has ended in order and left its tables.
    Stopped,
    /// And another one has begun,
    Restarted,
    /// which did not find it.
    NotFound,
    /// It has ended without a word.
    Killed,
    /// The tables are gone.
    Discarded,
    /// The log was switched off.
    Unlogged,
    /// Somebody else had it, or the same one anew.
    Taken,
    /// The clock was set, and so the next lines have other times.
    Clock,
}

/// A time in which somebody had the endpoint.
#[derive(Debug)]
struct Span {
    holder: Holder,
    since: Utc,
    /// What the last line has that it began.
    renewed: Utc,
    /// From when on it is certain.
    certain_from: Utc,
    ended: Option<Utc>,
    /// It is certain up to here, if it has no end.
    certain: Utc,
    /// From when on it is certain that it had ended.
    gone: Option<Utc>,
    /// Why it is not certain any longer.
    doubt: Option<Doubt>,
}

impl Span {
    fn new(holder: Holder, since: Utc, ended: Option<Utc>) -> Self {
        Self { holder, since, renewed: since, certain_from: since, ended, certain: since, gone: None, doubt: None }
    }

    fn certain_until(&self) -> Utc {
        self.ended.unwrap_or(self.certain)
    }

    /// It may have been there then, although that is not certain.
    fn may_be(&self, time: Utc) -> bool {
        let may_be_still = match self.ended {
            None => self.gone.is_none_or(|gone| time <= gone),
            Some(_) => time < self.certain_from,
        };
        self.since <= time && may_be_still
    }

    fn held(&self) -> Held {
        let Self { holder, since, ended, .. } = self;
        Held { holder: holder.clone(), since: *since, ended: *ended, certain_until: self.certain_until() }
    }

    /// Nothing makes it certain for longer, but for a line about itself.
    fn doubt(&mut self, why: Doubt) {
        if self.ended.is_none() {
            self.doubt.get_or_insert(why);
        }
    }

    fn gone_by(&mut self, time: Utc) {
        if self.ended.is_none() {
            self.gone = Some(self.gone.map_or(time, |gone| gone.min(time)).max(self.certain));
        }
    }
}

/// The times of an endpoint, in the order of the lines.
#[derive(Debug, Default)]
struct Spans(Vec<Span>);

impl Spans {
    /// Somebody has it, since `time`. It goes on from an earlier line if `is_same`.
    fn begun(&mut self, holder: Holder, time: Utc, is_same: impl Fn(&Span) -> bool) {
        let same = |span: &Span| span.ended.is_none() && span.gone.is_none() && span.holder == holder && is_same(span);
        if let Some(span) = self.0.iter_mut().rev().find(|span| same(span)) {
            (span.doubt, span.renewed) = (None, time);
            span.certain = span.certain.max(time);
            return;
        }
        for span in &mut self.0 {
            span.doubt(Doubt::Taken);
            if span.since <= time {
                span.gone_by(time);
            }
        }
        self.0.push(Span::new(holder, time, None));
    }

    /// Somebody had it until `time`, since `created` if that is known.
    fn ended(&mut self, holder: Holder, created: Option<Utc>, time: Utc) {
        let is_same = |span: &Span| {
            let made = |created: Utc| [span.since, span.renewed].iter().any(|time| time.0.abs_diff(created.0) <= TICK);
            span.ended.is_none() && span.holder == holder && span.since <= time && created.is_none_or(made)
        };
        if let Some(span) = self.0.iter_mut().rev().find(|span| is_same(span)) {
            let since = created.map_or(span.since, |created| created.min(span.since));
            // Lines differ by a second about when that was.
            if span.since.0 - since.0 <= TICK {
                (span.since, span.certain_from) = (since, span.certain_from.min(since));
            }
            span.ended = Some(time.max(span.since));
            span.gone = None;
            return;
        }
        let since = created.unwrap_or(time);
        for span in self.0.iter_mut().filter(|span| span.ended.is_none() && span.since <= time) {
            span.doubt(Doubt::Taken);
            span.gone_by(since.max(span.since));
        }
        self.0.push(Span::new(holder, since, Some(time)));
    }

    /// The clock was set, over these times. How old something is that a line begins with was counted back
    /// from the time of that line, over the moment at which that happened: so much is uncertain of it.
    fn not_before(&mut self, set: Option<&(Utc, Utc)>) {
        if let (Some(span), Some((_, last))) = (self.0.last_mut(), set) {
            span.certain_from = span.certain_from.max(*last);
        }
    }

    fn mark(&mut self, mark: &Mark) {
        let open = self.0.iter_mut().filter(|span| span.ended.is_none());
        match &mark.kind {
            MarkKind::Complete { until, .. } => open.for_each(|span| match span.doubt {
                None => span.certain = span.certain.max(*until),
                Some(Doubt::Restarted) => span.doubt = Some(Doubt::NotFound),
                Some(_) => {}
            }),
            MarkKind::Stop { state } => open.for_each(|span| match span.doubt {
                None => {
                    span.certain = span.certain.max(mark.time);
                    span.doubt = Some(match state {
                        StateLeft::Tables => Doubt::Stopped,
                        StateLeft::InUse => Doubt::Unlogged,
                        StateLeft::None => Doubt::Discarded,
                    });
                }
                Some(Doubt::Restarted) => span.doubt = Some(Doubt::NotFound),
                Some(_) => {}
            }),
            MarkKind::Start { state: StateFound::Tables, .. } => open.for_each(|span| match span.doubt {
                None | Some(Doubt::Restarted) => span.doubt = Some(Doubt::Killed),
                Some(Doubt::Stopped) => span.doubt = Some(Doubt::Restarted),
                Some(_) => {}
            }),
            MarkKind::Start { state: StateFound::None, .. } | MarkKind::AllRemoved => open.for_each(|span| {
                span.doubt(Doubt::Discarded);
                span.gone_by(mark.time);
            }),
            MarkKind::Lost { .. } => open.for_each(|span| match span.doubt {
                None | Some(Doubt::Restarted) => span.doubt = Some(Doubt::Lost),
                Some(_) => {}
            }),
            MarkKind::ClockSet { .. } => open.for_each(|span| match span.doubt {
                None | Some(Doubt::Restarted) => span.doubt = Some(Doubt::Clock),
                Some(_) => {}
            }),
            MarkKind::Begin { .. } => {}
        }
    }
}

/// When the log has everything.
#[derive(Debug, Default)]
struct Coverage {
    /// Times without a gap: the first and the last second.
    whole: Vec<(Utc, Utc)>,
    /// Since when there may be one that is not yet known to be whole.
    open: Option<Utc>,
    /// Times that two moments may have, since somebody has set the clock.
    set: Vec<(Utc, Utc)>,
    /// The first line.
    first: Option<Utc>,
    /// The latest one since the clock was set.
    latest: Option<Utc>,
    /// The run of the system that the last gateway was in.
    boot: String,
    /// By how many seconds the clock was ahead of the one that nobody sets.
    ahead: Option<u64>,
}

impl Coverage {
    fn mark(&mut self, mark: &Mark) {
        self.first.get_or_insert(mark.time);
        // Somebody has set it back while there was no gateway to say so.
        if let Some(latest) = self.latest.filter(|latest| mark.time.0 + TICK < latest.0) {
            self.clock_set(mark.time, latest);
        }
        self.latest = Some(self.latest.map_or(mark.time, |latest| latest.max(mark.time)));
        match &mark.kind {
            MarkKind::Complete { until, uptime } => {
                self.extend(*until);
                self.ahead = mark.time.0.checked_sub(*uptime);
            }
            MarkKind::Stop { .. } => {
                self.extend(mark.time);
                self.open = None;
            }
            MarkKind::Start { boot, uptime, .. } => {
                // The same while there was a gateway, unless the time after its last line had not been reached.
                if let Some(expected) = self.ahead.filter(|_| self.boot == *boot).map(|ahead| ahead + uptime)
                    && expected.abs_diff(mark.time.0) > TICK
                {
                    self.clock_set(mark.time.min(Utc(expected)), mark.time.max(Utc(expected)));
                }
                self.boot.clone_from(boot);
                (self.open, self.ahead) = (Some(mark.time), mark.time.0.checked_sub(*uptime));
            }
            MarkKind::Lost { from, .. } => {
                if let Some((_, last)) = self.whole.last_mut() {
                    *last = (*last).min(*from);
                }
                self.open = Some(mark.time);
            }
            MarkKind::ClockSet { before } => self.clock_set(mark.time.min(*before), mark.time.max(*before)),
            MarkKind::Begin { .. } | MarkKind::AllRemoved => {}
        }
    }

    fn clock_set(&mut self, first: Utc, last: Utc) {
        self.set.push((Utc(first.0.saturating_sub(TICK)), Utc(last.0 + TICK)));
        self.open = self.open.map(|_| last);
        self.latest = Some(first);
    }

    fn extend(&mut self, until: Utc) {
        let Some(open) = self.open.filter(|open| *open < until) else { return };
        match self.whole.last_mut() {
            Some((first, last)) if *first == open => *last = until,
            _ => self.whole.push((open, until)),
        }
    }

    /// What the log lacks of that time, in words.
    fn lacks(&self, time: Utc) -> Option<String> {
        if self.whole.iter().any(|(first, last)| *first < time && time <= *last) {
            return None;
        }
        let before = self.whole.iter().rev().find(|(_, last)| *last < time).map(|(_, last)| *last);
        let after = self.whole.iter().find(|(first, _)| *first >= time).map(|(first, _)| *first);
        Some(match (self.first, before, after) {
            (None, ..) => "there is no log of that time".to_owned(),
            (Some(first), None, _) if time <= first => format!("the log begins at {first}"),
            (_, Some(before), Some(after)) => format!("the log is not complete from {before} to {after}"),
            (_, Some(before), None) => format!("the log is complete only until {before}"),
            (_, None, Some(after)) => format!("the log is complete only from {after} on"),
            (_, None, None) => "the log does not say how far it is complete".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    fn mark(time: u64, kind: MarkKind) -> String {
        serde_json::to_string(&Mark { time: Utc(time), kind }).unwrap()
    }

    fn start(time: u64, state: StateFound) -> String {
        let (gateway, version, boot) = ("tombolo".into(), "0".into(), "1".into());
        mark(time, MarkKind::Start { gateway, version, state, boot, uptime: time - 40, torn: None })
    }

    fn complete(time: u64, until: u64) -> String {
        mark(time, MarkKind::Complete { until: Utc(until), uptime: time - 40 })
    }

    fn created(created: Option<u64>) -> String {
        created.map_or(String::new(), |created| format!(",\"created\":\"{}\"", Utc(created)))
    }

    fn binding(event: &str, time: u64, made: Option<u64>, inside_port: u16) -> String {
        format!(
            "{{\"time\":\"{}\",\"event\":\"{event}\",\"service\":\"nat64\",\"protocol\":\"udp\",\
             \"inside\":\"2001:db8::1\",\"inside_port\":{inside_port},\"outside\":\"192.0.2.1\",\
             \"outside_port\":4000{}}}",
            Utc(time),
            created(made)
        )
    }

    fn block(event: &str, time: u64, made: Option<u64>, host: u8) -> String {
        format!(
            "{{\"time\":\"{}\",\"event\":\"block-{event}\",\"service\":\"cgn\",\"inside\":\"10.0.0.{host}\",\
             \"outside\":\"192.0.2.1\",\"first_port\":3584,\"last_port\":4095{}}}",
            Utc(time),
            created(made)
        )
    }

    fn history(lines: &[String], port: u16, time: u64) -> History {
        let mut history = History::new(Question { address: ADDRESS, port, time: Utc(time) });
        history.read(lines.join("\n").as_bytes()).unwrap();
        history
    }

    /// Ports inside of those who had the binding for certain; 0 for nobody, `None` for what is uncertain.
    fn ask<const N: usize>(lines: &[String], times: [u64; N]) -> [Option<u16>; N] {
        times.map(|time| match history(lines, 4000, time).binding_of("udp") {
            Answer::Held(held) => held.holder.inside_port,
            Answer::Nobody => Some(0),
            Answer::Uncertain { .. } => None,
        })
    }

    #[test]
    fn the_log_tells_who_had_a_port_at_a_time() {
        let lines = [
            start(50, StateFound::None),
            binding("created", 100, None, 1),
            binding("created", 100, None, 9).replace("4000", "40001"),
            binding("removed", 200, Some(100), 1),
            // A removal that is logged late, and a beginning that is not logged at all.
            binding("created", 300, None, 3),
            binding("removed", 290, Some(250), 2),
            "not json 192.0.2.1".to_owned(),
            complete(410, 400),
        ];
        assert_eq!(
            ask(&lines, [50, 99, 100, 150, 200, 201, 249]),
            [None, Some(0), Some(1), Some(1), Some(1), Some(0), Some(0)]
        );
        assert_eq!(ask(&lines, [250, 290, 291, 299, 300, 400]), [Some(2), Some(2), Some(0), Some(0), Some(3), Some(3)]);
        // It may have ended since.
        assert_eq!(ask(&lines, [401, 999]), [None, None]);
        let Answer::Uncertain { last: Some(last), why } = history(&lines, 4000, 999).binding_of("udp") else {
            panic!()
        };
        assert_eq!((last.holder.inside_port, last.certain_until), (Some(3), Utc(400)));
        assert!(why.contains("complete only until"), "{why}");
        assert_eq!(history(&lines, 4000, 150).binding_of("tcp"), Answer::Nobody);
        assert!(matches!(history(&lines, 4000, 999).binding_of("tcp"), Answer::Uncertain { last: None, .. }));
    }

    #[test]
    fn tables_that_were_discarded_end_what_was_open_at_an_unknown_time() {
        let mut lines = vec![start(50, StateFound::None), binding("created", 100, None, 1), complete(150, 147)];
        lines.extend([start(190, StateFound::None), mark(190, MarkKind::AllRemoved), complete(300, 297)]);
        assert_eq!(ask(&lines, [147, 148, 190, 191, 250]), [Some(1), None, None, Some(0), Some(0)]);
    }

    #[test]
    fn after_a_crash_only_what_is_found_again_went_on() {
        let begin = vec![start(50, StateFound::None), binding("created", 100, None, 1), complete(150, 147)];
        let restarted = [begin.clone(), vec![start(190, StateFound::Tables)]].concat();
        let found = [restarted.clone(), vec![binding("adopted", 101, None, 1), complete(300, 297)]].concat();
        assert_eq!(ask(&found, [147, 170, 250, 298]), [Some(1), Some(1), Some(1), None]);
        let gone = [restarted.clone(), vec![complete(300, 297)]].concat();
        assert_eq!(ask(&gone, [147, 170, 250]), [Some(1), None, None]);
        let anew = [restarted, vec![binding("created", 200, None, 2), complete(300, 297)]].concat();
        assert_eq!(ask(&anew, [147, 170, 199, 201, 250]), [Some(1), None, None, Some(2), Some(2)]);
        // Its end tells of all of it.
        let ended = [gone, vec![binding("removed", 320, Some(100), 1)]].concat();
        assert_eq!(ask(&ended, [170, 250, 320]), [Some(1); 3]);
    }

    #[test]
    fn what_is_lost_makes_uncertain_what_was_open_and_whether_it_was_anybodys() {
        let lost = mark(210, MarkKind::Lost { count: 3, from: Utc(205) });
        let lines = [
            start(50, StateFound::None),
            binding("created", 100, None, 1),
            complete(150, 147),
            lost,
            complete(300, 297),
            binding("removed", 400, Some(350), 2),
            complete(420, 417),
        ];
        assert_eq!(ask(&lines, [147, 148, 206, 297, 349]), [Some(1), None, None, None, None]);
        assert_eq!(ask(&lines, [350, 400, 410]), [Some(2), Some(2), Some(0)]);
        let other = |time| history(&lines, 4000, time).binding_of("tcp");
        assert_eq!([147, 250].map(other), [Answer::Nobody, Answer::Nobody]);
        assert!(matches!(other(207), Answer::Uncertain { last: None, .. }));
    }

    #[test]
    fn times_that_the_clock_showed_twice_are_uncertain() {
        let set = mark(100, MarkKind::ClockSet { before: Utc(400) });
        let lines =
            [start(50, StateFound::None), binding("created", 60, None, 1), complete(390, 385), set, complete(999, 990)];
        assert_eq!(ask(&lines, [90, 100, 300, 400, 500]), [Some(1), None, None, None, None]);
    }

    #[test]
    fn a_clock_that_was_set_while_there_was_no_gateway_is_seen() {
        let begin = [start(50, StateFound::None), binding("created", 60, None, 1), complete(90, 87)];
        // It is 60 s later, but the clock has gone on by 20 s only.
        let later = start(110, StateFound::Tables).replace("\"uptime\":70", "\"uptime\":110");
        let lines = [&begin[..], &[later, binding("adopted", 20, None, 1), complete(300, 297)]].concat();
        assert_eq!(ask(&lines, [70, 100, 120, 150, 200]), [Some(1), None, None, None, Some(1)]);
    }

    #[test]
    fn the_log_tells_in_whose_block_a_port_was() {
        let lines = [
            start(50, StateFound::None),
            block("allocated", 100, None, 1),
            mark(140, MarkKind::Stop { state: StateLeft::Tables }),
            start(150, StateFound::Tables),
            block("adopted", 150, None, 1),
            block("released", 200, Some(150), 1),
            block("allocated", 320, None, 2),
            complete(400, 397),
            // Killed, and so it may have been somebody else's before it is found.
            start(450, StateFound::Tables),
            block("adopted", 450, None, 2),
            complete(500, 497),
        ];
        let at = |port, time| match history(&lines, port, time).block_of() {
            Answer::Held(held) => Some(held.holder.inside.to_string()),
            Answer::Nobody => Some(String::new()),
            Answer::Uncertain { .. } => None,
        };
        let host = |n: u8| Some(format!("10.0.0.{n}"));
        assert_eq!(
            [100, 145, 160, 200, 320, 397, 420, 450, 497].map(|time| at(3584, time)),
            [host(1), host(1), host(1), host(1), host(2), host(2), None, host(2), host(2)]
        );
        let nobody = Some(String::new());
        assert_eq!((at(4095, 160), at(4096, 160), at(3583, 160)), (host(1), nobody.clone(), nobody.clone()));
        assert_eq!([99, 201, 319].map(|time| at(3584, time)), [nobody.clone(), nobody.clone(), nobody]);
    }

    #[test]
    fn without_a_log_nothing_is_certain() {
        assert_eq!(ask(&[], [1]), [None]);
    }
}

//! Sessions in the log, where somebody asks for them: with whom a binding was used, and when. RFC 6888
//! REQ-12 says that destinations should not be logged unless the law or an administrator demands it.
//!
//! They are found by a walk over the table once a second, as bindings are, whoever made them: the engine or
//! the programs in the kernel. What was not there at the last walk began since then; what is not there any
//! more, or has outlived its time, ended since then. No packet waits for that. A session that comes and goes
//! between two walks, as one may that is flushed, leaves no line of its own, only its binding's.

use std::collections::HashMap;

use tombolo_engine::Plan;
use tombolo_tables::Tables;
use tombolo_tables::binding::Binding;
use tombolo_tables::session::{Session, SessionKey};

use super::event::{BindingEvent, SessionEvent};
use crate::table_rows::is_permission;
use crate::utc::{Moment, Utc};

/// The sessions that the log has as begun.
#[derive(Debug)]
pub(super) struct SessionWalk {
    known: HashMap<SessionKey, Known>,
    /// Which walk this is.
    walk: u32,
    /// The last one that had room for everything.
    whole: Option<Utc>,
}

/// A session. Its binding's record may be another's when it ends.
#[derive(Debug)]
struct Known {
    binding: Binding,
    since: Utc,
    /// The walk that has last seen it.
    seen: u32,
}

impl SessionWalk {
    /// Nothing is known yet. Sessions that the first walk finds count as an earlier process's.
    pub(super) fn new() -> Self {
        Self { known: HashMap::new(), walk: 0, whole: None }
    }

    /// Until when all beginnings and ends are logged, if that is known.
    pub(super) fn whole(&self) -> Option<Utc> {
        self.whole
    }

    /// Logs what has changed since the last walk, at most `budget` lines; says how many. The others come with
    /// the next walk.
    pub(super) fn walk(
        &mut self,
        tables: &Tables,
        plan: &Plan,
        moment: Moment,
        budget: usize,
        log: &mut impl FnMut(&SessionEvent<'_>),
    ) -> usize {
        let event = if self.whole.is_none() { "session-adopted" } else { "session-created" };
        self.walk = self.walk.wrapping_add(1);
        let (mut written, mut is_whole) = (0, true);
        for session in tables.each_session().filter(|session| is_alive(plan, session, moment)) {
            let Some((binding, _)) = tables.bindings.read(session.key.binding) else { continue };
            if let Some(known) = self.known.get_mut(&session.key)
                && known.binding == binding
            {
                known.seen = self.walk;
                continue;
            }
            // One that was copied while it was replaced may be half of another.
            if tables.find_session(&session.key).is_none() {
                continue;
            }
            if written + 2 > budget {
                is_whole = false;
                continue;
            }
            let known = Known { binding, since: moment.utc, seen: self.walk };
            log(&of(plan, event, &session.key, &known, moment.utc, moment));
            written += 1;
            if let Some(before) = self.known.insert(session.key, known) {
                log(&of(plan, "session-removed", &session.key, &before, moment.utc, moment));
                written += 1;
            }
        }
        let walk = self.walk;
        self.known.retain(|key, known| {
            if known.seen == walk {
                return true;
            }
            if written >= budget {
                is_whole = false;
                return true;
            }
            log(&of(plan, "session-removed", key, known, moment.utc, moment));
            written += 1;
            false
        });
        if is_whole {
            self.whole = Some(moment.utc);
        }
        written
    }

    /// Logs the end of all that are known: the tables go.
    pub(super) fn end(&mut self, plan: &Plan, moment: Moment, log: &mut impl FnMut(&SessionEvent<'_>)) {
        for (key, known) in std::mem::take(&mut self.known) {
            log(&of(plan, "session-removed", &key, &known, moment.utc, moment));
        }
    }
}

/// True for what packets belong to and has not outlived its time.
fn is_alive(plan: &Plan, session: &Session, moment: Moment) -> bool {
    let idle = moment.now.tick().since(session.seen);
    plan.times.effective(session.state, idle).is_some_and(|state| !is_permission(state))
}

fn of<'p>(
    plan: &'p Plan,
    event: &'static str,
    key: &SessionKey,
    known: &Known,
    time: Utc,
    moment: Moment,
) -> SessionEvent<'p> {
    let binding = BindingEvent::begun(plan, event, &known.binding, moment);
    let created = (event == "session-removed").then_some(known.since);
    SessionEvent {
        binding: BindingEvent { time, created, ..binding },
        remote: key.remote_ipv4.into(),
        remote_port: u16::from_be_bytes(key.remote_port),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::testing::datagram;
    use super::*;
    use std::sync::Arc;
    use tombolo_engine::Now;
    use tombolo_engine::mapping::pool::PortSpace;
    use tombolo_engine::packet::{HEADROOM, Offload, Packet};
    use tombolo_engine::{Engine, Verdict};
    use tombolo_tables::hash::HashKey;
    use tombolo_tables::memory::Heap;
    use tombolo_tables::tick::Tick;

    const TEXT: &str = "[gateway]\nbinding_log = \"/log\"\nbinding_log_detail = \"sessions\"\n[capacity]\nsubscribers = 10\n\
        bindings = 100\nsessions = 100\n[[service]]\nkind = \"nat44\"\nname = \"cgn\"\ninside = [\"10.0.0.0/24\"]\n\
        pool = [{ addresses = \"192.0.2.1\" }]\n";

    #[test]
    fn sessions_of_udp_are_there_and_logged_when_they_begin_and_end() {
        let plan = tombolo_config::parse("test.toml", TEXT).unwrap().plan;
        assert!(plan.services[0].kind.nat().unwrap().policy.keeps_sessions(PortSpace::Udp));
        let tables = Arc::new(Tables::new(&mut Heap, plan.capacity, HashKey::new([1, 2, 3, 4])).unwrap());
        let mut engine = Engine::new(Arc::clone(&tables), [7; 32], 0, 1);
        let mut send = |remote: [u8; 4], now| {
            let mut buffer = [0; HEADROOM + 64];
            buffer[HEADROOM..HEADROOM + 28].copy_from_slice(&datagram(Ipv4Addr::new(10, 0, 0, 7), 4096, remote.into()));
            let mut packet = Packet::new(&mut buffer, HEADROOM, 28, Offload::default()).unwrap();
            assert_eq!(engine.process(&plan, &mut packet, now, &mut |_: &mut Packet<'_>| {}), Verdict::Forward);
        };
        let at = |seconds: u64| Moment { now: Now((1000 + seconds) << Tick::SHIFT), utc: Utc(5000 + seconds) };
        let mut walk = SessionWalk::new();
        let lines = |walk: &mut SessionWalk, seconds, budget| {
            let mut found = Vec::new();
            walk.walk(&tables, &plan, at(seconds), budget, &mut |event: &SessionEvent<'_>| {
                let SessionEvent { binding: BindingEvent { time, event, endpoints, created, .. }, remote, remote_port } =
                    *event;
                assert_eq!(
                    (endpoints.inside.to_string().as_str(), endpoints.inside_port, remote_port),
                    ("10.0.0.7", 4096, 53)
                );
                found.push((event, remote.to_string(), time.0, created.map(|time| time.0)));
            });
            found.sort();
            found
        };
        send([198, 51, 100, 2], at(0).now);
        assert_eq!(lines(&mut walk, 1, 9), [("session-adopted", "198.51.100.2".to_owned(), 5001, None)]);
        send([198, 51, 100, 3], at(1).now);
        send([198, 51, 100, 4], at(1).now);
        // One line at a time: what finds no room waits, and nothing is complete meanwhile.
        assert_eq!(lines(&mut walk, 2, 2).len(), 1);
        assert_eq!(walk.whole(), Some(Utc(5001)));
        assert_eq!(lines(&mut walk, 3, 2).len(), 1);
        assert_eq!(lines(&mut walk, 4, 9), []);
        assert_eq!(walk.whole(), Some(Utc(5004)));
        // One is used on, the others outlive their time although nothing has swept them.
        send([198, 51, 100, 2], at(200).now);
        let ended = lines(&mut walk, 310, 9);
        let of = |last: &str, created| ("session-removed", format!("198.51.100.{last}"), 5310, Some(created));
        let possible = [[of("3", 5002), of("4", 5003)], [of("3", 5003), of("4", 5002)]];
        assert!(possible.iter().any(|possible| *possible == ended[..]), "{ended:?}");
        let mut left = 0;
        walk.end(&plan, at(311), &mut |_: &SessionEvent<'_>| left += 1);
        assert_eq!(left, 1);
    }
}

//! Who has an outside endpoint, or had it at some time: from the tables, and from the log of
//! bindings.

use std::fs::File;
use std::io::BufReader;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::Serialize;
use tombolo_engine::Plan;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_tables::binding::Binding;

use super::filter;
use super::rows::{Failure, Rows};
use crate::binding_log::history::{Answer, Held, History, Holder, Question};
use crate::running::Running;
use crate::table_rows::{Endpoints, host, origin, service_name};
use crate::utc::{Moment, Utc};

/// Who has, or had, an outside endpoint; or that it is not certain who.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Found {
    /// This one, for certain.
    Certain(EndpointHolder),
    /// It is not certain.
    Uncertain(Uncertain),
}

/// Who has, or had, an outside endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndpointHolder {
    service: String,
    protocol: String,
    inside: IpAddr,
    /// None where the log has the block alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    inside_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    softwire: Option<IpAddr>,
    outside: Ipv4Addr,
    outside_port: u16,
    /// From when.
    since: Utc,
    /// To when; none if it still has it, or its end is not in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Utc>,
    /// Up to when it is certain, where its end is not in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    certain_until: Option<Utc>,
    /// `table` or `log`.
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<&'static str>,
}

/// Nobody can say who had an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Uncertain {
    certain: bool,
    /// None if it holds for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static str>,
    outside: Ipv4Addr,
    outside_port: u16,
    time: Utc,
    /// Why not.
    why: String,
    /// Who had it before, and until when that is certain.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<EndpointHolder>,
}

/// Answers with a row for each protocol in which somebody has, or had, the endpoint, or in which that
/// is not certain.
pub(crate) fn who(
    running: &Running,
    plan: &Plan,
    outside: SocketAddr,
    protocol: Option<&str>,
    time: Option<&str>,
    rows: &mut Rows<'_>,
) -> Result<(), Failure> {
    let IpAddr::V4(address) = outside.ip() else {
        return Err(Failure::Refused(format!("{outside} is not an IPv4 endpoint, and the outside is IPv4")));
    };
    let spaces = filter::protocols(protocol).map_err(Failure::Refused)?;
    let time = time.map(parse_time).transpose().map_err(Failure::Refused)?;
    let now = Moment::current();
    if let Some(time) = time.filter(|time| time.0 > now.utc.0) {
        return Err(Failure::Refused(format!("{time} has not come yet: it is {}", now.utc)));
    }
    let mut others = Vec::new();
    let mut found = Vec::new();
    for space in spaces {
        let outside = Outside { space, address, port: outside.port() };
        match in_tables(running, plan, outside, time, now) {
            Some(holder) => found.push(Found::Certain(holder)),
            None => others.push(space),
        }
    }
    // Of now the tables know everything.
    if let Some(time) = time {
        let question = Question { address, port: outside.port(), time };
        let logs: Vec<PathBuf> = running.targets.log.path().into_iter().collect();
        found.extend(in_logs(&logs, question, &others, found.is_empty()).map_err(Failure::Refused)?);
    }
    found.iter().try_for_each(|row| rows.row(row))
}

/// Reads a time.
///
/// # Errors
/// What would be one, in words.
pub fn parse_time(text: &str) -> Result<Utc, String> {
    Utc::parse(text).ok_or_else(|| format!("\"{text}\" is not a time; write 2026-11-21T08:00:00Z"))
}

/// What the files of a log say, the oldest first. Blocks of ports count `with_blocks`, where no binding is
/// known.
///
/// # Errors
/// A file that cannot be read.
pub fn in_logs(
    logs: &[PathBuf],
    question: Question,
    spaces: &[PortSpace],
    with_blocks: bool,
) -> Result<Vec<Found>, String> {
    let mut history = History::new(question);
    for log in logs {
        let read = File::open(log).and_then(|file| history.read(BufReader::with_capacity(1 << 16, file)));
        read.map_err(|error| format!("the log of bindings {} cannot be read: {error}", log.display()))?;
    }
    let mut certain = Vec::new();
    let (mut uncertain, mut unmentioned) = (Vec::new(), 0);
    for space in spaces {
        let protocol = space.name();
        match history.binding_of(protocol) {
            Answer::Held(held) => certain.push(Found::Certain(EndpointHolder::logged(question, protocol, held))),
            Answer::Nobody => {}
            // Of what few use, that nothing is known is told to who asks for it.
            Answer::Uncertain { last: None, .. } if spaces.len() > 1 && !PortSpace::WITH_SLOTS.contains(space) => {
                unmentioned += 1;
            }
            Answer::Uncertain { last, why } => uncertain.push(Uncertain::new(question, protocol, last, why)),
        }
    }
    if certain.is_empty() && with_blocks && !spaces.is_empty() {
        match history.block_of() {
            Answer::Held(held) => {
                return Ok(vec![Found::Certain(EndpointHolder::logged(question, "any", held))]);
            }
            Answer::Uncertain { last: Some(last), why } => {
                return Ok(vec![Found::Uncertain(Uncertain::new(question, "any", Some(last), why))]);
            }
            Answer::Uncertain { last: None, .. } | Answer::Nobody => {}
        }
    }
    // Where nothing is known of any protocol, once is enough.
    let is_the_same = uncertain.iter().all(|one| one.before.is_none());
    if certain.is_empty() && is_the_same && uncertain.len() + unmentioned == spaces.len() {
        uncertain.truncate(1);
        uncertain.iter_mut().for_each(|one| one.protocol = None);
    }
    Ok(certain.into_iter().chain(uncertain.into_iter().map(Found::Uncertain)).collect())
}

/// The outside endpoint in question.
#[derive(Debug, Clone, Copy)]
struct Outside {
    space: PortSpace,
    address: Ipv4Addr,
    port: u16,
}

/// The one who has it according to the tables, and had it at `time` already.
fn in_tables(
    running: &Running,
    plan: &Plan,
    outside: Outside,
    time: Option<Utc>,
    now: Moment,
) -> Option<EndpointHolder> {
    let Outside { space, address, port } = outside;
    let slot = plan.services.iter().find_map(|service| service.kind.pool()?.slot(address, space, port))?;
    let found = running.tables.find_outside(slot);
    let (_, binding) = found.filter(|(_, binding)| binding.inside.protocol == space.protocol())?;
    let since = Utc::of_tick(binding.created, now);
    time.is_none_or(|time| since <= time).then(|| EndpointHolder::of(plan, &binding, since))
}

impl Uncertain {
    fn new(question: Question, protocol: &'static str, last: Option<Held>, why: String) -> Self {
        let Question { address, port, time } = question;
        let before = last.map(|held| EndpointHolder::logged(question, protocol, held));
        Self { certain: false, protocol: Some(protocol), outside: address, outside_port: port, time, why, before }
    }
}

impl EndpointHolder {
    fn logged(question: Question, protocol: &str, held: Held) -> Self {
        let Held { holder: Holder { service, inside, inside_port, softwire }, since, ended, certain_until } = held;
        Self {
            service,
            protocol: protocol.to_owned(),
            inside,
            inside_port,
            softwire,
            outside: question.address,
            outside_port: question.port,
            since,
            until: ended,
            certain_until: ended.is_none().then_some(certain_until),
            source: "log",
            origin: None,
        }
    }

    fn of(plan: &Plan, binding: &Binding, since: Utc) -> Self {
        let Endpoints { protocol, inside_port, outside, outside_port, .. } = Endpoints::of(plan, binding);
        let (inside, softwire) = host(binding.inside.ipv6, binding.inside.ipv4);
        Self {
            service: service_name(plan, binding.inside.service).to_owned(),
            protocol: protocol.to_owned(),
            inside,
            inside_port: Some(inside_port),
            softwire: softwire.map(IpAddr::from),
            outside,
            outside_port,
            since,
            until: None,
            certain_until: None,
            source: "table",
            origin: Some(origin(binding)),
        }
    }
}

//! Who has an outside endpoint, or had it at some time: from the tables, and from the log of
//! bindings.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tombolo_engine::Plan;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_tables::binding::Binding;

use super::filter;
use super::rows::{Failure, Rows};
use crate::binding_log::ALL_REMOVED;
use crate::running::Running;
use crate::table_rows::{Endpoints, host, origin, protocol_name, service_name};
use crate::utc::Utc;

/// Who has, or had, an outside endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct EndpointHolder {
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
    since: String,
    /// To when; none if it still has it, or its end was not logged.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// `table` or `log`.
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<&'static str>,
}

/// A line of the log.
#[derive(Debug, Clone, Deserialize)]
struct Logged {
    time: String,
    event: String,
    service: String,
    protocol: String,
    inside: IpAddr,
    inside_port: u16,
    softwire: Option<IpAddr>,
    outside: Ipv4Addr,
    outside_port: u16,
    created: Option<String>,
}

/// Answers with a row for each protocol in which somebody has, or had, the endpoint.
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
    let wanted = protocol.map(filter::protocol).transpose().map_err(Failure::Refused)?;
    let parse = |text| Utc::parse(text).ok_or(format!("\"{text}\" is not a time; write 2026-11-21T08:00:00Z"));
    let time = time.map(parse).transpose().map_err(Failure::Refused)?;
    let past = time.zip(running.settings.binding_log.as_deref());
    let port = outside.port();
    let mut is_found = false;
    for space in PortSpace::ALL.into_iter().filter(|&space| wanted.is_none_or(|wanted| wanted == space)) {
        let outside = Outside { space, address, port };
        let mut holder = in_tables(running, plan, outside, time);
        if let (None, Some((time, log))) = (&holder, past) {
            holder = in_log(log, outside, time)?;
        }
        if let Some(holder) = holder {
            rows.row(&holder)?;
            is_found = true;
        }
    }
    if let (false, Some((time, log))) = (is_found, past)
        && let Some(holder) = block_in_log(log, address, port, time)?
    {
        rows.row(&holder)?;
    }
    Ok(())
}

/// The outside endpoint in question.
#[derive(Debug, Clone, Copy)]
struct Outside {
    space: PortSpace,
    address: Ipv4Addr,
    port: u16,
}

/// The one who has it according to the tables, and had it at `time` already.
fn in_tables(running: &Running, plan: &Plan, outside: Outside, time: Option<Utc>) -> Option<EndpointHolder> {
    let Outside { space, address, port } = outside;
    let slot = plan.services.iter().find_map(|service| service.kind.pool()?.slot(address, space, port))?;
    let (_, binding) = running.tables.find_outside(slot)?;
    let since = Utc::of_tick(binding.created, running.now());
    time.is_none_or(|time| since <= time).then(|| EndpointHolder::of(plan, &binding, since))
}

/// The one in whose block of ports it was at `time` according to the log.
fn block_in_log(log: &Path, address: Ipv4Addr, port: u16, time: Utc) -> Result<Option<EndpointHolder>, Failure> {
    let mark = format!("\"outside\":\"{address}\",\"first_port\":");
    let mut holder: Option<EndpointHolder> = None;
    each_line(log, &mark, |line| {
        if let Some(end) = end_of_all(line) {
            holder = holder.take().filter(|_| end >= time).map(|holder| holder.until(end));
        } else if let Ok(block) = serde_json::from_str::<LoggedBlock>(line)
            && (block.first_port..=block.last_port).contains(&port)
        {
            let found = block.holder(port);
            // A process that adopts the block of an earlier one does not know when it was granted.
            let is_same = |holder: &EndpointHolder| holder.inside == found.inside && holder.softwire == found.softwire;
            if block.event != "block-adopted" || !holder.as_ref().is_some_and(is_same) {
                holder = later(holder.take(), found, time);
            }
        }
    })?;
    Ok(holder)
}

/// The one who had it at `time` according to the log, which is read line by line.
fn in_log(log: &Path, outside: Outside, time: Utc) -> Result<Option<EndpointHolder>, Failure> {
    let Outside { space, address, port } = outside;
    let mark = format!("\"outside\":\"{address}\",\"outside_port\":{port}");
    let mut holder: Option<EndpointHolder> = None;
    each_line(log, &mark, |line| {
        if let Some(end) = end_of_all(line) {
            holder = holder.take().filter(|_| end >= time).map(|holder| holder.until(end));
        } else if let Ok(logged) = serde_json::from_str::<Logged>(line)
            && logged.protocol == protocol_name(space.protocol())
        {
            holder = later(holder.take(), logged.holder(), time);
        }
    })?;
    Ok(holder)
}

/// Calls `read` with each line of the log that has `mark` in it, or is the end of all. Most lines are about others.
fn each_line(log: &Path, mark: &str, mut read: impl FnMut(&str)) -> Result<(), Failure> {
    let unreadable = |error| Failure::Refused(format!("the log of bindings {} cannot be read: {error}", log.display()));
    let mut lines = BufReader::new(File::open(log).map_err(unreadable)?);
    let mut line = String::new();
    while lines.read_line(&mut line).map_err(unreadable)? > 0 {
        if line.contains(mark) || line.contains(ALL_REMOVED) {
            read(&line);
        }
        line.clear();
    }
    Ok(())
}

/// When everything ended that the log had open, if `line` says so.
fn end_of_all(line: &str) -> Option<Utc> {
    #[derive(Deserialize)]
    struct Line {
        time: String,
        event: String,
    }
    let line: Line = serde_json::from_str(line).ok()?;
    Utc::parse(&line.time).filter(|_| line.event == ALL_REMOVED)
}

/// Who had the endpoint at `time`: `before`, as the lines so far say, or `found`, of whom the next
/// line is.
fn later(before: Option<EndpointHolder>, found: EndpointHolder, time: Utc) -> Option<EndpointHolder> {
    if Utc::parse(&found.since).is_none_or(|since| since > time) {
        return before;
    }
    let has_ended = found.until.as_deref().and_then(Utc::parse).is_some_and(|until| until < time);
    // The end of this one, or of one before it.
    if has_ended { before.filter(|before| before.since > found.since) } else { Some(found) }
}

/// A line of the log about a block of ports.
#[derive(Debug, Clone, Deserialize)]
struct LoggedBlock {
    time: String,
    event: String,
    service: String,
    inside: IpAddr,
    softwire: Option<IpAddr>,
    outside: Ipv4Addr,
    first_port: u16,
    last_port: u16,
    created: Option<String>,
}

impl LoggedBlock {
    fn holder(&self, port: u16) -> EndpointHolder {
        EndpointHolder {
            service: self.service.clone(),
            protocol: "any".to_owned(),
            inside: self.inside,
            inside_port: None,
            softwire: self.softwire,
            outside: self.outside,
            outside_port: port,
            since: self.created.clone().unwrap_or_else(|| self.time.clone()),
            until: (self.event == "block-released").then(|| self.time.clone()),
            source: "log",
            origin: None,
        }
    }
}

impl Logged {
    fn holder(self) -> EndpointHolder {
        let is_end = self.event == "removed";
        EndpointHolder {
            service: self.service,
            protocol: self.protocol,
            inside: self.inside,
            inside_port: Some(self.inside_port),
            softwire: self.softwire,
            outside: self.outside,
            outside_port: self.outside_port,
            since: self.created.unwrap_or_else(|| self.time.clone()),
            until: is_end.then_some(self.time),
            source: "log",
            origin: None,
        }
    }
}

impl EndpointHolder {
    /// The same one, who had it until `end` at the latest.
    fn until(self, end: Utc) -> Self {
        Self { until: self.until.or_else(|| Some(end.to_string())), ..self }
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
            since: since.to_string(),
            until: None,
            source: "table",
            origin: Some(origin(binding)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn line(event: &str, time: u64, created: Option<u64>, inside_port: u16) -> String {
        let created = created.map_or(String::new(), |created| format!(",\"created\":\"{}\"", Utc(created)));
        format!(
            "{{\"time\":\"{}\",\"event\":\"{event}\",\"service\":\"nat64\",\"protocol\":\"udp\",\"inside\":\"2001:db8::1\",\
             \"inside_port\":{inside_port},\"outside\":\"192.0.2.1\",\"outside_port\":4000{created}}}\n",
            Utc(time)
        )
    }

    #[test]
    fn the_log_tells_who_had_a_port_at_a_time() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        let other = line("created", 100, None, 9).replace("4000", "40001");
        let text = [
            line("created", 100, None, 1),
            other,
            line("removed", 200, Some(100), 1),
            // A removal that is logged late, and one that is not logged at all.
            line("created", 300, None, 3),
            line("removed", 290, Some(250), 2),
            "not json 192.0.2.1\n".to_owned(),
        ];
        log.write_all(text.concat().as_bytes()).unwrap();
        let outside = |space| Outside { space, address: Ipv4Addr::new(192, 0, 2, 1), port: 4000 };
        let at = |time| {
            let holder = in_log(log.path(), outside(PortSpace::Udp), Utc(time)).unwrap();
            holder.and_then(|holder| holder.inside_port)
        };
        assert_eq!([99, 100, 150, 200, 201].map(at), [None, Some(1), Some(1), Some(1), None]);
        assert_eq!([249, 250, 290, 291, 299, 300, 999].map(at), [None, Some(2), Some(2), None, None, Some(3), Some(3)]);
        let tcp = in_log(log.path(), outside(PortSpace::Tcp), Utc(150)).unwrap();
        assert_eq!(tcp, None);
    }

    #[test]
    fn the_log_tells_in_whose_block_a_port_was() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        let line = |event: &str, host: u8, time: u64, created: Option<u64>| {
            let created = created.map_or(String::new(), |created| format!(",\"created\":\"{}\"", Utc(created)));
            format!(
                "{{\"time\":\"{}\",\"event\":\"block-{event}\",\"service\":\"cgn\",\"inside\":\"10.0.0.{host}\",\
                 \"outside\":\"192.0.2.1\",\"first_port\":2048,\"last_port\":2559{created}}}\n",
                Utc(time)
            )
        };
        let text = [
            line("allocated", 1, 100, None),
            line("adopted", 1, 150, None),
            line("released", 1, 200, Some(150)),
            line("allocated", 2, 320, None),
        ];
        log.write_all(text.concat().as_bytes()).unwrap();
        let at = |port, time| {
            let holder = block_in_log(log.path(), Ipv4Addr::new(192, 0, 2, 1), port, Utc(time)).unwrap();
            holder.map(|holder| (holder.inside.to_string(), holder.inside_port))
        };
        let host = |n: u8| Some((format!("10.0.0.{n}"), None));
        assert_eq!(
            [99, 100, 160, 200, 320, 999].map(|time| at(2048, time)),
            [None, host(1), host(1), host(1), host(2), host(2)]
        );
        assert_eq!((at(2559, 160), at(2560, 160), at(2047, 160)), (host(1), None, None));
        assert_eq!(at(2048, 201), None);
    }
}

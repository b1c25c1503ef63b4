//! The gateway's side of the control socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tombolo_config::Change;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::mechanism::napt::Endpoint;
use tombolo_engine::plan::{Service, StaticBinding};
use tombolo_engine::settle::Count;
use tombolo_engine::{Plan, static_bindings};
use tombolo_wire::Port;

use super::lines::{Line, Lines};
use super::request::{NewBinding, PROTOCOL, Request};
use super::rows::{Code, Failure, Rows};
use super::{
    counters, events, explain, fastpath, filter, peers, pools, slices, status, subscriber, tables, trace, who,
};
use crate::change::{Changed, End};
use crate::listener::{self, Stream};
use crate::reload::Wish;
use crate::running::Running;

/// How long a client may take to send its request.
const TO_ASK: Duration = Duration::from_secs(10);
/// How long it may then say nothing. It makes room for others meanwhile.
const TO_ASK_AGAIN: Duration = Duration::from_secs(300);
/// How long a client may read nothing of its answer. Long, for people read in pagers.
const TO_READ: Duration = Duration::from_secs(300);

/// Answers requests about a running gateway.
#[derive(Debug)]
pub struct Control(pub Arc<Running>);

impl listener::Service for Control {
    fn serve(&self, stream: &mut dyn Stream, crowded: bool) {
        let mut rows = Rows::new(stream);
        // Whoever went away needs no answer.
        let _ = if crowded {
            rows.fail(Code::Crowded, "too many clients at a time; try again when some have what they want")
        } else {
            self.answer(&mut rows)
        };
    }
}

impl Control {
    /// Answers one request after the other, until the client has no more.
    fn answer(&self, rows: &mut Rows<'_>) -> io::Result<()> {
        let mut lines = Lines::default();
        let mut patience = TO_ASK;
        loop {
            let line = lines.next(rows.stream(), patience);
            rows.stream().set_deadlines(TO_ASK, TO_READ)?;
            match line {
                Line::Whole(line) => self.answer_one(&line, rows)?,
                Line::TooLong => {
                    rows.fail(Code::TooLong, "not a request: a line of at most 16384 bytes is expected")?
                }
                Line::Incomplete => {
                    return rows.fail(Code::Incomplete, "not a request: one line of JSON with its end is expected");
                }
                Line::End => return Ok(()),
            }
            patience = TO_ASK_AGAIN;
            if !lines.has_more() {
                rows.stream().rest();
            }
        }
    }

    fn answer_one(&self, line: &[u8], rows: &mut Rows<'_>) -> io::Result<()> {
        rows.begin();
        let request = match Request::parse(line) {
            Ok(request) => request,
            Err(reason) => return rows.fail(Code::Malformed, &reason),
        };
        match self.act(request, rows) {
            Ok(()) => rows.end(),
            Err(Failure::Refused(reason)) => rows.fail(Code::Refused, &reason),
            Err(Failure::Gone(error)) => Err(error),
        }
    }

    fn act(&self, request: Request, rows: &mut Rows<'_>) -> Result<(), Failure> {
        let running = &*self.0;
        let plan = running.plan.load_full();
        match request {
            Request::Hello {} => rows.row(&json!({ "protocol": PROTOCOL, "version": env!("CARGO_PKG_VERSION") })),
            Request::Status {} => status::status(running, &plan, rows),
            Request::Services {} => status::services(running, &plan, rows),
            Request::Bindings { filter } => tables::bindings(running, &plan, &filter, rows),
            Request::Sessions { filter } => tables::sessions(running, &plan, &filter, rows),
            Request::Subscribers { filter } => tables::subscribers(running, &plan, &filter, rows),
            Request::Subscriber { filter } => subscriber::details(running, &plan, &filter, rows),
            Request::Top { limit } => subscriber::top(running, &plan, limit, rows),
            Request::Pools { filter, each_address } => pools::pools(running, &plan, &filter, each_address, rows),
            Request::Counters { all } => counters::counters(running, all, rows),
            Request::Fastpath {} => fastpath::fastpath(running, rows),
            Request::Peers {} => peers::peers(running, &plan, rows),
            Request::Slices {} => slices::slices(&plan, running.agreement.as_deref(), running.now(), rows),
            Request::Explain { asked } => explain::explain(running, &plan, &asked, rows),
            Request::Trace(watched) => trace::trace(running, &plan, &watched, rows),
            Request::Events(wanted) => events::events(running, &wanted, rows),
            Request::Drops { all } => counters::drops(running, &plan, all, rows),
            Request::Reload { dry_run, confirm_within } => {
                reload(&self.0, Wish { dry_run, confirm_within, ..Wish::default() }, rows)
            }
            Request::Confirm {} => running.confirm().map_err(|error| Failure::Refused(error.to_string())),
            Request::Flush { service } => flush(running, &plan, service.as_deref(), rows),
            Request::Drain { on } => {
                running.drain(on);
                status::status(running, &running.plan.load_full(), rows)
            }
            Request::BindingAdd(wanted) => add(running, &plan, &wanted, rows),
            Request::BindingRemove { protocol, outside } => remove(running, &plan, &protocol, outside, rows),
            Request::Who { outside, protocol, time } => {
                who::who(running, &plan, outside, protocol.as_deref(), time.as_deref(), rows)
            }
        }
    }
}

fn reload(running: &Arc<Running>, wish: Wish, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let refused = |error| Failure::Refused(format!("the old configuration stays in force: {error}"));
    let Changed { keys, ends, conflicts, not_followed, confirm_within } = running.reload(wish).map_err(refused)?;
    for Change { key, before, after } in keys {
        rows.row(&json!({ "changed": key, "before": before, "after": after }))?;
    }
    for End { service, addresses, count: Count { bindings, sessions }, reason } in ends {
        let count = json!({ "bindings": bindings, "sessions": sessions });
        rows.row(&json!({ "ends": count, "service": service, "addresses": addresses, "reason": reason }))?;
    }
    for why in not_followed {
        rows.row(&json!({ "not_followed": why }))?;
    }
    for conflict in conflicts {
        let binding = conflict.binding;
        let outside = SocketAddr::new(binding.outside.address.into(), binding.outside.port.0);
        rows.row(&json!({ "service": conflict.service, "binding": outside, "conflict": conflict.reason }))?;
    }
    if let Some(seconds) = confirm_within {
        rows.row(&json!({ "confirm_within": seconds }))?;
    }
    Ok(())
}

fn flush(running: &Running, plan: &Plan, service: Option<&str>, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let number = service.map(|name| filter::service(plan, name)).transpose().map_err(Failure::Refused)?;
    let flushed = running.flush(number);
    rows.row(&json!({ "sessions": flushed.sessions, "bindings": flushed.bindings }))
}

fn add(running: &Running, plan: &Plan, wanted: &NewBinding, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let (number, service, space, outside) = outside_end(plan, &wanted.protocol, wanted.outside)?;
    if let Some(name) = owner(plan, outside.address, service) {
        return Err(Failure::Refused(format!(
            "node {name} owns the slice of {}; add the binding there",
            outside.address
        )));
    }
    let binding = StaticBinding {
        space,
        softwire: wanted.softwire.unwrap_or(Ipv6Addr::UNSPECIFIED),
        inside: wanted.inside.ip(),
        inside_port: Port(wanted.inside.port()),
        outside,
    };
    static_bindings::add(&running.tables, number, service, &binding, running.now()).map_err(refused)?;
    tracing::info!(service = service.name, ?binding, "binding added");
    rows.row(&json!({ "service": service.name }))
}

fn remove(
    running: &Running,
    plan: &Plan,
    protocol: &str,
    outside: SocketAddr,
    rows: &mut Rows<'_>,
) -> Result<(), Failure> {
    let (_, service, space, outside) = outside_end(plan, protocol, outside)?;
    let binding = static_bindings::remove(&running.tables, service, space, outside, running.now()).map_err(refused)?;
    running.removals.report(&binding);
    tracing::info!(service = service.name, ?outside, "binding removed");
    rows.row(&json!({ "service": service.name }))
}

/// The other node of the cluster that owns an outside address of a service, if there is one.
fn owner<'p>(plan: &'p Plan, outside: Ipv4Addr, service: &Service) -> Option<&'p str> {
    let cluster = plan.cluster.as_deref()?;
    let slice = service.kind.pool()?.slice_of_address(outside).filter(|slice| !cluster.owns(*slice))?;
    let node = cluster.nodes().get(usize::from(cluster.holders(slice).owner))?;
    Some(&node.name)
}

fn refused(reason: &str) -> Failure {
    Failure::Refused(reason.to_owned())
}

/// The service that an outside endpoint belongs to.
fn outside_end<'p>(
    plan: &'p Plan,
    protocol: &str,
    outside: SocketAddr,
) -> Result<(u8, &'p Service, PortSpace, Endpoint), Failure> {
    let space = filter::protocol(protocol).map_err(Failure::Refused)?;
    let IpAddr::V4(address) = outside.ip() else {
        return Err(Failure::Refused(format!("{outside} is not an IPv4 endpoint, and the outside is IPv4")));
    };
    let has_it = |service: &&Service| {
        service.kind.pool().is_some_and(|pool| pool.slot(address, space, outside.port()).is_some())
    };
    let found = plan.numbered().find(|(_, service)| has_it(service));
    let (number, service) = found.ok_or_else(|| Failure::Refused(format!("no pool has {protocol} {outside}")))?;
    Ok((number, service, space, Endpoint { address, port: Port(outside.port()) }))
}

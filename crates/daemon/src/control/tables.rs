//! The entries of the tables in rows.

use tombolo_engine::Plan;
use tombolo_tables::Tables;

use super::filter::{Filter, Matcher};
use super::rows::{Failure, Rows};
use crate::running::Running;
use crate::table_rows::{BindingRow, SessionRow, SubscriberRow};

/// Bindings, in the order of their records.
pub(crate) fn bindings(running: &Running, plan: &Plan, filter: &Filter, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let matcher = Matcher::new(filter, plan).map_err(Failure::Refused)?;
    let tables = &running.tables;
    for id in tables.bindings.iter() {
        if rows.count() >= matcher.limit {
            break;
        }
        let Some((binding, touched)) = tables.bindings.read(id).filter(|(binding, _)| matcher.may_want(binding)) else {
            continue;
        };
        let row = BindingRow::of(plan, &binding, touched, running.now());
        if matcher.wants_binding(&row) {
            rows.row(&row)?;
        }
    }
    Ok(())
}

/// Sessions, in the order of their lines.
pub(crate) fn sessions(running: &Running, plan: &Plan, filter: &Filter, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let matcher = Matcher::new(filter, plan).map_err(Failure::Refused)?;
    let Tables { sessions, bindings, .. } = &*running.tables;
    for line in 0..sessions.lines() {
        for (session, pending) in sessions.read_line(line) {
            if rows.count() >= matcher.limit {
                return Ok(());
            }
            if pending || !matcher.wants_state(session.state) {
                continue;
            }
            let binding = bindings.read(session.key.binding).filter(|(binding, _)| matcher.may_want(binding));
            let row = binding.and_then(|(binding, _)| SessionRow::of(plan, &binding, &session, running.now()));
            let Some(row) = row.filter(|row| matcher.wants_session(row)) else { continue };
            // An entry that was reused while it was copied may be half of one session and half of
            // another; that one is not there when the line is read again.
            if sessions.read_line(line).any(|(again, _)| again.key == session.key) {
                rows.row(&row)?;
            }
        }
    }
    Ok(())
}

/// Subscribers, in the order of their records.
pub(crate) fn subscribers(running: &Running, plan: &Plan, filter: &Filter, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let matcher = Matcher::new(filter, plan).map_err(Failure::Refused)?;
    let subscribers = &running.tables.subscribers;
    for id in subscribers.iter() {
        if rows.count() >= matcher.limit {
            break;
        }
        let Some((subscriber, touched)) = subscribers.read(id) else { continue };
        let row = SubscriberRow::of(plan, &subscriber, subscribers.bindings(id), touched, running.now());
        if matcher.wants_service(subscriber.key.service) && matcher.wants_subscriber(&row) {
            rows.row(&row)?;
        }
    }
    Ok(())
}

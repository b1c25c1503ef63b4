//! The entries of the tables in rows.

use tombolo_engine::Plan;

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
        let row = row.until(tables.leases.expires(&binding), running.now());
        if matcher.wants_binding(&row) {
            rows.row(&row)?;
        }
    }
    Ok(())
}

/// Sessions: those in the table, in the order of their lines, then the first ones of bindings.
pub(crate) fn sessions(running: &Running, plan: &Plan, filter: &Filter, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let matcher = Matcher::new(filter, plan).map_err(Failure::Refused)?;
    let tables = &running.tables;
    for session in tables.each_session().filter(|session| matcher.wants_state(session.state)) {
        if rows.count() >= matcher.limit {
            return Ok(());
        }
        let binding = tables.bindings.read(session.key.binding).filter(|(binding, _)| matcher.may_want(binding));
        let row = binding.and_then(|(binding, _)| SessionRow::of(plan, &binding, &session, running.now()));
        let Some(row) = row.filter(|row| matcher.wants_session(row)) else { continue };
        // An entry that was reused while it was copied may be half of one session and half of another;
        // that one is not there when it is looked up.
        if tables.find_session(&session.key).is_some() {
            rows.row(&row)?;
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

//! Takes state away at once, for an operator.
//!
//! Packets may go on meanwhile: what they need is made anew. A binding that goes may leave a
//! session that a packet was just adding to it; so sessions without a binding, or older than the
//! binding that has the number now, go last.

use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, BindingId, flags};
use tombolo_tables::session::{Session, Sweep};

use crate::now::Now;

/// How often the removal of a binding is tried that packets use meanwhile.
const ATTEMPTS: usize = 8;

/// What was taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flushed {
    /// Sessions, those of static bindings included.
    pub sessions: u64,
    /// Dynamic bindings.
    pub bindings: u64,
}

/// Removes all sessions and dynamic bindings, or those of service number `service`; `removed` hears
/// of each binding. Subscribers follow with the next sweep.
pub fn flush(tables: &Tables, service: Option<u8>, now: Now, removed: &mut dyn FnMut(&Binding)) -> Flushed {
    let mut flushed = Flushed::default();
    let is_meant = |binding: &Binding| service.is_none_or(|number| binding.inside.service == number);
    let mut marks = vec![0_u64; tables.bindings.parts()];
    for id in tables.bindings.iter() {
        if tables.bindings.read(id).is_some_and(|(binding, _)| is_meant(&binding)) {
            marks[id.get() as usize / 64] |= 1 << (id.get() % 64);
        }
    }
    sweep(tables, &mut flushed.sessions, |session| {
        let id = session.key.binding.get() as usize;
        marks.get(id / 64).is_some_and(|mark| mark & 1 << (id % 64) != 0)
    });
    for id in tables.bindings.iter() {
        if let Some(binding) = unbind(tables, id, is_meant, now) {
            flushed.bindings += 1;
            removed(&binding);
        }
    }
    flushed.sessions += remove_orphans(tables);
    flushed
}

/// Removes sessions whose binding is gone, or was made after they were last used; says how many.
pub fn remove_orphans(tables: &Tables) -> u64 {
    let mut removed = 0;
    sweep(tables, &mut removed, |session| {
        tables.bindings.read(session.key.binding).is_none_or(|(binding, _)| session.seen < binding.created)
    });
    removed
}

fn unbind(tables: &Tables, id: BindingId, is_meant: impl Fn(&Binding) -> bool, now: Now) -> Option<Binding> {
    for _ in 0..ATTEMPTS {
        let (binding, seen) = tables.bindings.read(id)?;
        if binding.flags & flags::STATIC != 0 || !is_meant(&binding) {
            return None;
        }
        if tables.unbind(id, &binding, seen, now.tick()) {
            return Some(binding);
        }
    }
    None
}

fn sweep(tables: &Tables, removed: &mut u64, goes: impl Fn(&Session) -> bool) {
    tables.sessions.sweep(0, tables.sessions.lines(), |session| {
        if goes(session) {
            *removed += 1;
            Sweep::Remove
        } else {
            Sweep::Keep
        }
    });
}

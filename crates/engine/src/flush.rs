//! Takes state away at once, for an operator.
//!
//! Packets may go on meanwhile: what they need is made anew.

use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, BindingId, flags};
use tombolo_tables::tables::Removal;

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
    let mut removal = Removal::new(tables);
    for id in tables.bindings.iter() {
        if tables.bindings.read(id).is_some_and(|(binding, _)| is_meant(&binding)) {
            removal.clear(id);
        }
        if let Some(binding) = unbind(tables, &mut removal, id, is_meant, now) {
            flushed.bindings += 1;
            removed(&binding);
        }
    }
    flushed.sessions = removal.finish();
    flushed
}

fn unbind(
    tables: &Tables,
    removal: &mut Removal<'_>,
    id: BindingId,
    is_meant: impl Fn(&Binding) -> bool,
    now: Now,
) -> Option<Binding> {
    for _ in 0..ATTEMPTS {
        let (binding, seen) = tables.bindings.read(id)?;
        if binding.flags & flags::STATIC != 0 || !is_meant(&binding) {
            return None;
        }
        if removal.unbind(id, &binding, seen, now.tick()) {
            return Some(binding);
        }
    }
    None
}

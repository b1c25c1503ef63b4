//! Takes state away at once, for an operator.
//!
//! Packets may go on meanwhile: what they need is made anew.

use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, Origin};
use tombolo_tables::tables::Removal;

use crate::now::Now;

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
        let goes = |binding: &Binding| is_meant(binding) && binding.origin() == Origin::Dynamic;
        if let Some(binding) = removal.unbind_if(id, goes, now.tick()) {
            flushed.bindings += 1;
            removed(&binding);
        }
    }
    flushed.sessions = removal.finish();
    flushed
}

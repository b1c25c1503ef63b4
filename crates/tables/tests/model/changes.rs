//! Whoever copies the tables beside those who change them: in the end the copy is what the tables are.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo_tables::binding::BindingId;
use tombolo_tables::kernel::Program;
use tombolo_tables::subscriber::{Subscriber, SubscriberKey};
use tombolo_tables::tables::Tables;
use tombolo_tables::tick::Tick;

use crate::{NOW, assert_sound, bare_tables, candidate, model, spawn, template};

const OLD: Tick = Tick(1);

/// Inside ports of the bindings that were copied.
type Copied = BTreeMap<u32, [u8; 2]>;

fn world(bindings: u32) -> Arc<Tables> {
    Arc::new(bare_tables(bindings, 2).noting_changes())
}

/// Copies what has changed, as it is now.
fn copy(tables: &Tables, copied: &mut Copied) {
    tables.changed_bindings.take(&mut |number| match BindingId::new(number).and_then(|id| tables.bindings.read(id)) {
        Some((binding, _)) => drop(copied.insert(number, binding.inside.port)),
        None => drop(copied.remove(&number)),
    });
}

fn assert_copied(tables: &Tables, copied: &Copied) {
    let read = |id: BindingId| Some((id.get(), tables.bindings.read(id)?.0.inside.port));
    assert_eq!(tables.bindings.iter().filter_map(read).collect::<Copied>(), *copied);
    assert_sound(tables);
}

fn bind(tables: &Tables, port: u16, slot: u32) -> BindingId {
    tables.bind(&template(port), [candidate(slot)], 0, NOW).unwrap().0
}

model! {
    a_binding_that_is_made_while_somebody_copies_is_copied, 2, || {
        let tables = world(2);
        let writer = spawn(&tables, |tables| bind(tables, 1, 0));
        let mut copied = Copied::new();
        copy(&tables, &mut copied);
        writer.join().unwrap();
        copy(&tables, &mut copied);
        assert_copied(&tables, &copied);
    }
}

model! {
    two_that_are_made_while_somebody_copies_are_copied, 1, || {
        let tables = world(2);
        let writers = [(1, 0), (2, 1)].map(|(port, slot)| spawn(&tables, move |tables| bind(tables, port, slot)));
        let mut copied = Copied::new();
        copy(&tables, &mut copied);
        for writer in writers {
            writer.join().unwrap();
        }
        copy(&tables, &mut copied);
        assert_copied(&tables, &copied);
    }
}

model! {
    the_next_binding_of_a_number_takes_the_place_of_the_one_before, 2, || {
        let tables = world(1);
        let id = tables.bind(&template(1), [candidate(0)], 0, OLD).unwrap().0;
        let (old, _) = tables.bindings.read(id).unwrap();
        let mut copied = Copied::new();
        copy(&tables, &mut copied);
        let writer = spawn(&tables, move |tables| {
            assert!(tables.unbind(id, &old, OLD, NOW));
            bind(tables, 2, 1)
        });
        copy(&tables, &mut copied);
        writer.join().unwrap();
        copy(&tables, &mut copied);
        assert_copied(&tables, &copied);
    }
}

model! {
    a_binding_of_a_program_is_copied, 2, || {
        let tables = world(1);
        let key = SubscriberKey { ipv6: [7; 16], ..SubscriberKey::default() };
        tables.admit(&Subscriber { key, outside_ipv4: [192, 0, 2, 1] }, NOW).unwrap();
        let program = spawn(&tables, |tables| {
            let template = tombolo_tables::binding::Binding { flags: 0, subscriber: 1, ..template(1) };
            Program(tables).bind(&template, &[candidate(0)], 0, NOW)
        });
        let mut copied = Copied::new();
        copy(&tables, &mut copied);
        assert!(program.join().unwrap().is_some());
        copy(&tables, &mut copied);
        assert_copied(&tables, &copied);
    }
}

//! What programs inside the kernel have to know of the tables' bytes.

use tombolo_records::{Constant, Record};

#[cfg(not(loom))]
use crate::lpm::layout;
use crate::tick::Tick;
use crate::{arena, binding, index, outside, path_mtu, session, shortcut, subscriber};

tombolo_records::constants! {
    /// Binary logarithm of the nanoseconds in a tick.
    const TICK_SHIFT: u32 = Tick::SHIFT;
}

/// The numbers.
#[must_use]
pub fn numbers() -> Vec<Constant> {
    let of = [
        constants(),
        arena::constants(),
        binding::flags::constants(),
        index::constants(),
        outside::constants(),
        shortcut::constants(),
        subscriber::constants(),
        session::constants(),
        path_mtu::constants(),
        #[cfg(not(loom))]
        layout::constants(),
    ];
    of.concat()
}

/// The records.
#[must_use]
pub fn records() -> Vec<Record> {
    [binding::records(), subscriber::records(), session::records(), index::records(), path_mtu::records()].concat()
}

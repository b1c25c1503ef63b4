//! Bytes that state takes: of tables that are full, all that belongs to them over what they hold.

use tombolo_engine::mechanism::session_state;
use tombolo_io::memory::AnonymousMemory;
use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, InsideKey};
use tombolo_tables::hash::HashKey;
use tombolo_tables::session::SessionKey;
use tombolo_tables::tables::{Candidate, Capacity, Opener};
use tombolo_tables::tick::Tick;
use tombolo_tester::figures::{Figure, Figures};

use crate::keys::FOREVER;

const TCP: u8 = 6;
const NOW: Tick = Tick(1);

/// Bindings with their first TCP session: record, entry of the index inside, slot outside, and whatever
/// the sessions took of the table of sessions. Of the last few some find no room in the index, whose
/// buckets are filled by chance: what they would have taken is charged to the others.
pub(crate) fn run(millions: u64, figures: &mut Figures) {
    let count = u32::try_from(millions * 1_000_000).unwrap();
    let capacity = Capacity { subscribers: 1, bindings: count, sessions: 8, outside_slots: count, leases: 0 };
    let tables = Tables::new(&mut AnonymousMemory, capacity, HashKey::new([3, 5, 7, 9])).unwrap();
    let made = (0..count).filter(|number| open(&tables, *number)).count();
    let memory = tables.memory();
    let bytes = (memory.bindings + memory.outside + memory.sessions) as f64 / made as f64;
    let refused = f64::from(count) - made as f64;
    println!("state/bytes/{millions}M: {bytes:.2} a binding with its first TCP session, {refused} found no room");
    write(figures, "bytes of a binding with its first TCP session", millions, bytes);
}

/// Makes binding `number` and its session; false if the table has no room for it.
fn open(tables: &Tables, number: u32) -> bool {
    let [.., high, low] = number.to_be_bytes();
    let host = u128::from(number >> 16) | 0x2001_0db8 << 96;
    let inside = InsideKey { ipv6: host.to_be_bytes(), port: [high, low], protocol: TCP, ..InsideKey::default() };
    let template = Binding { inside, ..Binding::default() };
    let candidate = Candidate { slot: number, ipv4: [192, 0, 2, 1], port: [high, low] };
    let Ok((id, binding)) = tables.bind(&template, [candidate], 0, NOW) else { return false };
    let key = SessionKey { binding: id, remote_ipv4: [198, 51, 100, 1], remote_port: [1, 187] };
    let opener = Opener::Inside { limit: None };
    tables.open(&key, &binding, session_state::ESTABLISHED, opener, &FOREVER, NOW).unwrap();
    true
}

/// Smaller tables are mostly what they are rounded up to: whole huge pages.
const LEAST_MILLIONS: u64 = 10;

pub(crate) fn write(figures: &mut Figures, quantity: &str, millions: u64, bytes: f64) {
    if millions < LEAST_MILLIONS {
        return;
    }
    let quantity = format!("{quantity}, {millions} M");
    let (of, unit, values) = ("tables", "bytes", [bytes]);
    figures
        .add(&Figure { of, quantity: &quantity, unit, higher_is_better: false, values: &values, bound: None })
        .unwrap();
}

//! The records of `bpf/` and of Rust, compared: what the C compiler says is where Rust has it.

use std::mem::offset_of;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use aya::maps::Array;
use aya::programs::{TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, Pod};
use tombolo_tables::binding::{Binding, Bindings, InsideKey};
use tombolo_tables::memory::{Backing, Heap, MemoryError, MemorySource};
use tombolo_tables::subscriber::{Subscriber, SubscriberKey, Subscribers};
use tombolo_tables::tick::Tick;

use crate::counters::{CountersRecord, ScratchRecord};
use crate::interface::InterfaceRecord;
use crate::record::{
    ExplicitRow, MapGroup, MapRuleRecord, Network, PlanRecord, PoolRecord, PrefixRecord, ServiceRecord, SoftwireBlocks,
    SoftwireLocals, SoftwireRecord, SoftwireShare, TunnelRecord,
};
use crate::reports;
use crate::routes;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/layout.bpf.o"));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Place {
    offset: u32,
    size: u32,
}

// SAFETY: two integers without padding.
unsafe impl Pod for Place {}

/// What C says, in the order of `layout.bpf.c`; `None` (said loudly) without root.
fn places() -> Option<Vec<Place>> {
    if !nix::unistd::Uid::effective().is_root() {
        println!("SKIPPED: comparing records with the C compiler's needs root");
        return None;
    }
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = PathBuf::from(format!("/sys/fs/bpf/tombolo-layout-{}-{count}", std::process::id()));
    let _memory = crate::PinnedMemory::open(&directory, "layout").unwrap();
    let mut programs = aya::EbpfLoader::new().default_map_pin_directory(&directory).load(OBJECT).unwrap();
    run(&mut programs);
    let array: Array<_, Place> = programs.map("places").unwrap().try_into().unwrap();
    let places = (0..array.len()).map(|n| array.get(&n, 0).unwrap()).take_while(|place| place.size > 0).collect();
    crate::PinnedMemory::remove(&directory).unwrap();
    Some(places)
}

fn run(programs: &mut Ebpf) {
    let program: &mut Xdp = programs.program_mut("tell").unwrap().try_into().unwrap();
    program.load().unwrap();
    program.test_run(TestRunOptions { data_in: Some(&[0; 64]), ..TestRunOptions::new() }).unwrap();
}

macro_rules! whole {
    ($record:ty) => {
        ("size", Place { offset: 0, size: u32::try_from(size_of::<$record>()).unwrap() })
    };
}

macro_rules! field {
    ($record:ty, $field:ident) => {{
        fn size<T>(_: impl Fn(&$record) -> &T) -> usize {
            size_of::<T>()
        }
        let size = size(|record| &record.$field);
        let place = |number: usize| u32::try_from(number).unwrap();
        (stringify!($record.$field), Place { offset: place(offset_of!($record, $field)), size: place(size) })
    }};
}

#[test]
fn records_of_the_programs_are_where_c_has_them() {
    let Some(places) = places() else { return };
    let word = |number: usize| u32::try_from(number * size_of::<u32>()).unwrap();
    let here = [
        whole!(PlanRecord),
        field!(PlanRecord, hash_key),
        field!(PlanRecord, inside_buckets),
        field!(PlanRecord, used_words),
        field!(PlanRecord, lifetimes),
        field!(PlanRecord, reuse_after),
        field!(PlanRecord, reuse_port_after),
        field!(PlanRecord, report_sessions),
        field!(PlanRecord, secret),
        field!(PlanRecord, steps),
        field!(PlanRecord, own6),
        field!(PlanRecord, own4),
        field!(PlanRecord, softwire_first_block),
        field!(PlanRecord, explicit_rows),
        field!(PlanRecord, through_stack),
        field!(PlanRecord, explicit_ipv4),
        field!(PlanRecord, map_ipv4),
        field!(PlanRecord, explicit_ipv6_first),
        field!(PlanRecord, explicit_ipv6_last),
        field!(PlanRecord, non_global),
        field!(PlanRecord, services),
        whole!(ServiceRecord),
        field!(ServiceRecord, kind),
        field!(ServiceRecord, pool_ranges),
        field!(ServiceRecord, untranslated_ranges),
        field!(ServiceRecord, flags),
        field!(ServiceRecord, traffic_class_4to6),
        field!(ServiceRecord, traffic_class_6to4),
        field!(ServiceRecord, inside_mtu),
        field!(ServiceRecord, outside_mtu),
        field!(ServiceRecord, lowest_ipv6_mtu),
        field!(ServiceRecord, bindings_per_subscriber),
        field!(ServiceRecord, prefix),
        field!(ServiceRecord, pool),
        field!(ServiceRecord, inside),
        field!(ServiceRecord, untranslated),
        field!(ServiceRecord, b4_networks),
        field!(ServiceRecord, mesh_ranges),
        field!(ServiceRecord, tunnel),
        field!(ServiceRecord, b4s),
        field!(ServiceRecord, mesh),
        field!(ServiceRecord, locals),
        field!(ServiceRecord, local),
        field!(ServiceRecord, number),
        field!(ServiceRecord, claims),
        whole!(TunnelRecord),
        field!(TunnelRecord, remote),
        field!(TunnelRecord, mtu),
        field!(TunnelRecord, traffic_class),
        field!(TunnelRecord, hop_limit),
        whole!(Network),
        field!(Network, mask),
        whole!(PoolRecord),
        field!(PoolRecord, addresses),
        field!(PoolRecord, first_slot),
        field!(PoolRecord, span),
        field!(PoolRecord, handed_out),
        whole!(PrefixRecord),
        field!(PrefixRecord, bits),
        field!(PrefixRecord, mask),
        field!(PrefixRecord, shift),
        field!(PrefixRecord, gap),
        field!(PrefixRecord, present),
        whole!(ExplicitRow),
        field!(ExplicitRow, ipv6),
        field!(ExplicitRow, ipv4),
        field!(ExplicitRow, suffix),
        field!(ExplicitRow, shift),
        whole!(SoftwireShare),
        field!(SoftwireShare, first),
        field!(SoftwireShare, last),
        field!(SoftwireShare, offset_bits),
        field!(SoftwireShare, psid_bits),
        whole!(SoftwireRecord),
        whole!(SoftwireBlocks),
        whole!(SoftwireLocals),
        whole!(MapRuleRecord),
        field!(MapRuleRecord, ipv6),
        field!(MapRuleRecord, behind),
        field!(MapRuleRecord, ipv4),
        field!(MapRuleRecord, ipv4_mask),
        field!(MapRuleRecord, given_psid),
        field!(MapRuleRecord, suffix_bits),
        field!(MapRuleRecord, embedded_psid_bits),
        field!(MapRuleRecord, shift),
        field!(MapRuleRecord, host_bits),
        field!(MapRuleRecord, offset_bits),
        field!(MapRuleRecord, psid_bits),
        whole!(MapGroup),
        field!(MapGroup, offset_bits),
        field!(MapGroup, psid_bits),
        whole!(ScratchRecord),
        field!(ScratchRecord, counters),
        field!(ScratchRecord, used_word),
        field!(ScratchRecord, identifications),
        whole!(CountersRecord),
        field!(CountersRecord, forwarded),
        field!(CountersRecord, forwarded_bytes),
        field!(CountersRecord, bindings_made),
        field!(CountersRecord, sessions_made),
        field!(CountersRecord, reports_lost),
        field!(CountersRecord, to_stack),
        field!(CountersRecord, passed),
        field!(CountersRecord, dropped),
        whole!(InterfaceRecord),
        field!(InterfaceRecord, number),
        field!(InterfaceRecord, mac),
        field!(InterfaceRecord, xdp_sends),
        ("report", Place { offset: 0, size: u32::try_from(reports::BYTES).unwrap() }),
        ("route watch", Place { offset: 0, size: word(routes::WATCH) }),
        ("until", Place { offset: word(routes::UNTIL), size: 4 }),
        ("generation", Place { offset: word(routes::GENERATION), size: 4 }),
    ];
    assert_eq!(places.len(), here.len() + 16 + 5);
    for ((name, here), c) in here.iter().zip(&places) {
        assert_eq!(here, c, "{name}");
    }
    let sizes: Vec<u32> = places[places.len() - 5..].iter().map(|place| place.size).collect();
    assert_eq!(sizes, [64; 5], "every record of the tables is a cache line");
}

/// Keeps the first span, which holds the records.
struct Keeper(Option<Arc<dyn Backing>>);

impl MemorySource for Keeper {
    fn take(&mut self, name: &'static str, bytes: usize) -> Result<Arc<dyn Backing>, MemoryError> {
        let span = Heap.take(name, bytes)?;
        self.0.get_or_insert_with(|| Arc::clone(&span));
        Ok(span)
    }
}

impl Keeper {
    /// The bytes of record 1.
    fn record(&self) -> [u8; 64] {
        // SAFETY: the span has two records at least, and nobody changes it now.
        unsafe { self.0.as_ref().unwrap().base().as_ptr().add(64).cast::<[u8; 64]>().read() }
    }
}

#[test]
fn what_rust_stores_in_a_record_c_finds_in_its_fields() {
    let Some(places) = places() else { return };
    let places = &places[places.len() - 21..places.len() - 5];
    let (mut memory, mut others) = (Keeper(None), Keeper(None));
    let bindings = Bindings::new(&mut memory, 1).unwrap();
    let binding = Binding {
        inside: InsideKey { ipv6: [1; 16], ipv4: [2; 4], port: [4; 2], protocol: 6, service: 7 },
        outside_ipv4: [3; 4],
        outside_port: [5; 2],
        flags: 0x0808,
        subscriber: 0x0909_0909,
        outside_slot: 0x0a0a_0a0a,
        created: Tick(0x0b0b_0b0b),
    };
    bindings.publish(bindings.claim(0).unwrap(), &binding, Tick(1));
    let subscribers = Subscribers::new(&mut others, 1).unwrap();
    let subscriber = Subscriber {
        key: SubscriberKey { ipv6: [12; 16], ipv4: [13; 4], service: 15 },
        outside_ipv4: [14; 4],
        pool_address: 0x1010_1010,
    };
    subscribers.publish(subscribers.claim(0).unwrap(), &subscriber, Tick(1));
    let (binding, subscriber) = (memory.record(), others.record());
    for (n, place) in places.iter().enumerate() {
        let record = if n < 11 { &binding } else { &subscriber };
        let range = place.offset as usize..(place.offset + place.size) as usize;
        let mark = u8::try_from(n + 1).unwrap();
        assert!(record[range].iter().all(|&byte| byte == mark), "field {n}: {place:?} of {record:02x?}");
    }
}

//! Compiles the programs of `bpf/` with clang, one object for each `*.bpf.c`, with the records and
//! numbers that the engine, the tables and this crate own in a generated header.

use std::env;
use std::fs;
use std::path::PathBuf;

use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::mechanism::session_state as state;
use tombolo_records::{Constant, clang, header};
use tombolo_tables::shared;

#[path = "src/miss.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the crate; only the numbers are wanted here")]
mod miss;
#[path = "src/record/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the crate; only the descriptions are wanted here")]
mod record;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-changed=src/miss.rs");
    println!("cargo::rerun-if-changed=src/record");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let numbers = [numbers(), constants(), shared::numbers(), record::constants()].concat();
    let records = [shared::records(), record::records()].concat();
    let header = header(&numbers, &records);
    fs::write(out.join("generated.h"), header).unwrap_or_else(|why| panic!("cannot write generated.h: {why}"));
    let files = fs::read_dir("bpf").unwrap_or_else(|why| panic!("cannot read the folder bpf: {why}"));
    for source in files.filter_map(|file| Some(file.ok()?.path())) {
        if source.to_str().is_some_and(|name| name.ends_with(".bpf.c")) {
            clang::compile(&source, &out);
        }
    }
}

tombolo_records::constants! {
    const IPV6_MINIMUM_MTU: u16 = tombolo_wire::ipv6::MINIMUM_MTU;
}

/// The engine's numbers and the misses.
fn numbers() -> Vec<Constant> {
    // The names are wanted for as long as this program runs.
    let number = |prefix: &str, name: &str, value: u8| Constant {
        name: format!("{prefix}_{}", name.to_uppercase().replace('-', "_")).leak(),
        doc: &[],
        value: value.into(),
        suffix: "",
    };
    let misses = miss::Miss::ALL.iter().map(|miss| number("MISS", miss.name(), *miss as u8));
    let spaces = PortSpace::WITH_SLOTS.map(|space| number("SPACE", space.name(), space as u8));
    let sides = [("inside", state::Side::Inside), ("outside", state::Side::Outside)];
    let sides = sides.map(|(name, side)| number("SIDE", name, side as u8));
    let events = [
        ("syn", state::Event::Syn),
        ("fin", state::Event::Fin),
        ("rst", state::Event::Rst),
        ("other", state::Event::Other),
    ];
    let events = events.map(|(name, event)| number("EVENT", name, event as u8));
    let states = state::NAMES.map(|(state, name)| number("STATE", name, state.0));
    // What the table adds to a state whose lifetime starts anew.
    let refresh = number("STEP", "refresh", state::TABLE[usize::from(state::UDP.0)][0] & !state::UDP.0);
    misses.chain(spaces).chain(sides).chain(events).chain(states).chain([refresh]).collect()
}

//! The records that the programs share with this crate. The build script reads them too, and writes
//! the header that `bpf/` has them from.

mod cluster;
mod counters;
mod interface;
mod lookup;
mod plan;
mod route;
mod service;
mod tap;

pub(crate) use cluster::*;
pub(crate) use counters::*;
pub(crate) use interface::*;
pub(crate) use lookup::*;
pub(crate) use plan::*;
pub(crate) use route::*;
pub(crate) use service::*;
pub(crate) use tap::*;

/// The records, in an order in which C can read them.
#[allow(dead_code, reason = "the build script asks for it")]
pub(crate) fn records() -> Vec<tombolo_records::Record> {
    let of = [
        cluster::records(),
        service::records(),
        plan::records(),
        lookup::records(),
        counters::records(),
        interface::records(),
        route::records(),
        tap::records(),
    ];
    of.concat()
}

/// The numbers.
#[allow(dead_code, reason = "the build script asks for it")]
pub(crate) fn constants() -> Vec<tombolo_records::Constant> {
    let of = [
        cluster::constants(),
        service::constants(),
        plan::constants(),
        lookup::constants(),
        counters::constants(),
        interface::constants(),
        route::constants(),
        tap::constants(),
    ];
    of.concat()
}

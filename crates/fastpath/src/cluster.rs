//! The cluster as the programs have it (`bpf/cluster.h`): what of it no change of an owner changes.

use tombolo_engine::Plan;
use tombolo_engine::cluster::{Cluster, KEY};
use tombolo_engine::mapping::slices::PoolSlices;
use tombolo_io::netfilter::Entrance;
use tombolo_tables::hash::HashKey;

use crate::record::{CORE_ANYWHERE, CORE_BY_ROUTE, CORE_LISTED, ClusterRecord, HashKeyRecord, halves};

impl HashKeyRecord {
    pub(crate) fn new(key: HashKey) -> Self {
        Self { halves: key.halves(), offset: key.offset() }
    }
}

impl ClusterRecord {
    /// Of zeros where no slices are: then no program asks for any. `core` is where other nodes' packets come in.
    pub(crate) fn new(plan: &Plan, core: Option<&Entrance>) -> Self {
        let Some((cluster, slices)) = plan.cluster.as_deref().zip(slices_of(plan)) else { return Self::default() };
        let softwire_end = plan.softwire_end().filter(|_| cluster.takes_softwires());
        let mut record = Self {
            nodes: small(cluster.nodes().len()),
            own: small(cluster.own()),
            core: match core {
                None => CORE_ANYWHERE,
                Some(Entrance::ByRoute) => CORE_BY_ROUTE,
                Some(Entrance::Listed(_)) => CORE_LISTED,
            },
            takes_softwires: softwire_end.is_some().into(),
            slices: slices.slicing().count().into(),
            rest: if plan.times.copies_last == 0 { 0 } else { plan.times.rest() },
            slice_key: HashKeyRecord::new(slices.slicing().key()),
            flow_key: HashKeyRecord::new(KEY),
            softwire_end: softwire_end.map_or([0; 2], |end| halves(end.to_bits())),
            ..Self::default()
        };
        for (entry, node) in record.locators.iter_mut().zip(cluster.nodes()) {
            [*entry, _] = halves(node.locator.to_bits());
        }
        record
    }
}

/// Those of the first pool that has some: all are cut into as many, by the same secret.
fn slices_of(plan: &Plan) -> Option<&PoolSlices> {
    let has_slices = Cluster::has_slices;
    plan.cluster.as_deref().filter(|cluster| has_slices(cluster))?;
    plan.services.iter().find_map(|service| service.kind.pool()?.slices())
}

fn small(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

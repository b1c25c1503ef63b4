//! NAT64 as the programs have it: `bpf/nat64.h`.

use tombolo_engine::service::nat64::Nat64;

use super::FastRecord;
use super::parts::{fill_networks, prefix_record, strictness};
use crate::record::{CLAIM_POOL, CLAIM_PREFIX, KIND_NAT64, SERVICE_ENGINE_BINDS, ServiceRecord};

impl FastRecord for Nat64 {
    fn record(&self) -> Result<ServiceRecord, &'static str> {
        let Nat64 { prefix, inside, well_known_prefix_strict, nat, translate } = self;
        let mut record = ServiceRecord {
            kind: KIND_NAT64,
            claims: CLAIM_PREFIX | CLAIM_POOL,
            flags: strictness(*prefix, *well_known_prefix_strict),
            prefix: prefix_record(*prefix),
            ..ServiceRecord::default()
        };
        record.set_translation(translate);
        record.set_nat(nat)?;
        // Who has a binding may send; of so many networks the engine makes the bindings.
        match fill_networks(&mut record.networks, inside) {
            Some(networks) => record.inside_networks = networks,
            None => record.flags |= SERVICE_ENGINE_BINDS,
        }
        Ok(record)
    }
}

//! NAT64 as the programs have it: `bpf/nat64.h`.

use tombolo_engine::service::nat64::Nat64;

use super::FastRecord;
use super::parts::prefix_record;
use crate::record::{CLAIM_POOL, CLAIM_PREFIX, KIND_NAT64, SERVICE_STRICT, ServiceRecord};

impl FastRecord for Nat64 {
    fn record(&self) -> Result<ServiceRecord, &'static str> {
        let Nat64 { prefix, well_known_prefix_strict, nat, translate } = self;
        let mut record = ServiceRecord {
            kind: KIND_NAT64,
            claims: CLAIM_PREFIX | CLAIM_POOL,
            prefix: prefix_record(*prefix),
            ..ServiceRecord::default()
        };
        if *well_known_prefix_strict && prefix.is_well_known() {
            record.flags |= SERVICE_STRICT;
        }
        record.set_translation(translate);
        record.set_nat(nat)?;
        Ok(record)
    }
}

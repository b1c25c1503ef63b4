//! NAT44 as the programs have it: `bpf/nat44.h`.

use tombolo_engine::service::nat44::Nat44;

use super::FastRecord;
use super::parts::{fill, fill_exemptions};
use crate::record::{CLAIM_POOL, CLAIM_SOURCES, KIND_NAT44, SERVICE_CLAMPS, ServiceRecord};

impl FastRecord for Nat44 {
    fn record(&self) -> Result<ServiceRecord, &'static str> {
        let Nat44 { inside, untranslated, exempt, nat, inside_mtu, outside_mtu, largest_segment } = self;
        let mut record = ServiceRecord {
            kind: KIND_NAT44,
            claims: CLAIM_SOURCES | CLAIM_POOL,
            inside_mtu: *inside_mtu,
            outside_mtu: *outside_mtu,
            ..ServiceRecord::default()
        };
        record.flags |= if largest_segment.is_some() { SERVICE_CLAMPS } else { 0 };
        record.inside_ranges = fill(&mut record.inside, inside)?;
        record.untranslated_ranges = fill(&mut record.untranslated, untranslated)?;
        record.exemptions = fill_exemptions(&mut record.exempt, exempt)?;
        record.set_nat(nat)?;
        Ok(record)
    }
}

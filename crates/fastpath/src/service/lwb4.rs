//! The lwB4 as the programs have it: `bpf/softwire.h`.

use tombolo_engine::service::lwb4::Lwb4;

use super::FastRecord;
use super::parts::{AWAITS_FAR_END, are_in_the_set, fill};
use crate::record::{CLAIM_LOCAL, CLAIM_SOURCES, KIND_EDGE, ServiceRecord};

impl FastRecord for Lwb4 {
    fn record(&self) -> Result<ServiceRecord, &'static str> {
        let Lwb4 { inside, ends, far_end: _, nat, softwire, inside_mtu, icmp_source: _, tell_not_ours: _ } = self;
        if ends.awaits_far_end() {
            return Err(AWAITS_FAR_END);
        }
        let mut record = ServiceRecord {
            kind: KIND_EDGE,
            claims: CLAIM_LOCAL | CLAIM_SOURCES,
            inside_mtu: *inside_mtu,
            ..ServiceRecord::default()
        };
        record.inside_ranges = fill(&mut record.inside, inside)?;
        record.set_softwire(ends.local, Some(ends.remote), softwire);
        record.set_nat(nat)?;
        are_in_the_set(nat)?;
        Ok(record)
    }
}

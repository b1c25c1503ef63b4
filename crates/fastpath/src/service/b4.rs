//! The B4 as the programs have it: `bpf/softwire.h`.

use tombolo_engine::service::b4::B4;

use super::FastRecord;
use super::parts::{AWAITS_FAR_END, fill};
use crate::record::{CLAIM_LOCAL, CLAIM_SOURCES, KIND_B4, ServiceRecord};

impl FastRecord for B4 {
    fn record(&self) -> Result<ServiceRecord, &'static str> {
        // Errors are the engine's.
        let B4 { inside, ends, far_end: _, softwire, icmp_source: _ } = self;
        if ends.awaits_far_end() {
            return Err(AWAITS_FAR_END);
        }
        let mut record =
            ServiceRecord { kind: KIND_B4, claims: CLAIM_LOCAL | CLAIM_SOURCES, ..ServiceRecord::default() };
        record.inside_ranges = fill(&mut record.inside, inside)?;
        record.set_softwire(ends.local, Some(ends.remote), softwire);
        Ok(record)
    }
}

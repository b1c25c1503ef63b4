//! The AFTR as the programs have it: `bpf/softwire.h`.

use tombolo_engine::service::aftr::Aftr;

use super::FastRecord;
use super::parts::{fill, fill_networks};
use crate::record::{CLAIM_LOCAL, CLAIM_POOL, KIND_AFTR, ServiceRecord};

impl FastRecord for Aftr {
    fn record(&self) -> Result<ServiceRecord, &'static str> {
        let Aftr { address, b4s, inside, untranslated, nat, softwire, outside_mtu, icmp_source: _, tell_unknown: _ } =
            self;
        if !untranslated.is_empty() {
            return Err("it has hosts that keep their addresses");
        }
        let mut record = ServiceRecord {
            kind: KIND_AFTR,
            claims: CLAIM_LOCAL | CLAIM_POOL,
            outside_mtu: *outside_mtu,
            ..ServiceRecord::default()
        };
        let networks = fill_networks(&mut record.networks, b4s);
        record.b4_networks = networks.ok_or("it has more prefixes of B4s than the fast path has room for")?;
        record.inside_ranges = fill(&mut record.inside, inside)?;
        record.set_softwire(*address, None, softwire);
        record.set_nat(nat)?;
        Ok(record)
    }
}

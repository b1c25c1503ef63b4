//! The AFTR as the programs have it: `bpf/softwire.h`.

use tombolo_engine::service::aftr::Aftr;

use super::FastRecord;
use super::parts::fill;
use crate::record::{CLAIM_LOCAL, CLAIM_POOL, KIND_AFTR, Network, RANGES, ServiceRecord, halves};

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
        if b4s.len() > RANGES {
            return Err("it has more prefixes of B4s than the fast path has room for");
        }
        for (entry, prefix) in record.b4s.iter_mut().zip(b4s) {
            let mask = !u128::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
            *entry = Network { bits: halves(prefix.key()), mask: halves(mask) };
        }
        record.b4_networks = u8::try_from(b4s.len()).unwrap_or(u8::MAX);
        record.inside_ranges = fill(&mut record.inside, inside)?;
        record.set_softwire(*address, None, softwire);
        record.set_nat(nat)?;
        Ok(record)
    }
}

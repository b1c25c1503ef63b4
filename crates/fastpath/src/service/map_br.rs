//! The border relays of MAP-E and MAP-T as the programs have them: `bpf/map_br.h`.

use tombolo_engine::service::map_e_br::MapEBr;
use tombolo_engine::service::map_t_br::MapTBr;

use super::parts::{prefix_record, strictness};
use super::{FastRecord, Table};
use crate::record::{CLAIM_LOCAL, CLAIM_PREFIX, CLAIM_RULES, KIND_MAP_E_BR, KIND_MAP_T_BR, ServiceRecord};

impl FastRecord for MapEBr {
    fn record(&self) -> Result<ServiceRecord, &'static str> {
        let MapEBr { domain: _, address, softwire } = self;
        let mut record =
            ServiceRecord { kind: KIND_MAP_E_BR, claims: CLAIM_LOCAL | CLAIM_RULES, ..ServiceRecord::default() };
        record.set_softwire(*address, None, softwire);
        Ok(record)
    }

    fn table(&self) -> Option<Table<'_>> {
        Some(Table::Rules(&self.domain))
    }
}

impl FastRecord for MapTBr {
    fn record(&self) -> Result<ServiceRecord, &'static str> {
        // Sources of errors are the engine's.
        let MapTBr { domain: _, dmr, well_known_prefix_strict, error_sources: _, translate } = self;
        let mut record = ServiceRecord {
            kind: KIND_MAP_T_BR,
            claims: CLAIM_PREFIX | CLAIM_RULES,
            flags: strictness(*dmr, *well_known_prefix_strict),
            prefix: prefix_record(*dmr),
            ..ServiceRecord::default()
        };
        record.set_translation(translate);
        Ok(record)
    }

    fn table(&self) -> Option<Table<'_>> {
        Some(Table::Rules(&self.domain))
    }
}

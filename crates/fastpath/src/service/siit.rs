//! SIIT and the CLAT as the programs have them: `bpf/siit.h`.

use std::net::Ipv4Addr;

use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::stateless::StatelessMap;
use tombolo_engine::service::siit::{Hairpinning, Role, Siit};

use super::parts::{fill, prefix_record, strictness};
use super::{FastRecord, Table};
use crate::record::{
    CLAIM_INSIDE, CLAIM_MAPPED_IPV4, CLAIM_MAPPED_IPV6, CLAIM_PREFIX, CLAIM_UNMAPPED_IPV4, KIND_SIIT,
    SERVICE_HAIRPIN_INTRINSIC, SERVICE_HAIRPIN_SIMPLE, ServiceRecord,
};

impl FastRecord for Siit {
    fn record(&self) -> Result<ServiceRecord, &'static str> {
        // Sources and extensions of errors are the engine's.
        let Siit {
            role,
            mapping,
            dynamic,
            embedded_hosts,
            hairpinning,
            error_sources: _,
            identify_nodes: _,
            translate,
        } = self;
        let StatelessMap { explicit: _, prefix, well_known_prefix_strict, denied } = mapping;
        if !denied.is_empty() {
            return Err("it has a list of denied addresses");
        }
        if dynamic.is_some() {
            return Err("it lends addresses to hosts without one");
        }
        if *role == Role::Everything {
            return Err("it takes whatever is routed to it");
        }
        let mut record = ServiceRecord { kind: KIND_SIIT, ..ServiceRecord::default() };
        record.claims = match role {
            Role::Clat => CLAIM_MAPPED_IPV6 | CLAIM_UNMAPPED_IPV4,
            _ => CLAIM_PREFIX | CLAIM_INSIDE | CLAIM_MAPPED_IPV6 | CLAIM_MAPPED_IPV4,
        };
        if let Some(prefix) = prefix {
            record.prefix = prefix_record(*prefix);
            record.flags |= strictness(*prefix, *well_known_prefix_strict);
        }
        record.flags |= match hairpinning {
            Hairpinning::Off => 0,
            Hairpinning::Simple => SERVICE_HAIRPIN_SIMPLE,
            Hairpinning::Intrinsic => SERVICE_HAIRPIN_INTRINSIC,
        };
        let hosts = embedded_hosts.iter().map(|prefix| {
            let last = prefix.key() | u32::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
            Ipv4Addr::from_bits(prefix.key())..=Ipv4Addr::from_bits(last)
        });
        record.inside_ranges = fill(&mut record.inside, &AddressRanges::new(hosts))?;
        record.set_translation(translate);
        Ok(record)
    }

    fn table(&self) -> Option<Table<'_>> {
        Some(Table::Mappings(self.mapping.explicit.rows()))
    }

    fn takes_everything(&self) -> bool {
        self.role == Role::Everything
    }
}

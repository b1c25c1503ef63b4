//! The customer's edges of MAP-E and MAP-T as the programs have them: `bpf/softwire.h`,
//! `bpf/map_t_ce.h`.

use std::net::Ipv4Addr;

use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::map_rule::MapRule;
use tombolo_engine::service::map::MapEdge;
use tombolo_engine::service::map_e_ce::MapECe;
use tombolo_engine::service::map_t_ce::MapTCe;

use super::FastRecord;
use super::parts::{are_in_the_set, fill, prefix_record, strictness};
use crate::record::{CLAIM_LOCAL, CLAIM_SOURCES, KIND_EDGE, KIND_MAP_T_CE, ServiceRecord, halves};

impl FastRecord for MapECe {
    fn record(&self) -> Result<ServiceRecord, &'static str> {
        let MapECe { edge, relay, softwire } = self;
        let mut record =
            ServiceRecord { kind: KIND_EDGE, claims: CLAIM_LOCAL | CLAIM_SOURCES, ..ServiceRecord::default() };
        record.set_edge(edge)?;
        record.set_softwire(edge.ce.address(), Some(*relay), softwire);
        Ok(record)
    }
}

impl FastRecord for MapTCe {
    fn record(&self) -> Result<ServiceRecord, &'static str> {
        let MapTCe { edge, dmr, well_known_prefix_strict, error_sources: _, translate } = self;
        let mut record = ServiceRecord {
            kind: KIND_MAP_T_CE,
            claims: CLAIM_LOCAL | CLAIM_SOURCES,
            prefix: prefix_record(*dmr),
            ..ServiceRecord::default()
        };
        record.set_edge(edge)?;
        record.tunnel.local = halves(edge.ce.address().to_bits());
        record.flags |= strictness(*dmr, *well_known_prefix_strict);
        // The longer prefix decides about a source (RFC 7599 section 8.2); rules inside the default one
        // are rare.
        let is_inside =
            |rule: &MapRule| rule.ipv6().prefix_len() >= dmr.length() && dmr.contains(rule.ipv6().key().into());
        if edge.mesh.rules().iter().any(is_inside) {
            return Err("a mapping rule lies inside the default one");
        }
        record.set_translation(translate);
        Ok(record)
    }
}

impl ServiceRecord {
    /// The NAPT of a customer's edge with one address, and the edges that it reaches directly.
    fn set_edge(&mut self, edge: &MapEdge) -> Result<(), &'static str> {
        let MapEdge { ce, napt, mesh } = edge;
        let Some(nat44) = napt else { return Err("its hosts have the outside address themselves") };
        if ce.ipv4().prefix_len() != 32 {
            return Err("it has a prefix of IPv4 addresses");
        }
        let translation = nat44.record()?;
        *self = Self { kind: self.kind, claims: self.claims, prefix: self.prefix, ..translation };
        are_in_the_set(&nat44.nat)?;
        let rules = mesh.rules().iter().map(|rule| {
            let (first, length) = (rule.ipv4().key(), rule.ipv4().prefix_len());
            let last = first | u32::MAX.checked_shr(length.into()).unwrap_or(0);
            Ipv4Addr::from_bits(first)..=Ipv4Addr::from_bits(last)
        });
        self.mesh_ranges = fill(&mut self.mesh, &AddressRanges::new(rules))?;
        Ok(())
    }
}

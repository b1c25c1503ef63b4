//! The lwAFTR as the programs have it: `bpf/lwaftr.h`.

use std::net::Ipv6Addr;

use tombolo_engine::service::lwaftr::Lwaftr;

use super::parts::fill;
use super::{FastRecord, Table};
use crate::record::{CLAIM_INSIDE, CLAIM_LOCALS, KIND_LWAFTR, LOCALS, SERVICE_NO_INBOUND_ICMP, ServiceRecord, halves};

impl FastRecord for Lwaftr {
    fn record(&self) -> Result<ServiceRecord, &'static str> {
        // Hairpins and ICMP errors are the engine's.
        let Lwaftr {
            addresses,
            ipv4,
            table,
            softwire,
            hairpinning: _,
            tell_unknown: _,
            tell_unreachable: _,
            inbound_icmp,
        } = self;
        if addresses.len() > LOCALS {
            return Err("it has more addresses of its own than the fast path has room for");
        }
        if table.rows().any(|row| !addresses.contains(&row.local)) {
            return Err("a softwire ends at an address that is not among its own");
        }
        let mut record =
            ServiceRecord { kind: KIND_LWAFTR, claims: CLAIM_LOCALS | CLAIM_INSIDE, ..ServiceRecord::default() };
        record.flags |= if *inbound_icmp { 0 } else { SERVICE_NO_INBOUND_ICMP };
        record.inside_ranges = fill(&mut record.inside, ipv4)?;
        // Each softwire has one of the addresses below.
        record.set_softwire(Ipv6Addr::UNSPECIFIED, None, softwire);
        record.locals = u8::try_from(addresses.len()).unwrap_or(u8::MAX);
        for (entry, address) in record.local.iter_mut().zip(addresses) {
            *entry = halves(address.to_bits());
        }
        Ok(record)
    }

    fn table(&self) -> Option<Table<'_>> {
        Some(Table::Softwires(self))
    }
}

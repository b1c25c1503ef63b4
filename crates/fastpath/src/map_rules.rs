//! The rules of a MAP domain as the programs read them: `bpf/map_rule.h`, two longest-prefix tables and the rules.

use std::collections::HashMap;
use std::sync::Arc;

use aya::{Ebpf, EbpfLoader};
use tombolo_engine::mapping::map_domain::MapDomain;
use tombolo_engine::mapping::map_rule::MapRule;
use tombolo_tables::lpm::{LpmError, NextHop, Prefix, Route};
use tombolo_tables::memory::Backing;

use crate::explicit::{LINE, copy, entries, trie};
use crate::loader::FastPathError;

/// `MAP_BY_PSID`: the port decides among rules with one IPv4 prefix.
const BY_PSID: u32 = 1 << 23;

/// `struct map_rule`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct RuleRecord {
    pub(crate) ipv6: [u64; 2],
    pub(crate) behind: u64,
    pub(crate) ipv4: u32,
    pub(crate) ipv4_mask: u32,
    pub(crate) given_psid: u32,
    pub(crate) suffix_bits: u8,
    pub(crate) embedded_psid_bits: u8,
    pub(crate) shift: u8,
    pub(crate) host_bits: u8,
    pub(crate) offset_bits: u8,
    pub(crate) psid_bits: u8,
    pub(crate) unused: u16,
    pub(crate) unused2: u32,
    pub(crate) unused3: u64,
}

/// The tables of one plan, to be put into its programs' arrays.
#[derive(Default)]
pub(crate) struct MapRules {
    ipv4: Option<Arc<dyn Backing>>,
    ipv6: Option<Arc<dyn Backing>>,
    rules: Vec<RuleRecord>,
}

impl MapRules {
    pub(crate) fn new(domain: &MapDomain) -> Result<Self, LpmError> {
        let rules = domain.rules();
        if rules.is_empty() {
            return Ok(Self::default());
        }
        Ok(Self {
            ipv4: Some(trie(&routes_ipv4(rules)?)?),
            ipv6: Some(trie(&routes_ipv6(rules)?)?),
            rules: rules.iter().map(record).collect(),
        })
    }

    /// Makes the arrays of the programs as large as the tables.
    pub(crate) fn size<'l, 'g>(&self, loader: &'l mut EbpfLoader<'g>) -> &'l mut EbpfLoader<'g> {
        let lines =
            |span: &Option<Arc<dyn Backing>>| entries(span.as_ref().map_or(0, |span| span.len()).div_ceil(LINE));
        loader
            .map_max_entries("map_ipv4", lines(&self.ipv4))
            .map_max_entries("map_ipv6", lines(&self.ipv6))
            .map_max_entries("map_rules", entries(self.rules.len()))
    }

    /// Copies the tables into the arrays, before any packet is there.
    pub(crate) fn fill(&self, programs: &Ebpf) -> Result<(), FastPathError> {
        for (name, span) in [("map_ipv4", &self.ipv4), ("map_ipv6", &self.ipv6)] {
            if let Some(span) = span {
                copy(programs, name, span.base().as_ptr(), span.len())?;
            }
        }
        if self.rules.is_empty() {
            return Ok(());
        }
        copy(programs, "map_rules", self.rules.as_ptr().cast(), size_of_val(self.rules.as_slice()))
    }
}

fn number(number: usize) -> Result<NextHop, LpmError> {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    if number >= BY_PSID { Err(LpmError::NextHop { number }) } else { NextHop::new(number) }
}

/// A prefix leads to its rule, if that is the only one and tells PSIDs by itself.
fn routes_ipv4(rules: &[MapRule]) -> Result<Vec<Route<u32>>, LpmError> {
    let mut hops: HashMap<Prefix<u32>, NextHop> = HashMap::with_capacity(rules.len());
    for (index, rule) in rules.iter().enumerate() {
        let hop = if rule.given_psid().is_none() { number(index)? } else { NextHop::new(BY_PSID)? };
        hops.entry(rule.ipv4()).and_modify(|hop| *hop = NextHop::new(BY_PSID).unwrap_or(*hop)).or_insert(hop);
    }
    Ok(hops.into_iter().map(|(prefix, next_hop)| Route { prefix, next_hop }).collect())
}

fn routes_ipv6(rules: &[MapRule]) -> Result<Vec<Route<u128>>, LpmError> {
    rules.iter().enumerate().map(|(index, rule)| Ok(Route { prefix: rule.ipv6(), next_hop: number(index)? })).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "both halves are taken, and the lower one alone on purpose")]
fn record(rule: &MapRule) -> RuleRecord {
    let (ipv6, ipv4) = (rule.ipv6().key(), rule.ipv4());
    let behind = u128::MAX.checked_shr(rule.end_user_length().into()).unwrap_or(0);
    RuleRecord {
        ipv6: [(ipv6 >> 64) as u64, ipv6 as u64],
        behind: behind as u64,
        ipv4: ipv4.key(),
        ipv4_mask: u32::MAX.checked_shl(32 - u32::from(ipv4.prefix_len())).unwrap_or(0),
        given_psid: rule.given_psid().map_or(0, |psid| u32::from(psid) + 1),
        suffix_bits: rule.suffix_bits(),
        embedded_psid_bits: rule.embedded_psid_bits(),
        shift: 128 - rule.end_user_length(),
        host_bits: 32 - rule.assigned_length(),
        offset_bits: rule.division().offset_bits(),
        psid_bits: rule.division().psid_bits(),
        ..RuleRecord::default()
    }
}

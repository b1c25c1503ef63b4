//! The rules of a MAP domain as the programs read them: `bpf/map_rule.h`, two longest-prefix tables
//! and the rules.
//!
//! Rules of one address that the port decides among have a group, with a member for each PSID.

use std::collections::HashMap;

use tombolo_engine::mapping::map_domain::MapDomain;
use tombolo_engine::mapping::map_rule::MapRule;
use tombolo_tables::lpm::{LpmError, NextHop, Prefix, Route};

use super::array::{Content, Trie};
use crate::record::{MAP_BY_PSID, MapGroup, MapRuleRecord, Range};

/// Members of groups, of eight bytes each. Groups that find no room are left to the engine.
const MOST_MEMBERS: usize = 1 << 24;

/// The tables of one plan, to be copied into its programs' arrays.
#[derive(Default)]
pub(crate) struct MapRules {
    ipv4: Trie,
    ipv6: Trie,
    rules: Vec<MapRuleRecord>,
    groups: Vec<MapGroup>,
    members: Vec<u64>,
}

impl MapRules {
    pub(crate) fn new(domain: &MapDomain) -> Result<Self, LpmError> {
        let rules = domain.rules();
        if rules.is_empty() {
            return Ok(Self::default());
        }
        let mut tables = Self {
            ipv6: Trie::new(&routes_ipv6(rules)?)?,
            rules: rules.iter().map(record).collect(),
            ..Self::default()
        };
        tables.ipv4 = Trie::new(&tables.routes_ipv4(rules)?)?;
        Ok(tables)
    }

    /// From the lowest to the highest IPv4 address of a rule.
    pub(crate) fn bounds(&self) -> Range {
        Range {
            first: self.rules.iter().map(|rule| rule.ipv4).min().unwrap_or(0),
            last: self.rules.iter().map(|rule| rule.ipv4 | !rule.ipv4_mask).max().unwrap_or(0),
        }
    }

    pub(crate) fn contents(&self) -> [Content<'_>; 5] {
        [
            self.ipv4.content("map_ipv4"),
            self.ipv6.content("map_ipv6"),
            Content::records("map_rules", &self.rules),
            Content::records("map_groups", &self.groups),
            Content::records("map_members", &self.members),
        ]
    }

    /// A prefix leads to its rule, if it has only that one and the rule embeds the PSID; else to a
    /// group.
    fn routes_ipv4(&mut self, rules: &[MapRule]) -> Result<Vec<Route<u32>>, LpmError> {
        let mut hops: HashMap<Prefix<u32>, NextHop> = HashMap::with_capacity(rules.len());
        for (index, rule) in rules.iter().enumerate() {
            let Some(psid) = rule.given_psid() else {
                hops.insert(rule.ipv4(), number(index)?);
                continue;
            };
            let hop = match hops.get(&rule.ipv4()) {
                Some(hop) => *hop,
                None => self.new_group(rule)?,
            };
            hops.insert(rule.ipv4(), hop);
            self.join(hop, psid, index);
        }
        Ok(hops.into_iter().map(|(prefix, next_hop)| Route { prefix, next_hop }).collect())
    }

    fn new_group(&mut self, rule: &MapRule) -> Result<NextHop, LpmError> {
        let (group, division) = (number(self.groups.len())?.number(), rule.division());
        let end = self.members.len() + division.sets() as usize;
        let first = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        if end <= MOST_MEMBERS && division.is_shared() {
            let (offset_bits, psid_bits) = (division.offset_bits(), division.psid_bits());
            self.groups.push(MapGroup { first, offset_bits, psid_bits, unused: 0 });
            self.members.resize(end, 0);
        } else {
            self.groups.push(MapGroup::default());
        }
        NextHop::new(MAP_BY_PSID | group)
    }

    fn join(&mut self, hop: NextHop, psid: u16, rule: usize) {
        let group = self.groups.get((hop.number() & !MAP_BY_PSID) as usize).copied().unwrap_or_default();
        if group.psid_bits > 0
            && let Some(member) = self.members.get_mut(group.first as usize + usize::from(psid))
        {
            *member = rule as u64 + 1;
        }
    }
}

fn number(number: usize) -> Result<NextHop, LpmError> {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    if number >= MAP_BY_PSID { Err(LpmError::NextHop { number }) } else { NextHop::new(number) }
}

fn routes_ipv6(rules: &[MapRule]) -> Result<Vec<Route<u128>>, LpmError> {
    rules.iter().enumerate().map(|(index, rule)| Ok(Route { prefix: rule.ipv6(), next_hop: number(index)? })).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "both halves are taken, and the lower one alone on purpose")]
fn record(rule: &MapRule) -> MapRuleRecord {
    let (ipv6, ipv4) = (rule.ipv6().key(), rule.ipv4());
    let behind = u128::MAX.checked_shr(rule.end_user_length().into()).unwrap_or(0);
    MapRuleRecord {
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
        behind_psid: rule.identifier().bits_behind(),
        ..MapRuleRecord::default()
    }
}

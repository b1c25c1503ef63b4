//! Explicit address mappings (RFC 7757) as the programs read them: two longest-prefix tables and
//! the rows.

use tombolo_engine::mapping::eam::Eam;
use tombolo_tables::lpm::{Key, LpmError, NextHop, Prefix, Route};

use super::array::{Content, Trie};
use crate::record::{ExplicitRow, PlanRecord, Range};

/// The tables of one plan, to be copied into its programs' arrays.
#[derive(Default)]
pub(crate) struct Mappings {
    ipv4: Trie,
    ipv6: Trie,
    rows: Vec<ExplicitRow>,
    bounds: Bounds,
}

/// The lowest and the highest addresses of all mappings; of IPv6 the upper halves.
#[derive(Default)]
struct Bounds {
    ipv4: Range,
    ipv6: (u64, u64),
}

impl Mappings {
    pub(crate) fn new(rows: &[Eam]) -> Result<Self, LpmError> {
        if rows.is_empty() {
            return Ok(Self::default());
        }
        Ok(Self {
            ipv4: Trie::new(&column(rows, Eam::ipv4)?)?,
            ipv6: Trie::new(&column(rows, Eam::ipv6)?)?,
            rows: rows.iter().map(row_record).collect(),
            bounds: Bounds::new(rows),
        })
    }

    pub(crate) fn complete(&self, plan: &mut PlanRecord) {
        plan.explicit_rows = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        plan.explicit_ipv4 = self.bounds.ipv4;
        (plan.explicit_ipv6_first, plan.explicit_ipv6_last) = self.bounds.ipv6;
    }

    pub(crate) fn contents(&self) -> [Content<'_>; 3] {
        let rows = Content::records("explicit_rows", &self.rows);
        [self.ipv4.content("explicit_ipv4"), self.ipv6.content("explicit_ipv6"), rows]
    }
}

impl Bounds {
    fn new(rows: &[Eam]) -> Self {
        let last = |prefix: Prefix<u32>| prefix.key() | u32::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
        let upper_half = |bits: u128| u64::try_from(bits >> 64).unwrap_or(u64::MAX);
        let last_ipv6 =
            |prefix: Prefix<u128>| prefix.key() | u128::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
        Self {
            ipv4: Range {
                first: rows.iter().map(|row| row.ipv4().key()).min().unwrap_or(0),
                last: rows.iter().map(|row| last(row.ipv4())).max().unwrap_or(0),
            },
            ipv6: (
                rows.iter().map(|row| upper_half(row.ipv6().key())).min().unwrap_or(0),
                rows.iter().map(|row| upper_half(last_ipv6(row.ipv6()))).max().unwrap_or(0),
            ),
        }
    }
}

/// One column as routes to its rows.
fn column<K: Key>(rows: &[Eam], prefix: impl Fn(&Eam) -> Prefix<K>) -> Result<Vec<Route<K>>, LpmError> {
    let number = |number: usize| NextHop::new(u32::try_from(number).unwrap_or(u32::MAX));
    rows.iter().enumerate().map(|(index, row)| Ok(Route { prefix: prefix(row), next_hop: number(index)? })).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
fn row_record(row: &Eam) -> ExplicitRow {
    let (ipv4, ipv6) = (row.ipv4(), row.ipv6());
    let suffix_bits = 32 - u32::from(ipv4.prefix_len());
    let bits = ipv6.key();
    ExplicitRow {
        ipv6: [(bits >> 64) as u64, bits as u64],
        ipv4: ipv4.key(),
        suffix: u32::MAX.checked_shr(ipv4.prefix_len().into()).unwrap_or(0),
        shift: if suffix_bits == 0 { 0 } else { 128 - u32::from(ipv6.prefix_len()) - suffix_bits },
        unused: 0,
    }
}

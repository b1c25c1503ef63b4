//! The softwires of a lwAFTR as the programs read them: `bpf/lwaftr.h`, a hash of address and port set.
//!
//! ```text
//! bucket, 64 bytes   | row | row |            a row is in one of two buckets, chosen by the hash of its key
//! row, 32 bytes      | key 8 | address of the lwB4 16 | not used 8 |
//! key                63 used | 48..55 number of our address | 16..47 IPv4 address | 0..15 PSID
//! ```
//!
//! Rows that find both buckets full push another one out to its other bucket (cuckoo hashing, Pagh and Rodler 2001). With
//! two rows a bucket nine rows of ten places find a place; three of four are used, so that most are in their first.
//!
//! How the ports of an address are divided has to be known before the key is. Mostly all addresses do it alike, and it is a
//! constant of the programs; else a longest-prefix table tells it for each.

use std::net::Ipv6Addr;
use std::sync::Arc;

use aya::{Ebpf, EbpfLoader};
use tombolo_engine::mapping::port_set::PortDivision;
use tombolo_engine::mapping::softwire_table::{SoftwireRow, SoftwireTable};
use tombolo_engine::service::lwaftr::Lwaftr;
use tombolo_tables::hash::HashKey;
use tombolo_tables::lpm::{LpmError, NextHop, Prefix, Route};
use tombolo_tables::memory::Backing;

use crate::explicit::{LINE, copy, entries, trie};
use crate::loader::FastPathError;
use crate::plan::halves;

const USED: u64 = 1 << 63;
const KEY: u64 = (1 << 48) - 1;
const LOCAL_SHIFT: u32 = 48;
/// Rows that are pushed out before the table is made larger.
const MOST_PUSHES: u32 = 500;

/// `struct softwire_row`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct SoftwireRecord {
    pub(crate) key: u64,
    pub(crate) remote: [u64; 2],
    pub(crate) unused: u64,
}

/// `struct softwire_bucket`.
type Bucket = [SoftwireRecord; 2];

/// The table of one plan, to be put into its programs' arrays.
#[derive(Default)]
pub(crate) struct Softwires {
    buckets: Vec<Bucket>,
    divisions: Option<Arc<dyn Backing>>,
}

impl Softwires {
    pub(crate) fn new(lwaftr: &Lwaftr, key: HashKey) -> Result<Self, LpmError> {
        let rows: Vec<SoftwireRecord> = lwaftr.table.rows().map(|row| record(&row, &lwaftr.addresses)).collect();
        let divisions = match common_division(&lwaftr.table) {
            Some(_) => None,
            None => Some(trie(&divisions(&lwaftr.table)?)?),
        };
        Ok(Self { buckets: hashed(&rows, key), divisions })
    }

    pub(crate) fn buckets(&self) -> u32 {
        entries(self.buckets.len())
    }

    /// Makes the arrays of the programs as large as the table.
    pub(crate) fn size<'l, 'g>(&self, loader: &'l mut EbpfLoader<'g>) -> &'l mut EbpfLoader<'g> {
        let lines = self.divisions.as_ref().map_or(0, |span| span.len()).div_ceil(LINE);
        loader.map_max_entries("softwires", self.buckets()).map_max_entries("softwire_divisions", entries(lines))
    }

    /// Copies the table into the arrays, before any packet is there.
    pub(crate) fn fill(&self, programs: &Ebpf) -> Result<(), FastPathError> {
        if let Some(span) = &self.divisions {
            copy(programs, "softwire_divisions", span.base().as_ptr(), span.len())?;
        }
        if self.buckets.is_empty() {
            return Ok(());
        }
        copy(programs, "softwires", self.buckets.as_ptr().cast(), size_of_val(self.buckets.as_slice()))
    }
}

/// How all addresses divide their ports, if they do it alike.
pub(crate) fn common_division(table: &SoftwireTable) -> Option<PortDivision> {
    let mut rows = table.rows();
    let Some(first) = rows.next() else { return PortDivision::new(0, 0).ok() };
    rows.all(|row| row.division == first.division).then_some(first.division)
}

fn divisions(table: &SoftwireTable) -> Result<Vec<Route<u32>>, LpmError> {
    let mut routes: Vec<Route<u32>> = Vec::new();
    for row in table.rows() {
        let prefix = Prefix::covering(row.ipv4.to_bits(), 32);
        if routes.last().is_none_or(|last| last.prefix != prefix) {
            let bits = u32::from(row.division.offset_bits()) << 8 | u32::from(row.division.psid_bits());
            routes.push(Route { prefix, next_hop: NextHop::new(bits)? });
        }
    }
    Ok(routes)
}

fn record(row: &SoftwireRow, addresses: &[Ipv6Addr]) -> SoftwireRecord {
    let local = addresses.iter().position(|address| *address == row.local).unwrap_or_default() as u64;
    let key = USED | local << LOCAL_SHIFT | u64::from(row.ipv4.to_bits()) << 16 | u64::from(row.psid);
    SoftwireRecord { key, remote: halves(row.b4.to_bits()), unused: 0 }
}

/// Three places of four used, or fewer if the rows do not find one.
fn hashed(rows: &[SoftwireRecord], key: HashKey) -> Vec<Bucket> {
    let mut count = rows.len() * 2 / 3 + 1;
    loop {
        let mut buckets = vec![Bucket::default(); count];
        if rows.iter().all(|row| insert(&mut buckets, *row, key)) {
            return buckets;
        }
        count += count / 8 + 1;
    }
}

/// Puts a row in, pushing others out if need be; false if one is left without a place.
fn insert(buckets: &mut [Bucket], mut row: SoftwireRecord, key: HashKey) -> bool {
    let count = entries(buckets.len());
    let mut from = None;
    for push in 0..MOST_PUSHES {
        let homes = key.hash([row.key & KEY, 0, 0]).buckets(count);
        for home in homes {
            if let Some(place) = buckets[home as usize].iter_mut().find(|place| place.key == 0) {
                *place = row;
                return true;
            }
        }
        let home = if from == Some(homes[0]) { homes[1] } else { homes[0] };
        std::mem::swap(&mut buckets[home as usize][(push >> 1 & 1) as usize], &mut row);
        from = Some(home);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_one_of_its_two_buckets() {
        let rows: Vec<SoftwireRecord> =
            (0..100_000_u64).map(|n| SoftwireRecord { key: USED | (n * 64), ..SoftwireRecord::default() }).collect();
        let key = HashKey::new([1, 2, 3, 4]);
        let buckets = hashed(&rows, key);
        assert!(buckets.len() < 70_000, "{}", buckets.len());
        let count = entries(buckets.len());
        let mut in_first = 0;
        for row in &rows {
            let homes = key.hash([row.key & KEY, 0, 0]).buckets(count);
            let holds = |home: u32| buckets[home as usize].iter().any(|place| place.key == row.key);
            assert!(homes.into_iter().any(holds));
            in_first += u32::from(holds(homes[0]));
        }
        assert!(in_first > 65_000, "{in_first}");
    }
}

//! The softwires of a lwAFTR as the programs read them: `bpf/lwaftr.h`, three arrays that are
//! indexed, never searched.
//!
//! ```text
//! address / 256 - first block --> blocks, 2 bytes each     number of a block of 256 shares
//! address % 256               --> share, 8 bytes           | first row 4 | last PSID 2 | offset bits 1 | PSID bits 1 |
//! first row + PSID            --> row, 16 bytes            | address of the lwB4, zeros if there is no softwire |
//! the same                    --> local, 1 byte            number of our address, if there are several
//! ```
//!
//! Block 0 and row 0 are empty: addresses and PSIDs without softwires lead to them. A softwire
//! costs 16 bytes where all PSIDs of an address have one, and an address 8; so a million, 64 to an
//! address, take 16 MB, and a packet misses the cache once: the shares are so few that they stay in
//! it.
//!
//! An address has a row for each PSID up to its last one. Addresses with more than
//! [`ROWS_OF_A_SOFTWIRE`] for each of their softwires share [`SPARE_ROWS`]. The engine serves
//! those that find no room there, and those whose block would have a number beyond 65,535: a miss
//! is always allowed.

use tombolo_engine::mapping::softwire_table::SoftwireRow;
use tombolo_engine::service::lwaftr::Lwaftr;

use super::array::Content;
use crate::record::{
    BLOCKS_OF_A_LINE, LOCALS_OF_A_LINE, SHARES_OF_A_BLOCK, SoftwireBlocks, SoftwireLocals, SoftwireRecord,
    SoftwireShare, halves,
};

/// Rows that an address may have for each of its softwires.
const ROWS_OF_A_SOFTWIRE: usize = 16;
/// Rows for addresses that want more, 64 MB.
const SPARE_ROWS: usize = 1 << 22;

/// The table of one plan, to be copied into its programs' arrays.
#[derive(Default)]
pub(crate) struct Softwires {
    first_block: u32,
    blocks: Vec<SoftwireBlocks>,
    shares: Vec<SoftwireShare>,
    rows: Vec<SoftwireRecord>,
    locals: Vec<SoftwireLocals>,
}

impl Softwires {
    pub(crate) fn new(lwaftr: &Lwaftr) -> Self {
        let softwires: Vec<SoftwireRow> = lwaftr.table.rows().collect();
        let (Some(first), Some(last)) = (softwires.first(), softwires.last()) else { return Self::default() };
        let (first_block, last_block) = (block_of(first), block_of(last));
        let mut table = Self {
            first_block,
            blocks: vec![SoftwireBlocks::default(); (last_block - first_block) as usize / BLOCKS_OF_A_LINE + 1],
            rows: vec![SoftwireRecord::default()],
            ..Self::default()
        };
        table.add_block();
        let mut spare = SPARE_ROWS;
        for of_address in softwires.chunk_by(|one, next| one.ipv4 == next.ipv4) {
            if let Some(first_row) = table.add_address(of_address, &mut spare)
                && lwaftr.addresses.len() > 1
            {
                table.add_locals(of_address, first_row, lwaftr);
            }
        }
        table
    }

    /// A block of addresses that have no softwires yet.
    fn add_block(&mut self) {
        self.shares.resize(self.shares.len() + SHARES_OF_A_BLOCK as usize, SoftwireShare::default());
    }

    /// Gives an address its share and its softwires their rows, the first of which is returned;
    /// `None` if there is no room.
    fn add_address(&mut self, softwires: &[SoftwireRow], spare: &mut usize) -> Option<usize> {
        let last = softwires.last()?;
        let rows = usize::from(last.psid) + 1;
        if rows > ROWS_OF_A_SOFTWIRE * softwires.len() {
            *spare = spare.checked_sub(rows)?;
        }
        let first_row = self.rows.len();
        let share = SoftwireShare {
            first: u32::try_from(first_row).ok()?,
            last: last.psid,
            offset_bits: last.division.offset_bits(),
            psid_bits: last.division.psid_bits(),
        };
        *self.share_of(last)? = share;
        self.rows.resize(first_row + rows, SoftwireRecord::default());
        for softwire in softwires {
            self.rows[first_row + usize::from(softwire.psid)].remote = halves(softwire.b4.to_bits());
        }
        Some(first_row)
    }

    /// The share of an address, in a new block if need be; `None` if blocks have no more
    /// numbers.
    fn share_of(&mut self, softwire: &SoftwireRow) -> Option<&mut SoftwireShare> {
        let block = (block_of(softwire) - self.first_block) as usize;
        let (line, n) = (block / BLOCKS_OF_A_LINE, block % BLOCKS_OF_A_LINE);
        if self.blocks[line].number[n] == 0 {
            self.blocks[line].number[n] = u16::try_from(self.shares.len() / SHARES_OF_A_BLOCK as usize).ok()?;
            self.add_block();
        }
        let share =
            u32::from(self.blocks[line].number[n]) * SHARES_OF_A_BLOCK + softwire.ipv4.to_bits() % SHARES_OF_A_BLOCK;
        self.shares.get_mut(share as usize)
    }

    fn add_locals(&mut self, softwires: &[SoftwireRow], first_row: usize, lwaftr: &Lwaftr) {
        self.locals.resize(self.rows.len().div_ceil(LOCALS_OF_A_LINE), SoftwireLocals::default());
        for softwire in softwires {
            let row = first_row + usize::from(softwire.psid);
            let number = lwaftr.addresses.iter().position(|address| *address == softwire.local).unwrap_or_default();
            self.locals[row / LOCALS_OF_A_LINE].number[row % LOCALS_OF_A_LINE] =
                u8::try_from(number).unwrap_or_default();
        }
    }

    /// Where the blocks begin: an address / 256.
    pub(crate) fn first_block(&self) -> u32 {
        self.first_block
    }

    pub(crate) fn contents(&self) -> [Content<'_>; 4] {
        [
            Content::records("softwire_blocks", &self.blocks),
            Content::records("softwire_shares", &self.shares),
            Content::records("softwire_rows", &self.rows),
            Content::records("softwire_locals", &self.locals),
        ]
    }
}

fn block_of(softwire: &SoftwireRow) -> u32 {
    softwire.ipv4.to_bits() / SHARES_OF_A_BLOCK
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use tombolo_engine::mapping::address_ranges::AddressRanges;
    use tombolo_engine::mapping::port_set::PortDivision;
    use tombolo_engine::mapping::softwire_table::SoftwireTable;
    use tombolo_engine::mechanism::SoftwireSettings;

    use super::*;

    const LOCALS: [Ipv6Addr; 2] =
        [Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)];

    fn row(ipv4: u32, psid_bits: u8, psid: u16) -> SoftwireRow {
        SoftwireRow {
            ipv4: Ipv4Addr::from_bits(ipv4),
            division: PortDivision::new(0, psid_bits).unwrap(),
            psid,
            b4: Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(ipv4) << 16 | u128::from(psid)),
            local: LOCALS[usize::from(psid) % 2],
        }
    }

    fn softwires(rows: &[SoftwireRow], locals: usize) -> Softwires {
        Softwires::new(&Lwaftr {
            addresses: LOCALS[..locals].to_vec(),
            ipv4: AddressRanges::new([Ipv4Addr::UNSPECIFIED..=Ipv4Addr::BROADCAST]),
            table: SoftwireTable::new(rows).unwrap(),
            softwire: SoftwireSettings::default(),
            hairpinning: true,
            tell_unknown: true,
            tell_unreachable: true,
            inbound_icmp: true,
        })
    }

    /// As `softwire_of` of `lwaftr.h` has it: the number of the row.
    fn find(table: &Softwires, ipv4: u32, psid: u16) -> Option<usize> {
        let block = (ipv4 / 256).wrapping_sub(table.first_block) as usize;
        let block = usize::from(table.blocks.get(block / 32)?.number[block % 32]);
        let share = table.shares[block * 256 + ipv4 as usize % 256];
        let row = share.first as usize + usize::from(psid);
        (psid <= share.last && table.rows[row].remote != [0; 2]).then_some(row)
    }

    #[test]
    fn every_softwire_is_at_its_place_and_nothing_is_elsewhere() {
        // Next to each other, in another block, far away, the last of all; holes, whole addresses.
        let addresses = [0x0100_0003, 0x0100_0004, 0x0100_00ff, 0x0100_0100, 0xc000_0201, 0xffff_ffff];
        let mut rows = Vec::new();
        for (number, ipv4) in addresses.into_iter().enumerate() {
            let number = u16::try_from(number).unwrap();
            match number {
                3 => rows.push(row(ipv4, 0, 0)),
                _ => rows.extend((0..64).filter(|psid| psid % (number + 2) != 0).map(|psid| row(ipv4, 6, psid))),
            }
        }
        let table = softwires(&rows, 2);
        for ipv4 in addresses.into_iter().flat_map(|ipv4| ipv4 - 2..=ipv4.saturating_add(2)).chain([0, 0x8000_0000]) {
            for psid in 0..64 {
                let expected = rows.iter().find(|row| row.ipv4.to_bits() == ipv4 && row.psid == psid);
                let found = find(&table, ipv4, psid);
                assert_eq!(
                    found.map(|row| table.rows[row].remote),
                    expected.map(|row| halves(row.b4.to_bits())),
                    "{ipv4:x}"
                );
                let local = found.map(|row| LOCALS[usize::from(table.locals[row / 64].number[row % 64])]);
                assert_eq!(local, expected.map(|row| row.local), "{ipv4:x} {psid}");
            }
        }
        assert!(softwires(&rows[..0], 1).rows.is_empty());
    }

    #[test]
    fn a_full_table_costs_sixteen_bytes_a_softwire() {
        let rows: Vec<SoftwireRow> = (0..16_384_u32)
            .map(|n| SoftwireRow { local: LOCALS[0], ..row(0x0a00_0000 + n / 64, 6, u16::try_from(n % 64).unwrap()) })
            .collect();
        let table = softwires(&rows, 1);
        assert_eq!((table.rows.len(), table.shares.len(), table.blocks.len(), table.locals.len()), (16_385, 512, 1, 0));
    }

    #[test]
    fn sparse_addresses_are_left_out_when_their_places_are_spent() {
        let wide = |n: u32| row(0x0a00_0000 + n, 16, u16::MAX);
        let mut rows: Vec<SoftwireRow> = (0..65).map(wide).collect();
        rows.push(row(0x0a00_0041, 4, 15));
        let table = softwires(&rows, 2);
        assert!((0..64).all(|n| find(&table, 0x0a00_0000 + n, u16::MAX).is_some()));
        assert_eq!(find(&table, 0x0a00_0040, u16::MAX), None);
        assert!(find(&table, 0x0a00_0041, 15).is_some(), "who has few places needs none of those");
        assert_eq!(table.rows.len(), 1 + SPARE_ROWS + 16);
    }

    #[test]
    fn blocks_beyond_the_last_number_are_left_out() {
        let rows: Vec<SoftwireRow> = (0..65_536).map(|n| row(n * 1024, 0, 0)).collect();
        let table = softwires(&rows, 2);
        assert!((0..65_535).all(|n| find(&table, n * 1024, 0).is_some()));
        assert_eq!(find(&table, 65_535 * 1024, 0), None);
    }
}

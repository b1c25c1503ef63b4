//! The binding table of a lwAFTR: which softwire has which ports of which IPv4 address.
//!
//! Read first: RFC 7596 sections 4, 5.1 and 6.1; RFC 7597 section 5.1 for the port sets.
//!
//! ```text
//! IPv4 address --longest match--> share: division of the ports, its rows
//! rows of an address, ascending by PSID | row | row | row |      binary search; a direct step if no PSID is missing
//! row  | address of the lwB4, 16 bytes | PSID | number of our address |
//! ```
//!
//! Immutable: a reload makes a new table and changes the pointer to it. A row costs 20 bytes, an
//! address about 20 more, so that a million softwires take some 25 to 40 MB.
//!
//! Invariants: all rows of an address divide its ports in the same way (RFC 7597 section 5.1), so
//! that no two overlap; no address has two rows with the same PSID.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tombolo_tables::lpm::{Frozen, LpmError, NextHop, Prefix, Route};

use crate::mapping::port_set::{PortDivision, PortOwner};
use crate::softwire::Softwire;

/// One softwire: its ends, and what belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftwireRow {
    /// The IPv4 address, whole or shared.
    pub ipv4: Ipv4Addr,
    /// How the ports of the address are divided; `psid_bits` of 0 for a whole address.
    pub division: PortDivision,
    /// Which of its port sets; 0 for a whole address.
    pub psid: u16,
    /// Address of the lwB4.
    pub b4: Ipv6Addr,
    /// Our address for it.
    pub local: Ipv6Addr,
}

/// Why rows are no table. Rows count from 0.
#[derive(Debug, thiserror::Error)]
pub enum SoftwireTableError {
    /// Two rows for the same ports.
    #[error("row {second} has the same address and port set as row {first}; remove one of them")]
    Duplicate {
        /// Number of the first row.
        first: usize,
        /// Number of the second row.
        second: usize,
    },
    /// Two rows divide the ports of an address differently, so that sets could overlap.
    #[error("row {second} divides the ports of its address otherwise than row {first}; give both the same bits")]
    Division {
        /// Number of the first row.
        first: usize,
        /// Number of the second row.
        second: usize,
    },
    /// A port set that the division does not have.
    #[error("row {row} has a PSID of more bits than the division of its ports; choose a smaller one")]
    Psid {
        /// Number of the row.
        row: usize,
    },
    /// More than 65536 addresses of our own.
    #[error("the rows name more than 65536 addresses of this end; use fewer")]
    Locals,
    /// More addresses than a table can number, or no memory for them.
    #[error("the table cannot be made")]
    Table(#[from] LpmError),
}

/// All softwires. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct SoftwireTable {
    addresses: Option<Frozen<u32>>,
    shares: Arc<[Share]>,
    rows: Arc<[Row]>,
    locals: Arc<[Ipv6Addr]>,
}

/// The rows of one IPv4 address.
#[derive(Debug, Clone, Copy)]
struct Share {
    ipv4: Ipv4Addr,
    division: PortDivision,
    first: u32,
    count: u32,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    b4: Ipv6Addr,
    psid: u16,
    local: u16,
}

impl SoftwireTable {
    /// The table of `rows`.
    ///
    /// # Errors
    /// [`SoftwireTableError`].
    pub fn new(rows: &[SoftwireRow]) -> Result<Self, SoftwireTableError> {
        if rows.is_empty() {
            return Ok(Self::default());
        }
        let mut order: Vec<u32> = (0..u32::try_from(rows.len()).map_err(|_| too_many())?).collect();
        let row = |number: u32| &rows[number as usize];
        order.sort_by_key(|&number| (row(number).ipv4, row(number).psid, number));
        let (mut shares, mut routes, mut locals) = (Vec::<Share>::new(), Vec::new(), Vec::new());
        let mut sorted = Vec::with_capacity(rows.len());
        let mut previous: Option<u32> = None;
        for &number in &order {
            let this = row(number);
            if u32::from(this.psid) >= this.division.sets() {
                return Err(SoftwireTableError::Psid { row: number as usize });
            }
            let before = previous.filter(|&before| row(before).ipv4 == this.ipv4);
            previous = Some(number);
            match before {
                Some(before) => check(before, number, rows)?,
                None => {
                    let hop = NextHop::new(u32::try_from(shares.len()).map_err(|_| too_many())?)?;
                    let prefix = Prefix::covering(this.ipv4.to_bits(), 32);
                    routes.push(Route { prefix, next_hop: hop });
                    let first = u32::try_from(sorted.len()).map_err(|_| too_many())?;
                    shares.push(Share { ipv4: this.ipv4, division: this.division, first, count: 0 });
                }
            }
            if let Some(share) = shares.last_mut() {
                share.count += 1;
            }
            sorted.push(Row { b4: this.b4, psid: this.psid, local: local_number(&mut locals, this.local)? });
        }
        Ok(Self {
            addresses: Some(Frozen::build("softwires", &routes)?),
            shares: shares.into(),
            rows: sorted.into(),
            locals: locals.into(),
        })
    }

    /// The softwire that `port` of `address` belongs to. Without a port, as of protocols that have
    /// none, only whole addresses have one.
    #[must_use]
    #[inline]
    pub fn find(&self, address: Ipv4Addr, port: Option<u16>) -> Option<Softwire> {
        let number = self.addresses.as_ref()?.lookup(address.to_bits())?.next_hop().number();
        let share = self.shares.get(number as usize)?;
        let psid = match (port, share.division.is_shared()) {
            (_, false) => 0,
            (None, true) => return None,
            (Some(port), true) => match share.division.owner(port) {
                PortOwner::Psid(psid) => psid,
                PortOwner::Everything => 0,
                PortOwner::Nobody => return None,
            },
        };
        let rows = self.rows.get(share.first as usize..)?.get(..share.count as usize)?;
        // Where every set is given out, the set's number is the row's.
        let row = match rows.get(usize::from(psid)) {
            Some(row) if row.psid == psid => row,
            _ => &rows[rows.binary_search_by_key(&psid, |row| row.psid).ok()?],
        };
        Some(Softwire { local: *self.locals.get(usize::from(row.local))?, remote: row.b4 })
    }

    /// All softwires, ascending by address and PSID: for readers of the table elsewhere.
    pub fn rows(&self) -> impl Iterator<Item = SoftwireRow> {
        self.shares.iter().flat_map(|share| {
            let rows = self.rows.get(share.first as usize..).unwrap_or_default();
            rows.iter().take(share.count as usize).map(|row| SoftwireRow {
                ipv4: share.ipv4,
                division: share.division,
                psid: row.psid,
                b4: row.b4,
                // A row's number was made from the list.
                local: self.locals.get(usize::from(row.local)).copied().unwrap_or(Ipv6Addr::UNSPECIFIED),
            })
        })
    }

    /// How many softwires there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many IPv4 addresses they have.
    #[must_use]
    pub fn addresses(&self) -> usize {
        self.shares.len()
    }
}

/// Two rows of one address, one behind the other.
fn check(first: u32, second: u32, rows: &[SoftwireRow]) -> Result<(), SoftwireTableError> {
    let (first, second) = (first as usize, second as usize);
    let (earlier, later) = (first.min(second), first.max(second));
    if rows[first].division != rows[second].division {
        return Err(SoftwireTableError::Division { first: earlier, second: later });
    }
    if rows[first].psid == rows[second].psid {
        return Err(SoftwireTableError::Duplicate { first: earlier, second: later });
    }
    Ok(())
}

/// Few ends have many addresses, so they are searched one by one.
fn local_number(locals: &mut Vec<Ipv6Addr>, local: Ipv6Addr) -> Result<u16, SoftwireTableError> {
    let found = locals.iter().position(|known| *known == local);
    let number = found.unwrap_or_else(|| {
        locals.push(local);
        locals.len() - 1
    });
    u16::try_from(number).map_err(|_| SoftwireTableError::Locals)
}

fn too_many() -> LpmError {
    LpmError::NextHop { number: u32::MAX }
}

/// The address of a lwB4 in its bind prefix (RFC 7596 section 5.1):
///
/// ```text
/// | prefix, zeros up to 64 bits | 0, 16 bits | IPv4, 32 bits | PSID, 16 bits |
/// ```
///
/// A prefix of more than 64 bits wins over what it overlaps.
#[must_use]
pub fn b4_address(prefix: Prefix<u128>, ipv4: Ipv4Addr, psid: u16) -> Ipv6Addr {
    let low = u128::from(ipv4.to_bits()) << 16 | u128::from(psid);
    let free = u128::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
    Ipv6Addr::from_bits(prefix.key() | low & free)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ipv4: u32, bits: (u8, u8), psid: u16, b4: u128) -> SoftwireRow {
        SoftwireRow {
            ipv4: Ipv4Addr::from_bits(ipv4),
            division: PortDivision::new(bits.0, bits.1).unwrap(),
            psid,
            b4: Ipv6Addr::from_bits(b4),
            local: Ipv6Addr::LOCALHOST,
        }
    }

    #[test]
    fn a_million_softwires_are_found_by_their_ports() {
        let rows: Vec<_> = (0..1 << 20_u32)
            .map(|n| row(0xc000_0000 + (n >> 6), (0, 6), u16::try_from(n & 63).unwrap(), u128::from(n)))
            .collect();
        let table = SoftwireTable::new(&rows).unwrap();
        assert_eq!((table.len(), table.addresses()), (1 << 20, 1 << 14));
        for n in (0..1 << 20_u32).step_by(977) {
            let port = u16::try_from(((n & 63) << 10) + n % 1024).unwrap();
            let found = table.find(Ipv4Addr::from_bits(0xc000_0000 + (n >> 6)), Some(port)).unwrap();
            assert_eq!(found.remote, Ipv6Addr::from_bits(u128::from(n)));
        }
        assert_eq!(table.find(Ipv4Addr::from_bits(0xc000_4000), Some(1)), None);
        assert!(table.rows().eq(rows));
        assert_eq!(table.find(Ipv4Addr::from_bits(0xc000_0000), None), None);
    }

    #[test]
    fn gaps_between_port_sets_belong_to_nobody() {
        let table = SoftwireTable::new(&[row(1, (6, 8), 0x34, 1), row(1, (6, 8), 0xff, 2), row(2, (0, 0), 0, 3)]);
        let table = table.unwrap();
        let find = |ipv4, port| table.find(Ipv4Addr::from_bits(ipv4), port).map(|found| found.remote.to_bits());
        assert_eq!(find(1, Some(1232)), Some(1));
        assert_eq!(find(1, Some(1024 + 4 * 0xff)), Some(2));
        assert_eq!(find(1, Some(1236)), None);
        assert_eq!(find(1, Some(80)), None);
        assert_eq!((find(2, Some(0)), find(2, None)), (Some(3), Some(3)));
    }

    #[test]
    fn contradictions_are_named_by_their_rows() {
        let error = |rows: &[SoftwireRow]| SoftwireTable::new(rows).unwrap_err();
        assert!(matches!(
            error(&[row(1, (0, 6), 1, 1), row(2, (0, 6), 1, 2), row(1, (0, 6), 1, 3)]),
            SoftwireTableError::Duplicate { first: 0, second: 2 }
        ));
        assert!(matches!(
            error(&[row(1, (0, 6), 1, 1), row(1, (0, 7), 9, 3)]),
            SoftwireTableError::Division { first: 0, second: 1 }
        ));
        assert!(matches!(error(&[row(1, (0, 6), 64, 1)]), SoftwireTableError::Psid { row: 0 }));
    }
}

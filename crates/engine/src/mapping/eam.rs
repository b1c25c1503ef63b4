//! Explicit address mappings: pairs of an IPv4 and an IPv6 prefix that stand for each other.
//!
//! Read first: RFC 7757 sections 3.2 and 3.3 (the table and the algorithm), 5 (overlapping rows).
//!
//! ```text
//! IPv4  | prefix, p4 bits | suffix, s = 32 - p4 bits |
//! IPv6  | prefix, p6 bits | suffix, s bits           | zeros, 128 - p6 - s bits |
//! ```
//!
//! Each column is a longest-prefix table of its own, so an address costs one walk however many rows
//! there are; and none if it lies outside the span of the column, as the addresses of the other
//! side mostly do. IPv6 bits behind the suffix are sent as zero and ignored on receipt.
//!
//! Invariant of an [`EamTable`]: no two rows have the same prefix in the same column.

use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use tombolo_tables::lpm::{Frozen, Key, LpmError, NextHop, Prefix, Route};

/// One row: an IPv4 prefix and the IPv6 prefix that stands for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Eam {
    ipv6: u128,
    ipv4: u32,
    /// The bits of an IPv4 address that are its suffix.
    suffix: u32,
    ipv6_length: u8,
    /// Zero bits behind the suffix in IPv6. Without suffix it does not matter; then it is 0.
    shift: u8,
}

/// Why a row or a table of rows is refused.
#[derive(Debug, thiserror::Error)]
pub enum EamError {
    /// Not an address or a prefix.
    #[error("\"{0}\" is not an address or a prefix; write it as 192.0.2.0/24 or 2001:db8::/120")]
    Syntax(String),
    /// A length that is too long, or bits behind it.
    #[error(transparent)]
    Prefix(LpmError),
    /// The IPv4 suffix has more bits than the IPv6 suffix (RFC 7757 section 3.2).
    #[error(
        "the IPv4 suffix has {ipv4_suffix} bits and the IPv6 suffix only {ipv6_suffix} (RFC 7757 section 3.2); make \
         the IPv6 prefix at most {} bits long", 128 - ipv4_suffix
    )]
    Suffix {
        /// Bits behind the IPv4 prefix.
        ipv4_suffix: u8,
        /// Bits behind the IPv6 prefix.
        ipv6_suffix: u8,
    },
    /// Two rows have the same prefix in a column. RFC 7757 section 5 leaves open which one counts,
    /// so none does.
    #[error("row {second} has the prefix {prefix} of row {first}; remove one of them")]
    Duplicate {
        /// The prefix.
        prefix: String,
        /// Number of the first row, from 0.
        first: usize,
        /// Number of the second row, from 0.
        second: usize,
    },
    /// More rows than a table can number, or no memory for them.
    #[error("the table cannot be made")]
    Table(#[source] LpmError),
}

impl Eam {
    /// The row of two prefixes.
    ///
    /// # Errors
    /// [`EamError::Suffix`].
    pub fn new(ipv4: Prefix<u32>, ipv6: Prefix<u128>) -> Result<Self, EamError> {
        let (ipv4_suffix, ipv6_suffix) = (32 - ipv4.prefix_len(), 128 - ipv6.prefix_len());
        if ipv4_suffix > ipv6_suffix {
            return Err(EamError::Suffix { ipv4_suffix, ipv6_suffix });
        }
        Ok(Self {
            ipv6: ipv6.key(),
            ipv4: ipv4.key(),
            suffix: u32::MAX.checked_shr(ipv4.prefix_len().into()).unwrap_or(0),
            ipv6_length: ipv6.prefix_len(),
            shift: if ipv4_suffix == 0 { 0 } else { ipv6_suffix - ipv4_suffix },
        })
    }

    /// The row of two prefixes as text. A length that is left out means 32 or 128 (RFC 7757 section
    /// 3.2).
    ///
    /// # Errors
    /// [`EamError::Syntax`], [`EamError::Prefix`], [`EamError::Suffix`].
    pub fn parse(ipv4: &str, ipv6: &str) -> Result<Self, EamError> {
        Self::new(parse_prefix(ipv4)?, parse_prefix(ipv6)?)
    }

    /// The IPv4 prefix.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most 32")]
    pub fn ipv4(&self) -> Prefix<u32> {
        Prefix::covering(self.ipv4, self.suffix.leading_zeros() as u8)
    }

    /// The IPv6 prefix.
    #[must_use]
    pub fn ipv6(&self) -> Prefix<u128> {
        Prefix::covering(self.ipv6, self.ipv6_length)
    }

    /// The IPv6 address that stands for an IPv4 address inside the row's prefix.
    #[inline]
    const fn to_ipv6(self, address: Ipv4Addr) -> Ipv6Addr {
        let suffix = address.to_bits() & self.suffix;
        Ipv6Addr::from_bits(self.ipv6 | (suffix as u128) << self.shift)
    }

    /// The IPv4 address that stands for an IPv6 address inside the row's prefix.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the suffix is among the 32 lowest bits after the shift")]
    const fn to_ipv4(self, address: Ipv6Addr) -> Ipv4Addr {
        let suffix = (address.to_bits() >> self.shift) as u32 & self.suffix;
        Ipv4Addr::from_bits(self.ipv4 | suffix)
    }
}

impl fmt::Debug for Eam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Eam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <-> {}", self.ipv4(), self.ipv6())
    }
}

/// A prefix as text; without a length it is a single address.
///
/// # Errors
/// [`EamError::Syntax`], [`EamError::Prefix`].
pub fn parse_prefix<K: Key>(text: &str) -> Result<Prefix<K>, EamError>
where
    K::Address: std::str::FromStr,
{
    let syntax = || EamError::Syntax(text.to_owned());
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, length.parse().map_err(|_| syntax())?),
        None => (text, K::BITS),
    };
    Prefix::new(address.parse().map_err(|_| syntax())?, length).map_err(EamError::Prefix)
}

/// All rows, and how to find the one for an address. Immutable, and cheap to clone.
#[derive(Clone, Default)]
pub struct EamTable {
    rows: Arc<[Eam]>,
    columns: Option<Columns>,
}

#[derive(Clone)]
struct Columns {
    ipv4: Frozen<u32>,
    ipv6: Frozen<u128>,
    /// From the first address of the column to the last.
    ipv4_span: RangeInclusive<u32>,
    ipv6_span: RangeInclusive<u128>,
}

/// Two rows of which one has a prefix inside the other's. Addresses there may translate to one
/// address and back from another (RFC 7757 section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// Number of the row with the longer prefix, from 0.
    pub row: usize,
    /// Number of the row that covers it, from 0.
    pub inside: usize,
}

impl EamTable {
    /// The table of `rows`.
    ///
    /// # Errors
    /// [`EamError::Duplicate`], [`EamError::Table`].
    pub fn new(rows: Vec<Eam>) -> Result<Self, EamError> {
        if rows.is_empty() {
            return Ok(Self::default());
        }
        let ipv4 = column("explicit-ipv4", &rows, Eam::ipv4)?;
        let ipv6 = column("explicit-ipv6", &rows, Eam::ipv6)?;
        let ipv4_span = span(rows.iter().map(|row| (row.ipv4, row.ipv4 | row.suffix)));
        let ipv6_span = span(rows.iter().map(|row| {
            let host_bits = u128::MAX.checked_shr(row.ipv6_length.into()).unwrap_or(0);
            (row.ipv6, row.ipv6 | host_bits)
        }));
        Ok(Self { rows: rows.into(), columns: Some(Columns { ipv4, ipv6, ipv4_span, ipv6_span }) })
    }

    /// The rows, in the order given.
    #[must_use]
    pub fn rows(&self) -> &[Eam] {
        &self.rows
    }

    /// The IPv6 address that stands for `address`, and the number of the row that says so (RFC 7757
    /// section 3.3.1).
    #[must_use]
    #[inline]
    pub fn to_ipv6(&self, address: Ipv4Addr) -> Option<(Ipv6Addr, u32)> {
        let number = self.row_of_ipv4(address)?;
        Some((self.ipv6_by_row(number, address), number))
    }

    /// The IPv4 address that stands for `address`, and the number of the row that says so (RFC 7757
    /// section 3.3.2).
    #[must_use]
    #[inline]
    pub fn to_ipv4(&self, address: Ipv6Addr) -> Option<(Ipv4Addr, u32)> {
        let number = self.row_of_ipv6(address)?;
        Some((self.ipv4_by_row(number, address), number))
    }

    /// Number of the row whose IPv4 prefix is the longest that covers `address`.
    #[must_use]
    #[inline]
    pub fn row_of_ipv4(&self, address: Ipv4Addr) -> Option<u32> {
        let columns = self.columns.as_ref().filter(|columns| columns.ipv4_span.contains(&address.to_bits()))?;
        Some(columns.ipv4.lookup(address.to_bits())?.next_hop().number())
    }

    /// Number of the row whose IPv6 prefix is the longest that covers `address`.
    #[must_use]
    #[inline]
    pub fn row_of_ipv6(&self, address: Ipv6Addr) -> Option<u32> {
        let columns = self.columns.as_ref().filter(|columns| columns.ipv6_span.contains(&address.to_bits()))?;
        Some(columns.ipv6.lookup(address.to_bits())?.next_hop().number())
    }

    /// The IPv6 address that stands for `address`, which row `number` covers.
    #[must_use]
    #[inline]
    pub fn ipv6_by_row(&self, number: u32, address: Ipv4Addr) -> Ipv6Addr {
        self.rows[number as usize].to_ipv6(address)
    }

    /// The IPv4 address that stands for `address`, which row `number` covers.
    #[must_use]
    #[inline]
    pub fn ipv4_by_row(&self, number: u32, address: Ipv6Addr) -> Ipv4Addr {
        self.rows[number as usize].to_ipv4(address)
    }

    /// True if a row has `address` in its IPv4 column.
    #[must_use]
    #[inline]
    pub fn contains_ipv4(&self, address: Ipv4Addr) -> bool {
        self.row_of_ipv4(address).is_some()
    }

    /// True if a row has `address` in its IPv6 column.
    #[must_use]
    #[inline]
    pub fn contains_ipv6(&self, address: Ipv6Addr) -> bool {
        self.row_of_ipv6(address).is_some()
    }

    /// Rows that overlap others in either column, each with the row that covers it most closely.
    #[must_use]
    pub fn overlaps(&self) -> Vec<Overlap> {
        let mut found = nested(&self.rows, Eam::ipv4);
        found.extend(nested(&self.rows, Eam::ipv6));
        found.sort_by_key(|overlap| (overlap.row, overlap.inside));
        found.dedup();
        found
    }
}

impl fmt::Debug for EamTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EamTable({} rows)", self.rows.len())
    }
}

/// From the first of all to the last of all.
fn span<K: Copy + Ord + Default>(ranges: impl Iterator<Item = (K, K)> + Clone) -> RangeInclusive<K> {
    let first = ranges.clone().map(|(first, _)| first).min().unwrap_or_default();
    let last = ranges.map(|(_, last)| last).max().unwrap_or_default();
    first..=last
}

/// The longest-prefix table of one column; a route leads to the number of its row.
fn column<K: Key>(name: &'static str, rows: &[Eam], prefix: fn(&Eam) -> Prefix<K>) -> Result<Frozen<K>, EamError> {
    let mut seen = HashMap::with_capacity(rows.len());
    let mut routes = Vec::with_capacity(rows.len());
    for (second, row) in rows.iter().enumerate() {
        let prefix = prefix(row);
        if let Some(first) = seen.insert(prefix, second) {
            return Err(EamError::Duplicate { prefix: prefix.to_string(), first, second });
        }
        let number = u32::try_from(second).unwrap_or(u32::MAX);
        routes.push(Route { prefix, next_hop: NextHop::new(number).map_err(EamError::Table)? });
    }
    Frozen::build(name, &routes).map_err(EamError::Table)
}

/// Pairs of rows of which one's prefix lies inside the other's, the closest for each row.
fn nested<K: Key>(rows: &[Eam], prefix: fn(&Eam) -> Prefix<K>) -> Vec<Overlap> {
    let mut sorted: Vec<(Prefix<K>, usize)> = rows.iter().map(prefix).zip(0..).collect();
    // A prefix stands before those inside it, so those that cover the current one form a stack.
    sorted.sort_unstable();
    let mut covering: Vec<(Prefix<K>, usize)> = Vec::new();
    let mut found = Vec::new();
    for (prefix, row) in sorted {
        while covering.last().is_some_and(|(outer, _)| !outer.contains(prefix.key())) {
            covering.pop();
        }
        found.extend(covering.last().map(|&(_, inside)| Overlap { row, inside }));
        covering.push((prefix, row));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(rows: &[(&str, &str)]) -> Result<EamTable, EamError> {
        EamTable::new(rows.iter().map(|(ipv4, ipv6)| Eam::parse(ipv4, ipv6).unwrap()).collect())
    }

    #[test]
    fn a_row_takes_no_more_room_than_half_a_cache_line() {
        assert_eq!(size_of::<Eam>(), 32);
    }

    #[test]
    fn the_same_prefix_twice_in_a_column_is_refused() {
        let error = table(&[("192.0.2.0/24", "2001:db8:1::/64"), ("198.51.100.1", "2001:db8:1::/64")]).unwrap_err();
        assert_eq!(error.to_string(), "row 1 has the prefix 2001:db8:1::/64 of row 0; remove one of them");
        let error = table(&[("192.0.2.1", "2001:db8::1"), ("192.0.2.1/32", "2001:db8::2")]).unwrap_err();
        assert!(matches!(error, EamError::Duplicate { first: 0, second: 1, .. }));
        // Same bits, other length: an overlap, not a duplicate.
        assert!(table(&[("192.0.2.0/24", "2001:db8:1::/64"), ("192.0.2.0/32", "2001:db8:2::1")]).is_ok());
    }

    #[test]
    fn overlaps_name_the_row_that_covers_most_closely() {
        let rows = [
            ("10.0.0.0/8", "2001:db8:1::/48"),
            ("10.1.0.0/16", "2001:db8:2::/64"),
            ("10.1.2.3/32", "2001:db8:1::53"),
            ("192.0.2.0/24", "2001:db8:3::/64"),
        ];
        let overlap = |row, inside| Overlap { row, inside };
        assert_eq!(table(&rows).unwrap().overlaps(), [overlap(1, 0), overlap(2, 0), overlap(2, 1)]);
    }

    #[test]
    fn no_rows_map_nothing() {
        let table = EamTable::default();
        assert_eq!(table.to_ipv6(Ipv4Addr::LOCALHOST), None);
        assert_eq!(table.to_ipv4(Ipv6Addr::LOCALHOST), None);
        assert!(!table.contains_ipv4(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn a_hundred_thousand_rows_are_all_found() {
        let row = |n: u32| {
            let ipv4 = Prefix::covering(0x0a00_0000 + n, 32);
            Eam::new(ipv4, Prefix::covering(0x2001_0db8 << 96 | u128::from(n) << 40 | 1, 128)).unwrap()
        };
        let table = EamTable::new((0..100_000).map(row).collect()).unwrap();
        for n in (0..100_000).step_by(97) {
            let ipv4 = Ipv4Addr::from_bits(0x0a00_0000 + n);
            let (ipv6, number) = table.to_ipv6(ipv4).unwrap();
            assert_eq!(number, n);
            assert_eq!(table.to_ipv4(ipv6), Some((ipv4, n)));
        }
        assert!(!table.contains_ipv4(Ipv4Addr::from_bits(0x0a00_0000 + 100_000)));
        assert_eq!(table.overlaps(), []);
    }

    proptest! {
        /// RFC 7757 section 3.3 bit by bit, as text.
        #[test]
        fn suffix_bits_are_taken_from_one_side_and_put_on_the_other(
            ipv4 in any::<u32>(), ipv6 in any::<u128>(), p4 in 0_u8..=32, p6 in 0_u8..=128, host in any::<u32>(),
            stray in any::<u128>(),
        ) {
            prop_assume!(32 - p4 <= 128 - p6);
            let (left, right) = (Prefix::<u32>::covering(ipv4, p4), Prefix::<u128>::covering(ipv6, p6));
            let row = Eam::new(left, right).unwrap();
            let bits4 = |bits: u32| format!("{bits:032b}");
            let bits6 = |bits: u128| format!("{bits:0128b}");
            let (p4, p6) = (usize::from(p4), usize::from(p6));
            let address = bits4(left.key())[..p4].to_owned() + &bits4(host)[p4..];
            let expected = format!("{:0<128}", bits6(right.key())[..p6].to_owned() + &address[p4..]);
            let address = Ipv4Addr::from_bits(u32::from_str_radix(&address, 2).unwrap());
            let mapped = row.to_ipv6(address);
            prop_assert_eq!(bits6(mapped.to_bits()), expected);
            prop_assert_eq!(row.to_ipv4(mapped), address);
            let used = p6 + 32 - p4;
            let ignored = stray & u128::MAX.checked_shr(u32::try_from(used).unwrap()).unwrap_or(0);
            prop_assert_eq!(row.to_ipv4(Ipv6Addr::from_bits(mapped.to_bits() | ignored)), address);
        }
    }
}

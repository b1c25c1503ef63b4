//! Prefixes, next hops, and what can be wrong with them.

use std::fmt;
use std::net::IpAddr;

use super::key::Key;
use crate::memory::MemoryError;

/// An address prefix whose host bits are zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix<K> {
    key: K,
    len: u8,
}

impl<K: Key> Prefix<K> {
    /// The prefix `address/len`.
    ///
    /// # Errors
    /// [`LpmError::TooLong`] if `len` is over the key's bits, [`LpmError::HostBits`] if a bit after
    /// the first `len` is set.
    pub fn new(address: K::Address, len: u8) -> Result<Self, LpmError> {
        Self::from_key(K::from_address(address), len)
    }

    /// As [`Self::new`], from a key.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn from_key(key: K, len: u8) -> Result<Self, LpmError> {
        let address = key.address().into();
        if len > K::BITS {
            return Err(LpmError::TooLong { address, len, limit: K::BITS });
        }
        let prefix = Self::covering(key, len);
        if prefix.key != key {
            return Err(LpmError::HostBits { address, len, network: prefix.key.address().into() });
        }
        Ok(prefix)
    }

    /// The prefix of `len` bits (at most the key's) that `key` lies in.
    #[must_use]
    pub fn covering(key: K, len: u8) -> Self {
        let len = len.min(K::BITS);
        Self { key: K::from_left_aligned(key.left_aligned() & mask(len)), len }
    }

    /// The first key of the prefix.
    #[must_use]
    pub fn key(self) -> K {
        self.key
    }

    /// Bits of the prefix.
    #[must_use]
    pub fn prefix_len(self) -> u8 {
        self.len
    }

    /// True if `key` lies in the prefix.
    #[must_use]
    pub fn contains(self, key: K) -> bool {
        (key.left_aligned() ^ self.key.left_aligned()) & mask(self.len) == 0
    }
}

impl<K: Key> fmt::Display for Prefix<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address: IpAddr = self.key.address().into();
        write!(f, "{address}/{}", self.len)
    }
}

/// The first `len` bits (0 to 128) of 128.
pub(super) fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

/// What a prefix leads to: a number below 2^24 that its user gives a meaning, such as a row of a
/// table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NextHop(u32);

impl NextHop {
    /// The largest next hop.
    pub const MAX: u32 = (1 << 24) - 1;

    /// The next hop of this number.
    ///
    /// # Errors
    /// [`LpmError::NextHop`] from 2^24 on.
    pub fn new(number: u32) -> Result<Self, LpmError> {
        if number > Self::MAX { Err(LpmError::NextHop { number }) } else { Ok(Self(number)) }
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    pub(super) fn from_low_bits(word: u32) -> Self {
        Self(word & Self::MAX)
    }
}

/// A prefix and where it leads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Route<K> {
    /// Which keys.
    pub prefix: Prefix<K>,
    /// Where they go.
    pub next_hop: NextHop,
}

/// Why a table could not be made or changed. The table is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum LpmError {
    /// A bit after the prefix length is set.
    #[error("{address}/{len} has host bits set; the prefix is {network}/{len}")]
    HostBits {
        /// The address as given.
        address: IpAddr,
        /// The length as given.
        len: u8,
        /// The address with its host bits cleared.
        network: IpAddr,
    },
    /// The length is over the bits of an address.
    #[error("prefix length {len} of {address} is over {limit}")]
    TooLong {
        /// The address as given.
        address: IpAddr,
        /// The length as given.
        len: u8,
        /// The most bits that there are.
        limit: u8,
    },
    /// The next hop does not fit 24 bits.
    #[error("next hop {number} is over {max}", max = NextHop::MAX)]
    NextHop {
        /// The number as given.
        number: u32,
    },
    /// No block left for a change.
    #[error(
        "the table of {capacity} bytes is full ({retired} bytes wait for readers); give it more memory or remove routes"
    )]
    Full {
        /// Bytes of the span.
        capacity: usize,
        /// Bytes of replaced blocks that a reader may still see.
        retired: usize,
    },
    /// The shape does not suit the key.
    #[error("a root of {root_bits} bits in {bytes} bytes is not possible; 8 to 24 bits, at least {needed} bytes")]
    Shape {
        /// Bits of the root array.
        root_bits: u8,
        /// Bytes asked for.
        bytes: usize,
        /// The least bytes for these root bits.
        needed: usize,
    },
    /// The memory could not be had.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

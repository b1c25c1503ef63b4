//! Values that are nothing but integers.

use std::mem::MaybeUninit;

/// Marks a type of integers without padding: every byte counts, and any bytes are a value.
///
/// # Safety
/// Implementors are integers, or `repr(C)` and of plain fields that follow each other without
/// padding.
pub unsafe trait Plain: Copy + 'static {
    /// Every byte 0.
    #[must_use]
    fn zeroed() -> Self {
        // SAFETY: the trait's contract says that any bytes are a value.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    /// The bytes of records that follow each other.
    #[must_use]
    fn bytes_of(records: &[Self]) -> &[u8] {
        // SAFETY: the trait's contract says that there is no padding, so all bytes are initialised.
        unsafe { std::slice::from_raw_parts(records.as_ptr().cast(), size_of_val(records)) }
    }
}

macro_rules! integers {
    ($($integer:ty)+) => {
        // SAFETY: integers.
        $(unsafe impl Plain for $integer {})+
    };
}

integers! { u8 u16 u32 u64 i16 i32 }

// SAFETY: elements of an array follow each other without padding.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// The words that a record consists of.
#[inline]
#[must_use]
pub fn to_words<T: Plain, const WORDS: usize>(record: T) -> [u64; WORDS] {
    const { assert!(size_of::<T>() == 8 * WORDS, "a record of so many words") };
    // SAFETY: the sizes are the same, and every byte of the record is initialised.
    unsafe { std::mem::transmute_copy(&record) }
}

/// The record that words stand for.
#[inline]
#[must_use]
pub fn from_words<T: Plain, const WORDS: usize>(words: [u64; WORDS]) -> T {
    const { assert!(size_of::<T>() == 8 * WORDS, "a record of so many words") };
    // SAFETY: the sizes are the same, and any bytes are a record.
    unsafe { std::mem::transmute_copy(&words) }
}

/// The record that bytes stand for, wherever they lie; `None` if there are more or fewer.
#[must_use]
pub fn from_bytes<T: Plain>(bytes: &[u8]) -> Option<T> {
    // SAFETY: there are as many bytes, and any are a record.
    (bytes.len() == size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_bytes_go_there_and_back() {
        let halves: [u32; 4] = [1, 2, 3, 4];
        let words: [u64; 2] = to_words(halves);
        assert_eq!(from_words::<[u32; 4], 2>(words), halves);
        let bytes = <[u32; 4]>::bytes_of(std::slice::from_ref(&halves));
        assert_eq!(from_bytes(bytes), Some(halves));
        assert_eq!(from_bytes::<[u32; 4]>(&bytes[1..]), None);
        assert_eq!(<[u32; 4]>::zeroed(), [0; 4]);
    }
}

//! Big-endian fields at byte offsets.

/// The 16 bits at `offset`, as a number of the machine.
///
/// # Panics
/// If `bytes` ends before.
#[must_use]
#[inline]
pub fn read_u16(bytes: &[u8], offset: usize) -> u16 {
    let field = &bytes[offset..offset + 2];
    u16::from_be_bytes([field[0], field[1]])
}

/// The 32 bits at `offset`, as a number of the machine.
///
/// # Panics
/// If `bytes` ends before.
#[must_use]
#[inline]
pub fn read_u32(bytes: &[u8], offset: usize) -> u32 {
    let field = &bytes[offset..offset + 4];
    u32::from_be_bytes([field[0], field[1], field[2], field[3]])
}

/// Writes 16 bits at `offset`.
///
/// # Panics
/// If `bytes` ends before.
#[inline]
pub fn write_u16(bytes: &mut [u8], offset: usize, value: u16) {
    bytes[offset..offset + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes 32 bits at `offset`.
///
/// # Panics
/// If `bytes` ends before.
#[inline]
pub fn write_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_be_bytes());
}

/// The 16 bytes of an IPv6 address at `offset`.
#[inline]
pub(crate) fn read_u128(bytes: &[u8; 40], offset: usize) -> u128 {
    let mut field = [0; 16];
    field.copy_from_slice(&bytes[offset..offset + 16]);
    u128::from_be_bytes(field)
}

//! Types, codes and the word behind them: which ICMP message of one protocol is which of the other.
//!
//! Read first: RFC 7915 sections 4.2 (with figure 3) and 5.2 (with figure 6). What is not listed
//! there is dropped.

use tombolo_wire::{icmpv4, icmpv6};

use super::mtu::{too_big_4to6, too_big_6to4};
use super::settings::TranslateSettings;
use crate::verdict::DropReason;

/// An ICMP message of the other protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpTarget {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Bytes 4 to 7, without the length attribute of RFC 4884.
    pub rest: u32,
    /// The message has a length attribute, so it can carry an extension (RFC 4884 section 4).
    pub may_carry_extension: bool,
}

impl IcmpTarget {
    const fn with_extension(kind: u8, code: u8) -> Self {
        Self { kind, code, rest: 0, may_carry_extension: true }
    }

    const fn plain(kind: u8, code: u8, rest: u32) -> Self {
        Self { kind, code, rest, may_carry_extension: false }
    }
}

/// What an ICMPv4 error becomes. `rest` is bytes 4 to 7 of it, `embedded_length` the total length
/// of the packet in it.
///
/// # Errors
/// [`DropReason::IcmpUntranslatable`].
pub fn map_error_4to6(
    kind: u8,
    code: u8,
    rest: u32,
    embedded_length: u32,
    settings: &TranslateSettings,
) -> Result<IcmpTarget, DropReason> {
    use icmpv6::{DESTINATION_UNREACHABLE, PACKET_TOO_BIG, PARAMETER_PROBLEM, TIME_EXCEEDED, parameter, unreachable};
    let target = match (kind, code) {
        (icmpv4::DESTINATION_UNREACHABLE, 2) => {
            // The field that named the protocol is Next Header in IPv6.
            IcmpTarget::plain(PARAMETER_PROBLEM, parameter::NEXT_HEADER, 6)
        }
        (icmpv4::DESTINATION_UNREACHABLE, 4) => {
            let [_, _, high, low] = rest.to_be_bytes();
            let mtu = too_big_4to6(u16::from_be_bytes([high, low]), embedded_length, settings);
            IcmpTarget::plain(PACKET_TOO_BIG, 0, mtu)
        }
        (icmpv4::DESTINATION_UNREACHABLE, 3) => IcmpTarget::with_extension(DESTINATION_UNREACHABLE, unreachable::PORT),
        (icmpv4::DESTINATION_UNREACHABLE, 9 | 10 | 13 | 15) => {
            IcmpTarget::with_extension(DESTINATION_UNREACHABLE, unreachable::PROHIBITED)
        }
        (icmpv4::DESTINATION_UNREACHABLE, 0 | 1 | 5..=8 | 11 | 12) => {
            IcmpTarget::with_extension(DESTINATION_UNREACHABLE, unreachable::NO_ROUTE)
        }
        (icmpv4::TIME_EXCEEDED, code) => IcmpTarget::with_extension(TIME_EXCEEDED, code),
        (icmpv4::PARAMETER_PROBLEM, 0 | 2) => {
            let pointer = map_pointer_4to6(rest.to_be_bytes()[0]).ok_or(DropReason::IcmpUntranslatable)?;
            IcmpTarget::plain(PARAMETER_PROBLEM, parameter::HEADER_FIELD, pointer)
        }
        _ => return Err(DropReason::IcmpUntranslatable),
    };
    Ok(target)
}

/// What an ICMPv6 error becomes. `rest` is bytes 4 to 7 of it, `growth` as for [`too_big_6to4`].
///
/// # Errors
/// [`DropReason::IcmpUntranslatable`].
pub fn map_error_6to4(
    kind: u8,
    code: u8,
    rest: u32,
    growth: u32,
    settings: &TranslateSettings,
) -> Result<IcmpTarget, DropReason> {
    use icmpv4::{DESTINATION_UNREACHABLE, PARAMETER_PROBLEM, TIME_EXCEEDED, unreachable};
    let target = match (kind, code) {
        (icmpv6::DESTINATION_UNREACHABLE, 0 | 2 | 3) => {
            IcmpTarget::with_extension(DESTINATION_UNREACHABLE, unreachable::HOST)
        }
        (icmpv6::DESTINATION_UNREACHABLE, 1) => {
            IcmpTarget::with_extension(DESTINATION_UNREACHABLE, unreachable::HOST_PROHIBITED)
        }
        (icmpv6::DESTINATION_UNREACHABLE, 4) => IcmpTarget::with_extension(DESTINATION_UNREACHABLE, unreachable::PORT),
        // Its code is to be ignored (RFC 4443 section 3.2).
        (icmpv6::PACKET_TOO_BIG, _) => {
            let mtu = too_big_6to4(rest, growth, settings).ok_or(DropReason::IcmpUntranslatable)?;
            IcmpTarget {
                rest: u32::from(mtu),
                ..IcmpTarget::with_extension(DESTINATION_UNREACHABLE, unreachable::FRAGMENTATION_NEEDED)
            }
        }
        (icmpv6::TIME_EXCEEDED, code) => IcmpTarget::with_extension(TIME_EXCEEDED, code),
        (icmpv6::PARAMETER_PROBLEM, icmpv6::parameter::HEADER_FIELD) => {
            let pointer = map_pointer_6to4(rest).ok_or(DropReason::IcmpUntranslatable)?;
            IcmpTarget { rest: u32::from(pointer) << 24, ..IcmpTarget::with_extension(PARAMETER_PROBLEM, 0) }
        }
        (icmpv6::PARAMETER_PROBLEM, icmpv6::parameter::NEXT_HEADER) => {
            IcmpTarget::with_extension(DESTINATION_UNREACHABLE, unreachable::PROTOCOL)
        }
        _ => return Err(DropReason::IcmpUntranslatable),
    };
    Ok(target)
}

/// The field of an IPv6 header that has the role of the byte at `pointer` in an IPv4 header (RFC
/// 7915 figure 3).
#[must_use]
pub const fn map_pointer_4to6(pointer: u8) -> Option<u32> {
    match pointer {
        0 => Some(0),
        1 => Some(1),
        2 | 3 => Some(4),
        8 => Some(7),
        9 => Some(6),
        12..=15 => Some(8),
        16..=19 => Some(24),
        _ => None,
    }
}

/// The field of an IPv4 header that has the role of the byte at `pointer` in an IPv6 header (RFC
/// 7915 figure 6).
#[must_use]
pub const fn map_pointer_6to4(pointer: u32) -> Option<u8> {
    match pointer {
        0 => Some(0),
        1 => Some(1),
        4 | 5 => Some(2),
        6 => Some(9),
        7 => Some(8),
        8..=23 => Some(12),
        24..=39 => Some(16),
        _ => None,
    }
}

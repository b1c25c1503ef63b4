//! The sizes that "packet too big" messages report, translated; and the segment size that TCP
//! agrees on.
//!
//! Read first: RFC 7915 sections 4.2 and 5.2 (the MTU paragraphs), RFC 1191 section 7.1, RFC 8021,
//! RFC 6691.

use tombolo_wire::checksum::{Delta, update};
use tombolo_wire::options::HeaderOption;
use tombolo_wire::{TcpFlags, TcpView, ipv6, read_u16, tcp, write_u16};

use super::settings::TranslateSettings;
use crate::packet::ChecksumState;

/// Bytes that a packet grows by on its way to IPv6.
pub const GROWTH: u32 = 20;
/// Bytes that a fragment grows by: it gets a Fragment header as well.
pub const GROWTH_OF_FRAGMENT: u32 = 28;

/// The MTU of an ICMPv6 "packet too big" for that of an ICMPv4 "fragmentation needed". `mtu` is
/// zero if the router is older than RFC 1191; then the next plateau below `embedded_length`, the
/// total length of the packet in error, is taken as the IPv4 path MTU. RFC 7915 leaves open whether
/// 20 is added to a plateau: it is, as to any IPv4 MTU.
#[must_use]
pub fn too_big_4to6(mtu: u16, embedded_length: u32, settings: &TranslateSettings) -> u32 {
    let minimum = u32::from(ipv6::MINIMUM_MTU);
    let mtu = match mtu {
        0 => settings.plateaus.below(embedded_length),
        mtu => u32::from(mtu),
    };
    let reported = if mtu < minimum - GROWTH { minimum } else { mtu + GROWTH };
    reported.min(settings.ipv6_mtu).min(settings.ipv4_mtu.saturating_add(GROWTH)).max(minimum)
}

/// The MTU of an ICMPv4 "fragmentation needed" for that of an ICMPv6 "packet too big"; `None` below
/// 1280, which no IPv6 link may have and whose only use is to make hosts send atomic fragments (RFC
/// 8021). By `growth` the packet in error had grown: of a fragment that may not be fragmented
/// further the next one would be too big again, if its Fragment header did not count.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "limited to 65535 before")]
pub fn too_big_6to4(mtu: u32, growth: u32, settings: &TranslateSettings) -> Option<u16> {
    if mtu < u32::from(ipv6::MINIMUM_MTU) {
        return None;
    }
    let reported = (mtu - growth).min(settings.ipv4_mtu).min(settings.ipv6_mtu.saturating_sub(growth));
    Some(reported.min(u32::from(u16::MAX)) as u16)
}

/// The largest TCP segment that crosses a translator between links of these MTUs: both headers
/// without options.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "limited to 65535 before")]
pub fn segment_size_of_translation(ipv4_mtu: u32, ipv6_mtu: u32) -> u16 {
    ipv4_mtu.saturating_sub(40).min(ipv6_mtu.saturating_sub(60)).min(u32::from(u16::MAX)) as u16
}

/// The largest TCP segment that fits an IPv4 packet in a softwire over a path of `ipv6_mtu`.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "limited to 65535 before")]
pub fn segment_size_of_softwire(ipv6_mtu: u32) -> u16 {
    ipv6_mtu.saturating_sub(80).min(u32::from(u16::MAX)) as u16
}

/// Lowers the maximum segment size that a SYN announces to `limit`, and never raises it. `segment`
/// is a packet from its TCP header on. Returns whether something changed.
///
/// An option at an odd offset, as a sender without padding makes it, is changed where it is: its
/// bytes count crosswise in the checksum.
pub fn clamp_segment_size(segment: &mut [u8], limit: u16, checksum: ChecksumState) -> bool {
    let Ok(view) = TcpView::parse(segment) else { return false };
    if !view.flags().contains(TcpFlags::SYN) {
        return false;
    }
    let Some(at) = view.options().find_map(|option| match option {
        Ok(HeaderOption { kind: tcp::OPTION_MSS, offset, data: &[_, _] }) => Some(tcp::HEADER_LENGTH + offset + 2),
        _ => None,
    }) else {
        return false;
    };
    let old = read_u16(segment, at);
    if old <= limit {
        return false;
    }
    write_u16(segment, at, limit);
    if checksum == ChecksumState::Complete {
        let delta = if at.is_multiple_of(2) {
            Delta::of_word(old, limit)
        } else {
            Delta::of_word(old.swap_bytes(), limit.swap_bytes())
        };
        let field = read_u16(segment, tcp::CHECKSUM);
        write_u16(segment, tcp::CHECKSUM, update(field, delta));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_wire::Sum;

    fn syn(options: &[u8]) -> Vec<u8> {
        let mut segment = vec![0; 20];
        segment[tcp::DATA_OFFSET] = 0x50 + u8::try_from(options.len() / 4).unwrap() * 0x10;
        segment[tcp::FLAGS] = TcpFlags::SYN.0;
        segment.extend_from_slice(options);
        let checksum = Sum::ZERO.word(6).bytes(&segment).checksum();
        write_u16(&mut segment, tcp::CHECKSUM, checksum);
        segment
    }

    #[test]
    fn the_checksum_stays_right_at_even_and_at_odd_offsets() {
        for options in [[2, 4, 5, 0xb4, 1, 1, 1, 1], [1, 2, 4, 5, 0xb4, 1, 1, 1]] {
            let mut segment = syn(&options);
            assert!(clamp_segment_size(&mut segment, 1440, ChecksumState::Complete));
            assert!(Sum::ZERO.word(6).bytes(&segment).verifies());
            assert!(segment.windows(4).any(|bytes| bytes == [2, 4, 0x05, 0xa0]));
        }
    }

    #[test]
    fn only_a_syn_that_announces_more_is_changed() {
        let mut small = syn(&[2, 4, 2, 0]);
        assert!(!clamp_segment_size(&mut small, 1440, ChecksumState::Complete));
        let mut data = syn(&[2, 4, 5, 0xb4]);
        data[tcp::FLAGS] = TcpFlags::ACK.0;
        let before = data.clone();
        assert!(!clamp_segment_size(&mut data, 1440, ChecksumState::Complete));
        assert_eq!(data, before);
        assert!(!clamp_segment_size(&mut syn(&[]), 1440, ChecksumState::Complete));
    }

    #[test]
    fn a_partial_checksum_is_left_alone() {
        let mut segment = syn(&[2, 4, 5, 0xb4]);
        let field = read_u16(&segment, tcp::CHECKSUM);
        assert!(clamp_segment_size(&mut segment, 1440, ChecksumState::Partial { start: 0, offset: 16 }));
        assert_eq!(read_u16(&segment, tcp::CHECKSUM), field);
    }
}

//! The PREF64 option of router advertisements: which prefix a NAT64 uses (RFC 8781 section 4).
//!
//! ```text
//! 0      1            2                                4                              16
//! | 38 | length: 2 | scaled lifetime 13, length code 3 | high 96 bits of the prefix |
//! ```
//!
//! The lifetime counts in units of 8 seconds. The length code is 0 for /96, 1 for /64, 2 for /56, 3
//! for /48, 4 for /40, 5 for /32; others are to be ignored.

use core::net::Ipv6Addr;

use crate::{Prefix64, read_u16, write_u16};

/// Bytes of the option.
pub const OPTION_LENGTH: usize = 16;
/// Type of the option.
pub const OPTION_TYPE: u8 = 38;
/// The longest lifetime in seconds.
pub const LONGEST_LIFETIME: u16 = 8191 * 8;

/// Prefix lengths by their code.
const LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];

/// What the option says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pref64Option {
    /// The prefix.
    pub prefix: Prefix64,
    /// How long it may be used, in seconds. On the wire it is a multiple of 8, up to
    /// [`LONGEST_LIFETIME`]; 0 ends its use.
    pub lifetime: u16,
}

impl Pref64Option {
    /// The option in these bytes; `None` if a host has to ignore it: another type or length, a
    /// length code without meaning, or a prefix that is none (RFC 8781 section 5.1).
    #[must_use]
    pub fn parse(option: &[u8]) -> Option<Self> {
        let option: &[u8; OPTION_LENGTH] = option.try_into().ok()?;
        if option[0] != OPTION_TYPE || option[1] != 2 {
            return None;
        }
        let word = read_u16(option, 2);
        let length = *LENGTHS.get(usize::from(word & 7))?;
        let mut address = [0; 16];
        address[..12].copy_from_slice(&option[4..]);
        // Bits behind the prefix are not part of it.
        let address = u128::from_be_bytes(address) & !(u128::MAX >> length);
        let prefix = Prefix64::new(Ipv6Addr::from_bits(address), length).ok()?;
        Some(Self { prefix, lifetime: word & !7 })
    }

    /// The bytes of the option. The lifetime is rounded up to a multiple of 8, so that a short one
    /// does not end the use of the prefix, and cut to the longest there is (RFC 8781 section 4.1).
    #[must_use]
    pub fn emit(&self) -> [u8; OPTION_LENGTH] {
        let mut option = [0; OPTION_LENGTH];
        option[0] = OPTION_TYPE;
        option[1] = 2;
        let code = match self.prefix.length() {
            64 => 1,
            56 => 2,
            48 => 3,
            40 => 4,
            32 => 5,
            _ => 0,
        };
        write_u16(&mut option, 2, scaled_lifetime(self.lifetime) << 3 | code);
        option[4..].copy_from_slice(&self.prefix.address().octets()[..12]);
        option
    }
}

/// Type of a router advertisement (RFC 4861 section 4.2).
const ROUTER_ADVERTISEMENT: u8 = 134;
/// Bytes of a router advertisement before its options.
const ADVERTISEMENT_LENGTH: usize = 16;

/// The prefixes that a router advertisement names, `message` being the whole ICMPv6 message; none
/// for a message that is none, or damaged (RFC 4861 section 6.1.2).
pub fn in_advertisement(message: &[u8]) -> impl Iterator<Item = Pref64Option> {
    let options = match message {
        [ROUTER_ADVERTISEMENT, 0, ..] if are_options(message.get(ADVERTISEMENT_LENGTH..)) => {
            &message[ADVERTISEMENT_LENGTH..]
        }
        _ => &[],
    };
    Options(options).filter_map(Pref64Option::parse)
}

/// Options of neighbour discovery, one after another.
struct Options<'m>(&'m [u8]);

impl<'m> Iterator for Options<'m> {
    type Item = &'m [u8];

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(*self.0.get(1)?) * 8;
        let (option, rest) = self.0.split_at_checked(length).filter(|_| length > 0)?;
        self.0 = rest;
        Some(option)
    }
}

/// True if options fill the bytes: none of length zero, none cut off.
fn are_options(bytes: Option<&[u8]>) -> bool {
    bytes.is_some_and(|bytes| Options(bytes).map(<[u8]>::len).sum::<usize>() == bytes.len())
}

/// The lifetime in units of 8 seconds, rounded up, at most 8191.
#[must_use]
pub const fn scaled_lifetime(seconds: u16) -> u16 {
    let scaled = seconds.div_ceil(8);
    if scaled > 8191 { 8191 } else { scaled }
}

/// The lifetime, in seconds, of a router that advertises every `max_interval` seconds at the latest
/// (`MaxRtrAdvInterval`; RFC 8781 section 4.1).
#[must_use]
pub const fn default_lifetime(max_interval: u16) -> u16 {
    let seconds = max_interval.saturating_mul(3);
    if seconds > LONGEST_LIFETIME { LONGEST_LIFETIME } else { seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advertisement_is_believed_as_a_whole_or_not_at_all() {
        let prefix = Prefix64::new(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96).unwrap();
        let option = Pref64Option { prefix, lifetime: 1800 };
        let mut message = [0_u8; 16 + 8 + 16 + 8];
        message[0] = 134;
        // The router's link-layer address, the prefix, and an option of an unknown type.
        message[16..18].copy_from_slice(&[1, 1]);
        message[24..40].copy_from_slice(&option.emit());
        message[40..42].copy_from_slice(&[250, 1]);
        let named = |message: &[u8]| in_advertisement(message).next();
        assert_eq!(in_advertisement(&message).count(), 1);
        assert_eq!(named(&message), Some(option));
        assert_eq!(named(&message[..40]), Some(option));
        for cut in [0, 1, 15, 16, 24, 41, 47] {
            assert_eq!(named(&message[..cut]), None, "{cut}");
        }
        for (at, value) in [(0, 133), (1, 1), (17, 0), (41, 0), (41, 2)] {
            let mut other = message;
            other[at] = value;
            assert_eq!(named(&other), None, "{at}");
        }
    }

    #[test]
    fn bits_behind_the_prefix_are_ignored() {
        let prefix = Prefix64::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32).unwrap();
        let mut option = Pref64Option { prefix, lifetime: 600 }.emit();
        option[15] = 1;
        assert_eq!(Pref64Option::parse(&option), Some(Pref64Option { prefix, lifetime: 600 }));
    }
}

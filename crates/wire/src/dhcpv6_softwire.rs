//! What a DHCPv6 server says about softwires: options of MAP-E, MAP-T and Lightweight 4over6 (RFC
//! 7598), and the name of an AFTR (RFC 6334).
//!
//! ```text
//! | code 2 | length 2 | ...                                                                       every option
//!   89 RULE       | flags: F is 1 | EA bits | IPv4 length | IPv4 4 | IPv6 length | IPv6 prefix | options |
//!   90 BR         | address 16 |
//!   91 DMR        | length | prefix |
//!   92 V4V6BIND   | IPv4 4 | IPv6 length | prefix | options |
//!   93 PORTPARAMS | offset bits | PSID bits | PSID 2, on the left |                               in RULE, V4V6BIND
//!   94 MAP-E      | RULE, BR ...      |   95 MAP-T | RULE, DMR |   96 lw4o6 | V4V6BIND, BR |      containers
//!   64 AFTR-NAME  | labels of a domain name |
//! ```
//!
//! A prefix takes as many bytes as its bits need; bits behind it are not part of it.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

const RULE: u16 = 89;
const BR: u16 = 90;
const DMR: u16 = 91;
const BIND: u16 = 92;
const PORT_PARAMETERS: u16 = 93;
const MAP_E: u16 = 94;
const MAP_T: u16 = 95;
const LW4O6: u16 = 96;
const AFTR_NAME: u16 = 64;

/// One option, with what is inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum S46Option {
    /// A mapping rule.
    Rule(S46Rule),
    /// A border relay, or a lwAFTR.
    Br(Ipv6Addr),
    /// The Default Mapping Rule of MAP-T.
    Dmr(Ipv6Net),
    /// The binding of a lwB4.
    Bind(S46Bind),
    /// A port set.
    PortParameters(PortParameters),
    /// Everything for a CE of MAP-E.
    MapE {
        /// At least one.
        rules: Vec<S46Rule>,
        /// At least one.
        relays: Vec<Ipv6Addr>,
    },
    /// Everything for a CE of MAP-T.
    MapT {
        /// At least one.
        rules: Vec<S46Rule>,
        /// The Default Mapping Rule.
        dmr: Ipv6Net,
    },
    /// Everything for a lwB4.
    Lw4o6 {
        /// The binding, if it does not come otherwise (DHCPv4 over DHCPv6).
        bind: Option<S46Bind>,
        /// At least one lwAFTR.
        relays: Vec<Ipv6Addr>,
    },
    /// The name of an AFTR, with a dot at its end.
    AftrName(String),
}

/// A mapping rule (RFC 7598 section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct S46Rule {
    /// It may be used for forwarding to other CEs.
    pub forwarding: bool,
    /// Embedded address bits, 0 to 48.
    pub ea_bits: u8,
    /// Rule IPv4 prefix.
    pub ipv4: Ipv4Net,
    /// Rule IPv6 prefix.
    pub ipv6: Ipv6Net,
    /// An explicit port set.
    pub ports: Option<PortParameters>,
}

/// The binding of a lwB4 (RFC 7598 section 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct S46Bind {
    /// Its public address.
    pub ipv4: Ipv4Addr,
    /// Prefix that its tunnel address has to be in.
    pub bind_prefix: Ipv6Net,
    /// Its port set; none for a whole address.
    pub ports: Option<PortParameters>,
}

/// A port set (RFC 7598 section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortParameters {
    /// Offset bits, 0 to 15.
    pub offset: u8,
    /// Bits of the PSID, 0 to 16.
    pub psid_length: u8,
    /// The PSID as a number; none without bits.
    pub psid: Option<u16>,
}

/// Why an option is to be ignored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum S46Error {
    /// The bytes end before the option does.
    #[error("option {code} ends before it is complete")]
    Truncated {
        /// Code of the option; 0 if not even that is there.
        code: u16,
    },
    /// An option that is none of these.
    #[error("option {code} is none of RFC 7598 and RFC 6334")]
    Unknown {
        /// Its code.
        code: u16,
    },
    /// A field out of its range.
    #[error("option {code}: {what}")]
    Value {
        /// Code of the option.
        code: u16,
        /// The field, and what is wrong with it.
        what: &'static str,
    },
    /// An option that belongs into a container, outside of one.
    #[error("option {code} is outside of a container, where it means nothing (RFC 7598 section 4)")]
    Stray {
        /// Its code.
        code: u16,
    },
}

impl S46Option {
    /// The one option that `bytes` are.
    ///
    /// # Errors
    /// [`S46Error`]; then the option has to be ignored as a whole (RFC 7598 section 8).
    pub fn decode(bytes: &[u8]) -> Result<Self, S46Error> {
        let (code, body, rest) = split(bytes)?;
        if !rest.is_empty() {
            return Err(S46Error::Value { code, what: "more bytes than its length says" });
        }
        decode_body(code, body)
    }

    /// The options that a client received, and what has to be ignored of them. Options that a
    /// client has no business with are passed over in silence.
    #[must_use]
    pub fn decode_received(mut bytes: &[u8]) -> (Vec<Self>, Vec<S46Error>) {
        let (mut options, mut errors) = (Vec::new(), Vec::new());
        while !bytes.is_empty() {
            let (code, body, rest) = match split(bytes) {
                Ok(parts) => parts,
                Err(error) => {
                    errors.push(error);
                    break;
                }
            };
            bytes = rest;
            match code {
                MAP_E | MAP_T | LW4O6 | AFTR_NAME => match decode_body(code, body) {
                    Ok(option) => options.push(option),
                    Err(error) => errors.push(error),
                },
                RULE..=PORT_PARAMETERS => errors.push(S46Error::Stray { code }),
                _ => {}
            }
        }
        (options, errors)
    }

    /// Its bytes, code and length included.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        out
    }

    fn encode_into(&self, out: &mut Vec<u8>) {
        match self {
            Self::Rule(rule) => option(out, RULE, |out| encode_rule(rule, out)),
            Self::Br(address) => option(out, BR, |out| out.extend(address.octets())),
            Self::Dmr(prefix) => option(out, DMR, |out| encode_ipv6(*prefix, out)),
            Self::Bind(bind) => option(out, BIND, |out| encode_bind(bind, out)),
            Self::PortParameters(ports) => encode_ports(ports, out),
            Self::MapE { rules, relays } => option(out, MAP_E, |out| {
                rules.iter().for_each(|&rule| Self::Rule(rule).encode_into(out));
                relays.iter().for_each(|&relay| Self::Br(relay).encode_into(out));
            }),
            Self::MapT { rules, dmr } => option(out, MAP_T, |out| {
                rules.iter().for_each(|&rule| Self::Rule(rule).encode_into(out));
                Self::Dmr(*dmr).encode_into(out);
            }),
            Self::Lw4o6 { bind, relays } => option(out, LW4O6, |out| {
                bind.iter().for_each(|&bind| Self::Bind(bind).encode_into(out));
                relays.iter().for_each(|&relay| Self::Br(relay).encode_into(out));
            }),
            Self::AftrName(name) => option(out, AFTR_NAME, |out| encode_name(name, out)),
        }
    }
}

impl fmt::Display for S46Option {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rule(_) => "mapping rule",
            Self::Br(_) => "border relay",
            Self::Dmr(_) => "default mapping rule",
            Self::Bind(_) => "binding",
            Self::PortParameters(_) => "port parameters",
            Self::MapE { .. } => "MAP-E container",
            Self::MapT { .. } => "MAP-T container",
            Self::Lw4o6 { .. } => "Lightweight 4over6 container",
            Self::AftrName(_) => "AFTR name",
        })
    }
}

/// Code and body of the first option, and what follows it.
fn split(bytes: &[u8]) -> Result<(u16, &[u8], &[u8]), S46Error> {
    let (header, rest) = bytes.split_first_chunk::<4>().ok_or(S46Error::Truncated { code: 0 })?;
    let [a, b, c, d] = *header;
    let code = u16::from_be_bytes([a, b]);
    let length = usize::from(u16::from_be_bytes([c, d]));
    let (body, rest) = rest.split_at_checked(length).ok_or(S46Error::Truncated { code })?;
    Ok((code, body, rest))
}

fn decode_body(code: u16, body: &[u8]) -> Result<S46Option, S46Error> {
    let mut reader = Reader { code, bytes: body };
    match code {
        RULE => decode_rule(reader).map(S46Option::Rule),
        BR => Ok(S46Option::Br(Ipv6Addr::from(reader.last::<16>()?))),
        DMR => {
            let prefix = reader.ipv6()?;
            reader.end()?;
            Ok(S46Option::Dmr(prefix))
        }
        BIND => decode_bind(reader).map(S46Option::Bind),
        PORT_PARAMETERS => decode_ports(reader).map(S46Option::PortParameters),
        MAP_E | MAP_T | LW4O6 => decode_container(code, body),
        AFTR_NAME => decode_name(body).map(S46Option::AftrName),
        code => Err(S46Error::Unknown { code }),
    }
}

/// A container with what RFC 7598 section 5 allows in it.
fn decode_container(code: u16, mut body: &[u8]) -> Result<S46Option, S46Error> {
    let wrong = |what| S46Error::Value { code, what };
    let (mut rules, mut relays, mut dmrs, mut binds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    while !body.is_empty() {
        let (inner, bytes, rest) = split(body)?;
        body = rest;
        // Options of other documents may follow; those of this one may not.
        if !(RULE..=LW4O6).contains(&inner) {
            continue;
        }
        match (code, decode_body(inner, bytes)?) {
            (MAP_E | MAP_T, S46Option::Rule(rule)) => rules.push(rule),
            (MAP_E | LW4O6, S46Option::Br(relay)) => relays.push(relay),
            (MAP_T, S46Option::Dmr(dmr)) => dmrs.push(dmr),
            (LW4O6, S46Option::Bind(bind)) => binds.push(bind),
            _ => return Err(wrong("an option in it that does not belong there (RFC 7598 section 5)")),
        }
    }
    match code {
        MAP_E if rules.is_empty() => Err(wrong("no mapping rule")),
        MAP_E if relays.is_empty() => Err(wrong("no border relay")),
        MAP_E => Ok(S46Option::MapE { rules, relays }),
        MAP_T if rules.is_empty() => Err(wrong("no mapping rule")),
        MAP_T => match dmrs[..] {
            [dmr] => Ok(S46Option::MapT { rules, dmr }),
            _ => Err(wrong("not exactly one default mapping rule")),
        },
        _ if relays.is_empty() => Err(wrong("no lwAFTR")),
        _ if binds.len() > 1 => Err(wrong("more than one binding")),
        _ => Ok(S46Option::Lw4o6 { bind: binds.pop(), relays }),
    }
}

fn decode_rule(mut reader: Reader<'_>) -> Result<S46Rule, S46Error> {
    let [flags, ea_bits, ipv4_length] = reader.take::<3>()?;
    if ea_bits > 48 {
        return Err(reader.wrong("more than 48 EA bits"));
    }
    let ipv4 = Ipv4Net::new(reader.take::<4>()?.into(), ipv4_length);
    let ipv4 = ipv4.map_err(|_| reader.wrong("an IPv4 prefix of more than 32 bits"))?.trunc();
    let ipv6 = reader.ipv6()?;
    Ok(S46Rule { forwarding: flags & 1 != 0, ea_bits, ipv4, ipv6, ports: reader.ports()? })
}

fn decode_bind(mut reader: Reader<'_>) -> Result<S46Bind, S46Error> {
    let ipv4 = Ipv4Addr::from(reader.take::<4>()?);
    Ok(S46Bind { ipv4, bind_prefix: reader.ipv6()?, ports: reader.ports()? })
}

fn decode_ports(mut reader: Reader<'_>) -> Result<PortParameters, S46Error> {
    let [offset, psid_length, high, low] = reader.last::<4>()?;
    if offset > 15 {
        return Err(reader.wrong("more than 15 offset bits"));
    }
    if psid_length > 16 {
        return Err(reader.wrong("a PSID of more than 16 bits"));
    }
    if offset + psid_length > 16 {
        return Err(reader.wrong("more bits than a port has"));
    }
    // The PSID stands on the left of its field.
    let psid = u16::from_be_bytes([high, low]).checked_shr(16 - u32::from(psid_length));
    Ok(PortParameters { offset, psid_length, psid })
}

/// The first name of an AFTR-NAME option (RFC 6334 section 3): labels without compression, with a
/// dot behind each.
fn decode_name(body: &[u8]) -> Result<String, S46Error> {
    let code = AFTR_NAME;
    let wrong = |what| S46Error::Value { code, what };
    if body.len() <= 3 {
        return Err(wrong("too short for a name"));
    }
    let (mut name, mut rest) = (String::new(), body);
    loop {
        let (&length, behind) = rest.split_first().ok_or(S46Error::Truncated { code })?;
        if length == 0 {
            break;
        }
        if length > 63 {
            return Err(wrong("a label of more than 63 bytes, or a compressed one"));
        }
        let (label, behind) = behind.split_at_checked(length.into()).ok_or(S46Error::Truncated { code })?;
        if !label.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte)) {
            return Err(wrong("a label with other characters than letters, digits and hyphens"));
        }
        name.extend(label.iter().copied().map(char::from));
        name.push('.');
        rest = behind;
    }
    if name.is_empty() { Err(wrong("no label")) } else { Ok(name) }
}

/// The rest of an option's body.
struct Reader<'b> {
    code: u16,
    bytes: &'b [u8],
}

impl<'b> Reader<'b> {
    fn wrong(&self, what: &'static str) -> S46Error {
        S46Error::Value { code: self.code, what }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], S46Error> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(S46Error::Truncated { code: self.code })?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// As [`take`](Self::take), and nothing follows.
    fn last<const N: usize>(&mut self) -> Result<[u8; N], S46Error> {
        let taken = self.take()?;
        self.end()?;
        Ok(taken)
    }

    fn end(&self) -> Result<(), S46Error> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.wrong("more bytes than it has fields")) }
    }

    /// A length and as many bytes as it needs.
    fn ipv6(&mut self) -> Result<Ipv6Net, S46Error> {
        let [length] = self.take()?;
        let size = usize::from(length.div_ceil(8)).min(16);
        let (bytes, rest) = self.bytes.split_at_checked(size).ok_or(S46Error::Truncated { code: self.code })?;
        self.bytes = rest;
        let mut address = [0; 16];
        address[..size].copy_from_slice(bytes);
        let prefix = Ipv6Net::new(address.into(), length);
        Ok(prefix.map_err(|_| self.wrong("an IPv6 prefix of more than 128 bits"))?.trunc())
    }

    /// The port parameters among the options that end the body; others are passed over.
    fn ports(self) -> Result<Option<PortParameters>, S46Error> {
        let (mut bytes, mut ports): (&'b [u8], _) = (self.bytes, None);
        while !bytes.is_empty() {
            let (code, body, rest) = split(bytes)?;
            bytes = rest;
            if code == PORT_PARAMETERS && ports.is_none() {
                ports = Some(decode_ports(Reader { code, bytes: body })?);
            }
        }
        Ok(ports)
    }
}

/// Writes code and length around what `body` writes.
fn option(out: &mut Vec<u8>, code: u16, body: impl FnOnce(&mut Vec<u8>)) {
    out.extend(code.to_be_bytes());
    let at = out.len();
    out.extend([0, 0]);
    body(out);
    // Longer than a DHCPv6 message cannot be; what is cut off says so by its length.
    let length = u16::try_from(out.len() - at - 2).unwrap_or(u16::MAX);
    out[at..at + 2].copy_from_slice(&length.to_be_bytes());
}

fn encode_rule(rule: &S46Rule, out: &mut Vec<u8>) {
    out.extend([u8::from(rule.forwarding), rule.ea_bits, rule.ipv4.prefix_len()]);
    out.extend(rule.ipv4.network().octets());
    encode_ipv6(rule.ipv6, out);
    rule.ports.iter().for_each(|ports| encode_ports(ports, out));
}

fn encode_bind(bind: &S46Bind, out: &mut Vec<u8>) {
    out.extend(bind.ipv4.octets());
    encode_ipv6(bind.bind_prefix, out);
    bind.ports.iter().for_each(|ports| encode_ports(ports, out));
}

fn encode_ports(ports: &PortParameters, out: &mut Vec<u8>) {
    let field = ports.psid.unwrap_or(0).checked_shl(16 - u32::from(ports.psid_length.min(16))).unwrap_or(0);
    option(out, PORT_PARAMETERS, |out| {
        out.extend([ports.offset, ports.psid_length]);
        out.extend(field.to_be_bytes());
    });
}

fn encode_ipv6(prefix: Ipv6Net, out: &mut Vec<u8>) {
    out.push(prefix.prefix_len());
    out.extend(&prefix.network().octets()[..usize::from(prefix.prefix_len().div_ceil(8))]);
}

fn encode_name(name: &str, out: &mut Vec<u8>) {
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(63)];
        out.push(u8::try_from(label.len()).unwrap_or(63));
        out.extend(label);
    }
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_and_nothing_else() {
        let decode = |body: &[u8]| decode_name(body);
        assert_eq!(decode(b"\x04aftr\x07example\x03com\0").as_deref(), Ok("aftr.example.com."));
        assert_eq!(decode(b"\x01a\0\x01b\0").as_deref(), Ok("a."), "the first of two");
        for bad in [&b"\0\0\0\0"[..], b"\x04af", b"\x01a\x01", b"\xc0\x01aa", b"\x02a\n\0", b"\x01a\0"] {
            assert!(decode(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_bytes_make_decoding_fail_hard() {
        let mut state = 7_u32;
        for _ in 0..200_000 {
            let mut bytes = Vec::new();
            for _ in 0..state % 60 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                bytes.push((state >> 24).to_le_bytes()[0]);
            }
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Codes and lengths that lead somewhere.
            for at in (0..bytes.len()).step_by(5) {
                bytes[at] = [0, 0, 0, 89, 94, 96, 64][(state >> 16) as usize % 7];
            }
            let (options, _) = S46Option::decode_received(&bytes);
            for option in options {
                assert_eq!(S46Option::decode(&option.encode()), Ok(option));
            }
        }
    }
}

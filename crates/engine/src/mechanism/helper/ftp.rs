//! FTP's commands and replies that name addresses (RFC 959, RFC 2428), and what they become.
//!
//! Read first: RFC 6384; RFC 2577 section 3 (whose address a client may name).
//!
//! | the client says | the server hears | its reply | the client hears |
//! |---|---|---|---|
//! | `PORT`, `EPRT` with its own IPv4 address | the same with the outside endpoint | any | the same |
//! | `EPRT` with its own IPv6 address | `PORT` with the outside endpoint | any | the same |
//! | `EPSV` over IPv6 | `PASV` | 227 with the server's address | 229 with the port |
//! | | | 227 with another address | 425 |
//! | `EPSV ALL` over IPv6 | `NOOP` | 200 or 5xx | 504 |
//! | `ALGS` over IPv6 | `NOOP` | 200 or 5xx | 216 or 504 |
//! | `AUTH`, and 2xx or 3xx comes back | what the client says from then on | | what the server says |
//!
//! What names the address of another host, or a port below 1024, stays: the server refuses it or not, but no binding
//! is made.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use tombolo_tables::conversation::Stream;
use tombolo_wire::Port;

use super::text::Text;
use crate::endpoint::Endpoint;

/// Where servers take control connections.
pub(in crate::mechanism) const CONTROL_PORT: Port = Port(21);

/// The lowest port that a client may name: services of the host lie below (RFC 2577 section 3).
const LOWEST_PORT: u16 = 1024;

/// Whose control connection it is.
#[derive(Debug, Clone, Copy)]
pub(in crate::mechanism) struct Client {
    /// Its own address.
    pub(in crate::mechanism) host: IpAddr,
    /// The server's address.
    pub(in crate::mechanism) server: Ipv4Addr,
}

/// What becomes of a line.
#[derive(Debug, Clone, Copy)]
pub(super) enum Line {
    /// It goes on as it is.
    Kept,
    /// It would have become another one, but cannot.
    Unhelped,
    /// It becomes this.
    Becomes(Text),
}

/// What the server's next reply answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Awaited {
    /// What nothing is made of.
    #[default]
    Nothing,
    /// PASV that was EPSV.
    Passive,
    /// NOOP, in place of a question to the gateway.
    Status,
    /// NOOP, in place of what the gateway does not know.
    Parameter,
}

/// What is known of a conversation besides its numbers: four bits beside those of each stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Notes {
    awaited: Awaited,
    /// That reply has come.
    is_answered: bool,
    /// The client has asked for security that nobody on the way can read.
    asks_for_security: bool,
    /// And has got it.
    is_secured: bool,
    /// The client wants no translation (ALGS DISABLE64).
    is_disabled: bool,
}

const AWAITED: u8 = 0x30;
const ANSWERED: u8 = 0x40;
const ASKS_FOR_SECURITY: u8 = 0x10;
const SECURED: u8 = 0x20;
const DISABLED: u8 = 0x40;
const ENDED: u8 = 0x80;

impl Notes {
    const fn of(streams: &[Stream; 2]) -> Self {
        let [out, back] = [streams[0].flags, streams[1].flags];
        Self {
            awaited: match (out & AWAITED) >> 4 {
                1 => Awaited::Passive,
                2 => Awaited::Status,
                3 => Awaited::Parameter,
                _ => Awaited::Nothing,
            },
            is_answered: out & ANSWERED != 0,
            asks_for_security: back & ASKS_FOR_SECURITY != 0,
            is_secured: back & SECURED != 0,
            is_disabled: back & DISABLED != 0,
        }
    }

    fn write(self, streams: &mut [Stream; 2]) {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let [out, back] = streams;
        out.flags = out.flags & !(AWAITED | ANSWERED) | (self.awaited as u8) << 4 | bit(self.is_answered, ANSWERED);
        back.flags = back.flags & !(ASKS_FOR_SECURITY | SECURED | DISABLED)
            | bit(self.asks_for_security, ASKS_FOR_SECURITY)
            | bit(self.is_secured, SECURED)
            | bit(self.is_disabled, DISABLED);
    }

    fn await_reply(&mut self, awaited: Awaited) {
        (self.awaited, self.is_answered) = (awaited, false);
    }
}

/// True if nobody on the way can read it any more.
pub(super) fn is_secured(streams: &[Stream; 2]) -> bool {
    Notes::of(streams).is_secured
}

/// True if one of the ends has said its last.
pub(super) const fn has_ended(streams: &[Stream; 2]) -> bool {
    streams[1].flags & ENDED != 0
}

/// Notes that.
pub(super) fn end(streams: &mut [Stream; 2]) {
    streams[1].flags |= ENDED;
}

/// True if `part`, the beginning of a line, may be that of one that would be rewritten.
pub(super) fn may_become(part: &[u8], from_client: bool, streams: &[Stream; 2], client: &Client) -> bool {
    let begins = |word: &&[u8]| {
        let length = word.len().min(part.len());
        part[..length].eq_ignore_ascii_case(&word[..length])
    };
    let notes = Notes::of(streams);
    match (from_client, client.host) {
        (true, IpAddr::V4(_)) => [&b"PORT "[..], b"EPRT "].iter().any(begins),
        (true, IpAddr::V6(_)) => [&b"EPRT "[..], b"EPSV", b"ALGS"].iter().any(begins),
        (false, _) => notes.awaited == Awaited::Passive && !notes.is_answered && begins(&&b"227"[..]),
    }
}

/// What a command of the client becomes. `is_new` is false of a retransmission, which changes no notes. `reach` makes
/// an inside port reachable for the server.
pub(super) fn command(
    line: &[u8],
    is_new: bool,
    streams: &mut [Stream; 2],
    client: &Client,
    reach: impl FnOnce(Port) -> Option<Endpoint>,
) -> Line {
    let mut notes = Notes::of(streams);
    let (verb, argument) = words(line);
    let is = |word: &str| verb.eq_ignore_ascii_case(word);
    let becomes = match client.host {
        _ if is("AUTH") => {
            notes.asks_for_security = true;
            Line::Kept
        }
        IpAddr::V4(host) if is("PORT") => named(port_argument(argument), host, reach, in_port),
        IpAddr::V4(host) if is("EPRT") => named(eprt_argument(argument, "1"), host, reach, in_eprt),
        IpAddr::V4(_) => Line::Kept,
        IpAddr::V6(_) if is("ALGS") => {
            let awaited = match argument.to_ascii_uppercase().as_str() {
                "STATUS64" => Awaited::Status,
                "ENABLE64" => {
                    notes.is_disabled = false;
                    Awaited::Status
                }
                "DISABLE64" => {
                    notes.is_disabled = true;
                    Awaited::Status
                }
                _ => Awaited::Parameter,
            };
            notes.await_reply(awaited);
            becomes(format_args!("NOOP\r\n"))
        }
        IpAddr::V6(_) if notes.is_disabled => Line::Kept,
        IpAddr::V6(host) if is("EPRT") => named(eprt_argument(argument, "2"), host, reach, in_port),
        IpAddr::V6(_) if is("EPSV") && argument.eq_ignore_ascii_case("ALL") => {
            notes.await_reply(Awaited::Parameter);
            becomes(format_args!("NOOP\r\n"))
        }
        IpAddr::V6(_) if is("EPSV") && matches!(argument, "" | "1" | "2") => {
            notes.await_reply(Awaited::Passive);
            becomes(format_args!("PASV\r\n"))
        }
        // It is asked for by a client that knows what it gets.
        IpAddr::V6(_) if is("PASV") => {
            notes.await_reply(Awaited::Nothing);
            Line::Kept
        }
        IpAddr::V6(_) => Line::Kept,
    };
    if is_new {
        notes.write(streams);
    }
    becomes
}

/// What a reply of the server becomes.
pub(super) fn reply(line: &[u8], is_new: bool, streams: &mut [Stream; 2], client: &Client) -> Line {
    let mut notes = Notes::of(streams);
    let Some(code) = code(line) else { return Line::Kept };
    if notes.asks_for_security && is_new && code >= 200 {
        notes.is_secured = code < 400;
        notes.asks_for_security = false;
        notes.write(streams);
        return Line::Kept;
    }
    if notes.is_answered && is_new {
        return Line::Kept;
    }
    let (is_answer, becomes) = match notes.awaited {
        Awaited::Passive if code == 227 => (true, passive(line, client)),
        Awaited::Passive => (code >= 400, Line::Kept),
        Awaited::Status if code == 200 || code >= 500 => (true, status(notes.is_disabled)),
        Awaited::Parameter if code == 200 || code >= 500 => {
            (true, becomes(format_args!("504 Command not implemented for that parameter.\r\n")))
        }
        Awaited::Status | Awaited::Parameter | Awaited::Nothing => (false, Line::Kept),
    };
    if is_new && is_answer {
        notes.is_answered = true;
        notes.write(streams);
    }
    becomes
}

/// RFC 6384 section 11.
fn status(is_disabled: bool) -> Line {
    if is_disabled { becomes(format_args!("216 NONE\r\n")) } else { becomes(format_args!("216 EPSV EPRT\r\n")) }
}

/// RFC 6384 section 6: the client knows the server by another address, so only the server's own can be said by a port
/// alone.
fn passive(line: &[u8], client: &Client) -> Line {
    let numbers = &line[4..];
    let begin = numbers.iter().position(u8::is_ascii_digit).unwrap_or(numbers.len());
    let end = |rest: &[u8]| rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b',').unwrap_or(rest.len());
    let rest = &numbers[begin..];
    let argument = std::str::from_utf8(&rest[..end(rest)]).ok().and_then(port_argument);
    match argument {
        Some((address, port)) if address == client.server => {
            becomes(format_args!("229 Entering Extended Passive Mode (|||{}|)\r\n", port.0))
        }
        Some(_) => becomes(format_args!("425 Can't open data connection.\r\n")),
        None => Line::Unhelped,
    }
}

/// What a command becomes that names an address: `write` of the outside endpoint, if the address is the client's own.
fn named<A: PartialEq>(
    named: Option<(A, Port)>,
    host: A,
    reach: impl FnOnce(Port) -> Option<Endpoint>,
    write: impl FnOnce(Endpoint) -> Line,
) -> Line {
    let port = named.filter(|(address, port)| *address == host && port.0 >= LOWEST_PORT).map(|(_, port)| port);
    port.and_then(reach).map_or(Line::Unhelped, write)
}

fn in_port(Endpoint { address, port }: Endpoint) -> Line {
    let ([a, b, c, d], [high, low]) = (address.octets(), port.0.to_be_bytes());
    becomes(format_args!("PORT {a},{b},{c},{d},{high},{low}\r\n"))
}

fn in_eprt(Endpoint { address, port }: Endpoint) -> Line {
    becomes(format_args!("EPRT |1|{address}|{}|\r\n", port.0))
}

fn becomes(arguments: std::fmt::Arguments<'_>) -> Line {
    Text::of(arguments).map_or(Line::Unhelped, Line::Becomes)
}

/// A command and what follows it; nothing of what is not text.
fn words(line: &[u8]) -> (&str, &str) {
    let line = std::str::from_utf8(line).unwrap_or_default().trim_ascii_end();
    let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
    (verb, argument.trim_ascii())
}

/// The code of a reply's last line.
fn code(line: &[u8]) -> Option<u16> {
    let (code, rest) = line.split_at_checked(3)?;
    let is_last = rest.first().is_some_and(|byte| matches!(byte, b' ' | b'\r' | b'\n'));
    let digits =
        code.iter().try_fold(0, |sum, byte| Some(sum * 10 + u16::from(byte.checked_sub(b'0').filter(|n| *n < 10)?)));
    digits.filter(|_| is_last)
}

/// `h1,h2,h3,h4,p1,p2` (RFC 959 section 5.3.2).
fn port_argument(argument: &str) -> Option<(Ipv4Addr, Port)> {
    let mut numbers = argument.split(',').map(decimal::<u8>);
    let mut next = || numbers.next().flatten();
    let address = Ipv4Addr::from([next()?, next()?, next()?, next()?]);
    let port = Port(u16::from_be_bytes([next()?, next()?]));
    numbers.next().is_none().then_some((address, port))
}

/// `<d>protocol<d>address<d>port<d>` (RFC 2428 section 2).
fn eprt_argument<A: FromStr>(argument: &str, protocol: &str) -> Option<(A, Port)> {
    let delimiter = argument.chars().next().filter(char::is_ascii_graphic)?;
    let mut fields = argument[1..].split(delimiter);
    let mut next = || fields.next();
    let (named, address, port) = (next()?, next()?, next()?);
    let port = decimal(port)?;
    let is_whole = next() == Some("") && next().is_none() && named == protocol;
    is_whole.then_some(())?;
    Some((address.parse().ok()?, Port(port)))
}

/// A number of digits alone; `parse` would take a sign.
fn decimal<N: FromStr>(digits: &str) -> Option<N> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

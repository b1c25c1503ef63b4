//! Port Control Protocol (RFC 6887), version 2, as its server reads and writes it.
//!
//! Read first: RFC 6887 sections 7 (messages), 11.1 (MAP), 12.1 (PEER), 13 (options); RFC 7753
//! section 4 (PORT_SET).
//!
//! ```text
//! request   0         1             2          4                    8                        24
//!           | version | 0 + opcode  | 0        | requested lifetime | client's address       | opcode's data | options
//! response  0         1             2   3      4                    8       12               24
//!           | version | R + opcode  | 0 | code | lifetime           | epoch | 0              | opcode's data | options
//!
//! MAP       0       12         13   16              18              20                        36
//!           | nonce | protocol | 0 | internal port | external port | external address        |
//! PEER      as MAP, then                            36            38   40               56
//!                                                   | remote port | 0  | remote address   |
//! option    0      1   2        4
//!           | code | 0 | length | data, padded to a multiple of four |
//! ```
//!
//! Addresses are IPv6; IPv4 ones stand in `::ffff:0:0/96`.

use core::net::{IpAddr, Ipv6Addr};

use crate::{Port, Protocol, read_u16, read_u32, write_u16, write_u32};

/// UDP port of servers (section 19.1).
pub const SERVER_PORT: Port = Port(5351);
/// The port at which clients hear what servers tell all of them (section 14.1.3).
pub const CLIENT_PORT: Port = Port(5350);
/// Most bytes of a message.
pub const LONGEST: usize = 1100;
/// Bytes of the header that requests and responses begin with.
pub const HEADER_LENGTH: usize = 24;
/// The version that is spoken.
pub const VERSION: u8 = 2;

/// In the byte of the opcode: a response.
const RESPONSE: u8 = 0x80;
const MAP_LENGTH: usize = 36;
const PEER_LENGTH: usize = 56;
const OPTION_HEADER_LENGTH: usize = 4;

mod field {
    pub(super) const VERSION: usize = 0;
    pub(super) const OPCODE: usize = 1;
    pub(super) const RESULT: usize = 3;
    pub(super) const LIFETIME: usize = 4;
    pub(super) const EPOCH: usize = 8;
    pub(super) const CLIENT: usize = 8;
    /// Of a request, what its response repeats if it could not be understood.
    pub(super) const CLIENT_TAIL: usize = 12;
    pub(super) const PROTOCOL: usize = 12;
    pub(super) const INTERNAL_PORT: usize = 16;
    pub(super) const EXTERNAL_PORT: usize = 18;
    pub(super) const EXTERNAL_ADDRESS: usize = 20;
    pub(super) const REMOTE_PORT: usize = 36;
    pub(super) const REMOTE_ADDRESS: usize = 40;
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// Is the server there, and since when does it know what it knows?
    Announce,
    /// A mapping that anybody may send to.
    Map,
    /// A mapping for a connection to one remote.
    Peer,
}

impl Opcode {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Announce, Self::Map, Self::Peer];

    /// Its name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Announce => "announce",
            Self::Map => "map",
            Self::Peer => "peer",
        }
    }

    const fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Announce),
            1 => Some(Self::Map),
            2 => Some(Self::Peer),
            _ => None,
        }
    }
}

/// How a request ended (section 7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ResultCode {
    /// It was done.
    Success = 0,
    /// The version is not known.
    UnsuppVersion = 1,
    /// It is not the client's to ask for.
    NotAuthorized = 2,
    /// It could not be understood.
    MalformedRequest = 3,
    /// The opcode is not known.
    UnsuppOpcode = 4,
    /// An option that must be understood is not known, or not wanted here.
    UnsuppOption = 5,
    /// An option could not be understood.
    MalformedOption = 6,
    /// The network beyond the gateway does not allow it.
    NetworkFailure = 7,
    /// The gateway has no room for it.
    NoResources = 8,
    /// The transport protocol cannot be mapped.
    UnsuppProtocol = 9,
    /// The subscriber has as many as it may have.
    UserExQuota = 10,
    /// The external address or port that was asked for cannot be had.
    CannotProvideExternal = 11,
    /// The request comes from another address than it says.
    AddressMismatch = 12,
    /// The mapping has as many remotes as it may have.
    ExcessiveRemotePeers = 13,
}

impl ResultCode {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 14] = [
        Self::Success,
        Self::UnsuppVersion,
        Self::NotAuthorized,
        Self::MalformedRequest,
        Self::UnsuppOpcode,
        Self::UnsuppOption,
        Self::MalformedOption,
        Self::NetworkFailure,
        Self::NoResources,
        Self::UnsuppProtocol,
        Self::UserExQuota,
        Self::CannotProvideExternal,
        Self::AddressMismatch,
        Self::ExcessiveRemotePeers,
    ];

    /// Its name in lower case, as in the RFC with hyphens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::UnsuppVersion => "unsupp-version",
            Self::NotAuthorized => "not-authorized",
            Self::MalformedRequest => "malformed-request",
            Self::UnsuppOpcode => "unsupp-opcode",
            Self::UnsuppOption => "unsupp-option",
            Self::MalformedOption => "malformed-option",
            Self::NetworkFailure => "network-failure",
            Self::NoResources => "no-resources",
            Self::UnsuppProtocol => "unsupp-protocol",
            Self::UserExQuota => "user-ex-quota",
            Self::CannotProvideExternal => "cannot-provide-external",
            Self::AddressMismatch => "address-mismatch",
            Self::ExcessiveRemotePeers => "excessive-remote-peers",
        }
    }

    /// Seconds for which a client need not ask again: 30 if it may pass by itself, half an hour if not
    /// (section 7.4).
    #[must_use]
    pub const fn error_lifetime(self) -> u32 {
        match self {
            Self::NetworkFailure | Self::NoResources | Self::UserExQuota | Self::CannotProvideExternal => 30,
            _ => 1800,
        }
    }
}

/// What a client proves with that a mapping is its own.
pub type Nonce = [u8; 12];

/// What MAP and PEER have in common, in requests and in responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// The client's secret.
    pub nonce: Nonce,
    /// The transport protocol; 0 for all.
    pub protocol: Protocol,
    /// The client's port; 0 for all.
    pub internal_port: Port,
    /// The port outside: suggested (0 for any), or assigned.
    pub external_port: Port,
    /// The address outside: suggested (all zero for any), or assigned.
    pub external_address: Ipv6Addr,
}

/// The remote of a PEER request, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Its port.
    pub port: Port,
    /// Its address.
    pub address: Ipv6Addr,
}

/// Options of a request, those that a server may ignore left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// PREFER_FAILURE: the external address and port suggested, or none.
    pub prefer_failure: bool,
    /// PORT_SET (RFC 7753).
    pub port_set: Option<PortSet>,
}

/// So many consecutive ports, from the internal port on (RFC 7753).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortSet {
    /// How many.
    pub size: u16,
    /// The first internal port.
    pub first_internal_port: Port,
    /// The first external port is odd or even as the first internal one is.
    pub parity: bool,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// ANNOUNCE.
    Announce,
    /// MAP.
    Map(Mapping),
    /// PEER.
    Peer(Mapping, Remote),
}

impl Body {
    /// Its opcode.
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Announce => Opcode::Announce,
            Self::Map(_) => Opcode::Map,
            Self::Peer(..) => Opcode::Peer,
        }
    }
}

/// A request that was understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Seconds that the mapping is wanted for; 0 to have it no more.
    pub lifetime: u32,
    /// What is asked for.
    pub body: Body,
    /// How.
    pub options: Options,
}

/// Why a message gets no [`Request`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// It gets no answer: a response, or too short to tell.
    Silent,
    /// It is answered with this.
    Refused(ResultCode),
}

impl From<ResultCode> for Unusable {
    fn from(code: ResultCode) -> Self {
        Self::Refused(code)
    }
}

/// The opcode that a message has, if there is such a one.
#[must_use]
pub fn opcode_of(message: &[u8]) -> Option<Opcode> {
    Opcode::of(message.get(field::OPCODE)? & !RESPONSE)
}

impl Request {
    /// The request in `message`, which came from `source`, in the order of checks of section 8.2.
    ///
    /// # Errors
    /// [`Unusable`].
    pub fn parse(message: &[u8], source: IpAddr) -> Result<Self, Unusable> {
        let [version, opcode, ..] = *message else { return Err(Unusable::Silent) };
        if opcode & RESPONSE != 0 {
            return Err(Unusable::Silent);
        }
        // Version 0 is NAT-PMP, whose clients take this for what it is as well (appendix A).
        if version != VERSION {
            return Err(ResultCode::UnsuppVersion.into());
        }
        if message.len() < HEADER_LENGTH || message.len() > LONGEST || !message.len().is_multiple_of(4) {
            return Err(ResultCode::MalformedRequest.into());
        }
        let opcode = Opcode::of(opcode).ok_or(ResultCode::UnsuppOpcode)?;
        let (header, rest) = message.split_at(HEADER_LENGTH);
        let (body, options) = Self::parse_body(opcode, rest)?;
        if address(header, field::CLIENT) != in_ipv6(source) {
            return Err(ResultCode::AddressMismatch.into());
        }
        Ok(Self { lifetime: read_u32(header, field::LIFETIME), body, options: Options::parse(options, opcode)? })
    }

    fn parse_body(opcode: Opcode, rest: &[u8]) -> Result<(Body, &[u8]), ResultCode> {
        let length = match opcode {
            Opcode::Announce => 0,
            Opcode::Map => MAP_LENGTH,
            Opcode::Peer => PEER_LENGTH,
        };
        let (data, options) = rest.split_at_checked(length).ok_or(ResultCode::MalformedRequest)?;
        let body = match opcode {
            Opcode::Announce => Body::Announce,
            Opcode::Map => Body::Map(Mapping::parse(data)),
            Opcode::Peer => {
                let port = Port(read_u16(data, field::REMOTE_PORT));
                Body::Peer(Mapping::parse(data), Remote { port, address: address(data, field::REMOTE_ADDRESS) })
            }
        };
        Ok((body, options))
    }
}

impl Mapping {
    fn parse(data: &[u8]) -> Self {
        let mut nonce = [0; 12];
        nonce.copy_from_slice(&data[..12]);
        Self {
            nonce,
            protocol: Protocol(data[field::PROTOCOL]),
            internal_port: Port(read_u16(data, field::INTERNAL_PORT)),
            external_port: Port(read_u16(data, field::EXTERNAL_PORT)),
            external_address: address(data, field::EXTERNAL_ADDRESS),
        }
    }
}

mod option {
    pub(super) const PREFER_FAILURE: u8 = 2;
    pub(super) const PORT_SET: u8 = 130;
    /// From here on a server may ignore what it does not know.
    pub(super) const OPTIONAL: u8 = 128;
    pub(super) const PORT_SET_LENGTH: usize = 5;
    pub(super) const PARITY: u8 = 1;
}

impl Options {
    /// THIRD_PARTY and FILTER are known, and not supported: they are refused as unknown ones are.
    fn parse(mut bytes: &[u8], opcode: Opcode) -> Result<Self, ResultCode> {
        let mut options = Self::default();
        while !bytes.is_empty() {
            let (header, rest) = bytes.split_at_checked(OPTION_HEADER_LENGTH).ok_or(ResultCode::MalformedOption)?;
            let (code, length) = (header[0], usize::from(read_u16(header, 2)));
            let padded = length.next_multiple_of(4);
            let (data, rest) = rest.split_at_checked(padded).ok_or(ResultCode::MalformedOption)?;
            options.read(code, &data[..length], opcode)?;
            bytes = rest;
        }
        if options.prefer_failure && options.port_set.is_some() {
            return Err(ResultCode::MalformedOption);
        }
        Ok(options)
    }

    fn read(&mut self, code: u8, data: &[u8], opcode: Opcode) -> Result<(), ResultCode> {
        match (code, opcode) {
            (option::PREFER_FAILURE, Opcode::Map) => {
                if !data.is_empty() || self.prefer_failure {
                    return Err(ResultCode::MalformedOption);
                }
                self.prefer_failure = true;
            }
            (option::PORT_SET, Opcode::Map) => {
                if data.len() != option::PORT_SET_LENGTH || self.port_set.is_some() || read_u16(data, 0) == 0 {
                    return Err(ResultCode::MalformedOption);
                }
                let (size, first) = (read_u16(data, 0), Port(read_u16(data, 2)));
                self.port_set =
                    Some(PortSet { size, first_internal_port: first, parity: data[4] & option::PARITY != 0 });
            }
            (option::OPTIONAL.., _) => {}
            _ => return Err(ResultCode::UnsuppOption),
        }
        Ok(())
    }

    /// Writes those that a response has; says how many bytes they are.
    fn emit(&self, bytes: &mut [u8]) -> usize {
        let mut length = 0;
        if self.prefer_failure {
            bytes[..OPTION_HEADER_LENGTH].copy_from_slice(&[option::PREFER_FAILURE, 0, 0, 0]);
            length += OPTION_HEADER_LENGTH;
        }
        if let Some(set) = self.port_set {
            let bytes = &mut bytes[length..length + OPTION_HEADER_LENGTH + 8];
            bytes.fill(0);
            bytes[0] = option::PORT_SET;
            write_u16(bytes, 2, 5);
            write_u16(bytes, 4, set.size);
            write_u16(bytes, 6, set.first_internal_port.0);
            bytes[8] = if set.parity { option::PARITY } else { 0 };
            length += OPTION_HEADER_LENGTH + 8;
        }
        length
    }
}

/// A response to a request that was done. Its body has what was assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// Seconds that the mapping stays.
    pub lifetime: u32,
    /// Seconds for which the server has known what it knows.
    pub epoch: u32,
    /// What was done.
    pub body: Body,
    /// How.
    pub options: Options,
}

impl Response {
    /// Writes it; says how many bytes it is.
    pub fn emit(&self, bytes: &mut [u8; LONGEST]) -> usize {
        let opcode = self.body.opcode() as u8;
        emit_header(bytes, opcode, ResultCode::Success, self.lifetime, self.epoch);
        bytes[field::CLIENT_TAIL..HEADER_LENGTH].fill(0);
        let data = &mut bytes[HEADER_LENGTH..];
        let length = match self.body {
            Body::Announce => 0,
            Body::Map(mapping) => {
                mapping.emit(data);
                MAP_LENGTH
            }
            Body::Peer(mapping, remote) => {
                mapping.emit(data);
                write_u16(data, field::REMOTE_PORT, remote.port.0);
                write_u16(data, field::REMOTE_PORT + 2, 0);
                data[field::REMOTE_ADDRESS..PEER_LENGTH].copy_from_slice(&remote.address.octets());
                PEER_LENGTH
            }
        };
        HEADER_LENGTH + length + self.options.emit(&mut data[length..])
    }
}

impl Mapping {
    fn emit(&self, data: &mut [u8]) {
        data[..12].copy_from_slice(&self.nonce);
        data[field::PROTOCOL..field::INTERNAL_PORT].copy_from_slice(&[self.protocol.0, 0, 0, 0]);
        write_u16(data, field::INTERNAL_PORT, self.internal_port.0);
        write_u16(data, field::EXTERNAL_PORT, self.external_port.0);
        data[field::EXTERNAL_ADDRESS..MAP_LENGTH].copy_from_slice(&self.external_address.octets());
    }
}

/// A response to a request that was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorResponse {
    /// Why not.
    pub code: ResultCode,
    /// Seconds for which it need not be asked again.
    pub lifetime: u32,
    /// Seconds for which the server has known what it knows.
    pub epoch: u32,
    /// The request was understood. Of others the client's address is repeated, but for the bytes that other fields have in a
    /// response (section 7.2).
    pub is_understood: bool,
}

impl ErrorResponse {
    /// Writes it, with the request repeated as far as there is room (section 8.2); says how many bytes it is. `request` has
    /// two bytes at least.
    pub fn emit(&self, bytes: &mut [u8; LONGEST], request: &[u8]) -> usize {
        let copied = request.len().min(LONGEST);
        let length = copied.next_multiple_of(4).max(HEADER_LENGTH);
        bytes[..length].fill(0);
        bytes[..copied].copy_from_slice(&request[..copied]);
        if self.is_understood {
            bytes[field::CLIENT_TAIL..HEADER_LENGTH].fill(0);
        }
        let opcode = bytes[field::OPCODE];
        emit_header(bytes, opcode, self.code, self.lifetime, self.epoch);
        length
    }
}

fn emit_header(bytes: &mut [u8; LONGEST], opcode: u8, code: ResultCode, lifetime: u32, epoch: u32) {
    bytes[field::VERSION] = VERSION;
    bytes[field::OPCODE] = opcode | RESPONSE;
    bytes[field::RESULT - 1] = 0;
    bytes[field::RESULT] = code as u8;
    write_u32(bytes, field::LIFETIME, lifetime);
    write_u32(bytes, field::EPOCH, epoch);
}

fn address(bytes: &[u8], offset: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[offset..offset + 16]);
    octets.into()
}

/// An address as messages have it.
#[must_use]
pub const fn in_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;
    use std::vec::Vec;

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

    /// A MAP request for TCP port 8080, suggested 192.0.2.1 port 4096, for an hour; byte by byte.
    #[rustfmt::skip]
    const MAP: [u8; 60] = [
        2, 1, 0, 0,  0, 0, 0x0e, 0x10,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 7,
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
        6, 0, 0, 0,  0x1f, 0x90, 0x10, 0x00,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1,
    ];

    fn with(bytes: &[u8], more: &[u8]) -> Vec<u8> {
        [bytes, more].concat()
    }

    fn refused(bytes: &[u8]) -> ResultCode {
        match Request::parse(bytes, CLIENT) {
            Err(Unusable::Refused(code)) => code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_map_request_is_read_from_its_bytes() {
        let request = Request::parse(&MAP, CLIENT).unwrap();
        let mapping = Mapping {
            nonce: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
            protocol: Protocol::TCP,
            internal_port: Port(8080),
            external_port: Port(4096),
            external_address: Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped(),
        };
        assert_eq!(request, Request { lifetime: 3600, body: Body::Map(mapping), options: Options::default() });
    }

    #[test]
    fn a_peer_request_has_its_remote_behind() {
        let mut bytes = MAP.to_vec();
        bytes[1] = 2;
        bytes.extend([0x01, 0xbb, 0, 0]);
        bytes.extend("2001:db8::5".parse::<Ipv6Addr>().unwrap().octets());
        let request = Request::parse(&bytes, CLIENT).unwrap();
        let Body::Peer(mapping, remote) = request.body else { panic!("{request:?}") };
        assert_eq!((mapping.internal_port, remote.port), (Port(8080), Port(443)));
        assert_eq!(remote.address, "2001:db8::5".parse::<Ipv6Addr>().unwrap());
        assert_eq!(refused(&bytes[..76]), ResultCode::MalformedRequest, "its data end too early");
    }

    #[test]
    fn a_response_stands_as_the_rfc_draws_it() {
        let Body::Map(mapping) = Request::parse(&MAP, CLIENT).unwrap().body else { panic!() };
        let response =
            Response { lifetime: 120, epoch: 0x0102_0304, body: Body::Map(mapping), options: Options::default() };
        let mut bytes = [0xee; LONGEST];
        let length = response.emit(&mut bytes);
        let mut expected = MAP;
        expected[..24].copy_from_slice(&[2, 0x81, 0, 0, 0, 0, 0, 120, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[..length], expected);
        let announced = Response { body: Body::Announce, lifetime: 0, ..response };
        assert_eq!(announced.emit(&mut bytes), 24);
        assert_eq!(bytes[..12], [2, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn an_error_repeats_the_request() {
        let mut bytes = [0xee; LONGEST];
        let error = |code, lifetime, is_understood| ErrorResponse { code, lifetime, epoch: 9, is_understood };
        let unsupported = error(ResultCode::UnsuppOption, 1800, false);
        let length = unsupported.emit(&mut bytes, &MAP);
        let mut expected = MAP;
        expected[..12].copy_from_slice(&[2, 0x81, 0, 5, 0, 0, 7, 8, 0, 0, 0, 9]);
        assert_eq!(bytes[..length], expected, "with the last 96 bits of the client's address");
        let length = error(ResultCode::NoResources, 30, true).emit(&mut bytes, &MAP);
        expected[..24].fill(0);
        expected[..12].copy_from_slice(&[2, 0x81, 0, 8, 0, 0, 0, 30, 0, 0, 0, 9]);
        assert_eq!(bytes[..length], expected, "without");
        // The shortest request of NAT-PMP.
        assert_eq!(error(ResultCode::UnsuppVersion, 1800, false).emit(&mut bytes, &[0, 0]), 24);
        assert_eq!(bytes[..12], [2, 0x80, 0, 1, 0, 0, 7, 8, 0, 0, 0, 9]);
        assert_eq!(bytes[12..24], [0; 12]);
        let long = [7; 1399];
        let malformed = error(ResultCode::MalformedRequest, 1800, false);
        assert_eq!(malformed.emit(&mut bytes, &long), LONGEST);
        assert_eq!(malformed.emit(&mut bytes, &long[..61]), 64, "padded");
    }

    #[test]
    fn what_is_no_request_gets_no_answer() {
        for bytes in [&[][..], &[2], &[2, 0x81], &[0, 0x80, 0, 0]] {
            assert_eq!(Request::parse(bytes, CLIENT), Err(Unusable::Silent), "{bytes:?}");
        }
    }

    #[test]
    fn each_mistake_has_its_code() {
        let changed = |at: usize, value: u8| {
            let mut bytes = MAP;
            bytes[at] = value;
            refused(&bytes)
        };
        assert_eq!(refused(&[0, 0]), ResultCode::UnsuppVersion, "NAT-PMP asks for the address");
        assert_eq!(changed(0, 1), ResultCode::UnsuppVersion);
        assert_eq!(changed(0, 3), ResultCode::UnsuppVersion);
        assert_eq!(changed(1, 3), ResultCode::UnsuppOpcode);
        assert_eq!(changed(23, 8), ResultCode::AddressMismatch);
        assert_eq!(refused(&MAP[..20]), ResultCode::MalformedRequest);
        assert_eq!(refused(&MAP[..56]), ResultCode::MalformedRequest);
        assert_eq!(refused(&with(&MAP, &[0; 2])), ResultCode::MalformedRequest, "no multiple of four");
        assert_eq!(refused(&with(&MAP, &[0; LONGEST])), ResultCode::MalformedRequest, "too long");
    }

    #[test]
    fn options_that_must_be_understood_are_refused_unless_they_are() {
        let third_party = with(&[1, 0, 0, 16], &[0; 16]);
        let filter = with(&[3, 0, 0, 20], &[0; 20]);
        assert_eq!(refused(&with(&MAP, &third_party)), ResultCode::UnsuppOption);
        assert_eq!(refused(&with(&MAP, &filter)), ResultCode::UnsuppOption);
        assert_eq!(refused(&with(&MAP, &[127, 0, 0, 0])), ResultCode::UnsuppOption);
        let optional = with(&MAP, &[200, 0, 0, 3, 1, 2, 3, 0]);
        assert_eq!(Request::parse(&optional, CLIENT).unwrap().options, Options::default());
        let strict = with(&MAP, &[2, 0, 0, 0]);
        assert!(Request::parse(&strict, CLIENT).unwrap().options.prefer_failure);
        for malformed in [&[2, 0, 0, 4, 0, 0, 0, 0][..], &[2, 0, 0, 0, 2, 0, 0, 0], &[200, 0, 0, 5, 0, 0, 0, 0]] {
            assert_eq!(refused(&with(&MAP, malformed)), ResultCode::MalformedOption, "{malformed:?}");
        }
        let mut announce = MAP[..24].to_vec();
        announce[1] = 0;
        assert_eq!(refused(&with(&announce, &[2, 0, 0, 0])), ResultCode::UnsuppOption, "not an option of ANNOUNCE");
    }

    #[test]
    fn a_port_set_is_read_and_written() {
        let option = [130, 0, 0, 5, 0, 8, 0x1f, 0x90, 1, 0, 0, 0];
        let request = Request::parse(&with(&MAP, &option), CLIENT).unwrap();
        let set = PortSet { size: 8, first_internal_port: Port(8080), parity: true };
        assert_eq!(request.options.port_set, Some(set));
        let response = Response { lifetime: 1, epoch: 2, body: request.body, options: request.options };
        let mut bytes = [0xee; LONGEST];
        let length = response.emit(&mut bytes);
        assert_eq!(bytes[60..length], option);
        let with_failure = with(&with(&MAP, &option), &[2, 0, 0, 0]);
        assert_eq!(refused(&with_failure), ResultCode::MalformedOption);
        let empty = [130, 0, 0, 5, 0, 0, 0x1f, 0x90, 1, 0, 0, 0];
        assert_eq!(refused(&with(&MAP, &empty)), ResultCode::MalformedOption);
    }
}

//! What a request gets.
//!
//! Read first: RFC 6887 sections 8.2 (all requests), 11.3 (MAP), 12.3 (PEER), 15 (lifetimes), RFC 7753
//! section 5 (port sets).

use std::net::{IpAddr, Ipv4Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_tables::lease::Use;
use tombolo_tables::tick::{Tick, ticks};
use tombolo_wire::pcp::{
    self, Body, ErrorResponse, Mapping, Opcode, Options, PortSet, Remote, Request, Response, ResultCode, Unusable,
};
use tombolo_wire::{Port, Prefix64, Protocol};

use crate::answered::Answered;
use crate::endpoint::Endpoint;
use crate::mapping::pool::{Parity, PortSpace};
use crate::mechanism::napt::lease::{Granted, LeaseError, Wish};
use crate::mechanism::napt::{Host, Nat};
use crate::work::Work;

/// Who asks.
#[derive(Debug)]
pub(crate) struct Client<'p> {
    /// The NAT of the service that it is inside.
    pub(crate) nat: &'p Nat,
    /// The host, as the tables know it.
    pub(crate) host: Host,
    /// The address that the request came from.
    pub(crate) address: IpAddr,
    /// The prefix in which it sees IPv4 hosts.
    pub(crate) prefix: Option<Prefix64>,
}

/// Why a request was not done.
struct Failure {
    code: ResultCode,
    /// Seconds for which it need not be asked again, where that is known.
    lifetime: Option<u32>,
}

impl From<ResultCode> for Failure {
    fn from(code: ResultCode) -> Self {
        Self { code, lifetime: None }
    }
}

impl From<LeaseError> for Failure {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::NotTheHolder(left) => Self { code: ResultCode::NotAuthorized, lifetime: Some(seconds(left)) },
            LeaseError::NotLeased | LeaseError::Denied => ResultCode::NotAuthorized.into(),
            LeaseError::Quota => ResultCode::UserExQuota.into(),
            LeaseError::NoRoom => ResultCode::NoResources.into(),
            LeaseError::NotThatEndpoint => ResultCode::CannotProvideExternal.into(),
        }
    }
}

impl Client<'_> {
    /// Writes the response to `message`, which the client has sent; how it ended, and how many bytes the
    /// response is. `None` if there is none.
    pub(crate) fn respond(
        &self,
        message: &[u8],
        work: &mut Work<'_>,
        response: &mut [u8; pcp::LONGEST],
    ) -> Option<(Answered, usize)> {
        let epoch = u32::try_from(work.tables.leases.epoch(work.now.0)).unwrap_or(u32::MAX);
        let done = match Request::parse(message, self.address) {
            Err(Unusable::Silent) => return None,
            Err(Unusable::Refused(code)) => Err((Failure::from(code), false)),
            Ok(request) => self.serve(&request, work).map_err(|failure| (failure, true)),
        };
        let opcode = pcp::opcode_of(message);
        let (code, length) = match done {
            Ok((lifetime, body, options)) => {
                let length = Response { lifetime, epoch, body, options }.emit(response);
                (ResultCode::Success, length)
            }
            Err((Failure { code, lifetime }, is_understood)) => {
                let lifetime = lifetime.unwrap_or(code.error_lifetime());
                (code, ErrorResponse { code, lifetime, epoch, is_understood }.emit(response, message))
            }
        };
        Some((Answered { opcode, code }, length))
    }

    fn serve(&self, request: &Request, work: &mut Work<'_>) -> Result<(u32, Body, Options), Failure> {
        match request.body {
            Body::Announce => Ok((0, Body::Announce, Options::default())),
            Body::Map(mapping) if request.lifetime == 0 => {
                self.delete(&mapping, &request.options, work)?;
                Ok((0, Body::Map(mapping), request.options))
            }
            Body::Map(mapping) => self.map(&mapping, request, work),
            Body::Peer(mapping, remote) => self.peer(&mapping, remote, request.lifetime, work),
        }
    }

    /// MAP, of one port or of a set.
    fn map(&self, mapping: &Mapping, request: &Request, work: &mut Work<'_>) -> Result<(u32, Body, Options), Failure> {
        let space = space_of(mapping)?;
        let lifetime = self.lifetime(request.lifetime);
        let set = request.options.port_set;
        let mut wish = self.wish(mapping, lifetime, work.now.tick());
        wish.is_strict = request.options.prefer_failure;
        let first = first_port(mapping, set);
        if set.is_some_and(|set| set.parity) {
            wish.parity = Parity::Preserve;
        }
        let granted = self.nat.lease(&self.key(first, space, work), space, &wish, work)?;
        let mut size = 1;
        // The others stand side by side with the first one, as far as they can be had.
        for next in 1..set.map_or(1, |set| set.size) {
            let (Some(inside), Some(outside)) = (first.0.checked_add(next), granted.outside.port.0.checked_add(next))
            else {
                break;
            };
            let wish = Wish { port: Some(Port(outside)), is_strict: true, ..wish };
            if self.nat.lease(&self.key(Port(inside), space, work), space, &wish, work).is_err() {
                break;
            }
            size += 1;
        }
        let options = Options {
            prefer_failure: request.options.prefer_failure,
            port_set: set.filter(|_| size > 1).map(|set| PortSet { size, ..set }),
        };
        Ok((lifetime_of(&granted, lifetime), Body::Map(assigned(mapping, granted.outside)), options))
    }

    /// MAP with lifetime 0: the mapping goes, at once.
    fn delete(&self, mapping: &Mapping, options: &Options, work: &mut Work<'_>) -> Result<(), Failure> {
        if mapping.internal_port.0 == 0 || mapping.protocol.0 == 0 {
            // Mappings of all ports or protocols are never made, and what is not there may be deleted.
            let is_legal = mapping.internal_port.0 == 0;
            return if is_legal { Ok(()) } else { Err(ResultCode::MalformedRequest.into()) };
        }
        let space = space_of(mapping)?;
        let first = first_port(mapping, options.port_set);
        for place in 0..options.port_set.map_or(1, |set| set.size) {
            let Some(port) = first.0.checked_add(place) else { break };
            self.nat.end_lease(&self.key(Port(port), space, work), Use::Anybody, mapping.nonce, work)?;
        }
        Ok(())
    }

    /// PEER: the binding stays as long as its holder wants. It opens nothing.
    fn peer(
        &self,
        mapping: &Mapping,
        remote: Remote,
        lifetime: u32,
        work: &mut Work<'_>,
    ) -> Result<(u32, Body, Options), Failure> {
        if mapping.protocol.0 == 0 || mapping.internal_port.0 == 0 || remote.port.0 == 0 {
            return Err(ResultCode::MalformedRequest.into());
        }
        let space = space_of(mapping)?;
        let address = self.remote_address(&remote).ok_or(ResultCode::MalformedRequest)?;
        let purpose = Use::Remote(address.octets(), remote.port.0.to_be_bytes());
        let key = self.key(mapping.internal_port, space, work);
        if lifetime == 0 {
            let outside = self.nat.end_lease(&key, purpose, mapping.nonce, work)?;
            let was = outside.map_or(*mapping, |outside| assigned(mapping, outside));
            return Ok((0, Body::Peer(was, remote), Options::default()));
        }
        let lifetime = self.lifetime(lifetime);
        let wish =
            Wish { purpose, is_strict: mapping.external_port.0 != 0, ..self.wish(mapping, lifetime, work.now.tick()) };
        let granted = self.nat.lease(&key, space, &wish, work)?;
        let body = Body::Peer(assigned(mapping, granted.outside), remote);
        Ok((lifetime_of(&granted, lifetime), body, Options::default()))
    }

    /// The remote's address outside.
    fn remote_address(&self, remote: &Remote) -> Option<Ipv4Addr> {
        let embedded = self.prefix.and_then(|prefix| prefix.extract(remote.address));
        embedded.or_else(|| remote.address.to_ipv4_mapped()).filter(|address| !address.is_unspecified())
    }

    fn wish(&self, mapping: &Mapping, lifetime: u32, now: Tick) -> Wish {
        let policy = self.nat.policy.pcp.unwrap_or_default();
        Wish {
            nonce: mapping.nonce,
            purpose: Use::Anybody,
            expires: Tick(now.0.saturating_add(ticks(lifetime))),
            address: mapping.external_address.to_ipv4_mapped().filter(|address| !address.is_unspecified()),
            port: Some(mapping.external_port).filter(|port| port.0 != 0),
            is_strict: false,
            parity: self.nat.policy.parity,
            most: policy.mappings,
        }
    }

    /// As long as is wanted, within the limits.
    fn lifetime(&self, wanted: u32) -> u32 {
        let policy = self.nat.policy.pcp.unwrap_or_default();
        wanted.min(policy.longest).max(policy.shortest)
    }

    fn key(&self, port: Port, space: PortSpace, work: &Work<'_>) -> InsideKey {
        self.host.key(work.number, space, port)
    }
}

/// The first port of a set is the one of the mapping; where the two differ the option counts (RFC 7753
/// section 4).
fn first_port(mapping: &Mapping, set: Option<PortSet>) -> Port {
    set.map_or(mapping.internal_port, |set| set.first_internal_port)
}

/// What can be mapped: one port of TCP or UDP.
fn space_of(mapping: &Mapping) -> Result<PortSpace, ResultCode> {
    match (mapping.protocol, mapping.internal_port.0) {
        (Protocol(0), 1..) => Err(ResultCode::MalformedRequest),
        (Protocol::TCP, 1..) => Ok(PortSpace::Tcp),
        (Protocol::UDP, 1..) => Ok(PortSpace::Udp),
        _ => Err(ResultCode::UnsuppProtocol),
    }
}

/// The mapping as it is: at this endpoint.
fn assigned(mapping: &Mapping, outside: Endpoint) -> Mapping {
    Mapping { external_port: outside.port, external_address: outside.address.to_ipv6_mapped(), ..*mapping }
}

/// What nobody has asked for never ends (section 15.1).
fn lifetime_of(granted: &Granted, lifetime: u32) -> u32 {
    if granted.is_fixed { u32::MAX } else { lifetime }
}

/// Whole seconds in `ticks`.
fn seconds(ticks: u32) -> u32 {
    u32::try_from((u64::from(ticks) << Tick::SHIFT) / 1_000_000_000).unwrap_or(u32::MAX)
}

const _: () = assert!(Opcode::ALL.len() == 3, "each has its row among the counters");

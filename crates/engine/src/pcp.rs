//! Requests for ports from hosts inside, at the addresses that the plan has for them: whose host it is, and
//! the answer. Those that come out of a softwire are its end's (`service/aftr.rs`).
//!
//! A request is one of the inside's packets: that it comes in where its sender is, the kernel has seen to
//! before (`inside_interfaces`). What is not from a host inside a service that takes requests gets no answer
//! (RFC 6887 section 8.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::mechanism::napt::{Host, KnownBy};
use crate::mechanism::pcp::{Client, is_request, respond_ipv4, respond_ipv6};
use crate::mechanism::screen::{is_illegal_source_ipv4, is_illegal_source_ipv6};
use crate::mechanism::{Refusal, echo, redirect, slice};
use crate::packet::HEADROOM;
use crate::parse::Parsed;
use crate::plan::Plan;
use crate::service::Service;
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// True if an IPv6 packet is for an address that the gateway has for requests alone.
#[inline]
pub(crate) fn has_ipv6(plan: &Plan, destination: Ipv6Addr) -> bool {
    plan.pcp.ipv6.contains(&destination)
}

/// True if an IPv4 packet is for such an address.
#[inline]
pub(crate) fn has_ipv4(plan: &Plan, destination: Ipv4Addr) -> bool {
    plan.pcp.ipv4.contains(&destination)
}

/// An IPv6 packet to such an address: a request, else what any address of the gateway's own answers.
///
/// # Errors
/// [`Refusal`] of what gets no answer.
#[cold]
pub(crate) fn receive_ipv6(plan: &Plan, parsed: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
    if !is_request(parsed) {
        return echo::receive_ipv6(parsed, work);
    }
    if is_illegal_source_ipv6(parsed.source) {
        return Err(DropReason::IllegalSource.into());
    }
    let client = client(plan, parsed.source.into(), KnownBy::Ipv6, parsed.source.into(), work)?;
    if let Some(other) = slice::node_of_host(client.nat, client.host, slice::flow_ipv6(parsed), work)? {
        return redirect::send(other, parsed, work);
    }
    let mut buffer = [0; HEADROOM + crate::mechanism::pcp::LONGEST_DATAGRAM];
    let (verdict, mut response) = respond_ipv6(&client, parsed, work, &mut buffer)?;
    work.outbox.send(&mut response)?;
    Ok(verdict)
}

/// An IPv4 packet to such an address.
///
/// # Errors
/// As [`receive_ipv6`].
#[cold]
pub(crate) fn receive_ipv4(plan: &Plan, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
    if !is_request(parsed) {
        return echo::receive_ipv4(parsed, work);
    }
    if is_illegal_source_ipv4(parsed.source) {
        return Err(DropReason::IllegalSource.into());
    }
    let client = client(plan, parsed.source.into(), KnownBy::Ipv4, parsed.source.into(), work)?;
    if let Some(other) = slice::node_of_host(client.nat, client.host, slice::flow_ipv4(parsed), work)? {
        return redirect::send(other, parsed, work);
    }
    let mut buffer = [0; HEADROOM + crate::mechanism::pcp::LONGEST_DATAGRAM];
    let (verdict, mut response) = respond_ipv4(&client, parsed, work, &mut buffer)?;
    work.outbox.send(&mut response)?;
    Ok(verdict)
}

/// The first service that has the host inside and takes its requests, with its number.
pub(crate) fn service_of(plan: &Plan, host: Host, known_by: KnownBy) -> Option<(u8, &Service)> {
    plan.numbered().find(|&(number, service)| {
        service.kind.nat().is_some_and(|nat| nat.policy.pcp.is_some())
            && service.kind.hosts_known_by() == known_by
            && service.kind.has_inside(&host.any_key(number))
    })
}

/// Who asks: a host inside the first service that has it.
///
/// # Errors
/// [`DropReason::NotPcpClient`]: it is inside none.
pub(crate) fn client<'p>(
    plan: &'p Plan,
    host: Host,
    known_by: KnownBy,
    address: IpAddr,
    work: &mut Work<'_>,
) -> Result<Client<'p>, Refusal> {
    let found = service_of(plan, host, known_by);
    let found = found.and_then(|(number, service)| Some((number, service, service.kind.nat()?)));
    let (number, service, nat) = found.ok_or(Refusal::from(DropReason::NotPcpClient))?;
    work.number = number;
    work.notes.add("RFC 6887 section 8.2", || format!("{address} is inside service {}", service.name));
    Ok(Client { nat, host, address, prefix: service.kind.pref64() })
}

//! Which node of a cluster serves a packet of a service with bindings: the one that owns the slice of its
//! subscriber, and so has the bindings.
//!
//! ```text
//! from inside    the subscriber's slice; of an ICMP error that of the host that it comes back from, since any
//!                router on the way may have sent it
//! from outside   the slice of the address that it goes to
//!
//! 1  this node owns it                     it is served here
//! 2  its owner serves                      redirected to the owner
//! 3  this node is its backup, with a copy  it is served here, in the owner's place: by known bindings, and by new
//!                                          ones within what a subscriber was granted
//! 4  its backup serves, another node       redirected to the backup, which has a copy, or a way to the owner
//! 5                                        dropped
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Refusal;
use super::napt::{Host, Nat};
use super::redirect::{self, Redirection};
use crate::cluster::{Granting, Hops, Place, Standing, flow_number};
use crate::parse::Parsed;
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// The other node that serves what comes from `host`, as a packet of the flow with this number, if there is one.
///
/// # Errors
/// [`DropReason::SliceUnowned`], [`DropReason::RedirectLoop`].
pub(crate) fn node_of_host(
    nat: &Nat,
    host: Host,
    flow: u64,
    work: &mut Work<'_>,
) -> Result<Option<Redirection>, DropReason> {
    let Some(standing) = work.standing else { return Ok(None) };
    let subscriber = nat.policy.subscriber.key(&host.any_key(work.number));
    node_of(standing, nat.pool.slice_of(&subscriber), flow, work)
}

/// The other node that serves what goes to an outside address, if there is one.
///
/// # Errors
/// As [`node_of_host`].
pub(crate) fn node_of_address(
    nat: &Nat,
    parsed: &Parsed<Ipv4Addr>,
    work: &mut Work<'_>,
) -> Result<Option<Redirection>, DropReason> {
    let Some(standing) = work.standing else { return Ok(None) };
    node_of(standing, nat.pool.slice_of_address(parsed.destination), flow_ipv4(parsed), work)
}

/// Sends the packet at hand, which was translated to IPv4 and is for the pool, to the node that has its address,
/// where that is another: there it comes in as if from outside.
///
/// # Errors
/// As [`node_of_host`] and [`redirect::send`].
pub(crate) fn hairpin_elsewhere(
    nat: &Nat,
    parsed: &Parsed<Ipv4Addr>,
    work: &mut Work<'_>,
) -> Result<Option<Verdict>, Refusal> {
    let Some(standing) = work.standing else { return Ok(None) };
    // A packet of its own, whichever way the one went that it was made of.
    let standing = Standing { hops: Hops::None, ..standing };
    let slice = nat.pool.slice_of_address(parsed.destination);
    let other = node_of(standing, slice, flow_ipv4(parsed), work)?;
    other.map(|other| redirect::send(other, parsed, work)).transpose()
}

fn node_of(
    Standing { cluster, hops }: Standing<'_>,
    slice: Option<u16>,
    flow: u64,
    work: &mut Work<'_>,
) -> Result<Option<Redirection>, DropReason> {
    let Some(slice) = slice else { return Ok(None) };
    let node = match cluster.place_of(slice, work.now) {
        Place::Here => {
            work.notes.add("", || format!("slice {slice} of the cluster is this node's"));
            work.granting = cluster.assigned(slice).granting;
            return Ok(None);
        }
        Place::Acting(owner) => {
            work.notes.add("", || format!("slice {slice} of the cluster is served here in its owner's place"));
            cluster.note_acting(owner);
            work.granting = Granting::Nothing;
            return Ok(None);
        }
        Place::At(node) => node,
        Place::Nowhere => return Err(DropReason::SliceUnowned),
    };
    let hops = hops.next().ok_or(DropReason::RedirectLoop)?;
    let name = cluster.nodes().get(usize::from(node)).map_or("", |node| node.name.as_str());
    work.notes.add("", || format!("slice {slice} of the cluster is served by node {name}"));
    Ok(Redirection::new(cluster, node, hops, flow))
}

/// The number of a packet's flow.
pub(crate) fn flow_ipv4(parsed: &Parsed<Ipv4Addr>) -> u64 {
    flow_number(parsed.source.to_bits().into(), parsed.destination.to_bits().into(), ports(parsed))
}

/// As [`flow_ipv4`].
pub(crate) fn flow_ipv6(parsed: &Parsed<Ipv6Addr>) -> u64 {
    flow_number(parsed.source.to_bits(), parsed.destination.to_bits(), ports(parsed))
}

fn ports<A>(parsed: &Parsed<A>) -> u32 {
    u32::from(parsed.source_port.0) << 16 | u32::from(parsed.destination_port.0)
}

//! What a NAT is set to, in words.

use std::net::{Ipv6Addr, SocketAddr};

use tombolo_tables::lpm::Prefix;

use super::filtering::{Filtering, Filters};
use super::nat::Nat;
use super::policy::Policy;
use super::static_binding::StaticBinding;
use crate::description::{Description, Fact, addresses};
use crate::mapping::allocation::Allocation;
use crate::mapping::assigned::Span;
use crate::mapping::pool::{PoolRange, PortRanges, PortSpace};
use crate::mechanism::pcp::PcpPolicy;

impl Nat {
    /// Adds what is to be known of it.
    #[must_use]
    pub(crate) fn describe(&self, about: Description) -> Description {
        about
            .with("pool_for", Fact::texts(self.pool.assigned().assignments().map(assignment)))
            .with("pool", Fact::List(self.pool.ranges().iter().map(|range| pool(range).into()).collect()))
            .with("helpers", Fact::texts(self.policy.helpers.names().map(str::to_owned)))
            .with("protocols", Fact::texts(self.policy.protocols.iter().map(|space| space.name().to_owned())))
            .with("filtering", filtering(self.policy.filtering))
            .with("sessions", sessions(&self.policy))
            .with("bindings_per_subscriber", self.policy.bindings_per_subscriber)
            .with("sessions_per_subscriber", self.policy.sessions_per_subscriber)
            .with("pcp", self.policy.pcp.map_or_else(|| "off".to_owned(), pcp))
            .with("allocation", allocation(self.pool.allocation()))
            .with("static_bindings", Fact::texts(self.static_bindings.iter().map(static_binding)))
    }
}

fn pool(range: &PoolRange) -> Description {
    let about = Description::default().with("addresses", addresses(range.first, range.last));
    PortSpace::WITH_SLOTS
        .into_iter()
        .fold(about, |about, space| about.with(space.name(), ports(&range.ports[space as usize])))
}

/// Whom addresses are for.
fn assignment((prefix, (first, last)): (Prefix<u128>, Span)) -> String {
    let mapped = prefix.prefix_len().checked_sub(96).zip(Ipv6Addr::from_bits(prefix.key()).to_ipv4_mapped());
    let hosts = mapped.map_or_else(|| prefix.to_string(), |(length, ipv4)| format!("{ipv4}/{length}"));
    format!("{hosts}: {}", addresses(first, last))
}

fn ports(ports: &PortRanges) -> String {
    let ranges: Vec<_> = ports.ranges().iter().map(|range| format!("{}-{}", range.start(), range.end())).collect();
    if ranges.is_empty() { "none".into() } else { ranges.join(",") }
}

fn pcp(policy: PcpPolicy) -> String {
    let PcpPolicy { mappings, shortest, longest } = policy;
    format!("{mappings} mappings of a subscriber, for {shortest} to {longest} seconds")
}

/// In one word, or protocol by protocol where they differ.
fn filtering(filters: Filters) -> String {
    let word = |filtering| match filtering {
        Filtering::EndpointIndependent => "endpoint-independent",
        Filtering::AddressDependent => "address-dependent",
    };
    match filters.common() {
        Some(filtering) => word(filtering).to_owned(),
        None => PortSpace::WITH_SLOTS.map(|space| format!("{}: {}", space.name(), word(filters.of(space)))).join(", "),
    }
}

/// Of which protocols packets make sessions.
fn sessions(policy: &Policy) -> String {
    let kept = policy.protocols.iter().filter(|space| policy.keeps_sessions(*space)).map(PortSpace::name);
    kept.collect::<Vec<_>>().join(", ")
}

fn allocation(allocation: &Allocation) -> String {
    match allocation {
        Allocation::Ports => "port by port".into(),
        Allocation::Blocks(blocks) => format!("blocks of {} ports, up to {} each", blocks.size, blocks.most),
        Allocation::Deterministic(shares) => {
            let dynamic = match shares.dynamic_ports() {
                Some((first, last)) => format!("ports {first}-{last}"),
                None => "none".into(),
            };
            format!("deterministic, {} ports each; dynamic pool: {dynamic}", shares.ports_per_host())
        }
    }
}

fn static_binding(binding: &StaticBinding) -> String {
    let protocol = binding.space.name();
    let (inside, outside) = (SocketAddr::new(binding.inside, binding.inside_port.0), binding.outside);
    let behind =
        if binding.softwire.is_unspecified() { String::new() } else { format!(" behind {}", binding.softwire) };
    format!("{protocol} {inside}{behind} = {}:{}", outside.address, outside.port.0)
}

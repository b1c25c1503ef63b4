//! What is logged: what happened to a binding or to a block of ports, as lines of the log.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;
use tombolo_engine::Plan;
use tombolo_tables::binding::{Binding, Origin};
use tombolo_tables::subscriber::Subscriber;

use super::in_cluster::InCluster;
use crate::table_rows::{Endpoints, host, origin, service_name};
use crate::utc::{Moment, Utc};

/// A line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Event<'p> {
    /// About a binding.
    Binding(BindingEvent<'p>),
    /// About a block of ports.
    Block(BlockEvent<'p>),
    /// About a session.
    Session(SessionEvent<'p>),
}

impl Event<'_> {
    /// When it happened, and its name.
    pub(crate) fn head(&self) -> (Utc, &'static str) {
        match *self {
            Self::Binding(BindingEvent { time, event, .. })
            | Self::Block(BlockEvent { time, event, .. })
            | Self::Session(SessionEvent { binding: BindingEvent { time, event, .. }, .. }) => (time, event),
        }
    }
}

/// What happened to a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct BindingEvent<'p> {
    /// When, to the second.
    pub(crate) time: Utc,
    /// `created`, `removed`, or `adopted` from an earlier process.
    pub(crate) event: &'static str,
    /// Its endpoints.
    #[serde(flatten)]
    pub(crate) endpoints: Endpoints<'p>,
    /// When it was made, if the event is its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<Utc>,
    /// `pcp`, if its host has asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<&'static str>,
    /// Where it was.
    #[serde(flatten)]
    pub(crate) in_cluster: Option<InCluster<'p>>,
}

impl<'p> BindingEvent<'p> {
    /// It is there: an event of this name.
    pub(crate) fn begun(plan: &'p Plan, event: &'static str, binding: &Binding, moment: Moment) -> Self {
        let endpoints = Endpoints::of(plan, binding);
        Self {
            time: Utc::of_tick(binding.created, moment),
            event,
            endpoints,
            created: None,
            origin: asked_for(binding),
            in_cluster: InCluster::of(plan, binding.inside.service, binding.outside_ipv4),
        }
    }

    /// It was removed at `time`.
    pub(crate) fn removed(plan: &'p Plan, binding: &Binding, time: Utc, moment: Moment) -> Self {
        let service = service_name(plan, binding.inside.service);
        let in_cluster = InCluster::of(plan, binding.inside.service, binding.outside_ipv4);
        Self { in_cluster, ..Self::ended(service, binding, time, Utc::of_tick(binding.created, moment)) }
    }

    /// The end, at `time`, of a binding of a service that was called `service`.
    pub(crate) fn ended(service: &'p str, binding: &Binding, time: Utc, created: Utc) -> Self {
        let endpoints = Endpoints::in_service(service, binding);
        let origin = asked_for(binding);
        Self { time, event: "removed", endpoints, created: Some(created), origin, in_cluster: None }
    }
}

/// The origin of a binding, where its host has asked for it.
fn asked_for(binding: &Binding) -> Option<&'static str> {
    (binding.origin() == Origin::Leased).then(|| origin(binding))
}

/// What happened to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct SessionEvent<'p> {
    /// `session-created`, `session-removed`, or `session-adopted` from an earlier process; the endpoints of its
    /// binding, and its own times.
    #[serde(flatten)]
    pub(crate) binding: BindingEvent<'p>,
    /// Address of the remote party.
    pub(crate) remote: Ipv4Addr,
    /// Its port; 0 for ICMP.
    pub(crate) remote_port: u16,
}

/// What happened to a block of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct BlockEvent<'p> {
    /// When, to the second.
    pub(crate) time: Utc,
    /// `block-allocated`, `block-released`, or `block-adopted` from an earlier process, or from the node of a cluster that owned its slice
    /// before.
    pub(crate) event: &'static str,
    /// Name of the service.
    pub(crate) service: &'p str,
    /// The subscriber: its address, or the first one of its prefix.
    pub(crate) inside: IpAddr,
    /// The softwire that it is behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) softwire: Option<Ipv6Addr>,
    /// Outside address.
    pub(crate) outside: Ipv4Addr,
    /// The block.
    pub(crate) first_port: u16,
    /// Its last port.
    pub(crate) last_port: u16,
    /// When it was granted, if the event is its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<Utc>,
    /// Where it was.
    #[serde(flatten)]
    pub(crate) in_cluster: Option<InCluster<'p>>,
}

impl<'p> BlockEvent<'p> {
    /// It is the subscriber's: an event of this name.
    pub(crate) fn begun(
        service: &'p str,
        event: &'static str,
        subscriber: &Subscriber,
        (first_port, last_port): (u16, u16),
        time: Utc,
    ) -> Self {
        let (inside, softwire) = host(subscriber.key.ipv6, subscriber.key.ipv4);
        let outside = subscriber.outside_ipv4.into();
        let (created, in_cluster) = (None, None);
        Self { time, event, service, inside, softwire, outside, first_port, last_port, created, in_cluster }
    }

    /// It was given back at `time`. An earlier process may have granted it, nobody knows when.
    pub(crate) fn released(
        service: &'p str,
        subscriber: &Subscriber,
        ports: (u16, u16),
        time: Utc,
        created: Option<Utc>,
    ) -> Self {
        Self { created, ..Self::begun(service, "block-released", subscriber, ports, time) }
    }
}

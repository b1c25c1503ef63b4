//! State as rows with names, for answers on the control socket and for the log: what the tables
//! keep in numbers and bytes of the wire becomes addresses and words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::mechanism::session_state;
use tombolo_engine::{Now, Plan};
use tombolo_tables::binding::{Binding, InsideKey, Origin};
use tombolo_tables::session::{Session, State};
use tombolo_tables::subscriber::Subscriber;
use tombolo_tables::tick::Tick;

/// Whole seconds in `ticks`.
#[must_use]
pub fn seconds(ticks: u32) -> u64 {
    (u64::from(ticks) << Tick::SHIFT) / 1_000_000_000
}

/// The name of a protocol that a NAT knows.
#[must_use]
pub fn protocol_name(protocol: u8) -> &'static str {
    PortSpace::of_protocol(protocol).map_or("unknown", PortSpace::name)
}

/// The number of a protocol by its name, 0 if it has none.
#[must_use]
pub(crate) fn protocol_number(name: &str) -> u8 {
    protocol_named(name).map_or(0, PortSpace::protocol)
}

/// The protocol with this name.
#[must_use]
pub fn protocol_named(name: &str) -> Option<PortSpace> {
    PortSpace::ALL.into_iter().find(|space| space.name() == name)
}

/// The name of service number `number`, or of the one that had it under an earlier plan.
#[must_use]
pub fn service_name(plan: &Plan, number: u8) -> &str {
    plan.service_ever(number).map_or("gone", |service| &service.name)
}

/// A host inside: its address, and the softwire that it is behind where there is one.
#[must_use]
pub fn host(ipv6: [u8; 16], ipv4: [u8; 4]) -> (IpAddr, Option<Ipv6Addr>) {
    let (v6, v4) = (Ipv6Addr::from(ipv6), Ipv4Addr::from(ipv4));
    match (v6.is_unspecified(), v4.is_unspecified()) {
        (true, _) => (v4.into(), None),
        (false, true) => (v6.into(), None),
        (false, false) => (v4.into(), Some(v6)),
    }
}

/// A binding's endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Endpoints<'p> {
    /// Name of the service.
    pub service: &'p str,
    /// `tcp`, `udp`, `icmp` and the like.
    pub protocol: &'static str,
    /// Address of the host inside.
    pub inside: IpAddr,
    /// Its port or identifier.
    pub inside_port: u16,
    /// The softwire that the host is behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub softwire: Option<Ipv6Addr>,
    /// Outside address.
    pub outside: Ipv4Addr,
    /// Outside port or identifier.
    pub outside_port: u16,
}

impl<'p> Endpoints<'p> {
    /// Those of `binding`.
    #[must_use]
    pub fn of(plan: &'p Plan, binding: &Binding) -> Self {
        Self::in_service(service_name(plan, binding.inside.service), binding)
    }

    /// Those of `binding`, of a service of this name.
    #[must_use]
    pub fn in_service(service: &'p str, binding: &Binding) -> Self {
        let InsideKey { ipv6, ipv4, port, protocol, .. } = binding.inside;
        let (inside, softwire) = host(ipv6, ipv4);
        Self {
            service,
            protocol: protocol_name(protocol),
            inside,
            inside_port: u16::from_be_bytes(port),
            softwire,
            outside: binding.outside_ipv4.into(),
            outside_port: u16::from_be_bytes(binding.outside_port),
        }
    }
}

/// A binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BindingRow<'p> {
    /// Its endpoints.
    #[serde(flatten)]
    pub endpoints: Endpoints<'p>,
    /// `dynamic`, `configured`, `operator`, or `pcp`.
    pub origin: &'static str,
    /// Seconds since it was made.
    pub age: u64,
    /// Seconds since a session was last made on it; where it has none, since a packet last used it.
    pub idle: u64,
    /// Seconds for which its host has asked for it still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

/// Who made a binding.
#[must_use]
pub fn origin(binding: &Binding) -> &'static str {
    match binding.origin() {
        Origin::Dynamic => "dynamic",
        Origin::Configured => "configured",
        Origin::Operator => "operator",
        Origin::Leased => "pcp",
    }
}

impl<'p> BindingRow<'p> {
    /// Of a record and the tick at which it was last touched.
    #[must_use]
    pub fn of(plan: &'p Plan, binding: &Binding, touched: Tick, now: Now) -> Self {
        Self {
            endpoints: Endpoints::of(plan, binding),
            origin: origin(binding),
            age: seconds(now.tick().since(binding.created)),
            idle: seconds(now.tick().since(touched)),
            expires: None,
        }
    }

    /// The same, of one that its host has asked for until then.
    #[must_use]
    pub fn until(self, expires: Option<Tick>, now: Now) -> Self {
        Self { expires: expires.map(|at| seconds(at.since(now.tick()))), ..self }
    }
}

/// A session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SessionRow<'p> {
    /// Endpoints of its binding.
    #[serde(flatten)]
    pub endpoints: Endpoints<'p>,
    /// Address of the remote party.
    pub remote: Ipv4Addr,
    /// Its port; 0 for ICMP.
    pub remote_port: u16,
    /// Name of the state.
    pub state: &'static str,
    /// Seconds since a packet last refreshed it.
    pub idle: u64,
    /// Seconds that it will stay if no packet refreshes it.
    pub expires: u64,
}

impl<'p> SessionRow<'p> {
    /// Of an entry; `None` if it has outlived its time and only waits for the sweep.
    #[must_use]
    pub fn of(plan: &'p Plan, binding: &Binding, session: &Session, now: Now) -> Option<Self> {
        let idle = now.tick().since(session.seen);
        let state = plan.times.effective(session.state, idle)?;
        Some(Self {
            endpoints: Endpoints::of(plan, binding),
            remote: session.key.remote_ipv4.into(),
            remote_port: u16::from_be_bytes(session.key.remote_port),
            state: session_state::name(state),
            idle: seconds(idle),
            expires: seconds(plan.times.left(session.state, idle)),
        })
    }
}

/// True for what is kept for filtering only, and is no session of packets.
#[must_use]
pub fn is_permission(state: State) -> bool {
    state == session_state::PERMISSION || state == session_state::PERMISSION_TCP
}

/// A subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SubscriberRow<'p> {
    /// Name of the service.
    pub service: &'p str,
    /// Its address inside.
    pub inside: IpAddr,
    /// The softwire that it is behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub softwire: Option<Ipv6Addr>,
    /// The outside address that it was granted.
    pub outside: Ipv4Addr,
    /// Bindings that it has.
    pub bindings: u64,
    /// Seconds since a binding was last made for it.
    pub idle: u64,
}

impl<'p> SubscriberRow<'p> {
    /// Of a record, the number of its bindings, and the tick at which it was last touched.
    #[must_use]
    pub fn of(plan: &'p Plan, subscriber: &Subscriber, bindings: u64, touched: Tick, now: Now) -> Self {
        let (inside, softwire) = host(subscriber.key.ipv6, subscriber.key.ipv4);
        Self {
            service: service_name(plan, subscriber.key.service),
            inside,
            softwire,
            outside: subscriber.outside_ipv4.into(),
            bindings,
            idle: seconds(now.tick().since(touched)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_behind_a_softwire_differs_from_hosts_of_either_family() {
        let (v6, v4) = ("2001:db8::1".parse::<Ipv6Addr>().unwrap(), Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(host([0; 16], v4.octets()), (v4.into(), None));
        assert_eq!(host(v6.octets(), [0; 4]), (v6.into(), None));
        assert_eq!(host(v6.octets(), v4.octets()), (v4.into(), Some(v6)));
    }

    #[test]
    fn ticks_are_shown_in_seconds() {
        assert_eq!([0, 1, 100].map(seconds), [0, 1, 107]);
    }

    #[test]
    fn protocols_have_names() {
        for space in PortSpace::ALL {
            assert_eq!(protocol_named(protocol_name(space.protocol())), Some(space));
        }
        assert_eq!((protocol_named("ipip"), protocol_name(4)), (None, "unknown"));
    }
}

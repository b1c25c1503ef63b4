//! Which rows are wanted. What a filter does not name, it does not restrict.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tombolo_engine::Plan;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::mechanism::session_state;
use tombolo_tables::binding::Binding;
use tombolo_tables::session::State;

use crate::table_rows::{BindingRow, Endpoints, SessionRow, SubscriberRow, origin, protocol_named};

/// A filter as it is asked for. All that is named must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Name of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// `tcp`, `udp`, `icmp`, `sctp` and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Address or prefix that the inside, outside or remote address, or the softwire's, lies in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Address or prefix of the inside, or of its softwire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
    /// Address or prefix of the outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<String>,
    /// Address or prefix of the remote party.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// The inside, outside or remote port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Name of the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// `dynamic`, `configured` or `operator`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Silent for so many seconds at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_over: Option<u64>,
    /// Silent for less than so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_under: Option<u64>,
    /// At most so many rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// A filter that was understood.
#[derive(Debug, Clone, Default)]
pub struct Matcher {
    service: Option<u8>,
    space: Option<PortSpace>,
    address: Option<IpNet>,
    inside: Option<IpNet>,
    outside: Option<IpNet>,
    remote: Option<IpNet>,
    port: Option<u16>,
    state: Option<State>,
    origin: Option<String>,
    idle_over: u64,
    idle_under: Option<u64>,
    /// Rows that are wanted at most.
    pub limit: u64,
}

impl Matcher {
    /// The matcher of a filter, for the services of a plan.
    ///
    /// # Errors
    /// What cannot be understood, in words.
    pub fn new(filter: &Filter, plan: &Plan) -> Result<Self, String> {
        let net = |name: &str, text: &Option<String>| text.as_deref().map(|text| prefix(name, text)).transpose();
        let state = |name: &String| {
            let names: Vec<_> = session_state::NAMES.iter().map(|(_, name)| *name).collect();
            session_state::named(name).ok_or_else(|| format!("no state is called \"{name}\"; use {}", names.join(", ")))
        };
        let origins = ["dynamic", "configured", "operator", "pcp"];
        if let Some(unknown) = filter.origin.as_deref().filter(|origin| !origins.contains(origin)) {
            return Err(format!("no binding has the origin \"{unknown}\"; use {}", origins.join(", ")));
        }
        Ok(Self {
            service: filter.service.as_deref().map(|name| service(plan, name)).transpose()?,
            space: filter.protocol.as_deref().map(protocol).transpose()?,
            address: net("address", &filter.address)?,
            inside: net("inside", &filter.inside)?,
            outside: net("outside", &filter.outside)?,
            remote: net("remote", &filter.remote)?,
            port: filter.port,
            state: filter.state.as_ref().map(state).transpose()?,
            origin: filter.origin.clone(),
            idle_over: filter.idle_over.unwrap_or(0),
            idle_under: filter.idle_under,
            limit: filter.limit.unwrap_or(u64::MAX),
        })
    }

    /// True if bindings of service number `number` may be wanted.
    #[must_use]
    pub fn wants_service(&self, number: u8) -> bool {
        self.service.is_none_or(|wanted| wanted == number)
    }

    /// The protocols whose ports are wanted: the one that is named, or those that all others share theirs with.
    #[must_use]
    pub fn port_spaces(&self) -> &[PortSpace] {
        match &self.space {
            Some(named) => std::slice::from_ref(named),
            None => &PortSpace::WITH_SLOTS,
        }
    }

    /// True if an outside address may be wanted.
    #[must_use]
    pub fn wants_outside(&self, address: Ipv4Addr) -> bool {
        holds(self.outside, address) && holds(self.address, address)
    }

    /// True if sessions of a binding may be wanted: what is cheap to check before a row is made.
    #[must_use]
    pub fn may_want(&self, binding: &Binding) -> bool {
        self.wants_service(binding.inside.service)
            && self.space.is_none_or(|space| space.protocol() == binding.inside.protocol)
            && holds(self.outside, Ipv4Addr::from(binding.outside_ipv4))
            && self.origin.as_deref().is_none_or(|wanted| wanted == origin(binding))
    }

    /// True if sessions in `state` may be wanted. Permissions are only if they are asked for.
    #[must_use]
    pub fn wants_state(&self, state: State) -> bool {
        match self.state {
            Some(wanted) => wanted == state || wanted == session_state::TRANS,
            None => !crate::table_rows::is_permission(state),
        }
    }

    /// True if the row is wanted; [`may_want`](Self::may_want) has said so of its binding.
    #[must_use]
    pub fn wants_session(&self, row: &SessionRow<'_>) -> bool {
        self.state.is_none_or(|wanted| session_state::name(wanted) == row.state)
            && self.wants_idle(row.idle)
            && holds(self.remote, row.remote)
            && self.wants_endpoints(&row.endpoints, Some((row.remote, row.remote_port)))
    }

    /// True if the row is wanted; [`may_want`](Self::may_want) has said so of its record.
    #[must_use]
    pub fn wants_binding(&self, row: &BindingRow<'_>) -> bool {
        self.remote.is_none()
            && self.state.is_none()
            && self.wants_idle(row.idle)
            && self.wants_endpoints(&row.endpoints, None)
    }

    /// True if the row is wanted and its service is.
    #[must_use]
    pub fn wants_subscriber(&self, row: &SubscriberRow<'_>) -> bool {
        let is_inside = |net| has_host(net, row.inside, row.softwire);
        self.wants_idle(row.idle)
            && holds(self.outside, row.outside)
            && self.inside.is_none_or(is_inside)
            && self.address.is_none_or(|net| is_inside(net) || has(net, row.outside))
    }

    fn wants_idle(&self, idle: u64) -> bool {
        idle >= self.idle_over && self.idle_under.is_none_or(|under| idle < under)
    }

    fn wants_endpoints(&self, row: &Endpoints<'_>, remote: Option<(Ipv4Addr, u16)>) -> bool {
        let is_inside = |net| has_host(net, row.inside, row.softwire);
        let is_anywhere = |net: IpNet| {
            is_inside(net) || has(net, row.outside) || remote.is_some_and(|(address, _)| has(net, address))
        };
        self.inside.is_none_or(is_inside)
            && self.address.is_none_or(is_anywhere)
            && self.port.is_none_or(|port| {
                row.inside_port == port || row.outside_port == port || remote.is_some_and(|(_, remote)| remote == port)
            })
    }
}

/// The number of the service with this name.
///
/// # Errors
/// In words, with the names that there are.
pub fn service(plan: &Plan, name: &str) -> Result<u8, String> {
    let found = plan.numbered().find(|(_, service)| service.name == name).map(|(number, _)| number);
    found.ok_or_else(|| {
        let names: Vec<_> = plan.services.iter().map(|service| service.name.as_str()).collect();
        format!("no service is called \"{name}\"; there is {}", names.join(", "))
    })
}

/// The protocol with this name.
///
/// # Errors
/// In words, with the names that there are.
pub fn protocol(name: &str) -> Result<PortSpace, String> {
    let names = PortSpace::ALL.map(PortSpace::name).join(", ");
    protocol_named(name).ok_or_else(|| format!("no protocol is called \"{name}\"; use {names}"))
}

/// The one that is named, or all.
///
/// # Errors
/// As [`protocol`].
pub fn protocols(name: Option<&str>) -> Result<Vec<PortSpace>, String> {
    name.map_or_else(|| Ok(PortSpace::ALL.to_vec()), |name| Ok(vec![protocol(name)?]))
}

/// An address or a prefix.
///
/// # Errors
/// In words.
pub fn prefix(name: &str, text: &str) -> Result<IpNet, String> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    net.map_err(|_| format!("{name} \"{text}\" is neither an address nor a prefix"))
}

fn has(net: IpNet, address: impl Into<IpAddr>) -> bool {
    net.contains(&address.into())
}

fn has_host(net: IpNet, inside: IpAddr, softwire: Option<Ipv6Addr>) -> bool {
    has(net, inside) || softwire.is_some_and(|wire| has(net, wire))
}

fn holds(net: Option<IpNet>, address: Ipv4Addr) -> bool {
    net.is_none_or(|net| has(net, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: SessionRow<'static> = SessionRow {
        endpoints: Endpoints {
            service: "nat64",
            protocol: "tcp",
            inside: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
            inside_port: 1111,
            softwire: Some(Ipv6Addr::LOCALHOST),
            outside: Ipv4Addr::new(192, 0, 2, 1),
            outside_port: 2222,
        },
        remote: Ipv4Addr::new(198, 51, 100, 2),
        remote_port: 80,
        state: "established",
        idle: 10,
        expires: 100,
    };

    fn wants(filter: Filter) -> bool {
        let plan = Plan { services: Vec::new(), ..crate::control::testing::plan() };
        Matcher::new(&filter, &plan).unwrap().wants_session(&ROW)
    }

    #[test]
    fn all_that_a_filter_names_must_hold() {
        let text = |text: &str| Some(text.to_owned());
        assert!(wants(Filter::default()));
        for (address, expected) in [
            ("10.0.0.2", true),
            ("10.0.0.0/24", true),
            ("::1", true),
            ("192.0.2.0/24", true),
            ("198.51.100.2", true),
            ("198.51.100.3", false),
            ("2001:db8::/32", false),
        ] {
            assert_eq!(wants(Filter { address: text(address), ..Filter::default() }), expected, "{address}");
        }
        assert!(!wants(Filter { inside: text("192.0.2.1"), ..Filter::default() }));
        assert!(wants(Filter { inside: text("::1"), ..Filter::default() }));
        assert!(wants(Filter { remote: text("198.51.100.0/24"), ..Filter::default() }));
        assert!(!wants(Filter { remote: text("192.0.2.1"), ..Filter::default() }));
        for (port, expected) in [(1111, true), (2222, true), (80, true), (81, false)] {
            assert_eq!(wants(Filter { port: Some(port), ..Filter::default() }), expected, "{port}");
        }
        assert!(wants(Filter { state: text("established"), ..Filter::default() }));
        assert!(!wants(Filter { state: text("trans"), ..Filter::default() }));
        assert!(wants(Filter { idle_over: Some(10), idle_under: Some(11), ..Filter::default() }));
        assert!(!wants(Filter { idle_over: Some(11), ..Filter::default() }));
        assert!(!wants(Filter { idle_under: Some(10), ..Filter::default() }));
    }

    #[test]
    fn what_cannot_be_understood_is_told_with_what_can() {
        let text = |text: &str| Some(text.to_owned());
        let plan = crate::control::testing::plan();
        for (filter, expected) in [
            (Filter { service: text("nat46"), ..Filter::default() }, "there is test"),
            (
                Filter { protocol: text("ipip"), ..Filter::default() },
                "use tcp, udp, icmp, sctp, dccp, udp-lite, esp, gre",
            ),
            (Filter { address: text("here"), ..Filter::default() }, "address \"here\""),
            (Filter { state: text("open"), ..Filter::default() }, "established"),
            (Filter { origin: text("me"), ..Filter::default() }, "operator"),
        ] {
            let error = Matcher::new(&filter, &plan).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
